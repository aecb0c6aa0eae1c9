//! Rule: how many columns of a row are parity is compared in the layouts of crate `space` alone, and where a layout on disk is
//! read. Other files ask the layout a question with a name; a comparison of theirs would have to change with each new layout.

use crate::finding::Finding;
use crate::modules::RustFile;
use crate::tokens::Token;

/// The crate that is held to it.
const CRATE: &str = "space";
/// The folders that may compare.
const MAY_COMPARE: &[&str] = &["crates/space/src/layout/", "crates/space/src/format/"];

/// Checks the crate, and returns the line that tells how many comparisons there are.
pub(crate) fn check(files: &[RustFile]) -> (Vec<Finding>, Vec<String>) {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.krate == CRATE && !file.all_test) {
        if MAY_COMPARE.iter().any(|folder| file.path.starts_with(folder)) {
            continue;
        }
        findings.extend(comparisons(&file.shipping_tokens()).into_iter().map(|line| {
            let what = "a count of parity columns is compared".to_owned();
            Finding::new(&file.path, line, what, "ask the layout, as by `computed_columns`")
        }));
    }
    let line = format!("layouts: {CRATE}: {} comparisons with parity counts outside layout", findings.len());
    (findings, vec![line])
}

/// Returns the lines of comparisons by order, or with a number, one side of which ends in `parity`.
fn comparisons(tokens: &[Token]) -> Vec<usize> {
    let text =
        |at: Option<usize>| at.and_then(|at| tokens.get(at)).map_or("", |token: &Token| token.text.as_str());
    let mut lines = Vec::new();
    for at in 0..tokens.len() {
        let before = at.checked_sub(1);
        // `->`, `=>`, `<<` and `>>` compare nothing.
        let is_order = matches!(text(Some(at)), "<" | ">")
            && !matches!(text(before), "-" | "=" | ">" | "<")
            && !matches!(text(Some(at + 1)), "<" | ">");
        let is_equality = matches!(text(Some(at)), "=" | "!")
            && text(Some(at + 1)) == "="
            && !matches!(text(before), "<" | ">" | "=" | "!");
        if !is_order && !is_equality {
            continue;
        }
        let right = if text(Some(at + 1)) == "=" { at + 2 } else { at + 1 };
        let is_parity = ends_in_parity(tokens, at) || begins_with_parity(tokens, right);
        let is_number = |at: Option<usize>| text(at).starts_with(|first: char| first.is_ascii_digit());
        if is_parity && (is_order || is_number(before) || is_number(Some(right))) {
            lines.extend(tokens.get(at).map(|token| token.line));
        }
    }
    lines
}

/// Returns whether what stands before this token is `parity`, `x.parity` or `x.parity()`.
fn ends_in_parity(tokens: &[Token], end: usize) -> bool {
    let text = |back: usize| {
        end.checked_sub(back).and_then(|at| tokens.get(at)).map_or("", |token| token.text.as_str())
    };
    text(1) == "parity" || (text(1) == ")" && text(2) == "(" && text(3) == "parity")
}

/// Returns whether what stands from this token on is a path or a call that ends in `parity`.
fn begins_with_parity(tokens: &[Token], from: usize) -> bool {
    let path = tokens.iter().skip(from).take_while(|token| {
        matches!(token.text.as_str(), "." | ":")
            || token.text.starts_with(|first: char| first.is_alphabetic() || first == '_')
    });
    path.last().is_some_and(|token| token.text == "parity")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::House;
    use crate::tree::Tree;

    fn found(path: &str, text: &str) -> usize {
        let manifest = "[package]\nname = \"dolmen-space\"\n";
        let root = format!("mod {};", path.trim_end_matches(".rs"));
        let path = format!("crates/space/src/{path}");
        let all = [
            ("crates/space/Cargo.toml", manifest),
            ("crates/space/src/lib.rs", root.as_str()),
            (path.as_str(), text),
        ];
        let tree = Tree::of(&all);
        let (house, _) = House::read(&tree);
        let (files, _) = crate::modules::read(&tree, &house);
        check(&files).0.len()
    }

    #[test]
    fn a_comparison_with_a_count_is_found_on_either_side() {
        for one in [
            "column >= parity",
            "row.layout.parity() > 0",
            "parity == 2",
            "0 != row.parity",
            "column < self.layout.parity()",
        ] {
            assert_eq!(found("row.rs", &format!("fn f() -> bool {{ {one} }}")), 1, "{one}");
        }
    }

    #[test]
    fn arms_types_and_states_are_no_comparisons() {
        let text = "fn f(parity: Option<u8>) -> u8 { match x { Parity { parity } => parity, _ => parity << 1 } } fn g() -> bool { facts.parity == TargetParity::Valid }";
        assert_eq!(found("row.rs", text), 0);
    }
}

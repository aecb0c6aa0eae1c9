//! Rule: only edge crates touch the operating system, and of those only some may hold `unsafe`; each `unsafe` block
//! carries its argument. That the engine sees disks, time and chance through its seams alone is what lets the
//! simulator run the code that ships.

use crate::finding::Finding;
use crate::house::House;
use crate::modules::RustFile;
use crate::source::split;
use crate::tokens::Token;
use crate::tree::Tree;

/// Modules of the standard library that reach past the seams.
const STD_MODULES: [&str; 3] = ["fs", "net", "thread"];
/// Crates that reach past the seams, as code names them.
const OUTSIDE_CRATES: [&str; 5] = ["tokio", "rustix", "libc", "io_uring", "fuser"];
/// How many lines a statement may have above its `unsafe` before the argument is out of sight.
const STATEMENT_LINES_MAX: usize = 4;

/// Checks every Rust file and every manifest.
pub(crate) fn check(tree: &Tree, house: &House, files: &[RustFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for krate in house.crates.iter().filter(|krate| !house.is_edge(&krate.name)) {
        for dependency in krate.dependencies(tree).iter().filter(|dependency| !dependency.dev) {
            if OUTSIDE_CRATES.contains(&dependency.package.replace('-', "_").as_str()) {
                let what = format!("{} is no edge crate but uses {}", krate.name, dependency.package);
                findings.push(Finding::new(&krate.manifest_path, dependency.line, what, SEAM_ADVICE));
            }
        }
    }
    for file in files {
        if !house.is_edge(&file.krate) {
            check_outside(file, &mut findings);
        }
        if house.may_be_unsafe(&file.krate) {
            check_arguments(file, &mut findings);
        } else {
            check_no_unsafe(file, &mut findings);
        }
    }
    findings
}

const SEAM_ADVICE: &str = "take BlockDevice, Clock, Entropy or Spawner, or move this to an edge crate";

fn text_at(tokens: &[Token], at: usize) -> &str {
    tokens.get(at).map_or("", |token| token.text.as_str())
}

fn is_path_separator(tokens: &[Token], at: usize) -> bool {
    text_at(tokens, at) == ":" && text_at(tokens, at + 1) == ":"
}

fn check_outside(file: &RustFile, findings: &mut Vec<Finding>) {
    let tokens = file.shipping_tokens();
    for (at, token) in tokens.iter().enumerate() {
        let before = at.checked_sub(1).map_or("", |before| text_at(&tokens, before));
        let imported =
            before == "use" || before == "crate" && at >= 2 && text_at(&tokens, at - 2) == "extern";
        let names: Vec<String> = if token.text == "std" && is_path_separator(&tokens, at + 1) {
            std_modules(&tokens, at + 3)
        } else if OUTSIDE_CRATES.contains(&token.text.as_str())
            && before != ":"
            && (imported || is_path_separator(&tokens, at + 1))
        {
            vec![token.text.clone()]
        } else {
            Vec::new()
        };
        for name in names {
            let what = format!("{name} in {}, which is no edge crate", file.krate);
            findings.push(Finding::new(&file.path, token.line, what, SEAM_ADVICE));
        }
    }
}

/// The forbidden modules of `std` named at `at`, which stands behind `std::`.
fn std_modules(tokens: &[Token], at: usize) -> Vec<String> {
    let forbidden = |name: &str| STD_MODULES.contains(&name).then(|| format!("std::{name}"));
    if text_at(tokens, at) != "{" {
        return forbidden(text_at(tokens, at)).into_iter().collect();
    }
    let mut found = Vec::new();
    let mut depth = 0_usize;
    let mut at = at;
    loop {
        match text_at(tokens, at) {
            "{" => depth += 1,
            "}" => depth -= 1,
            "" => return found,
            _ => {}
        }
        if depth == 0 {
            return found;
        }
        if depth == 1 && matches!(text_at(tokens, at), "{" | ",") {
            found.extend(forbidden(text_at(tokens, at + 1)));
        }
        at += 1;
    }
}

fn check_no_unsafe(file: &RustFile, findings: &mut Vec<Finding>) {
    for (at, token) in file.tokens.iter().enumerate() {
        let lifted = matches!(token.text.as_str(), "allow" | "expect" | "warn")
            && text_at(&file.tokens, at + 1) == "("
            && file
                .tokens
                .iter()
                .skip(at + 2)
                .take_while(|token| token.text != ")")
                .any(|token| token.text == "unsafe_code");
        if lifted || token.text == "unsafe" {
            let what = format!("unsafe code in {}, which may hold none", file.krate);
            let advice = "write it safely, or move it to a crate of edge.unsafe in floors.toml";
            findings.push(Finding::new(&file.path, token.line, what, advice));
        }
    }
}

fn check_arguments(file: &RustFile, findings: &mut Vec<Finding>) {
    let lines = split(&file.text);
    for (at, token) in file.tokens.iter().enumerate() {
        let opens = text_at(&file.tokens, at + 1) == "{" || text_at(&file.tokens, at + 1) == "impl";
        if token.text == "unsafe" && opens && !has_argument(&lines, token.line) {
            let what = "an unsafe block without its argument";
            let advice = "write `// SAFETY:` directly above, with why the block's demands hold here";
            findings.push(Finding::new(&file.path, token.line, what, advice));
        }
    }
}

/// Whether a comment directly above the statement that holds `line` (from 1) gives the argument.
fn has_argument(lines: &[crate::source::Line], line: usize) -> bool {
    let mut at = line - 1;
    for _ in 0..STATEMENT_LINES_MAX {
        let Some(above) = at.checked_sub(1).and_then(|above| lines.get(above)) else { return false };
        let code = above.code.trim();
        if code.is_empty() && !above.comment.trim().is_empty() {
            break;
        }
        if code.is_empty() || code.ends_with([';', '{', '}', ',']) {
            return false;
        }
        at -= 1;
    }
    let comments = lines.get(..at).unwrap_or(&[]).iter().rev();
    comments
        .take_while(|line| line.code.trim().is_empty() && !line.comment.trim().is_empty())
        .any(|line| line.comment.contains("SAFETY:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWING: &str = "[[floor]]\nname = \"ground\"\ncrates = [\"pure\", \"edge\", \"raw\"]\n[edge]\ncrates = [\"edge\", \"raw\"]\nunsafe = [\"raw\"]\n";

    fn found(krate: &str, manifest: &str, text: &str) -> Vec<String> {
        let manifest_path = format!("crates/{krate}/Cargo.toml");
        let lib = format!("crates/{krate}/src/lib.rs");
        let tree = Tree::of(&[(crate::house::FLOORS, DRAWING), (&manifest_path, manifest), (&lib, text)]);
        let (house, _) = House::read(&tree);
        let (files, _) = crate::modules::read(&tree, &house);
        check(&tree, &house, &files)
            .iter()
            .map(|finding| format!("{}: {}", finding.line, finding.what))
            .collect()
    }

    #[test]
    fn reaching_past_the_seams_is_found_however_it_is_written() {
        for (text, expected) in [
            ("use std::fs;", "std::fs"),
            ("use std::{io, net::IpAddr, fmt};", "std::net"),
            ("use std::{\n  io::{Read, Write},\n  thread};", "std::thread"),
            ("fn f() { println!(\"{:?}\", std::fs::read(\"x\")); }", "std::fs"),
            ("use ::tokio::net;", "tokio"),
            ("use rustix as r;", "rustix"),
            ("extern crate libc;", "libc"),
            ("fn f() { libc::close(1); }", "libc"),
        ] {
            let expected = format!("1: {expected} in pure, which is no edge crate");
            let text = text.replace("::tokio", "tokio");
            assert_eq!(found("pure", "", &text), [expected], "{text}");
            assert_eq!(found("edge", "", &text), [] as [String; 0], "{text}");
        }
    }

    #[test]
    fn tests_comments_and_like_names_do_not_reach_past_the_seams() {
        for text in [
            "#[cfg(test)]\nmod tests { use std::fs; }",
            "// use std::fs;\n/// std::fs",
            "use std::{io, fmt::{self, fs}};",
            "struct S { libc: u8 }",
            "use crate::tokio::x;",
        ] {
            assert_eq!(found("pure", "", text), [] as [String; 0], "{text}");
        }
    }

    #[test]
    fn a_dependency_that_reaches_past_the_seams_is_found() {
        let manifest =
            "[dependencies]\nio-uring.workspace = true\n[dev-dependencies]\ntokio.workspace = true\n";
        assert_eq!(found("pure", manifest, ""), ["2: pure is no edge crate but uses io-uring"]);
        assert_eq!(found("edge", manifest, ""), [] as [String; 0]);
    }

    #[test]
    fn unsafe_outside_its_crates_is_found() {
        for text in [
            "unsafe fn f() {}",
            "#![allow(missing_docs, unsafe_code)]",
            "#[cfg(test)]\nmod t { fn f() { unsafe {} } }",
        ] {
            assert_eq!(found("edge", "", text).len(), 1, "{text}");
        }
        assert_eq!(found("edge", "", "// unsafe\nfn f() { g(\"unsafe\") }"), [] as [String; 0]);
    }

    #[test]
    fn an_unsafe_block_needs_its_argument_directly_above() {
        for good in [
            "fn f() {\n    // SAFETY: x\n    unsafe { g() }\n}",
            "fn f() {\n    // SAFETY: x,\n    // and y\n    let a =\n        unsafe { g() };\n}",
            "// SAFETY: x\nunsafe impl Send for A {}",
            "/// Does.\n///\n/// # Safety\n/// y\npub unsafe fn f() {}",
        ] {
            assert_eq!(found("raw", "", good), [] as [String; 0], "{good}");
        }
        for bad in [
            "fn f() {\n    unsafe { g() }\n}",
            "fn f() {\n    // SAFETY: x\n    a();\n    unsafe { g() }\n}",
            "fn f() {\n    // SAFETY: x\n\n    unsafe { g() }\n}",
            "// why\nunsafe impl Send for A {}",
            "fn f() {\n    // SAFETY: x\n\n    // why\n    unsafe { g() }\n}",
        ] {
            assert_eq!(found("raw", "", bad).len(), 1, "{bad}");
        }
    }
}

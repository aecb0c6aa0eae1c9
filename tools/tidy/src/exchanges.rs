//! Rule: the key of a place is deleted in one function of crate `space`, which commits every exchange of rows
//! (docs/design/0032, *One commit*). A second place would check other obstacles, in another order.

use crate::finding::Finding;
use crate::modules::RustFile;
use crate::tokens::Token;
use std::collections::BTreeSet;

/// The crate that is held to it.
const CRATE: &str = "space";
/// What deletes the key of a place, token by token.
const DELETES: &[&str] = &["delete", "(", "keys", ":", ":", "place", "("];

/// Checks the crate, and returns the line that tells how many places there are.
pub(crate) fn check(files: &[RustFile]) -> (Vec<Finding>, Vec<String>) {
    let mut places = BTreeSet::new();
    for file in files.iter().filter(|file| file.krate == CRATE && !file.all_test) {
        places.extend(
            functions_that_delete(&file.shipping_tokens()).into_iter().map(|name| (file.path.clone(), name)),
        );
    }
    let names: Vec<String> = places.iter().map(|(path, name)| format!("{path}: {name}")).collect();
    let line = format!("exchanges: {CRATE}: {} place that commits one", places.len());
    let findings = match places.len() {
        1 => Vec::new(),
        _ => {
            let what = format!("{} functions delete the key of a place: {}", places.len(), names.join(", "));
            let path = places.first().map_or(CRATE, |(path, _)| path.as_str());
            vec![Finding::new(path, 0, what, "have commit_exchange exchange the row")]
        }
    };
    (findings, vec![line])
}

/// Returns the functions whose bodies delete the key of a place.
fn functions_that_delete(tokens: &[Token]) -> BTreeSet<String> {
    let text = |at: usize| tokens.get(at).map_or("", |token: &Token| token.text.as_str());
    let (mut function, mut found) = (String::new(), BTreeSet::new());
    for at in 0..tokens.len() {
        if text(at) == "fn" {
            text(at + 1).clone_into(&mut function);
        }
        if DELETES.iter().enumerate().all(|(offset, word)| text(at + offset) == *word) {
            found.insert(function.clone());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::House;
    use crate::tree::Tree;

    fn found(text: &str) -> (Vec<Finding>, Vec<String>) {
        let manifest = "[package]\nname = \"dolmen-space\"\n";
        let all = [("crates/space/Cargo.toml", manifest), ("crates/space/src/lib.rs", text)];
        let tree = Tree::of(&all);
        let (house, _) = House::read(&tree);
        let (files, _) = crate::modules::read(&tree, &house);
        check(&files)
    }

    const ONE: &str = "fn one() { change.delete(keys::place(1, 2)); change.delete(keys::place(3, 4)); }";

    #[test]
    fn a_second_function_that_deletes_the_key_of_a_row_is_found() {
        assert_eq!(found(ONE).0.len(), 0);
        assert_eq!(found(ONE).1, ["exchanges: space: 1 place that commits one"]);
        let two = format!("{ONE}\nfn two() {{ change\n.delete(keys::place(5, 6)) }}");
        assert_eq!(found(&two).0.len(), 1);
    }

    #[test]
    fn counts_of_rows_and_tests_are_no_places_and_none_is_a_breach() {
        let with_others = format!(
            "{ONE}\nfn f() {{ change.delete(keys::row_count(1)); change.put(keys::place(1, 2), v) }}\n#[cfg(test)]\nmod tests {{ fn t() {{ change.delete(keys::place(1, 2)) }} }}"
        );
        assert_eq!(found(&with_others).0.len(), 0);
        assert_eq!(found("fn none() {}").0.len(), 1);
    }
}

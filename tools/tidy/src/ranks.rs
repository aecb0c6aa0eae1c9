//! Rule: each lock of crate `space` has a rank. A lock without one is outside the order that `dolmen_block_io::ranks` checks,
//! and a task that takes it could wait for another one for ever.

use crate::finding::Finding;
use crate::modules::RustFile;

/// The crate whose locks are all ranked.
const CRATE: &str = "space";
/// The type and the function that make a lock without a rank, as tokens.
const UNRANKED: [&str; 4] = ["AsyncMutex", ":", ":", "unranked"];
const ADVICE: &str = "give it a rank in crates/space/src/resources/ranks.rs";

/// Checks what crate `space` ships.
pub(crate) fn check(files: &[RustFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.krate == CRATE) {
        let tokens = file.shipping_tokens();
        let breaches = tokens
            .windows(UNRANKED.len())
            .filter(|window| window.iter().map(|token| token.text.as_str()).eq(UNRANKED));
        for breach in breaches {
            let line = breach.first().map_or(0, |token| token.line);
            findings.push(Finding::new(&file.path, line, "a lock without a rank".to_owned(), ADVICE));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::House;
    use crate::tree::Tree;

    fn found(krate: &str, text: &str) -> usize {
        let drawing =
            "[[floor]]\nname = \"all\"\ncrates = [\"space\", \"nbd\"]\n[edge]\ncrates = []\nunsafe = []\n";
        let lib = format!("crates/{krate}/src/lib.rs");
        let manifest = format!("crates/{krate}/Cargo.toml");
        let tree = Tree::of(&[(crate::house::FLOORS, drawing), (&manifest, ""), (&lib, text)]);
        let (house, _) = House::read(&tree);
        let (files, _) = crate::modules::read(&tree, &house);
        check(&files).len()
    }

    #[test]
    fn a_lock_without_a_rank_is_found_in_space_alone() {
        let text = "fn f() -> AsyncMutex { AsyncMutex::unranked(\"x\") }";
        assert_eq!(found("space", text), 1);
        assert_eq!(found("nbd", text), 0);
        assert_eq!(found("space", "fn f() { AsyncMutex::ranked(r) } // AsyncMutex::unranked"), 0);
        assert_eq!(found("space", "#[cfg(test)]\nmod tests { fn f() { AsyncMutex::unranked(\"x\") } }"), 0);
    }
}

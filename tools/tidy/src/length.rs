//! Rule: a file is short enough to be read at one sitting.

use crate::finding::Finding;
use crate::modules::RustFile;

/// Lines of production code in one file, at most.
const LINES_MAX: usize = 1000;

/// Counts the lines that ship, blank ones left out; comments count, because they are read too.
pub(crate) fn check(files: &[RustFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        let ships = |(at, line): &(usize, &str)| !line.trim().is_empty() && file.ships(at + 1);
        let count = file.text.lines().enumerate().filter(ships).count();
        if count > LINES_MAX {
            let what = format!("{count} lines of production code, at most {LINES_MAX} are allowed");
            findings.push(Finding::new(
                &file.path,
                LINES_MAX,
                what,
                "give one of its nouns a file of its own",
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::files_of;

    #[test]
    fn only_a_file_above_the_limit_is_found_and_tests_do_not_count() {
        let code = "fn f() {}\n\n".repeat(LINES_MAX);
        let tests = format!("{code}#[cfg(test)]\nmod tests {{\n{code}}}\n");
        let long = format!("{code}fn one_more() {{}}\n");
        let findings =
            |text: &str| check(&files_of(&[("crates/a/Cargo.toml", ""), ("crates/a/src/lib.rs", text)]));
        assert_eq!(findings(&tests), []);
        assert!(findings(&long)[0].to_string().contains("1001 lines of production code"));
    }
}

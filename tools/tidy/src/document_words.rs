//! Rule: documents that a newcomer reads whole keep within a number of words. So do the folders of documents, and each row of the
//! known faults.

use crate::finding::Finding;
use crate::tree::Tree;

/// Words of a whole document, at most.
const DOCUMENTS: [(&str, usize); 3] =
    [("README.md", 950), ("ARCHITECTURE.md", 2400), ("docs/where_things_go.md", 320)];
/// Words of all documents below a folder together, at most. The numbers fall with the documents.
const FOLDERS: [(&str, usize); 3] = [("docs/design/", 39_800), ("docs/guide/", 12_000), ("", 95_600)];
/// Pages made of a table in the code: people look things up in them, and a test keeps them equal to it.
const MADE: [&str; 1] = ["docs/metrics.md"];
/// The table of known faults.
const FAULTS: &str = "docs/known_faults.md";
/// Words of a row of that table, at most; the bars between its cells do not count.
const FAULT_WORDS_MAX: usize = 40;
/// The beginning of such a row.
const FAULT_ROW: &str = "| KF-";

/// Counts the words of documents and folders, drawings included, and those of each known fault.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, most) in DOCUMENTS {
        let count = tree.text(path).unwrap_or_default().split_whitespace().count();
        if count > most {
            let what = format!("{count} words, at most {most} are allowed");
            findings.push(Finding::new(path, 0, what, "say it shorter, or move it to a page of its own"));
        }
    }
    for (folder, most) in FOLDERS {
        let documents =
            tree.ending(".md").filter(|(path, _)| path.starts_with(folder) && !MADE.contains(path));
        let count: usize = documents.map(|(_, text)| text.split_whitespace().count()).sum();
        if count > most {
            let what = format!("{count} words in all documents of this folder, at most {most} are allowed");
            let name = if folder.is_empty() { "." } else { folder };
            findings.push(Finding::new(name, 0, what, "say it shorter, or drop what the code says"));
        }
    }
    let rows = tree.text(FAULTS).unwrap_or_default().lines().enumerate();
    for (at, row) in rows.filter(|(_, line)| line.starts_with(FAULT_ROW)) {
        let count = row.split_whitespace().filter(|word| *word != "|").count();
        if count > FAULT_WORDS_MAX {
            let what = format!("{count} words in a known fault, at most {FAULT_WORDS_MAX} are allowed");
            findings.push(Finding::new(FAULTS, at + 1, what, "say it shorter, and link to a note"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> String {
        "word ".repeat(count)
    }

    #[test]
    fn a_document_above_its_limit_is_found_and_one_at_it_is_not() {
        for (path, most) in DOCUMENTS {
            assert_eq!(check(&Tree::of(&[(path, &words(most))])), []);
            let found = check(&Tree::of(&[(path, &words(most + 1))]));
            assert!(found.len() == 1 && found[0].path == path, "{found:?}");
        }
    }

    #[test]
    fn a_folder_above_its_limit_is_found_and_one_at_it_is_not() {
        for (folder, most) in FOLDERS {
            let first = format!("{folder}one.md");
            let second = format!("{folder}two/three.md");
            let found = |count| {
                let half = words(count / 2);
                let rest = words(count - count / 2);
                check(&Tree::of(&[(&first, &half), (&second, &rest)]))
            };
            assert_eq!(found(most), []);
            assert_eq!(found(most + 1).len(), 1, "{folder}");
        }
    }

    #[test]
    fn a_page_made_of_a_table_counts_in_no_folder() {
        for page in MADE {
            assert_eq!(check(&Tree::of(&[(page, &words(100_000))])), []);
        }
    }

    #[test]
    fn a_row_of_the_known_faults_above_its_limit_is_found_and_other_text_is_not() {
        let row = |count| format!("{}\n| KF-001 | {}| low | none |\n", words(100), words(count - 3));
        assert_eq!(check(&Tree::of(&[(FAULTS, &row(FAULT_WORDS_MAX))])), []);
        let found = check(&Tree::of(&[(FAULTS, &row(FAULT_WORDS_MAX + 1))]));
        assert!(found.len() == 1 && found[0].line == 2, "{found:?}");
    }
}

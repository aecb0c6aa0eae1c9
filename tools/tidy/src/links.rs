//! Rule: a relative link in a document leads to a file of the project.

use crate::finding::Finding;
use crate::tree::Tree;

/// Checks every Markdown file.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".md") {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut fenced = false;
        for (at, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
            }
            if fenced {
                continue;
            }
            for target in targets(line) {
                let file = target.split(['#', '?']).next().unwrap_or("");
                let found = resolve(folder, file).is_some_and(|full| tree.contains(&full));
                if !file.is_empty() && !is_elsewhere(target) && !found {
                    let what = format!("the link to {target:?} leads nowhere");
                    findings.push(Finding::new(
                        path,
                        at + 1,
                        what,
                        "correct it, or write the file it promises",
                    ));
                }
            }
        }
    }
    findings
}

/// The targets of `[text](target)` and `[name]: target`, code spans left out.
fn targets(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    if line.starts_with('[') {
        found.extend(line.split_once("]: ").and_then(|(_, target)| target.split_whitespace().next()));
    }
    for (at, _) in line.match_indices("](") {
        let quoted = line.get(..at).is_some_and(|before| before.matches('`').count() % 2 == 1);
        let rest = line.get(at + 2..).unwrap_or("");
        let end = rest.find([')', ' ']).unwrap_or(rest.len());
        if !quoted {
            found.extend(rest.get(..end));
        }
    }
    found
}

fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// A path relative to the root; none where it leaves the project.
fn resolve(folder: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = if target.starts_with('/') {
        Vec::new()
    } else {
        folder.split('/').filter(|part| !part.is_empty()).collect()
    };
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_nowhere_are_found_and_others_are_not() {
        let text = "[a](../b.md#x) [s](d/) [w](https://e.org/x) [own](#here) `[no](no.md)`\n```\n[no](no.md)\n```\n[r]: ../b.md\n";
        let files = [("docs/a.md", text), ("b.md", "x"), ("docs/d/e.md", "x")];
        assert_eq!(check(&Tree::of(&files)), []);
        for bad in ["[a](gone.md)", "see ![p](../../out.md) now", "[r]: gone.md"] {
            let found = check(&Tree::of(&[("docs/a.md", bad)]));
            assert!(found.len() == 1 && found[0].line == 1, "{bad}: {found:?}");
        }
    }
}

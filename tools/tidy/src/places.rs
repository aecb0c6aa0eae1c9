//! Rule: nothing in the project names one machine's folders or a package registry's hosts, because it would be
//! true on that machine only.

use crate::finding::Finding;
use crate::tree::Tree;

/// Folders at the root whose paths belong to one machine or one person, without slashes, so that this file does not name what it
/// forbids.
const MACHINE_FOLDERS: [&str; 4] = ["work", "root", "home", "Users"];
/// Domains of package registries, in two parts for the same reason; the clients know them.
const REGISTRY_DOMAINS: [(&str, &str); 5] =
    [("crates", "io"), ("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("debian", "org")];
/// Written by cargo, which puts the registry's name there; and the rule that looks for it there.
const EXEMPT: [&str; 2] = ["Cargo.lock", "tools/tidy/src/licences.rs"];

/// Checks every text file of the project.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let places = MACHINE_FOLDERS.map(|folder| format!("/{folder}/"));
    let domains = REGISTRY_DOMAINS.map(|(name, ending)| format!("{name}.{ending}"));
    for (path, text) in tree.all().filter(|(path, _)| !EXEMPT.contains(path)) {
        for (at, line) in text.lines().enumerate() {
            for place in places.iter().filter(|place| starts_a_path(line, place)) {
                let what = format!("a path below {place} exists on one machine only");
                findings.push(Finding::new(
                    path,
                    at + 1,
                    what,
                    "write it relative to the checkout or as $HOME",
                ));
            }
            for host in domains.iter().filter(|host| is_host(line, host)) {
                let what = format!("{host} is a package registry's host");
                findings.push(Finding::new(
                    path,
                    at + 1,
                    what,
                    "name the package and leave the host to its client",
                ));
            }
        }
    }
    findings
}

/// Whether `domain`, or a name below it, stands in `line` as a host.
fn is_host(line: &str, domain: &str) -> bool {
    line.match_indices(domain)
        .any(|(at, _)| line.get(..at).is_some_and(|before| before.ends_with(['/', '.'])))
}

/// Whether `place` stands in `line` as the start of a path, not within a longer one, as below `/srv`.
fn starts_a_path(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line.get(..at).and_then(|start| start.chars().next_back());
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '}' | '~'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_one_machine_and_registry_hosts_are_found() {
        let host = format!("see https://{}.{}/x", "pypi", "org");
        let [work, root, home, _] = MACHINE_FOLDERS;
        let paths = [format!("cd /{work}/main"), format!("\"/{root}/x\""), format!("a=/{home}/me/x"), host];
        for text in &paths {
            assert_eq!(check(&Tree::of(&[("docs/a.md", text)])).len(), 1, "{text}");
        }
    }

    #[test]
    fn other_paths_are_left_alone() {
        let [work, _, home, _] = MACHINE_FOLDERS;
        for before in ["/srv", "$HOME", "docs", "https://example.org"] {
            for folder in [work, home] {
                let text = format!("{before}/{folder}/x");
                assert_eq!(check(&Tree::of(&[("docs/a.md", &text)])), [], "{text}");
            }
        }
        assert_eq!(check(&Tree::of(&[("docs/a.md", "network/")])), []);
        assert_eq!(check(&Tree::of(&[("Cargo.lock", &format!("cd /{work}/main"))])), []);
    }
}

//! Rule: nothing in the project names one machine's folders or a package registry's hosts, because it would be
//! true on that machine only.

use crate::finding::Finding;
use crate::tree::Tree;

/// Beginnings of paths that belong to one machine or one person.
const MACHINE_PATHS: [&str; 4] = ["/work/", "/root/", "/home/", "/Users/"];
/// Domains of package registries, in two parts, so that this file does not name what it forbids; the clients know them.
const REGISTRY_DOMAINS: [(&str, &str); 5] =
    [("crates", "io"), ("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("debian", "org")];
/// Written by cargo, which puts the registry's name there; and this crate, which names what it forbids.
const EXEMPT: [&str; 2] = ["Cargo.lock", "crates/tidy/"];

/// Checks every text file of the project.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.all().filter(|(path, _)| !EXEMPT.iter().any(|start| path.starts_with(start))) {
        for (at, line) in text.lines().enumerate() {
            for place in MACHINE_PATHS.iter().filter(|place| starts_a_path(line, place)) {
                let what = format!("a path below {place} exists on one machine only");
                findings.push(Finding::new(
                    path,
                    at + 1,
                    what,
                    "write it relative to the checkout or as $HOME",
                ));
            }
            let domains = REGISTRY_DOMAINS.map(|(name, ending)| format!("{name}.{ending}"));
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

/// Whether `place` stands in `line` as the start of a path, not within a longer one such as `/srv/work/`.
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
        for text in ["cd /work/main", "\"/root/x\"", "a=/home/me/x", &host] {
            assert_eq!(check(&Tree::of(&[("docs/a.md", text)])).len(), 1, "{text}");
        }
    }

    #[test]
    fn other_paths_are_left_alone() {
        for text in ["/srv/work/x", "$HOME/work/x", "docs/work/x", "https://example.org/home/x", "network/"] {
            assert_eq!(check(&Tree::of(&[("docs/a.md", text)])), [], "{text}");
        }
        assert_eq!(check(&Tree::of(&[("Cargo.lock", "cd /work/main")])), []);
    }
}

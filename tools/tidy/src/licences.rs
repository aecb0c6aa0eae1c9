//! Rule: what the project is built from comes from the public registry or from the checkout, under a licence that
//! asks for no more than its name to be kept.

use crate::finding::Finding;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Licences that let everybody use the code in any work.
const PERMISSIVE: [&str; 13] = [
    "0BSD",
    "Apache-2.0",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];
/// The public registry's mark at the end of a source; mirrors of it keep the mark.
const REGISTRY_MARK: &str = "/crates.io-index";
const LOCK: &str = "Cargo.lock";

/// Asks cargo for all packages that the build may use, without the network.
pub(crate) fn read(root: &Path) -> Result<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root)
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .output()
        .context("starting cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim().replace('\n', " "));
    }
    serde_json::from_slice(&output.stdout).context("reading what cargo metadata printed")
}

/// Checks licence and source of every package.
pub(crate) fn check(metadata: &Result<Value>) -> Vec<Finding> {
    let metadata = match metadata {
        Ok(metadata) => metadata,
        Err(error) => {
            return vec![Finding::new(
                LOCK,
                0,
                format!("{error:#}"),
                "run cargo fetch --locked and commit the lock file",
            )];
        }
    };
    let packages = metadata.get("packages").and_then(Value::as_array);
    packages.into_iter().flatten().flat_map(check_package).collect()
}

fn check_package(package: &Value) -> Vec<Finding> {
    let field = |name: &str| package.get(name).and_then(Value::as_str);
    let name = format!("{} {}", field("name").unwrap_or("?"), field("version").unwrap_or("?"));
    let mut findings = Vec::new();
    let licence = field("license").unwrap_or("");
    if !is_permissive(licence) {
        let what = format!("{name} is under {licence:?}, which is not on the list of permissive licences");
        findings.push(Finding::new(LOCK, 0, what, "use another package"));
    }
    let source = field("source");
    if source.is_some_and(|source| {
        !source.starts_with("registry+") && !source.starts_with("sparse+")
            || !source.trim_end_matches('/').ends_with(REGISTRY_MARK)
    }) {
        let what = format!("{name} comes from {}", source.unwrap_or(""));
        findings.push(Finding::new(LOCK, 0, what, "take a published version of it"));
    }
    findings
}

/// Whether an SPDX expression can be met with permissive licences alone.
fn is_permissive(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Expression { words: &words };
    parser.any() == Some(true) && parser.words.is_empty()
}

/// A recursive descent over the words of an expression; `None` where it is malformed.
struct Expression<'a> {
    words: &'a [&'a str],
}

impl Expression<'_> {
    fn next_is(&mut self, word: &str) -> bool {
        match self.words.split_first() {
            Some((first, rest)) if first.eq_ignore_ascii_case(word) => {
                self.words = rest;
                true
            }
            _ => false,
        }
    }

    fn any(&mut self) -> Option<bool> {
        let mut met = self.all()?;
        while self.next_is("OR") {
            met |= self.all()?;
        }
        Some(met)
    }

    fn all(&mut self) -> Option<bool> {
        let mut met = self.one()?;
        while self.next_is("AND") {
            met &= self.one()?;
        }
        Some(met)
    }

    fn one(&mut self) -> Option<bool> {
        if self.next_is("(") {
            let met = self.any()?;
            return self.next_is(")").then_some(met);
        }
        let (name, rest) = self.words.split_first()?;
        self.words = rest;
        if self.next_is("WITH") {
            // An exception only ever gives more rights; it is skipped.
            self.words = self.words.split_first()?.1;
        }
        Some(PERMISSIVE.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_met_when_one_way_through_it_is_permissive() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "MIT OR GPL-3.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR MIT",
        ] {
            assert!(is_permissive(good), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-2.0", "(MIT", "MIT OR", "MIT Apache-2.0", "MPL-2.0"] {
            assert!(!is_permissive(bad), "{bad}");
        }
    }

    #[test]
    fn foreign_licences_and_sources_are_found() {
        let registry = format!("registry+https://example.org{REGISTRY_MARK}");
        let metadata = serde_json::json!({ "packages": [
            { "name": "own", "version": "1.0.0", "license": "Apache-2.0", "source": null },
            { "name": "good", "version": "1.0.0", "license": "MIT", "source": registry },
            { "name": "bad", "version": "1.0.0", "license": "SSPL-1.0", "source": registry },
            { "name": "git", "version": "1.0.0", "license": "MIT", "source": "git+https://example.org/crates.io-index" },
            { "name": "other", "version": "1.0.0", "license": "MIT", "source": "registry+https://example.org/index" },
        ]});
        let found: Vec<String> = check(&Ok(metadata)).iter().map(|finding| finding.what.clone()).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("bad 1.0.0 is under \"SSPL-1.0\""));
        assert!(
            found[1].starts_with("git 1.0.0 comes from git+")
                && found[2].starts_with("other 1.0.0 comes from registry+")
        );
    }

    #[test]
    fn a_list_that_cannot_be_read_is_a_finding() {
        assert_eq!(check(&Err(anyhow::anyhow!("no lock file"))).len(), 1);
    }
}

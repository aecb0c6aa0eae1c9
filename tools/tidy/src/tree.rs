//! The checkout as the checks see it: path → text of every file that belongs to the project.
//!
//! It is read once, so that each check is a pure function of this value and its tests need no disk.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Files longer than this are data, not text that people write.
const TEXT_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Folders that hold what a build or a run leaves behind; skipped when git cannot tell.
const LEFTOVERS: [&str; 3] = [".git", "target", ".demo"];

/// All text files of the project.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    texts: BTreeMap<String, String>,
    others: Vec<String>,
}

impl Tree {
    /// Reads what git tracks, and what it would track, below `root`; every file where there is no git.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        for path in list(root)? {
            let full = root.join(&path);
            // A path can be tracked and yet be deleted, a link, or a submodule.
            let Ok(meta) = full.symlink_metadata() else { continue };
            if !meta.is_file() || meta.len() > TEXT_BYTES_MAX {
                tree.others.push(path);
                continue;
            }
            let bytes = std::fs::read(&full).with_context(|| format!("reading {}", full.display()))?;
            match String::from_utf8(bytes) {
                Ok(text) if !text.contains('\0') => {
                    tree.texts.insert(path, text);
                }
                Ok(_) | Err(_) => tree.others.push(path),
            }
        }
        Ok(tree)
    }

    /// A tree that exists in memory only.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let texts = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        Self { texts, others: Vec::new() }
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// Whether a file or a folder of this name belongs to the project.
    pub(crate) fn contains(&self, path: &str) -> bool {
        let below = format!("{path}/");
        let matches = |name: &String| name == path || name.starts_with(&below);
        path.is_empty() || self.texts.keys().any(matches) || self.others.iter().any(matches)
    }

    /// All files with one of these endings, with their texts.
    pub(crate) fn ending<'a>(&'a self, ending: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.all().filter(move |(path, _)| path.ends_with(ending))
    }

    /// All files, with their texts, by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }
}

fn list(root: &Path) -> Result<Vec<String>> {
    let git = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output();
    let mut names: Vec<String> = match git {
        Ok(output) if output.status.success() => {
            output.stdout.split(|b| *b == 0).map(|name| String::from_utf8_lossy(name).into_owned()).collect()
        }
        // A tarball has no git; what is there is what there is.
        Ok(_) | Err(_) => {
            let mut found = Vec::new();
            walk(root, "", &mut found)?;
            found
        }
    };
    names.retain(|name| !name.is_empty());
    names.sort();
    names.dedup();
    Ok(names)
}

fn walk(root: &Path, below: &str, found: &mut Vec<String>) -> Result<()> {
    let folder = root.join(below);
    for entry in std::fs::read_dir(&folder).with_context(|| format!("listing {}", folder.display()))? {
        let entry = entry.with_context(|| format!("listing {}", folder.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if LEFTOVERS.contains(&name.as_str()) {
            continue;
        }
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        if entry.file_type().with_context(|| format!("looking at {path}"))?.is_dir() {
            walk(root, &path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// The first line of `text` that holds `needle`, from 1; 1 where none does.
pub(crate) fn line_of(text: &str, needle: &str) -> usize {
    text.lines().position(|line| line.contains(needle)).map_or(1, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without git, every text file is found, binary files are known by name only, leftovers are not seen.
    #[test]
    fn a_folder_without_git_is_read_whole() {
        let folder = tempfile::tempdir().unwrap();
        for (path, bytes) in [("a/b.rs", &b"x"[..]), ("target/c.rs", b"x"), ("golden.img", b"\0\xff")] {
            let full = folder.path().join(path);
            std::fs::create_dir_all(full.parent().unwrap()).unwrap();
            std::fs::write(full, bytes).unwrap();
        }
        let tree = Tree::read(folder.path()).unwrap();
        assert_eq!(tree.all().collect::<Vec<_>>(), [("a/b.rs", "x")]);
        assert!(tree.contains("golden.img") && tree.contains("a") && !tree.contains("target/c.rs"));
    }
}

//! Tidy: the house rules that neither the compiler nor clippy knows, checked over the whole checkout.
//!
//! `cargo run -p dolmen-tidy` prints one line for each breach, `path:line: what; what to do`, and leaves with 1 if
//! there was any. Each check is a pure function of the text of the project, in a file of its own with planted
//! breaches as its tests.

mod document_words;
mod exchanges;
mod finding;
mod floors;
mod format_table;
mod house;
mod invented;
mod layout;
mod length;
mod licences;
mod links;
mod modules;
mod parity;
mod places;
mod ranks;
mod seams;
mod shell;
mod source;
mod structure;
mod tokens;
mod tree;
mod uses;
mod words;

use anyhow::{Context, Result, bail};
use finding::Finding;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> Result<ExitCode> {
    let root = match std::env::args_os().nth(1) {
        Some(root) => PathBuf::from(root),
        None => find_root(&std::env::current_dir().context("asking for the current folder")?)?,
    };
    let (findings, counted) = check(&root)?;
    let mut out = std::io::stdout().lock();
    for finding in &findings {
        writeln!(out, "{finding}").context("printing")?;
    }
    for line in &counted {
        writeln!(out, "{line}").context("printing")?;
    }
    writeln!(out, "tidy: {} found", findings.len()).context("printing")?;
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The nearest folder above that holds the drawing of the floors.
fn find_root(start: &Path) -> Result<PathBuf> {
    let found = start.ancestors().find(|folder| folder.join(house::FLOORS).is_file());
    match found {
        Some(root) => Ok(root.to_owned()),
        None => {
            bail!("no {} in {} or above it; start tidy inside the checkout", house::FLOORS, start.display())
        }
    }
}

/// Returns what is wrong, and lines of what was counted.
fn check(root: &Path) -> Result<(Vec<Finding>, Vec<String>)> {
    let tree = tree::Tree::read(root)?;
    let (house, mut findings) = house::House::read(&tree);
    let (files, orphans) = modules::read(&tree, &house);
    findings.extend(orphans);
    findings.extend(floors::check(&tree, &house));
    findings.extend(seams::check(&tree, &house, &files));
    findings.extend(ranks::check(&files));
    findings.extend(length::check(&files));
    let (breaches, mut counted) = structure::check(&tree, &house, &files);
    findings.extend(breaches);
    let (breaches, places) = exchanges::check(&files);
    findings.extend(breaches);
    counted.extend(places);
    let (breaches, comparisons) = parity::check(&files);
    findings.extend(breaches);
    counted.extend(comparisons);
    findings.extend(words::check(&tree, &files));
    findings.extend(invented::check(&tree, &files));
    findings.extend(places::check(&tree));
    findings.extend(shell::check(&tree));
    findings.extend(links::check(&tree));
    findings.extend(document_words::check(&tree));
    findings.extend(format_table::check(&tree, &files));
    findings.extend(licences::check(&licences::read(root)));
    findings.sort();
    findings.dedup();
    Ok((findings, counted))
}

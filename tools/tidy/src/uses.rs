//! Which module of a crate uses which, from its `use` items and from paths in its code.

use crate::modules::RustFile;
use crate::tokens::{Token, after_group};
use std::collections::{BTreeMap, BTreeSet};

/// A chain of re-exports longer than this is a circle.
const RE_EXPORTS_MAX: usize = 16;

/// One module uses another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Use {
    pub from: String,
    pub to: String,
}

/// A path as it is written in a module.
#[derive(Debug, Clone)]
struct Path {
    segments: Vec<String>,
    /// The name under which a `use` item makes it known; `None` for a path in code.
    known_as: Option<String>,
    /// Whether the item makes it known to others as well.
    public: bool,
}

/// The modules of a crate by their path (`a::b`; the root is empty), each with the paths that it writes.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    of: BTreeMap<String, Vec<Path>>,
}

impl Modules {
    /// Adds a file; one that holds nothing that ships is left out.
    pub(crate) fn add(&mut self, folder: &str, file: &RustFile) {
        let Some(name) = file.path.strip_prefix(folder).and_then(|path| path.strip_prefix("src/")) else {
            return;
        };
        if file.all_test {
            return;
        }
        let name = name.trim_end_matches(".rs");
        let name =
            if matches!(name, "lib" | "main") { "" } else { name.strip_suffix("/mod").unwrap_or(name) };
        self.of.entry(name.replace('/', "::")).or_default().extend(paths(&file.shipping_tokens()));
    }

    /// Returns who uses whom. A module that only re-exports what lies below it does not use that.
    pub(crate) fn edges(&self) -> BTreeSet<Use> {
        let mut edges = BTreeSet::new();
        for (from, paths) in &self.of {
            for path in paths {
                let Some(absolute) = self.absolute(from, &path.segments) else { continue };
                let to = self.defining(&absolute, 0);
                let is_below = from.is_empty() || to.starts_with(&format!("{from}::"));
                if to != *from && !(path.public && is_below) && !to.is_empty() {
                    edges.insert(Use { from: from.clone(), to });
                }
            }
        }
        edges
    }

    /// Returns a path from the root of the crate; `None` for one that leads out of it.
    fn absolute(&self, from: &str, segments: &[String]) -> Option<Vec<String>> {
        let mut at: Vec<String> =
            from.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let mut rest = segments;
        match rest.first()?.as_str() {
            "crate" => {
                at.clear();
                rest = rest.get(1..)?;
            }
            "self" => rest = rest.get(1..)?,
            "super" => {
                while rest.first().is_some_and(|segment| segment == "super") {
                    at.pop()?;
                    rest = rest.get(1..)?;
                }
            }
            first => {
                let below = if from.is_empty() { first.to_owned() } else { format!("{from}::{first}") };
                self.of.get(&below)?;
            }
        }
        at.extend(rest.iter().cloned());
        Some(at)
    }

    /// Returns the module that defines what a path names.
    fn defining(&self, absolute: &[String], depth: usize) -> String {
        let mut at = String::new();
        for (index, segment) in absolute.iter().enumerate() {
            let below = if at.is_empty() { segment.clone() } else { format!("{at}::{segment}") };
            if self.of.contains_key(&below) {
                at = below;
                continue;
            }
            let known = self.of.get(&at).into_iter().flatten();
            let known = known.filter(|path| path.known_as.as_ref() == Some(segment));
            let Some(target) = known.filter_map(|path| self.absolute(&at, &path.segments)).next() else {
                break;
            };
            if depth >= RE_EXPORTS_MAX {
                break;
            }
            let target = target.into_iter().chain(absolute.iter().skip(index + 1).cloned());
            return self.defining(&target.collect::<Vec<_>>(), depth + 1);
        }
        at
    }
}

/// Returns all paths of a file that may name a module of its crate.
fn paths(tokens: &[Token]) -> Vec<Path> {
    let mut found = Vec::new();
    let mut at = 0;
    // Where the modules end that stand in the file and are open.
    let mut inline: Vec<usize> = Vec::new();
    while at < tokens.len() {
        inline.retain(|end| at < *end);
        if text(tokens, at) == "mod" && text(tokens, at + 2) == "{" {
            inline.push(after_group(tokens, at + 2));
        }
        let of_file = |segments: Vec<String>| of_file(segments, inline.len());
        if text(tokens, at) == "use" {
            let before = at.checked_sub(1).map_or("", |before| text(tokens, before));
            let public = matches!(before, "pub" | ")");
            let mut items = Vec::new();
            at = use_tree(tokens, at + 1, &[], &mut items);
            let items =
                items.into_iter().filter_map(|(segments, known_as)| Some((of_file(segments)?, known_as)));
            found.extend(items.into_iter().map(|(segments, known_as)| Path {
                segments,
                known_as: Some(known_as),
                public,
            }));
            continue;
        }
        let is_start = at.checked_sub(1).is_none_or(|before| text(tokens, before) != ":");
        if is_start && is_name(text(tokens, at)) && is_separator(tokens, at + 1) {
            let mut segments = vec![text(tokens, at).to_owned()];
            at += 1;
            while is_separator(tokens, at) && is_name(text(tokens, at + 2)) {
                segments.push(text(tokens, at + 2).to_owned());
                at += 3;
            }
            found.extend(of_file(segments).map(|segments| Path { segments, known_as: None, public: false }));
            continue;
        }
        at += 1;
    }
    found
}

/// Returns a path in a module that stands in a file, `depth` modules deep, as the file would write it; `None` for one that stays
/// in such a module.
fn of_file(segments: Vec<String>, depth: usize) -> Option<Vec<String>> {
    if depth == 0 || segments.first().is_some_and(|first| first == "crate") {
        return Some(segments);
    }
    let supers = segments.iter().take_while(|segment| *segment == "super").count();
    (supers > depth).then(|| segments.get(depth..).map(<[String]>::to_vec)).flatten()
}

/// Reads a tree of a `use` item from `at`, and returns the place behind it.
fn use_tree(
    tokens: &[Token],
    mut at: usize,
    before: &[String],
    items: &mut Vec<(Vec<String>, String)>,
) -> usize {
    let mut segments = before.to_vec();
    loop {
        match text(tokens, at) {
            "{" => {
                at += 1;
                while !matches!(text(tokens, at), "}" | "") {
                    at = use_tree(tokens, at, &segments, items);
                    if text(tokens, at) == "," {
                        at += 1;
                    }
                }
                return at + 1;
            }
            "*" => {
                items.push((segments, "*".to_owned()));
                return at + 1;
            }
            ":" => at += 1,
            name if is_name(name) => {
                // `self` at the end of a tree names what stands before it.
                if name != "self" || segments.is_empty() {
                    segments.push(name.to_owned());
                }
                at += 1;
                if is_separator(tokens, at) {
                    continue;
                }
                let mut known_as = segments.last().cloned().unwrap_or_default();
                if text(tokens, at) == "as" {
                    text(tokens, at + 1).clone_into(&mut known_as);
                    at += 2;
                }
                items.push((segments, known_as));
                return at;
            }
            _ => return at + 1,
        }
    }
}

fn text(tokens: &[Token], at: usize) -> &str {
    tokens.get(at).map_or("", |token| token.text.as_str())
}

fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

fn is_separator(tokens: &[Token], at: usize) -> bool {
    text(tokens, at) == ":" && text(tokens, at + 1) == ":"
}

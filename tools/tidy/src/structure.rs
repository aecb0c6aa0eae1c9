//! Rule: a crate's modules form no cycles, its layers only use lower ones, and no type has so many methods that nobody can hold
//! it in mind.
//!
//! `structure.toml` names the crates that are held to it, each with what it still has of breaches. Those numbers only fall: more
//! is a finding, and so is less until the number in the file has followed.

use crate::finding::Finding;
use crate::house::House;
use crate::modules::RustFile;
use crate::tokens::{Token, after_group};
use crate::tree::Tree;
use crate::uses::{Modules, Use};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The file that says what each crate is held to.
const STRUCTURE: &str = "structure.toml";
/// Methods that a type may have, over all its `impl` blocks.
const METHODS_MAX: usize = 40;

/// The content of `structure.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Structure {
    #[serde(default, rename = "crate")]
    crates: Vec<Held>,
}

/// What a crate is held to.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Held {
    /// Its folder's name.
    name: String,
    /// Modules that still are part of a cycle.
    #[serde(default)]
    modules_in_cycles: usize,
    /// Types with more than [`METHODS_MAX`] methods, and how many each still has.
    #[serde(default)]
    large_types: BTreeMap<String, usize>,
    /// Folders of the crate, lowest first; a module in one may use the same folder and those before it.
    #[serde(default)]
    layers: Vec<String>,
    /// Uses of a higher layer that still are there.
    #[serde(default)]
    upward_uses: usize,
}

/// What was counted in one crate.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    /// Modules in cycles, each group together.
    cycles: Vec<Vec<String>>,
    large_types: BTreeMap<String, usize>,
    upward: BTreeSet<(String, String)>,
    /// The type with the most methods.
    largest: (usize, String),
}

impl Counted {
    fn modules_in_cycles(&self) -> usize {
        self.cycles.iter().map(Vec::len).sum()
    }
}

/// Checks the crates that `structure.toml` names, and returns what was counted, a line for each.
pub(crate) fn check(tree: &Tree, house: &House, files: &[RustFile]) -> (Vec<Finding>, Vec<String>) {
    let mut findings = Vec::new();
    let mut lines = Vec::new();
    let structure: Structure = match tree.text(STRUCTURE).map(toml::from_str) {
        Some(Ok(structure)) => structure,
        Some(Err(error)) => {
            let what = format!("cannot be read: {}", error.message());
            return (vec![Finding::new(STRUCTURE, 0, what, "write valid TOML")], lines);
        }
        None => return (findings, lines),
    };
    for held in &structure.crates {
        let Some(krate) = house.crates.iter().find(|krate| krate.name == held.name) else {
            let what = format!("there is no crate {}", held.name);
            findings.push(Finding::new(STRUCTURE, 0, what, "name a folder of crates/ or tools/"));
            continue;
        };
        let of_crate: Vec<&RustFile> = files.iter().filter(|file| file.krate == krate.name).collect();
        let counted = count(&krate.folder, &of_crate, &held.layers);
        findings.extend(compare(held, &counted));
        lines.push(format!(
            "structure: {}: {} modules in cycles; {} types over {METHODS_MAX} methods, the largest {} with {}; {} uses of a higher layer",
            held.name,
            counted.modules_in_cycles(),
            counted.large_types.len(),
            counted.largest.1,
            counted.largest.0,
            counted.upward.len(),
        ));
    }
    (findings, lines)
}

/// Compares the numbers of a crate with those in the file.
fn compare(held: &Held, counted: &Counted) -> Vec<Finding> {
    let groups: Vec<String> = counted.cycles.iter().map(|group| group.join(" ")).collect();
    let upward: Vec<String> = counted.upward.iter().map(|(from, to)| format!("{from} uses {to}")).collect();
    let mut numbers = vec![
        (
            "modules in cycles".to_owned(),
            counted.modules_in_cycles(),
            held.modules_in_cycles,
            groups.join("; "),
        ),
        ("uses of a higher layer".to_owned(), upward.len(), held.upward_uses, upward.join("; ")),
    ];
    let names: BTreeSet<&String> = counted.large_types.keys().chain(held.large_types.keys()).collect();
    for name in names {
        // A type that is not large counts as one that just is not.
        let of = |types: &BTreeMap<String, usize>| types.get(name).copied().unwrap_or(METHODS_MAX);
        let (found, at_most) = (of(&counted.large_types), of(&held.large_types));
        numbers.push((format!("methods of {name}"), found, at_most, String::new()));
    }
    let mut findings = Vec::new();
    for (what, found, at_most, which) in numbers {
        if found > at_most {
            let which = if which.is_empty() { which } else { format!(": {which}") };
            let what = format!("{}: {found} {what}, and at most {at_most} are allowed{which}", held.name);
            findings.push(Finding::new(
                STRUCTURE,
                0,
                what,
                "turn a dependency round, or cut what is too large",
            ));
        } else if found < at_most {
            let what = format!("{}: {found} {what}, and the file still allows {at_most}", held.name);
            let advice = if found == METHODS_MAX {
                "take it off large_types".to_owned()
            } else {
                format!("write {found}")
            };
            findings.push(Finding::new(STRUCTURE, 0, what, advice));
        }
    }
    findings
}

fn count(folder: &str, files: &[&RustFile], layers: &[String]) -> Counted {
    let mut modules = Modules::default();
    for file in files {
        modules.add(folder, file);
    }
    let edges = modules.edges();
    let mut counted = Counted { cycles: cycles(&edges), ..Counted::default() };
    let layer_of = |module: &str| {
        let first = module.split("::").next().unwrap_or_default();
        layers.iter().position(|layer| layer == first)
    };
    for Use { from, to } in &edges {
        if let (Some(from_layer), Some(to_layer)) = (layer_of(from), layer_of(to))
            && from_layer < to_layer
        {
            counted.upward.insert((from.clone(), to.clone()));
        }
    }
    let mut methods: BTreeMap<String, usize> = BTreeMap::new();
    for file in files {
        count_methods(&file.shipping_tokens(), &mut methods);
    }
    let largest = methods.iter().max_by_key(|(_, count)| **count);
    counted.largest = largest.map(|(name, count)| (*count, name.clone())).unwrap_or_default();
    counted.large_types = methods.into_iter().filter(|(_, count)| *count > METHODS_MAX).collect();
    counted
}

/// Returns the groups of modules of which each reaches each, largest first.
fn cycles(edges: &BTreeSet<Use>) -> Vec<Vec<String>> {
    let mut after: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for Use { from, to } in edges {
        after.entry(from).or_default().push(to);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        after.keys().map(|&from| (from, reached_from(from, &after))).collect();
    let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|of| of.contains(to));
    let mut groups: Vec<Vec<String>> = Vec::new();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for &module in reached.keys() {
        if !reaches(module, module) || !seen.insert(module) {
            continue;
        }
        let group: Vec<&str> = reached
            .keys()
            .copied()
            .filter(|other| reaches(module, other) && reaches(other, module))
            .collect();
        seen.extend(group.iter().copied());
        groups.push(group.into_iter().map(str::to_owned).collect());
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    groups
}

fn reached_from<'a>(from: &'a str, after: &BTreeMap<&'a str, Vec<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut ahead = vec![from];
    while let Some(module) = ahead.pop() {
        for &next in after.get(module).into_iter().flatten() {
            if reached.insert(next) {
                ahead.push(next);
            }
        }
    }
    reached
}

/// Adds the functions of each `impl` block to the count of its type.
fn count_methods(tokens: &[Token], methods: &mut BTreeMap<String, usize>) {
    let text = |at: usize| tokens.get(at).map_or("", |token: &Token| token.text.as_str());
    let mut at = 0;
    while at < tokens.len() {
        let before = at.checked_sub(1).map_or("", text);
        // `impl Trait` in a type stands behind something that an item does not.
        if text(at) != "impl" || !matches!(before, "" | "}" | ";" | "]" | "{" | "unsafe") {
            at += 1;
            continue;
        }
        let Some(open) = (at..tokens.len()).find(|&at| matches!(text(at), "{" | ";")) else { return };
        let end = after_group(tokens, open);
        if text(open) == "{"
            && let Some(name) = type_of(tokens.get(at + 1..open).unwrap_or_default())
        {
            let mut inside = open + 1;
            while inside + 1 < end {
                match text(inside) {
                    "fn" => {
                        *methods.entry(name.clone()).or_default() += 1;
                        inside += 1;
                    }
                    "{" | "(" | "[" => inside = after_group(tokens, inside),
                    _ => inside += 1,
                }
            }
        }
        at = end.max(at + 1);
    }
}

/// Returns the name of the type of an `impl` block, from the tokens between `impl` and its brace.
fn type_of(head: &[Token]) -> Option<String> {
    let mut depth = 0_usize;
    let mut name = None;
    let mut before = "";
    for token in head {
        let text = token.text.as_str();
        match text {
            "<" => depth += 1,
            ">" if before != "-" => depth = depth.saturating_sub(1),
            "for" if depth == 0 => name = None,
            "where" if depth == 0 => break,
            _ if depth == 0 && text.starts_with(|first: char| first.is_ascii_uppercase()) => {
                name = Some(text.to_owned())
            }
            _ => {}
        }
        before = text;
    }
    // One letter is a parameter.
    name.filter(|name| name.len() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(files: &[(&str, &str)], layers: &[&str]) -> Counted {
        let mut all = vec![("crates/a/Cargo.toml", "[package]\nname = \"dolmen-a\"\n")];
        all.extend(files);
        let tree = Tree::of(&all);
        let (house, _) = House::read(&tree);
        let (files, _) = crate::modules::read(&tree, &house);
        let layers: Vec<String> = layers.iter().map(|&layer| layer.to_owned()).collect();
        count("crates/a/", &files.iter().collect::<Vec<_>>(), &layers)
    }

    #[test]
    fn modules_that_use_each_other_are_a_cycle_and_re_exports_are_none() {
        let found = counted(
            &[
                ("crates/a/src/lib.rs", "mod one;\nmod two;\nmod three;\nmod four;\npub use one::One;"),
                ("crates/a/src/one.rs", "use crate::two::Two;\npub struct One;"),
                ("crates/a/src/two.rs", "use crate::One;\npub struct Two(One);"),
                (
                    "crates/a/src/three.rs",
                    "fn f() { let _ = super::one::One; }\n#[cfg(test)]\nmod tests { use crate::three::f; }",
                ),
            ],
            &[],
        );
        assert_eq!(found.cycles, [["one", "two"]]);
    }

    #[test]
    fn a_use_of_a_higher_layer_is_found_whatever_its_form() {
        for form in [
            "use crate::high::f;",
            "use crate::{high::f};",
            "fn g() { crate::high::f() }",
            "use super::super::high;",
        ] {
            let low = format!("{form}\n");
            let found = counted(
                &[
                    ("crates/a/src/lib.rs", "mod low;\nmod high;"),
                    ("crates/a/src/low/mod.rs", "mod part;"),
                    ("crates/a/src/low/part.rs", &low),
                    ("crates/a/src/high.rs", "pub fn f() {}"),
                ],
                &["low", "high"],
            );
            assert_eq!(found.upward.len(), 1, "{form}");
            let to_lower = counted(
                &[
                    ("crates/a/src/lib.rs", "mod low;\nmod high;"),
                    ("crates/a/src/low/mod.rs", "mod part;"),
                    ("crates/a/src/low/part.rs", &low),
                    ("crates/a/src/high.rs", "pub fn f() {}"),
                ],
                &["high", "low"],
            );
            assert_eq!(to_lower.upward.len(), 0, "{form}");
        }
    }

    #[test]
    fn methods_count_over_all_blocks_of_a_type() {
        let block = "fn f(&self) -> impl Iterator<Item = u8> { fn inner() {} [].into_iter() }\n";
        let text = format!(
            "struct Ty;\nimpl Ty {{ {} }}\nimpl<'a> Ext for Ty where Ty: Copy {{ {} }}\nimpl Other<Ty> for Us {{ {block} }}",
            block.repeat(30),
            block.repeat(11)
        );
        let found = counted(&[("crates/a/src/lib.rs", &text)], &[]);
        assert_eq!(found.large_types, BTreeMap::from([("Ty".to_owned(), 41)]));
        assert_eq!(found.largest, (41, "Ty".to_owned()));
    }

    #[test]
    fn a_number_that_rises_or_falls_is_found() {
        let held = |modules_in_cycles, types: &[(&str, usize)]| Held {
            name: "a".to_owned(),
            modules_in_cycles,
            large_types: types.iter().map(|&(name, count)| (name.to_owned(), count)).collect(),
            layers: Vec::new(),
            upward_uses: 0,
        };
        let counted = Counted {
            cycles: vec![vec!["b".to_owned(), "c".to_owned()]],
            large_types: BTreeMap::from([("T".to_owned(), 50)]),
            ..Counted::default()
        };
        assert_eq!(compare(&held(2, &[("T", 50)]), &counted).len(), 0);
        assert_eq!(compare(&held(1, &[("T", 50)]), &counted).len(), 1);
        assert_eq!(compare(&held(3, &[("T", 50)]), &counted).len(), 1);
        assert_eq!(compare(&held(2, &[("T", 49)]), &counted).len(), 1);
        assert_eq!(compare(&held(2, &[]), &counted).len(), 1);
        assert_eq!(compare(&held(2, &[("T", 50), ("U", 41)]), &counted).len(), 1);
    }
}

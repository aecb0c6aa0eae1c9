//! The house: the floors that `floors.toml` draws, and the crates that stand in the checkout.

use crate::finding::Finding;
use crate::tree::{Tree, line_of};
use serde::Deserialize;

/// Where the floors are drawn.
pub(crate) const FLOORS: &str = "floors.toml";

/// Where crates lie: those of the product, and tools to build, prove and measure it.
const FOLDERS: [&str; 2] = ["crates/", "tools/"];

/// The content of `floors.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Floors {
    /// Lowest first.
    #[serde(default)]
    pub floor: Vec<Floor>,
    /// The crates with special rights.
    #[serde(default)]
    pub edge: Edge,
}

/// One floor.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Floor {
    /// What messages call it.
    pub name: String,
    /// Its crates, by the names of their folders.
    pub crates: Vec<String>,
}

/// Which crates have special rights.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edge {
    /// Those that may touch the operating system.
    pub crates: Vec<String>,
    /// Those that may hold `unsafe`.
    #[serde(rename = "unsafe")]
    pub unsafe_crates: Vec<String>,
}

/// A crate of the workspace.
#[derive(Debug)]
pub(crate) struct Crate {
    /// The name of its folder.
    pub name: String,
    /// Its folder, relative to the root, with a slash at the end.
    pub folder: String,
    /// Its manifest, relative to the root.
    pub manifest_path: String,
    /// What the manifest says.
    pub manifest: toml::Table,
}

/// Floors and crates together.
#[derive(Debug, Default)]
pub(crate) struct House {
    /// The floors.
    pub floors: Floors,
    /// The crates, by name.
    pub crates: Vec<Crate>,
}

impl House {
    /// Reads floors and manifests; what cannot be read is a finding and is left out.
    pub(crate) fn read(tree: &Tree) -> (Self, Vec<Finding>) {
        let mut house = Self::default();
        let mut findings = Vec::new();
        match tree.text(FLOORS).map(toml::from_str) {
            Some(Ok(floors)) => house.floors = floors,
            Some(Err(error)) => findings.push(unreadable(FLOORS, &error)),
            None => findings.push(Finding::new(
                FLOORS,
                0,
                "there is no such file",
                "name every crate's floor in it",
            )),
        }
        for (path, text) in tree.ending("/Cargo.toml") {
            let Some(folder) = path.strip_suffix("Cargo.toml") else { continue };
            let Some(name) = name_of(folder) else { continue };
            match text.parse() {
                Ok(manifest) => {
                    house.crates.push(Crate {
                        name: name.to_owned(),
                        folder: folder.to_owned(),
                        manifest_path: path.to_owned(),
                        manifest,
                    });
                }
                Err(error) => findings.push(unreadable(path, &error)),
            }
        }
        (house, findings)
    }

    /// The place of a crate's floor, lowest 0, with its name.
    pub(crate) fn floor_of(&self, name: &str) -> Option<(usize, &str)> {
        let (at, floor) =
            self.floors.floor.iter().enumerate().find(|(_, floor)| floor.crates.iter().any(|c| c == name))?;
        Some((at, floor.name.as_str()))
    }

    /// Whether a crate may touch the operating system.
    pub(crate) fn is_edge(&self, name: &str) -> bool {
        self.floors.edge.crates.iter().any(|c| c == name)
    }

    /// Whether a crate may hold `unsafe`.
    pub(crate) fn may_be_unsafe(&self, name: &str) -> bool {
        self.floors.edge.unsafe_crates.iter().any(|c| c == name)
    }
}

/// Returns the name of the crate that lies in a folder; `None` where no crate of the workspace does.
fn name_of(folder: &str) -> Option<&str> {
    let below = FOLDERS.iter().find_map(|folders| folder.strip_prefix(folders))?;
    below.strip_suffix('/').filter(|name| !name.contains('/'))
}

fn unreadable(path: &str, error: &toml::de::Error) -> Finding {
    Finding::new(path, 0, format!("cannot be read: {}", error.message()), "write valid TOML")
}

/// A dependency as a manifest names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// The name of the package.
    pub package: String,
    /// Whether only tests, examples and benches use it.
    pub dev: bool,
    /// Whether its version comes from the workspace.
    pub inherited: bool,
    /// The line that names it.
    pub line: usize,
}

impl Crate {
    /// The name of the package.
    pub(crate) fn package(&self) -> &str {
        self.manifest
            .get("package")
            .and_then(|package| package.get("name"))
            .and_then(toml::Value::as_str)
            .unwrap_or("")
    }

    /// All dependencies, those for one target only included.
    pub(crate) fn dependencies(&self, tree: &Tree) -> Vec<Dependency> {
        let text = tree.text(&self.manifest_path).unwrap_or("");
        let mut found = Vec::new();
        collect(&self.manifest, text, &mut found);
        for target in self
            .manifest
            .get("target")
            .and_then(toml::Value::as_table)
            .into_iter()
            .flat_map(toml::Table::values)
        {
            if let Some(table) = target.as_table() {
                collect(table, text, &mut found);
            }
        }
        found
    }
}

fn collect(manifest: &toml::Table, text: &str, found: &mut Vec<Dependency>) {
    for (section, dev) in [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
    {
        let Some(table) = manifest.get(section).and_then(toml::Value::as_table) else { continue };
        for (name, value) in table {
            let package = value.get("package").and_then(toml::Value::as_str).unwrap_or(name).to_owned();
            let inherited = value.get("workspace").and_then(toml::Value::as_bool) == Some(true);
            found.push(Dependency { package, dev, inherited, line: line_of_dependency(text, section, name) });
        }
    }
}

/// The line below `[section]` that begins with a dependency's name.
fn line_of_dependency(text: &str, section: &str, name: &str) -> usize {
    let heading = format!("{section}]");
    let start = line_of(text, &heading);
    let names = |line: &str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
            || line.contains(&format!(".{name}]"))
    };
    text.lines().skip(start).position(names).map_or(start, |at| start + at + 1)
}

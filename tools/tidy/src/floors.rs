//! Rule: a crate stands on one floor and uses only its own floor and those below; manifests follow the house.

use crate::finding::Finding;
use crate::house::{Crate, Dependency, FLOORS, House};
use crate::tree::{Tree, line_of};
use std::collections::BTreeSet;

/// Checks the floors of all crates and the shape of their manifests.
pub(crate) fn check(tree: &Tree, house: &House) -> Vec<Finding> {
    let mut findings = check_drawing(tree, house);
    for krate in &house.crates {
        check_manifest(tree, krate, &mut findings);
        if house.floor_of(&krate.name).is_none() {
            let what = format!("crate {} stands on no floor", krate.name);
            findings.push(Finding::new(&krate.manifest_path, 0, what, format!("name it in {FLOORS}")));
            continue;
        }
        for dependency in krate.dependencies(tree) {
            check_dependency(tree, house, krate, &dependency, &mut findings);
        }
    }
    findings
}

/// A crate on two floors, or one with special rights that stands nowhere, makes the drawing ambiguous.
fn check_drawing(tree: &Tree, house: &House) -> Vec<Finding> {
    let text = tree.text(FLOORS).unwrap_or("");
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    for name in house.floors.floor.iter().flat_map(|floor| &floor.crates) {
        if !seen.insert(name) {
            let what = format!("crate {name} stands on two floors");
            findings.push(Finding::new(FLOORS, line_of(text, name), what, "keep one of them"));
        }
    }
    let edge = &house.floors.edge;
    for name in edge.crates.iter().chain(&edge.unsafe_crates).filter(|name| !seen.contains(name)) {
        let what = format!("[edge] names {name}, which stands on no floor");
        findings.push(Finding::new(FLOORS, line_of(text, "[edge]"), what, "correct the name"));
    }
    for name in edge.unsafe_crates.iter().filter(|name| !edge.crates.contains(name)) {
        let what = format!("{name} may hold unsafe code but is no edge crate");
        findings.push(Finding::new(
            FLOORS,
            line_of(text, "[edge]"),
            what,
            "add it to edge.crates or take it off edge.unsafe",
        ));
    }
    findings
}

fn check_manifest(tree: &Tree, krate: &Crate, findings: &mut Vec<Finding>) {
    let path = &krate.manifest_path;
    let text = tree.text(path).unwrap_or("");
    let expected = format!("dolmen-{}", krate.name.replace('_', "-"));
    if krate.package() != expected {
        let what = format!("the package is called {:?}, its folder asks for {expected:?}", krate.package());
        findings.push(Finding::new(path, line_of(text, "name ="), what, "rename one of them"));
    }
    let lints =
        krate.manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(toml::Value::as_bool);
    if lints != Some(true) {
        let what = "the workspace's lints are not in force";
        findings.push(Finding::new(path, line_of(text, "[lints"), what, "add [lints] with workspace = true"));
    }
    for dependency in krate.dependencies(tree).iter().filter(|dependency| !dependency.inherited) {
        let what = format!("{} has a version of its own here", dependency.package);
        let advice = "move it to [workspace.dependencies] and write workspace = true";
        findings.push(Finding::new(path, dependency.line, what, advice));
    }
}

fn check_dependency(
    tree: &Tree,
    house: &House,
    krate: &Crate,
    dependency: &Dependency,
    findings: &mut Vec<Finding>,
) {
    let Some(target) = house.crates.iter().find(|other| other.package() == dependency.package) else {
        return;
    };
    let Some((own, own_name)) = house.floor_of(&krate.name) else { return };
    if dependency.dev {
        if reaches(tree, house, target, krate.package()) {
            let what =
                format!("its tests use {}, which itself stands on {}", dependency.package, krate.package());
            let advice = "move those tests to the upper crate, or two builds of one crate meet in them";
            findings.push(Finding::new(&krate.manifest_path, dependency.line, what, advice));
        }
        return;
    }
    let Some((other, other_name)) = house.floor_of(&target.name) else { return };
    if other > own {
        let what = format!(
            "{} (floor {own_name}) uses {} of the higher floor {other_name}",
            krate.name, target.name
        );
        let advice = "turn the dependency round, or move what both need to a lower crate";
        findings.push(Finding::new(&krate.manifest_path, dependency.line, what, advice));
    }
}

/// Whether `from` stands on `package`, directly or through others.
fn reaches(tree: &Tree, house: &House, from: &Crate, package: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(krate) = open.pop() {
        for dependency in krate.dependencies(tree).into_iter().filter(|dependency| !dependency.dev) {
            if dependency.package == package {
                return true;
            }
            let next = house.crates.iter().find(|other| other.package() == dependency.package);
            if seen.insert(dependency.package) {
                open.extend(next);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWING: &str = "[[floor]]\nname = \"ground\"\ncrates = [\"units\", \"sim\"]\n[[floor]]\nname = \"roof\"\ncrates = [\"cli\"]\n[edge]\ncrates = [\"cli\"]\nunsafe = []\n";

    fn manifest(name: &str, dependencies: &str) -> String {
        format!(
            "[package]\nname = \"dolmen-{name}\"\n[dependencies]\n{dependencies}[lints]\nworkspace = true\n"
        )
    }

    fn lines(files: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::of(files);
        let (house, mut findings) = House::read(&tree);
        findings.extend(check(&tree, &house));
        findings.iter().map(ToString::to_string).collect()
    }

    fn three(units: &str, cli: &str) -> Vec<String> {
        let sim = manifest("sim", "");
        lines(&[
            (FLOORS, DRAWING),
            ("crates/units/Cargo.toml", units),
            ("crates/cli/Cargo.toml", cli),
            ("tools/sim/Cargo.toml", &sim),
        ])
    }

    #[test]
    fn a_house_in_order_has_no_findings() {
        let cli = manifest("cli", "dolmen-units.workspace = true\n");
        let units = manifest(
            "units",
            "dolmen-sim.workspace = true\n[dev-dependencies]\ndolmen-sim.workspace = true\n",
        );
        assert_eq!(three(&units, &cli), [] as [String; 0]);
    }

    #[test]
    fn using_a_higher_floor_is_found_for_every_kind_of_dependency() {
        for section in ["[dependencies]", "[build-dependencies]", "[target.'cfg(unix)'.dependencies]"] {
            let units = manifest("units", "")
                .replace("[dependencies]", &format!("{section}\ndolmen-cli.workspace = true"));
            let found = three(&units, &manifest("cli", ""));
            assert_eq!(
                found,
                [
                    "crates/units/Cargo.toml:4: units (floor ground) uses cli of the higher floor roof; turn the dependency round, or move what both need to a lower crate"
                ],
                "{section}"
            );
        }
    }

    #[test]
    fn tests_may_look_up_but_not_in_a_circle() {
        let units = manifest("units", "[dev-dependencies]\ndolmen-cli.workspace = true\n");
        assert_eq!(three(&units, &manifest("cli", "")).len(), 0);
        let found = three(&units, &manifest("cli", "dolmen-units.workspace = true\n"));
        assert!(
            found.len() == 1 && found[0].starts_with("crates/units/Cargo.toml:5: its tests use dolmen-cli"),
            "{found:?}"
        );
    }

    #[test]
    fn manifests_that_leave_the_house_rules_are_found() {
        let cli = "[package]\nname = \"cli\"\n[dependencies]\nserde = \"1\"\n";
        let found = three(&manifest("units", ""), cli);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("crates/cli/Cargo.toml:2: the package is called \"cli\""));
        assert!(found[1].contains("lints are not in force"));
        assert!(found[2].starts_with("crates/cli/Cargo.toml:4: serde has a version of its own"));
    }

    #[test]
    fn a_drawing_that_contradicts_itself_is_found() {
        let drawing = DRAWING
            .replace("\"cli\"]\n[edge]", "\"cli\", \"sim\"]\n[edge]")
            .replace("unsafe = []", "unsafe = [\"who\", \"sim\"]");
        let found = lines(&[(FLOORS, &drawing), ("crates/new/Cargo.toml", &manifest("new", ""))]);
        for needle in [
            "sim stands on two floors",
            "names who, which",
            "sim may hold unsafe",
            "crate new stands on no floor",
        ] {
            assert!(found.iter().any(|line| line.contains(needle)), "{needle}: {found:?}");
        }
    }
}

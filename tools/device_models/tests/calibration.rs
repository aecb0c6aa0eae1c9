//! The models beside published measurements, and the document that shows them.

use dolmen_device_models::calibration::{rows, table};
use dolmen_device_models::catalogue::{DEVICES, Kind, LINKS, assumed};
use dolmen_device_models::figures::{DECIDED, schedulers, sentences};

const DOCUMENT: &str = include_str!("../../../docs/device_models.md");

/// Fails with what to do where the document does not hold a text that is made here.
#[track_caller]
fn shows(what: &str, made: &str) {
    let advice = "run `cargo run --release -p dolmen-device-models --example table` and put its output in";
    assert!(DOCUMENT.contains(made), "docs/device_models.md has {what} otherwise; {advice}:\n{made}");
}

#[test]
fn each_model_meets_what_the_document_says_it_meets() {
    // Within 15 % of each measurement, or known not to be; and the table of the document is the one that is made here.
    let rows = rows().unwrap();
    for row in &rows {
        assert_eq!(row.cell.verdict(row.modelled), row.cell.verdict, "{row}");
    }
    shows("the table of measurements", &table(&rows));
}

#[test]
fn the_document_names_every_model() {
    let devices = DEVICES.iter().map(|model| (model.name, model.product));
    for (name, product) in devices.chain(LINKS.iter().map(|link| (link.name, link.product))) {
        assert!(DOCUMENT.contains(&format!("| `{name}` | {product} |")), "{name}: {product}");
    }
}

#[test]
fn the_tables_mark_every_assumption() {
    // Every parameter without a source is in bold type in the tables that the example prints, and no other is. All of the
    // controller is assumed.
    let tables = assumed::tables();
    let devices: usize = DEVICES.iter().map(|model| model.assumed.len()).sum();
    let links: usize = LINKS.iter().map(|link| link.assumed.len()).sum();
    let controller = tables.split("\n\n").last().unwrap().lines().skip(2).count();
    assert_eq!(tables.matches("**").count(), 2 * (devices + links + controller), "{tables}");
}

#[test]
fn the_document_says_what_decided_each_scheduler() {
    let disks = DEVICES.iter().filter(|model| matches!(model.kind, Kind::Disk(_))).map(|model| model.name);
    assert!(disks.eq(DECIDED.iter().map(|(name, _)| *name)), "a disk is missing in DECIDED");
    shows("the table of schedulers", &schedulers().unwrap());
}

#[test]
fn every_figure_in_a_sentence_is_the_model_s() {
    for sentence in sentences().unwrap() {
        shows("a figure", &sentence);
    }
}

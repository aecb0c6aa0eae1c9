//! The models beside published measurements, and the document that shows them.

use dolmen_device_models::calibration::{rows, table};
use dolmen_device_models::catalogue::{DEVICES, LINKS};

const DOCUMENT: &str = include_str!("../../../docs/device_models.md");

#[test]
fn each_model_meets_what_the_document_says_it_meets() {
    // Within 15 % of each measurement, or known not to be; and the table of the document is the one that is made here.
    let rows = rows().unwrap();
    for row in &rows {
        assert_eq!(row.cell.judge(row.modelled), row.cell.verdict, "{row}");
    }
    let made = table(&rows);
    let remedy =
        "run `cargo run -p dolmen-device-models --example table` and put its output into the document";
    assert!(DOCUMENT.contains(&made), "docs/device_models.md has another table; {remedy}:\n{made}");
}

#[test]
fn the_document_names_every_model() {
    let devices = DEVICES.iter().map(|model| (model.name, model.product));
    for (name, product) in devices.chain(LINKS.iter().map(|link| (link.name, link.product))) {
        assert!(DOCUMENT.contains(&format!("| `{name}` | {product} |")), "{name}: {product}");
    }
}

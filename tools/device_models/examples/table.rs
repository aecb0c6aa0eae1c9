//! Prints what `docs/device_models.md` says of the models: the table beside what others measured, the schedulers and what
//! decided them, the sentences that carry a figure, and what each model is made of.

use std::io::Write;

use dolmen_device_models::calibration::{rows, table};
use dolmen_device_models::catalogue::assumed;
use dolmen_device_models::figures::{schedulers, sentences};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    let made = [table(&rows()?), schedulers()?, sentences()?.join("\n\n") + "\n", assumed::tables()];
    out.write_all(made.join("\n").as_bytes())?;
    Ok(())
}

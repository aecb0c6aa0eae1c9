//! Prints the table of `docs/device_models.md`: the models beside what others measured.

use std::io::Write;

use dolmen_device_models::calibration::{rows, table};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    std::io::stdout().lock().write_all(table(&rows()?).as_bytes())?;
    Ok(())
}

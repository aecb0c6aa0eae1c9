//! Sizes of disks, as people know them from where they bought them.

use dolmen_units::Bytes;

/// A size with, where it is a round one in powers of 1000, as those of disks are, what it is sold as: `8 TB (7.27 TiB)`.
#[must_use]
pub fn as_sold(size: Bytes) -> String {
    const UNITS: [(u64, &str); 3] =
        [(1_000_000_000_000_000, "PB"), (1_000_000_000_000, "TB"), (1_000_000_000, "GB")];
    let unit = UNITS.iter().find(|(unit, _)| size.0 >= *unit);
    let Some((unit, name)) = unit.filter(|(unit, _)| size.0.is_multiple_of(unit / 100)) else {
        return size.to_string();
    };
    let hundredths = size.0 / (unit / 100);
    let (whole, part) = (hundredths / 100, hundredths % 100);
    let sold = match (part, part % 10) {
        (0, _) => format!("{whole} {name}"),
        (_, 0) => format!("{whole}.{} {name}", part / 10),
        _ => format!("{whole}.{part:02} {name}"),
    };
    format!("{sold} ({size})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_size_is_printed_as_it_is_sold() {
        for (size, told) in [
            (8_000_000_000_000, "8 TB (7.27 TiB)"),
            (1_500_000_000_000, "1.5 TB (1.36 TiB)"),
            (1_920_000_000_000, "1.92 TB (1.74 TiB)"),
            (500_000_000_000, "500 GB (465 GiB)"),
            (8_001_563_222_016, "7.27 TiB"),
            (1 << 40, "1 TiB"),
            (96 << 20, "96 MiB"),
        ] {
            assert_eq!(as_sold(Bytes(size)), told);
        }
    }
}

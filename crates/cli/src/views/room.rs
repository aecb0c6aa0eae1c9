//! Where the bytes of a pool are, and what still fits.

use dolmen_api::Df;
use dolmen_units::Bytes;

use crate::terminal::out::Out;
use crate::terminal::paint::{Paint, Tone};
use crate::terminal::table::{Align, Cell, Table};
use crate::views::words::{count, percent, resiliency};

/// Shows the room of a pool.
pub(crate) fn show_df(df: &Df, out: &mut Out<'_>) {
    let paint = out.paint_results;
    out.line(format_args!("pool {}", df.pool));
    out.table(2, &bytes_table(df));
    out.show(&format!("\n{}", fits_text(df, paint)));
    if df.fits.iter().all(|fits| fits.usable_bytes == 0) {
        out.line(format_args!(
            "\n  Nothing more fits. `dolmen pool add {0} DISK` or `dolmen disk replace {0} OLD LARGER` make room, as does \
             what is deleted, or discarded by its user; all that was written can be read and overwritten.",
            df.pool
        ));
    }
    if !df.absent_disks.is_empty() {
        let (is, it) = if df.absent_disks.len() == 1 { ("is", "it") } else { ("are", "them") };
        out.line("");
        let text = format!(
            "{} {is} absent: raw, data, used and free count the other disks, and what still fits does so without {it}; the parts of \
             used count what lies on {it}, too. `dolmen why {}` says what to do.",
            df.absent_disks.join(", "),
            df.pool
        );
        out.labelled("  ", &text);
    }
    if df.trash_bytes > 0 {
        out.line(format_args!(
            "\n  `dolmen trash purge --all {}` gives {} back, for good; `dolmen trash list` shows of what.",
            df.pool,
            Bytes(df.trash_bytes)
        ));
    }
    if !df.disks.is_empty() {
        out.line("");
        out.table(2, &disks_table(df));
    }
}

/// The tree of figures: what is indented is part of what stands above it.
fn bytes_table(df: &Df) -> Table {
    let mut table = Table::new(&[
        ("WHERE", Align::Left),
        ("BYTES", Align::Right),
        ("OF RAW", Align::Right),
        ("WHAT", Align::Sentence),
    ]);
    for (place, bytes, what) in [
        ("raw", df.raw_bytes, "the disks themselves"),
        ("  metadata", df.metadata_bytes, "labels, log and the pool's metadata"),
        ("  tail", df.tail_bytes, "left empty, so that a disk may be a little smaller"),
        ("  data", df.data_bytes, "room for slabs"),
        ("    used", df.used_bytes, "taken by slabs"),
        ("      claimed", df.claimed_bytes, "addresses of spaces"),
        ("      redundancy", df.redundancy_bytes, "their further copies and parity"),
        (
            "      write cache",
            df.write_cache_bytes,
            "of strict spaces and parity, copies and tables included",
        ),
        ("      trash", df.trash_bytes, "deleted spaces, which a purge gives back"),
        ("      tables", df.tables_bytes, "checksums, states and rounding up"),
        ("    free", df.free_bytes, "not used"),
        ("      reserve", df.reserve_bytes, "kept for moves and repairs"),
        ("      repair", df.kept_bytes, "kept so that lost disks can be repaired on the others"),
        ("promised", df.promised_bytes, "sizes of thin spaces beyond what is claimed"),
    ] {
        if place.ends_with("repair") && bytes == 0 {
            continue;
        }
        let share = percent(bytes, df.raw_bytes);
        table.row(vec![place.into(), Bytes(bytes).to_string().into(), share.into(), what.into()]);
    }
    table
}

fn fits_text(df: &Df, paint: Paint) -> String {
    let mut table = Table::new(&[
        ("STILL FITS", Align::Right),
        ("FIXED", Align::Right),
        ("AS", Align::Left),
        ("SURVIVES", Align::Left),
    ]);
    for fits in &df.fits {
        let survives = match fits.survives {
            0 => Cell::toned("no lost disk", Tone::Caution),
            lost => count(u64::from(lost), "lost disk", "lost disks").into(),
        };
        table.row(vec![
            Bytes(fits.usable_bytes).to_string().into(),
            fits.usable_fixed_bytes.map(|fixed| Bytes(fixed).to_string()).unwrap_or_default().into(),
            resiliency(fits.resiliency, fits.copies, fits.parity).into(),
            survives,
        ]);
    }
    table.render(2, paint)
}

fn disks_table(df: &Df) -> Table {
    let mut table = Table::new(&[
        ("DISK", Align::Right),
        ("RAW", Align::Right),
        ("DATA", Align::Right),
        ("FREE", Align::Right),
        ("USE", Align::Right),
        ("RESERVE", Align::Right),
        ("PATH", Align::Left),
    ]);
    for disk in &df.disks {
        let used = disk.data_bytes.saturating_sub(disk.free_bytes);
        table.row(vec![
            disk.slot.to_string().into(),
            Bytes(disk.raw_bytes).to_string().into(),
            Bytes(disk.data_bytes).to_string().into(),
            Bytes(disk.free_bytes).to_string().into(),
            percent(used, disk.data_bytes).into(),
            Bytes(disk.reserve_bytes).to_string().into(),
            disk.name.as_str().into(),
        ]);
    }
    table
}

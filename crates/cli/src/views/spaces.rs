//! Spaces as people see them.

use dolmen_api::{Integrity, SpaceDocument, Spaces};
use dolmen_units::Bytes;

use crate::terminal::out::Out;
use crate::terminal::table::Table;
use crate::views::tables::space_table;
use crate::views::words::{health, health_tone, limits_in_words, percent, provisioning, resiliency};

/// Shows spaces.
pub(crate) fn show_spaces(spaces: &Spaces, out: &mut Out<'_>) {
    if spaces.spaces.is_empty() {
        return out.line("no spaces; make one with: dolmen space create POOL/SPACE --size SIZE");
    }
    out.table(0, &space_table(&spaces.spaces.iter().collect::<Vec<_>>()));
}

/// Shows a space.
pub(crate) fn show_space(document: &SpaceDocument, out: &mut Out<'_>) {
    let (space, paint) = (&document.space, out.paint_results);
    let word = paint.tone(health(space.health), health_tone(space.health));
    out.line(format_args!("space {}/{}: {word}", space.pool, space.name));
    for reason in &space.why {
        out.labelled("  why           ", reason);
    }
    let integrity = match space.integrity {
        Integrity::Relaxed => "relaxed",
        Integrity::Strict => "strict",
    };
    let former = space.converted_from.map_or(String::new(), |former| {
        let columns = former.columns.map_or(String::new(), |columns| format!(", {columns} columns"));
        format!("{}{columns}", resiliency(former.resiliency, former.copies, former.parity))
    });
    let claimed = Bytes(space.claimed_bytes);
    let claimed = format!("{claimed}, {} of its size", percent(space.claimed_bytes, space.size_bytes));
    let reserve = match space.reserve_bytes {
        0 => String::new(),
        bytes => format!("{}, {} of it not written yet", Bytes(bytes), Bytes(space.reserve_unused_bytes)),
    };
    let mut facts = Table::facts();
    for (name, value) in [
        ("size", Bytes(space.size_bytes).to_string()),
        ("resiliency", resiliency(space.resiliency, space.copies, space.parity)),
        ("being converted from", former),
        ("columns", space.columns.map_or_else(|| "automatic".to_owned(), |columns| columns.to_string())),
        ("interleave", Bytes(space.interleave_bytes).to_string()),
        ("row", Bytes(space.row_bytes).to_string()),
        ("provisioning", provisioning(space.provisioning).to_owned()),
        ("integrity", integrity.to_owned()),
        ("sector", Bytes(space.sector_bytes).to_string()),
        ("claimed", claimed),
        ("reserve", reserve),
        ("on disks", Bytes(space.footprint_bytes).to_string()),
        ("attached at", space.attached_at.clone().unwrap_or_else(|| "not attached".to_owned())),
        ("served at", space.served_at.clone().unwrap_or_else(|| "not served".to_owned())),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    {
        facts.row(vec![name.into(), value.into()]);
    }
    if let Some(network) = &space.network_at {
        facts.row(vec!["and at".into(), network.clone().into()]);
    }
    if let Some(limits) = &space.limits {
        facts.row(vec!["limits".into(), limits_in_words(limits).into()]);
    }
    out.facts(2, &facts);
}

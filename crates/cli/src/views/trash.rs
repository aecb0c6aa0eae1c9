//! The trash, for people.

use dolmen_api::{Trash, TrashedSpace, duration};
use dolmen_units::Bytes;

use crate::terminal::out::Out;
use crate::terminal::table::{Align, Table};
use crate::views::jobs::ago;
use crate::views::words::resiliency;

/// Shows what is in the trash.
pub(crate) fn show_trash(trash: &Trash, out: &mut Out<'_>) {
    if trash.spaces.is_empty() {
        return out.line("nothing is in the trash");
    }
    let mut table = Table::new(&[
        ("SPACE", Align::Left),
        ("ID", Align::Right),
        ("SIZE", Align::Right),
        ("GIVES BACK", Align::Right),
        ("RESILIENCY", Align::Left),
        ("DELETED", Align::Left),
        ("STAYS", Align::Left),
    ]);
    for space in &trash.spaces {
        table.row(vec![
            format!("{}/{}", space.pool, space.name).into(),
            space.id.to_string().into(),
            Bytes(space.size_bytes).to_string().into(),
            Bytes(space.footprint_bytes).to_string().into(),
            resiliency(space.resiliency, space.copies, space.parity).into(),
            space.trashed_s.map(|at| ago(trash.now_s, at)).unwrap_or_default().into(),
            stays(space).into(),
        ]);
    }
    out.table(0, &table);
}

/// How long it stays.
fn stays(space: &TrashedSpace) -> String {
    match (space.can_be_restored, space.stays_s) {
        (false, _) => "is being purged".to_owned(),
        (true, None) => "until it is purged".to_owned(),
        (true, Some(0)) => "is about to be purged".to_owned(),
        (true, Some(seconds)) => format!("{} more", duration(seconds)),
    }
}

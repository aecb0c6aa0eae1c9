//! A plan as text: what fits, what survives, what more disks bring, and footprints.

use dolmen_plan::{Answer, Footprint, FootprintCell, Layout, Losses, Plan, Room, Unit, as_sold};
use dolmen_units::Bytes;

use crate::terminal::out::Out;
use crate::terminal::paint::{Paint, Tone};
use crate::terminal::table::{Align, Cell, Table};
use crate::views::words::{count, percent};

/// Behind the name of what this version cannot make.
const MARK: &str = " *";
/// Failures at once that the text shows, at most; documents and pages have all.
const FAILED: [&str; 6] = ["1", "2", "3", "4", "5", "6"];
/// Numbers of fault domains that the text shows footprints of.
const DOMAINS: [(u32, &str); 10] =
    [(1, "1"), (2, "2"), (3, "3"), (4, "4"), (5, "5"), (6, "6"), (7, "7"), (9, "9"), (12, "12"), (16, "16")];

/// How much of a plan the text shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// What fits and what one more disk adds, of what this version can make of these disks.
    OneScreen,
    /// All of it.
    All,
}

impl Detail {
    fn shows(self, answer: &Answer) -> bool {
        match self {
            Self::OneScreen => answer.in_this_version && answer.room.is_some(),
            Self::All => true,
        }
    }
}

/// Shows a plan. Where resiliencies were asked for by name, the bytes are listed too.
pub(crate) fn show_plan(plan: &Plan, asked: &[Layout], detail: Detail, out: &mut Out<'_>) {
    let paint = out.paint_results;
    out.line(headline(plan));
    out.line("");
    out.table(0, &room_table(plan, detail));
    for answer in plan.problems().filter(|_| detail == Detail::All) {
        let problem = answer.problem.as_deref().unwrap_or_default();
        out.line(format_args!("{} {problem}", title(answer)));
    }
    for answer in plan.answers.iter().filter(|answer| detail.shows(answer)) {
        for warning in &answer.warnings {
            out.line(format_args!("{}: {warning}", title(answer)));
        }
    }
    if detail == Detail::OneScreen {
        out.line("");
        out.table(0, &additions_table(plan, detail));
        out.line("\nfailures that lose data, footprints, and what cannot be made of these disks: `--all`");
        return;
    }
    if plan.answers.iter().any(|answer| !answer.in_this_version) {
        out.line("* not in this version: planned for, and cannot be made yet");
    }
    if !asked.is_empty() {
        out.line("");
        out.table(0, &bytes_table(plan));
    }
    for unit in [Unit::Disks, Unit::Domains] {
        show_losses(plan, unit, out);
    }
    out.line("");
    out.table(0, &additions_table(plan, detail));
    out.show(&format!("\n{}", footprint_text(&plan.footprint, paint)));
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn headline(plan: &Plan) -> String {
    let disks = count(number(plan.disks.len()), "disk", "disks");
    let domains = count(u64::from(plan.domain_count), "fault domain", "fault domains");
    format!("{disks} in {domains}, {} raw", as_sold(Bytes(plan.raw_bytes)))
}

fn title(answer: &Answer) -> String {
    format!("{}{}", answer.title, if answer.in_this_version { "" } else { MARK })
}

fn bytes(of: Option<u64>) -> Cell {
    of.map(|bytes| Bytes(bytes).to_string()).unwrap_or_default().into()
}

/// Nothing is left where the other disks are too few to hold a row.
fn heals(of: Option<u64>) -> Cell {
    if of == Some(0) { Cell::toned("too few", Tone::Caution) } else { bytes(of) }
}

fn room_table(plan: &Plan, detail: Detail) -> Table {
    let mut table = Table::new(&[
        ("RESILIENCY", Align::Left),
        ("USABLE", Align::Right),
        ("OF RAW", Align::Right),
        ("HEALS A DISK", Align::Right),
        ("HEALS A DOMAIN", Align::Right),
        ("STRANDED", Align::Right),
        ("COLUMNS", Align::Right),
        ("AT LEAST", Align::Left),
        ("SURVIVES", Align::Left),
    ]);
    for answer in plan.answers.iter().filter(|answer| answer.room.is_some() && detail.shows(answer)) {
        let room = answer.room.as_ref();
        let usable = room.map(|room| room.usable_bytes);
        table.row(vec![
            title(answer).into(),
            bytes(usable),
            percent(usable.unwrap_or(0), plan.raw_bytes).into(),
            heals(answer.heals_disk_bytes),
            heals(answer.heals_domain_bytes),
            bytes(room.map(|room| room.stranded_bytes)),
            answer.columns.map(|columns| columns.to_string()).unwrap_or_default().into(),
            count(u64::from(answer.minimum_disks), "disk", "disks").into(),
            survives(answer, plan),
        ]);
    }
    table
}

fn survives(answer: &Answer, plan: &Plan) -> Cell {
    if answer.survives_disks == 0 {
        return Cell::toned("no lost disk", Tone::Caution);
    }
    let disks = count(u64::from(answer.survives_disks), "disk", "disks");
    let has_domains = number(plan.disks.len()) > u64::from(plan.domain_count);
    match answer.survives_domains {
        domains if has_domains && domains > 0 => {
            format!("{disks}, or {}", count(u64::from(domains), "domain", "domains")).into()
        }
        _ => disks.into(),
    }
}

fn bytes_table(plan: &Plan) -> Table {
    let mut table = Table::new(&[
        ("WHERE BYTES ARE", Align::Left),
        ("USABLE", Align::Right),
        ("REDUNDANCY", Align::Right),
        ("CACHE", Align::Right),
        ("TABLES", Align::Right),
        ("STRANDED", Align::Right),
        ("RESERVE", Align::Right),
        ("METADATA", Align::Right),
        ("TAIL", Align::Right),
    ]);
    for answer in &plan.answers {
        let Some(room) = &answer.room else { continue };
        let cell = |of: fn(&Room) -> u64| bytes(Some(of(room)));
        table.row(vec![
            title(answer).into(),
            cell(|room| room.usable_bytes),
            cell(|room| room.redundancy_bytes),
            cell(|room| room.write_cache_bytes),
            cell(|room| room.tables_bytes),
            cell(|room| room.stranded_bytes),
            cell(|room| room.reserve_bytes),
            cell(|room| room.metadata_bytes),
            cell(|room| room.tail_bytes),
        ]);
    }
    table
}

/// Shares are rounded up to a tenth of a per cent, so that what loses data never reads as 0.
fn share(part: u64, whole: u64) -> String {
    let tenths = (u128::from(part) * 1000).div_ceil(u128::from(whole.max(1)));
    match tenths {
        0 => "none".to_owned(),
        1000 if part == whole => "all".to_owned(),
        tenths => format!("{}.{} %", tenths / 10, tenths % 10),
    }
}

fn show_losses(plan: &Plan, unit: Unit, out: &mut Out<'_>) {
    let heading = match unit {
        Unit::Disks => "OF ALL SETS OF SO MANY DISKS, LOSE DATA:",
        Unit::Domains => "OF ALL SETS OF SO MANY DOMAINS, LOSE DATA:",
    };
    let mut columns = vec![(heading, Align::Left)];
    columns.extend(FAILED.map(|failed| (failed, Align::Right)));
    columns.push(("FOR EXAMPLE", Align::Left));
    let mut table = Table::new(&columns);
    for answer in &plan.answers {
        let Some(losses) = answer.losses.iter().find(|losses| losses.unit == unit) else { continue };
        let cell = |at: usize| losses.rows.get(at).map(|row| share(row.losing, row.sets)).unwrap_or_default();
        let mut row: Vec<Cell> = vec![title(answer).into()];
        row.extend((0..FAILED.len()).map(|at| cell(at).into()));
        row.push(example(losses).into());
        table.row(row);
    }
    if !table.is_empty() {
        out.line("");
        out.table(0, &table);
    }
}

fn example(losses: &Losses) -> String {
    if losses.first_losing.is_empty() {
        return String::new();
    }
    let lost = match losses.first_losing.as_slice() {
        [one] => one.clone(),
        several => format!("{} together", several.join(", ")),
    };
    match losses.first_survived.as_slice() {
        [] => lost,
        survived => format!("{lost}; not {}", survived.join(", ")),
    }
}

fn additions_table(plan: &Plan, detail: Detail) -> Table {
    let heading =
        if plan.additions_are_cumulative { "ADDED ONE AFTER ANOTHER" } else { "ONE MORE DISK WOULD BRING" };
    let mut table = Table::new(&[
        (heading, Align::Left),
        ("SIZE", Align::Right),
        ("FOR", Align::Left),
        ("USABLE", Align::Right),
        ("MORE BY", Align::Right),
    ]);
    let most = plan.answers.iter().map(|answer| answer.additions.len()).max().unwrap_or(0);
    for at in 0..most {
        let shown = plan.answers.iter().filter(|answer| detail.shows(answer));
        for (place, answer) in shown.enumerate() {
            let Some(added) = answer.additions.get(at) else { continue };
            let is_first = place == 0;
            let name = if is_first { added.name.clone() } else { String::new() };
            let size = if is_first { as_sold(Bytes(added.size_bytes)) } else { String::new() };
            table.row(vec![
                name.into(),
                size.into(),
                title(answer).into(),
                bytes(Some(added.usable_bytes)),
                bytes(Some(added.gain_bytes)),
            ]);
        }
    }
    table
}

fn footprint_text(footprint: &Footprint, paint: Paint) -> String {
    let mut columns = vec![("FOOTPRINT BY FAULT DOMAINS", Align::Left)];
    columns.extend(DOMAINS.map(|(_, heading)| (heading, Align::Right)));
    let mut table = Table::new(&columns);
    for line in &footprint.lines {
        let mark = if line.in_this_version { "" } else { MARK };
        let cell = |domains: u32| {
            let found = line.cells.iter().find(|cell| cell.domains == domains);
            found.map(factor).unwrap_or_default()
        };
        let mut row: Vec<Cell> = vec![format!("{}{mark}", line.title).into()];
        row.extend(DOMAINS.map(|(domains, _)| Cell::from(cell(domains))));
        table.row(row);
    }
    let space = as_sold(Bytes(footprint.space_bytes));
    format!(
        "{}bytes on disks for each byte of data, tables aside; times {space} for this space\n",
        table.render(0, paint)
    )
}

fn factor(cell: &FootprintCell) -> String {
    let hundredths = cell.factor.hundredths();
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

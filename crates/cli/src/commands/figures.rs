//! `dolmen iostat`, which tells in lines what spaces and disks do, and `dolmen top`, which shows the busiest on one screen.

use std::cmp::Ordering;
use std::time::Duration;

use dolmen_api::verb;
use dolmen_units::Bytes;

use crate::arguments::common::Format;
use crate::arguments::load::{IostatArguments, ReportsError, TopArguments};
use crate::error::{CliError, Failure};
use crate::session::change::Session;
use crate::session::client::call;
use crate::session::poll_interval::PollInterval;
use crate::terminal::out::Out;
use crate::views::load::{Look, Report, Row, disk_table, space_table};
use crate::views::words::{count, date, seconds_now};
use dolmen_api::ExitCode;

/// Spaces, and disks, that `top` shows, at most, each.
const ROWS_MAX: usize = 15;

impl Failure for ReportsError {
    fn exit(&self) -> ExitCode {
        ExitCode::Usage
    }

    fn hint(&self) -> Option<String> {
        None
    }
}

fn look(session: &Session<'_, '_>) -> Result<Look, CliError> {
    let document = session.client.look(&call::<verb::ShowFigures>([]))?;
    Ok(Look::new(&document.value))
}

/// A first look, in which all that was asked for has to be.
fn first_look(session: &Session<'_, '_>, names: &[String]) -> Result<Look, CliError> {
    let look = look(session)?;
    match look.unknown(names) {
        Some(name) => Err(CliError::NoFigures { name: name.clone() }),
        None => Ok(look),
    }
}

/// Carries out `dolmen iostat`.
pub(crate) fn iostat(session: &mut Session<'_, '_>, arguments: &IostatArguments) -> Result<(), CliError> {
    let reports = arguments.reports()?;
    let names = &reports.objects;
    let mut last = first_look(session, names)?;
    show(session, &last.since(None, names, seconds_now()), reports.every.is_some())?;
    let Some(every) = reports.every else { return Ok(()) };
    let mut left = reports.count.map(|count| count - 1);
    while left != Some(0) && !session.out.is_unread {
        PollInterval { pause: every }.wait();
        match look(session) {
            Ok(next) => {
                show(session, &next.since(Some(&last), names, seconds_now()), true)?;
                last = next;
            }
            // A daemon that is started again is waited for, and counts from then on.
            Err(error) => session.out.print(format_args!("dolmen: {}", error.in_one_line())),
        }
        left = left.map(|left| left - 1);
    }
    Ok(())
}

fn show(session: &mut Session<'_, '_>, report: &Report, is_one_of_many: bool) -> Result<(), CliError> {
    match session.format {
        Format::Json => {
            let asked = "the report".to_owned();
            let text = serde_json::to_string(report).map_err(|source| CliError::Request { asked, source })?;
            session.out.line(text);
        }
        Format::Text => {
            if is_one_of_many {
                session.out.line(date(report.at_s));
            }
            show_tables(&report.spaces, &report.disks, session.out);
            if is_one_of_many {
                session.out.line("");
            }
        }
    }
    Ok(())
}

fn show_tables(spaces: &[Row], disks: &[Row], out: &mut Out<'_>) {
    if spaces.is_empty() && disks.is_empty() {
        return out.line("no pool is open");
    }
    let paint = out.paint_results;
    let tables = [space_table(spaces), disk_table(disks)];
    let shown: Vec<String> =
        tables.iter().filter(|table| !table.is_empty()).map(|table| table.render(0, paint)).collect();
    out.show(&shown.join("\n"));
}

/// Carries out `dolmen top`.
pub(crate) fn top(session: &mut Session<'_, '_>, arguments: &TopArguments) -> Result<(), CliError> {
    let names = &arguments.objects;
    let mut last: Option<Look> = None;
    if session.format == Format::Text {
        // A first screen that is about more than what is going on now would say little.
        last = Some(first_look(session, names)?);
        PollInterval { pause: arguments.every.min(Duration::from_secs(1)) }.wait();
    }
    crate::session::repeat::watch(session, arguments.every, |session| {
        let now = match &last {
            Some(_) => look(session)?,
            None => first_look(session, names)?,
        };
        let mut report = now.since(last.as_ref(), names, seconds_now());
        last = Some(now);
        report.spaces.sort_by(busiest_first);
        report.disks.sort_by(busiest_first);
        if session.format == Format::Json {
            return show(session, &report, true);
        }
        session.out.line(in_all(&report));
        session.out.line("");
        let shown = |rows: &[Row]| rows.iter().take(ROWS_MAX).cloned().collect::<Vec<_>>();
        show_tables(&shown(&report.spaces), &shown(&report.disks), session.out);
        let hidden = |rows: &[Row]| u64::try_from(rows.len().saturating_sub(ROWS_MAX)).unwrap_or(u64::MAX);
        let (spaces, disks) = (hidden(&report.spaces), hidden(&report.disks));
        if spaces + disks > 0 {
            session.out.line(format_args!(
                "\nand {} and {} that do less; `dolmen iostat` shows all",
                count(spaces, "space", "spaces"),
                count(disks, "disk", "disks")
            ));
        }
        Ok(())
    })
}

fn busiest_first(one: &Row, other: &Row) -> Ordering {
    let ((queue, bytes), (other_queue, other_bytes)) = (one.weight(), other.weight());
    other_queue.total_cmp(&queue).then(other_bytes.total_cmp(&bytes)).then_with(|| one.name.cmp(&other.name))
}

/// What all of it comes to, in a line.
fn in_all(report: &Report) -> String {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // no disk is that fast
    let sum = |rows: &[Row], of: fn(&Row) -> f64| rows.iter().map(of).sum::<f64>().round() as u64;
    let rows = |rows: &[Row]| {
        format!(
            "{} reads/s {}/s, {} writes/s {}/s",
            sum(rows, |row| row.reads.per_s),
            Bytes(sum(rows, |row| row.reads.bytes_per_s)),
            sum(rows, |row| row.writes.per_s),
            Bytes(sum(rows, |row| row.writes.bytes_per_s)),
        )
    };
    format!("spaces: {}\ndisks:  {}", rows(&report.spaces), rows(&report.disks))
}

//! `dolmen history`: what a pool, a space or a disk did over time.

use dolmen_api::{HistoryQuery, verb};

use crate::arguments::common::Format;
use crate::arguments::history::HistoryArguments;
use crate::error::CliError;
use crate::session::change::Session;
use crate::session::client::call;
use crate::views::history::show_history;
use crate::views::words::seconds_now;

/// Carries out `dolmen history`.
pub(crate) fn run(session: &mut Session<'_, '_>, arguments: &HistoryArguments) -> Result<(), CliError> {
    let (of, name) = match (&arguments.space, &arguments.disk) {
        (Some(space), _) => ("space", Some(space.to_string())),
        (None, Some(disk)) => ("disk", Some(disk.clone())),
        (None, None) => ("pool", None),
    };
    let from_s = seconds_now().saturating_sub(arguments.last.as_secs());
    let query =
        HistoryQuery { of: Some(of.to_owned()), name, from_s: Some(from_s), ..HistoryQuery::default() };
    let document = session.client.look_for(&call::<verb::ShowHistory>([arguments.pool.as_str()]), &query)?;
    match session.format {
        Format::Json => session.out.line(document.raw.trim_end()),
        Format::Text => show_history(&document.value, session.out),
    }
    Ok(())
}

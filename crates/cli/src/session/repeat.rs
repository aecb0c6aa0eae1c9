//! A look again and again: repainted on a terminal, one block below the other elsewhere. It ends when somebody interrupts it, or
//! nobody reads any more.

use std::time::Duration;

use crate::arguments::common::Format;
use crate::error::CliError;
use crate::session::change::Session;
use crate::session::poll_interval::PollInterval;
use crate::terminal::out::Kind;
use crate::views::words::{date, seconds_now};

/// Shows what a look gives, every so often. Once one look was good, a daemon that does not answer is waited for.
pub(crate) fn watch(
    session: &mut Session<'_, '_>,
    every: Duration,
    mut look: impl FnMut(&mut Session<'_, '_>) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut is_first = true;
    while !session.out.is_unread {
        let head = format!("{}, every {} s", date(seconds_now()), every.as_secs());
        let (result, text) = gathered(session, &mut look);
        let text = match (result, session.format) {
            (Ok(()), _) => text,
            (Err(error), _) if is_first => return Err(error),
            (Err(error), Format::Text) => format!("{text}dolmen: {}\n", error.in_one_line()),
            (Err(error), Format::Json) => {
                session.out.print(format_args!("dolmen: {}", error.in_one_line()));
                text
            }
        };
        match (session.format, session.out.results_kind) {
            (Format::Json, _) => session.out.show(&text),
            (Format::Text, Kind::Terminal) => session.out.repaint(&format!("{head}\n\n{text}")),
            (Format::Text, Kind::Plain) => {
                let gap = if is_first { "" } else { "\n" };
                session.out.show(&format!("{gap}--- {head}\n{text}"));
            }
        }
        is_first = false;
        PollInterval { pause: every }.wait();
    }
    Ok(())
}

/// What a look shows, all at once, so that no half of it is seen.
fn gathered(
    session: &mut Session<'_, '_>,
    look: &mut impl FnMut(&mut Session<'_, '_>) -> Result<(), CliError>,
) -> (Result<(), CliError>, String) {
    session.out.measure();
    let (client, format, poll_interval) = (session.client.clone(), session.format, session.poll_interval);
    session.out.gather(|out| look(&mut Session { client, out, format, poll_interval }))
}

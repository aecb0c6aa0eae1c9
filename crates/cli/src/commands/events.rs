//! Events: listed, and followed until somebody has seen enough.

use dolmen_api::{ErrorCode, Event, Events, EventsQuery, verb};

use crate::arguments::EventsArguments;
use crate::arguments::common::Format;
use crate::error::CliError;
use crate::http::HttpError;
use crate::session::change::Session;
use crate::session::client::{Document, call};
use crate::terminal::out::Out;
use crate::views::words::{count, date};

/// Events that are shown when nobody says from which one on.
const SHOWN_MAX: usize = 30;

/// Carries out `dolmen events`.
pub(crate) fn run(session: &mut Session<'_, '_>, arguments: &EventsArguments) -> Result<(), CliError> {
    let mut document = ask(session, arguments, arguments.since.unwrap_or(0))?;
    if arguments.since.is_none() {
        shorten(&mut document.value, session.out);
    } else {
        print_dropped(&document.value, session.out);
    }
    show(session, &document);
    let mut follower = Follower { last: document.value.last, is_waiting: false };
    while arguments.follow && !session.out.is_unread {
        session.poll_interval.wait();
        follower.look(session, arguments)?;
    }
    Ok(())
}

fn ask(
    session: &Session<'_, '_>,
    arguments: &EventsArguments,
    since: u64,
) -> Result<Document<Events>, CliError> {
    let query = EventsQuery { since, pool: arguments.pool.as_ref().map(ToString::to_string) };
    session.client.look_for(&call::<verb::ListEvents>([]), &query)
}

/// The last of many, where nobody has said where to begin.
fn shorten(events: &mut Events, out: &mut Out<'_>) {
    let more = events.events.len().saturating_sub(SHOWN_MAX);
    if more > 0 && out.columns.is_some() {
        events.events.drain(..more);
        let before = count(u64::try_from(more).unwrap_or(u64::MAX), "event", "events");
        out.print(format_args!("{before} before these; `dolmen events --since 0` shows all that are kept"));
    }
}

fn print_dropped(events: &Events, out: &mut Out<'_>) {
    if events.dropped > 0 {
        let dropped = count(events.dropped, "event", "events");
        out.print(format_args!("warning: {dropped} before these are kept no more"));
    }
}

/// Shows events; programs get the document, also of none where they asked for a list.
fn show(session: &mut Session<'_, '_>, document: &Document<Events>) {
    if session.format == Format::Json {
        session.out.line(document.raw.trim_end());
        return;
    }
    document.value.events.iter().for_each(|event| show_event(event, session.out));
}

fn show_event(event: &Event, out: &mut Out<'_>) {
    let label = format!("{:>5}  {}  ", event.number, date(event.at_s));
    out.labelled(&label, &format!("{} [{}]", event.text, event.word()));
}

/// Whether no daemon is there, or it ended in the midst of its answer.
fn is_away(error: &CliError) -> bool {
    match error {
        CliError::Http(error) => {
            matches!(error, HttpError::NoDaemon { .. } | HttpError::HungUp { .. } | HttpError::Timeout { .. })
        }
        CliError::Daemon { body } => body.code == ErrorCode::Stopping,
        _ => false,
    }
}

/// Who waits for what happens next.
struct Follower {
    /// The last event that was seen, of whatever pool.
    last: u64,
    /// Whether no daemon answers.
    is_waiting: bool,
}

impl Follower {
    fn look(&mut self, session: &mut Session<'_, '_>, arguments: &EventsArguments) -> Result<(), CliError> {
        let document = match ask(session, arguments, self.last) {
            Ok(document) => document,
            // The next one knows what was reported, and goes on with the numbers.
            Err(error) if is_away(&error) => {
                if !std::mem::replace(&mut self.is_waiting, true) {
                    session.out.print(format_args!("{}; waiting for a daemon", error.in_one_line()));
                }
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.is_waiting = false;
        let events = &document.value;
        if events.last < self.last {
            session.out.print(
                "warning: the record of events has begun again; what happened meanwhile may be missing",
            );
            self.last = 0;
            return Ok(());
        }
        print_dropped(events, session.out);
        self.last = events.last;
        if !events.events.is_empty() {
            show(session, &document);
        }
        Ok(())
    }
}

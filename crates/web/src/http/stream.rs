//! Live data: one look a second at the daemon serves all browsers, and none is taken while none looks on.
//!
//! | event | when |
//! |---|---|
//! | `status` | the document has changed, but for the time since the start; or the daemon does not answer: then an error document |
//! | `jobs` | the document has changed |
//! | `events` | there are new events: the first one lists all that are kept, later ones the new ones alone |
//! | `figures` | every second |

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dolmen_api::{CallerRole, ErrorBody, ErrorDocument};
use hyper::body::Frame;
use serde_json::Value;
use tokio::sync::{Notify, mpsc};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::app::{App, Shared};
use super::identity::{Identity, Secret, Who, is_still, secret_of};
use super::refusal::Refusal;

/// Path of the stream.
pub(super) const PATH: &str = "/api/v1/stream";
/// Listeners, at most.
const LISTENERS_MAX: usize = 32;
/// Listeners of a session or a token, at most: tabs of one browser that are seen, and one that has just been closed.
const LISTENERS_OF_ONE_MAX: usize = 4;
/// How often the daemon is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How soon a listener that has come gets a look of its own behind the last one.
const LOOK_SOONEST: Duration = Duration::from_millis(100);
/// Looks between two signs of life.
const LOOKS_BETWEEN_BEATS: u32 = 15;
/// Events that wait for a listener, at most: one that takes none for so long is ended.
const WAITING_MAX: usize = 64;
/// Name of the looks at the daemon in its record.
const LOOKER: &str = "console/stream";
/// Fields of the status that change all the time and say nothing new.
const STATUS_NOISE: &str = "uptime_s";

/// Name of the document that only grows.
const EVENTS: &str = "events";
/// How long the daemon may take for a document: a listener hears of the delay.
const LOOK_LIMIT: Duration = Duration::from_secs(5);
/// Names of events, and what the daemon is asked for.
const DOCUMENTS: [(&str, &str); 4] =
    [("status", "/v1/status"), ("jobs", "/v1/jobs"), (EVENTS, "/v1/events"), ("figures", "/v1/figures")];

/// The listeners, and what they were sent last.
pub(crate) struct Hub {
    inner: Arc<Inner>,
}

struct Inner {
    listeners: Mutex<Vec<Listener>>,
    is_wanted: Notify,
}

struct Listener {
    who: Who,
    secret: Secret,
    events: mpsc::Sender<Bytes>,
    /// Whether it has been sent everything that changes seldom.
    is_new: bool,
}

impl Hub {
    /// Starts the poller, which ends with the server.
    pub(super) fn start(app: Weak<App>) -> Self {
        let inner = Arc::new(Inner { listeners: Mutex::default(), is_wanted: Notify::new() });
        tokio::spawn(poll(app, Arc::clone(&inner)));
        Self { inner }
    }

    fn add(&self, who: Who, secret: Secret) -> Result<mpsc::Receiver<Bytes>, Refusal> {
        let mut listeners = self.inner.lock();
        listeners.retain(|listener| !listener.events.is_closed());
        let key = who.rate_key();
        if listeners.iter().filter(|listener| listener.who.rate_key() == key).count() >= LISTENERS_OF_ONE_MAX
        {
            let message = format!("{LISTENERS_OF_ONE_MAX} consoles of this session or token look on already");
            return Err(Refusal::busy(message).hint("close one of them"));
        }
        if listeners.len() >= LISTENERS_MAX {
            return Err(Refusal::busy(format!("{LISTENERS_MAX} consoles look on already")));
        }
        let (events, received) = mpsc::channel(WAITING_MAX);
        listeners.push(Listener { who, secret, events, is_new: true });
        drop(listeners);
        self.inner.is_wanted.notify_one();
        Ok(received)
    }
}

impl Inner {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Listener>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers with the stream.
pub(super) async fn listen(
    State(app): State<Shared>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let who = identity.with_role(CallerRole::Viewer)?.clone();
    let secret = secret_of(&headers).ok_or_else(Refusal::unknown)?;
    let events = app.hub().add(who, secret)?;
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    Ok((StatusCode::OK, kind, Body::new(Events(events))).into_response())
}

/// The body of a stream.
struct Events(mpsc::Receiver<Bytes>);

impl HttpBody for Events {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

/// What was seen last.
#[derive(Default)]
struct Seen {
    /// Documents that change seldom, as they were sent.
    sent: BTreeMap<&'static str, (Value, Bytes)>,
    last_event: u64,
    looks: u32,
}

async fn poll(app: Weak<App>, inner: Arc<Inner>) {
    let mut seen = Seen::default();
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if inner.lock().is_empty() {
            seen = Seen::default();
            inner.is_wanted.notified().await;
        }
        tokio::select! {
            _ = ticks.tick() => {}
            // Whoever opens a console waits for no tick.
            () = inner.is_wanted.notified() => {
                sleep(LOOK_SOONEST).await;
                ticks.reset();
            }
        }
        let Some(app) = app.upgrade() else { return };
        inner.lock().retain(|listener| {
            !listener.events.is_closed() && is_still(&app, &listener.who, &listener.secret)
        });
        if !inner.lock().is_empty() {
            look(&app, &inner, &mut seen).await;
        }
    }
}

/// Looks at the daemon, and sends what is new.
async fn look(app: &Shared, inner: &Inner, seen: &mut Seen) {
    let has_newcomers = inner.lock().iter().any(|listener| listener.is_new);
    let mut fresh = Vec::new();
    let mut kept = None;
    for (name, path) in DOCUMENTS {
        let since = if name == EVENTS { format!("?since={}", seen.last_event) } else { String::new() };
        let mut found = ask(app, &format!("{path}{since}")).await;
        if let Ok(body) = &found {
            fresh.extend(seen.news(name, body));
        }
        if name == EVENTS && has_newcomers && found.is_ok() {
            found = ask(app, path).await;
            kept = found.as_ref().ok().and_then(|body| event(name, body));
        }
        if let Err(error) = found {
            let document = serde_json::to_vec(&ErrorDocument::from(error)).unwrap_or_default();
            fresh.extend(seen.news("status", &document));
            break;
        }
    }
    seen.looks = seen.looks.wrapping_add(1);
    if seen.looks.is_multiple_of(LOOKS_BETWEEN_BEATS) {
        fresh.push(("", Bytes::from_static(b": \n\n")));
    }
    // A listener that came while the daemon was asked waits for the next look, which has all events for it.
    inner.lock().retain_mut(|listener| {
        let send = |event: &Bytes| listener.events.try_send(event.clone()).is_ok();
        if !listener.is_new {
            return fresh.iter().all(|(_, event)| send(event));
        }
        if !has_newcomers {
            return true;
        }
        listener.is_new = false;
        let seldom = seen.sent.iter().filter(|(name, _)| !fresh.iter().any(|(fresh, _)| fresh == *name));
        let seldom = seldom.map(|(_, (_, event))| event);
        let rest = fresh.iter().filter(|(name, _)| *name != EVENTS).map(|(_, event)| event);
        seldom.chain(&kept).chain(rest).all(send)
    });
}

async fn ask(app: &Shared, path: &str) -> Result<Bytes, ErrorBody> {
    app.daemon.look(path, LOOKER, LOOK_LIMIT).await
}

/// Returns a document as an event of the stream.
fn event(name: &str, body: &[u8]) -> Option<Bytes> {
    let document: Value = serde_json::from_slice(body).ok()?;
    Some(Bytes::from(format!("event: {name}\ndata: {document}\n\n")))
}

impl Seen {
    /// Returns the event of a document, if it says something new.
    fn news(&mut self, name: &'static str, body: &[u8]) -> Option<(&'static str, Bytes)> {
        let document: Value = serde_json::from_slice(body).ok()?;
        let event = event(name, body)?;
        match name {
            "figures" => Some((name, event)),
            EVENTS => {
                let last = document.get("last").and_then(Value::as_u64).unwrap_or(0);
                // Numbers begin again where the daemon has lost its record.
                let is_new = last != self.last_event;
                self.last_event = last;
                is_new.then_some((name, event))
            }
            _ => {
                let mut compared = document;
                if let Value::Object(fields) = &mut compared {
                    fields.remove(STATUS_NOISE);
                }
                let before = self.sent.insert(name, (compared, event.clone()));
                let is_new =
                    self.sent.get(name).map(|(now, _)| now) != before.as_ref().map(|(before, _)| before);
                // Whoever comes later gets the newest one all the same: with the time since the start of now.
                is_new.then_some((name, event))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_news_when_it_has_changed() {
        let mut seen = Seen::default();
        let mut is_news = |name, body: &str| seen.news(name, body.as_bytes()).is_some();
        assert!(is_news("status", r#"{"uptime_s":1,"health":"healthy"}"#));
        assert!(!is_news("status", r#"{"uptime_s":2,"health":"healthy"}"#));
        assert!(is_news("status", r#"{"uptime_s":3,"health":"warning"}"#));
        assert!(is_news("figures", "{}") && is_news("figures", "{}"));
        assert!(
            is_news("events", r#"{"last":3,"now_s":1}"#) && !is_news("events", r#"{"last":3,"now_s":2}"#)
        );
        assert!(!is_news("jobs", "no document"));
        assert!(!is_news("status", r#"{"uptime_s":9,"health":"warning"}"#));
        let (_, kept) = &seen.sent["status"];
        assert!(kept.ends_with(b"\"uptime_s\":9}\n\n"), "a newcomer gets the time of now: {kept:?}");
    }

    #[test]
    fn an_event_is_one_line_of_data() {
        let (_, event) = Seen::default().news("jobs", b"{\n\"a\": \"x\\ny\"\n}").unwrap();
        assert_eq!(&event[..], b"event: jobs\ndata: {\"a\":\"x\\ny\"}\n\n");
    }
}

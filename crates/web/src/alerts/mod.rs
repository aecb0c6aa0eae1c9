//! Alerts: looks at the daemon, the state of alerts on disk, and the channels that notifications go to (docs/alerts.md).
//!
//! Files, lowest first: `trust`, `endpoint` and `mail` send; `channel` chooses between them; `settings` reads the file of settings; `file`
//! keeps the state; `engine` looks and sends; `report` is what the console and commands show.
//!
//! Invariants:
//! - A change of the state is on disk before it is answered or sent, so an end at any moment loses nothing that was acknowledged.
//! - The state has one writer at a time, by a lock: the server, or a command on the host, whose change the server reads again.
//! - An attempt to send ends within 30 s, and a channel that does not answer holds up no other one and no look.

mod channel;
mod endpoint;
mod engine;
mod file;
mod mail;
mod report;
mod settings;
mod trust;

pub(crate) use engine::{Engine, TestResult};
pub(crate) use file::{Keep, StateFile};
pub(crate) use report::{report, silences_of};
pub(crate) use settings::Settings;

//! Alerts of a host: findings of the daemon in, notifications out, as a pure value.
//!
//! ```text
//! findings ── grouped by cause ──▶ alerts ──▶ outbox ──▶ due ──▶ mail · webhook · ntfy
//!              (`cause`)          (`alert`)  (`outbox`)   │
//!              silences ─────────────┘            sent · failed, from the caller
//! ```
//! [`Alerts::look`] takes what the daemon answered, or that it did not, with the time. [`Alerts::due`] returns what is to be sent;
//! [`Alerts::sent`] and [`Alerts::failed`] note what became of it. [`Alerts::save`] and [`Alerts::restore`] carry all of it over a restart.
//!
//! Invariants:
//! - Alerts follow states. What opens an alert is that its condition holds, and what closes it is that it does not; a missed look loses
//!   neither.
//! - Each alert has one opening and one all-clear for each channel, in this order, both sent until they are confirmed. So a channel may get one
//!   twice, with the same number, and none is lost but those that [`Alerts::abandoned`] lists.
//! - What cannot be seen has not ended: while the daemon does not answer, or a pool is not open, their alerts stay as they are.
//! - Delays are counted in time that elapsed (`clock`), so no jump of the wall clock opens, closes, repeats or expires a day's worth.
//! - Everything is bounded: alerts, evidence, texts, silences, notifications, attempts.
//!
//! Looking, storing, and sending (SMTP, HTTP) are left to the caller, which writes the saved state before it sends what is due.

mod alert;
mod alerts;
mod cause;
mod clock;
mod date;
mod evidence;
mod mail;
mod notification;
mod ntfy;
mod outbox;
mod pattern;
mod policy;
mod saved;
mod severity;
mod silence;
mod text;
mod webhook;

pub use alert::Alert;
pub use alerts::{ALERTS_MAX, Alerts, Look};
pub use cause::{Cause, CauseKind, EVIDENCE_MAX};
pub use clock::STEP_MAX_S;
pub use evidence::{Evidence, FURTHER_CODE, TEXT_BYTES_MAX, UNANSWERED_CODE};
pub use mail::{Envelope, MailError, RECIPIENTS_MAX, mail};
pub use notification::{AlertContent, Kind, Notification};
pub use ntfy::{MESSAGE_BYTES_MAX, Ntfy, ntfy};
pub use outbox::{ABANDONED_MAX, Abandoned, TestState, WAITING_MAX, WaitingOn};
pub use pattern::{PATTERN_BYTES_MAX, Pattern, PatternError};
pub use policy::{ATTEMPTS_MAX, CHANNELS_MAX, OpenAfter, Policy};
pub use saved::{RestoreError, STATE_BYTES_MAX, STATE_VERSION};
pub use severity::Severity;
pub use silence::{NOTE_BYTES_MAX, NewSilence, SILENCE_S_MAX, SILENCES_MAX, Silence, SilenceError};
pub use text::{Advice, SUBJECT_BYTES_MAX};
pub use webhook::{WEBHOOK_SCHEMA, Webhook, WebhookAlert, WebhookEvidence, webhook};

//! Notifications as the JSON of a webhook. `docs/alerts.md` describes it.

use dolmen_api::ObjectKind;
use serde::Serialize;

use crate::notification::{AlertContent, Notification};

/// Version of the JSON. It goes up when a field changes its meaning or goes away; new fields come without notice.
pub const WEBHOOK_SCHEMA: u32 = 1;

/// A notification, as a webhook sends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Webhook<'a> {
    schema: u32,
    id: u64,
    kind: &'static str,
    severity: &'static str,
    host: &'a str,
    at_s: u64,
    subject: &'a str,
    body: &'a str,
    commands: &'a [String],
    alert: Option<WebhookAlert<'a>>,
}

/// Its alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WebhookAlert<'a> {
    id: u64,
    cause: &'static str,
    scope: &'a str,
    pool: Option<&'a str>,
    since_s: u64,
    evidence: Vec<WebhookEvidence<'a>>,
    left_out: usize,
}

/// A piece of evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WebhookEvidence<'a> {
    code: &'a str,
    severity: &'static str,
    object_kind: &'static str,
    object: String,
    text: &'a str,
    amount: u64,
    distance: u8,
}

const fn kind_word(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Daemon => "daemon",
        ObjectKind::Pool => "pool",
        ObjectKind::Disk => "disk",
        ObjectKind::Space => "space",
        ObjectKind::Job => "job",
    }
}

/// Returns a notification as a webhook sends it.
#[must_use]
pub fn webhook(notification: &Notification) -> Webhook<'_> {
    Webhook {
        schema: WEBHOOK_SCHEMA,
        id: notification.id,
        kind: notification.kind.word(),
        severity: notification.severity.word(),
        host: &notification.host,
        at_s: notification.at_s,
        subject: &notification.subject,
        body: &notification.body,
        commands: &notification.commands,
        alert: notification.alert.as_ref().map(alert),
    }
}

fn alert(alert: &AlertContent) -> WebhookAlert<'_> {
    let evidence = alert.evidence.iter().map(|one| WebhookEvidence {
        code: &one.code,
        severity: one.severity.word(),
        object_kind: kind_word(one.object.kind),
        object: one.object.to_string(),
        text: &one.text,
        amount: one.amount,
        distance: one.distance,
    });
    WebhookAlert {
        id: alert.id,
        cause: alert.cause.kind.word(),
        scope: &alert.cause.scope,
        pool: alert.cause.pool.as_deref(),
        since_s: alert.since_s,
        evidence: evidence.collect(),
        left_out: alert.left_out,
    }
}

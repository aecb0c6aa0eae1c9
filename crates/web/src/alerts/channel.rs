//! Channels: where a notification goes, and how an attempt to send one ends.

use std::time::Duration;

use dolmen_alerts::{Notification, ntfy, webhook};
use serde_json::json;
use tokio::time::timeout;

use super::endpoint::Endpoint;
use super::mail::{Mail, MailVia};

/// How long one attempt may take.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(30);

/// A channel.
#[derive(Debug, Clone)]
pub(crate) struct Channel {
    pub name: String,
    pub route: Route,
}

/// The way that a notification takes.
#[derive(Debug, Clone)]
pub(crate) enum Route {
    Mail(Mail),
    Webhook(Endpoint),
    Ntfy { endpoint: Endpoint, topic: String },
}

impl Channel {
    /// Returns the kind of the channel, as a word.
    pub(crate) const fn kind(&self) -> &'static str {
        match &self.route {
            Route::Mail(mail) => match mail.via {
                MailVia::Smtp(_) => "smtp",
                MailVia::Sendmail(_) => "sendmail",
            },
            Route::Webhook(_) => "webhook",
            Route::Ntfy { .. } => "ntfy",
        }
    }

    /// Returns where it goes, without secrets: a path of a webhook may be one.
    pub(crate) fn target(&self) -> String {
        match &self.route {
            Route::Mail(mail) => mail.target(),
            Route::Webhook(endpoint) => endpoint.origin(),
            Route::Ntfy { endpoint, topic } => format!("{} topic {topic}", endpoint.origin()),
        }
    }

    /// Sends a notification, or returns why that failed.
    pub(crate) async fn send(&self, notification: &Notification) -> Result<(), String> {
        match timeout(ATTEMPT_LIMIT, self.attempt(notification)).await {
            Ok(sent) => sent,
            Err(_) => Err(format!("{} did not take it within {} s", self.target(), ATTEMPT_LIMIT.as_secs())),
        }
    }

    async fn attempt(&self, notification: &Notification) -> Result<(), String> {
        match &self.route {
            Route::Mail(mail) => mail.send(notification).await,
            Route::Webhook(endpoint) => {
                let document = json!(webhook(notification));
                endpoint.post(&document).await
            }
            Route::Ntfy { endpoint, topic } => {
                let mut document = json!(ntfy(notification));
                if let Some(fields) = document.as_object_mut() {
                    fields.insert("topic".to_owned(), json!(topic));
                }
                endpoint.post(&document).await
            }
        }
    }
}

//! Who asks: a session by its cookie, a program by its token, or nobody.

use axum::http::{HeaderMap, StatusCode, header};
use dolmen_api::{CallerRole, ErrorCode};

use super::app::Shared;
use super::refusal::Refusal;
use crate::accounts::{IDLE_S, TOKEN_PREFIX};
use crate::clock;
use crate::limits::RateKey;

/// Name of the cookie. Browsers take it over TLS alone, from this host alone, and for all paths.
pub(crate) const COOKIE: &str = "__Host-dolmen";
/// How often the file of accounts notes that a session is used: an open console lets the disk of the system sleep. After a restart, a
/// session counts as idle for so much longer at most.
const NOTE_EVERY_S: u64 = 3600;
const _: () = assert!(NOTE_EVERY_S * 4 <= IDLE_S, "a session in use outlasts a restart by far");

/// A user or a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Who {
    /// Name of the user, or of the token.
    pub name: String,
    pub role: CallerRole,
    /// Id of the session; none for a token.
    pub session: Option<String>,
}

/// The identity of a request.
#[derive(Debug, Clone)]
pub(crate) struct Identity(pub Option<Who>);

impl Who {
    /// Returns its name as the daemon and the audit log have it.
    pub(crate) fn label(&self) -> String {
        match &self.session {
            Some(_) => self.name.clone(),
            None => format!("token/{}", self.name),
        }
    }

    /// Returns whose requests are counted together.
    pub(crate) fn rate_key(&self) -> RateKey {
        match &self.session {
            Some(id) => RateKey::Session(id.clone()),
            None => RateKey::Token(self.name.clone()),
        }
    }
}

impl Identity {
    /// Returns who asks, with this role at least.
    pub(crate) fn with_role(&self, role: CallerRole) -> Result<&Who, Refusal> {
        let who = self.0.as_ref().ok_or_else(Refusal::unknown)?;
        if who.role >= role {
            return Ok(who);
        }
        let (needed, had) = (role.word(), who.role.word());
        let message = format!("this needs the role {needed}, and {} has the role {had}", who.label());
        Err(Refusal::forbidden(format!("{message}; nothing was changed")).hint("ask a user with that role"))
    }

    /// Returns who asks, signed in as a person with this role at least. A token makes no accounts: it could make another one that stays.
    pub(crate) fn in_session(&self, role: CallerRole) -> Result<(&Who, &str), Refusal> {
        let who = self.with_role(role)?;
        let session = who.session.as_deref();
        session.map(|session| (who, session)).ok_or_else(|| {
            Refusal::forbidden(
                "accounts are changed by users who are signed in, not with a token; nothing was changed",
            )
        })
    }
}

/// Finds out who asks. A cookie that holds no session is nobody's; a token that does not hold is refused.
pub(super) fn identify(app: &Shared, headers: &HeaderMap) -> Result<Identity, Refusal> {
    if let Some(secret) = token_of(headers)? {
        return by_token(app, &secret).map(|who| Identity(Some(who)));
    }
    let Some(secret) = cookie_of(headers) else { return Ok(Identity(None)) };
    let accounts = app.current()?;
    let now = clock::now();
    let Some(session) = accounts.session(&secret) else { return Ok(Identity(None)) };
    let Some(user) = accounts.user(&session.user) else { return Ok(Identity(None)) };
    if !app.lives.note_use(session, now) {
        return Ok(Identity(None));
    }
    if now.wall_s.saturating_sub(session.seen_s) >= NOTE_EVERY_S {
        note_use(app, session.id.clone(), now.wall_s);
    }
    let session = Some(session.id.clone());
    Ok(Identity(Some(Who { name: user.name.clone(), role: user.role.0, session })))
}

/// Returns whether who was identified still is what it was.
pub(super) fn is_still(app: &Shared, who: &Who, secret: &Secret) -> bool {
    let Ok(accounts) = app.accounts.current() else { return false };
    let now = clock::now();
    match secret {
        Secret::Token(secret) => accounts
            .token(secret, now.wall_s)
            .is_some_and(|token| token.name == who.name && token.role.0 == who.role),
        Secret::Cookie(secret) => accounts.session(secret).is_some_and(|session| {
            let user = accounts.user(&session.user);
            user.is_some_and(|user| user.role.0 == who.role) && app.lives.is_alive(session, now)
        }),
    }
}

/// The secret of a request that was identified.
pub(super) enum Secret {
    Token(String),
    Cookie(String),
}

/// Returns the secret that a request has.
pub(super) fn secret_of(headers: &HeaderMap) -> Option<Secret> {
    match token_of(headers) {
        Ok(Some(secret)) => Some(Secret::Token(secret)),
        Ok(None) => cookie_of(headers).map(Secret::Cookie),
        Err(_) => None,
    }
}

fn by_token(app: &Shared, secret: &str) -> Result<Who, Refusal> {
    let accounts = app.current()?;
    let found = accounts.token(secret, clock::now().wall_s);
    let token = found.ok_or_else(|| {
        let message = "the token is unknown, was removed or has expired; nothing was changed";
        Refusal::new(StatusCode::UNAUTHORIZED, ErrorCode::Permission, message)
    })?;
    Ok(Who { name: token.name.clone(), role: token.role.0, session: None })
}

/// Returns the token of a request.
fn token_of(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().unwrap_or("");
    let secret = text.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let secret = secret.map(|(_, secret)| secret.trim()).filter(|secret| secret.starts_with(TOKEN_PREFIX));
    match (secret, values.next()) {
        (Some(secret), None) => Ok(Some(secret.to_owned())),
        _ => {
            let message =
                "the header Authorization is no `Bearer` with a token of dolmen-web; nothing was changed";
            Err(Refusal::new(StatusCode::UNAUTHORIZED, ErrorCode::Permission, message))
        }
    }
}

/// Returns the value of the cookie; none where it is given twice.
fn cookie_of(headers: &HeaderMap) -> Option<String> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut values = pairs.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value);
    match (values.next(), values.next()) {
        (Some(value), None) => Some(value.to_owned()),
        _ => None,
    }
}

fn note_use(app: &Shared, id: String, now_s: u64) {
    let app = Shared::clone(app);
    tokio::spawn(async move {
        let noted = app.update(move |accounts| {
            let session = accounts.sessions.iter_mut().find(|session| session.id == id);
            if let Some(session) = session {
                session.seen_s = session.seen_s.max(now_s);
            }
            Ok(())
        });
        // Where it is not noted, the session ends earlier after a restart.
        let _ = noted.await;
    });
}

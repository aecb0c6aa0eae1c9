//! Signing in and out, and what users may do about themselves.

use axum::body::Bytes;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use dolmen_api::{CallerRole, SCHEMA, Simple, read_request};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::app::Shared;
use super::guard::Client;
use super::identity::{COOKIE, Identity};
use super::refusal::Refusal;
use crate::accounts::{Role, Rule, check_name, check_password};
use crate::audit::Entry;
use crate::clock;
use crate::error::WebError;
use crate::limits::{Attempt, network_of};

/// For how long a browser keeps the cookie: as long as a session lives at most.
const COOKIE_S: u64 = 7 * 86_400;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct First {
    code: String,
    user: String,
    password: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SignIn {
    user: String,
    password: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewPassword {
    old: String,
    new: String,
}

pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/account", get(show))
        .route("/account/first", post(first))
        .route("/account/sign-in", post(sign_in))
        .route("/account/sign-out", post(sign_out))
        .route("/account/password", post(set_password))
        .route("/account/sessions", get(sessions))
        .route("/account/sessions/{id}/end", post(end_session))
}

/// Reads the document of a body.
pub(super) fn read<T: DeserializeOwned + Serialize>(body: &Bytes) -> Result<T, Refusal> {
    read_request(body).map_err(|error| Refusal::unreadable(&error))
}

/// Returns the answer to a change that is done.
pub(super) fn done() -> Json<Value> {
    Json(json!({ "schema": SCHEMA }))
}

async fn show(
    State(app): State<Shared>,
    Extension(identity): Extension<Identity>,
) -> Result<Json<Value>, Refusal> {
    let Some(who) = &identity.0 else {
        let is_first = app.current()?.users.is_empty();
        return Ok(Json(json!({ "schema": SCHEMA, "user": null, "first": is_first })));
    };
    let mut answer = json!({
        "schema": SCHEMA,
        "user": who.label(),
        "role": who.role.word(),
        "session": who.session,
        "first": false,
    });
    if let (CallerRole::Admin, Value::Object(answer)) = (who.role, &mut answer) {
        answer.insert("certificate".to_owned(), json!(app.certificates.facts()));
    }
    Ok(Json(answer))
}

async fn first(
    State(app): State<Shared>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    let asked: First = read(&body)?;
    check_name(&asked.user)?;
    check_password(&asked.password)?;
    let attempt = begin(&app, client, "")?;
    let recorded = |outcome: String| {
        let user: String = asked.user.chars().take(64).collect();
        Entry::new("first sign-in", outcome).from(client.address).by(&user, None)
    };
    let refused = |refusal: Refusal| {
        app.audit.note_access(&recorded(refusal.outcome()));
        refusal
    };
    app.current()?.check_code(&asked.code, clock::now().wall_s).map_err(|rule| refused(rule.into()))?;
    let password = app.passwords.hash(asked.password.clone()).await?;
    let (agent, address) = (agent_of(&headers), client.address.to_string());
    let (code, name) = (asked.code.clone(), asked.user.clone());
    let begun = app.update(move |accounts| {
        let now_s = clock::now().wall_s;
        accounts.add_first(&code, &name, password, now_s)?;
        accounts.begin_session(&name, &address, &agent, now_s)
    });
    let begun = begun.await.map_err(refused)?;
    app.sign_ins.succeed(attempt);
    app.audit.note_access(&recorded("200".to_owned()));
    Ok(with_cookie(&begun.secret, &begun.id))
}

async fn sign_in(
    State(app): State<Shared>,
    Extension(client): Extension<Client>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    let asked: SignIn = read(&body)?;
    let attempt = begin(&app, client, &asked.user)?;
    let recorded = |outcome: String| {
        let user: String = asked.user.chars().take(64).collect();
        Entry::new("sign-in", outcome).from(client.address).by(&user, None)
    };
    let known = app.current()?.user(&asked.user).cloned();
    let expected = known.as_ref().map(|user| user.password.clone());
    let is_right = app.passwords.is_of(expected.clone(), asked.password.clone()).await?;
    let refused = |refusal: Refusal| {
        app.audit.note_access(&recorded(refusal.outcome()));
        refusal
    };
    let Some(user) = known.filter(|_| is_right) else { return Err(refused(Rule::WrongPassword.into())) };
    let (agent, address) = (agent_of(&headers), client.address.to_string());
    let before = identity.0.and_then(|who| who.session);
    let begun = app.update(move |accounts| {
        // The password may have been changed while it was compared.
        if accounts.user(&user.name).map(|user| &user.password) != expected.as_ref() {
            return Err(Rule::WrongPassword.into());
        }
        if let Some(before) = before {
            let _ = accounts.end_session(&before);
        }
        accounts.begin_session(&user.name, &address, &agent, clock::now().wall_s)
    });
    let begun = begun.await.map_err(refused)?;
    app.sign_ins.succeed(attempt);
    app.audit.note_access(&recorded("200".to_owned()));
    Ok(with_cookie(&begun.secret, &begun.id))
}

async fn sign_out(
    State(app): State<Shared>,
    Extension(client): Extension<Client>,
    Extension(identity): Extension<Identity>,
    body: Bytes,
) -> Result<Response, Refusal> {
    let _: Simple = read(&body)?;
    if let Some(who) = &identity.0
        && let Some(session) = who.session.clone()
    {
        app.update(move |accounts| Ok(accounts.end_session(&session)?)).await?;
        let entry = Entry::new("sign-out", "200").from(client.address);
        app.audit.note_access(&entry.by(&who.label(), Some(Role(who.role))));
    }
    let mut response = done().into_response();
    let none = format!("{COOKIE}=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0");
    if let Ok(none) = HeaderValue::from_str(&none) {
        response.headers_mut().insert(header::SET_COOKIE, none);
    }
    Ok(response)
}

async fn set_password(
    State(app): State<Shared>,
    Extension(client): Extension<Client>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    let (who, _) = identity.in_session(CallerRole::Viewer)?;
    let asked: NewPassword = read(&body)?;
    check_password(&asked.new)?;
    let attempt = begin(&app, client, &who.name)?;
    let expected = app.current()?.user(&who.name).map(|user| user.password.clone());
    let recorded = |outcome: String| {
        Entry::new("password", outcome).from(client.address).by(&who.label(), Some(Role(who.role)))
    };
    if !app.passwords.is_of(expected.clone(), asked.old).await? {
        let refusal = Refusal::from(Rule::WrongPassword);
        app.audit.note_access(&recorded(refusal.outcome()));
        return Err(refusal);
    }
    app.sign_ins.succeed(attempt);
    let password = app.passwords.hash(asked.new).await?;
    let (agent, address, name) = (agent_of(&headers), client.address.to_string(), who.name.clone());
    let begun = app.update(move |accounts| {
        if accounts.user(&name).map(|user| &user.password) != expected.as_ref() {
            return Err(Rule::WrongPassword.into());
        }
        accounts.set_password(&name, password)?;
        accounts.begin_session(&name, &address, &agent, clock::now().wall_s)
    });
    let begun = begun.await?;
    app.audit.note_access(&recorded("200".to_owned()));
    Ok(with_cookie(&begun.secret, &begun.id))
}

async fn sessions(
    State(app): State<Shared>,
    Extension(identity): Extension<Identity>,
) -> Result<Json<Value>, Refusal> {
    let (who, own) = identity.in_session(CallerRole::Viewer)?;
    let accounts = app.current()?;
    let now = clock::now();
    let shown = accounts.sessions.iter().filter(|session| {
        let may_see = session.user == who.name || who.role == CallerRole::Admin;
        may_see && app.lives.is_alive(session, now)
    });
    let shown: Vec<Value> = shown
        .map(|session| {
            json!({
                "id": session.id,
                "user": session.user,
                "created_s": session.created_s,
                "seen_s": app.lives.used_s(session, now),
                "address": session.address,
                "agent": session.agent,
                "is_own": session.id == own,
            })
        })
        .collect();
    Ok(Json(json!({ "schema": SCHEMA, "sessions": shown })))
}

async fn end_session(
    State(app): State<Shared>,
    Extension(client): Extension<Client>,
    Extension(identity): Extension<Identity>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, Refusal> {
    let (who, _) = identity.in_session(CallerRole::Viewer)?;
    let _: Simple = read(&body)?;
    let (name, is_admin, what) =
        (who.name.clone(), who.role == CallerRole::Admin, format!("end session {id}"));
    let ended = app.update(move |accounts| {
        let is_others = |session: &crate::accounts::Session| session.id == id && session.user != name;
        // A session of another user is as unknown as one that is not there.
        if !is_admin && accounts.sessions.iter().any(is_others) {
            return Err(Rule::Unknown { what: "session", name: id }.into());
        }
        accounts.end_session(&id).map_err(WebError::from)
    });
    let ended = ended.await;
    let outcome = ended.as_ref().err().map_or_else(|| "200".to_owned(), Refusal::outcome);
    // Anybody may end sessions of its own, as often as it signs in.
    let entry = Entry::new(what, outcome).from(client.address);
    app.audit.note_access(&entry.by(&who.label(), Some(Role(who.role))));
    ended.map(|()| done())
}

/// Begins an attempt to sign in, or refuses it until a wait is over.
fn begin(app: &Shared, client: Client, user: &str) -> Result<Attempt, Refusal> {
    let begun = app.sign_ins.begin(user, network_of(client.address), clock::boot_ms());
    begun.map_err(|wait_s| {
        let message = format!("too many failed sign-ins; the next one is taken in {wait_s} s");
        Refusal::too_many(message, wait_s)
    })
}

fn agent_of(headers: &HeaderMap) -> String {
    let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
    agent.unwrap_or("").to_owned()
}

fn with_cookie(secret: &str, id: &str) -> Response {
    let cookie = format!("{COOKIE}={secret}; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age={COOKIE_S}");
    let mut response = Json(json!({ "schema": SCHEMA, "session": id })).into_response();
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

//! What administrators do about users, tokens and the audit log.

use axum::body::Bytes;
use axum::extract::{Extension, Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use dolmen_api::{CallerRole, SCHEMA, Simple};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::account::{done, read};
use super::app::Shared;
use super::guard::Client;
use super::identity::{Identity, Who};
use super::refusal::Refusal;
use crate::accounts::{Role, check_name, check_password};
use crate::audit::Entry;
use crate::clock;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewUser {
    user: String,
    password: String,
    role: Role,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewRole {
    role: Role,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewToken {
    name: String,
    role: Role,
    days: u32,
}

pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/account/users", get(users).post(add_user))
        .route("/account/users/{user}/role", post(set_role))
        .route("/account/users/{user}/remove", post(remove_user))
        .route("/account/tokens", get(tokens).post(add_token))
        .route("/account/tokens/{name}/remove", post(remove_token))
        .route("/account/audit", get(audit))
}

/// A change by an administrator, for the audit log.
struct Change<'a> {
    app: &'a Shared,
    client: Client,
    who: &'a Who,
    what: String,
}

impl Change<'_> {
    /// Writes what came of it.
    fn record<T>(self, result: Result<T, Refusal>) -> Result<T, Refusal> {
        let outcome = result.as_ref().err().map_or_else(|| "200".to_owned(), Refusal::outcome);
        let entry = Entry::new(self.what, outcome).from(self.client.address);
        let entry = entry.by(&self.who.label(), Some(Role(self.who.role)));
        match &result {
            Ok(_) => self.app.audit.write(&entry),
            Err(_) => self.app.audit.note_access(&entry),
        }
        result
    }

    /// Writes what came of it, with the tokens that have ended, and answers with them.
    fn record_tokens(mut self, result: Result<Vec<String>, Refusal>) -> Result<Json<Value>, Refusal> {
        if let Ok(tokens) = &result
            && !tokens.is_empty()
        {
            self.what = format!("{}, and end its tokens {}", self.what, tokens.join(", "));
        }
        let tokens = self.record(result)?;
        Ok(Json(json!({ "schema": SCHEMA, "ended_tokens": tokens })))
    }
}

/// Returns who asks, if it may; a refusal is recorded.
fn admin<'a>(app: &Shared, client: Client, identity: &'a Identity, what: &str) -> Result<&'a Who, Refusal> {
    identity.in_session(CallerRole::Admin).map(|(who, _)| who).inspect_err(|refusal| {
        let entry = Entry::new(what, refusal.outcome()).from(client.address);
        let who = identity.0.as_ref();
        app.audit.note_access(&match who {
            Some(who) => entry.by(&who.label(), Some(Role(who.role))),
            None => entry,
        });
    })
}

async fn users(
    State(app): State<Shared>,
    Extension(identity): Extension<Identity>,
) -> Result<Json<Value>, Refusal> {
    identity.in_session(CallerRole::Admin)?;
    let accounts = app.current()?;
    let shown = accounts.users.iter();
    let shown: Vec<Value> = shown
        .map(|user| json!({ "user": user.name, "role": user.role, "created_s": user.created_s }))
        .collect();
    Ok(Json(json!({ "schema": SCHEMA, "users": shown })))
}

async fn add_user(
    State(app): State<Shared>,
    Extension(client): Extension<Client>,
    Extension(identity): Extension<Identity>,
    body: Bytes,
) -> Result<Json<Value>, Refusal> {
    let who = admin(&app, client, &identity, "add user")?;
    let asked: NewUser = read(&body)?;
    check_name(&asked.user)?;
    check_password(&asked.password)?;
    let what = format!("add user {} as {}", asked.user, asked.role.0.word());
    let change = Change { app: &app, client, who, what };
    let password = app.passwords.hash(asked.password).await?;
    let added = app.update(move |accounts| {
        Ok(accounts.add_user(&asked.user, password, asked.role.0, clock::now().wall_s)?)
    });
    change.record(added.await).map(|()| done())
}

async fn set_role(
    State(app): State<Shared>,
    Extension(client): Extension<Client>,
    Extension(identity): Extension<Identity>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, Refusal> {
    let what = format!("role of user {name}");
    let who = admin(&app, client, &identity, &what)?;
    let asked: NewRole = read(&body)?;
    let change = Change { app: &app, client, who, what: format!("{what}: {}", asked.role.0.word()) };
    let set = app.update(move |accounts| Ok(accounts.set_role(&name, asked.role.0)?));
    change.record_tokens(set.await)
}

async fn remove_user(
    State(app): State<Shared>,
    Extension(client): Extension<Client>,
    Extension(identity): Extension<Identity>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, Refusal> {
    let what = format!("remove user {name}");
    let who = admin(&app, client, &identity, &what)?;
    let _: Simple = read(&body)?;
    let change = Change { app: &app, client, who, what };
    let removed = app.update(move |accounts| Ok(accounts.remove_user(&name)?));
    change.record_tokens(removed.await)
}

async fn tokens(
    State(app): State<Shared>,
    Extension(identity): Extension<Identity>,
) -> Result<Json<Value>, Refusal> {
    identity.in_session(CallerRole::Admin)?;
    let accounts = app.current()?;
    let shown = accounts.tokens.iter();
    let shown: Vec<Value> = shown
        .map(|token| {
            json!({
                "name": token.name,
                "role": token.role,
                "created_s": token.created_s,
                "expires_s": token.expires_s,
                "created_by": token.created_by,
            })
        })
        .collect();
    Ok(Json(json!({ "schema": SCHEMA, "tokens": shown })))
}

async fn add_token(
    State(app): State<Shared>,
    Extension(client): Extension<Client>,
    Extension(identity): Extension<Identity>,
    body: Bytes,
) -> Result<Json<Value>, Refusal> {
    let who = admin(&app, client, &identity, "add token")?;
    let asked: NewToken = read(&body)?;
    check_name(&asked.name)?;
    let what = format!("add token {} as {} for {} days", asked.name, asked.role.0.word(), asked.days);
    let (change, user) = (Change { app: &app, client, who, what }, who.name.clone());
    let added = app.update(move |accounts| {
        accounts.add_token(&asked.name, asked.role.0, asked.days, &user, clock::now().wall_s)
    });
    let secret = change.record(added.await)?;
    Ok(Json(json!({ "schema": SCHEMA, "token": secret })))
}

async fn remove_token(
    State(app): State<Shared>,
    Extension(client): Extension<Client>,
    Extension(identity): Extension<Identity>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, Refusal> {
    let what = format!("remove token {name}");
    let who = admin(&app, client, &identity, &what)?;
    let _: Simple = read(&body)?;
    let change = Change { app: &app, client, who, what };
    let removed = app.update(move |accounts| Ok(accounts.remove_token(&name)?));
    change.record(removed.await).map(|()| done())
}

async fn audit(
    State(app): State<Shared>,
    Extension(identity): Extension<Identity>,
) -> Result<Json<Value>, Refusal> {
    identity.in_session(CallerRole::Admin)?;
    let read = tokio::task::spawn_blocking(move || app.audit.last()).await;
    let entries = read.map_err(|_| Refusal::internal("reading the audit log was cut short"))??;
    Ok(Json(json!({ "schema": SCHEMA, "entries": entries })))
}

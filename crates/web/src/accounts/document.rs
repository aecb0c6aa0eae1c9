//! The document in the file of accounts.

use dolmen_api::CallerRole;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::passwords::PasswordHash;

/// Version of the document.
pub(crate) const SCHEMA: u32 = 1;

/// A role, as its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Role(pub CallerRole);

impl Serialize for Role {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.word())
    }
}

impl<'de> Deserialize<'de> for Role {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let role = CallerRole::of_word(&word).map(Self);
        role.ok_or_else(|| serde::de::Error::custom("a role is one of viewer, operator and admin"))
    }
}

/// Everything in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Accounts {
    /// [`SCHEMA`].
    pub schema: u32,
    /// By name.
    pub users: Vec<User>,
    /// By name.
    pub tokens: Vec<Token>,
    /// Oldest first.
    pub sessions: Vec<Session>,
    /// The code for the first sign-in, while one is awaited.
    pub code: Option<Code>,
}

impl Default for Accounts {
    fn default() -> Self {
        Self { schema: SCHEMA, users: Vec::new(), tokens: Vec::new(), sessions: Vec::new(), code: None }
    }
}

/// A person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct User {
    pub name: String,
    pub role: Role,
    pub password: PasswordHash,
    pub created_s: u64,
}

/// A program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    pub name: String,
    pub role: Role,
    /// SHA-256 of the token.
    pub digest: String,
    pub created_s: u64,
    pub expires_s: u64,
    /// The user who made it.
    pub created_by: String,
}

/// A browser that is signed in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Session {
    /// Name of the session, which is no secret.
    pub id: String,
    /// SHA-256 of the cookie.
    pub digest: String,
    pub user: String,
    pub created_s: u64,
    /// Last request, to an hour.
    pub seen_s: u64,
    /// Address of the last sign-in.
    pub address: String,
    /// What the browser says of itself.
    pub agent: String,
}

/// A code for the first sign-in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Code {
    /// SHA-256 of the code.
    pub digest: String,
    pub created_s: u64,
    pub expires_s: u64,
}

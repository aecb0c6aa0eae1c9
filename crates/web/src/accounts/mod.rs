//! Users, tokens and sessions: the file that holds them, and the rules that they follow.
//!
//! Invariants:
//! - The file holds no secret: passwords are argon2id, all other secrets SHA-256 of random bits.
//! - The file is replaced as a whole, under a lock, by whoever changes it. A damaged file is refused and stays.
//! - There is an administrator as long as there is a user.

mod document;
mod file;
mod passwords;
mod rules;
mod sessions;

pub(crate) use document::{Accounts, Role, Session};
pub(crate) use file::{AccountsFile, Stamp, Watched, make_folder, replace, take_lock};
pub(crate) use passwords::PasswordHash;
pub(crate) use rules::{Rule, TOKEN_PREFIX, check_name, check_password};
pub(crate) use sessions::{IDLE_S, Lives};

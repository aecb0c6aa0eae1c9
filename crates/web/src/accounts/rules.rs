//! Changes of accounts, and the rules that refuse them.

use dolmen_api::CallerRole;

use super::document::{Accounts, Code, Role, SCHEMA, Session, Token, User};
use super::passwords::PasswordHash;
use super::sessions::{EXPIRES_S, IDLE_S, is_dated_here};
use crate::error::WebError;
use crate::secret::{SECRET_BYTES, digest_of, hex, is_equal, random};

/// Users, at most.
const USERS_MAX: usize = 256;
/// Tokens, at most.
const TOKENS_MAX: usize = 256;
/// Sessions of one user, at most: the one that was used least lately ends.
const SESSIONS_OF_USER_MAX: usize = 32;
/// Letters of a password, at least.
const PASSWORD_CHARS_MIN: usize = 10;
/// Bytes of a password, at most.
const PASSWORD_BYTES_MAX: usize = 1024;
/// Letters of a name, at most.
const NAME_CHARS_MAX: usize = 64;
/// Days for which a token may be made, at most.
const TOKEN_DAYS_MAX: u32 = 3650;
/// Days for which a token of an administrator may be made, at most.
const ADMIN_TOKEN_DAYS_MAX: u32 = 366;
/// For how long a code for the first sign-in holds.
const CODE_S: u64 = 15 * 60;
/// Letters of a code: 16 of 32, which is 80 bits. None of them is mistaken for another.
const CODE_LETTERS: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
/// What every token begins with, so that it is found where it does not belong.
pub(crate) const TOKEN_PREFIX: &str = "dolmen_";
/// Letters of what a browser says of itself that are kept.
const AGENT_CHARS_MAX: usize = 200;

/// A rule that refuses a change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Rule {
    #[error(
        "the name {found:?} cannot be used; expected 1 to {NAME_CHARS_MAX} letters, digits and -_.@, the first a letter or digit"
    )]
    Name { found: String },
    #[error(
        "the password has {found} characters; expected at least {PASSWORD_CHARS_MIN}, and {PASSWORD_BYTES_MAX} bytes at most"
    )]
    Password { found: usize },
    #[error("there is a {what} {name} already")]
    Taken { what: &'static str, name: String },
    #[error("there is no {what} {name}")]
    Unknown { what: &'static str, name: String },
    #[error("{name} is the last administrator; make another one first")]
    LastAdministrator { name: String },
    #[error("there are {max} {what} already; remove one first")]
    TooMany { what: &'static str, max: usize },
    #[error("a token of {found} days was asked for; expected 1 to {max} for the role {role}", role = role.0.word())]
    Days { found: u32, role: Role, max: u32 },
    #[error(
        "there are users already; an administrator adds more, and `dolmen-web user password` on the host sets a new password"
    )]
    NotFirst,
    #[error(
        "the code is wrong, was used, or is older than 15 minutes; `dolmen-web code` on the host prints a new one"
    )]
    WrongCode,
    #[error("the user or the password is wrong")]
    WrongPassword,
}

/// A session that was made, with its secret, which the file does not hold.
pub(crate) struct Begun {
    pub secret: String,
    pub id: String,
}

impl Accounts {
    /// Returns what contradicts the rules, in a file that somebody has edited.
    pub(crate) fn contradiction(&self) -> Option<String> {
        let is_twice = |names: Vec<&str>| {
            let mut sorted = names;
            sorted.sort_unstable();
            sorted.array_windows().any(|[one, other]| one == other)
        };
        if self.schema != SCHEMA {
            return Some(format!("has version {}; expected {SCHEMA}", self.schema));
        }
        if is_twice(self.users.iter().map(|user| user.name.as_str()).collect()) {
            return Some("has a user twice".to_owned());
        }
        if is_twice(self.tokens.iter().map(|token| token.name.as_str()).collect()) {
            return Some("has a token twice".to_owned());
        }
        let mut names =
            self.users.iter().map(|user| &user.name).chain(self.tokens.iter().map(|token| &token.name));
        let wrong = names.find(|name| check_name(name).is_err())?;
        Some(format!("has the name {wrong:?}, which cannot be used"))
    }

    pub(crate) fn user(&self, name: &str) -> Option<&User> {
        self.users.iter().find(|user| user.name == name)
    }

    /// Returns the token with this secret that holds now.
    pub(crate) fn token(&self, secret: &str, now_s: u64) -> Option<&Token> {
        let digest = digest_of(secret);
        let found = self.tokens.iter().find(|token| is_equal(token.digest.as_bytes(), digest.as_bytes()))?;
        (is_dated_here(found.created_s, now_s) && now_s < found.expires_s).then_some(found)
    }

    /// Returns the session with this secret, whether or not it has expired.
    pub(crate) fn session(&self, secret: &str) -> Option<&Session> {
        let digest = digest_of(secret);
        self.sessions.iter().find(|session| is_equal(session.digest.as_bytes(), digest.as_bytes()))
    }

    pub(crate) fn add_user(
        &mut self,
        name: &str,
        password: PasswordHash,
        role: CallerRole,
        now_s: u64,
    ) -> Result<(), Rule> {
        check_name(name)?;
        if self.user(name).is_some() {
            return Err(Rule::Taken { what: "user", name: name.to_owned() });
        }
        if self.users.len() >= USERS_MAX {
            return Err(Rule::TooMany { what: "users", max: USERS_MAX });
        }
        self.users.push(User { name: name.to_owned(), role: Role(role), password, created_s: now_s });
        self.users.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(())
    }

    /// Sets a role, and ends the tokens that the user has made above it. Returns their names.
    pub(crate) fn set_role(&mut self, name: &str, role: CallerRole) -> Result<Vec<String>, Rule> {
        if role < CallerRole::Admin {
            self.check_not_last(name)?;
        }
        self.user_mut(name)?.role = Role(role);
        Ok(self.end_tokens(|token| token.created_by == name && token.role.0 > role))
    }

    /// Sets a password, and ends the sessions of the user.
    pub(crate) fn set_password(&mut self, name: &str, password: PasswordHash) -> Result<(), Rule> {
        self.user_mut(name)?.password = password;
        self.sessions.retain(|session| session.user != name);
        Ok(())
    }

    /// Removes a user, with its sessions and the tokens that it has made. Returns the names of the tokens.
    pub(crate) fn remove_user(&mut self, name: &str) -> Result<Vec<String>, Rule> {
        self.user_mut(name)?;
        self.check_not_last(name)?;
        self.users.retain(|user| user.name != name);
        self.sessions.retain(|session| session.user != name);
        Ok(self.end_tokens(|token| token.created_by == name))
    }

    /// Ends tokens, and returns their names. Access that a user has made for a program ends with that of the user.
    fn end_tokens(&mut self, is_ended: impl Fn(&Token) -> bool) -> Vec<String> {
        self.tokens.extract_if(.., |token| is_ended(token)).map(|token| token.name).collect()
    }

    fn user_mut(&mut self, name: &str) -> Result<&mut User, Rule> {
        let found = self.users.iter_mut().find(|user| user.name == name);
        found.ok_or_else(|| Rule::Unknown { what: "user", name: name.to_owned() })
    }

    fn check_not_last(&self, name: &str) -> Result<(), Rule> {
        let is_admin = |user: &&User| user.role.0 == CallerRole::Admin;
        match self.users.iter().filter(is_admin).any(|user| user.name != name) {
            true => Ok(()),
            false => Err(Rule::LastAdministrator { name: name.to_owned() }),
        }
    }

    /// Makes a token, and returns its secret.
    pub(crate) fn add_token(
        &mut self,
        name: &str,
        role: CallerRole,
        days: u32,
        created_by: &str,
        now_s: u64,
    ) -> Result<String, WebError> {
        check_name(name)?;
        let max = if role == CallerRole::Admin { ADMIN_TOKEN_DAYS_MAX } else { TOKEN_DAYS_MAX };
        if days == 0 || days > max {
            return Err(Rule::Days { found: days, role: Role(role), max }.into());
        }
        if self.tokens.iter().any(|token| token.name == name) {
            return Err(Rule::Taken { what: "token", name: name.to_owned() }.into());
        }
        if self.tokens.len() >= TOKENS_MAX {
            return Err(Rule::TooMany { what: "tokens", max: TOKENS_MAX }.into());
        }
        let secret = format!("{TOKEN_PREFIX}{}", hex(&random::<SECRET_BYTES>()?));
        self.tokens.push(Token {
            name: name.to_owned(),
            role: Role(role),
            digest: digest_of(&secret),
            created_s: now_s,
            expires_s: now_s.saturating_add(u64::from(days) * 86_400),
            created_by: created_by.to_owned(),
        });
        self.tokens.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(secret)
    }

    pub(crate) fn remove_token(&mut self, name: &str) -> Result<(), Rule> {
        let before = self.tokens.len();
        self.tokens.retain(|token| token.name != name);
        match self.tokens.len() < before {
            true => Ok(()),
            false => Err(Rule::Unknown { what: "token", name: name.to_owned() }),
        }
    }

    /// Begins a session of a user, and forgets those that have expired.
    pub(crate) fn begin_session(
        &mut self,
        user: &str,
        address: &str,
        agent: &str,
        now_s: u64,
    ) -> Result<Begun, WebError> {
        self.sessions.retain(|session| {
            is_dated_here(session.created_s, now_s)
                && now_s.saturating_sub(session.created_s) < EXPIRES_S
                && now_s.saturating_sub(session.seen_s) < IDLE_S
        });
        while self.sessions.iter().filter(|session| session.user == user).count() >= SESSIONS_OF_USER_MAX {
            let of_user = self.sessions.iter().enumerate().filter(|(_, session)| session.user == user);
            let Some((oldest, _)) = of_user.min_by_key(|(_, session)| session.seen_s) else { break };
            self.sessions.remove(oldest);
        }
        let secret = hex(&random::<SECRET_BYTES>()?);
        let id = hex(&random::<8>()?);
        self.sessions.push(Session {
            id: id.clone(),
            digest: digest_of(&secret),
            user: user.to_owned(),
            created_s: now_s,
            seen_s: now_s,
            address: address.to_owned(),
            agent: agent.chars().filter(|letter| !letter.is_control()).take(AGENT_CHARS_MAX).collect(),
        });
        Ok(Begun { secret, id })
    }

    pub(crate) fn end_session(&mut self, id: &str) -> Result<(), Rule> {
        let before = self.sessions.len();
        self.sessions.retain(|session| session.id != id);
        match self.sessions.len() < before {
            true => Ok(()),
            false => Err(Rule::Unknown { what: "session", name: id.chars().take(NAME_CHARS_MAX).collect() }),
        }
    }

    /// Makes a code for the first sign-in, in place of one before.
    pub(crate) fn make_code(&mut self, now_s: u64) -> Result<String, WebError> {
        if !self.users.is_empty() {
            return Err(Rule::NotFirst.into());
        }
        let letters = random::<16>()?
            .map(|byte| CODE_LETTERS.get(usize::from(byte % 32)).map_or('A', |letter| char::from(*letter)));
        let code: String = letters.iter().collect();
        let expires_s = now_s.saturating_add(CODE_S);
        self.code = Some(Code { digest: digest_of(&code), created_s: now_s, expires_s });
        Ok(code)
    }

    /// Makes the first administrator, with the code, which is used up.
    pub(crate) fn add_first(
        &mut self,
        code: &str,
        name: &str,
        password: PasswordHash,
        now_s: u64,
    ) -> Result<(), Rule> {
        self.check_code(code, now_s)?;
        self.add_user(name, password, CallerRole::Admin, now_s)?;
        self.code = None;
        Ok(())
    }

    /// Checks a code for the first sign-in. Spaces, hyphens and the size of letters do not count.
    pub(crate) fn check_code(&self, code: &str, now_s: u64) -> Result<(), Rule> {
        if !self.users.is_empty() {
            return Err(Rule::NotFirst);
        }
        let typed: String = code.chars().filter(|letter| !" -".contains(*letter)).collect();
        let digest = digest_of(&typed.to_ascii_uppercase());
        let is_right = self.code.as_ref().is_some_and(|code| {
            let is_now = is_dated_here(code.created_s, now_s) && now_s < code.expires_s;
            is_equal(code.digest.as_bytes(), digest.as_bytes()) && is_now
        });
        if is_right { Ok(()) } else { Err(Rule::WrongCode) }
    }
}

/// Refuses a name that a header or a path cannot carry.
pub(crate) fn check_name(name: &str) -> Result<(), Rule> {
    let is_first = name.chars().next().is_some_and(|letter| letter.is_ascii_alphanumeric());
    let may = |letter: char| letter.is_ascii_alphanumeric() || "-_.@".contains(letter);
    if is_first && name.len() <= NAME_CHARS_MAX && name.chars().all(may) {
        return Ok(());
    }
    Err(Rule::Name { found: name.chars().take(NAME_CHARS_MAX).collect() })
}

/// Refuses a password that is too short, or too long to be hashed.
pub(crate) fn check_password(password: &str) -> Result<(), Rule> {
    let found = password.chars().count();
    let is_fit = found >= PASSWORD_CHARS_MIN && password.len() <= PASSWORD_BYTES_MAX;
    if is_fit { Ok(()) } else { Err(Rule::Password { found }) }
}

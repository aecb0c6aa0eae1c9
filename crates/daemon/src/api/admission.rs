//! Callers of the API: which processes are admitted, and with which role.
//!
//! | process | headers | role |
//! |---|---|---|
//! | of root, or of the daemon's user | none | admin |
//! | the same | `Dolmen-Role` and `Dolmen-User` | the one that the header names |
//! | of `dolmen-web` | both | the one that the header names, or a lower one that the daemon's settings bound it to |
//! | of `dolmen-web` | none | refused |
//! | of another user | any | refused |
//!
//! Malformed headers are refused for all.

use axum::extract::connect_info::Connected;
use axum::http::HeaderMap;
use axum::serve::IncomingStream;
use dolmen_api::{CallerRole, Declaration, ErrorBody, ErrorCode, ROLE_HEADER, USER_HEADER};

use crate::api::api_socket::ApiSocket;
use crate::api::web_user::WebUser;

/// Letters of a user's name, at most.
const USER_CHARS_MAX: usize = 80;

/// Process at the other end of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    /// Its user, where the kernel names one.
    pub uid: Option<u32>,
}

impl Connected<IncomingStream<'_, ApiSocket>> for Peer {
    fn connect_info(stream: IncomingStream<'_, ApiSocket>) -> Self {
        Self { uid: stream.io().peer_cred().ok().map(|credentials| credentials.uid()) }
    }
}

/// A caller that is admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// Its role.
    pub role: CallerRole,
    /// The user of the console that it asks for.
    pub user: Option<String>,
}

impl Peer {
    /// Admits a request of this process.
    pub(crate) fn admit(self, web: &WebUser, headers: &HeaderMap) -> Result<Admitted, ErrorBody> {
        let own = rustix::process::geteuid().as_raw();
        let is_owner = self.uid.is_some_and(|uid| uid == 0 || uid == own);
        let is_web = !is_owner && self.uid.is_some_and(|uid| web.is(uid));
        if !is_owner && !is_web {
            let message = "only root, and the user whose daemon this is, may use it";
            return Err(ErrorBody::new(ErrorCode::Permission, message));
        }
        let role = single(headers, ROLE_HEADER)?;
        let user = single(headers, USER_HEADER)?;
        let (role, user) = match (role, user) {
            (Some(role), Some(user)) => (role, user),
            (None, None) if is_owner => return Ok(Admitted { role: CallerRole::Admin, user: None }),
            (None, None) => {
                let message = format!("a request of user {} names no role; nothing was changed", web.name());
                let hint =
                    "dolmen-web sends the headers Dolmen-Role and Dolmen-User; other programs run as root";
                return Err(ErrorBody::new(ErrorCode::Permission, message).hint(hint));
            }
            (Some(_), None) => return Err(malformed("it has the header Dolmen-Role and no Dolmen-User")),
            (None, Some(_)) => return Err(malformed("it has the header Dolmen-User and no Dolmen-Role")),
        };
        let role = CallerRole::of_word(role)
            .ok_or_else(|| malformed("its header Dolmen-Role is none of viewer, operator and admin"))?;
        let may = |letter: char| letter.is_ascii_alphanumeric() || "-_.@/".contains(letter);
        if user.is_empty() || user.len() > USER_CHARS_MAX || !user.chars().all(may) {
            return Err(malformed("its header Dolmen-User is no name of letters, digits and -_.@/"));
        }
        let role = if is_web { role.min(web.role_max()) } else { role };
        Ok(Admitted { role, user: Some(user.to_owned()) })
    }
}

impl Admitted {
    /// Refuses a verb above the role of the caller.
    pub(crate) fn check(&self, verb: &Declaration) -> Result<(), ErrorBody> {
        if self.role >= verb.role {
            return Ok(());
        }
        let (name, needed, had) = (verb.name, verb.role.word(), self.role.word());
        let message = format!(
            "{name} needs the role {needed}, and the request has the role {had}; nothing was changed"
        );
        Err(ErrorBody::new(ErrorCode::Permission, message).hint("ask a user with that role"))
    }
}

/// Returns the value of a header that a request may have once.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ErrorBody> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => {
            value.to_str().map(Some).map_err(|_| malformed(&format!("its header {name} is no text")))
        }
        (Some(_), Some(_)) => Err(malformed(&format!("it has the header {name} twice"))),
    }
}

fn malformed(why: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::BadRequest, format!("the request cannot be read: {why}; nothing was changed"))
}

#[cfg(test)]
mod tests {
    use dolmen_api::VerbId;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    /// Scenario: the daemon's own user sends each form of the headers. Both bound the role; none is an administrator's; all else is
    /// refused.
    #[test]
    fn headers_bound_the_role_and_malformed_ones_are_refused() {
        let web = WebUser::new("dolmen-web".to_owned(), CallerRole::Admin);
        let own = Peer { uid: Some(rustix::process::geteuid().as_raw()) };
        let admit = |pairs: &[(&'static str, &'static str)]| own.admit(&web, &headers(pairs));
        assert_eq!(admit(&[]).unwrap(), Admitted { role: CallerRole::Admin, user: None });
        for role in CallerRole::ALL {
            let admitted = admit(&[(ROLE_HEADER, role.word()), (USER_HEADER, "anna")]).unwrap();
            assert_eq!(admitted, Admitted { role, user: Some("anna".to_owned()) });
        }
        for pairs in [
            &[(ROLE_HEADER, "viewer")][..],
            &[(USER_HEADER, "anna")],
            &[(ROLE_HEADER, "root"), (USER_HEADER, "anna")],
            &[(ROLE_HEADER, "Admin"), (USER_HEADER, "anna")],
            &[(ROLE_HEADER, ""), (USER_HEADER, "anna")],
            &[(ROLE_HEADER, "viewer"), (ROLE_HEADER, "admin"), (USER_HEADER, "anna")],
            &[(ROLE_HEADER, "viewer"), (USER_HEADER, "")],
            &[(ROLE_HEADER, "viewer"), (USER_HEADER, "a b")],
        ] {
            assert_eq!(admit(pairs).unwrap_err().code, ErrorCode::BadRequest, "{pairs:?}");
        }
    }

    #[test]
    fn a_role_reaches_its_verbs_and_no_higher_ones() {
        for verb in VerbId::ALL.iter().map(|verb| verb.declaration()) {
            for role in CallerRole::ALL {
                let checked = Admitted { role, user: None }.check(verb);
                assert_eq!(checked.is_ok(), role >= verb.role, "{} as {role:?}", verb.name);
            }
        }
    }
}

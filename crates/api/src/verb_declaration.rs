//! What a declaration of a verb holds, and the macro that makes one.
//!
//! A verb is declared once, in the table of `verbs`. Routes, client, inputs of the fuzzer, `docs/api` and the OpenAPI description are made of
//! that declaration alone.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use utoipa::ToSchema;

use crate::error::ErrorCode;
use crate::{API_VERSION, Change};

/// Kind of a verb, which decides the method of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerbKind {
    /// Changes nothing: `GET`, with the request in the query.
    Question,
    /// Changes something unless it is a dry run: `POST`, with the request in the body.
    Change,
}

impl VerbKind {
    /// Returns the method of HTTP.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Question => "GET",
            Self::Change => "POST",
        }
    }
}

/// Role that a caller needs. Ordered: a higher one includes the lower ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallerRole {
    /// Sees everything.
    Viewer,
    /// Keeps the machine running: jobs, attachments, exports, spaces, their limits and the trash.
    Operator,
    /// Everything else: pools, disks, whatever destroys data for good, and the daemon itself.
    Admin,
}

impl CallerRole {
    /// All of them, lowest first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// Returns the role of a word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.word() == word)
    }

    /// Returns its word in documents.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

/// Effect of the same request a second time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// It succeeds and changes nothing: a client that has lost the answer may ask again.
    Same,
    /// It is refused, or does something again.
    Other,
}

/// Whether the answer of a verb holds a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobStart {
    /// No.
    Never,
    /// Where it starts one, or ends one.
    Maybe,
}

/// Declaration of a verb.
#[derive(Debug, Clone, Copy)]
pub struct Declaration {
    /// Its name.
    pub name: &'static str,
    /// One line about what it does.
    pub help: &'static str,
    /// Kind.
    pub kind: VerbKind,
    /// Path after the version of the API, with `{parameters}`.
    pub path: &'static str,
    /// Parameters of the path, in order.
    pub parameters: &'static [&'static str],
    /// Type of the request.
    pub request: &'static str,
    /// Type of the answer.
    pub answer: &'static str,
    /// Role that a caller needs.
    pub role: CallerRole,
    /// Effect of the same request a second time.
    pub repeat: Repeat,
    /// Whether its answer holds a job.
    pub job: JobStart,
    /// Errors of its own; [`Declaration::errors`] adds those of its kind and parameters.
    pub own_errors: &'static [ErrorCode],
}

/// Errors that every verb may be refused with.
pub(crate) const ALWAYS: [ErrorCode; 6] = [
    ErrorCode::BadRequest,
    ErrorCode::Permission,
    ErrorCode::Busy,
    ErrorCode::Io,
    ErrorCode::Stopping,
    ErrorCode::Internal,
];
/// Errors of every change of something in a pool.
pub(crate) const CHANGE_IN_POOL: [ErrorCode; 3] =
    [ErrorCode::ReadOnly, ErrorCode::PoolStopped, ErrorCode::NoSpace];

/// Returns the error of a parameter that names nothing.
const fn missing(parameter: &str) -> Option<ErrorCode> {
    match parameter.as_bytes() {
        b"pool" => Some(ErrorCode::NoSuchPool),
        b"disk" => Some(ErrorCode::NoSuchDisk),
        b"space" => Some(ErrorCode::NoSuchSpace),
        b"share" => Some(ErrorCode::NoSuchObject),
        b"job" => Some(ErrorCode::NoSuchJob),
        b"object" => Some(ErrorCode::NoSuchObject),
        _ => None,
    }
}

impl Declaration {
    /// Returns the path with the version of the API, as routers and OpenAPI write it.
    #[must_use]
    pub fn route(&self) -> String {
        format!("/v{API_VERSION}{}", self.path)
    }

    /// Returns the path with values in place of its parameters, percent-encoded.
    #[must_use]
    pub fn path_of(&self, values: &[&str]) -> String {
        let mut path = self.route();
        for (parameter, value) in self.parameters.iter().zip(values) {
            path = path.replace(&format!("{{{parameter}}}"), &segment(value));
        }
        path
    }

    /// Returns the error codes that it may be refused with, in the order of [`ErrorCode::ALL`].
    #[must_use]
    pub fn errors(&self) -> Vec<ErrorCode> {
        let may = |code: &ErrorCode| {
            self.is_general(*code)
                || self.own_errors.contains(code)
                || self.parameters.iter().any(|parameter| missing(parameter) == Some(*code))
        };
        ErrorCode::ALL.iter().copied().filter(may).collect()
    }

    /// Returns whether the verb has this error because every verb, or every change in a pool, has it.
    pub(crate) fn is_general(&self, code: ErrorCode) -> bool {
        let is_in_pool = self.kind == VerbKind::Change && self.parameters.contains(&"pool");
        ALWAYS.contains(&code) || (is_in_pool && CHANGE_IN_POOL.contains(&code))
    }

    /// Returns whether a request of HTTP is one of this verb. A fixed part of a path goes before a parameter: ask the verbs with
    /// fewer parameters first.
    #[must_use]
    pub fn fits(&self, method: &str, path: &str) -> bool {
        let route = self.route();
        let (path, _) = path.split_once('?').unwrap_or((path, ""));
        method == self.kind.method()
            && route.split('/').count() == path.split('/').count()
            && route.split('/').zip(path.split('/')).all(|(one, other)| one.starts_with('{') || one == other)
    }
}

/// A verb with its types. Every type in [`verb`](crate::verb) is one.
pub trait Verb {
    /// Its declaration.
    const DECLARATION: Declaration;
    /// Request: the body of a change, the query of a question.
    type Request: Serialize + DeserializeOwned + PartialEq + Debug + ToSchema + Send + 'static;
    /// Answer.
    type Answer: Serialize + DeserializeOwned + ToSchema + Send + 'static;
    /// Values of the path's parameters, as a client gives them.
    type Values<'a>: AsRef<[&'a str]>;
    /// The same, as the daemon gets them.
    type Owned: TryFrom<Vec<String>> + Send + 'static;
}

/// Does something with each verb of a table.
pub trait VerbVisitor {
    /// Visits a verb that changes nothing.
    fn question<V: Verb>(&mut self);
    /// Visits a verb that changes something.
    fn change<V: Verb<Answer = Change>>(&mut self);
}

/// Returns the query of a question: the fields of its request that are not null.
///
/// # Errors
/// When the request cannot be written down.
pub fn query_of(request: &impl Serialize) -> Result<String, serde_json::Error> {
    let Value::Object(fields) = serde_json::to_value(request)? else { return Ok(String::new()) };
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let fields = fields.iter().filter(|(_, value)| !value.is_null());
    let pairs: Vec<String> =
        fields.map(|(name, value)| format!("{name}={}", segment(&text(value)))).collect();
    Ok(if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) })
}

/// Returns a part of a path: what is not a letter, a digit or one of `-._` is percent-encoded.
#[must_use]
pub fn segment(text: &str) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |value: u8| DIGITS.get(usize::from(value)).map_or('0', |digit| char::from(*digit));
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_') {
            encoded.push(char::from(byte));
        } else {
            encoded.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    encoded
}

/// Returns whether the request is [`Nothing`](crate::Nothing), that of questions without a query.
pub(crate) fn is_nothing(declaration: &Declaration) -> bool {
    declaration.request == "Nothing"
}

/// Declares verbs: an enum of their ids, a module with a type for each, and a function that visits them all.
///
/// ```text
/// /// Help, in one line.
/// Name = question "/path/{parameter}" [parameter] Request => Answer, Role, [errors];
/// Name = change "/path/{parameter}" [parameter] Request, Role, Repeat, JobStart, [errors];
/// ```
macro_rules! declare_verbs {
    (
        $(#[$outer:meta])* pub enum $id:ident, mod $module:ident, fn $visit:ident;
        $(#[doc = $help:literal] $name:ident = $kind:ident $path:literal [$($parameter:ident),*] $request:ident $(=> $answer:ident)?,
            $role:ident, $($repeat:ident, $job:ident,)? [$($error:ident),*];)*
    ) => {
        $(#[$outer])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $id {
            $(
                #[doc = $help]
                $name,
            )*
        }

        impl $id {
            /// All of them, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns the declaration.
            #[must_use]
            pub const fn declaration(self) -> &'static $crate::Declaration {
                match self {
                    $(Self::$name => &<$module::$name as $crate::Verb>::DECLARATION,)*
                }
            }
        }

        /// A type for each verb.
        pub mod $module {
            $(
                #[doc = $help]
                #[derive(Debug, Clone, Copy)]
                pub struct $name;

                impl $crate::Verb for $name {
                    const DECLARATION: $crate::Declaration = $crate::Declaration {
                        name: stringify!($name),
                        help: $help.trim_ascii(),
                        kind: $crate::verb_declaration::declare_verbs!(@kind $kind),
                        path: $path,
                        parameters: &[$(stringify!($parameter)),*],
                        request: stringify!($request),
                        answer: $crate::verb_declaration::declare_verbs!(@answer_name $($answer)?),
                        role: $crate::CallerRole::$role,
                        repeat: $crate::verb_declaration::declare_verbs!(@repeat $($repeat)?),
                        job: $crate::verb_declaration::declare_verbs!(@job $($job)?),
                        own_errors: &[$($crate::ErrorCode::$error),*],
                    };
                    type Request = super::$request;
                    type Answer = $crate::verb_declaration::declare_verbs!(@answer $($answer)?);
                    type Values<'a> = [&'a str; <[&str]>::len(&[$(stringify!($parameter)),*])];
                    type Owned = [String; <[&str]>::len(&[$(stringify!($parameter)),*])];
                }
            )*
        }

        /// Visits every verb, in the order of the table.
        pub fn $visit(visitor: &mut impl $crate::VerbVisitor) {
            $(visitor.$kind::<$module::$name>();)*
        }
    };
    (@kind question) => { $crate::VerbKind::Question };
    (@kind change) => { $crate::VerbKind::Change };
    (@answer_name $answer:ident) => { stringify!($answer) };
    (@answer_name) => { "Change" };
    (@answer $answer:ident) => { super::$answer };
    (@answer) => { $crate::Change };
    (@repeat $repeat:ident) => { $crate::Repeat::$repeat };
    (@repeat) => { $crate::Repeat::Same };
    (@job $job:ident) => { $crate::JobStart::$job };
    (@job) => { $crate::JobStart::Never };
}
pub(crate) use declare_verbs;

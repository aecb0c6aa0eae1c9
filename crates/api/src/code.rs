//! Codes: stable words for what is found, what happens and what goes wrong, each with its explanation.
//!
//! Invariant: there is no code without an explanation, because both are one definition.

use serde::{Deserialize, Serialize};

/// What a code says to people, in sentences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explanation {
    /// What it means.
    pub means: &'static str,
    /// What is done about it without being asked.
    pub by_itself: &'static str,
    /// What somebody may do, or has to.
    pub to_do: &'static str,
}

/// Where a code is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CodeKind {
    /// In the health of pools and spaces.
    Finding,
    /// Among the events.
    Event,
    /// In the answer to a request that failed.
    Error,
}

/// Defines an enum of codes: the word of each in documents, and its explanation.
macro_rules! codes {
    ($(#[$outer:meta])* pub enum $name:ident {
        $($variant:ident = $word:tt { $means:tt $by_itself:tt $to_do:tt })*
    }) => {
        $(#[$outer])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
        )]
        pub enum $name {
            $(
                #[doc = $means]
                #[serde(rename = $word)]
                $variant,
            )*
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its word in documents.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            /// What it says to people.
            #[must_use]
            pub const fn explanation(self) -> $crate::Explanation {
                match self {
                    $(Self::$variant => $crate::Explanation { means: $means, by_itself: $by_itself, to_do: $to_do },)*
                }
            }
        }
    };
}
pub(crate) use codes;

/// All codes of all kinds, each with its word.
pub fn all_codes() -> impl Iterator<Item = (CodeKind, &'static str, Explanation)> {
    let findings = crate::FindingCode::ALL.iter();
    let events = crate::EventCode::ALL.iter();
    let errors = crate::ErrorCode::ALL.iter();
    let findings = findings.map(|code| (CodeKind::Finding, code.word(), code.explanation()));
    let events = events.map(|code| (CodeKind::Event, code.word(), code.explanation()));
    findings.chain(events).chain(errors.map(|code| (CodeKind::Error, code.word(), code.explanation())))
}

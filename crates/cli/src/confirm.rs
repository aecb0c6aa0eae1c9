//! Whether somebody means to destroy data.
//!
//! The name of what is lost has to be typed: at a terminal, or as `--destroy=NAME`. Nothing else counts, `--yes` least of
//! all, and without a terminal there is nobody to ask. All of it is decided before a request for a change leaves; a dry run goes
//! before it, so that nobody is asked about what is not there.

use dolmen_mutation::mutation;

use crate::terminal::out::Out;

/// What would be lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Danger<'a> {
    /// What it is, such as `pool tank`.
    pub object: &'a str,
    /// What has to be typed.
    pub name: &'a str,
    /// Another way to write the same name, such as with the pool in front.
    pub alias: Option<&'a str>,
}

/// Why nothing was destroyed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// `--destroy` names something else.
    #[error("--destroy names {found:?}, expected {expected:?}, to destroy {object}; nothing was changed")]
    OtherName {
        /// What would be lost.
        object: String,
        /// What has to be typed.
        expected: String,
        /// What was given.
        found: String,
    },
    /// Something else was typed.
    #[error("{found:?} was typed, expected {expected:?}, to destroy {object}; nothing was changed")]
    Mistyped {
        /// What would be lost.
        object: String,
        /// What has to be typed.
        expected: String,
        /// What was typed.
        found: String,
    },
    /// Nobody was there to ask.
    #[error(
        "this destroys the data of {object}, and there is no terminal to confirm it at; nothing was changed"
    )]
    NobodyToAsk {
        /// What would be lost.
        object: String,
        /// What has to be given.
        expected: String,
    },
    /// `--destroy` names a device that the command does not touch.
    #[error("--destroy names {found:?}, which is none of the disks given; nothing was changed")]
    NoneOfThese {
        /// What was given.
        found: String,
    },
}

impl Refusal {
    /// What to do about it.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::OtherName { expected, .. }
            | Self::Mistyped { expected, .. }
            | Self::NobodyToAsk { expected, .. } => {
                format!(
                    "if nobody needs that data any more, say --destroy={expected}, for which --yes does not stand; -n shows what would happen"
                )
            }
            Self::NoneOfThese { .. } => {
                "name the disk in --destroy as it is named among the disks".to_owned()
            }
        }
    }
}

/// What is known before anybody is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consent {
    /// The name was given.
    Given,
    /// Somebody at the terminal has to type it.
    ToBeAsked,
}

/// Judges what the command line says, and whether there is somebody to ask.
pub(crate) fn decide(out: &Out<'_>, danger: &Danger<'_>, given: Option<&str>) -> Result<Consent, Refusal> {
    match given {
        Some(found) if danger.is_named(found) => Ok(Consent::Given),
        Some(found) => Err(Refusal::OtherName {
            object: danger.object.to_owned(),
            expected: danger.name.to_owned(),
            found: found.to_owned(),
        }),
        None if out.can_ask() => Ok(Consent::ToBeAsked),
        None => {
            Err(Refusal::NobodyToAsk { object: danger.object.to_owned(), expected: danger.name.to_owned() })
        }
    }
}

/// Asks at the terminal.
pub(crate) fn ask(out: &mut Out<'_>, danger: &Danger<'_>) -> Result<(), Refusal> {
    let question = format!("This destroys the data of {}. Type {} to go on: ", danger.object, danger.name);
    let found = out.ask(&question).unwrap_or_default();
    if danger.is_named(&found) {
        return Ok(());
    }
    Err(Refusal::Mistyped { object: danger.object.to_owned(), expected: danger.name.to_owned(), found })
}

impl Danger<'_> {
    fn is_named(&self, found: &str) -> bool {
        found == self.name || self.alias == Some(found) || mutation!(AnyNameDestroys)
    }
}

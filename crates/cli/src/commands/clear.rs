//! `dolmen space clear`: the device of an attached space whose daemon does not come back is taken away, without a daemon.

use dolmen_api::{ExitCode, SCHEMA};
use dolmen_ublk::{Abandoned, ClearError, Unusable};
use serde::Serialize;

use crate::arguments::common::{Format, Intent};
use crate::arguments::space::ClearArguments;
use crate::confirm::{Consent, Danger, ask, decide};
use crate::error::{CliError, Failure};
use crate::terminal::out::Out;

/// The result for programs.
#[derive(Debug, Serialize)]
struct ClearDocument {
    schema: u32,
    device: String,
    used_by: Vec<String>,
    is_cleared: bool,
}

/// Carries the command out.
pub(crate) fn run(
    arguments: &ClearArguments,
    format: Format,
    out: &mut Out<'_>,
) -> Result<ExitCode, CliError> {
    let found = Abandoned::find(&arguments.device)?;
    let device = found.device().display().to_string();
    let used_by: Vec<String> = found.holders().iter().map(ToString::to_string).collect();
    let is_cleared = arguments.dry.intent() == Intent::Act;
    if is_cleared {
        let given = arguments.device.display().to_string();
        let object = format!("requests that wait at {device}");
        let danger = Danger { object: &object, name: &device, alias: Some(&given) };
        if decide(out, &danger, arguments.consent.destroy.as_deref())? == Consent::ToBeAsked {
            if !used_by.is_empty() {
                out.print(format_args!("{device} is {}", used_by.join(", ")));
            }
            ask(out, &danger)?;
        }
        found.clear()?;
    }
    match format {
        Format::Json => {
            let document = ClearDocument { schema: SCHEMA, device, used_by, is_cleared };
            let text = serde_json::to_string(&document);
            let asked = || "the device".to_owned();
            out.line(text.map_err(|source| CliError::Request { asked: asked(), source })?);
        }
        Format::Text => {
            let (word, users) = if is_cleared {
                ("is cleared away; requests that waited have failed", "who used it has lost its disk")
            } else {
                ("would be cleared away; requests that wait would fail", "who uses it would lose its disk")
            };
            let by =
                if used_by.is_empty() { String::new() } else { format!("; {users}: {}", used_by.join(", ")) };
            out.line(format_args!("{device} {word}{by}"));
        }
    }
    Ok(ExitCode::Ok)
}

impl Failure for ClearError {
    fn exit(&self) -> ExitCode {
        match self {
            ClearError::NoDevice { .. } | ClearError::NotOurs { .. } => ExitCode::Usage,
            ClearError::Served { .. } => ExitCode::Busy,
            ClearError::Unusable(Unusable::NotPermitted { .. }) => ExitCode::Permission,
            ClearError::Unusable(_) => ExitCode::Missing,
            ClearError::Device(_) => ExitCode::Io,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
        ClearError::Served { .. } => {
            Some("`dolmen space detach` takes away what a daemon serves; `dolmen space list` names it".to_owned())
        }
        ClearError::NoDevice { .. } | ClearError::NotOurs { .. } => Some(
            "name the device itself, /dev/ublkbN, or its link in /dev/dolmen; those of loop devices are taken away by the next daemon that starts"
                .to_owned(),
        ),
        ClearError::Unusable(Unusable::NotPermitted { .. }) => Some("run it as root".to_owned()),
        ClearError::Unusable(_) | ClearError::Device(_) => None,
    }
    }
}

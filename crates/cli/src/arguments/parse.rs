//! Reads the command line, and refuses what its definition alone cannot refuse.

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use dolmen_api::{ErrorBody, ErrorCode, ErrorDocument};

use super::space::{ResiliencyWord, SpaceCommand};
use super::volume::VolumeCommand;
use super::{Arguments, Command};

/// Reads the command line, with what its definition alone cannot say.
pub(crate) fn parse<T: Into<std::ffi::OsString> + Clone>(
    line: impl IntoIterator<Item = T>,
) -> Result<Arguments, clap::Error> {
    let arguments = Arguments::try_parse_from(line)?;
    if arguments.status.watch.is_some() && arguments.command.is_some() {
        let what = "-w in front of a command would go with none; say `dolmen -w`, or `dolmen status -w`";
        return Err(Arguments::command().error(ErrorKind::ArgumentConflict, what));
    }
    let new = match &arguments.command {
        Some(Command::Space(SpaceCommand::Create(create))) => Some(&create.new),
        Some(Command::Volume(VolumeCommand::Create(create))) => Some(&create.new),
        _ => None,
    };
    if let Some(new) = new
        && let Some(what) = misfit(new.resiliency, new.copies, new.parity)
    {
        return Err(Arguments::command().error(ErrorKind::ArgumentConflict, what));
    }
    if let Some(Command::Space(SpaceCommand::Delete(delete))) = &arguments.command
        && delete.consent.destroy.is_some()
        && !delete.purge
    {
        let what =
            "--destroy goes with --purge; without it the space goes into the trash, and nothing is destroyed";
        return Err(Arguments::command().error(ErrorKind::ArgumentConflict, what));
    }
    Ok(arguments)
}

/// The document of an error for programs, where the line that could not be read asks for one; its words go to people as ever.
pub(crate) fn unread(
    error: &clap::Error,
    hint: Option<&str>,
    mut line: impl Iterator<Item = std::ffi::OsString>,
) -> Option<String> {
    let mut is_json = false;
    while let Some(word) = line.next() {
        let word = word.to_string_lossy().into_owned();
        is_json |= match word.as_str() {
            "-o" | "--output" => line.next().is_some_and(|format| format == "json"),
            _ => matches!(word.as_str(), "-ojson" | "-o=json" | "--output=json"),
        };
    }
    if !is_json || !error.use_stderr() {
        return None;
    }
    let text = error.render().to_string();
    let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
    let mut body = ErrorBody::new(ErrorCode::BadRequest, message);
    body.hint = hint.map(str::to_owned);
    let document = ErrorDocument::from(body);
    serde_json::to_string(&document).ok()
}

/// An option of a new space that does not go with its resiliency.
fn misfit(resiliency: ResiliencyWord, copies: Option<u8>, parity: Option<u8>) -> Option<&'static str> {
    if copies.is_some() && resiliency != ResiliencyWord::Mirror {
        return Some("--copies goes with --resiliency mirror only; all other spaces have one copy");
    }
    let is_misfit = parity.is_some() && resiliency != ResiliencyWord::Parity;
    is_misfit.then_some("--parity goes with --resiliency parity only")
}

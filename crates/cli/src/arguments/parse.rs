//! Reads the command line, and refuses what its definition alone cannot refuse.

use clap::error::{ContextKind, ContextValue, ErrorKind};
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
        Some(Command::Space(SpaceCommand::Create(create))) => Some((&create.new, ["space", "create"])),
        Some(Command::Volume(VolumeCommand::Create(create))) => Some((&create.new, ["volume", "create"])),
        _ => None,
    };
    if let Some((new, path)) = new
        && let Some(what) = misfit(new.resiliency, new.copies, new.parity)
    {
        return Err(command_at(&path.map(Into::into)).error(ErrorKind::ArgumentConflict, what));
    }
    if let Some(Command::Space(SpaceCommand::Delete(delete))) = &arguments.command
        && delete.consent.destroy.is_some()
        && !delete.purge
    {
        let what =
            "--destroy goes with --purge; without it the space goes into the trash, and nothing is destroyed";
        let path = ["space", "delete"].map(Into::into);
        return Err(command_at(&path).error(ErrorKind::ArgumentConflict, what));
    }
    Ok(arguments)
}

/// Returns the command that the words of a line name, whatever stands between its names.
fn command_at(line: &[std::ffi::OsString]) -> clap::Command {
    let mut root = Arguments::command();
    root.build();
    let mut command = &root;
    for word in line {
        command = word.to_str().and_then(|word| command.find_subcommand(word)).unwrap_or(command);
    }
    command.clone()
}

/// Returns an error of a line with the usage of the command that the line names, where the parser shows none.
pub(crate) fn with_usage(
    mut error: clap::Error,
    line: impl Iterator<Item = std::ffi::OsString>,
) -> clap::Error {
    if error.use_stderr() && error.get(ContextKind::Usage).is_none() {
        let usage = command_at(&line.collect::<Vec<_>>()).render_usage();
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    }
    error
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: arguments that are missing, wrong, too many, or do not go together. Each error has one line of usage, that of the
    /// command, with the names of its values.
    #[test]
    fn an_error_of_a_line_shows_the_usage_of_its_command() {
        let create = "Usage: dolmen volume create [OPTIONS] --for <PURPOSE> --size <SIZE> <POOL/SPACE>";
        for (line, usage) in [
            ("volume create", "Usage: dolmen volume create --for <PURPOSE> --size <SIZE> <POOL/SPACE>"),
            ("volume create tank --for files --size 1G", create),
            ("volume create tank/x --for files --size lots", create),
            ("volume create tank/x --for files --size 1G -r parity --copies 2", create),
            ("volume mount tank/x /mnt", "Usage: dolmen volume mount [OPTIONS] <POOL/SPACE>"),
            ("volume quota set tank/x", "Usage: dolmen volume quota set <POOL/SPACE> <FOLDER> <SIZE|none>"),
            ("volume frobnicate", "Usage: dolmen volume [OPTIONS] <COMMAND>"),
            ("frobnicate", "Usage: dolmen [OPTIONS] [COMMAND]"),
        ] {
            let words = || line.split(' ').map(std::ffi::OsString::from);
            let error = parse(std::iter::once("dolmen".into()).chain(words())).unwrap_err();
            let text = with_usage(error, words()).render().to_string();
            let found: Vec<&str> = text.lines().filter(|line| line.starts_with("Usage:")).collect();
            assert_eq!(found, [usage], "{line}: {text}");
        }
    }
}

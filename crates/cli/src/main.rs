//! The command `dolmen`: asks the daemon, shows its answers.
//!
//! `args` is the one definition that parser, help, manual and completion come from; `command` turns each command into
//! requests; `client` speaks the API over `http`; `change` has what all changes share: plans, consent (`confirm`) and
//! jobs to wait for (`jobs`). `offline` checks disks and `plan` plans for them without a daemon,
//! `bench` measures what is there, `service` executes the daemon's program. The rest shows
//! documents as text, and `complete` prints names for shells. `habits` gives a hint for words of other systems.
//!
//! Invariants:
//! - Everything is shown through `out`.
//! - A dry run is marked as one in the request itself, in one place.
//! - Nothing is destroyed whose name was not typed.
//! - The process ends with one of the exit codes of `dolmen_api::ExitCode`.

mod args;
mod args_bench;
mod args_disk;
mod args_load;
mod args_plan;
mod args_serve;
mod args_space;
mod bench;
mod change;
mod clear;
mod client;
mod command;
mod complete;
mod confirm;
mod disk_set;
mod error;
mod events;
mod explain;
mod habits;
mod http;
mod jobs;
mod load;
mod manual;
mod offline;
mod out;
mod paint;
mod plan;
mod plan_view;
mod pools;
mod reports;
mod room;
mod service;
mod spaces;
mod status;
mod table;
#[cfg(test)]
mod tests;
mod top;
mod trash;
mod values;
mod watch;
mod why;
mod words;
mod wrap;

use std::io::Write;

use args::{Arguments, Command, Format};
use args_space::{ResiliencyWord, SpaceCommand, SpaceCreate};
use change::Session;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use client::Client;
use dolmen_api::{ErrorBody, ErrorCode, ErrorDocument, ExitCode};
use error::CliError;
use http::Peer;
use jobs::PollInterval;
use out::Out;

fn main() -> std::process::ExitCode {
    let arguments = match parse(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => {
            let hint = habits::hint(&error, std::env::args_os().skip(1));
            if let Some(document) = unread(&error, hint.as_deref(), std::env::args_os().skip(1)) {
                Out::with_process_streams(|out| out.line(document));
            }
            let ended = print_unread(&error);
            if let Some(hint) = hint {
                Out::with_process_streams(|out| out.print(format_args!("hint: {hint}")));
            }
            return ended;
        }
    };
    Out::with_process_streams(|out| {
        let code = run(arguments, out, PollInterval::USUAL);
        written(code, out)
    })
    .into()
}

/// Prints help, version or what is wrong with the line, and says how the process ends.
fn print_unread(error: &clap::Error) -> std::process::ExitCode {
    let printed = error.print().and_then(|()| std::io::stdout().flush());
    let unwritten = printed.err().filter(|error| error.kind() != std::io::ErrorKind::BrokenPipe);
    match unwritten.filter(|_| !error.use_stderr()) {
        Some(unwritten) => Out::with_process_streams(|out| {
            out.unwritten = Some(unwritten);
            written(ExitCode::Ok, out)
        })
        .into(),
        None => u8::try_from(error.exit_code()).unwrap_or(u8::MAX).into(),
    }
}

/// How a process ends whose results may not have been written: without them nothing was a success.
fn written(code: ExitCode, out: &mut Out<'_>) -> ExitCode {
    match (out.unwritten.take(), code) {
        (Some(error), ExitCode::Ok | ExitCode::Unhealthy) => {
            out.print(format_args!(
                "dolmen: the results could not be written: {error}; what was asked for is done"
            ));
            ExitCode::Io
        }
        (_, code) => code,
    }
}

/// Reads the command line, with what its definition alone cannot say.
fn parse<T: Into<std::ffi::OsString> + Clone>(
    line: impl IntoIterator<Item = T>,
) -> Result<Arguments, clap::Error> {
    let arguments = Arguments::try_parse_from(line)?;
    if arguments.status.watch.is_some() && arguments.command.is_some() {
        let what = "-w in front of a command would go with none; say `dolmen -w`, or `dolmen status -w`";
        return Err(Arguments::command().error(ErrorKind::ArgumentConflict, what));
    }
    if let Some(Command::Space(SpaceCommand::Create(create))) = &arguments.command
        && let Some(what) = misfit(create)
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
fn unread(
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
fn misfit(create: &SpaceCreate) -> Option<&'static str> {
    if create.copies.is_some() && create.resiliency != ResiliencyWord::Mirror {
        return Some("--copies goes with --resiliency mirror only; all other spaces have one copy");
    }
    let is_misfit = create.parity.is_some() && create.resiliency != ResiliencyWord::Parity;
    is_misfit.then_some("--parity goes with --resiliency parity only")
}

/// Carries out a command and says how the process ends.
fn run(arguments: Arguments, out: &mut Out<'_>, poll_interval: PollInterval) -> ExitCode {
    let format = arguments.common.output;
    match carry_out(arguments, out, poll_interval) {
        Ok(code) => code,
        Err(error) => {
            print_error(&error, format, out);
            error.exit()
        }
    }
}

fn carry_out(
    arguments: Arguments,
    out: &mut Out<'_>,
    poll_interval: PollInterval,
) -> Result<ExitCode, CliError> {
    let common = arguments.common;
    match arguments.command.unwrap_or(Command::Status(arguments.status)) {
        Command::Completion(arguments) => {
            match arguments.line.as_slice() {
                [] => out.show(&manual::completion(arguments.shell)),
                line => complete::names(line).into_iter().for_each(|name| out.line(name)),
            }
            Ok(ExitCode::Ok)
        }
        Command::Check(arguments) => offline::run(&arguments, common.output, out),
        Command::Space(SpaceCommand::Clear(arguments)) => clear::run(&arguments, common.output, out),
        Command::Explain(arguments) => explain::run(&arguments, common.output, out),
        Command::Plan(arguments) => plan::run(&arguments, common.output, out),
        Command::Bench(arguments) => {
            let socket = service::socket_or_usual(common.socket, service::socket_asked());
            let client = Client::new(Peer { socket, limit: common.timeout });
            bench::run(&arguments, &client, common.output, out)
        }
        Command::Daemon(arguments) => service::run(&arguments, common.socket.as_deref()),
        Command::Man(arguments) => {
            manual::write_pages(&arguments.folder)?;
            Ok(ExitCode::Ok)
        }
        command => {
            let client = Client::new(Peer {
                socket: service::socket_or_usual(common.socket, service::socket_asked()),
                limit: common.timeout,
            });
            command::run(&mut Session { client, out, format: common.output, poll_interval }, command)
        }
    }
}

/// Errors go to the messages, for people; programs get a document where they look for one.
fn print_error(error: &CliError, format: Format, out: &mut Out<'_>) {
    if format == Format::Json {
        let document = ErrorDocument::from(error_body(error));
        // A document of texts can always be written down; were it otherwise, the message below says all of it.
        if let Ok(text) = serde_json::to_string(&document) {
            out.line(text);
        }
    }
    out.print(format_args!("dolmen: {}", error.in_one_line()));
    if let Some(hint) = error.hint() {
        out.print(format_args!("hint: {hint}"));
    }
}

/// An error of this side in the form of the daemon's.
fn error_body(error: &CliError) -> ErrorBody {
    if let CliError::Daemon { body } = error {
        return body.as_ref().clone();
    }
    let code = match error.exit() {
        ExitCode::Usage => ErrorCode::BadRequest,
        ExitCode::Missing => ErrorCode::Missing,
        ExitCode::Refused => ErrorCode::NeedsConfirmation,
        ExitCode::Io => ErrorCode::Io,
        ExitCode::Busy => ErrorCode::Busy,
        ExitCode::Permission => ErrorCode::Permission,
        ExitCode::Config => ErrorCode::Config,
        ExitCode::Ok | ExitCode::Unhealthy | ExitCode::Internal => ErrorCode::Internal,
    };
    let mut body = ErrorBody::new(code, error.to_string());
    body.causes = error.causes();
    body.hint = error.hint();
    body
}

//! The command `dolmen`: asks the daemon, shows its answers.
//!
//! Folders, lowest first; each uses those above it in this list:
//! - `terminal`: streams, colour, tables.
//! - `arguments`: the one definition that parser, help, manual and completion come from; `arguments::habits` gives a hint for words
//!   of other systems.
//! - `http`, `confirm`, `error`: the daemon's socket, consent to the loss of data, how a command fails.
//! - `views`: documents of the API as text.
//! - `session`: requests to the daemon, changes and jobs to wait for.
//! - `commands`: what each command asks; `check`, `plan`, `bench`, `copy`, `clear` and `service` do without the daemon, `daemon` executes its program.
//!
//! Invariants:
//! - Everything is shown through `terminal::out`.
//! - A dry run is marked as one in the request itself, in one place.
//! - Nothing is destroyed whose name was not typed.
//! - The process ends with one of the exit codes of `dolmen_api::ExitCode`.

mod arguments;
mod commands;
mod confirm;
mod error;
mod http;
mod session;
mod terminal;
#[cfg(test)]
mod tests;

mod views;

use std::io::Write;

use arguments::common::Format;
use arguments::parse::{parse, unread, with_usage};
use arguments::service::ServiceCommand;
use arguments::space::SpaceCommand;
use arguments::{Arguments, Command, habits};
use commands::{bench, check, clear, complete, copy, daemon, explain, manual, plan, service};
use dolmen_api::{ErrorBody, ErrorCode, ErrorDocument, ExitCode};
use error::CliError;
use http::Peer;
use session::change::Session;
use session::client::Client;
use session::poll_interval::PollInterval;
use terminal::out::Out;

fn main() -> std::process::ExitCode {
    let arguments = match parse(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => {
            let error = with_usage(error, std::env::args_os().skip(1));
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
        Command::Check(arguments) => check::run(&arguments, common.output, out),
        Command::Space(SpaceCommand::Clear(arguments)) => clear::run(&arguments, common.output, out),
        Command::Explain(arguments) => explain::run(&arguments, common.output, out),
        Command::Plan(arguments) => plan::run(&arguments, common.output, out),
        Command::Bench(arguments) => {
            let socket = daemon::socket_or_usual(common.socket, daemon::socket_asked());
            let client = Client::new(Peer { socket, limit: common.timeout });
            bench::run(&arguments, &client, common.output, out)
        }
        Command::Copy(arguments) => copy::run(&arguments, common.output, out),
        Command::Daemon(arguments) => daemon::run(&arguments, common.socket.as_deref()),
        Command::Service(command) if !matches!(command, ServiceCommand::Mount(_)) => {
            service::run(&command, common.socket.as_deref(), common.output, out)
        }
        Command::Man(arguments) => {
            let pages = manual::write_pages(&arguments.folder)?;
            out.line(format_args!("{pages} manual pages are in {}", arguments.folder.display()));
            Ok(ExitCode::Ok)
        }
        command => {
            let client = Client::new(Peer {
                socket: daemon::socket_or_usual(common.socket, daemon::socket_asked()),
                limit: common.timeout,
            });
            commands::run(&mut Session { client, out, format: common.output, poll_interval }, command)
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

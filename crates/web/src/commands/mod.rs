//! Commands on the host. They change the file of accounts, which a running server reads again.

mod alerts;
mod certificate;
mod owner;
mod password;
mod sessions;
mod tokens;
mod users;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::accounts::{Accounts, AccountsFile};
use crate::arguments::{Arguments, Command, Serve};
use crate::audit::{Audit, Entry};
use crate::clock;
use crate::error::WebError;
use crate::server::{CertificateFiles, Settings, run};

/// User in the audit log for whoever may run commands on the host.
const HOST_USER: &str = "host";

/// Carries out a command.
pub(crate) fn execute(arguments: Arguments) -> Result<(), WebError> {
    let state = arguments.state;
    owner::become_owner_of(&state)?;
    let host = Host { state, alerts: arguments.alerts };
    match arguments.command {
        Command::Serve(serve) => run(&host.settings(serve)),
        Command::Code => code(&host),
        Command::User(command) => users::execute(&host, command),
        Command::Token(command) => tokens::execute(&host, command),
        Command::Session(command) => sessions::execute(&host, command),
        Command::Alert(command) => alerts::execute(&host, command),
        Command::Certificate(command) => certificate::execute(&host, command),
    }
}

/// The state folder of this host.
struct Host {
    state: PathBuf,
    /// The file of the settings of alerts, where one is named.
    alerts: Option<PathBuf>,
}

impl Host {
    fn settings(&self, serve: Serve) -> Settings {
        let Serve { listen, socket, names, files } = serve;
        let certificate = files_of(files.certificate, files.key, &self.state);
        Settings {
            listen,
            state: self.state.clone(),
            socket,
            certificate,
            names,
            alerts: self.alerts.clone(),
        }
    }

    fn read(&self) -> Result<Accounts, WebError> {
        AccountsFile::in_folder(&self.state).read()
    }

    /// Changes the accounts, and records it.
    fn update<T>(
        &self,
        what: String,
        change: impl FnOnce(&mut Accounts) -> Result<T, WebError>,
    ) -> Result<T, WebError> {
        let changed = AccountsFile::in_folder(&self.state).update(change);
        let outcome = changed.as_ref().err().map_or_else(|| "done".to_owned(), ToString::to_string);
        if !matches!(changed, Err(WebError::File { .. })) {
            Audit::in_folder(&self.state).write(&Entry::new(what, outcome).by(HOST_USER, None));
        }
        changed
    }
}

fn files_of(certificate: Option<PathBuf>, key: Option<PathBuf>, state: &Path) -> CertificateFiles {
    match (certificate, key) {
        (Some(certificate), Some(key)) => CertificateFiles { certificate, key, is_own: false },
        _ => CertificateFiles::own(state),
    }
}

fn code(host: &Host) -> Result<(), WebError> {
    let code = host.update("code for the first sign-in".to_owned(), |accounts| {
        accounts.make_code(clock::now().wall_s)
    })?;
    let letters: Vec<char> = code.chars().collect();
    let groups: Vec<String> = letters.chunks(4).map(|group| group.iter().collect()).collect();
    print_line(&groups.join("-"));
    Ok(())
}

/// Prints a line; a reader that has gone needs none.
fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Prints columns.
fn print_table<const COLUMNS: usize>(head: [&str; COLUMNS], rows: &[[String; COLUMNS]]) {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        let head = head.get(column).map_or(0, |cell| cell.len());
        cells.max().unwrap_or(0).max(head)
    };
    let line = |cells: Vec<&str>| {
        let padded =
            cells.iter().enumerate().map(|(column, cell)| format!("{cell:<width$}", width = width(column)));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    print_line(&line(head.to_vec()));
    rows.iter().for_each(|row| print_line(&line(row.iter().map(String::as_str).collect())));
}

/// Returns a date as people read it, in UTC.
fn date(seconds: u64) -> String {
    let moment = i64::try_from(seconds)
        .ok()
        .and_then(|seconds| time::OffsetDateTime::from_unix_timestamp(seconds).ok());
    let Some(moment) = moment else { return format!("{seconds} s after 1970") };
    let (year, month, day) = moment.to_calendar_date();
    let (hour, minute, _) = moment.to_hms();
    format!("{year}-{:02}-{day:02} {hour:02}:{minute:02} UTC", u8::from(month))
}

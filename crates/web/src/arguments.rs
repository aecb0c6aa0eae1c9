//! The command line of `dolmen-web`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use dolmen_api::{CallerRole, SOCKET_VARIABLE, WEB_SOCKET_PATH};

/// The console of Dolmen, and its API on the network.
#[derive(Debug, Parser)]
#[command(name = "dolmen-web", version, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Arguments {
    /// Folder of accounts, certificate and audit log
    #[arg(
        long,
        global = true,
        value_name = "FOLDER",
        env = "DOLMEN_WEB_STATE",
        default_value = "/var/lib/dolmen-web"
    )]
    pub state: PathBuf,
    /// Settings of alerts; /etc/dolmen/alerts.toml where it is there and none is named
    #[arg(long, global = true, value_name = "FILE", env = "DOLMEN_WEB_ALERTS")]
    pub alerts: Option<PathBuf>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the console and the API
    Serve(Serve),
    /// Print a code for the first sign-in, which holds for 15 minutes
    Code,
    /// Users
    #[command(subcommand)]
    User(UserCommand),
    /// Tokens of programs
    #[command(subcommand)]
    Token(TokenCommand),
    /// Browsers that are signed in
    #[command(subcommand)]
    Session(SessionCommand),
    /// The certificate
    #[command(subcommand)]
    Certificate(CertificateCommand),
    /// Alerts, silences and a test of the channels
    #[command(subcommand)]
    Alert(AlertCommand),
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Address and port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7443")]
    pub listen: SocketAddr,
    /// The daemon's socket
    #[arg(long, value_name = "PATH", env = SOCKET_VARIABLE, default_value = WEB_SOCKET_PATH)]
    pub socket: PathBuf,
    /// Name or address that clients use, for the certificate that is made; may be given several times
    #[arg(long = "name", value_name = "NAME", conflicts_with = "certificate", value_parser = parse_host)]
    pub names: Vec<String>,
    #[command(flatten)]
    pub files: Files,
}

#[derive(Debug, Args)]
pub(crate) struct Files {
    /// Certificate and those of its authorities, as PEM; one is made without it
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// Its key, as PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// List users
    List,
    /// Add a user; the password is asked for, or read from standard input
    Add {
        name: String,
        #[arg(long, value_enum)]
        role: RoleWord,
    },
    /// Change the role of a user, and end the tokens that the user has made above it
    Role {
        name: String,
        #[arg(value_enum)]
        role: RoleWord,
    },
    /// Set a password, and end the sessions of the user
    Password { name: String },
    /// Remove a user, and end the sessions and the tokens that the user has made
    Remove { name: String },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// List tokens
    List,
    /// Make a token, and print it once
    Create {
        name: String,
        #[arg(long, value_enum, default_value = "viewer")]
        role: RoleWord,
        /// Days for which it holds, at most 3650, or 366 for an administrator's
        #[arg(long, default_value_t = 365)]
        days: u32,
    },
    /// Remove a token
    Remove { name: String },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List sessions
    List,
    /// End a session
    End { id: String },
}

#[derive(Debug, Subcommand)]
pub(crate) enum CertificateCommand {
    /// Show fingerprint and dates
    Show(Files),
}

#[derive(Debug, Subcommand)]
pub(crate) enum AlertCommand {
    /// List alerts, silences and channels
    List {
        /// Print the document that the console gets
        #[arg(long)]
        json: bool,
    },
    /// Send nothing about an alert, or about what patterns match, for a time; prints the numbers of the silences
    Silence {
        /// Number of the alert
        #[arg(conflicts_with_all = ["code", "object"], required_unless_present_any = ["code", "object"])]
        alert: Option<u64>,
        /// Codes of findings, such as disk_*
        #[arg(long, value_name = "PATTERN", default_value = "*")]
        code: String,
        /// Objects, such as `disk 3 of tank`, tank/home or *
        #[arg(long, value_name = "PATTERN", default_value = "*")]
        object: String,
        /// Duration, such as 90m, 2h or 7d
        #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
        duration: Duration,
        /// The reason
        #[arg(long, value_name = "TEXT", default_value = "")]
        comment: String,
    },
    /// End a silence
    Unsilence { id: u64 },
    /// Have the server send a test to a channel, or to all
    Test {
        /// Name of the channel
        #[arg(long)]
        channel: Option<String>,
    },
    /// Check the settings of alerts, and list the channels that they name
    Check,
}

/// Reads a number with a unit: `s`, `m`, `h` or `d`.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];
    let found = units.iter().find_map(|(unit, seconds)| {
        let number: u64 = text.strip_suffix(*unit)?.parse().ok()?;
        number.checked_mul(*seconds)
    });
    found.map(Duration::from_secs).ok_or_else(|| "give a number with s, m, h or d, such as 2h".to_owned())
}

/// Reads an address, or a name of letters, digits, hyphens and dots.
fn parse_host(text: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        let may = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
        !label.is_empty() && label.len() <= 63 && label.chars().all(may)
    };
    if text.parse::<std::net::IpAddr>().is_ok() || (text.len() <= 253 && text.split('.').all(is_label)) {
        return Ok(text.to_owned());
    }
    Err("give a name of the host such as nas.example.com, or an address".to_owned())
}

/// A role on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RoleWord {
    /// Sees everything
    Viewer,
    /// Keeps the machine running
    Operator,
    /// Everything else
    Admin,
}

impl RoleWord {
    pub(crate) fn role(self) -> CallerRole {
        match self {
            Self::Viewer => CallerRole::Viewer,
            Self::Operator => CallerRole::Operator,
            Self::Admin => CallerRole::Admin,
        }
    }
}

//! The command line of `dolmen-web`.

use std::net::SocketAddr;
use std::path::PathBuf;

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
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Address and port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7443")]
    pub listen: SocketAddr,
    /// The daemon's socket
    #[arg(long, value_name = "PATH", env = SOCKET_VARIABLE, default_value = WEB_SOCKET_PATH)]
    pub socket: PathBuf,
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
    /// Change the role of a user
    Role {
        name: String,
        #[arg(value_enum)]
        role: RoleWord,
    },
    /// Set a password, and end the sessions of the user
    Password { name: String },
    /// Remove a user, and end the sessions
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
        /// Days for which it holds
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

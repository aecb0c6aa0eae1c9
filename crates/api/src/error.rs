//! Errors as the API tells them.

use dolmen_causes::causes_of;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::exit::ExitCode;
use crate::schema;

/// What kind of error it is. The names are stable; programs decide by them, people read the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// No such path in this version of the API.
    NoSuchRoute,
    /// The request cannot be read, or makes no sense.
    BadRequest,
    /// A name that cannot be one.
    BadName,
    /// A size that cannot be.
    BadSize,
    /// No such pool is open.
    NoSuchPool,
    /// No such space.
    NoSuchSpace,
    /// No such disk in the pool.
    NoSuchDisk,
    /// Nothing at this path, or nothing that can be a disk.
    NoSuchDevice,
    /// No such job, or it is forgotten already.
    NoSuchJob,
    /// The name is taken.
    NameTaken,
    /// Too few disks for it.
    TooFewDisks,
    /// The pool, or what is below it, is full.
    NoSpace,
    /// It would destroy data, and the name was not typed.
    NeedsConfirmation,
    /// The device holds somebody's data.
    ForeignData,
    /// The device cannot be a disk of a pool: too small, zoned, listed twice, cut short.
    UnfitDevice,
    /// The device is mounted, or used by somebody else.
    DeviceInUse,
    /// The rule of epochs allows reading only.
    ReadOnly,
    /// The pool has stopped, because it lost what it cannot go on without.
    PoolStopped,
    /// Not now: attached, mounted, served, or a job is at it.
    Busy,
    /// Shrinking would cut off data.
    NotEmpty,
    /// Reading or writing failed.
    Io,
    /// The process may not.
    Permission,
    /// Something has to be installed or loaded into the kernel first.
    Missing,
    /// This version cannot do it.
    Unsupported,
    /// The daemon is ending.
    Stopping,
    /// A setting cannot be used.
    Config,
    /// A defect of the daemon.
    Internal,
}

impl ErrorCode {
    /// The HTTP status that goes with it.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::BadRequest | Self::BadName | Self::BadSize | Self::TooFewDisks | Self::UnfitDevice => 400,
            Self::Permission => 403,
            Self::NoSuchRoute
            | Self::NoSuchPool
            | Self::NoSuchSpace
            | Self::NoSuchDisk
            | Self::NoSuchDevice
            | Self::NoSuchJob => 404,
            Self::NameTaken | Self::DeviceInUse | Self::Busy | Self::NotEmpty | Self::ReadOnly => 409,
            Self::NeedsConfirmation | Self::ForeignData => 412,
            Self::Io | Self::Internal | Self::PoolStopped | Self::Config => 500,
            Self::Unsupported | Self::Missing => 501,
            Self::Stopping => 503,
            Self::NoSpace => 507,
        }
    }

    /// How the command line ends with it.
    #[must_use]
    pub const fn exit(self) -> ExitCode {
        match self {
            Self::NoSuchRoute
            | Self::BadRequest
            | Self::BadName
            | Self::BadSize
            | Self::NoSuchPool
            | Self::NoSuchSpace
            | Self::NoSuchDisk
            | Self::NoSuchDevice
            | Self::NoSuchJob
            | Self::NameTaken
            | Self::TooFewDisks
            | Self::UnfitDevice
            | Self::Unsupported => ExitCode::Usage,
            Self::NeedsConfirmation | Self::ForeignData | Self::NotEmpty | Self::ReadOnly => {
                ExitCode::Refused
            }
            Self::NoSpace | Self::Io | Self::PoolStopped => ExitCode::Io,
            Self::DeviceInUse | Self::Busy | Self::Stopping => ExitCode::Busy,
            Self::Permission => ExitCode::Permission,
            Self::Missing => ExitCode::Missing,
            Self::Config => ExitCode::Config,
            Self::Internal => ExitCode::Internal,
        }
    }
}

/// An error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What kind of error.
    pub code: ErrorCode,
    /// What was being done, on what, what was found, and what happens now. Lower case, no full stop.
    pub message: String,
    /// Why, from the nearest cause to the first.
    #[serde(default)]
    pub causes: Vec<String>,
    /// What to do about it.
    #[serde(default)]
    pub hint: Option<String>,
    /// The name of the pool, space, disk or path that it is about.
    #[serde(default)]
    pub object: Option<String>,
}

impl ErrorBody {
    /// An error without causes, hint or object.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), causes: Vec::new(), hint: None, object: None }
    }

    /// With an advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// With the name of what it is about.
    #[must_use]
    pub fn on(mut self, object: impl Into<String>) -> Self {
        self.object = Some(object.into());
        self
    }

    /// With the causes that the error itself names, the error's own message not among them.
    #[must_use]
    pub fn caused_by(mut self, error: &dyn std::error::Error) -> Self {
        self.causes.extend(causes_of(error).into_iter().filter(|cause| *cause != self.message));
        self
    }
}

impl std::fmt::Display for ErrorBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        self.causes.iter().try_for_each(|cause| write!(f, ": {cause}"))
    }
}

impl std::error::Error for ErrorBody {}

/// The answer to a request that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDocument {
    /// [`SCHEMA`](crate::SCHEMA).
    #[serde(default = "schema")]
    pub schema: u32,
    /// What went wrong.
    pub error: ErrorBody,
}

impl From<ErrorBody> for ErrorDocument {
    fn from(error: ErrorBody) -> Self {
        Self { schema: schema(), error }
    }
}

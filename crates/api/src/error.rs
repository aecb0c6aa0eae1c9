//! Errors as the API tells them.

use dolmen_causes::causes_of;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::code::codes;
use crate::exit::ExitCode;
use crate::schema;

codes! {
    /// What kind of error it is. The names are stable; programs decide by them, people read the message.
    pub enum ErrorCode {
        NoSuchRoute = "no_such_route" {
            "The daemon does not know what it was asked: this command and the daemon are of different versions."
            "Nothing was changed, unless the message says otherwise."
            "Use a command line of the daemon's version; restart the daemon after an upgrade."
        }
        BadRequest = "bad_request" {
            "The request cannot be read, or makes no sense for what it is about."
            "Nothing was changed, unless the message says otherwise."
            "Read the message: it names what is wrong; `--help` shows what a command takes."
        }
        BadName = "bad_name" {
            "A pool or a space cannot have this name."
            "Nothing was changed, unless the message says otherwise."
            "Take letters, digits, and `-_.` behind the first of them; 63 characters at most."
        }
        BadSize = "bad_size" {
            "A size cannot be: too large, too small, or no multiple of what it has to be."
            "Nothing was changed, unless the message says otherwise."
            "Take the size that the message names."
        }
        NoSuchPool = "no_such_pool" {
            "No pool of this name is open here."
            "Nothing was changed, unless the message says otherwise."
            "`dolmen pool list` shows all pools; `dolmen pool import` opens one whose disks are here."
        }
        NoSuchSpace = "no_such_space" {
            "There is no space of this name."
            "Nothing was changed, unless the message says otherwise."
            "`dolmen space list` shows all spaces."
        }
        NoSuchDisk = "no_such_disk" {
            "The pool has no disk with this path, id or number."
            "Nothing was changed, unless the message says otherwise."
            "`dolmen disk list` shows all of them."
        }
        NoSuchDevice = "no_such_device" {
            "There is nothing at this path, or nothing that can be a disk."
            "Nothing was changed, unless the message says otherwise."
            "Look whether the path is right, and whether the disk is plugged in."
        }
        NoSuchJob = "no_such_job" {
            "There is no job of this number, or it is forgotten already."
            "Nothing was changed, unless the message says otherwise."
            "`dolmen jobs` shows those that are known."
        }
        NoSuchObject = "no_such_object" {
            "There is no pool, disk, space, share or job of this name."
            "Nothing was changed, unless the message says otherwise."
            "`dolmen` shows pools and spaces, `dolmen disk list` disks, `dolmen jobs` jobs."
        }
        NameTaken = "name_taken" {
            "Something else has this name already."
            "Nothing was changed, unless the message says otherwise."
            "Take another name."
        }
        TooFewDisks = "too_few_disks" {
            "The pool has fewer disks, or fault domains, than it takes."
            "Nothing was changed, unless the message says otherwise."
            "Add disks, or take a resiliency or a number of columns that needs fewer."
        }
        NoSpace = "no_space" {
            "The pool, or what is below one of its disks, is full."
            "Nothing was changed, unless the message says otherwise."
            "Add a disk, purge the trash, or delete something with --purge or trim it; `dolmen df` shows what fits."
        }
        NeedsConfirmation = "needs_confirmation" {
            "It would destroy data, and the name of what is lost was not typed."
            "Nothing was changed, unless the message says otherwise."
            "If nobody needs it any more, give its name with --destroy."
        }
        ForeignData = "foreign_data" {
            "A device that is to become a disk holds somebody's data."
            "Nothing was changed, unless the message says otherwise."
            "Look at what is on it; if nobody needs that any more, name the device with --destroy."
        }
        UnfitDevice = "unfit_device" {
            "The device cannot be a disk of a pool: too small, zoned, listed twice, a copy, or cut short."
            "Nothing was changed, unless the message says otherwise."
            "Take another one, or mend what the message names."
        }
        DeviceInUse = "device_in_use" {
            "The device is mounted, or used by somebody else."
            "Nothing was changed, unless the message says otherwise."
            "End what uses it; the message names that, where it can be told."
        }
        ReadOnly = "read_only" {
            "The pool is open for reading only, or may not be opened for more."
            "Nothing was changed, unless the message says otherwise."
            "Attach the disks that are missing and import the pool again; `dolmen why POOL` says why."
        }
        PoolStopped = "pool_stopped" {
            "The pool has stopped, because it lost what it cannot go on without."
            "Nothing was changed, unless the message says otherwise."
            "See to its disks, `dolmen stop --hand-over`, and start the daemon again."
        }
        Busy = "busy" {
            "Not now: it is attached, mounted or served, or a job is at it."
            "Nothing was changed, unless the message says otherwise."
            "End what the message names, or wait until it has ended."
        }
        NotEmpty = "not_empty" {
            "To make it smaller would cut off data."
            "Nothing was changed, unless the message says otherwise."
            "Trim or delete what lies behind the new end first."
        }
        Io = "io" {
            "Reading or writing failed."
            "What was acknowledged before stays as it is."
            "`dolmen why POOL` and the daemon's log say what failed."
        }
        Permission = "permission" {
            "The process may not do that."
            "Nothing was changed, unless the message says otherwise."
            "Ask as root, or as the user whose daemon it is."
        }
        Missing = "missing" {
            "Something has to be installed, or loaded into the kernel, first."
            "Nothing was changed, unless the message says otherwise."
            "Do what the message says."
        }
        Unsupported = "unsupported" {
            "This version cannot do it."
            "Nothing was changed, unless the message says otherwise."
            "See `docs/known_faults.md` and the README for what is missing."
        }
        Stopping = "stopping" {
            "The daemon is ending, and begins nothing any more."
            "Nothing was changed, unless the message says otherwise."
            "Ask again when it has been started again."
        }
        Config = "config" {
            "A setting, or a file of settings, cannot be used."
            "Nothing was changed, unless the message says otherwise."
            "Mend the one that the message names."
        }
        Internal = "internal" {
            "A defect of the daemon."
            "What was acknowledged before stays as it is."
            "Please report it, with the daemon's log."
        }
    }
}

impl ErrorCode {
    /// The HTTP status that goes with it: from 500 on for a fault of the daemon, of its settings or of disks alone, never for a
    /// request that is refused.
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
            | Self::NoSuchJob
            | Self::NoSuchObject => 404,
            Self::NameTaken
            | Self::DeviceInUse
            | Self::Busy
            | Self::NotEmpty
            | Self::ReadOnly
            | Self::NoSpace => 409,
            Self::NeedsConfirmation | Self::ForeignData => 412,
            Self::Io | Self::Internal | Self::PoolStopped | Self::Config => 500,
            Self::Unsupported | Self::Missing => 422,
            Self::Stopping => 503,
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
            | Self::NoSuchObject
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

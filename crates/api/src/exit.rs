//! How every program of the product ends.

/// Exit codes. Numbers from 64 on are those of `sysexits.h`, as far as it has a fitting one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Done, or all is well.
    Ok = 0,
    /// Done, and something is unhealthy: `status` and `check` say so.
    Unhealthy = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// Something has to be installed, or loaded into the kernel, first.
    Missing = 69,
    /// A defect of the program.
    Internal = 70,
    /// Refused: it would destroy something, or wants a confirmation that was not given.
    Refused = 73,
    /// Input or output failed.
    Io = 74,
    /// Not now: busy, put off until a disk is back, paused, called off, or no daemon is running.
    Busy = 75,
    /// Permission denied.
    Permission = 77,
    /// A configuration that cannot be used.
    Config = 78,
}

impl ExitCode {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Ok,
        Self::Unhealthy,
        Self::Usage,
        Self::Missing,
        Self::Internal,
        Self::Refused,
        Self::Io,
        Self::Busy,
        Self::Permission,
        Self::Config,
    ];

    /// The number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Unhealthy => 1,
            Self::Usage => 2,
            Self::Missing => 69,
            Self::Internal => 70,
            Self::Refused => 73,
            Self::Io => 74,
            Self::Busy => 75,
            Self::Permission => 77,
            Self::Config => 78,
        }
    }

    /// What it means, for the manual.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "done, or all is well",
            Self::Unhealthy => "done, and something is unhealthy",
            Self::Usage => "the command line makes no sense",
            Self::Missing => "something has to be installed or loaded first",
            Self::Internal => "a defect of the program",
            Self::Refused => "refused: it would destroy something, or wants a confirmation",
            Self::Io => "input or output failed",
            Self::Busy => {
                "not now: busy, put off until a disk is back, paused, called off, or no daemon is running"
            }
            Self::Permission => "permission denied",
            Self::Config => "a configuration that cannot be used",
        }
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code.number())
    }
}

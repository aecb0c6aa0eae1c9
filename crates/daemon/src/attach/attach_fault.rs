//! Errors of the transports, for users.

use dolmen_api::{ErrorBody, ErrorCode};
use dolmen_fuse::{LoopError, MountError, RingsUnusable, StartError};

pub(crate) const ADVICE: &str =
    "run the daemon as root with the modules fuse and loop loaded, or use `dolmen serve`";

pub(crate) fn body(code: ErrorCode, error: &dyn std::error::Error) -> ErrorBody {
    ErrorBody::new(code, error.to_string()).caused_by(error)
}

pub(crate) fn start_fault(error: &StartError) -> ErrorBody {
    match error {
        StartError::Mount(inner) => mount_fault(inner),
        StartError::Rings(inner) => rings_fault(inner),
        StartError::NotNegotiated { .. } => body(ErrorCode::Missing, error),
        StartError::Setting { .. } => body(ErrorCode::Config, error),
        StartError::System { .. }
        | StartError::DescriptorHolder(_)
        | StartError::Region(_)
        | StartError::Ledger(_) => body(ErrorCode::Io, error),
    }
}

pub(crate) fn rings_fault(error: &RingsUnusable) -> ErrorBody {
    let code = match error {
        RingsUnusable::Fuse(inner) => return mount_fault(inner),
        RingsUnusable::Absent
        | RingsUnusable::Off
        | RingsUnusable::NoRing { .. }
        | RingsUnusable::Processors { .. } => ErrorCode::Missing,
        RingsUnusable::Switch { .. } => ErrorCode::Io,
    };
    body(code, error)
        .hint("attach it without --transport: the fastest way that works and survives the daemon is taken")
}

pub(crate) fn mount_fault(error: &MountError) -> ErrorBody {
    let code = match error {
        MountError::NoFuse { .. } => ErrorCode::Missing,
        MountError::NotPermitted { .. } => ErrorCode::Permission,
        MountError::Failed { .. } => ErrorCode::Io,
        MountError::Occupied { .. } => ErrorCode::Busy,
    };
    body(code, error).hint(ADVICE)
}

pub(crate) fn loop_fault(error: &LoopError) -> ErrorBody {
    let code = match error {
        LoopError::NoLoop { .. } | LoopError::NotDirect { .. } | LoopError::WithoutFlushes { .. } => {
            ErrorCode::Missing
        }
        LoopError::NotPermitted { .. } => ErrorCode::Permission,
        LoopError::Contended => ErrorCode::Busy,
        LoopError::Failed { .. } => ErrorCode::Io,
    };
    body(code, error).hint(ADVICE)
}

//! Errors of the engine, as the API tells them.

use dolmen_api::{ErrorBody, ErrorCode};
use dolmen_block_linux::OpenError as DeviceOpenError;
use dolmen_placement::RequestError;
use dolmen_pool::{ChangeError, CreateError, OpenError, PoolError};
use dolmen_space::{LimitFault, LimitKind, SpaceError};
use dolmen_units::Bytes;

use crate::state::is_immutable;

fn body(code: ErrorCode, error: &dyn std::error::Error) -> ErrorBody {
    ErrorBody::new(code, error.to_string()).caused_by(error)
}

pub(crate) fn open_device(error: &DeviceOpenError) -> ErrorBody {
    if let DeviceOpenError::Denied { path } = error
        && is_immutable(path)
    {
        let name = path.display().to_string();
        let message = format!("opening {name} for writing: it is immutable, which keeps root out too");
        return ErrorBody::new(ErrorCode::UnfitDevice, message)
            .hint(format!("`chattr -i {name}`, or name another one"))
            .on(name);
    }
    let (code, path) = match error {
        DeviceOpenError::NotFound { path } => (ErrorCode::NoSuchDevice, path),
        DeviceOpenError::Denied { path } => (ErrorCode::Permission, path),
        DeviceOpenError::ReadOnly { path }
        | DeviceOpenError::NotADisk { path }
        | DeviceOpenError::Zoned { path }
        | DeviceOpenError::BlockSize { path, .. } => (ErrorCode::UnfitDevice, path),
        DeviceOpenError::Locked { path, .. } | DeviceOpenError::InUse { path, .. } => {
            (ErrorCode::DeviceInUse, path)
        }
        DeviceOpenError::TooManyFiles { path, .. } | DeviceOpenError::System { path, .. } => {
            (ErrorCode::Io, path)
        }
    };
    body(code, error).on(path.display().to_string())
}

pub(crate) fn create(error: &CreateError) -> ErrorBody {
    let (code, object) = match error {
        CreateError::NoDisks | CreateError::TooMany { .. } => (ErrorCode::BadRequest, None),
        CreateError::Twice { name } | CreateError::Extent { name, .. } | CreateError::Zoned { name } => {
            (ErrorCode::UnfitDevice, Some(name))
        }
        CreateError::Foreign { name, .. }
        | CreateError::Member { name, .. }
        | CreateError::Unusable { name, .. } => (ErrorCode::ForeignData, Some(name)),
        CreateError::Device { name, .. } => (ErrorCode::Io, Some(name)),
        CreateError::Label(_) | CreateError::Store(_) => (ErrorCode::Io, None),
        CreateError::Record(_) => (ErrorCode::Internal, None),
        CreateError::Open(inner) => return open(inner),
    };
    let error = body(code, error);
    match object {
        Some(name) => error.on(name),
        None => error,
    }
}

pub(crate) fn open(error: &OpenError) -> ErrorBody {
    let code = match error {
        OpenError::NoDisks | OpenError::NoMetadata { .. } | OpenError::OnlyStrays { .. } => {
            ErrorCode::NoSuchPool
        }
        OpenError::TwoPools { .. } => ErrorCode::BadRequest,
        OpenError::Duplicate { .. } | OpenError::Extent { .. } | OpenError::SmallVoter { .. } => {
            ErrorCode::UnfitDevice
        }
        OpenError::ReadOnly { .. } => ErrorCode::ReadOnly,
        OpenError::OpenElsewhere { .. } => ErrorCode::DeviceInUse,
        OpenError::Arbiter(_) | OpenError::Store(_) | OpenError::Recover(_) | OpenError::LogDamage { .. } => {
            ErrorCode::Io
        }
        OpenError::Pool(inner) => return pool(inner),
    };
    let found = body(code, error);
    match error {
        OpenError::ReadOnly { name, .. } => found
            .on(name.to_string())
            .hint("attach the disks that are missing; or look at it with --read-only; or, if you know that those disks are in use nowhere else, say --confirmed"),
        OpenError::NoMetadata { name } => found.on(name.to_string()).hint("attach more of its disks"),
        OpenError::OnlyStrays { name, .. } => found
            .on(name.to_string())
            .hint("attach the disks as the pool has last used them; what older ones hold, `dolmen-rescue` can read"),
        OpenError::OpenElsewhere { name, .. } => found.on(name.to_string()),
        _ => found,
    }
}

pub(crate) fn pool(error: &PoolError) -> ErrorBody {
    let code = match error {
        PoolError::ReadOnly { .. } => ErrorCode::ReadOnly,
        PoolError::Latched { .. } => ErrorCode::PoolStopped,
        PoolError::NoSpace { .. }
        | PoolError::Fragmented { .. }
        | PoolError::MetadataFull { .. }
        | PoolError::LogOccupied { .. } => ErrorCode::NoSpace,
        PoolError::TooLarge { .. } | PoolError::Full { .. } => ErrorCode::BadRequest,
        PoolError::NoSuchDisk { .. } => ErrorCode::NoSuchDisk,
        PoolError::NotReplaced { .. } | PoolError::Epoch { source: ChangeError::SpansFull { .. }, .. } => {
            ErrorCode::Busy
        }
        PoolError::Stray { .. } => ErrorCode::UnfitDevice,
        PoolError::Join { source, .. } => return create(source),
        PoolError::Log { .. }
        | PoolError::LogUnreadable { .. }
        | PoolError::LogCorrupt { .. }
        | PoolError::Store { .. }
        | PoolError::Checkpoint { .. }
        | PoolError::Arbiter { .. }
        | PoolError::Disk { .. }
        | PoolError::Label { .. }
        | PoolError::Corrupt { .. } => ErrorCode::Io,
        PoolError::Epoch { .. } => ErrorCode::Internal,
    };
    let found = body(code, error);
    match error {
        PoolError::NoSpace { .. } => {
            found.hint("add a disk, or purge or trim something; `dolmen df` shows what fits")
        }
        PoolError::Latched { .. } => found.hint(
            "see to its disks, which are away or failed; then `dolmen stop --hand-over`, and start the daemon again",
        ),
        PoolError::ReadOnly { name } => found.on(name.to_string()).hint(to_write(name.as_str())),
        PoolError::NoSuchDisk { .. } => found.hint("`dolmen disk list` shows path, id and slot of each disk"),
        _ => found,
    }
}

/// How a pool that is open for reading only comes to be open for writing.
pub(crate) fn to_write(pool: &str) -> String {
    format!("`dolmen pool export {pool}`, then `dolmen pool import` with its disks and without --read-only")
}

/// What is wrong with a limit of bytes: as sizes, and not as numbers.
fn limit_in_units(fault: &LimitFault) -> String {
    match fault {
        LimitFault::Crossed { min, max } => {
            format!("has its minimum, {}, above its maximum, {}", Bytes(*min), Bytes(*max))
        }
        LimitFault::TooMuch { found, most } => format!("is {} at most, not {}", Bytes(*most), Bytes(*found)),
        LimitFault::Zero | LimitFault::Unaligned { .. } => fault.to_string(),
    }
}

pub(crate) fn space(error: &SpaceError) -> ErrorBody {
    let (code, object) = match error {
        SpaceError::Range { name, .. } => (ErrorCode::BadRequest, Some(name.to_string())),
        SpaceError::Unreadable { name, .. }
        | SpaceError::Unwritable { name, .. }
        | SpaceError::Unflushed { name } => (ErrorCode::Io, Some(name.to_string())),
        SpaceError::CalledOff { name } => (ErrorCode::Busy, Some(name.to_string())),
        SpaceError::NoSpaceBelow { name } | SpaceError::CacheFull { name } => {
            (ErrorCode::NoSpace, Some(name.to_string()))
        }
        SpaceError::Pool(inner) => return pool(inner),
        SpaceError::Request(RequestError::Row { .. } | RequestError::Interleave { .. })
        | SpaceError::Interleave { .. } => (ErrorCode::BadSize, None),
        SpaceError::Limit { name, limit: LimitKind::Bytes, fault } => {
            let fault = limit_in_units(fault);
            let message = format!("{} of space {name} {fault}; nothing was changed", LimitKind::Bytes);
            return ErrorBody::new(ErrorCode::BadRequest, message);
        }
        SpaceError::Request(_) | SpaceError::Unsupported { .. } | SpaceError::Limit { .. } => {
            (ErrorCode::BadRequest, None)
        }
        SpaceError::TooFewDisks { .. } | SpaceError::TooFewVoters { .. } => (ErrorCode::TooFewDisks, None),
        SpaceError::Size { .. } | SpaceError::CacheSize { .. } => (ErrorCode::BadSize, None),
        SpaceError::TooLarge { name, .. } => {
            let hint = "add disks, or purge or trim something; `dolmen df` shows what fits";
            return body(ErrorCode::BadSize, error).on(name.to_string()).hint(hint);
        }
        SpaceError::Reserve { name, .. } => {
            let hint = "reserve less, add disks, or purge or trim something; `dolmen df` shows what fits";
            return body(ErrorCode::BadSize, error).on(name.to_string()).hint(hint);
        }
        SpaceError::Converting { name, .. } => {
            let hint = "`dolmen space show` tells what it is converted from";
            return body(ErrorCode::Busy, error).on(name.to_string()).hint(hint);
        }
        SpaceError::NoRoomToConvert { name, .. } => {
            let hint =
                "`dolmen df` shows what is free; or choose a layout that takes less, which -n tells of each";
            return body(ErrorCode::NoSpace, error).on(name.to_string()).hint(hint);
        }
        SpaceError::Attribute { name, .. } => (ErrorCode::BadRequest, Some(name.to_string())),
        SpaceError::CacheDrain(_) => (ErrorCode::BadRequest, None),
        SpaceError::NoWriteCache { .. } => (ErrorCode::BadRequest, None),
        SpaceError::NameTaken { name } => (ErrorCode::NameTaken, Some(name.to_string())),
        SpaceError::NoSuchSpace { name } => (ErrorCode::NoSuchSpace, Some(name.clone())),
        SpaceError::NotEmpty { name, .. } => (ErrorCode::NotEmpty, Some(name.to_string())),
        SpaceError::Deleted { name } | SpaceError::Trashed { name } | SpaceError::NotTrashed { name } => {
            (ErrorCode::NoSuchSpace, Some(name.to_string()))
        }
    };
    let found = body(code, error);
    let found = match object {
        Some(name) => found.on(name),
        None => found,
    };
    match next_step(error) {
        Some(hint) => found.hint(hint),
        None => found,
    }
}

/// Returns what to do about errors of spaces that do not say so themselves.
fn next_step(error: &SpaceError) -> Option<&'static str> {
    match error {
        SpaceError::Unreadable { .. } => {
            Some("`dolmen why POOL/SPACE` shows what is lost or out of reach, and what to do")
        }
        SpaceError::Unwritable { .. } => Some(
            "`dolmen status` shows which disks fail or are absent; write it again when they are back or replaced",
        ),
        SpaceError::TooFewDisks { .. } => Some(
            "add a disk with `dolmen pool add`, or choose a protection that needs fewer, such as --resiliency simple, \
             which loses its data with the disk; `dolmen df` shows what fits",
        ),
        SpaceError::Deleted { .. } => Some("`dolmen space list` shows the spaces that there are"),
        SpaceError::Trashed { .. } => Some("`dolmen trash restore POOL/SPACE` takes it out of the trash"),
        SpaceError::NoSuchSpace { .. } => Some("`dolmen space list` shows all spaces"),
        SpaceError::NameTaken { .. } => {
            Some("choose another name; `dolmen space list` and `dolmen trash list` show those that are taken")
        }
        _ => None,
    }
}
/// The error for a second way in that would write beside the first.
pub(crate) fn two_sides(name: &str, transport: &str) -> ErrorBody {
    let message = format!(
        "space {name} is {transport}; two sides that write without knowing of each other destroy what they write; nothing was changed"
    );
    ErrorBody::new(ErrorCode::Busy, message).on(name)
}

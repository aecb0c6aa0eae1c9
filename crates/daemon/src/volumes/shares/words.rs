//! Values of records and of the worker, as the API names them.

use dolmen_api::{ShareAccess, ShareAccountKind, ShareProtocol, ShareStep};
use dolmen_volume::record::{Access, AccountKind, Protocol};
use dolmen_worker::shares::order::ProbeStep;

pub(super) fn shown_protocol(protocol: Protocol) -> ShareProtocol {
    match protocol {
        Protocol::Smb => ShareProtocol::Smb,
        Protocol::Nfs => ShareProtocol::Nfs,
    }
}

pub(super) fn protocol_of(protocol: ShareProtocol) -> Protocol {
    match protocol {
        ShareProtocol::Smb => Protocol::Smb,
        ShareProtocol::Nfs => Protocol::Nfs,
    }
}

pub(super) fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Smb => "SMB",
        Protocol::Nfs => "NFS",
    }
}

pub(super) fn shown_access(access: Access) -> ShareAccess {
    match access {
        Access::ReadOnly => ShareAccess::ReadOnly,
        Access::ReadWrite => ShareAccess::ReadWrite,
    }
}

pub(super) fn access_of(access: ShareAccess) -> Access {
    match access {
        ShareAccess::ReadOnly => Access::ReadOnly,
        ShareAccess::ReadWrite => Access::ReadWrite,
    }
}

pub(super) fn access_name(access: Access) -> &'static str {
    match access {
        Access::ReadOnly => "read-only",
        Access::ReadWrite => "read-write",
    }
}

pub(super) fn shown_kind(kind: AccountKind) -> ShareAccountKind {
    match kind {
        AccountKind::User => ShareAccountKind::User,
        AccountKind::Group => ShareAccountKind::Group,
    }
}

pub(super) fn kind_of(kind: ShareAccountKind) -> AccountKind {
    match kind {
        ShareAccountKind::User => AccountKind::User,
        ShareAccountKind::Group => AccountKind::Group,
    }
}

pub(super) fn kind_name(kind: AccountKind) -> &'static str {
    match kind {
        AccountKind::User => "user",
        AccountKind::Group => "group",
    }
}

pub(super) fn step_of(step: ProbeStep) -> ShareStep {
    match step {
        ProbeStep::Configuration => ShareStep::Configuration,
        ProbeStep::Connection => ShareStep::Connection,
        ProbeStep::Protocol => ShareStep::Protocol,
        ProbeStep::Listing => ShareStep::Listing,
    }
}

pub(super) fn step_name(step: ShareStep) -> &'static str {
    match step {
        ShareStep::Change => "change of the server",
        ShareStep::Probe => "look at the server",
        ShareStep::Configuration => "configuration",
        ShareStep::Connection => "connection",
        ShareStep::Protocol => "protocol",
        ShareStep::Listing => "listing",
    }
}

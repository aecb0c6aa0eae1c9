//! `dolmen space`, `serve` and `unserve`.

use std::path::PathBuf;

use dolmen_api::{
    AttachSpace, AttachedBy, Change, ConvertSpace, CreateSpace, DeleteSpace, DetachSpace, Integrity,
    JobState, RenameSpace, ResizeSpace, ServeNetwork, ServeSpace, SetLimits, SetReserve, TlsFiles, Transport,
    verb,
};

use crate::arguments::common::Waiting;
use crate::arguments::serve::ServeArguments;
use crate::arguments::space::{
    AttachArguments, Columns, IntegrityWord, NewSpace, ProvisioningWord, ResiliencyWord, SpaceCommand,
    SpaceConvert, SpaceCreate, SpaceDelete, SpaceSet, TransportWord,
};
use crate::arguments::values::{IopsLimit, RateLimit, Reserve, SpaceName};
use crate::confirm::Danger;
use crate::error::CliError;
use crate::session::change::{ChangeSequence, Session};
use crate::session::client::call;
use crate::session::disks::absolute;
use crate::views::spaces::{show_space, show_spaces};

/// Returns the words for a space in the path of a request.
pub(crate) fn space_words(name: &SpaceName) -> [&str; 2] {
    [name.pool.as_str(), name.space.as_str()]
}

/// `dolmen space`
pub(crate) fn space(session: &mut Session<'_, '_>, command: SpaceCommand) -> Result<(), CliError> {
    match command {
        SpaceCommand::Create(arguments) => space_create(session, &arguments),
        SpaceCommand::List(filter) => {
            let document = match &filter.pool {
                Some(pool) => session.client.look(&call::<verb::ListSpaces>([pool.as_str()]))?,
                None => session.client.look(&call::<verb::ListAllSpaces>([]))?,
            };
            session.show(&document, show_spaces);
            Ok(())
        }
        SpaceCommand::Show(target) => {
            let document = session.client.look(&call::<verb::ShowSpace>(space_words(&target.space)))?;
            session.show(&document, show_space);
            Ok(())
        }
        SpaceCommand::Set(arguments) => space_set(session, &arguments),
        SpaceCommand::Resize(arguments) => {
            let request = ResizeSpace { size_bytes: arguments.size.0, dry_run: false };
            let asked = call::<verb::ResizeSpace>(space_words(&arguments.space));
            session.change(&asked, &request, arguments.dry.intent()).map(drop)
        }
        SpaceCommand::Convert(arguments) => space_convert(session, &arguments),
        SpaceCommand::Delete(arguments) => space_delete(session, &arguments),
        SpaceCommand::Attach(arguments) => attach(session, &arguments),
        SpaceCommand::Detach(arguments) => {
            let asked = call::<verb::DetachSpace>(space_words(&arguments.space));
            let request = DetachSpace { discard_unflushed: arguments.discard_unflushed, dry_run: false };
            session.change(&asked, &request, arguments.dry.intent()).map(drop)
        }
        SpaceCommand::Clear(_) => {
            unreachable!("commands that need no daemon are carried out before there is a session")
        }
    }
}

/// Returns the request for a space of this name, size and layout.
pub(crate) fn new_space(name: &SpaceName, new: &NewSpace) -> CreateSpace {
    CreateSpace {
        name: name.space.to_string(),
        size_bytes: new.size.0,
        resiliency: new.resiliency.kind(),
        copies: new.copies,
        parity: new.parity,
        columns: new.columns,
        interleave_bytes: new.interleave.map(|size| size.0),
        row_bytes: new.row.map(|size| size.0),
        provisioning: new.provisioning.when(),
        integrity: new.strict.then_some(Integrity::Strict),
        sector_bytes: new.sector.map(|sector| sector.bytes()),
        dry_run: false,
    }
}

fn space_create(session: &mut Session<'_, '_>, arguments: &SpaceCreate) -> Result<(), CliError> {
    let request = new_space(&arguments.space, &arguments.new);
    let asked = call::<verb::CreateSpace>([arguments.space.pool.as_str()]);
    session.change(&asked, &request, arguments.dry.intent()).map(drop)
}

fn space_convert(session: &mut Session<'_, '_>, arguments: &SpaceConvert) -> Result<(), CliError> {
    let request = ConvertSpace {
        resiliency: arguments.resiliency.map(ResiliencyWord::kind),
        copies: arguments.copies,
        parity: arguments.parity,
        columns: arguments.columns.map(|Columns(columns)| columns),
        interleave_bytes: arguments.interleave.map(|size| size.0),
        integrity: arguments.integrity.map(|integrity| match integrity {
            IntegrityWord::Relaxed => Integrity::Relaxed,
            IntegrityWord::Strict => Integrity::Strict,
        }),
        provisioning: arguments.provisioning.map(ProvisioningWord::when),
        dry_run: false,
    };
    let asked = call::<verb::ConvertSpace>(space_words(&arguments.space));
    let change = session.change(&asked, &request, arguments.dry.intent())?;
    session.wait_for(&change, &arguments.waiting)
}

fn space_delete(session: &mut Session<'_, '_>, arguments: &SpaceDelete) -> Result<(), CliError> {
    let full = arguments.space.to_string();
    let object = format!("space {full}");
    let danger = Danger { object: &object, name: &full, alias: Some(arguments.space.space.as_str()) };
    let asked = call::<verb::DeleteSpace>(space_words(&arguments.space));
    if !arguments.purge {
        let request = DeleteSpace::default();
        return session.change(&asked, &request, arguments.dry.intent()).map(drop);
    }
    let given = arguments.consent.destroy.as_deref();
    let request = |destroy| DeleteSpace { purge: true, destroy, dry_run: false };
    let change = session.destroy(&asked, &danger, given, request, arguments.dry.intent())?;
    wait_for_room(session, &change, &arguments.waiting)
}

/// Waits for the room that a purge gives back. What was purged is gone also where the job was held.
pub(crate) fn wait_for_room(
    session: &mut Session<'_, '_>,
    change: &Change,
    waiting: &Waiting,
) -> Result<(), CliError> {
    let goes_on = |state| matches!(state, JobState::Waiting | JobState::Running);
    match &change.job {
        Some(job) if goes_on(job.state) => session.wait_for(change, waiting),
        Some(_) | None => Ok(()),
    }
}

fn space_set(session: &mut Session<'_, '_>, arguments: &SpaceSet) -> Result<(), CliError> {
    let (space, intent) = (space_words(&arguments.space), arguments.dry.intent());
    let iops = |limit: Option<IopsLimit>| limit.map(|IopsLimit(limit)| limit);
    let rate = |limit: Option<RateLimit>| limit.map(|RateLimit(limit)| limit);
    let limits = SetLimits {
        iops_max: iops(arguments.iops_max),
        iops_min: iops(arguments.iops_min),
        bytes_per_s_max: rate(arguments.rate_max),
        bytes_per_s_min: rate(arguments.rate_min),
        dry_run: false,
    };
    let limits = Some(limits).filter(|limits| *limits != SetLimits::default());
    let reserve = arguments.reserve.map(|Reserve(bytes)| SetReserve { bytes, dry_run: false });
    let rename = arguments.name.as_ref().map(|name| RenameSpace { name: name.to_string(), dry_run: false });
    let changes = ChangeSequence::default()
        .then::<verb::SetReserve>(space, reserve)?
        .then::<verb::SetLimits>(space, limits)?
        .then::<verb::RenameSpace>(space, rename)?;
    session.change_in_sequence(&changes, intent).map(drop)
}

/// Prints the path alone, for scripts, and the rest as messages.
fn attach(session: &mut Session<'_, '_>, arguments: &AttachArguments) -> Result<(), CliError> {
    let (asked, intent) = (call::<verb::AttachSpace>(space_words(&arguments.space)), arguments.dry.intent());
    let transport = match arguments.transport {
        TransportWord::Auto => Transport::Auto,
        TransportWord::Ublk => Transport::Ublk,
        TransportWord::Loop => Transport::Loop,
        TransportWord::LoopUring => Transport::LoopUring,
    };
    let request = AttachSpace { transport, dry_run: false };
    let document = session.client.change(&asked, &request, intent)?;
    let change = session.print(document, intent, |change| {
        change.attachment.as_ref().map(|attachment| attachment.path.clone())
    });
    if let Some(attachment) = &change.attachment {
        let by = match attachment.transport {
            AttachedBy::Ublk => "ublk",
            AttachedBy::Loop => "a loop device over FUSE",
            AttachedBy::LoopUring => "a loop device over FUSE by io_uring",
        };
        // It is the same for every space of a machine: the first one that is attached says it.
        let is_first = || {
            let attached = session.client.look(&call::<verb::ListAttachments>([]));
            attached.map_or(true, |found| found.value.attachments.len() <= 1)
        };
        let why = attachment.not_faster_because.as_ref().filter(|_| is_first());
        let passed_over = why.map(|why| format!("; not by ublk: {why}")).unwrap_or_default();
        let sector =
            change.space.as_ref().map(|space| format!(", with sectors of {} bytes", space.sector_bytes));
        let sector = sector.unwrap_or_default();
        session.out.print(format_args!("attached by {by}, as {}{sector}{passed_over}", attachment.device));
    }
    let limits = change.attachment.iter().flat_map(|attachment| &attachment.limits);
    limits.for_each(|limit| session.out.print(format_args!("warning: {limit}")));
    Ok(())
}

/// Prints the address alone, for scripts.
pub(crate) fn serve(session: &mut Session<'_, '_>, arguments: &ServeArguments) -> Result<(), CliError> {
    let (asked, intent) = (call::<verb::ServeSpace>(space_words(&arguments.space)), arguments.dry.intent());
    let document = session.client.change(&asked, &serve_request(arguments)?, intent)?;
    session.print(document, intent, |change| {
        let export = change.export.as_ref()?;
        let network = export.network.as_ref().filter(|_| arguments.listen.is_some());
        Some(network.map_or_else(|| export.uri.clone(), |network| network.uri.clone()))
    });
    Ok(())
}

/// Returns what the daemon is asked for. Paths begin at the root: the daemon has another working folder.
fn serve_request(arguments: &ServeArguments) -> Result<ServeSpace, CliError> {
    let network = match arguments.listen {
        Some(listen) => Some(ServeNetwork {
            listen: listen.to_string(),
            tls: tls_files(arguments)?,
            allow: arguments.allow.clone(),
        }),
        None => None,
    };
    Ok(ServeSpace { read_only: arguments.read_only, network, dry_run: false })
}

fn tls_files(arguments: &ServeArguments) -> Result<Option<TlsFiles>, CliError> {
    let (Some(certificate), Some(key), Some(client_ca)) =
        (&arguments.tls_cert, &arguments.tls_key, &arguments.client_ca)
    else {
        return Ok(None);
    };
    let rooted = |path| absolute(path).map(PathBuf::from);
    let (certificate, key, client_ca) = (rooted(certificate)?, rooted(key)?, rooted(client_ca)?);
    Ok(Some(TlsFiles { certificate, key, client_ca }))
}

//! Each command as what it asks of the daemon.

use std::path::{Path, PathBuf};
use std::time::Duration;

use dolmen_api::{
    AddDisks, AttachSpace, AttachedBy, Change, ConvertSpace, CreatePool, CreateSpace, DeleteSpace, Destroy,
    DetachSpace, DrainWriteCache, ExitCode, Health, ImportMode, ImportPool, Integrity, JobPriority, JobState,
    LocateDisk, OnlineDisk, Pool, PurgeTrash, RenameSpace, ReplaceDisk, ResizeSpace, ResizeWriteCache,
    RestoreSpace, SetAlertAt, SetJob, SetKeepRoom, SetLimits, SetRepairAfter, SetReserve, Shutdown, Simple,
    Transport, verb,
};
use dolmen_units::Name;

use crate::args::{
    Command, DiskCommand, DiskOnline, DiskReplace, Format, JobChange, JobCommand, JobSet, JobsArguments,
    PoolAdd, PoolCommand, PoolCreate, PoolDestroy, PoolFilter, PoolImport, PoolRebalance, PoolRemove,
    PoolSet, PriorityWord, ScrubArguments, StatusArguments, StopArguments, TrashCommand, TrashPurge,
    TrashRestore, Waiting, WhyArguments,
};
use crate::args_serve::ServeArguments;
use crate::args_space::{
    AttachArguments, Columns, IntegrityWord, ProvisioningWord, ResiliencyWord, SpaceCommand, SpaceConvert,
    SpaceCreate, SpaceDelete, SpaceSet, TransportWord,
};
use crate::change::{ChangeSequence, Disks, Session, absolute};
use crate::client::{Intent, call};
use crate::confirm::Danger;
use crate::disk_set::{disk_forget, disk_retire, disk_set, in_enclosures};
use crate::error::CliError;
use crate::events;
use crate::jobs::{show_job, show_jobs, watch};
use crate::pools::{show_devices, show_disks, show_other_pools, show_pool, show_pools};
use crate::room::show_df;
use crate::service::daemon_at;
use crate::spaces::{show_space, show_spaces};
use crate::status::show_status;
use crate::top;
use crate::trash::show_trash;
use crate::values::{AlertAt, IopsLimit, LatencyLimit, Rate, RateLimit, RepairAfter, Reserve, SpaceName};
use crate::why::show_why;

/// How long a daemon that said that it ends may take for it.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// Carries out a command that needs the daemon.
pub(crate) fn run(session: &mut Session<'_, '_>, command: Command) -> Result<ExitCode, CliError> {
    match command {
        Command::Status(arguments) => return status(session, arguments),
        Command::Pool(command) => pool(session, command)?,
        Command::Disk(command) => disk(session, command)?,
        Command::Space(command) => space(session, command)?,
        Command::Trash(command) => trash(session, command)?,
        Command::Serve(arguments) => serve(session, &arguments)?,
        Command::Unserve(arguments) => {
            let asked = call::<verb::UnserveSpace>(space_words(&arguments.space));
            session.change(&asked, &Simple::default(), arguments.dry.intent())?;
        }
        Command::Df(filter) => df(session, &filter)?,
        Command::Jobs(arguments) => jobs(session, &arguments)?,
        Command::Job(command) => job(session, &command)?,
        Command::Why(arguments) => why(session, &arguments)?,
        Command::Events(arguments) => events::run(session, &arguments)?,
        Command::Iostat(arguments) => top::iostat(session, &arguments)?,
        Command::Top(arguments) => top::top(session, &arguments)?,
        Command::Scrub(arguments) => scrub(session, &arguments)?,
        Command::Stop(arguments) => stop(session, &arguments)?,
        Command::Version => return version(session),
        Command::Check(_)
        | Command::Plan(_)
        | Command::Bench(_)
        | Command::Daemon(_)
        | Command::Completion(_)
        | Command::Explain(_)
        | Command::Man(_) => {
            unreachable!("commands that need no daemon are carried out before there is a session")
        }
    }
    Ok(ExitCode::Ok)
}

fn space_words(name: &SpaceName) -> [&str; 2] {
    [name.pool.as_str(), name.space.as_str()]
}

/// The exit code answers for scripts what the first word answers for people; a warning is no failure.
fn status(session: &mut Session<'_, '_>, arguments: StatusArguments) -> Result<ExitCode, CliError> {
    let Some(every) = arguments.watch else { return status_once(session) };
    crate::watch::watch(session, every, |session| status_once(session).map(drop))?;
    Ok(ExitCode::Ok)
}

fn status_once(session: &mut Session<'_, '_>) -> Result<ExitCode, CliError> {
    let document = session.client.look(&call::<verb::ShowStatus>([]))?;
    session.show(&document, show_status);
    if document.value.pools.is_empty() {
        // Who has none at all may have just moved their disks here.
        show_others(session, &[]);
    }
    Ok(match document.value.health {
        Health::Healthy | Health::Warning => ExitCode::Ok,
        Health::Unhealthy => ExitCode::Unhealthy,
    })
}

fn pool(session: &mut Session<'_, '_>, command: PoolCommand) -> Result<(), CliError> {
    match command {
        PoolCommand::Create(arguments) => pool_create(session, &arguments),
        PoolCommand::List => {
            let document = session.client.look(&call::<verb::ListPools>([]))?;
            session.show(&document, show_pools);
            show_others(session, &document.value.pools);
            Ok(())
        }
        PoolCommand::Show(target) => {
            let document = session.client.look(&call::<verb::ShowPool>([target.pool.as_str()]))?;
            if session.format == Format::Json {
                session.show(&document, |_, _| {});
                return Ok(());
            }
            let spaces = session.client.look(&call::<verb::ListSpaces>([target.pool.as_str()]))?;
            show_pool(&document.value, &spaces.value, session.out);
            Ok(())
        }
        PoolCommand::Export(arguments) => {
            let asked = call::<verb::ExportPool>([arguments.pool.as_str()]);
            session.change(&asked, &Simple::default(), arguments.dry.intent()).map(drop)
        }
        PoolCommand::Import(arguments) => pool_import(session, &arguments),
        PoolCommand::Destroy(arguments) => pool_destroy(session, &arguments),
        PoolCommand::Add(arguments) => pool_add(session, &arguments),
        PoolCommand::Remove(arguments) => pool_remove(session, &arguments),
        PoolCommand::Rebalance(arguments) => pool_rebalance(session, &arguments),
        PoolCommand::Set(arguments) => pool_set(session, &arguments),
        PoolCommand::Acknowledge(arguments) => {
            let asked = call::<verb::AcknowledgeErrors>([arguments.pool.as_str()]);
            session.change(&asked, &Simple::default(), arguments.dry.intent()).map(drop)
        }
    }
}

/// Pools on disks that are here and that nobody has opened. Programs find them among the devices.
fn show_others(session: &mut Session<'_, '_>, open: &[Pool]) {
    if session.format != Format::Text {
        return;
    }
    // What was asked for is answered, whether or not the devices can be looked at.
    let devices = session.client.look(&call::<verb::ListDevices>([]));
    devices.iter().for_each(|devices| show_other_pools(&devices.value, open, session.out));
}

fn pool_create(session: &mut Session<'_, '_>, arguments: &PoolCreate) -> Result<(), CliError> {
    let (paths, enclosures) = in_enclosures(&arguments.disks, arguments.enclosure.as_ref());
    let disks = Disks::read(&paths, &arguments.consent.destroy)?;
    let request = |destroy: &[String]| CreatePool {
        name: arguments.pool.to_string(),
        disks: disks.absolute.clone(),
        destroy: destroy.to_vec(),
        fault_domains: arguments.fault_domains.clone(),
        enclosures: enclosures.clone(),
        dry_run: false,
    };
    session.take_in(&call::<verb::CreatePool>([]), &disks, request, arguments.dry.intent()).map(drop)
}

fn pool_remove(session: &mut Session<'_, '_>, arguments: &PoolRemove) -> Result<(), CliError> {
    let word = disk_word(&arguments.disk);
    let (disk, request, intent) =
        ([arguments.pool.as_str(), &word], Simple::default(), arguments.dry.intent());
    let change = match arguments.cancel {
        true => session.change(&call::<verb::CancelRemove>(disk), &request, intent)?,
        false => session.change(&call::<verb::RemoveDisk>(disk), &request, intent)?,
    };
    session.wait_for(&change, &arguments.waiting)
}

fn pool_add(session: &mut Session<'_, '_>, arguments: &PoolAdd) -> Result<(), CliError> {
    let (paths, enclosures) = in_enclosures(&arguments.disks, arguments.enclosure.as_ref());
    let disks = Disks::read(&paths, &arguments.consent.destroy)?;
    let request = |destroy: &[String]| AddDisks {
        disks: disks.absolute.clone(),
        destroy: destroy.to_vec(),
        stays: arguments.stays,
        spare: arguments.spare,
        enclosures: enclosures.clone(),
        dry_run: false,
    };
    let asked = call::<verb::AddDisks>([arguments.pool.as_str()]);
    let change = session.take_in(&asked, &disks, request, arguments.dry.intent())?;
    // The disks are in the pool; what is there may go on moving for hours.
    session.wait_for(&change, &Waiting { no_wait: true })
}

fn pool_rebalance(session: &mut Session<'_, '_>, arguments: &PoolRebalance) -> Result<(), CliError> {
    if arguments.cancel {
        let asked = call::<verb::CancelRebalance>([arguments.pool.as_str()]);
        return session.change(&asked, &Simple::default(), arguments.dry.intent()).map(drop);
    }
    let asked = call::<verb::RebalancePool>([arguments.pool.as_str()]);
    let change = session.change(&asked, &Simple::default(), arguments.dry.intent())?;
    session.wait_for(&change, &arguments.waiting)
}

fn pool_set(session: &mut Session<'_, '_>, arguments: &PoolSet) -> Result<(), CliError> {
    let pool = [arguments.pool.as_str()];
    let survives = arguments.survives;
    let is_drain = arguments.write_cache_fill.is_some() || arguments.write_cache_drain.is_some();
    let drain = is_drain.then(|| DrainWriteCache {
        fill_percent: arguments.write_cache_fill,
        bytes_per_s_max: arguments.write_cache_drain.map(|Rate(rate)| rate.map_or(0, |rate| rate.0)),
        survives,
        dry_run: false,
    });
    let repair_after =
        arguments.repair_after.map(|RepairAfter(seconds)| SetRepairAfter { seconds, dry_run: false });
    let keep_room = arguments.keep_room_for.map(|losses| SetKeepRoom { losses, dry_run: false });
    let alert_at = arguments.alert_at.as_ref();
    let alert_at =
        alert_at.map(|AlertAt(percents)| SetAlertAt { percents: percents.clone(), dry_run: false });
    let resize =
        arguments.write_cache.map(|size| ResizeWriteCache { size_bytes: size.0, survives, dry_run: false });
    let changes = ChangeSequence::default()
        .then::<verb::DrainWriteCache>(pool, drain)?
        .then::<verb::SetRepairAfter>(pool, repair_after)?
        .then::<verb::SetKeepRoom>(pool, keep_room)?
        .then::<verb::SetAlertAt>(pool, alert_at)?
        .then::<verb::ResizeWriteCache>(pool, resize)?;
    let last = session.change_in_sequence(&changes, arguments.dry.intent())?;
    last.map_or(Ok(()), |change| session.wait_for(&change, &arguments.waiting))
}

/// Returns whether a word names a pool: nothing of the kind is there, and it has no slash.
fn is_no_path(path: &Path) -> bool {
    path.components().count() == 1 && !path.is_absolute() && !path.starts_with(".") && !path.exists()
}

/// Lists pools that could be imported, and changes nothing. Programs find them among the devices.
fn list_importable(session: &mut Session<'_, '_>) -> Result<(), CliError> {
    let devices = session.client.look(&call::<verb::ListDevices>([]))?;
    if session.format == Format::Json {
        session.show(&devices, |_, _| {});
        return Ok(());
    }
    let mut pools = session.client.look(&call::<verb::ListPools>([]))?;
    pools.value.pools.retain(|pool| pool.state != dolmen_api::PoolState::Closed);
    let ((), listed) = session.out.gather(|out| show_other_pools(&devices.value, &pools.value.pools, out));
    match listed.is_empty() {
        true => session.out.line(
            "no pool can be imported from the disks that the daemon looks at; name others: dolmen pool import PATH...",
        ),
        false => session.out.show(&listed),
    }
    Ok(())
}

fn pool_import(session: &mut Session<'_, '_>, arguments: &PoolImport) -> Result<(), CliError> {
    let mode = match (arguments.read_only, arguments.confirmed) {
        (true, _) => ImportMode::Read,
        (false, true) => ImportMode::Confirmed,
        (false, false) => ImportMode::Write,
    };
    let (names, paths): (Vec<&PathBuf>, Vec<&PathBuf>) =
        arguments.paths.iter().partition(|path| is_no_path(path));
    let named = arguments.pool.iter().cloned().chain(names.iter().map(|name| name.display().to_string()));
    let named: Vec<String> = named.collect();
    if named.is_empty() && paths.is_empty() {
        return list_importable(session);
    }
    if let [pool, other, ..] = named.as_slice() {
        return Err(CliError::NoPath { name: other.clone(), pool: pool.clone() });
    }
    let request = ImportPool {
        pool: named.into_iter().next(),
        paths: paths.into_iter().map(absolute).collect::<Result<_, _>>()?,
        mode,
        rename: arguments.rename.as_ref().map(ToString::to_string),
        dry_run: false,
    };
    session.change(&call::<verb::ImportPool>([]), &request, arguments.dry.intent()).map(drop)
}

fn pool_destroy(session: &mut Session<'_, '_>, arguments: &PoolDestroy) -> Result<(), CliError> {
    let object = format!("pool {}", arguments.pool);
    let danger = Danger { object: &object, name: arguments.pool.as_str(), alias: None };
    let asked = call::<verb::DestroyPool>([arguments.pool.as_str()]);
    let given = arguments.consent.destroy.as_deref();
    let request = |destroy| Destroy { destroy, dry_run: false };
    session.destroy(&asked, &danger, given, request, arguments.dry.intent()).map(drop)
}

fn disk(session: &mut Session<'_, '_>, command: DiskCommand) -> Result<(), CliError> {
    match command {
        DiskCommand::List(filter) => disk_list(session, &filter),
        DiskCommand::Replace(arguments) => disk_replace(session, &arguments),
        DiskCommand::Online(arguments) => disk_online(session, &arguments),
        DiskCommand::Set(arguments) => disk_set(session, &arguments),
        DiskCommand::Retire(arguments) => disk_retire(session, &arguments),
        DiskCommand::Forget(arguments) => disk_forget(session, &arguments),
        DiskCommand::Offline(arguments) => {
            let word = disk_word(&arguments.disk);
            let asked = call::<verb::OfflineDisk>([arguments.pool.as_str(), &word]);
            session.change(&asked, &Simple::default(), arguments.dry.intent()).map(drop)
        }
        DiskCommand::Locate(arguments) => {
            let word = disk_word(&arguments.disk);
            let asked = call::<verb::LocateDisk>([arguments.pool.as_str(), &word]);
            let request = LocateDisk { off: arguments.off, seconds: arguments.seconds, dry_run: false };
            session.change(&asked, &request, arguments.dry.intent()).map(drop)
        }
    }
}

fn disk_list(session: &mut Session<'_, '_>, filter: &PoolFilter) -> Result<(), CliError> {
    if let Some(pool) = &filter.pool {
        if session.format == Format::Json {
            let document = session.client.look(&call::<verb::ListDisks>([pool.as_str()]))?;
            session.show(&document, |_, _| {});
            return Ok(());
        }
        let document = session.client.look(&call::<verb::ShowPool>([pool.as_str()]))?;
        show_disks(std::iter::once(&document.value.pool), session.out);
        return Ok(());
    }
    let pools = session.client.look(&call::<verb::ListPools>([]))?;
    let devices = session.client.look(&call::<verb::ListDevices>([]))?;
    session.show(&pools, |pools, out| show_disks(pools.pools.iter(), out));
    session.show(&devices, show_devices);
    Ok(())
}

/// Returns the word for a disk that the daemon understands: a path is meant from here, not from the daemon's working folder.
pub(crate) fn disk_word(disk: &str) -> String {
    let is_relative_path = disk.contains('/') && !disk.starts_with('/');
    let absolute = is_relative_path.then(|| absolute(&disk.into()).ok()).flatten();
    absolute.unwrap_or_else(|| disk.to_owned())
}

fn disk_replace(session: &mut Session<'_, '_>, arguments: &DiskReplace) -> Result<(), CliError> {
    let word = disk_word(&arguments.old);
    let disk = [arguments.pool.as_str(), &word];
    let change = if arguments.cancel {
        let asked = call::<verb::CancelReplace>(disk);
        session.change(&asked, &Simple::default(), arguments.dry.intent())?
    } else {
        let disks = Disks::read(arguments.new.as_slice(), &arguments.consent.destroy)?;
        let with = disks.absolute.concat();
        let request = |destroy: &[String]| ReplaceDisk {
            with: with.clone(),
            destroy: destroy.to_vec(),
            dry_run: false,
        };
        session.take_in(&call::<verb::ReplaceDisk>(disk), &disks, request, arguments.dry.intent())?
    };
    session.wait_for(&change, &arguments.waiting)
}

fn disk_online(session: &mut Session<'_, '_>, arguments: &DiskOnline) -> Result<(), CliError> {
    let path = arguments.path.as_ref().map(absolute).transpose()?;
    let request = OnlineDisk { path, dry_run: false };
    let asked = call::<verb::OnlineDisk>([arguments.pool.as_str(), &disk_word(&arguments.disk)]);
    let change = session.change(&asked, &request, arguments.dry.intent())?;
    session.wait_for(&change, &arguments.waiting)
}

fn space(session: &mut Session<'_, '_>, command: SpaceCommand) -> Result<(), CliError> {
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

fn space_create(session: &mut Session<'_, '_>, arguments: &SpaceCreate) -> Result<(), CliError> {
    let request = CreateSpace {
        name: arguments.space.space.to_string(),
        size_bytes: arguments.size.0,
        resiliency: arguments.resiliency.kind(),
        copies: arguments.copies,
        parity: arguments.parity,
        columns: arguments.columns,
        interleave_bytes: arguments.interleave.map(|size| size.0),
        row_bytes: arguments.row.map(|size| size.0),
        provisioning: arguments.provisioning.when(),
        integrity: arguments.strict.then_some(Integrity::Strict),
        sector_bytes: arguments.sector.map(|sector| sector.bytes()),
        dry_run: false,
    };
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
fn wait_for_room(session: &mut Session<'_, '_>, change: &Change, waiting: &Waiting) -> Result<(), CliError> {
    let goes_on = |state| matches!(state, JobState::Waiting | JobState::Running);
    match &change.job {
        Some(job) if goes_on(job.state) => session.wait_for(change, waiting),
        Some(_) | None => Ok(()),
    }
}

fn trash(session: &mut Session<'_, '_>, command: TrashCommand) -> Result<(), CliError> {
    match command {
        TrashCommand::List(filter) => {
            let document = match &filter.pool {
                Some(pool) => session.client.look(&call::<verb::ListTrash>([pool.as_str()]))?,
                None => session.client.look(&call::<verb::ListAllTrash>([]))?,
            };
            session.show(&document, show_trash);
            Ok(())
        }
        TrashCommand::Restore(arguments) => trash_restore(session, &arguments),
        TrashCommand::Purge(arguments) => trash_purge(session, &arguments),
    }
}

fn trash_restore(session: &mut Session<'_, '_>, arguments: &TrashRestore) -> Result<(), CliError> {
    let request = RestoreSpace { name: arguments.name.as_ref().map(ToString::to_string), dry_run: false };
    let asked = call::<verb::RestoreSpace>(space_words(&arguments.space));
    session.change(&asked, &request, arguments.dry.intent()).map(drop)
}

fn trash_purge(session: &mut Session<'_, '_>, arguments: &TrashPurge) -> Result<(), CliError> {
    let pool = match (&arguments.all, arguments.spaces.as_slice()) {
        (Some(pool), _) => pool,
        (None, []) => unreachable!("the command line asks for one of both"),
        (None, [first, others @ ..]) => {
            if let Some(other) = others.iter().find(|other| other.pool != first.pool) {
                return Err(CliError::SeveralPools { one: first.pool.clone(), other: other.pool.clone() });
            }
            &first.pool
        }
    };
    let spaces: Vec<String> = arguments.spaces.iter().map(|one| one.space.to_string()).collect();
    let whole = format!("the trash of pool {pool}");
    let one = match (arguments.all.is_some(), spaces.as_slice()) {
        (false, [meant]) => Some(in_trash(session, pool, meant)?),
        _ => None,
    };
    let danger = match &one {
        Some(one) => Danger { object: &one.object, name: &one.full, alias: Some(&one.name) },
        None => Danger { object: &whole, name: pool.as_str(), alias: None },
    };
    let asked = call::<verb::PurgeTrash>([pool.as_str()]);
    let given = arguments.consent.destroy.as_deref();
    let request = |destroy| PurgeTrash {
        spaces: spaces.clone(),
        all: arguments.all.is_some(),
        destroy,
        dry_run: false,
    };
    let change = session.destroy(&asked, &danger, given, request, arguments.dry.intent())?;
    wait_for_room(session, &change, &arguments.waiting)
}

/// A space in the trash, in words.
struct InTrash {
    object: String,
    full: String,
    name: String,
}

/// The space in the trash that is meant by a name or a number, a name first, as the daemon finds it; it refuses what is not there.
fn in_trash(session: &Session<'_, '_>, pool: &Name, meant: &str) -> Result<InTrash, CliError> {
    let trash = session.client.look(&call::<verb::ListTrash>([pool.as_str()]))?;
    let here = || trash.value.spaces.iter().filter(|space| space.can_be_restored);
    let found = here().find(|space| space.name == meant);
    let found = found.or_else(|| here().find(|space| space.id.to_string() == meant));
    let name = found.map_or(meant, |space| space.name.as_str()).to_owned();
    let full = format!("{pool}/{name}");
    let number = found.map(|space| format!(" (number {})", space.id)).unwrap_or_default();
    Ok(InTrash { object: format!("space {full}{number} in the trash"), full, name })
}

/// Prints the path alone, for scripts, and tells the rest as messages.
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
fn serve(session: &mut Session<'_, '_>, arguments: &ServeArguments) -> Result<(), CliError> {
    let (asked, intent) = (call::<verb::ServeSpace>(space_words(&arguments.space)), arguments.dry.intent());
    let document = session.client.change(&asked, &arguments.request()?, intent)?;
    session.print(document, intent, |change| {
        let export = change.export.as_ref()?;
        let network = export.network.as_ref().filter(|_| arguments.listen.is_some());
        Some(network.map_or_else(|| export.uri.clone(), |network| network.uri.clone()))
    });
    Ok(())
}

fn df(session: &mut Session<'_, '_>, filter: &PoolFilter) -> Result<(), CliError> {
    let pools = match &filter.pool {
        Some(pool) => vec![pool.to_string()],
        None => {
            let document = session.client.look(&call::<verb::ListPools>([]))?;
            let open = document.value.pools.into_iter();
            open.filter(|pool| pool.state != dolmen_api::PoolState::Closed).map(|pool| pool.name).collect()
        }
    };
    if pools.is_empty() && session.format == Format::Text {
        session.out.line("no pool is open");
    }
    for (at, pool) in pools.iter().enumerate() {
        let document = session.client.look(&call::<verb::ShowRoom>([pool]))?;
        if at > 0 && session.format == Format::Text {
            session.out.line("");
        }
        session.show(&document, show_df);
    }
    Ok(())
}

fn jobs(session: &mut Session<'_, '_>, arguments: &JobsArguments) -> Result<(), CliError> {
    match arguments.job {
        Some(job) if arguments.wait => watch(session, job, None)?,
        Some(job) => {
            let document = session.client.look(&call::<verb::ShowJob>([&job.to_string()]))?;
            session.show(&document, show_job);
        }
        None => {
            let document = session.client.look(&call::<verb::ListJobs>([]))?;
            session.show(&document, show_jobs);
        }
    }
    Ok(())
}

fn job(session: &mut Session<'_, '_>, command: &JobCommand) -> Result<(), CliError> {
    let request = Simple::default();
    match command {
        JobCommand::Pause(JobChange { job, dry }) => {
            session.change(&call::<verb::PauseJob>([&job.to_string()]), &request, dry.intent())
        }
        JobCommand::Resume(JobChange { job, dry }) => {
            session.change(&call::<verb::ResumeJob>([&job.to_string()]), &request, dry.intent())
        }
        JobCommand::Stop(JobChange { job, dry }) => {
            session.change(&call::<verb::StopJob>([&job.to_string()]), &request, dry.intent())
        }
        JobCommand::Set(arguments) => return job_set(session, arguments),
    }
    .map(drop)
}

fn job_set(session: &mut Session<'_, '_>, arguments: &JobSet) -> Result<(), CliError> {
    let request = SetJob {
        priority: arguments.priority.map(|priority| match priority {
            PriorityWord::Low => JobPriority::Low,
            PriorityWord::Normal => JobPriority::Normal,
            PriorityWord::High => JobPriority::High,
        }),
        latency_limit_ms: arguments.latency_limit.map(LatencyLimit::ms),
        dry_run: false,
    };
    session
        .change(&call::<verb::SetJob>([&arguments.job.to_string()]), &request, arguments.dry.intent())
        .map(drop)
}

fn why(session: &mut Session<'_, '_>, arguments: &WhyArguments) -> Result<(), CliError> {
    // A path means a file or a device here; all else is a name that the daemon knows.
    let path = Path::new(&arguments.object);
    let is_path = arguments.object.starts_with(['/', '.']);
    let object = if is_path { absolute(&path.to_path_buf())? } else { arguments.object.clone() };
    let document = session.client.look(&call::<verb::ExplainObject>([&object]))?;
    session.show(&document, show_why);
    Ok(())
}

fn scrub(session: &mut Session<'_, '_>, arguments: &ScrubArguments) -> Result<(), CliError> {
    let asked = call::<verb::ScrubPool>([arguments.pool.as_str()]);
    let change = session.change(&asked, &Simple::default(), arguments.dry.intent())?;
    session.wait_for(&change, &arguments.waiting)
}

fn stop(session: &mut Session<'_, '_>, arguments: &StopArguments) -> Result<(), CliError> {
    let request = Shutdown { hand_over: arguments.hand_over, dry_run: false };
    let daemon = daemon_at(session.client.socket());
    session.change(&call::<verb::StopDaemon>([]), &request, arguments.dry.intent())?;
    if arguments.dry.intent() == Intent::DryRun {
        return Ok(());
    }
    // It answers before it has let go of its locks, and the next one would find them taken.
    let looks = STOP_TIMEOUT.as_millis() / session.poll_interval.pause.as_millis().max(1);
    for _ in 0..looks {
        if daemon.is_none() || daemon_at(session.client.socket()) != daemon {
            break;
        }
        session.poll_interval.wait();
    }
    Ok(())
}

/// The version of the command is told also when no daemon answers.
fn version(session: &mut Session<'_, '_>) -> Result<ExitCode, CliError> {
    if session.format == Format::Text {
        session.out.line(format_args!(
            "dolmen {}, API {}",
            env!("CARGO_PKG_VERSION"),
            dolmen_api::API_VERSION
        ));
    }
    let document = session.client.look(&call::<verb::ShowVersion>([]))?;
    session.show(&document, |version, out| {
        out.line(format_args!("daemon {}, API {}", version.daemon, version.api));
    });
    Ok(ExitCode::Ok)
}

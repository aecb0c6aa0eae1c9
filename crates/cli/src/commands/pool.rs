//! `dolmen pool` and `dolmen scrub`.

use std::path::{Path, PathBuf};

use dolmen_api::{
    AddDisks, CreatePool, Destroy, DrainWriteCache, ImportMode, ImportPool, Pool, ResizeWriteCache,
    SetAlertAt, SetKeepRoom, SetRepairAfter, Simple, SlabMapQuery, verb,
};

use crate::arguments::ScrubArguments;
use crate::arguments::common::{Format, Waiting};
use crate::arguments::pool::{
    PoolAdd, PoolCommand, PoolCreate, PoolDestroy, PoolImport, PoolMap, PoolRebalance, PoolRemove,
    PoolResync, PoolSet,
};
use crate::arguments::values::{AlertAt, Rate, RepairAfter};
use crate::commands::disk::{disk_word, in_enclosures};
use crate::confirm::Danger;
use crate::error::CliError;
use crate::session::change::{ChangeSequence, Session};
use crate::session::client::call;
use crate::session::disks::{Disks, absolute};
use crate::terminal::out::Kind;
use crate::views::pools::{show_other_pools, show_pool, show_pools};
use crate::views::slab_map::{LABEL_COLUMNS, show_slab_map};

/// `dolmen pool`
pub(crate) fn pool(session: &mut Session<'_, '_>, command: PoolCommand) -> Result<(), CliError> {
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
        PoolCommand::Map(arguments) => pool_map(session, &arguments),
        PoolCommand::Export(arguments) => {
            let asked = call::<verb::ExportPool>([arguments.pool.as_str()]);
            session.change(&asked, &Simple::default(), arguments.dry.intent()).map(drop)
        }
        PoolCommand::Import(arguments) => pool_import(session, &arguments),
        PoolCommand::Destroy(arguments) => pool_destroy(session, &arguments),
        PoolCommand::Add(arguments) => pool_add(session, &arguments),
        PoolCommand::Remove(arguments) => pool_remove(session, &arguments),
        PoolCommand::Rebalance(arguments) => pool_rebalance(session, &arguments),
        PoolCommand::Resync(arguments) => pool_resync(session, &arguments),
        PoolCommand::Set(arguments) => pool_set(session, &arguments),
        PoolCommand::Acknowledge(arguments) => {
            let asked = call::<verb::AcknowledgeErrors>([arguments.pool.as_str()]);
            session.change(&asked, &Simple::default(), arguments.dry.intent()).map(drop)
        }
    }
}

fn pool_map(session: &mut Session<'_, '_>, arguments: &PoolMap) -> Result<(), CliError> {
    let columns = session.out.columns.filter(|_| session.out.results_kind == Kind::Terminal);
    let fit = columns.and_then(|columns| u64::try_from(columns.saturating_sub(LABEL_COLUMNS)).ok());
    let usual = fit.map_or(SlabMapQuery::CELLS_USUAL, |fit| fit.clamp(1, SlabMapQuery::CELLS_MAX));
    let query = SlabMapQuery { cells: Some(arguments.cells.unwrap_or(usual)) };
    let document = session.client.look_for(&call::<verb::ShowSlabMap>([arguments.pool.as_str()]), &query)?;
    session.show(&document, show_slab_map);
    Ok(())
}

/// Pools on disks that are here and that nobody has opened. Programs find them among the devices.
pub(crate) fn show_others(session: &mut Session<'_, '_>, open: &[Pool]) {
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
        seen: Vec::new(),
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
        seen: Vec::new(),
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

fn pool_resync(session: &mut Session<'_, '_>, arguments: &PoolResync) -> Result<(), CliError> {
    let asked = call::<verb::ResyncPool>([arguments.pool.as_str()]);
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
        accept: arguments.accept,
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

/// `dolmen scrub`
pub(crate) fn scrub(session: &mut Session<'_, '_>, arguments: &ScrubArguments) -> Result<(), CliError> {
    let asked = call::<verb::ScrubPool>([arguments.pool.as_str()]);
    let change = session.change(&asked, &Simple::default(), arguments.dry.intent())?;
    session.wait_for(&change, &arguments.waiting)
}

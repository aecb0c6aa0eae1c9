//! What is there: devices, pools, members, checkpoints, the log, spaces, and slabs where whole disks are read.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dolmen_block_io::{BlockDevice, Seams};
use dolmen_causes::in_one_line;
use dolmen_disk::Contents;
use dolmen_epoch::Owner;
use dolmen_future_pool::pooled;
use dolmen_journal::{LogCopy, Owner as SpanOwner, recover};
use dolmen_pool::areas;
use dolmen_space::{Progress, salvage};
use dolmen_units::{DiskId, PoolId, RowId, SpaceId};
use serde::Serialize;

use crate::gather::{Gathered, Looked, gather, look_at, pools_of};
use crate::open::{Options, RescueMode, TOKEN, checkpoints, is_whole, open};
use crate::point_in_time::PointInTime;
use crate::slabs::{Depth, Survey, survey};

/// What was found on all devices.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ScanReport {
    /// Each device.
    pub devices: Vec<DeviceScan>,
    /// Each pool that labels name.
    pub pools: Vec<PoolScan>,
}

/// A device.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceScan {
    /// What it is called.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// What it holds: `member`, `labels_unusable`, `foreign`, `empty` or `unreadable`.
    pub holds: &'static str,
    /// More of that.
    pub detail: String,
    /// The pool, if a label names it.
    pub pool: Option<String>,
    /// The disk, if a label names it.
    pub disk: Option<String>,
    /// The newest epoch that it knows to have been in force.
    pub epoch: Option<u64>,
    /// What is wrong with copies of its label.
    pub damage: Vec<String>,
    /// Headers of slabs on it, by pool, where it was read as a whole.
    pub slabs: Vec<SlabsScan>,
    /// Bytes that could not be read of it, where it was read as a whole.
    pub unreadable_bytes: u64,
}

/// Headers of slabs of a space on a device.
#[derive(Debug, Clone, Serialize)]
pub struct SlabsScan {
    /// The pool that they name.
    pub pool: String,
    /// The disk that they name.
    pub disk: String,
    /// The space.
    pub space: u64,
    /// What the space is for: `people`, `shadows`, `conversion_shadows` or `write_cache`.
    pub purpose: &'static str,
    /// How many.
    pub count: u64,
    /// Rows that they are of, each incarnation by itself.
    pub rows: u64,
    /// The newest epoch in which one was written.
    pub newest_epoch: u64,
}

/// A pool.
#[derive(Debug, Clone, Serialize)]
pub struct PoolScan {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The epoch that counts.
    pub epoch: u64,
    /// The host that has it, or `nobody`.
    pub owner: String,
    /// Its members.
    pub members: Vec<MemberScan>,
    /// Checkpoints of its map, newest last.
    pub checkpoints: Vec<CheckpointScan>,
    /// Its spaces at present.
    pub spaces: Vec<SpaceScan>,
    /// Why it cannot be opened as a daemon would, and what else may do.
    pub unopenable: Option<String>,
    /// What else there is to know.
    pub notes: Vec<String>,
}

/// A member of a pool.
#[derive(Debug, Clone, Serialize)]
pub struct MemberScan {
    /// Its place among the members.
    pub slot: u16,
    /// Its id.
    pub disk: String,
    /// Its size when it was claimed.
    pub bytes: u64,
    /// The device that it is, if it is here.
    pub device: Option<String>,
    /// Whether log and map are on it.
    pub votes: bool,
    /// The first epoch without it, if it had left.
    pub left: Option<u64>,
}

/// A checkpoint of a map.
#[derive(Debug, Clone, Serialize)]
pub struct CheckpointScan {
    /// Its number.
    pub sequence: u64,
    /// On how many disks its block is.
    pub disks: usize,
    /// Keys in its map.
    pub entries: u64,
    /// Whether each page of its map can be read.
    pub is_whole: bool,
    /// What is the matter with the map.
    pub why_not: Option<String>,
    /// The log from it on.
    pub log: Option<LogScan>,
}

/// The log from a checkpoint on.
#[derive(Debug, Clone, Serialize)]
pub struct LogScan {
    /// The first LSN that is needed.
    pub from: u64,
    /// The LSN behind the last.
    pub to: u64,
    /// Up to where a flush has covered what it says.
    pub durable_mark: u64,
    /// Whether all of it is there.
    pub is_whole: bool,
    /// What is missing.
    pub damage: Vec<String>,
}

/// A space.
#[derive(Debug, Clone, Serialize)]
pub struct SpaceScan {
    /// Its id.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// How it survives the loss of disks.
    pub resiliency: String,
    /// Rows that it has.
    pub rows: u64,
}

/// Tells what is there.
#[pooled]
pub async fn scan(
    seams: &Seams,
    devices: &[Rc<dyn BlockDevice>],
    depth: Depth,
    progress: &Progress,
) -> ScanReport {
    let looked = look_at(seams, devices).await;
    let mut report = ScanReport { devices: looked.iter().map(device_of).collect(), pools: Vec::new() };
    for (id, name) in pools_of(&looked) {
        report.pools.push(pool_of(seams, devices, &looked, (id, name.unwrap_or_default())).await);
    }
    if depth == Depth::WholeDisks {
        progress.total.set(devices.iter().map(|device| device.geometry().capacity.0).sum());
        for (device, of) in devices.iter().zip(&mut report.devices) {
            let survey = survey(seams, device, progress).await;
            of.unreadable_bytes = survey.unreadable;
            of.slabs = slabs_of(&survey);
        }
    }
    report
}

fn device_of(looked: &Looked) -> DeviceScan {
    let mut of = DeviceScan {
        name: looked.device.name(),
        bytes: looked.device.geometry().capacity.0,
        holds: "empty",
        detail: String::new(),
        pool: None,
        disk: None,
        epoch: None,
        damage: Vec::new(),
        slabs: Vec::new(),
        unreadable_bytes: 0,
    };
    match &looked.contents {
        Ok(Contents::Member { label, copies, damage }) => {
            of.holds = "member";
            let places = if *copies == 1 { "copy" } else { "copies" };
            of.detail = format!("{copies} sound {places} of its newest label, number {}", label.sequence);
            of.pool = Some(label.pool.to_string());
            of.disk = Some(label.disk.to_string());
            of.epoch = Some(label.base.epoch.number().0);
            of.damage = damage.iter().map(|error| in_one_line(error)).collect();
        }
        Ok(Contents::Unusable(error)) => (of.holds, of.detail) = ("labels_unusable", in_one_line(error)),
        Ok(Contents::Foreign(what)) => (of.holds, of.detail) = ("foreign", what.to_string()),
        Ok(Contents::Empty) => {}
        Err(error) => (of.holds, of.detail) = ("unreadable", error.clone()),
    }
    of
}

#[pooled]
async fn pool_of(
    seams: &Seams,
    devices: &[Rc<dyn BlockDevice>],
    looked: &[Looked],
    (id, name): (PoolId, String),
) -> PoolScan {
    let wanted = id.to_string();
    let mut of = PoolScan {
        id: wanted.clone(),
        name,
        epoch: 0,
        owner: String::new(),
        members: Vec::new(),
        checkpoints: Vec::new(),
        spaces: Vec::new(),
        unopenable: None,
        notes: Vec::new(),
    };
    let gathered = match gather(seams, looked, Some(&wanted)).await {
        Ok(gathered) => gathered,
        Err(error) => {
            of.unopenable = Some(in_one_line(&error));
            return of;
        }
    };
    note_members(&gathered, &mut of);
    for (sequence, blocks) in checkpoints(seams, &gathered).await {
        let entries = blocks.first().map_or(0, |block| block.entries);
        of.checkpoints.push(checkpoint_of(seams, looked, &wanted, (sequence, blocks.len(), entries)).await);
    }
    let options = Options { pool: Some(wanted), mode: RescueMode::Present, space: None };
    match open(seams, devices, &options, &Progress::default()).await {
        Ok(rescued) => {
            debug_assert_eq!(rescued.point_in_time, PointInTime::Present);
            for space in rescued.list().await {
                of.spaces.push(SpaceScan {
                    id: space.id.0,
                    name: space.name,
                    bytes: space.size.0,
                    resiliency: space.resiliency.to_string(),
                    rows: space.rows,
                });
            }
            of.notes = rescued.notes.iter().map(|note| note.0.clone()).collect();
            rescued.close().await;
        }
        Err(error) => {
            of.notes = gathered.notes.iter().map(|note| note.0.clone()).collect();
            of.unopenable = Some(in_one_line(&error));
        }
    }
    of
}

fn note_members(gathered: &Gathered, of: &mut PoolScan) {
    let newest = gathered.candidates.iter().max_by_key(|candidate| candidate.label.base.epoch.id());
    let Some(base) = newest.map(|candidate| &candidate.label.base) else { return };
    of.epoch = base.epoch.number().0;
    of.owner = match base.epoch.owner() {
        Owner::Host(host) => host.to_string(),
        Owner::Exported => "nobody".to_owned(),
    };
    for member in &base.members {
        let here = gathered.candidates.iter().find(|candidate| candidate.label.disk == member.disk);
        of.members.push(MemberScan {
            slot: member.slot.0,
            disk: member.disk.to_string(),
            bytes: member.capacity.0,
            device: here.map(|candidate| candidate.device.name()),
            votes: base.epoch.voters().contains(&member.disk),
            left: member.is_away().then_some(member.left.0),
        });
    }
}

#[pooled]
async fn checkpoint_of(
    seams: &Seams,
    looked: &[Looked],
    wanted: &str,
    (sequence, disks, entries): (u64, usize, u64),
) -> CheckpointScan {
    let mut of = CheckpointScan { sequence, disks, entries, is_whole: false, why_not: None, log: None };
    // Each is looked at behind overlays of its own.
    let gathered = match gather(seams, looked, Some(wanted)).await {
        Ok(gathered) => gathered,
        Err(error) => {
            of.why_not = Some(in_one_line(&error));
            return of;
        }
    };
    match is_whole(seams, gathered, sequence).await {
        Ok((need, gathered)) => {
            of.is_whole = true;
            of.log = log_of(seams, &gathered, need).await;
        }
        Err(why) => of.why_not = Some(why),
    }
    of
}

#[pooled]
async fn log_of(seams: &Seams, gathered: &Gathered, need: dolmen_pool::LogNeed) -> Option<LogScan> {
    let sources = gathered.sources();
    let first = sources.first()?;
    let (ring, _) = areas(first.label.log, first.label.pages);
    let spans = gathered.newest()?.spans();
    let spans: Vec<SpanOwner> =
        spans.iter().map(|span| SpanOwner { epoch: span.epoch, first: span.first }).collect();
    let copy =
        |one: &&dolmen_pool::Candidate| LogCopy { disk: one.label.disk, device: Rc::clone(&one.device) };
    let copies: Vec<LogCopy> = sources.iter().map(copy).collect();
    let mut of =
        LogScan { from: need.from.lsn.0, to: 0, durable_mark: 0, is_whole: false, damage: Vec::new() };
    match recover(seams, TOKEN, first.label.pool, ring, &copies, need.from, &spans).await {
        Ok(recovered) => {
            of.to = recovered.next().lsn.0;
            of.durable_mark = recovered.durable_mark().0;
            of.damage = recovered.damage().iter().map(ToString::to_string).collect();
            of.is_whole = of.damage.is_empty();
        }
        Err(error) => of.damage = vec![in_one_line(&error)],
    }
    Some(of)
}

/// What headers say that name the same pool, disk and space.
#[derive(Default)]
struct SameOrigin {
    count: u64,
    rows: BTreeSet<RowId>,
    newest_epoch: u64,
}

fn slabs_of(survey: &Survey) -> Vec<SlabsScan> {
    let mut found: BTreeMap<(PoolId, DiskId, SpaceId), SameOrigin> = BTreeMap::new();
    for (_, header) in &survey.headers {
        let of = found.entry((header.pool, header.disk, header.space)).or_default();
        of.count += 1;
        of.rows.insert(header.row);
        of.newest_epoch = of.newest_epoch.max(header.epoch.0);
    }
    let purpose = |id| match salvage::purpose_of(id) {
        salvage::Purpose::People => "people",
        salvage::Purpose::ShadowRows(_) => "shadow_rows",
        salvage::Purpose::ConversionShadows(_) => "conversion_shadows",
        salvage::Purpose::WriteCache(_) => "write_cache",
    };
    let slabs = found.into_iter().map(|((pool, disk, space), of)| SlabsScan {
        pool: pool.to_string(),
        disk: disk.to_string(),
        space: space.0,
        purpose: purpose(space),
        count: of.count,
        rows: of.rows.len() as u64,
        newest_epoch: of.newest_epoch,
    });
    slabs.collect()
}

//! The steps of a check: labels, then each pool opened behind overlays, its map, its content.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::rc::Rc;

use dolmen_block_io::{BlockDevice, Seams};
use dolmen_causes::in_one_line;
use dolmen_disk::{Contents, look};
use dolmen_future_pool::pooled;
use dolmen_pool::{Candidate, MemoryArbiter, OpenMode, OpenOptions, Opened, Pool, PoolError, keys, open};
use dolmen_space::{
    DataLossKind, HEADERS_NAMED_MAX, Progress, Space, SpaceRange, Spaces, Verification, WrongHeader,
};
use dolmen_units::{BLOCK_BYTES, Bytes, DiskSlot, Epoch, HostId, Name, PoolId, RowId, SpaceId};

use crate::finding::{Finding, FindingKind};
use crate::overlay::Overlay;

/// Findings that are listed, at most; more are counted.
pub const FINDINGS_MAX: usize = 1000;

/// Rows whose content is read side by side: nobody else wants the disks, and one row alone has one read under way.
const ROWS_AT_A_TIME: NonZeroUsize = NonZeroUsize::MIN.saturating_add(7);

/// How much is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Labels, metadata and the map.
    Map,
    /// Every block of every copy as well.
    Content,
}

/// How to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckOptions {
    /// How much is read.
    pub depth: Depth,
}

/// Why there was nothing to check.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// None of the devices belongs to a pool.
    #[error("none of the {count} devices given belongs to a pool; name the disks of a pool")]
    NoPool {
        /// How many were looked at.
        count: usize,
    },
}

/// What was checked of one pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolReport {
    /// Its name.
    pub name: Name,
    /// Its identity.
    pub id: PoolId,
    /// Disks that were given.
    pub disk_count: usize,
    /// Spaces on it.
    pub space_count: usize,
    /// Blocks whose copies were all read and compared with their checksums.
    pub verified: Bytes,
    /// Records that no flush had covered, so that recovery had to decide about them, in memory: none where the pool was closed.
    pub replayed_count: usize,
}

/// What came of a check.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// The pools, by identity.
    pub pools: Vec<PoolReport>,
    /// What was found, at most [`FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// What was found beyond that.
    pub more_count: u64,
}

impl Report {
    /// Whether all is as it should be.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.more_count == 0
    }

    fn add(&mut self, pool: Option<&Name>, kind: FindingKind) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { pool: pool.cloned(), kind });
        } else {
            self.more_count += 1;
        }
    }
}

/// Checks every pool on the devices. The devices are only read; progress counts rows and bytes of content.
///
/// # Errors
/// [`CheckError`] when there is nothing to check. Whatever is wrong with a pool is a finding.
#[pooled]
pub async fn check(
    seams: Seams,
    devices: Vec<Rc<dyn BlockDevice>>,
    options: CheckOptions,
    progress: Rc<Progress>,
) -> Result<Report, CheckError> {
    let mut report = Report::default();
    let mut pools: BTreeMap<PoolId, Vec<Candidate>> = BTreeMap::new();
    for device in &devices {
        let device = Overlay::new(Rc::clone(device), Rc::clone(&seams.spawner)) as Rc<dyn BlockDevice>;
        if let Some(candidate) = check_labels(&seams, device, &mut report).await {
            pools.entry(candidate.label.pool).or_default().push(candidate);
        }
    }
    let is_damaged = |finding: &Finding| !matches!(finding.kind, FindingKind::NoMember { .. });
    if pools.is_empty() && !report.findings.iter().any(is_damaged) {
        return Err(CheckError::NoPool { count: devices.len() });
    }
    for (id, candidates) in pools {
        check_pool(&seams, id, candidates, options, &progress, &mut report).await;
    }
    Ok(report)
}

/// Looks at the labels of a device; the device with its label if it is a member.
#[pooled]
async fn check_labels(seams: &Seams, device: Rc<dyn BlockDevice>, report: &mut Report) -> Option<Candidate> {
    let disk = device.name();
    match look(seams, device.as_ref()).await {
        Ok(Contents::Member { label, damage, .. }) => {
            for error in damage {
                let kind = FindingKind::LabelDamaged { disk: disk.clone(), cause: in_one_line(&error) };
                report.add(Some(&label.pool_name), kind);
            }
            return Some(Candidate { device, label: *label, lost_labels: Vec::new() });
        }
        Ok(Contents::Unusable(error)) => {
            report.add(None, FindingKind::LabelsUnusable { disk, cause: in_one_line(&error) });
        }
        Ok(Contents::Empty) => {
            report.add(None, FindingKind::NoMember { disk, what: "it is empty".to_owned() })
        }
        Ok(Contents::Foreign(what)) => {
            report.add(None, FindingKind::NoMember { disk, what: format!("it holds {what}") });
        }
        Err(error) => report.add(None, FindingKind::Unreadable { disk, cause: in_one_line(&error) }),
    }
    None
}

#[pooled]
async fn check_pool(
    seams: &Seams,
    id: PoolId,
    candidates: Vec<Candidate>,
    options: CheckOptions,
    progress: &Progress,
    report: &mut Report,
) {
    let Some(name) = candidates.first().map(|candidate| candidate.label.pool_name.clone()) else { return };
    let mut pool = PoolReport {
        name: name.clone(),
        id,
        disk_count: candidates.len(),
        space_count: 0,
        verified: Bytes::ZERO,
        replayed_count: 0,
    };
    match start(seams, candidates, &mut pool).await {
        Err(cause) => report.add(Some(&name), FindingKind::Unopenable { cause }),
        Ok((spaces, missed_writes)) => {
            pool.space_count = spaces.list().len();
            check_members(&spaces, &name, report);
            check_map(&spaces, &missed_writes, &name, report).await;
            if options.depth == Depth::Content {
                pool.verified = check_content(&spaces, &name, progress, report).await;
            }
        }
    }
    report.pools.push(pool);
}

/// Opens the pool as its own host would, in memory: nobody else is asked, because nothing is written.
async fn start(
    seams: &Seams,
    candidates: Vec<Candidate>,
    pool: &mut PoolReport,
) -> Result<(Rc<Spaces>, MissedWrites), String> {
    let arbiter = MemoryArbiter::new(HostId(seams.entropy.next_id()));
    let options = OpenOptions { mode: OpenMode::Confirmed };
    let opened: Opened =
        open(seams, arbiter, candidates, &options).await.map_err(|error| in_one_line(&error))?;
    pool.replayed_count = opened.blocks.iter().filter(|record| !record.durable).count();
    let missed_writes = MissedWrites::on_record(&opened.pool).await.map_err(|error| in_one_line(&error))?;
    let spaces = Spaces::start(opened).await.map_err(|error| in_one_line(&error))?;
    Ok((spaces, missed_writes))
}

/// A row with a slab that missed writes, and the disk on which it lies.
type Missed = (DiskSlot, RowId);

/// What disks have missed. Whoever opens a pool notes that of all disks that he was not given, whatever is decided of a row
/// then; but of those that were in use until the pool was used last, nothing is known to be missed.
struct MissedWrites {
    /// What stood on record before this opening.
    recorded: BTreeSet<Missed>,
    /// The epoch of this opening. Disks that left with it were not given, and took part until then.
    epoch: Epoch,
}

impl MissedWrites {
    async fn on_record(pool: &Pool) -> Result<Self, PoolError> {
        Ok(Self { recorded: missed_writes(pool).await?, epoch: pool.epoch().number })
    }

    /// How many rows have a slab that missed writes, those not counted that only a disk is missing of.
    async fn rows(&self, pool: &Pool) -> Result<usize, PoolError> {
        let is_not_given = |slot: DiskSlot| pool.disk(slot).is_some_and(|d| d.member().left >= self.epoch);
        let mut missed = missed_writes(pool).await?;
        missed.retain(|one| self.recorded.contains(one) || !is_not_given(one.0));
        let rows: BTreeSet<RowId> = missed.iter().map(|(_, row)| *row).collect();
        Ok(rows.len())
    }
}

async fn missed_writes(pool: &Pool) -> Result<BTreeSet<Missed>, PoolError> {
    let found = pool.map().scan(keys::all(keys::Kind::Stale), usize::MAX).await?;
    let missed = found.iter().map(|(key, _)| keys::parts(key));
    Ok(missed.map(|(slot, row, _)| (DiskSlot(slot), RowId(row))).collect())
}

/// Members that are not here. A disk that is being emptied is here like any other.
fn check_members(spaces: &Spaces, name: &Name, report: &mut Report) {
    for disk in spaces.pool().disks() {
        if !disk.is_present() {
            let missing = FindingKind::Missing { slot: disk.slot(), id: disk.id() };
            let unusable = |cause| FindingKind::Unreadable { disk: disk.name(), cause };
            report.add(Some(name), disk.absence().unfit().map_or(missing, unusable));
        }
    }
}

async fn check_map(spaces: &Spaces, missed_writes: &MissedWrites, name: &Name, report: &mut Report) {
    match spaces.scrubs().check_map().await {
        Ok(found) => found.into_iter().for_each(|what| report.add(Some(name), FindingKind::Map { what })),
        Err(error) => report.add(Some(name), cut("the map", &error)),
    }
    match missed_writes.rows(spaces.pool()).await {
        Ok(0) => {}
        Ok(rows) => report.add(Some(name), FindingKind::Stale { rows: rows as u64 }),
        Err(error) => report.add(Some(name), cut("what disks have missed", &error)),
    }
}

/// Reads every block of every copy, tables and headers of slabs. What is healed on the way is healed in memory, and counted.
#[pooled]
async fn check_content(spaces: &Spaces, name: &Name, progress: &Progress, report: &mut Report) -> Bytes {
    let seen = match spaces.scrubs().verify_together(progress, ROWS_AT_A_TIME).await {
        Ok(seen) => seen,
        Err(error) => {
            report.add(Some(name), cut("the content of spaces", &error));
            Verification::default()
        }
    };
    for disk in spaces.pool().disks() {
        let seen = disk.counters();
        if seen.checksum_errors > 0 || seen.read_errors > 0 {
            let (blocks, errors) = (seen.checksum_errors, seen.read_errors);
            report.add(Some(name), FindingKind::Damaged { disk: disk.name(), blocks, errors });
        }
    }
    for header in seen.headers {
        let WrongHeader { space, row, column, disk, fault, .. } = header;
        report
            .add(Some(name), FindingKind::HeaderWrong { disk, space, row, column, cause: fault.to_string() });
    }
    report.more_count += seen.header_count.saturating_sub(HEADERS_NAMED_MAX as u64);
    let spaces_by_id: BTreeMap<SpaceId, Space> =
        spaces.kept().into_iter().map(|space| (space.id(), space)).collect();
    // One in the trash may have the name of another: the larger size is what both may have lost.
    let mut kept = spaces.kept();
    kept.sort_by_key(|space| space.size());
    let sizes: Sizes = kept.iter().map(|space| (space.name(), space.size().0)).collect();
    for SpaceRange { space, at, length } in within(seen.lost, &sizes) {
        report.add(Some(name), FindingKind::Lost { space, at, length });
    }
    for kind in sums_out_of_reach(within(seen.out_of_reach, &sizes)) {
        report.add(Some(name), kind);
    }
    for incident in spaces.data_loss_events() {
        let Some(space) = spaces_by_id.get(&incident.space) else { continue };
        let range = SpaceRange { space: space.name(), at: incident.at, length: incident.length };
        let Some(SpaceRange { space, at, length }) = within([range], &sizes).next() else { continue };
        match incident.kind {
            DataLossKind::AcceptedUnverified => {
                report.add(Some(name), FindingKind::AcceptedUnverified { space, at, length })
            }
            DataLossKind::TableLost => report.add(Some(name), FindingKind::TableLost { space, at, length }),
            // Listed above, joined to ranges.
            DataLossKind::Lost | DataLossKind::CorruptHere => {}
        }
    }
    Bytes(seen.blocks * BLOCK_BYTES)
}

/// The sizes of spaces.
type Sizes = BTreeMap<Name, u64>;

/// Ranges up to the end of their spaces: the last row of a space may go on behind it, where nobody has written anything.
fn within(ranges: impl IntoIterator<Item = SpaceRange>, sizes: &Sizes) -> impl Iterator<Item = SpaceRange> {
    ranges.into_iter().filter_map(|SpaceRange { space, at, length }| {
        let size = sizes.get(&space).copied().unwrap_or(u64::MAX);
        let length = Bytes(length.0.min(size.saturating_sub(at)));
        (length.0 > 0).then_some(SpaceRange { space, at, length })
    })
}

/// What is out of reach, a sum for each space: of a space that is laid over several disks, one that is missing has a piece
/// in every stripe.
fn sums_out_of_reach(ranges: impl Iterator<Item = SpaceRange>) -> Vec<FindingKind> {
    let mut of_spaces: BTreeMap<Name, Vec<SpaceRange>> = BTreeMap::new();
    ranges.for_each(|range| of_spaces.entry(range.space.clone()).or_default().push(range));
    let sum = |(space, ranges): (Name, Vec<SpaceRange>)| FindingKind::OutOfReach {
        space,
        length: Bytes(ranges.iter().map(|range| range.length.0).sum()),
        pieces: ranges.len(),
        at: ranges.iter().map(|range| range.at).min().unwrap_or(0),
        end: ranges.iter().map(|range| range.at + range.length.0).max().unwrap_or(0),
    };
    of_spaces.into_iter().map(sum).collect()
}

fn cut(what: &'static str, error: &dyn std::error::Error) -> FindingKind {
    FindingKind::Cut { what, cause: in_one_line(error) }
}

//! Opening a pool from its disks.
//!
//! Order: labels are read and judged; the map is read through any voter; the log of every present voter is read and its
//! union taken. Up to here nothing is written. To write, every present voter is brought to that union, and members without a
//! vote get a later label, which the new epoch names. Then that epoch is installed (labels of all its voters, then the
//! arbiter), then the log's first batch of the epoch names the holes.
//! A crash anywhere before the new epoch is in force leaves the old one and a log that reads the same.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sync::join_all;
use dolmen_block_io::{DeviceError, Seams, flush, within};
use dolmen_disk::{
    Contents, Extent, ExtentError, Generation, Label, LabelIoError, Member, look, write_label,
};
use dolmen_epoch::{
    Decision, DiskView, EpochRecord, Kind, Owner, ReadOnlyReason, Successor, labels_before_record, next,
};
use dolmen_future_pool::pooled;
use dolmen_journal::{Class, Log, LogCopy, Place, Recovered, Wait, recover};
use dolmen_mutation::mutation;
use dolmen_store::{Replica, Store, StoreOptions};
use dolmen_units::{DiskId, Epoch, Lsn, Name, PoolId};

use crate::arbiter::{Arbiter, HostRecord};
use crate::disks::discover::Candidate;
use crate::disks::disk::Disk;
use crate::disks::prepare::{areas, metadata_needed};
use crate::epochs::change::mark_absent;
use crate::epochs::labels::KnownLabels;
use crate::epochs::watch::{check_labelled, hold, watch};
use crate::error::{OpenError, PoolError, StrayReason};
use crate::keys;
use crate::log::blocks::{RECORD_BLOCKS, RECORD_META, RECORD_OPEN, RecordedBlocks, RecoveredBlock};
use crate::log::blocks::{blocks_of, spans_of};
use crate::log::need::LogNeed;
use crate::log::pool_log::PoolState;
use crate::members::entries::{
    Named, generation_of, labels_of, members_of, raise, raised, sequence_after, stray_reason,
};
use crate::members::identity::Identity;
use crate::membership::growth::{decode_units, extent_with};
use crate::metadata::edits::decode_edits;
use crate::metadata::map::Purpose;
use crate::opening::pool::{FoundState, Pool};
use crate::room::free_map::{FreeMap, Run};

/// Pages of the metadata map that are kept in memory, at most: 64 MiB.
const CACHE_PAGES_MAX: usize = 4096;
/// How long an opening waits for the label of a member without a vote: one that hangs holds up no opening.
const RENEW_TIMEOUT: Duration = Duration::from_secs(10);
/// Entries that one step of a scan reads.
const SCAN_STEP: usize = 1024;

/// What an opening is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// To use it; refused when the rule of epochs forbids writing.
    Write,
    /// To look, without changing anything.
    Read,
    /// To use it although the rule forbids it: somebody confirmed that the rest of the pool lives on nowhere else.
    Confirmed,
}

/// How to open a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// What for.
    pub mode: OpenMode,
}

/// A pool that was opened, and what the space above has to recover before anything is served.
#[derive(Debug)]
pub struct Opened {
    /// The pool.
    pub pool: Rc<Pool>,
    /// Records of blocks in the live log, in order.
    pub blocks: Vec<RecoveredBlock>,
    /// Why it may not be written, if so.
    pub read_only: Option<ReadOnlyReason>,
}

/// Opens the pool that the candidates belong to.
///
/// # Errors
/// [`OpenError`]. Nothing is written unless installing the new epoch itself failed.
#[pooled]
pub async fn open(
    seams: &Seams,
    arbiter: Rc<dyn Arbiter>,
    candidates: Vec<Candidate>,
    options: &OpenOptions,
) -> Result<Opened, OpenError> {
    open_in(seams, arbiter, candidates, options.mode, None).await
}

/// Opens a pool that was just made: nobody else knows of it.
///
/// # Errors
/// As [`open`].
pub(crate) async fn open_new(
    seams: &Seams,
    arbiter: Rc<dyn Arbiter>,
    candidates: Vec<Candidate>,
) -> Result<Opened, OpenError> {
    open_in(seams, arbiter, candidates, OpenMode::Write, Some(Company::Alone)).await
}

#[pooled]
async fn open_in(
    seams: &Seams,
    arbiter: Rc<dyn Arbiter>,
    candidates: Vec<Candidate>,
    mode: OpenMode,
    known: Option<Company>,
) -> Result<Opened, OpenError> {
    let chosen = match mode {
        OpenMode::Read => choose_to_read(seams, &*arbiter, candidates).await?,
        OpenMode::Write | OpenMode::Confirmed => choose(&*arbiter, candidates, mode).await?,
    };
    let Choice {
        name,
        candidates,
        unfit,
        left_out,
        build_on,
        members,
        highest,
        read_only,
        company,
        recorded,
    } = chosen;
    let company = known.unwrap_or(company);
    let confirmed = read_only.is_some();
    if company == Company::Unknown && mode != OpenMode::Read {
        watch(seams, &candidates).await?;
    }
    let named = members.iter().map(|member| (member.disk, member.sequence)).collect();
    let opening = Opening {
        seams,
        name,
        arbiter,
        candidates,
        left_out,
        build_on,
        named,
        unlabelled: BTreeSet::new(),
        highest,
        confirmed,
        company,
        recorded,
    };
    let strays = opening.left_out.clone();
    let opened = match mode {
        OpenMode::Read => opening.read(read_only.as_ref()).await,
        OpenMode::Write | OpenMode::Confirmed => opening.write().await,
    };
    let (pool, blocks) = opened.map_err(|error| match unfit.first() {
        Some(first) if matches!(error, OpenError::NoMetadata { .. }) => first.error(),
        _ => error,
    })?;
    for one in unfit {
        tracing::warn!(pool = %pool.name(), disk = %one.name, error = %one.source, "a disk is left out");
        if let Some(disk) = pool.disks().into_iter().find(|disk| disk.id() == one.disk) {
            disk.note_unfit(one.name, &one.source);
        }
    }
    for one in strays {
        tracing::warn!(pool = %pool.name(), disk = %one.name, why = %one.why, "a disk is left out");
        if let Some(disk) = pool.disks().into_iter().find(|disk| disk.id() == one.disk) {
            disk.note_unfit(one.name, &one.why);
            if one.why.is_old() {
                disk.absence().note_old();
            }
        }
    }
    Ok(Opened { pool, blocks, read_only })
}

/// What opening a pool would come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreseen {
    /// The disks that would be used, as they are called.
    pub used: Vec<String>,
    /// Those that would not, and why.
    pub left_out: Vec<(String, String)>,
    /// How many disks the pool has, those included that are not here.
    pub members: usize,
}

/// What [`open`] would come to with these candidates, without touching any.
///
/// # Errors
/// As [`open`], as far as labels tell.
#[pooled]
pub async fn foresee(
    arbiter: &dyn Arbiter,
    candidates: Vec<Candidate>,
    options: &OpenOptions,
) -> Result<Foreseen, OpenError> {
    let choice = choose(arbiter, candidates, options.mode).await?;
    let generations = choice.candidates.iter().filter_map(|one| generation_of(&one.label, &choice.build_on));
    let members =
        generations.map(|generation| generation.members.len()).max().unwrap_or(choice.candidates.len());
    let unfit = choice.unfit.into_iter().map(|one| (one.name, one.source.to_string()));
    let strays = choice.left_out.into_iter().map(|one| (one.name, one.why.to_string()));
    let used = choice.candidates.iter().map(|candidate| candidate.device.name()).collect();
    Ok(Foreseen { used, left_out: unfit.chain(strays).collect(), members })
}

/// Which of the candidates make the pool, and what it is built on.
struct Choice {
    name: Name,
    candidates: Vec<Candidate>,
    unfit: Vec<Unfit>,
    left_out: Vec<Stray>,
    build_on: EpochRecord,
    /// Its members, each with the newest label that a disk at hand names for it.
    members: Vec<Member>,
    highest: Epoch,
    read_only: Option<ReadOnlyReason>,
    company: Company,
    recorded: Option<HostRecord>,
}

/// Whether another host may be at the disks that an opening is about to write to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Company {
    /// This host's record names the epoch that they are in: nobody has opened the pool since.
    Alone,
    Unknown,
}

/// As [`choose`], of a pool that may be open for writing elsewhere: a label that was read before a stamp, and the voters' labels
/// from after it, make a sound disk look old. So where a disk is left out, and labels have changed since, they are read once more.
#[pooled]
async fn choose_to_read(
    seams: &Seams,
    arbiter: &dyn Arbiter,
    candidates: Vec<Candidate>,
) -> Result<Choice, OpenError> {
    let chosen = choose(arbiter, candidates.clone(), OpenMode::Read).await;
    if chosen.as_ref().is_ok_and(|chosen| chosen.left_out.is_empty() && chosen.read_only.is_none()) {
        return chosen;
    }
    let again = join_all(candidates.iter().map(|candidate| look_again(seams, candidate))).await;
    let is_changed =
        again.iter().zip(&candidates).any(|(again, before)| again.label.sequence != before.label.sequence);
    if is_changed { choose(arbiter, again, OpenMode::Read).await } else { chosen }
}

/// Returns a candidate with the label that its disk has now, or as it is where that cannot be read.
async fn look_again(seams: &Seams, candidate: &Candidate) -> Candidate {
    match look(seams, candidate.device.as_ref()).await {
        Ok(Contents::Member { label, .. }) if label.disk == candidate.label.disk => {
            Candidate { label: *label, ..candidate.clone() }
        }
        _ => candidate.clone(),
    }
}

#[pooled]
async fn choose(
    arbiter: &dyn Arbiter,
    candidates: Vec<Candidate>,
    mode: OpenMode,
) -> Result<Choice, OpenError> {
    let first = candidates.first().ok_or(OpenError::NoDisks)?;
    let (pool, name) = (first.label.pool, first.label.pool_name.clone());
    check_candidates(&candidates)?;
    let views: Vec<DiskView> = candidates.iter().map(view_of).collect();
    let (candidates, unfit) = without_unfit(candidates)?;
    let record = arbiter.named(pool).await?;
    let named = record.as_ref().map(|record| record.epoch);
    let (build_on, highest, mut read_only) = match dolmen_epoch::decide(arbiter.host(), named, &views) {
        Decision::Write { build_on, highest } => (build_on, highest, None),
        Decision::ReadOnly { newest, highest, reason } => (newest, highest, Some(reason)),
        Decision::Nothing => return Err(OpenError::NoMetadata { name }),
    };
    let labels =
        candidates.iter().map(|candidate| &candidate.label).chain(unfit.iter().map(|one| &one.label));
    let mut members = members_of(labels, &build_on);
    // Labels of another epoch say nothing of this one.
    let of_epoch = record.as_ref().filter(|record| record.epoch == build_on.id());
    if let Some(record) = of_epoch.filter(|_| !mutation!(StaleLabelsTrusted)) {
        match before_record(&candidates, &build_on, record) {
            None => raise(&mut members, &record.labels),
            Some(reason) => read_only = read_only.or(Some(reason)),
        }
    }
    if let (Some(source), OpenMode::Write) = (&read_only, mode) {
        return Err(OpenError::ReadOnly { name, source: source.clone() });
    }
    let (candidates, left_out) = without_strays(candidates, &build_on, &members);
    // A disk that was absent when the pool was renamed has the name of before.
    let holder = candidates.iter().find(|candidate| {
        build_on.voters().contains(&candidate.label.disk)
            && generation_of(&candidate.label, &build_on).is_some()
    });
    let name = holder.map_or(name, |candidate| candidate.label.pool_name.clone());
    let company = if named == Some(build_on.id()) { Company::Alone } else { Company::Unknown };
    let recorded = record;
    Ok(Choice { name, candidates, unfit, left_out, build_on, members, highest, read_only, company, recorded })
}

/// Returns the reason to open read-only when all voters here are older than the host's record says.
fn before_record(
    candidates: &[Candidate],
    build_on: &EpochRecord,
    record: &HostRecord,
) -> Option<ReadOnlyReason> {
    let labels = candidates
        .iter()
        .map(|candidate| &candidate.label)
        .filter(|label| build_on.voters().contains(&label.disk) && generation_of(label, build_on).is_some());
    let labels: Vec<(DiskId, u64)> = labels.map(|label| (label.disk, label.sequence)).collect();
    labels_before_record(build_on.id(), &labels, &record.labels)
}

/// A device that was cut short: it counts as absent, but its label is believed where it says what it knew of.
struct Unfit {
    disk: DiskId,
    name: String,
    label: Label,
    source: ExtentError,
}

impl Unfit {
    fn error(&self) -> OpenError {
        OpenError::Extent { name: self.name.clone(), source: self.source }
    }
}

/// The candidates that have all that their labels say, and the others.
fn without_unfit(candidates: Vec<Candidate>) -> Result<(Vec<Candidate>, Vec<Unfit>), OpenError> {
    let (mut fit, mut unfit) = (Vec::new(), Vec::new());
    for candidate in candidates {
        match candidate.label.extent.fits(candidate.device.geometry().capacity) {
            Ok(()) => fit.push(candidate),
            Err(source) => {
                let (disk, name) = (candidate.label.disk, candidate.device.name());
                unfit.push(Unfit { disk, name, label: candidate.label, source });
            }
        }
    }
    match unfit.first().filter(|_| fit.is_empty()) {
        Some(first) => Err(first.error()),
        None => Ok((fit, unfit)),
    }
}

/// A disk that is here and does not have what the epoch that is built on says it has.
#[derive(Debug, Clone)]
struct Stray {
    disk: DiskId,
    name: String,
    /// The newest epoch that it knows to have been in force.
    knows: Epoch,
    why: StrayReason,
}

/// Splits off disks that must not be believed: with what they have, they would be taken for copies. They count as absent, and
/// nothing is written to them.
fn without_strays(
    candidates: Vec<Candidate>,
    build_on: &EpochRecord,
    members: &[Member],
) -> (Vec<Candidate>, Vec<Stray>) {
    let (mut sound, mut strays) = (Vec::new(), Vec::new());
    for candidate in candidates {
        let entry = members.iter().find(|member| member.disk == candidate.label.disk);
        match stray_reason(&candidate.label, build_on, entry) {
            None => sound.push(candidate),
            Some(why) => strays.push(Stray {
                disk: candidate.label.disk,
                name: candidate.device.name(),
                knows: candidate.label.base.epoch.number(),
                why,
            }),
        }
    }
    (sound, strays)
}

fn view_of(candidate: &Candidate) -> DiskView {
    let label = &candidate.label;
    DiskView {
        disk: label.disk,
        base: label.base.epoch.clone(),
        pending: label.pending.as_ref().map(|generation| generation.epoch.clone()),
    }
}

fn check_candidates(candidates: &[Candidate]) -> Result<(), OpenError> {
    let mut seen: BTreeMap<DiskId, &Candidate> = BTreeMap::new();
    for candidate in candidates {
        let name = candidate.device.name();
        if let Some(first) = seen.values().find(|other| other.label.pool != candidate.label.pool) {
            return Err(OpenError::TwoPools {
                first: first.device.name(),
                first_pool: first.label.pool,
                second: name,
                second_pool: candidate.label.pool,
            });
        }
        if let Some(other) = seen.insert(candidate.label.disk, candidate) {
            return Err(OpenError::Duplicate {
                disk: candidate.label.disk,
                first: other.device.name(),
                second: name,
            });
        }
    }
    Ok(())
}

/// Whether log and pages end before the disk's data begins.
fn has_metadata_room(candidate: &Candidate) -> bool {
    let label = &candidate.label;
    label.extent.metadata >= metadata_needed(label.log, label.pages)
}

struct Opening<'a> {
    seams: &'a Seams,
    name: Name,
    arbiter: Rc<dyn Arbiter>,
    candidates: Vec<Candidate>,
    left_out: Vec<Stray>,
    build_on: EpochRecord,
    /// Labels of members that are known to be durable.
    named: Named,
    /// Disks whose label could not be written: what their labels say is not known.
    unlabelled: BTreeSet<DiskId>,
    highest: Epoch,
    /// A person confirmed what the rule forbids: a new line of history begins.
    confirmed: bool,
    company: Company,
    /// The host's record before this opening.
    recorded: Option<HostRecord>,
}

/// What was read of a pool before anything is written.
struct Read {
    generation: Generation,
    store: Rc<Store>,
    stale: Vec<DiskId>,
    tail: Place,
    /// Changes of the map in batches before this one are in the store.
    applied: Lsn,
    recovered: Recovered,
    sources: Vec<LogCopy>,
}

impl Opening<'_> {
    fn pool_id(&self) -> PoolId {
        self.candidates.first().map_or(PoolId::NONE, |candidate| candidate.label.pool)
    }

    /// Voters of the epoch built on that are here and know it. One whose metadata area ends before log and pages do, as an
    /// older version let vote, is none while there is another: its data and its log have overwritten each other, and would
    /// again. It stays a member, and what it lost is found by its checksums.
    fn sources(&self) -> Vec<&Candidate> {
        let knows = |candidate: &&Candidate| {
            let label = &candidate.label;
            let pending =
                label.pending.as_ref().is_some_and(|pending| pending.epoch.id() == self.build_on.id());
            self.build_on.voters().contains(&label.disk)
                && (pending || label.base.epoch.id() == self.build_on.id())
        };
        let sources: Vec<&Candidate> = self.candidates.iter().filter(knows).collect();
        let (sound, small): (Vec<&Candidate>, Vec<&Candidate>) =
            sources.into_iter().partition(|candidate| has_metadata_room(candidate));
        if sound.is_empty() { small } else { sound }
    }

    /// Why nothing can be read of the pool.
    fn without_sources(&self) -> OpenError {
        let left_out = self.left_out.iter().find(|stray| self.build_on.voters().contains(&stray.disk));
        let name = self.name.clone();
        match left_out {
            None => OpenError::NoMetadata { name },
            Some(stray) => {
                OpenError::OnlyStrays { name, disk: stray.name.clone(), source: stray.why.clone() }
            }
        }
    }

    /// Fails where no voter is here that may be written.
    fn check_sources(&self) -> Result<(), OpenError> {
        let Some(small) = self.sources().into_iter().find(|candidate| !has_metadata_room(candidate)) else {
            return Ok(());
        };
        let label = &small.label;
        Err(OpenError::SmallVoter {
            name: label.pool_name.clone(),
            disk: small.device.name(),
            found: label.extent.metadata,
            needed: metadata_needed(label.log, label.pages),
        })
    }

    #[pooled]
    async fn read_metadata(&self, token: Epoch) -> Result<Read, OpenError> {
        let sources = self.sources();
        let Some(first) = sources.first().map(|candidate| &candidate.label) else {
            return Err(self.without_sources());
        };
        let generation = generation_of(first, &self.build_on).cloned().unwrap_or_else(|| first.base.clone());
        let (ring, area) = areas(first.log, first.pages);
        let devices = || sources.iter().map(|candidate| (candidate.label.disk, Rc::clone(&candidate.device)));
        let replicas: Vec<Replica> = devices().map(|(disk, device)| Replica { disk, device }).collect();
        let options = StoreOptions { cache_pages_max: CACHE_PAGES_MAX };
        let (store, opened) = Store::open(self.seams, token, first.pool, area, &replicas, options).await?;
        let LogNeed { from: tail, applied } = LogNeed::from_anchor(opened.anchor);
        let copies: Vec<LogCopy> = devices().map(|(disk, device)| LogCopy { disk, device }).collect();
        let spans = spans_of(&self.build_on);
        let recovered = recover(self.seams, token, first.pool, ring, &copies, tail, &spans).await?;
        if let Some(damage) = recovered.damage().first() {
            return Err(OpenError::LogDamage { what: damage.to_string() });
        }
        Ok(Read { generation, store, stale: opened.stale, tail, applied, recovered, sources: copies })
    }

    async fn read(
        self,
        reason: Option<&ReadOnlyReason>,
    ) -> Result<(Rc<Pool>, Vec<RecoveredBlock>), OpenError> {
        let read = self.read_metadata(Epoch(u64::MAX)).await?;
        let mut generation = read.generation.clone();
        self.see_who_is_here(&mut generation, self.build_on.number());
        let cause = reason.map_or_else(|| "it was asked for".to_owned(), ToString::to_string);
        let blocks = replay(&read)?;
        let pool = self.assemble(&read, generation, None, PoolState::ReadOnly(cause));
        load_free(&pool).await?;
        pool.settings.load_settings().await?;
        Ok((pool, blocks))
    }

    #[pooled]
    async fn write(mut self) -> Result<(Rc<Pool>, Vec<RecoveredBlock>), OpenError> {
        self.check_sources()?;
        let read = self.read_metadata(Epoch(u64::MAX)).await?;
        let blocks = replay(&read)?;
        let healed = self.heal(&read).await;
        let healthy = self.flush_found_labels(healed).await;
        self.renew_members(&read.generation.members, &healthy).await;
        let generation = self.install(&read, healthy).await?;
        let id = generation.epoch.id();
        let voters = generation.epoch.voters().to_vec();
        let copies: Vec<LogCopy> =
            read.sources.iter().filter(|copy| voters.contains(&copy.disk)).cloned().collect();
        let (ring, _) = areas(self.label_lengths().0, self.label_lengths().1);
        let log =
            Log::start(self.seams.clone(), id.number, self.pool_id(), ring, copies, id, &read.recovered);
        let pool = self.assemble(&read, generation, Some(Rc::clone(&log)), PoolState::Writable);
        let (_, replicas) = pool.members.copies_of(&voters);
        pool.map.store.set_replicas(id.number, replicas);
        pool.epochs.start_guardian();
        pool.heartbeat.start_heartbeat();
        // The first batch of the epoch names the holes in those before it; it is durable before anything is served.
        let opened = log.append(RECORD_OPEN, &[], Class::Reserved, Wait::Durable).await;
        opened.map_err(|error| pool.log.log_failed(error))?;
        load_free(&pool).await?;
        pool.settings.load_settings().await?;
        pool.labels.write_other_labels().await;
        pool.checkpoints.start_checkpointer();
        pool.stamps.start_stamper();
        Ok((pool, blocks))
    }

    fn label_lengths(&self) -> (dolmen_units::Bytes, dolmen_units::Bytes) {
        let label = self.candidates.first().map(|candidate| (candidate.label.log, candidate.label.pages));
        label.unwrap_or_default()
    }

    /// Brings log and map of every source to the same; those that could be brought there.
    async fn heal(&self, read: &Read) -> Vec<DiskId> {
        let mut healthy: Vec<DiskId> = read.sources.iter().map(|copy| copy.disk).collect();
        if let Err(error) = read.recovered.heal().await {
            tracing::warn!(%error, "a log could not be brought up to date");
            healthy.retain(|disk| !error.failures.iter().any(|failure| failure.disk == *disk));
        }
        if !read.stale.is_empty() {
            let healed = read.store.heal_stale().await;
            if let Err(error) = &healed {
                tracing::warn!(%error, "a disk's metadata could not be brought up to date");
            }
            let healed = healed.unwrap_or_default();
            healthy.retain(|disk| !read.stale.contains(disk) || healed.contains(disk));
        }
        healthy
    }

    /// Makes the labels durable that were found and that no table names: who wrote them may have ended before the flush. So the
    /// label that was found is the newest durable one, and the next goes to the other slot. Returns the voters without those
    /// that could not be flushed.
    async fn flush_found_labels(&mut self, mut voters: Vec<DiskId>) -> Vec<DiskId> {
        let newest = |disk: &DiskId| self.named.get(disk).copied().unwrap_or_default();
        let is_unnamed = |candidate: &&Candidate| candidate.label.sequence > newest(&candidate.label.disk);
        let flushed = self.candidates.iter().filter(is_unnamed).map(async |candidate| {
            let flushing = flush(candidate.device.as_ref(), self.highest);
            let clock = self.seams.clock.as_ref();
            // A voter is waited for: its log was, too.
            let flushed = match voters.contains(&candidate.label.disk) {
                true => flushing.await,
                false => {
                    let in_time = within(clock, clock.now() + RENEW_TIMEOUT, flushing).await;
                    in_time.unwrap_or(Err(DeviceError::TimedOut))
                }
            };
            (candidate.label.disk, candidate.label.sequence, flushed)
        });
        for (disk, sequence, flushed) in join_all(flushed).await {
            match flushed {
                Ok(()) => {
                    self.named.insert(disk, sequence);
                }
                Err(error) => {
                    tracing::warn!(%disk, %error, "the label of a disk could not be flushed");
                    voters.retain(|voter| *voter != disk);
                }
            }
        }
        voters
    }

    /// Gives the members without a vote that are here a later label each, which the epoch of this opening names: an image from
    /// before is told by that. What the label says of epochs stays as it is. A member whose label cannot be written is named
    /// as before.
    async fn renew_members(&mut self, members: &[Member], voters: &[DiskId]) {
        let is_meant = |candidate: &Candidate| {
            let disk = candidate.label.disk;
            members.iter().any(|member| member.disk == disk) && !voters.contains(&disk)
        };
        for candidate in self.candidates.iter_mut().filter(|candidate| is_meant(candidate)) {
            let label = &mut candidate.label;
            label.sequence = sequence_after(label.sequence, label.disk, &self.named);
        }
        let renewed = self.candidates.iter().filter(|candidate| is_meant(candidate)).map(async |candidate| {
            let written = if mutation!(MemberNamedEarly) {
                Ok(())
            } else {
                let clock = self.seams.clock.as_ref();
                let writing = write_label(self.seams, candidate.device.as_ref(), self.highest, &candidate.label);
                within(clock, clock.now() + RENEW_TIMEOUT, writing).await.unwrap_or_else(|| {
                    let device = candidate.device.name();
                    let source = DeviceError::TimedOut;
                    Err(LabelIoError { device, doing: "writing the label", at: 0, source })
                })
            };
            if let Err(error) = &written {
                tracing::warn!(disk = %candidate.device.name(), %error, "the label of a member could not be written");
            }
            let (disk, sequence) = (candidate.label.disk, candidate.label.sequence);
            written.map(|()| (disk, sequence)).map_err(|_| disk)
        });
        for one in join_all(renewed).await {
            match one {
                Ok((disk, sequence)) => {
                    self.named.insert(disk, sequence);
                }
                Err(disk) => {
                    self.unlabelled.insert(disk);
                }
            }
        }
    }

    /// Installs the opening's epoch on the sources that are sound. A voter that fails once the host's record names the
    /// epoch is left out by a further one, as in an open pool.
    #[pooled]
    async fn install(&mut self, read: &Read, mut voters: Vec<DiskId>) -> Result<Generation, OpenError> {
        let name = self.name.clone();
        let place = read.recovered.next();
        let mut kind = if self.confirmed { Kind::Forced } else { Kind::Opening };
        let mut built_on = read.generation.clone();
        loop {
            if voters.is_empty() {
                return Err(OpenError::NoMetadata { name });
            }
            let successor = Successor {
                highest: self.highest,
                owner: Owner::Host(self.arbiter.host()),
                voters: voters.clone(),
                nonce: self.seams.entropy.next_u64(),
                oldest: read.tail.lsn.min(place.lsn),
                first: place.lsn,
                // A voter that could not be brought up to date, or could not take the epoch, counts as not here.
                present: voters.clone(),
                kind,
            };
            let record = next(&built_on.epoch, successor)
                .map_err(|source| PoolError::Epoch { name: name.clone(), source })?;
            self.highest = record.number();
            let number = record.number();
            let mut pending = Generation { epoch: record, members: read.generation.members.clone() };
            self.see_who_is_here(&mut pending, number);
            // A confirmed opening is in force at once: its labels never speak of an epoch that may not have been.
            let (base, next) =
                if kind == Kind::Forced { (&pending, None) } else { (&built_on, Some(&pending)) };
            // Healing, flushes and labels of other members came since the watch, and each may have taken long.
            self.check_alone().await?;
            if let Err(failed) = self.label(&pending, base, next).await {
                voters.retain(|voter| *voter != failed);
                continue;
            }
            if self.company == Company::Unknown {
                hold(self.seams, &self.candidates, &self.unlabelled).await?;
            }
            let labels = labels_of(pending.epoch.voters(), &self.named);
            let record = HostRecord { epoch: pending.epoch.id(), labels };
            self.arbiter.record(self.pool_id(), record).await?;
            if let Err(refused) = self.check_alone().await {
                // The epoch was never in force: nothing was acknowledged under it, and no label calls it settled. A record of it would keep
                // this host from the pool.
                self.restore_record().await?;
                return Err(refused);
            }
            if kind == Kind::Forced {
                return Ok(pending);
            }
            match self.label(&pending, &pending, None).await {
                Ok(()) => return Ok(pending),
                Err(failed) => voters.retain(|voter| *voter != failed),
            }
            (built_on, kind) = (pending, Kind::Change);
        }
    }

    /// Fails if another host wrote labels since the watch. An opening that knows itself alone does not look.
    async fn check_alone(&self) -> Result<(), OpenError> {
        if self.company == Company::Alone || mutation!(BlindOpening) {
            return Ok(());
        }
        check_labelled(self.seams, &self.candidates, &self.unlabelled).await
    }

    /// Has the host's record name what it named before this opening.
    async fn restore_record(&self) -> Result<(), OpenError> {
        match &self.recorded {
            Some(record) => self.arbiter.record(self.pool_id(), record.clone()).await?,
            None => self.arbiter.withdraw(self.pool_id()).await?,
        }
        Ok(())
    }

    /// Writes labels to the voters of `pending`; the one that failed otherwise.
    async fn label(
        &mut self,
        pending: &Generation,
        base: &Generation,
        next: Option<&Generation>,
    ) -> Result<(), DiskId> {
        for candidate in &mut self.candidates {
            if !pending.epoch.voters().contains(&candidate.label.disk) {
                continue;
            }
            candidate.label.sequence =
                sequence_after(candidate.label.sequence, candidate.label.disk, &self.named);
            candidate.label.base = raised(base, &self.named);
            candidate.label.pending = next.map(|next| raised(next, &self.named));
            let written =
                write_label(self.seams, candidate.device.as_ref(), self.highest, &candidate.label).await;
            if let Err(error) = written {
                tracing::warn!(disk = %candidate.device.name(), %error, "a voter could not take the new epoch");
                self.unlabelled.insert(candidate.label.disk);
                return Err(candidate.label.disk);
            }
            self.named.insert(candidate.label.disk, candidate.label.sequence);
        }
        Ok(())
    }

    /// Members that are here take part; what they missed is noted slab by slab. The others are absent from `number` on.
    fn see_who_is_here(&self, generation: &mut Generation, number: Epoch) {
        // One that is as it was long ago lacks what was written since; that it left later says nothing.
        for stray in self.left_out.iter().filter(|stray| stray.why.is_old()) {
            mark_absent(&mut generation.members, stray.disk, stray.knows);
        }
        let here: Vec<DiskId> = self.candidates.iter().map(|candidate| candidate.label.disk).collect();
        let absent: Vec<DiskId> =
            generation.members.iter().map(|member| member.disk).filter(|disk| !here.contains(disk)).collect();
        for disk in absent {
            mark_absent(&mut generation.members, disk, number);
        }
        for member in generation.members.iter_mut().filter(|member| here.contains(&member.disk)) {
            member.left = Epoch(0);
        }
    }

    fn assemble(
        &self,
        read: &Read,
        generation: Generation,
        log: Option<Rc<Log>>,
        state: PoolState,
    ) -> Rc<Pool> {
        let token = generation.epoch.number();
        let attachment = |disk: DiskId| -> Option<(Rc<dyn dolmen_block_io::BlockDevice>, Extent)> {
            let candidate = self.candidates.iter().find(|candidate| candidate.label.disk == disk)?;
            Some((Rc::clone(&candidate.device), candidate.label.extent))
        };
        let disks = generation
            .members
            .iter()
            .map(|member| (member.slot, Disk::new(*member, attachment(member.disk), token)));
        let disks: BTreeMap<_, _> = disks.collect();
        for candidate in &self.candidates {
            let disk = disks.values().find(|disk| disk.id() == candidate.label.disk);
            disk.into_iter().for_each(|disk| disk.labels().note_lost(&candidate.lost_labels));
        }
        let sequences =
            self.candidates.iter().map(|candidate| (candidate.label.disk, candidate.label.sequence));
        let heartbeat = self.candidates.iter().map(|candidate| candidate.label.heartbeat).max().unwrap_or(0);
        let (log_bytes, page_bytes) = self.label_lengths();
        let identity = Identity {
            seams: self.seams.clone(),
            id: self.pool_id(),
            name: self.name.clone(),
            log_bytes,
            page_bytes,
        };
        let labels = KnownLabels {
            highest: self.highest.max(token),
            sequences: sequences.collect(),
            named: self.named.clone(),
            heartbeat,
        };
        let found = FoundState {
            disks,
            generation,
            store: Rc::clone(&read.store),
            journal: log,
            state,
            tail: read.tail,
            labels,
            arbiter: Rc::clone(&self.arbiter),
        };
        Pool::assemble(identity, found)
    }
}

/// Applies the metadata that the log repeats, and returns the rest.
fn replay(read: &Read) -> Result<Vec<RecoveredBlock>, OpenError> {
    for (lsn, record) in read.recovered.records() {
        match record.kind {
            // An older change again would undo what a checkpoint wrote without the log.
            RECORD_META if lsn < read.applied => {}
            RECORD_META => {
                let edits = decode_edits(record.body);
                let edits = edits
                    .ok_or_else(|| OpenError::LogDamage { what: format!("a malformed change at {lsn}") })?;
                for (key, value) in edits {
                    match value {
                        Some(value) => read.store.put(key, &value),
                        None => read.store.delete(key),
                    }
                }
            }
            RECORD_BLOCKS | RECORD_OPEN => {}
            other => {
                return Err(OpenError::LogDamage {
                    what: format!("a record of unknown kind {other} at {lsn}"),
                });
            }
        }
    }
    Ok(blocks_of(&read.recovered).map(RecordedBlocks::to_recovered).collect())
}

/// Reads the free runs of every member; one that has none on record was added and gets all of its allocation units.
#[pooled]
async fn load_free(pool: &Rc<Pool>) -> Result<(), PoolError> {
    let mut fresh = false;
    for disk in pool.disks() {
        let slot = disk.slot();
        load_units(pool, &disk).await?;
        let map = match pool.map.get(&keys::free_total(slot)).await? {
            Some(_) => read_free(pool, &disk).await?,
            None => {
                let Some(extent) = disk.extent() else { continue };
                fresh = true;
                FreeMap::whole(extent.unit_count())
            }
        };
        pool.free_space.maps.borrow_mut().insert(slot, map);
    }
    let is_writable = pool.state() == PoolState::Writable;
    if fresh && is_writable {
        pool.change(Purpose::Release).await.commit().await?;
    }
    for disk in pool.disks() {
        let Some(extent) = disk.extent() else { continue };
        match is_writable {
            true if mutation!(GrowthNotCompleted) => {}
            true => pool.membership().complete_growth(&disk, extent).await?,
            false => pool.free_space.show_gained(&disk, extent),
        }
    }
    Ok(())
}

/// Reads how many allocation units of a disk the map accounts for, if its device has grown.
#[pooled]
async fn load_units(pool: &Rc<Pool>, disk: &Rc<Disk>) -> Result<(), PoolError> {
    let value = pool.map.get(&keys::member_setting(disk.slot(), keys::UNITS)).await?;
    let units = value.and_then(|value| decode_units(disk.id(), &value));
    disk.size().set_on_record(units);
    if let (Some(extent), Some(device)) = (disk.extent(), disk.device()) {
        // A disk that is too short for the map was not let back in, or is refused with its first I/O beyond its end.
        let with = extent_with(units, extent, device.geometry().capacity);
        disk.size().set_extent(with.unwrap_or(extent));
    }
    Ok(())
}

#[pooled]
async fn read_free(pool: &Rc<Pool>, disk: &Disk) -> Result<FreeMap, PoolError> {
    let units = disk.extent().map_or(u64::MAX, |extent| extent.unit_count().max(disk.size().units()));
    let mut map = FreeMap::full(units);
    let mut from = 0;
    loop {
        let found = pool.map.scan(keys::free_from(disk.slot(), from), SCAN_STEP).await?;
        let count = found.len();
        for (key, value) in found {
            let (_, first, _) = keys::parts(&key);
            let length = value.try_into().ok().map(u64::from_le_bytes).filter(|length| *length > 0);
            let is_there = |length: &u64| first.checked_add(*length).is_some_and(|end| end <= units);
            let length = length.filter(|length| first >= from && is_there(length));
            let Some(length) = length else {
                let what = format!("an impossible free run at allocation unit {first} of {}", disk.slot());
                return Err(PoolError::Corrupt { name: pool.name().clone(), what });
            };
            map.load(Run { first, count: length });
            from = first + length;
        }
        if count < SCAN_STEP {
            return Ok(map);
        }
    }
}

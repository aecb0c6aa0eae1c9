//! A map put together from the headers of slabs, in memory.
//!
//! Steps: every disk is read for headers; the disks get identities, places among the members, and an address at which their
//! allocation units begin; of each row the newest incarnation is taken; its slabs are weighed; the map is laid into the overlay of
//! one disk.
//!
//! Invariant: labels that are left are believed before anything that is made up.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use dolmen_block_io::{BlockDevice, Seams};
use dolmen_check::Overlay;
use dolmen_disk::{Extent, Generation, Label, METADATA_AT, Medium, Member, MemberState};
use dolmen_epoch::{EpochRecord, LogSpan, Owner, RecordParts};
use dolmen_future_pool::pooled;
use dolmen_pool::{
    Candidate, LogNeed, Run, StrayReason, areas, keys, members_of, metadata_lengths, stray_reason,
};
use dolmen_space::salvage::{
    self, FoundSlab, MappedRow, Purpose, RowLayout, RowShape, SLABS_OF_A_COLUMN_MAX, SlabHeader, purpose_of,
};
use dolmen_space::{Progress, Resiliency, SpaceSpec};
use dolmen_store::{Replica, Store, StoreOptions};
use dolmen_units::{
    ALLOCATION_UNIT_BYTES, BLOCK_BYTES, Bytes, DISKS_MAX, DiskId, DiskSlot, Epoch, EpochId, HostId, Name,
    PoolId, RowId, SpaceId,
};

use crate::error::RescueError;
use crate::gather::{Looked, Note, choose, pools_of};
use crate::open::{AFTER_ALL, Options, TOKEN, fresh_epoch};
use crate::slabs::{Survey, survey};
use crate::weigh::{Weighed, weigh};

/// The size of a hidden space of shadow rows.
const SHADOWS_BYTES: Bytes = Bytes(1 << 52);
/// Slabs that nobody has are said to lie here: on a disk that is not there.
pub(crate) const NOBODY: DiskId = DiskId([0xff; 16]);

/// Blocks of a space of which what is believed may be older than what was there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Doubt {
    pub(crate) space: SpaceId,
    /// Bytes of the space.
    pub(crate) bytes: Range<u64>,
}

/// What a map was made of.
pub(crate) struct Built {
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) notes: Vec<Note>,
    pub(crate) doubts: Vec<Doubt>,
    pub(crate) nameless: Vec<SpaceId>,
}

/// A disk of the pool, with its headers.
struct Source {
    device: Rc<dyn BlockDevice>,
    disk: DiskId,
    label: Option<Label>,
    extent: Extent,
    slot: DiskSlot,
    /// Whether a label says that it missed writes, and since when.
    left: Option<Epoch>,
    headers: Vec<SlabHeader>,
    spaces: BTreeMap<SpaceId, (u64, SpaceSpec)>,
}

/// A slab as its header has it, and the disk that it is on, by its place among the sources.
type Held = (usize, SlabHeader);
/// Rows by space and index; of each, its incarnations.
type Rows = BTreeMap<(SpaceId, u64), BTreeMap<RowId, Vec<Held>>>;

#[pooled]
pub(crate) async fn rebuild(
    seams: &Seams,
    looked: &[Looked],
    options: &Options,
    progress: &Progress,
) -> Result<Built, RescueError> {
    progress.total.set(looked.iter().map(|one| one.device.geometry().capacity.0).sum());
    let mut surveys = Vec::with_capacity(looked.len());
    for one in looked {
        surveys.push(survey(seams, &one.device, progress).await);
    }
    let mut notes = Vec::new();
    for (one, survey) in looked.iter().zip(&surveys).filter(|(_, survey)| survey.unreadable > 0) {
        let (name, bytes) = (one.device.name(), Bytes(survey.unreadable));
        notes.push(Note(format!("{name}: {bytes} cannot be read; headers of slabs may stand there")));
    }
    let pool = pool_of(looked, &surveys, options)?;
    let sources = sources_of(looked, surveys, pool, &mut notes)?;
    if sources.iter().all(|source| source.headers.is_empty()) {
        return Err(RescueError::Nothing {
            count: looked.len(),
            what: "a header of a slab",
            advice: "nothing can be told from these disks; name others of the pool",
        });
    }
    let mut build =
        Build { seams, pool, sources, notes, doubts: Vec::new(), nameless: Vec::new(), values: Vec::new() };
    build.fill(options).await;
    build.lay_out().await
}

/// The pool whose slabs are meant.
fn pool_of(looked: &[Looked], surveys: &[Survey], options: &Options) -> Result<PoolId, RescueError> {
    let mut pools = pools_of(looked);
    if pools.is_empty() || options.pool.is_some() {
        for (_, header) in surveys.iter().flat_map(|survey| &survey.headers) {
            pools.entry(header.pool).or_insert(None);
        }
    }
    choose(&pools, options.pool.as_deref())?.ok_or(RescueError::Nothing {
        count: looked.len(),
        what: "a label or a slab of a pool",
        advice: "nothing can be told from these disks; name others of the pool",
    })
}

/// The disks of the pool, each with the headers that are its own.
fn sources_of(
    looked: &[Looked],
    surveys: Vec<Survey>,
    pool: PoolId,
    notes: &mut Vec<Note>,
) -> Result<Vec<Source>, RescueError> {
    let labels: Vec<&Label> =
        looked.iter().filter_map(Looked::label).filter(|label| label.pool == pool).collect();
    let newest = labels.iter().max_by_key(|label| label.base.epoch.id()).map(|label| Generation {
        members: members_of(labels.iter().copied(), &label.base.epoch),
        epoch: label.base.epoch.clone(),
    });
    let mut sources: Vec<Source> = Vec::new();
    for (one, survey) in looked.iter().zip(surveys) {
        let name = one.device.name();
        let label = one.label().filter(|label| label.pool == pool).cloned();
        if one.label().is_some() && label.is_none() {
            notes.push(Note(format!("{name} is of another pool, and is left out")));
            continue;
        }
        if let (Some(label), Some(newest)) = (&label, &newest)
            && !newest.epoch.continues(&label.base.epoch)
        {
            notes.push(Note(format!("{name} went on apart from the others, and is left out")));
            continue;
        }
        let Some(mut source) = source_of(one, label, survey, pool, notes) else {
            notes.push(Note(format!("{name} has neither a label nor a slab of the pool")));
            continue;
        };
        if let Some(other) = sources.iter().find(|other| other.disk == source.disk) {
            let (first, second) = (other.device.name(), name);
            return Err(RescueError::Twice { first, second, disk: source.disk.to_string() });
        }
        let member = newest.as_ref().and_then(|newest| newest.members.iter().find(|m| m.disk == source.disk));
        source.left = member.filter(|member| member.is_away()).map(|member| member.left);
        let verified = newest.as_ref().zip(source.label.as_ref());
        let why = verified.and_then(|(newest, label)| stray_reason(label, &newest.epoch, member));
        if let Some(why) = why.filter(StrayReason::is_old) {
            // Since when it is old does not bound what it lacks.
            source.left = Some(Epoch(1));
            let name = source.device.name();
            notes.push(Note(format!("{name} is believed only where nothing else has it: {why}")));
        }
        sources.push(source);
    }
    give_slots(&mut sources, newest.as_ref());
    Ok(sources)
}

/// A disk of the pool: by its label, or by what most headers on it say.
fn source_of(
    one: &Looked,
    label: Option<Label>,
    survey: Survey,
    pool: PoolId,
    notes: &mut Vec<Note>,
) -> Option<Source> {
    let ours: Vec<(u64, SlabHeader)> =
        survey.headers.into_iter().filter(|(_, header)| header.pool == pool).collect();
    let disk = match &label {
        Some(label) => label.disk,
        None => most(ours.iter().map(|(_, header)| header.disk))?,
    };
    // A header is the last block of its slab.
    let start = |(at, header): &(u64, SlabHeader)| {
        at.checked_sub(header.own_unit().checked_mul(ALLOCATION_UNIT_BYTES)?)
    };
    let of_disk = || ours.iter().filter(|(_, header)| header.disk == disk);
    let capacity = Bytes(one.device.geometry().capacity.0).align_down(BLOCK_BYTES);
    let extent = match &label {
        // A disk that was cut short still has what it has.
        Some(label) => Extent { data_end: label.extent.data_end.min(capacity.0), ..label.extent },
        None => {
            let data_start = most(of_disk().filter_map(start))?;
            let metadata = Bytes(data_start.checked_sub(METADATA_AT)?);
            Extent { capacity, metadata, data_start, data_end: capacity.0 }
        }
    };
    let extent = Extent { capacity: extent.capacity.max(Bytes(extent.data_end)), ..extent };
    extent.check().ok()?;
    let count = ours.len();
    let is_in_place =
        |found: &(u64, SlabHeader)| found.1.disk == disk && start(found) == Some(extent.data_start);
    let headers: Vec<SlabHeader> = ours.into_iter().filter(is_in_place).map(|(_, header)| header).collect();
    if headers.len() < count {
        let others = count - headers.len();
        let name = one.device.name();
        notes.push(Note(format!(
            "{name}: {others} headers of slabs are copies, or of another disk, and do not count"
        )));
    }
    let spaces = survey.spaces.into_iter().filter(|((of, _), _)| *of == pool);
    Some(Source {
        device: Rc::clone(&one.device),
        disk,
        label,
        extent,
        slot: DiskSlot(u16::MAX),
        left: None,
        headers,
        spaces: spaces.map(|((_, id), found)| (id, found)).collect(),
    })
}

/// What is said most often; of several, the lowest.
fn most<T: Ord + Copy>(said: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: BTreeMap<T, u64> = BTreeMap::new();
    said.for_each(|one| *counts.entry(one).or_default() += 1);
    let most = counts.values().max().copied()?;
    counts.into_iter().find(|(_, count)| *count == most).map(|(one, _)| one)
}

/// Gives each disk the place that labels list, or one that nobody has.
fn give_slots(sources: &mut [Source], newest: Option<&Generation>) {
    let members = newest.map(|newest| newest.members.clone()).unwrap_or_default();
    let mut taken: BTreeSet<DiskSlot> = members.iter().map(|member| member.slot).collect();
    for source in sources {
        let listed = members.iter().find(|member| member.disk == source.disk).map(|member| member.slot);
        let free = || (0..).map(DiskSlot).find(|slot| !taken.contains(slot));
        source.slot = listed.or_else(free).unwrap_or(DiskSlot(u16::MAX));
        taken.insert(source.slot);
    }
}

/// How the rows of a space are laid: all alike, or in two ways while it was converted.
struct Laid {
    spec: SpaceSpec,
    other: Option<SpaceSpec>,
}

impl Laid {
    /// Which of the two a row of this shape has.
    fn layout_of(&self, shape: RowShape) -> Option<(RowLayout, &SpaceSpec)> {
        let is = |spec: &SpaceSpec| spec.resiliency.parity_columns() == shape.parity;
        if shape.row != self.spec.row_bytes() {
            return None;
        }
        match &self.other {
            _ if is(&self.spec) => Some((RowLayout::Own, &self.spec)),
            Some(other) if is(other) => Some((RowLayout::Other, other)),
            Some(_) | None => None,
        }
    }
}

/// A map that is being made.
struct Build<'a> {
    seams: &'a Seams,
    pool: PoolId,
    sources: Vec<Source>,
    notes: Vec<Note>,
    doubts: Vec<Doubt>,
    nameless: Vec<SpaceId>,
    /// Keys and values of the map.
    values: Vec<(dolmen_store::Key, Vec<u8>)>,
}

impl Build<'_> {
    /// Makes the keys and values.
    #[pooled]
    async fn fill(&mut self, options: &Options) {
        let mut rows: Rows = BTreeMap::new();
        for (number, source) in self.sources.iter().enumerate() {
            for header in &source.headers {
                let of = rows.entry((header.space, header.row_index)).or_default();
                of.entry(header.row).or_default().push((number, header.clone()));
            }
        }
        self.note_cached(&rows);
        let (newest, uncertain) = newest_rows(rows);
        let spaces: BTreeSet<SpaceId> = newest.keys().map(|(space, _)| *space).collect();
        let hints = self.hints();
        for id in spaces {
            let of: Vec<_> = newest.range((id, 0)..=(id, u64::MAX)).collect();
            match purpose_of(id) {
                Purpose::People => {
                    let Some(laid) = self.space_of(id, &of, hints.get(&id)) else { continue };
                    let name = laid.spec.name.to_string();
                    let row = laid.spec.row_bytes().0;
                    let of_space = uncertain.iter().filter(|(space, _)| *space == id);
                    let doubts = of_space.map(|(space, index)| {
                        let bytes = index.saturating_mul(row)..index.saturating_add(1).saturating_mul(row);
                        Doubt { space: *space, bytes }
                    });
                    self.doubts.extend(doubts);
                    let is_meant = options
                        .space
                        .as_ref()
                        .is_none_or(|space| *space == name || *space == id.0.to_string());
                    self.add_rows(id, &laid, &of, is_meant).await;
                    let shadows: Vec<_> = unpromoted_shadows(&newest, id);
                    if !shadows.is_empty() {
                        self.add_shadows(id, &laid, &shadows, is_meant).await;
                    }
                }
                Purpose::ShadowRows(_) | Purpose::ConversionShadows(_) | Purpose::WriteCache(_) => {}
            }
        }
        self.notes.push(Note(
            "a row of which no slab was found reads as zeros, and is listed by export: it was never written, or its slabs are gone; a space may go on behind its last row that was found"
                .to_owned(),
        ));
        self.notes.push(Note(
            "a space that was deleted, or an extent that was discarded, is found again while nothing else has taken its room"
                .to_owned(),
        ));
    }

    /// The spaces that pages of old maps name.
    fn hints(&self) -> BTreeMap<SpaceId, SpaceSpec> {
        let mut hints: BTreeMap<SpaceId, (u64, SpaceSpec)> = BTreeMap::new();
        for (id, (sequence, spec)) in self.sources.iter().flat_map(|source| &source.spaces) {
            let newest = hints.entry(*id).or_insert((*sequence, spec.clone()));
            if newest.0 < *sequence {
                *newest = (*sequence, spec.clone());
            }
        }
        hints.into_iter().map(|(id, (_, spec))| (id, spec)).collect()
    }

    fn note_cached(&mut self, rows: &Rows) {
        let is_cache = |(id, _): &&(SpaceId, u64)| matches!(purpose_of(*id), Purpose::WriteCache(_));
        let cached: u64 = rows
            .iter()
            .filter(|(key, _)| is_cache(key))
            .filter_map(|(_, of)| of.values().next_back()?.first())
            .map(|(_, header)| header.shape.row.0)
            .sum();
        if cached > 0 {
            let room = Bytes(cached);
            self.notes.push(Note(format!(
                "{room} of write cache were found; what of it was not in place yet is not to be found without the log"
            )));
        }
    }

    /// What a space is: by a page of an old map that fits its rows, or else as its rows are.
    fn space_of(
        &mut self,
        id: SpaceId,
        rows: &[(&(SpaceId, u64), &Vec<Held>)],
        hint: Option<&SpaceSpec>,
    ) -> Option<Laid> {
        let headers = || rows.iter().flat_map(|(_, slabs)| slabs.iter()).map(|(_, header)| header);
        let row = most(headers().map(|header| header.shape.row))?;
        let interleave = most(headers().map(|header| header.shape.interleave))?;
        let parity = most(headers().map(|header| header.shape.parity))?;
        let last = rows.iter().map(|((_, index), _)| *index).max()?;
        let found = Bytes(last.checked_add(1)?.checked_mul(row.0)?);
        let copies = rows.iter().map(|(_, slabs)| copies_of(slabs)).max().unwrap_or(1);
        let of_parity = |parity: u8| match (parity, copies) {
            (1.., _) => Resiliency::Parity { parity },
            (0, 2..) => Resiliency::Mirror { copies: u8::try_from(copies.min(4)).unwrap_or(4) },
            (0, _) => Resiliency::Simple,
        };
        let fits = |hint: &&SpaceSpec| hint.row_bytes() == row && hint.resiliency.parity_columns() == parity;
        let spec = match hint.filter(fits) {
            // A size that was made larger since may be in a later page only.
            Some(hint) => SpaceSpec { row: Some(row), ..hint.clone() },
            None => {
                let name: Name = format!("space-{}", id.0).parse().ok()?;
                let mut spec = SpaceSpec::usual(name, found, of_parity(parity));
                (spec.row, spec.interleave) = (Some(row), interleave);
                spec.check().ok()?;
                self.nameless.push(id);
                spec
            }
        };
        let spec = salvage::without_cache(spec);
        // A space that was being converted has rows of two layouts.
        let others = headers().map(|header| header.shape.parity).filter(|other| *other != parity);
        let other = most(others).map(|parity| {
            let mut other = SpaceSpec::usual(spec.name.clone(), spec.size, of_parity(parity));
            (other.row, other.interleave) = (Some(row), interleave);
            salvage::without_cache(other)
        });
        Some(Laid { spec, other: other.filter(|other| other.check().is_ok()) })
    }

    #[pooled]
    async fn add_rows(
        &mut self,
        id: SpaceId,
        laid: &Laid,
        rows: &[(&(SpaceId, u64), &Vec<Held>)],
        is_meant: bool,
    ) {
        let spec = &laid.spec;
        for (space, value) in salvage::space_values(id, spec, laid.other.as_ref()) {
            self.values.push((keys::space(space), value));
        }
        let (mut count, mut odd) = (0u64, 0u64);
        for ((_, index), slabs) in rows {
            match self.row(slabs, laid, (id, *index), is_meant).await {
                Some((row, value)) => {
                    self.values.push((keys::place(id, *index), salvage::place_value(row)));
                    self.values.push((keys::row(row), value));
                    count += 1;
                }
                None => odd += 1,
            }
        }
        self.values.push((keys::row_count(id), count.to_le_bytes().to_vec()));
        if odd > 0 {
            let name = &spec.name;
            self.notes.push(Note(format!(
                "{odd} rows of {name} are of another length than the others, or make no sense"
            )));
        }
    }

    #[pooled]
    async fn add_shadows(&mut self, id: SpaceId, laid: &Laid, shadows: &[(u64, &Vec<Held>)], is_meant: bool) {
        // Only rows with parity have shadow rows.
        let has_parity = |spec: &&SpaceSpec| spec.resiliency.parity_columns() > 0;
        let Some(spec) = [Some(&laid.spec), laid.other.as_ref()].into_iter().flatten().find(has_parity)
        else {
            return;
        };
        let of_shadows = Laid { spec: SpaceSpec { size: SHADOWS_BYTES, ..spec.clone() }, other: None };
        let hidden = SpaceId(id.0 | 1 << 63);
        let mut added = 0u64;
        for (index, slabs) in shadows {
            if let Some((row, value)) = self.row(slabs, &of_shadows, (id, *index), is_meant).await {
                self.values.push((keys::place(hidden, *index), salvage::place_value(row)));
                self.values.push((keys::row(row), value));
                added += 1;
            }
        }
        if added == 0 {
            return;
        }
        for (space, value) in salvage::space_values(hidden, &of_shadows.spec, None) {
            self.values.push((keys::space(space), value));
        }
        self.values.push((keys::row_count(hidden), added.to_le_bytes().to_vec()));
    }

    /// Id and value of the row of a place, or of its shadow row; its slabs are weighed if the content of its space is asked for.
    #[pooled]
    async fn row(
        &mut self,
        slabs: &[Held],
        laid: &Laid,
        (space, index): (SpaceId, u64),
        is_weighed: bool,
    ) -> Option<(RowId, Vec<u8>)> {
        let (_, first) = slabs.first()?;
        let (id, shape, row) = (first.row, first.shape, laid.spec.row_bytes());
        let (layout, of) = laid.layout_of(shape)?;
        // What the space was before it was converted is not known, and may be what no row of this width is.
        let resiliency = match of.resiliency {
            Resiliency::Span if shape.columns > 1 => Resiliency::Simple,
            other => other,
        };
        let integrity = of.integrity;
        let slabs = chosen(slabs, shape);
        let mut stale: BTreeSet<usize> = BTreeSet::new();
        if is_weighed {
            let of = slabs.iter().filter_map(|(number, header)| {
                let source = self.sources.get(*number)?;
                Some(Weighed {
                    device: Rc::clone(&source.device),
                    data_start: source.extent.data_start,
                    column: usize::from(header.column),
                    runs: header.runs.clone(),
                    epoch: header.epoch,
                    is_stale: source.left.is_some(),
                })
            });
            let of: Vec<Weighed> = of.collect();
            let weights = weigh(self.seams, (self.pool, id, shape), &of).await;
            stale.extend(weights.stale);
            for (column, page) in weights.doubtful {
                let blocks = shape.blocks_of(column, page).into_iter();
                let at = index.saturating_mul(row.0);
                let bytes = blocks.map(|range| at + range.start * BLOCK_BYTES..at + range.end * BLOCK_BYTES);
                self.doubts.extend(bytes.map(|bytes| Doubt { space, bytes }));
            }
        }
        let nobody = self.nobody();
        let mut found: Vec<FoundSlab> = Vec::new();
        for (number, (source, header)) in slabs.iter().enumerate() {
            let Some(source) = self.sources.get(*source) else { continue };
            let since = source.left.unwrap_or(Epoch(1));
            found.push(FoundSlab {
                disk: source.slot,
                column: usize::from(header.column),
                runs: header.runs.clone(),
                stale: (stale.contains(&number) || source.left.is_some()).then_some(since),
            });
        }
        for column in 0..shape.column_count() {
            if !found.iter().any(|slab| slab.column == column && slab.stale.is_none()) {
                let runs = vec![Run { first: 0, count: shape.units(column)? }];
                found.push(FoundSlab { disk: nobody, column, runs, stale: None });
            }
        }
        found.sort_by_key(|slab| slab.column);
        let slabs = found;
        let row =
            MappedRow { id, space, index, is_formatted: true, layout, resiliency, integrity, shape, slabs };
        Some((id, row.value()?))
    }

    /// The place of the disk that is not there.
    fn nobody(&self) -> DiskSlot {
        let taken = self.members();
        let free = (0..).map(DiskSlot).find(|slot| taken.iter().all(|member| member.slot != *slot));
        free.unwrap_or(DiskSlot(u16::MAX))
    }

    /// Members that labels list, and those that were found beside them.
    fn members(&self) -> Vec<Member> {
        let labels = self.sources.iter().filter_map(|source| source.label.as_ref());
        let newest = labels.max_by_key(|label| label.base.epoch.id());
        let mut members = newest.map(|label| label.base.members.clone()).unwrap_or_default();
        for source in &self.sources {
            if members.iter().all(|member| member.disk != source.disk) {
                members.push(Member {
                    disk: source.disk,
                    capacity: source.extent.capacity,
                    slot: source.slot,
                    state: MemberState::Active,
                    fault_domain: 0,
                    left: Epoch(0),
                    successor: None,
                    medium: Medium::Unknown,
                    sequence: 0,
                });
            }
        }
        // A disk that is here takes part, with what of it is believed.
        let here = |disk: DiskId| self.sources.iter().any(|source| source.disk == disk);
        members.iter_mut().filter(|member| here(member.disk)).for_each(|member| member.left = Epoch(0));
        // The labels that are made here are numbered again.
        members.iter_mut().for_each(|member| member.sequence = 0);
        members
    }

    /// Lays the map into an overlay, and makes labels that say that it is there.
    #[pooled]
    async fn lay_out(mut self) -> Result<Built, RescueError> {
        let mut members = self.members();
        let nobody = Member {
            disk: NOBODY,
            capacity: Bytes::gib(1),
            slot: self.nobody(),
            state: MemberState::Active,
            fault_domain: 0,
            left: Epoch(0),
            successor: None,
            medium: Medium::Unknown,
            sequence: 0,
        };
        members.push(nobody);
        if members.len() > DISKS_MAX {
            return Err(RescueError::Layout(format!("{} disks are too many", members.len()).into()));
        }
        let epochs = self.sources.iter().flat_map(|source| {
            let label = source.label.iter().map(|label| label.base.epoch.number());
            source.headers.iter().map(|header| header.epoch).chain(label)
        });
        let number = epochs.max().unwrap_or_default().0.min(u64::MAX >> 1);
        let id = fresh_epoch(self.seams, Epoch(number + 1));
        let largest = |source: &&Source| source.extent.metadata;
        let Some(voter) = self.sources.iter().max_by_key(largest).map(|source| source.disk) else {
            unreachable!("a map is built of disks")
        };
        let metadata = self.sources.iter().map(|source| source.extent.metadata).max().unwrap_or_default();
        let (log, pages) = metadata_lengths(metadata);
        let epoch = EpochRecord::new(RecordParts {
            id,
            predecessor: EpochId::default(),
            owner: Owner::Host(HostId(self.seams.entropy.next_id())),
            voters: vec![voter],
            fork: None,
            spans: vec![LogSpan { epoch: id, first: AFTER_ALL }],
        });
        let epoch = epoch.map_err(|error| RescueError::Layout(Box::new(error)))?;
        let generation = Generation { epoch, members };
        let named =
            self.sources.iter().find_map(|source| source.label.as_ref()).map(|label| label.pool_name.clone());
        let name = match named {
            Some(name) => name,
            None => "rescued".parse().map_err(|error| RescueError::Layout(Box::new(error)))?,
        };
        let mut candidates = Vec::new();
        for source in &self.sources {
            let mut device = Rc::clone(&source.device);
            if source.disk == voter {
                device = Overlay::new(device, Rc::clone(&self.seams.spawner));
            }
            let label = Label {
                pool: self.pool,
                pool_name: name.clone(),
                disk: source.disk,
                sequence: 1,
                extent: source.extent,
                log,
                pages,
                heartbeat: 0,
                base: generation.clone(),
                pending: None,
            };
            candidates.push(Candidate { device, label, lost_labels: Vec::new() });
        }
        let values = std::mem::take(&mut self.values);
        write_map(self.seams, self.pool, (voter, log, pages), &candidates, values).await?;
        let Self { notes, doubts, nameless, .. } = self;
        Ok(Built { candidates, notes, doubts, nameless })
    }
}

/// Makes a map of keys and values on a disk, which is behind an overlay.
async fn write_map(
    seams: &Seams,
    pool: PoolId,
    (voter, log, pages): (DiskId, Bytes, Bytes),
    candidates: &[Candidate],
    values: Vec<(dolmen_store::Key, Vec<u8>)>,
) -> Result<(), RescueError> {
    let (_, area) = areas(log, pages);
    let device = candidates.iter().find(|candidate| candidate.label.disk == voter);
    let replica = device.map(|candidate| Replica { disk: voter, device: Rc::clone(&candidate.device) });
    let replicas: Vec<Replica> = replica.into_iter().collect();
    let layout = |error| RescueError::Layout(Box::new(error));
    let anchor = LogNeed::ALL.to_anchor();
    Store::format(seams, TOKEN, pool, area, &replicas, anchor).await.map_err(layout)?;
    let (store, _) =
        Store::open(seams, TOKEN, pool, area, &replicas, StoreOptions::default()).await.map_err(layout)?;
    for (key, value) in values {
        store.put(key, &value);
    }
    store.checkpoint(anchor).await.map_err(RescueError::layout)
}

/// Slabs of rows by space and index.
type Newest = BTreeMap<(SpaceId, u64), Vec<Held>>;

/// Of each row the incarnation that counts: the highest. What is called a shadow row and has no row beside it is the row. And rows
/// of which it is not certain whether a conversion shadow has taken their place.
fn newest_rows(rows: Rows) -> (Newest, BTreeSet<(SpaceId, u64)>) {
    let mut newest: Newest = BTreeMap::new();
    for (key, mut incarnations) in rows {
        if let Some((_, slabs)) = incarnations.pop_last() {
            newest.insert(key, slabs);
        }
    }
    let uncertain = resolve_conversion_shadows(&mut newest);
    resolve_shadows(&mut newest);
    (newest, uncertain)
}

/// A conversion shadow that was promoted may still be called one. Where that cannot be told from one that was being filled, the row
/// counts, and is uncertain.
fn resolve_conversion_shadows(newest: &mut Newest) -> BTreeSet<(SpaceId, u64)> {
    let mut uncertain = BTreeSet::new();
    let conversion_shadows: Vec<(SpaceId, u64)> = newest
        .keys()
        .copied()
        .filter(|(id, _)| matches!(purpose_of(*id), Purpose::ConversionShadows(_)))
        .collect();
    for key in conversion_shadows {
        let Purpose::ConversionShadows(owner) = purpose_of(key.0) else { continue };
        let Some(conversion_shadow) = newest.remove(&key) else { continue };
        let id = conversion_shadow.first().map(|(_, header)| header.row);
        let place = (owner, key.1);
        match newest.get_mut(&place) {
            Some(row) => match row.first().map(|(_, header)| header.row) {
                row_id if row_id == id => row.extend(conversion_shadow),
                row_id if row_id > id => {}
                _ => {
                    uncertain.insert(place);
                }
            },
            None => {
                newest.insert(place, conversion_shadow);
                uncertain.insert(place);
            }
        }
    }
    uncertain
}

/// A shadow row stands beside its row, or has taken its place.
fn resolve_shadows(newest: &mut Newest) {
    let shadows: Vec<(SpaceId, u64)> =
        newest.keys().copied().filter(|(id, _)| matches!(purpose_of(*id), Purpose::ShadowRows(_))).collect();
    for (hidden, index) in shadows {
        let Purpose::ShadowRows(owner) = purpose_of(hidden) else { continue };
        let id = |key: &(SpaceId, u64)| {
            newest.get(key).and_then(|slabs| slabs.first()).map(|(_, h)| (h.row, h.shape))
        };
        let (shadow, row) = (id(&(hidden, index)), id(&(owner, index)));
        let is_unpromoted = match (shadow, row) {
            (Some((shadow, shape)), Some((row, other))) => shadow > row && shape == other,
            _ => false,
        };
        if is_unpromoted {
            continue;
        }
        let Some(slabs) = newest.remove(&(hidden, index)) else { continue };
        match row {
            // Its header has its own name on some disks already: it is the row, and these are its slabs too.
            Some((row, _)) if shadow.is_some_and(|(shadow, _)| shadow == row) => {
                if let Some(of) = newest.get_mut(&(owner, index)) {
                    of.extend(slabs);
                }
            }
            Some((row, _)) if shadow.is_some_and(|(shadow, _)| shadow < row) => {}
            Some(_) | None => {
                newest.insert((owner, index), slabs);
            }
        }
    }
}

/// Shadow rows of a space that exist in addition to their rows.
fn unpromoted_shadows(newest: &Newest, id: SpaceId) -> Vec<(u64, &Vec<Held>)> {
    let is_of = |key: &(SpaceId, u64)| purpose_of(key.0) == Purpose::ShadowRows(id);
    newest.iter().filter(|(key, _)| is_of(key)).map(|((_, index), slabs)| (*index, slabs)).collect()
}

/// The slabs of a row that can stand in a map together: of one shape, one for each disk in a column, and so many in a column
/// as there may be. Those whose headers were written last come first.
fn chosen(slabs: &[Held], shape: RowShape) -> Vec<Held> {
    let mut slabs: Vec<&Held> = slabs.iter().filter(|(_, header)| header.shape == shape).collect();
    slabs.sort_by_key(|(_, header)| std::cmp::Reverse(header.epoch));
    let mut chosen: Vec<Held> = Vec::new();
    for (source, header) in slabs {
        let of_column = || chosen.iter().filter(|(_, other)| other.column == header.column);
        let is_there = of_column().any(|(other, _)| other == source);
        // One place is kept for the disk that is not there.
        if !is_there && of_column().count() + 1 < SLABS_OF_A_COLUMN_MAX {
            chosen.push((*source, header.clone()));
        }
    }
    chosen
}

/// How many disks have the column of which most are there.
fn copies_of(slabs: &[Held]) -> usize {
    let mut disks: BTreeMap<u8, BTreeSet<usize>> = BTreeMap::new();
    slabs.iter().for_each(|(source, header)| {
        disks.entry(header.column).or_default().insert(*source);
    });
    disks.values().map(BTreeSet::len).max().unwrap_or(0)
}

//! Opening a pool for what can be had of it, in one of four ways (docs/design/0019).
//!
//! Each way ends in the same place: candidates for `dolmen_pool::open`, which reads and never writes. What a way changes is in
//! the labels that it hands over, or in overlays.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_block_io::{BlockDevice, Durability, Seams, write};
use dolmen_causes::in_one_line;
use dolmen_check::Overlay;
use dolmen_epoch::{EpochRecord, LogSpan};
use dolmen_future_pool::pooled;
use dolmen_pool::{
    Candidate, LogNeed, MemoryArbiter, OpenError, OpenMode, OpenOptions, Opened, areas, keys,
    open as open_pool,
};
use dolmen_space::{Progress, Resiliency, Space, Spaces, salvage};
use dolmen_store::{
    Anchor, CHECKPOINT_BLOCK_BYTES, CheckpointBlock, Key, Replica, Store, StoreError, StoreOptions,
};
use dolmen_units::{Bytes, Epoch, EpochId, HostId, Lsn, RowId, SpaceId};

use crate::error::RescueError;
use crate::export::Export;
use crate::gather::{Gathered, Note, gather, look_at, read_bytes};
use crate::point_in_time::PointInTime;
use crate::rebuild::{Doubt, NOBODY, rebuild};

/// An LSN that no pool comes to: an extent of the log from here on has nothing.
pub(crate) const AFTER_ALL: Lsn = Lsn(1 << 62);
/// In whose name overlays are written.
pub(crate) const TOKEN: Epoch = Epoch(u64::MAX);

/// How a pool is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RescueMode {
    /// As the daemon would.
    Present,
    /// At this checkpoint, with the log if all of it is there.
    At(u64),
    /// At the newest checkpoint, without the log.
    WithoutLog,
    /// By what slabs say of themselves.
    Slabs,
}

/// What to open, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The pool, by name or id, where devices of several are given.
    pub pool: Option<String>,
    /// How.
    pub mode: RescueMode,
    /// The space whose tables are weighed where nothing but slabs tells which are the newest; `None`: those of all.
    pub space: Option<String>,
}

/// A space that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSpace {
    /// Its id.
    pub id: SpaceId,
    /// Its name, or one that was made up.
    pub name: String,
    /// Its size.
    pub size: Bytes,
    /// How it survives the loss of disks.
    pub resiliency: Resiliency,
    /// Rows that it has.
    pub rows: u64,
    /// Whether name and size were made up.
    pub is_nameless: bool,
    /// Since when it is in the trash, in seconds since 1970.
    pub trashed_at: Option<u64>,
}

/// A pool that is open for reading.
pub struct Rescued {
    pub(crate) spaces: Rc<Spaces>,
    /// Its name.
    pub name: String,
    /// Of which moment it is.
    pub point_in_time: PointInTime,
    /// What whoever reads it has to know.
    pub notes: Vec<Note>,
    pub(crate) doubts: Vec<Doubt>,
    nameless: Vec<SpaceId>,
}

impl Rescued {
    /// Its spaces, those in the trash among them.
    #[pooled]
    pub async fn list(&self) -> Vec<FoundSpace> {
        let mut found = Vec::new();
        for space in self.spaces.kept() {
            let rows = self.spaces.pool().map().get(&keys::row_count(space.id())).await.ok().flatten();
            let rows = rows.and_then(|rows| rows.try_into().ok()).map_or(0, u64::from_le_bytes);
            found.push(FoundSpace {
                id: space.id(),
                name: space.name().to_string(),
                size: space.size(),
                resiliency: space.spec().resiliency,
                rows,
                is_nameless: self.nameless.contains(&space.id()),
                trashed_at: space.trashed_at(),
            });
        }
        found
    }

    /// The space with this name or id. Of those with one name, the one that is in use is meant, or else the one that came to the
    /// trash last.
    ///
    /// # Errors
    /// [`RescueError::NoSuchSpace`].
    pub fn find(&self, wanted: &str) -> Result<Space, RescueError> {
        let mut spaces = self.spaces.kept();
        spaces.sort_by_key(|space| (space.trashed_at().is_some(), Reverse(space.trashed_at())));
        let is_meant = |space: &&Space| {
            space.name().as_str() == wanted || wanted.parse().is_ok_and(|id: u64| space.id() == SpaceId(id))
        };
        let found = spaces.iter().find(is_meant).cloned();
        found.ok_or_else(|| RescueError::NoSuchSpace {
            wanted: wanted.to_owned(),
            found: spaces.iter().map(|space| space.name().to_string()).collect(),
        })
    }

    /// Begins to give a space.
    ///
    /// # Errors
    /// [`RescueError::NoSuchSpace`].
    #[pooled]
    pub async fn export(&self, wanted: &str) -> Result<Export, RescueError> {
        let space = self.find(wanted)?;
        Ok(Export::new(self, space).await)
    }

    /// Ends it.
    #[pooled]
    pub async fn close(self) {
        let _ = self.spaces.close().await;
    }
}

/// Opens what the devices have of a pool.
///
/// # Errors
/// [`RescueError`], with what else may do.
#[pooled]
pub async fn open(
    seams: &Seams,
    devices: &[Rc<dyn BlockDevice>],
    options: &Options,
    progress: &Progress,
) -> Result<Rescued, RescueError> {
    let looked = look_at(seams, devices).await;
    let wanted = options.pool.as_deref();
    match options.mode {
        RescueMode::Present => {
            let gathered = gather(seams, &looked, wanted).await?;
            let notes = gathered.notes.clone();
            let opened = open_read(seams, gathered.candidates).await.map_err(advise)?;
            start(opened, PointInTime::Present, notes).await
        }
        RescueMode::At(sequence) => {
            let gathered = gather(seams, &looked, wanted).await?;
            at_checkpoint(seams, gathered, Some(sequence), Log::IfWhole).await
        }
        RescueMode::WithoutLog => {
            let gathered = gather(seams, &looked, wanted).await?;
            at_checkpoint(seams, gathered, None, Log::Never).await
        }
        RescueMode::Slabs => {
            let built = rebuild(seams, &looked, options, progress).await?;
            let opened = open_read(seams, built.candidates).await.map_err(advise)?;
            let mut rescued = start(opened, PointInTime::Slabs, built.notes).await?;
            (rescued.doubts, rescued.nameless) = (built.doubts, built.nameless);
            Ok(rescued)
        }
    }
}

/// Opens a pool for reading. Nobody is asked who may write, because nothing is written.
pub(crate) async fn open_read(seams: &Seams, candidates: Vec<Candidate>) -> Result<Opened, OpenError> {
    let arbiter = MemoryArbiter::new(HostId(seams.entropy.next_id()));
    open_pool(seams, arbiter, candidates, &OpenOptions { mode: OpenMode::Read }).await
}

#[pooled]
async fn start(
    opened: Opened,
    point_in_time: PointInTime,
    mut notes: Vec<Note>,
) -> Result<Rescued, RescueError> {
    let pool = Rc::clone(&opened.pool);
    let spaces = Spaces::start(opened).await.map_err(|error| RescueError::Spaces(Box::new(error)))?;
    for disk in pool.disks().into_iter().filter(|disk| !disk.is_present() && disk.id() != NOBODY) {
        let why = disk.absence().unfit().map_or_else(String::new, |why| format!(": {why}"));
        notes.push(Note(format!("{} ({}) is missing{why}", disk.slot(), disk.id())));
    }
    if !point_in_time.has_log() {
        notes.extend(without_log(&spaces));
    }
    Ok(Rescued {
        spaces,
        name: pool.name().to_string(),
        point_in_time,
        notes,
        doubts: Vec::new(),
        nameless: Vec::new(),
    })
}

/// What holds for all that is read without the log.
fn without_log(spaces: &Spaces) -> Vec<Note> {
    let mut notes = vec![Note(
        "without the log each block is as of the last time that its table page was written back: what was overwritten since is bad, what was first written since reads as zeros"
            .to_owned(),
    )];
    let is_cached = |space: &Space| matches!(space.spec().resiliency, Resiliency::Parity { .. });
    if spaces.list().iter().any(is_cached) {
        notes.push(Note(
            "what lay in the write cache of spaces with parity is not to be found without the log: what was written to them last may be older than the rest"
                .to_owned(),
        ));
    }
    notes
}

/// An error of an opening, with what else may do.
fn advise(error: OpenError) -> RescueError {
    let advice = match &error {
        OpenError::LogDamage { .. } | OpenError::Recover(_) => "its log is not whole: try --without-log",
        OpenError::Store(_) => {
            "its map is not whole: scan lists older checkpoints for --at, and --from-slabs needs none"
        }
        OpenError::NoMetadata { .. } => {
            "no disk with its map is here: name more of its disks, or try --from-slabs"
        }
        _ => "scan tells what is there, and --from-slabs needs neither labels nor a map",
    };
    RescueError::Open { advice: advice.to_owned(), source: Box::new(error) }
}

/// Whether the log has a say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Log {
    IfWhole,
    Never,
}

#[pooled]
async fn at_checkpoint(
    seams: &Seams,
    mut gathered: Gathered,
    wanted: Option<u64>,
    log: Log,
) -> Result<Rescued, RescueError> {
    let found = checkpoints(seams, &gathered).await;
    let numbers: Vec<u64> = found.keys().copied().collect();
    let sequence = wanted.or_else(|| numbers.last().copied()).filter(|sequence| found.contains_key(sequence));
    let sequence = sequence.ok_or_else(|| match wanted {
        Some(wanted) => RescueError::NoCheckpoint { wanted, found: numbers.clone() },
        None => RescueError::Nothing {
            count: gathered.candidates.len(),
            what: "a checkpoint of the map",
            advice: "name more disks of the pool, or try --from-slabs",
        },
    })?;
    with_overlays(seams, &mut gathered);
    hide_newer(seams, &gathered, sequence).await?;
    let newest = Some(sequence) == numbers.last().copied();
    let mut notes = gathered.notes.clone();
    if log == Log::IfWhole {
        match open_read(seams, gathered.candidates.clone()).await {
            Ok(opened) => return start(opened, PointInTime::Replayed { sequence }, notes).await,
            Err(OpenError::LogDamage { what }) => notes.push(Note(format!(
                "the log since checkpoint {sequence} is not all there ({what}), and is left out"
            ))),
            Err(OpenError::Store(source)) => {
                return Err(RescueError::Map { sequence, source: Box::new(source) });
            }
            Err(error) => return Err(advise(error)),
        }
    }
    if !newest {
        notes.push(Note(format!(
            "the newest checkpoint is {}: rows that were moved or given up since may be overwritten, and are bad then",
            numbers.last().copied().unwrap_or(sequence)
        )));
    }
    cut_log(&mut gathered);
    let lost = call_formatted(seams, &gathered, sequence).await?;
    if lost > 0 {
        notes.push(Note(format!(
            "{lost} rows had their tables in the log alone at that moment: what their slabs do not say since is bad"
        )));
    }
    let opened = open_read(seams, gathered.candidates).await.map_err(advise)?;
    start(opened, PointInTime::Checkpoint { sequence }, notes).await
}

/// The checkpoints that voters have, each with the blocks that say so.
pub(crate) async fn checkpoints(seams: &Seams, gathered: &Gathered) -> BTreeMap<u64, Vec<CheckpointBlock>> {
    let mut found: BTreeMap<u64, Vec<CheckpointBlock>> = BTreeMap::new();
    for source in gathered.sources() {
        let (_, area) = areas(source.label.log, source.label.pages);
        for slot in 0..2 {
            let at = area.checkpoint_at + slot * CHECKPOINT_BLOCK_BYTES as u64;
            let bytes = read_bytes(seams, source.device.as_ref(), at, CHECKPOINT_BLOCK_BYTES).await;
            let Some(Ok(block)) = bytes.map(|bytes| CheckpointBlock::parse(&bytes)) else { continue };
            let is_ours = block.pool == source.label.pool && block.disk == source.label.disk;
            if is_ours && block.at == at && block.area == area {
                found.entry(block.sequence).or_default().push(block);
            }
        }
    }
    found
}

/// Puts the disks that have the map behind overlays, which keep what is written in memory.
fn with_overlays(seams: &Seams, gathered: &mut Gathered) {
    let sources: Vec<_> = gathered.sources().iter().map(|source| source.label.disk).collect();
    for candidate in gathered.candidates.iter_mut().filter(|one| sources.contains(&one.label.disk)) {
        let overlay = Overlay::new(Rc::clone(&candidate.device), Rc::clone(&seams.spawner));
        candidate.device = overlay;
    }
}

/// Hides the checkpoints that are newer than one.
#[pooled]
async fn hide_newer(seams: &Seams, gathered: &Gathered, sequence: u64) -> Result<(), RescueError> {
    for source in gathered.sources() {
        let (_, area) = areas(source.label.log, source.label.pages);
        for slot in 0..2 {
            let at = area.checkpoint_at + slot * CHECKPOINT_BLOCK_BYTES as u64;
            let bytes = read_bytes(seams, source.device.as_ref(), at, CHECKPOINT_BLOCK_BYTES).await;
            let is_newer = match bytes.map(|bytes| CheckpointBlock::parse(&bytes)) {
                Some(Ok(block)) => block.sequence > sequence,
                Some(Err(_)) | None => false,
            };
            if is_newer {
                let mut zeros = seams.metadata.take(CHECKPOINT_BLOCK_BYTES).await;
                zeros.fill(0);
                let hidden =
                    write(source.device.as_ref(), TOKEN, at, zeros.freeze(), Durability::Cached).await;
                hidden.map_err(|error| RescueError::Layout(Box::new(error)))?;
            }
        }
    }
    Ok(())
}

/// Has all labels say that the log holds nothing, and that no other epoch was about to be.
fn cut_log(gathered: &mut Gathered) {
    for candidate in &mut gathered.candidates {
        candidate.label.pending = None;
        let mut parts = candidate.label.base.epoch.parts().clone();
        parts.spans = vec![LogSpan { epoch: parts.id, first: AFTER_ALL }];
        if let Ok(cut) = EpochRecord::new(parts) {
            candidate.label.base.epoch = cut;
        }
    }
}

/// Opens the map of the sources.
pub(crate) async fn open_map(
    seams: &Seams,
    gathered: &Gathered,
) -> Result<Option<(Rc<Store>, Anchor)>, StoreError> {
    let sources = gathered.sources();
    let Some(first) = sources.first() else { return Ok(None) };
    let (_, area) = areas(first.label.log, first.label.pages);
    let replica = |one: &&Candidate| Replica { disk: one.label.disk, device: Rc::clone(&one.device) };
    let replicas: Vec<Replica> = sources.iter().map(replica).collect();
    let options = StoreOptions::default();
    let (store, opened) = Store::open(seams, TOKEN, first.label.pool, area, &replicas, options).await?;
    Ok(Some((store, opened.anchor)))
}

/// Has the map say that the tables of all rows are on their slabs: those of which only the log knew are looked for there. How
/// many rows were not called so.
#[pooled]
async fn call_formatted(seams: &Seams, gathered: &Gathered, sequence: u64) -> Result<u64, RescueError> {
    let torn = |source| RescueError::Map { sequence, source: Box::new(source) };
    let Some((store, anchor)) = open_map(seams, gathered).await.map_err(torn)? else { return Ok(0) };
    let mut changed = 0;
    let rows = store.scan(keys::rows_from(RowId(0)), usize::MAX).await.map_err(torn)?;
    for (key, value) in rows.into_iter().map(|(key, value)| (key, value.to_vec())) {
        if salvage::is_formatted(&value) == Some(false)
            && let Some(value) = salvage::as_formatted(&value)
        {
            store.put(key, &value);
            changed += 1;
        }
    }
    if changed > 0 {
        store.checkpoint(anchor).await.map_err(RescueError::layout)?;
    }
    Ok(changed)
}

/// Whether every page of the map can be read, of the checkpoint with this number; and what its anchor says.
pub(crate) async fn is_whole(
    seams: &Seams,
    mut gathered: Gathered,
    sequence: u64,
) -> Result<(LogNeed, Gathered), String> {
    with_overlays(seams, &mut gathered);
    hide_newer(seams, &gathered, sequence).await.map_err(|error| in_one_line(&error))?;
    let opened = open_map(seams, &gathered).await.map_err(|error| in_one_line(&error))?;
    let Some((store, anchor)) = opened else { return Err("no disk has the map".to_owned()) };
    let mut from = Key::MIN;
    loop {
        let found = store.scan(from..Key::MAX, 4096).await.map_err(|error| in_one_line(&error))?;
        match found.last().and_then(|(key, _)| key.next()) {
            Some(next) => from = next,
            None => return Ok((LogNeed::from_anchor(anchor), gathered)),
        }
    }
}

/// An epoch of this number that nobody else has.
pub(crate) fn fresh_epoch(seams: &Seams, number: Epoch) -> EpochId {
    EpochId { number, nonce: seams.entropy.next_u64() }
}

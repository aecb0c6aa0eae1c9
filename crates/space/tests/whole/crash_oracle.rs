//! The oracle: opens what a crash left, and compares it with what the tape allows.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dolmen_block_io::{BlockDevice, Durability, Seams};
use dolmen_disk::MemberState;
use dolmen_pool::{Arbiter, OpenError, OpenMode, OpenOptions, PoolError, discover, keys, open};
use dolmen_sim::{Reopened, StopAt, World};
use dolmen_space::{
    DataLossKind, HeaderFault, Integrity, Progress, Space, SpaceError, SpaceRange, Spaces, UnreadableReason,
    WrongHeader,
};
use dolmen_units::{EpochId, PoolId};

use crate::harness::{ROW, pattern, read};
use crate::recording::{
    BLOCK, Expected, FILLER, FILLER_BYTES, INTERLEAVE, NotingArbiter, Recording, host_with,
};

/// Steps of one opening with all that follows, at most.
const STEPS_MAX: u64 = 300_000;

/// Where a bit has turned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlippedBit {
    /// In one copy of a block, or of what shares parity with it.
    Block(&'static str, u64),
    /// In a copy of what tells of blocks, such as a table: of any.
    Elsewhere,
}

/// A crash to be judged.
#[derive(Debug, Clone)]
pub struct Case {
    pub expected: Expected,
    /// Disks that the pool began with.
    pub disks: usize,
    pub copies: u8,
    /// Data columns that share parity; none without.
    pub parity_of: Option<u64>,
    /// Disks that are not attached.
    pub lost: BTreeSet<usize>,
    /// Disks that were not attached when the crash was recovered from.
    pub absent_then: BTreeSet<usize>,
    /// Where a bit has turned.
    pub flipped_bit: Option<FlippedBit>,
    /// The disk that goes when all has been verified, if the space survives that.
    pub lost_later: usize,
    /// Whether blocks may be torn.
    pub torn: bool,
    /// Whether a header may be: that of a shadow row or a conversion shadow which was promoted is written over what stood there,
    /// before a flush.
    pub torn_headers: bool,
    /// Whether everything is tried: writes, closing, and opening again.
    pub thorough: bool,
}

impl Case {
    /// Whether disks that hold all copies of something may be missing or behind.
    pub fn is_beyond_redundancy(&self) -> bool {
        let lost: BTreeSet<usize> = self.lost.union(&self.expected.weak).copied().collect();
        lost.len() >= usize::from(self.copies)
    }

    fn stripe_of(&self, block: u64) -> (u64, u64) {
        self.parity_of.map_or((0, block), |columns| stripe_of(columns, block))
    }

    /// Whether a block has one copy left, and that one is damaged.
    fn may_be_lost(&self, name: &str, block: u64) -> bool {
        let fills = self.expected.spaces.get(name).and_then(|space| space.blocks.get(&block));
        // One in flight was decided for good with the disks of then.
        let decided = fills.is_some_and(|fills| fills.len() > 1);
        let absent = if decided { &self.absent_then } else { &self.lost };
        let lost = absent.union(&self.expected.weak).count() + 1;
        let is_hit =
            |flipped_bit| flipped_bit == block || self.stripe_of(flipped_bit) == self.stripe_of(block);
        let hit = match self.flipped_bit {
            Some(FlippedBit::Block(space, flipped_bit)) => space == name && is_hit(flipped_bit),
            Some(FlippedBit::Elsewhere) => true,
            None => false,
        };
        hit && lost >= usize::from(self.copies)
    }
}

/// What shares parity with a block: the row, and the block of each of so many columns.
pub fn stripe_of(columns: u64, block: u64) -> (u64, u64) {
    let (row, within) = (block / (ROW.0 / BLOCK), block % (ROW.0 / BLOCK));
    let (unit, in_unit) = (within / (INTERLEAVE.0 / BLOCK), within % (INTERLEAVE.0 / BLOCK));
    (row, unit / columns * (INTERLEAVE.0 / BLOCK) + in_unit)
}

/// What was found in blocks, by name of the space.
type Contents = BTreeMap<(&'static str, u64), Vec<u8>>;

/// Opens the pool that is on the devices, as the daemon does.
pub async fn open_pool(
    seams: &Seams,
    devices: &[Rc<dyn BlockDevice>],
    arbiter: Rc<dyn Arbiter>,
    mode: OpenMode,
) -> Result<Rc<Spaces>, Refusal> {
    let found = discover(seams, devices).await;
    let candidates = found.pools.into_values().next().unwrap_or_default();
    let opened = open(seams, arbiter, candidates, &OpenOptions { mode }).await.map_err(Refusal::Open)?;
    Spaces::start(opened).await.map_err(|error| Refusal::Start(error.to_string()))
}

#[derive(Debug)]
pub enum Refusal {
    Open(OpenError),
    Start(String),
}

/// The devices of a trial: those that are there from the beginning, and those that come back at its end.
pub struct Devices {
    pub here: Vec<Rc<dyn BlockDevice>>,
    pub later: Vec<Rc<dyn BlockDevice>>,
}

/// Opens what a crash left and judges it.
pub async fn examine(
    case: Rc<Case>,
    seams: Seams,
    devices: Devices,
    arbiter: Rc<NotingArbiter>,
) -> Result<(), String> {
    let host = || Rc::clone(&arbiter) as Rc<dyn Arbiter>;
    let open = |mode| open_pool(&seams, &devices.here, host(), mode);
    let (spaces, confirmed) = match open(OpenMode::Write).await {
        Ok(spaces) => (spaces, false),
        Err(Refusal::Open(_)) if !case.expected.pool_must_be => return Ok(()),
        Err(Refusal::Open(OpenError::ReadOnly { .. }))
            if case.is_beyond_redundancy() || (case.expected.export_begun && !case.lost.is_empty()) =>
        {
            match open(OpenMode::Confirmed).await {
                Ok(spaces) => (spaces, true),
                // Of the newest epoch's disks those are gone that have its map. An older one is not offered.
                Err(Refusal::Open(OpenError::NoMetadata { .. })) if case.is_beyond_redundancy() => {
                    return Ok(());
                }
                Err(error) => return Err(format!("does not open when confirmed: {error:?}")),
            }
        }
        Err(Refusal::Open(OpenError::NoMetadata { .. })) if case.is_beyond_redundancy() => return Ok(()),
        Err(error) => return Err(format!("does not open: {error:?}")),
    };
    if confirmed && case.is_beyond_redundancy() {
        // Whoever confirms accepts what is here; it only has to hang together.
        check_map(&spaces).await?;
        return spaces.close().await.map_err(|error| format!("does not close when confirmed: {error}"));
    }
    let first = verify_contents(&case, &spaces).await?;
    if case.thorough && !confirmed {
        convert_all(&case, &spaces, &first).await?;
    }
    let moved = !case.expected.joins.is_empty() || !case.expected.replacements.is_empty();
    if (moved || case.thorough) && case.lost.is_empty() {
        resolve_members(&case, &spaces).await?;
    } else if !confirmed && !case.is_beyond_redundancy() {
        // What is away may be waited for.
        end_removals(&spaces).await?;
    }
    if case.thorough {
        check_clean(&case, &spaces).await?;
        if !case.is_beyond_redundancy() {
            try_writes(&case, &seams, &spaces).await?;
        }
    } else {
        check_map(&spaces).await?;
    }
    spaces.close().await.map_err(|error| format!("does not close: {error}"))?;
    drop(spaces);
    if case.thorough {
        let spaces =
            open(OpenMode::Write).await.map_err(|error| format!("does not open again: {error:?}"))?;
        verify_again(&case, &spaces, &first).await?;
        spaces.close().await.map_err(|error| format!("does not close again: {error}"))?;
    }
    if case.thorough && !confirmed && case.lost.is_empty() && !case.is_beyond_redundancy() && case.copies > 1
    {
        lose_one(&case, &seams, &devices, host(), &first).await?;
    }
    // A confirmed opening goes on without the disks that were not there, for good.
    if case.thorough && !case.lost.is_empty() && !confirmed {
        let all: Vec<_> = devices.here.iter().chain(&devices.later).cloned().collect();
        let opened = open_pool(&seams, &all, host(), OpenMode::Write).await;
        let spaces = opened.map_err(|error| format!("does not open with all disks: {error:?}"))?;
        let whole = Case { lost: BTreeSet::new(), absent_then: case.lost.clone(), ..(*case).clone() };
        let resynced = spaces.members().resync(&Progress::default()).await.map_err(|why| why.to_string())?;
        if !spaces.members().stale_rows().await.map_err(|error| error.to_string())?.is_empty() {
            return Err(format!("rows stay stale with all disks: {resynced:?}"));
        }
        resolve_members(&whole, &spaces).await.map_err(|why| format!("resynced: {why}"))?;
        verify_again(&whole, &spaces, &first).await.map_err(|why| format!("resynced: {why}"))?;
        check_clean(&whole, &spaces).await.map_err(|why| format!("resynced: {why}"))?;
        spaces.close().await.map_err(|error| format!("does not close with all disks: {error}"))?;
    }
    Ok(())
}

/// After everything was verified, and healed where it had to be, any one disk may go.
async fn lose_one(
    case: &Case,
    seams: &Seams,
    devices: &Devices,
    arbiter: Rc<dyn Arbiter>,
    first: &Contents,
) -> Result<(), String> {
    let mut left = devices.here.clone();
    left.remove(case.lost_later % left.len());
    let opened = open_pool(seams, &left, arbiter, OpenMode::Write).await;
    let spaces = opened.map_err(|error| format!("does not open without one disk: {error:?}"))?;
    // Of a line that has lost a block already, nothing survives the loss of another.
    let is_whole = |(name, block): &(&'static str, u64)| !case.may_be_lost(name, *block);
    let whole = first.iter().filter(|(place, _)| is_whole(place));
    let whole: Contents = whole.map(|(place, bytes)| (*place, bytes.clone())).collect();
    verify_again(case, &spaces, &whole).await.map_err(|why| format!("without one disk: {why}"))?;
    spaces.close().await.map_err(|error| format!("does not close without one disk: {error}"))
}

/// Brings conversions to their end, and judges again.
async fn convert_all(case: &Case, spaces: &Spaces, first: &Contents) -> Result<(), String> {
    if case.is_beyond_redundancy() {
        return Ok(());
    }
    end_conversions(case, spaces).await?;
    verify_again(case, spaces, first).await.map_err(|why| format!("converted: {why}"))
}

/// Goes on with conversions that were cut: with all disks here, they come to their end.
async fn end_conversions(case: &Case, spaces: &Spaces) -> Result<(), String> {
    let is_whole = case.lost.is_empty() && case.expected.weak.is_empty();
    for space in spaces.list().into_iter().filter(|space| space.layout_before().is_some()) {
        match spaces.conversions().convert(&space, &Progress::default()).await {
            Ok(true) => {}
            // The others may be too few for it.
            Ok(false) | Err(SpaceError::Pool(PoolError::NoSpace { .. })) if !is_whole => {}
            Ok(false) => {
                return Err(format!("{} is not converted although all disks are here", space.name()));
            }
            Err(error) => return Err(format!("a conversion does not go on: {error}")),
        }
    }
    Ok(())
}

/// Goes on with removals that were cut; the disk that still has something, if any has.
async fn end_removals(spaces: &Spaces) -> Result<Option<String>, String> {
    let relogged = |error: &dyn std::fmt::Display| format!("a removal does not go on: {error}");
    for disk in spaces.moves().drains() {
        if !spaces.moves().drain_disk(&disk, &Progress::default()).await.map_err(|error| relogged(&error))? {
            return Ok(Some(disk.name()));
        }
        spaces.pool().membership().evict(&disk).await.map_err(|error| relogged(&error))?;
        spaces.pool().voter_tender().tend().await.map_err(|error| relogged(&error))?;
    }
    Ok(None)
}

/// Replacements and removals that were cut are brought to their end; then the members are the old ones or the new ones, and everything
/// has its full redundancy on them.
async fn resolve_members(case: &Case, spaces: &Spaces) -> Result<(), String> {
    if case.is_beyond_redundancy() {
        return Ok(());
    }
    let relogged = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
    for (old, new) in spaces.pool().members().replacements() {
        let done = spaces.moves().finish_replacing(&old, &new, &Progress::default()).await;
        if !done.map_err(|error| relogged("a replacement does not go on", &error))? {
            return Err(format!("{} cannot be left although all disks are here", old.name()));
        }
    }
    spaces.members().resync(&Progress::default()).await.map_err(|error| relogged("resync", &error))?;
    if let Some(disk) = end_removals(spaces).await? {
        return Err(format!("{disk} has something left although all disks are here"));
    }
    let stale = spaces.members().stale_rows().await.map_err(|error| relogged("stale rows", &error))?;
    if !stale.is_empty() {
        return Err(format!("rows stay stale although all disks are here: {stale:?}"));
    }
    let members = spaces.pool().disks();
    let retired = members.iter().find(|disk| disk.member().state == MemberState::Retired);
    if let Some(disk) = retired {
        return Err(format!("{} is retired and nobody goes on with it", disk.name()));
    }
    let is_member =
        |number: usize| members.iter().any(|disk| disk.name() == crate::recorded_run::name_of(number));
    for (disk, must) in &case.expected.joins {
        if *must && !is_member(*disk) {
            return Err(format!("disk{disk} was added and is no member"));
        }
    }
    for (old, new, must) in &case.expected.replacements {
        if is_member(*old) == is_member(*new) || (*must && is_member(*old)) {
            let (old_is, new_is) = (is_member(*old), is_member(*new));
            return Err(format!("replaced by halves: disk{old} {old_is}, disk{new} {new_is}"));
        }
    }
    for (disk, must) in &case.expected.removals {
        if *must && is_member(*disk) {
            return Err(format!("disk{disk} was removed and is a member"));
        }
    }
    let left = |number: &usize| case.expected.removals.iter().any(|(disk, _)| disk == number);
    if let Some(number) = (0..case.disks).find(|number| {
        let is_replaced = case.expected.replacements.iter().any(|(old, ..)| old == number);
        !is_member(*number) && !left(number) && !is_replaced
    }) {
        return Err(format!("disk{number} is no member although nobody removed it"));
    }
    let joined = |number: &usize| case.expected.joins.iter().any(|(disk, _)| disk == number);
    let replaced = |number: &usize| case.expected.replacements.iter().any(|(_, new, _)| new == number);
    match (case.disks..case.disks + 2)
        .find(|number| is_member(*number) && !joined(number) && !replaced(number))
    {
        Some(number) => Err(format!("disk{number} is a member although nobody asked for it")),
        None => Ok(()),
    }
}

/// Everything that could be read still reads the same, and the rest as it may.
async fn verify_again(case: &Case, spaces: &Spaces, first: &Contents) -> Result<(), String> {
    check_map(spaces).await?;
    let now = verify_contents_as(case, spaces, Some(first)).await?;
    for ((name, block), before) in first {
        match now.get(&(*name, *block)) {
            Some(now) if now == before => {}
            Some(now) => {
                let (before, now) = (reported(*block, before), reported(*block, now));
                return Err(format!(
                    "{name} block {block} changed from {before} to {now} by closing and opening"
                ));
            }
            None => return Err(format!("{name} block {block} cannot be read any more")),
        }
    }
    Ok(())
}

async fn verify_contents(case: &Case, spaces: &Spaces) -> Result<Contents, String> {
    verify_contents_as(case, spaces, None).await
}

/// What blocks hold, each judged unless it was before.
async fn verify_contents_as(
    case: &Case,
    spaces: &Spaces,
    before: Option<&Contents>,
) -> Result<Contents, String> {
    let mut contents = Contents::new();
    verify_map(case, spaces).await?;
    for space in spaces.list() {
        if !case.expected.spaces.contains_key(space.name().as_str()) {
            return Err(format!("there is a space {} that nobody made", space.name()));
        }
    }
    for (name, expected) in &case.expected.spaces {
        let Ok(space) = spaces.find(name) else {
            if expected.must_be {
                return Err(format!("space {name} is gone"));
            }
            continue;
        };
        if !expected.may_be {
            return Err(format!("space {name} was deleted and is there"));
        }
        if !expected.sizes.contains(&space.size().0) {
            return Err(format!("space {name} has {} instead of one of {:?}", space.size(), expected.sizes));
        }
        for (block, fills) in &expected.blocks {
            if (block + 1) * BLOCK > space.size().0 {
                continue;
            }
            match space.read(block * BLOCK, BLOCK as usize).await {
                Ok(_) => {
                    let bytes = read(&space, block * BLOCK, BLOCK as usize)
                        .await
                        .map_err(|error| error.to_string())?;
                    if before.is_none_or(|before| !before.contains_key(&(*name, *block))) {
                        verify_block(case, spaces, &space, *block, fills, &bytes)
                            .map_err(|why| format!("{name} block {block} {why}"))?;
                    }
                    contents.insert((*name, *block), bytes);
                }
                Err(SpaceError::Unreadable { why: UnreadableReason::Absent, .. })
                    if case.is_beyond_redundancy() => {}
                Err(_) if case.may_be_lost(name, *block) => {}
                Err(error) => return Err(format!("{name} block {block}: {error}")),
            }
        }
    }
    Ok(contents)
}

/// Whether the map says of the rows that fill it what was committed.
async fn verify_map(case: &Case, spaces: &Spaces) -> Result<(), String> {
    if case.expected.map.is_empty() {
        return Ok(());
    }
    let scanned = spaces.pool().map().scan(keys::places(FILLER, 0..u64::MAX), usize::MAX).await;
    let found: BTreeMap<_, _> = scanned.map_err(|error| error.to_string())?.into_iter().collect();
    for (row, values) in &case.expected.map {
        let value = found.get(&keys::place(FILLER, *row));
        let is = |expected: &Option<u8>| match (value, expected) {
            (Some(value), Some(expected)) => **value == [*expected; FILLER_BYTES],
            (None, None) => true,
            _ => false,
        };
        if !values.iter().any(is) {
            let value = value.map(|value| value.first());
            return Err(format!("row {row} of the map begins with {value:?} instead of one of {values:?}"));
        }
    }
    Ok(())
}

fn verify_block(
    case: &Case,
    spaces: &Spaces,
    space: &Space,
    block: u64,
    fills: &BTreeSet<u8>,
    bytes: &[u8],
) -> Result<(), String> {
    let whole = |fill: &u8| *bytes == *content(block, *fill);
    if fills.iter().any(whole) {
        return Ok(());
    }
    let listed = spaces.data_loss_events().iter().any(|data_loss| {
        let end = data_loss.at + data_loss.length.0;
        data_loss.kind == DataLossKind::AcceptedUnverified
            && data_loss.space == space.id()
            && (data_loss.at..end).contains(&(block * BLOCK))
    });
    let by_sector = |sector: usize| {
        let range = sector * 512..(sector + 1) * 512;
        fills.iter().any(|fill| bytes[range.clone()] == content(block, *fill)[range.clone()])
    };
    let mixed = (0..8).all(by_sector);
    // The one exception of P2, which strict spaces do not have, once all of their rows are strict: an overwrite was under way, no
    // copy verifies, and recovery says so.
    let was_relaxed = space.layout_before().is_some_and(|before| before.integrity == Integrity::Relaxed);
    if listed
        && (space.spec().integrity == Integrity::Relaxed || was_relaxed)
        && (mixed || case.may_be_lost(space.name().as_str(), block))
        && fills.len() > 1
        && (case.torn || case.flipped_bit.is_some())
    {
        return Ok(());
    }
    Err(format!(
        "holds {}, which is none of {fills:?} (listed: {listed}, a mixture: {mixed})",
        reported(block, bytes)
    ))
}

/// The content of a block.
pub fn content(block: u64, fill: u8) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    pattern(block * BLOCK, fill, &mut bytes);
    bytes
}

/// Bytes by which a block is told from all others.
pub const BEGINNING: usize = 16;

pub fn beginning(block: u64, fill: u8) -> Vec<u8> {
    let mut bytes = vec![0; BEGINNING];
    pattern(block * BLOCK, fill, &mut bytes);
    bytes
}

fn reported(block: u64, bytes: &[u8]) -> String {
    match (0..=u8::MAX).find(|fill| content(block, *fill) == bytes) {
        Some(fill) => format!("fill {fill}"),
        None => {
            let sector = |sector: usize| {
                let range = sector * 512..(sector + 1) * 512;
                (0..=u8::MAX).find(|fill| content(block, *fill)[range.clone()] == bytes[range.clone()])
            };
            format!("a mixture {:?}", (0..8).map(sector).collect::<Vec<_>>())
        }
    }
}

async fn check_map(spaces: &Spaces) -> Result<(), String> {
    let findings =
        spaces.scrubs().check_map().await.map_err(|error| format!("the map cannot be checked: {error}"))?;
    if findings.is_empty() { Ok(()) } else { Err(findings.join("; ")) }
}

async fn check_clean(case: &Case, spaces: &Spaces) -> Result<(), String> {
    check_map(spaces).await?;
    if case.is_beyond_redundancy() {
        return Ok(());
    }
    let seen =
        spaces.scrubs().verify(&Progress::default()).await.map_err(|error| format!("verify: {error}"))?;
    let may_be = |range: &&SpaceRange| {
        let mut blocks = range.at / BLOCK..(range.at + range.length.0) / BLOCK;
        blocks.all(|block| case.may_be_lost(range.space.as_str(), block))
    };
    let unexpected: Vec<_> =
        seen.unreadable().filter(|range| !may_be(range)).map(ToString::to_string).collect();
    if !unexpected.is_empty() {
        return Err(format!("blocks without a good copy: {unexpected:?}"));
    }
    let is_torn = |wrong: &WrongHeader| wrong.fault == HeaderFault::Corrupt && wrong.is_healed;
    let is_expected = case.flipped_bit.is_some() || (case.torn_headers && seen.headers.iter().all(is_torn));
    if seen.header_count > 0 && !is_expected {
        return Err(format!("headers of slabs that are wrong: {:?}", seen.headers));
    }
    Ok(())
}

/// Writes to the last block of every space and to one in a row of its own, flushes, reads them, and forgets them again.
async fn try_writes(case: &Case, seams: &Seams, spaces: &Spaces) -> Result<(), String> {
    for space in spaces.list() {
        let blocks = space.size().0 / BLOCK;
        let known = |block: &u64| case.expected.spaces.values().any(|space| space.blocks.contains_key(block));
        let free = [blocks - 1, blocks / 2, 100, 3];
        for block in free.into_iter().filter(|block| *block < blocks && !known(block)).take(2) {
            for fill in [251, 252] {
                let mut buffer = seams.data.take(BLOCK as usize).await;
                pattern(block * BLOCK, fill, &mut buffer);
                let written = space.write(block * BLOCK, &buffer.freeze(), Durability::Durable).await;
                match written {
                    // A row needs as many disks as a block has copies.
                    Err(SpaceError::Pool(PoolError::NoSpace { .. })) if !case.lost.is_empty() => break,
                    Err(SpaceError::Pool(PoolError::MetadataFull { .. }))
                        if !case.expected.map.is_empty() =>
                    {
                        break;
                    }
                    Err(error) => {
                        return Err(format!("{} block {block} cannot be written: {error}", space.name()));
                    }
                    Ok(()) => {}
                }
                let found =
                    read(&space, block * BLOCK, BLOCK as usize).await.map_err(|error| error.to_string())?;
                if found != content(block, fill) {
                    return Err(format!(
                        "{} block {block} does not hold what was just written",
                        space.name()
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Judges disks that a crash left, in their own world.
pub fn verify(reopened: &Reopened, case: Case, pool: PoolId, named: Option<EpochId>) -> Result<(), String> {
    reopened.world.set_arenas(crate::recorded_run::ARENAS, crate::recorded_run::ARENAS);
    let here = (0..reopened.disks.len()).filter(|disk| !case.lost.contains(disk)).collect();
    let devices = Devices {
        here: attach(&reopened.disks, &case.lost, &reopened.world),
        later: attach(&reopened.disks, &here, &reopened.world),
    };
    let arbiter = host_with(pool, named, &Recording::new(None));
    let case = Case { absent_then: case.lost.clone(), ..case };
    verify_in(&reopened.world, case, devices, arbiter)
}

/// Judges in a world that goes on.
pub fn verify_in(
    world: &World,
    case: Case,
    devices: Devices,
    arbiter: Rc<NotingArbiter>,
) -> Result<(), String> {
    world.set_steps_max(STEPS_MAX);
    let seams = world.seams();
    let verdict = world.run(examine(Rc::new(case), seams, devices, arbiter));
    verdict.map_err(|stuck| format!("stuck: {stuck}"))?
}

pub fn attach(
    disks: &[Option<Rc<dolmen_sim::SimDisk>>],
    lost: &BTreeSet<usize>,
    world: &World,
) -> Vec<Rc<dyn BlockDevice>> {
    let here = disks.iter().enumerate().filter(|(index, _)| !lost.contains(index));
    here.filter_map(|(_, disk)| disk.as_ref()).map(|disk| disk.attach(world)).collect()
}

/// Runs something up to a stop, however it ends.
pub fn run_for<T: 'static>(
    world: &World,
    commands: u64,
    body: impl Future<Output = T> + 'static,
) -> Option<T> {
    match world.run_to(StopAt::Commands(commands), body) {
        Ok(dolmen_sim::Ran::Finished(value)) => Some(value),
        Ok(dolmen_sim::Ran::Stopped) => None,
        Err(stuck) => panic!("{stuck}"),
    }
}

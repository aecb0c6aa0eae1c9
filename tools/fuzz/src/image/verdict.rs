//! What is demanded of an engine with a forged image.

use std::rc::Rc;

use dolmen_block_io::Durability;
use dolmen_check::{CheckOptions, check};
use dolmen_pool::{OpenMode, keys};
use dolmen_rescue::dump::{What, dump};
use dolmen_rescue::{Options, Piece, RescueMode};
use dolmen_space::{Attribute, AttributeKey, DataLossKind, Progress, Segment, Space, Spaces};

use crate::Reached;
use crate::content::{self, BLOCK, Read, Tag};
use crate::lab::{Bench, Failure, Lab, read_blocks};
use crate::{named, seal};

/// Blocks of a space that are looked at, from its beginning: a forged size may be anything.
const LOOKED_MAX: u64 = 1100;
/// The counter of row ids.
const ROW_IDS: u64 = 1;
/// Rows that are looked at, at most: far more than a base has.
const ROWS_MAX: usize = 4096;
/// Blocks that are read at once.
const CHUNK: u32 = 100;
/// What the engine writes itself behind the opening.
const FILL: u16 = 900;
/// Where it does: at the beginning of rows, within, and across their ends.
const WRITTEN: [(u32, u32); 5] = [(0, 3), (7, 1), (254, 4), (600, 2), (1000, 9)];

/// What was acknowledged, and is to be found again: name of the space, and block.
type Acknowledged = Vec<(String, Tag)>;

/// Opens the image in one of several ways.
pub(crate) fn verdict(lab: &Lab, mode: u8) -> Reached {
    match mode % 8 {
        0 => lab.run(|bench| async move { offline(&bench).await }),
        1 => lab.run(|bench| async move { rescue(&bench).await }),
        2 => lab.run(|bench| async move { look(&bench).await }),
        _ => write_and_open_again(lab),
    }
}

fn reported(failure: &Failure) -> Reached {
    named(failure.as_ref())
}

/// Opens for reading: nothing is written, and nothing is read that nobody wrote.
async fn look(bench: &Bench) -> Reached {
    let spaces = match bench.open(OpenMode::Read).await {
        Ok(spaces) => spaces,
        Err(failure) => return reported(&failure),
    };
    expect_known_content(&spaces).await;
    for space in spaces.kept() {
        let _ = space.attributes().list().await;
    }
    let _ = (spaces.scrubs().check_map().await, spaces.scrubs().verify(&Progress::default()).await);
    let _ = spaces.close().await;
    Reached::Held
}

fn write_and_open_again(lab: &Lab) -> Reached {
    let written = lab.run(|bench| async move { write(&bench).await });
    let acknowledged = match written {
        Ok(acknowledged) => acknowledged,
        Err(failure) => return reported(&failure),
    };
    lab.world.kill();
    lab.disks.iter().for_each(|disk| disk.outlast_the_dead());
    lab.run(|bench| async move {
        match bench.open(OpenMode::Write).await {
            Ok(spaces) => {
                expect_written(&spaces, &acknowledged).await;
                let _ = spaces.close().await;
            }
            Err(failure) => _ = reported(&failure),
        }
    });
    Reached::Held
}

/// Opens for writing, reads all, and does what an owner does.
async fn write(bench: &Bench) -> Result<Acknowledged, Failure> {
    let spaces = bench.open(OpenMode::Write).await?;
    expect_known_content(&spaces).await;
    let mut acknowledged = Acknowledged::new();
    let list = spaces.list();
    for space in &list {
        let _ = space.discard(100 * BLOCK as u64, 20 * BLOCK as u64).await;
        change_attributes(space).await;
        for (block, count) in WRITTEN {
            let tag = Tag { space: 200, block, fill: FILL };
            if bench.write(space, tag, count, Durability::Cached).await.is_ok() {
                let tags = (block..block + count).map(|block| Tag { block, ..tag });
                acknowledged.extend(tags.map(|tag| (space.name().to_string(), tag)));
            }
        }
    }
    expect_written(&spaces, &acknowledged).await;
    if spaces.flush().await.is_err() {
        // What was not flushed may be lost with the engine that dies next.
        acknowledged.clear();
    }
    let _ = (spaces.scrubs().check_map().await, spaces.scrubs().verify(&Progress::default()).await);
    let _ = spaces.members().resync(&Progress::default()).await;
    let _ = spaces.caches().destage().await;
    expect_written(&spaces, &acknowledged).await;
    if let Some(last) = list.last() {
        let name = last.name().to_string();
        if spaces.changes().delete(last).await.is_ok() {
            acknowledged.retain(|(space, _)| *space != name);
        }
    }
    let _ = spaces.close().await;
    Ok(acknowledged)
}

/// An attribute that is put is listed, and none that is deleted.
async fn change_attributes(space: &Space) {
    let (put, key) =
        (Attribute { kind: 9, number: 1, value: vec![9; 30] }, AttributeKey { kind: 1, number: 0 });
    let changed = space.attributes().change(vec![put.clone()], vec![key]).await;
    let (Ok(()), Ok(listed)) = (changed, space.attributes().list().await) else { return };
    assert!(listed.contains(&put) && listed.iter().all(|one| one.key() != key), "{listed:?}");
}

/// Whether a block of a space was accepted unverified.
fn is_listed(spaces: &Spaces, space: &Space, block: u32) -> bool {
    let at = u64::from(block) * BLOCK as u64;
    spaces.data_loss_events().iter().any(|incident| {
        incident.space == space.id()
            && incident.kind == DataLossKind::AcceptedUnverified
            && (incident.at..incident.at.saturating_add(incident.length.0)).contains(&at)
    })
}

/// Everything that can be read was written once, whole, or is zeros, or is listed.
async fn expect_known_content(spaces: &Rc<Spaces>) {
    for space in spaces.list() {
        let blocks = (space.size().0 / BLOCK as u64).min(LOOKED_MAX) as u32;
        for first in (0..blocks).step_by(CHUNK as usize) {
            let count = CHUNK.min(blocks - first);
            for (block, read) in (first..).zip(read_blocks(&space, first, count).await) {
                match read {
                    Ok(Read::Zeros | Read::Content(_)) => {}
                    Ok(Read::Other) => assert!(
                        is_listed(spaces, &space, block),
                        "block {block} of {} is what nobody wrote, and is not listed",
                        space.name()
                    ),
                    Err(error) => _ = named(&error),
                }
            }
        }
    }
}

/// Whether two places of the map name one row, or the map is about to give one again, or cannot be asked: to tables and records they are
/// one row, so what is done to either is done to both.
pub(crate) async fn has_twins(spaces: &Rc<Spaces>) -> bool {
    let pool = spaces.pool();
    let (rows, next) = (
        pool.map().scan(keys::all(keys::Kind::Place), ROWS_MAX).await,
        pool.map().get(&keys::counter(ROW_IDS)).await,
    );
    let (Ok(rows), Ok(next)) = (rows, next) else { return true };
    let mut ids: Vec<u64> = rows.iter().map(|(_, value)| seal::number(value, 0, 8)).collect();
    ids.sort_unstable();
    let next = next.map_or(1, |value| seal::number(&value, 0, 8));
    ids.windows(2).any(|pair| pair[0] == pair[1]) || ids.last().is_some_and(|last| next <= *last)
}

/// What was acknowledged is there, or is an error, or is listed. Another space may have the name by now.
async fn expect_written(spaces: &Rc<Spaces>, acknowledged: &Acknowledged) {
    if has_twins(spaces).await {
        return;
    }
    for (name, tag) in acknowledged {
        let Ok(space) = spaces.find(name) else { continue };
        for read in read_blocks(&space, tag.block, 1).await {
            match read {
                Ok(Read::Content(found)) if found == *tag => {}
                Ok(found) => assert!(
                    is_listed(spaces, &space, tag.block),
                    "block {} of {name} is {found:?} instead of {tag:?}, which was acknowledged",
                    tag.block
                ),
                Err(error) => _ = named(&error),
            }
        }
    }
}

/// The offline check comes to its end, and writes nothing.
async fn offline(bench: &Bench) -> Reached {
    let options = CheckOptions { depth: dolmen_check::Depth::Content };
    let checked =
        check(bench.seams.clone(), bench.devices.clone(), options, Rc::new(Progress::default())).await;
    match checked {
        Ok(report) => {
            for finding in &report.findings {
                assert!(!finding.kind.to_string().trim().is_empty(), "{finding:?}");
            }
            Reached::Held
        }
        Err(error) => named(&error),
    }
}

/// A rescue comes to its end in every way, and gives nothing that nobody wrote without naming it.
async fn rescue(bench: &Bench) -> Reached {
    let progress = Progress::default();
    let depth = dolmen_rescue::Depth::WholeDisks;
    let _ = dolmen_rescue::scan(&bench.seams, &bench.devices, depth, &progress).await;
    for what in
        [What::Labels, What::Checkpoints, What::Log, What::Map, What::Spaces, What::Rows(None), What::Slabs]
    {
        if let Err(error) = dump(&bench.seams, &bench.devices, what, None, &progress).await {
            named(&error);
        }
    }
    let mut reached = Reached::Refused;
    for mode in [RescueMode::Present, RescueMode::WithoutLog, RescueMode::Slabs] {
        let options = Options { pool: None, mode, space: None };
        match dolmen_rescue::open(&bench.seams, &bench.devices, &options, &progress).await {
            Ok(rescued) => {
                reached = Reached::Held;
                for space in rescued.list().await {
                    export(&rescued, &space.id.0.to_string()).await;
                }
                rescued.close().await;
            }
            Err(error) => _ = named(&error),
        }
    }
    reached
}

async fn export(rescued: &dolmen_rescue::Rescued, space: &str) {
    let Ok(mut export) = rescued.export(space).await else { return };
    for _ in 0..LOOKED_MAX {
        let Some(piece) = export.next().await else { break };
        let Piece::Data { at, segments } = piece else { continue };
        let bad = export.bad();
        let mut at = at;
        for segment in segments {
            if let Segment::Data(data) = &segment {
                for (index, block) in data.chunks(BLOCK).enumerate() {
                    let block_at = at + (index * BLOCK) as u64;
                    let is_named = bad
                        .iter()
                        .any(|bad| (bad.at..bad.at.saturating_add(bad.length.0)).contains(&block_at));
                    let is_known = content::read(block) != Read::Other;
                    assert!(is_known || is_named, "byte {block_at} of {space} is what nobody wrote");
                }
            }
            at += segment.len() as u64;
        }
    }
}

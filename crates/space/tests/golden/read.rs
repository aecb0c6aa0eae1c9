//! Reading all of a pool, and judging it.

use std::collections::BTreeSet;
use std::error::Error;

use dolmen_space::{Space, SpaceError, Spaces, UnreadableReason};

use super::BLOCK;
use super::content::{Content, SpaceContent, attributes_of, kind_of};
use crate::harness::{Outcome, read};

/// Bytes that are read at once.
const CHUNK: u64 = 1 << 20;

/// What was read otherwise than it should be.
#[derive(Debug, Default)]
pub struct Report {
    /// Blocks with content that they never had, by number of the space.
    pub wrong: BTreeSet<(u8, u64)>,
    /// Blocks with content that they have not any more, if they ever had it, whole.
    pub older: BTreeSet<(u8, u64)>,
    /// Blocks that could not be read, and were named.
    pub errors: BTreeSet<(u8, u64)>,
}

impl Report {
    pub fn is_clean(&self) -> bool {
        self.wrong.is_empty() && self.older.is_empty() && self.errors.is_empty()
    }
}

/// Whether the pool has these spaces and no others.
pub fn expect_spaces(spaces: &Spaces, content: &Content) -> Outcome {
    let describe = |name: String, size: u64, kind: String| format!("{name}: {size} bytes, {kind}");
    let found = spaces.list();
    let found =
        found.iter().map(|space| describe(space.name().to_string(), space.size().0, kind_of(&space.spec())));
    let expected = content.spaces.iter();
    let expected = expected.map(|space| describe(space.name.clone(), space.size, space.kind.clone()));
    let (found, expected): (BTreeSet<String>, BTreeSet<String>) = (found.collect(), expected.collect());
    if found == expected { Ok(()) } else { Err(format!("{found:#?} instead of {expected:#?}").into()) }
}

/// Reads every byte of every space.
pub async fn read_all(spaces: &Spaces, content: &Content) -> Result<Report, Box<dyn Error>> {
    expect_spaces(spaces, content)?;
    let mut report = Report::default();
    for expected in &content.spaces {
        let space = spaces.find(&expected.name)?;
        let attributes = space.attributes().list().await?;
        if attributes != attributes_of(expected.number, &expected.name) {
            return Err(format!("space {} has {attributes:?}", expected.name).into());
        }
        for at in (0..expected.size).step_by(CHUNK as usize) {
            let length = CHUNK.min(expected.size - at) as usize;
            if let Ok(bytes) = read(&space, at, length).await {
                compare(expected, at, &bytes, &mut report);
                continue;
            }
            for at in (at..at + length as u64).step_by(BLOCK) {
                read_block(&space, expected, at, &mut report).await?;
            }
        }
    }
    Ok(report)
}

async fn read_block(
    space: &Space,
    expected: &SpaceContent,
    at: u64,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    match space.read(at, BLOCK).await {
        Ok(_) => {
            let bytes = read(space, at, BLOCK).await?;
            compare(expected, at, &bytes, report);
        }
        // Where disks are away, it may be another block of the row that the answer waits for.
        Err(SpaceError::Unreadable { name, at: relogged, length, why })
            if name.to_string() == expected.name
                && (why == UnreadableReason::Absent || (relogged <= at && at < relogged + length.0)) =>
        {
            report.errors.insert((expected.number, at / BLOCK as u64));
        }
        Err(error) => {
            return Err(format!("byte {at} of {} is not what is named: {error}", expected.name).into());
        }
    }
    Ok(())
}

fn compare(expected: &SpaceContent, at: u64, bytes: &[u8], report: &mut Report) {
    for (index, found) in bytes.chunks(BLOCK).enumerate() {
        let block = at / BLOCK as u64 + index as u64;
        if expected.fill_of(block, found).is_none() {
            let is_older = expected.is_some_fill(block, found);
            let of_report = if is_older { &mut report.older } else { &mut report.wrong };
            of_report.insert((expected.number, block));
        }
    }
}

/// Everything is there.
pub async fn expect_all(spaces: &Spaces, content: &Content) -> Outcome {
    let report = read_all(spaces, content).await?;
    if report.is_clean() { Ok(()) } else { Err(format!("{report:?}").into()) }
}

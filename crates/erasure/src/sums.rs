//! Sums of products over the blocks of a stripe: what encoding, updating and reconstruction all come down to.

use crate::DATA_COUNT_MAX;
use crate::error::{BlocksError, Role};
use crate::kernel::{Runnable, Source, Start};
use crate::matrix::Row;

/// Blocks that one pass reads, at most.
pub(crate) const SOURCES_MAX: usize = DATA_COUNT_MAX;
/// Sums that one pass computes, at most: as many as the registers of AVX2 hold beside what is being multiplied. A code
/// with more parity columns reads its data once for every four.
pub(crate) const TARGETS_MAX: usize = 4;

/// The length that all blocks of a stripe have.
#[derive(Default)]
pub(crate) struct Lengths {
    expected_bytes: Option<usize>,
}

impl Lengths {
    /// Compares a block with the first one that came along.
    pub(crate) fn check(
        &mut self,
        role: Role,
        place: usize,
        block: Option<&[u8]>,
    ) -> Result<(), BlocksError> {
        let Some(found_bytes) = block.map(<[u8]>::len) else { return Ok(()) };
        if found_bytes == 0 {
            return Err(BlocksError::Empty { role, place });
        }
        let expected_bytes = *self.expected_bytes.get_or_insert(found_bytes);
        if found_bytes == expected_bytes {
            Ok(())
        } else {
            Err(BlocksError::Length { role, place, found_bytes, expected_bytes })
        }
    }

    /// Compares how many places there are with how many there have to be.
    pub(crate) fn check_count(&self, role: Role, found: usize, expected: usize) -> Result<(), BlocksError> {
        if found == expected { Ok(()) } else { Err(BlocksError::Count { role, found, expected }) }
    }
}

/// The row of places in a pass that no target takes.
static ZEROS: Row = [0; DATA_COUNT_MAX];

/// Makes each target the sum of all inputs, each times its factor, beginning with zeros or with what the target holds.
///
/// An input comes with its place in the rows, a target with the number of its row. The inputs are at most
/// [`SOURCES_MAX`], and all blocks have one length, which the caller has checked.
pub(crate) fn add_up<'a>(
    kernel: Runnable,
    rows: &[Row],
    inputs: impl Iterator<Item = (usize, &'a [u8])> + Clone,
    mut targets: impl Iterator<Item = (usize, &'a mut [u8])>,
    start: Start,
) {
    loop {
        let mut blocks: [&mut [u8]; TARGETS_MAX] = Default::default();
        let mut chosen = [&ZEROS; TARGETS_MAX];
        let mut count = 0;
        for (block, row) in blocks.iter_mut().zip(&mut chosen) {
            let Some((number, target)) = targets.next() else { break };
            *block = target;
            *row = rows.get(number).unwrap_or(&ZEROS);
            count += 1;
        }
        let Some(blocks) = blocks.get_mut(..count).filter(|blocks| !blocks.is_empty()) else { return };
        let (sources, filled) = gather(inputs.clone(), chosen);
        kernel.add_up(sources.get(..filled).unwrap_or(&[]), blocks, start);
    }
}

/// The inputs with their factors in these rows; the first so many count.
fn gather<'a>(
    inputs: impl Iterator<Item = (usize, &'a [u8])>,
    rows: [&Row; TARGETS_MAX],
) -> ([Source<'a>; SOURCES_MAX], usize) {
    let mut sources = [Source::NONE; SOURCES_MAX];
    let mut filled = 0;
    for (place, bytes) in inputs {
        let Some(source) = sources.get_mut(filled) else { unreachable!("more than {SOURCES_MAX} inputs") };
        *source = Source { bytes, factors: rows.map(|row| row.get(place).copied().unwrap_or(0)) };
        filled += 1;
    }
    (sources, filled)
}

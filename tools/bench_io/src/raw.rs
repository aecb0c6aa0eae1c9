//! The baseline: the same files through the same device and ring, without a pool. Copies are written side by side and
//! nothing is remembered, verified or ordered, so this is what no engine on top can undercut.

use std::rc::Rc;

use dolmen_block_io::{BlockDevice, Durability, flush, read, write};
use dolmen_block_linux::{Handle, LinuxDevice};
use dolmen_buffer::{Arena, Shared};
use dolmen_space::INTERLEAVE_BYTES;
use dolmen_units::Epoch;

use crate::drive::Target;
use crate::error::BenchError;
use crate::tally::Tally;

/// Where the baseline writes on each disk.
const START: u64 = 128 << 20;
const TOKEN: Epoch = Epoch(1);

pub(crate) struct RawTarget {
    devices: Rc<[Rc<LinuxDevice>]>,
    arena: Arena,
    copies: usize,
}

/// A piece of an I/O that lies in one interleave.
struct Piece {
    unit: usize,
    at: u64,
    from: usize,
    to: usize,
}

impl RawTarget {
    pub(crate) fn new(handle: &Handle, devices: &Rc<[Rc<LinuxDevice>]>, copies: usize) -> Self {
        Self { devices: Rc::clone(devices), arena: handle.seams().data, copies }
    }

    fn device(&self, unit: usize, copy: usize) -> Option<&Rc<LinuxDevice>> {
        self.devices.get((unit + copy) % self.devices.len().max(1))
    }
}

/// The pieces of a range. Every interleave has its own place on every disk, whichever of them it is written to.
fn pieces(at: u64, length: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let here = at + done as u64;
        let room = usize::try_from(INTERLEAVE_BYTES.0 - here % INTERLEAVE_BYTES.0).unwrap_or(usize::MAX);
        let part = room.min(length - done);
        let unit = usize::try_from(here / INTERLEAVE_BYTES.0).unwrap_or(0);
        let piece = Piece { unit, at: START + here, from: done, to: done + part };
        done += part;
        (part > 0).then_some(piece)
    })
}

impl Target for RawTarget {
    async fn write(&self, at: u64, data: &Shared) -> Result<(), BenchError> {
        // At most five pieces of an I/O of 1 MiB on three disks each; the array spares the baseline an allocation.
        let mut writes = [const { None }; 16];
        let mut places = writes.iter_mut();
        for piece in pieces(at, data.len()) {
            for copy in 0..self.copies {
                let (Some(device), Some(place)) = (self.device(piece.unit, copy), places.next()) else {
                    continue;
                };
                let from = data.slice(piece.from..piece.to);
                *place = Some(write(device.as_ref(), TOKEN, piece.at, from, Durability::Cached));
            }
        }
        for one in writes.into_iter().flatten() {
            one.await?;
        }
        Ok(())
    }

    async fn read(&self, at: u64, length: usize) -> Result<(), BenchError> {
        let mut reads = [const { None }; 8];
        for (piece, place) in pieces(at, length).zip(&mut reads) {
            let Some(device) = self.device(piece.unit, 0) else { continue };
            let into = self.arena.take(piece.to - piece.from).await;
            *place = Some(read(device.as_ref(), TOKEN, piece.at, into));
        }
        for one in reads.into_iter().flatten() {
            let (_, result) = one.await;
            result?;
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), BenchError> {
        let flushes: Vec<_> = self.devices.iter().map(|device| flush(device.as_ref(), TOKEN)).collect();
        for one in flushes {
            one.await?;
        }
        Ok(())
    }

    fn count(&self, tally: Tally) -> Tally {
        self.devices.iter().fold(tally, |tally, device| tally.with_disk(device.counters()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_range_once_and_none_crosses_an_interleave() {
        for (at, length) in
            [(0, 4096), (INTERLEAVE_BYTES.0 - 4096, 8192), (1 << 20, 1 << 20), (4096, 1 << 20)]
        {
            let pieces: Vec<Piece> = pieces(at, length).collect();
            assert_eq!((pieces[0].from, pieces.last().unwrap().to), (0, length));
            assert!(pieces.windows(2).all(|pair| pair[0].to == pair[1].from));
            for piece in pieces {
                let (first, last) = (piece.at - START, piece.at - START + (piece.to - piece.from) as u64 - 1);
                assert_eq!(first / INTERLEAVE_BYTES.0, last / INTERLEAVE_BYTES.0);
            }
        }
    }
}

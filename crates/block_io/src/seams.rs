//! The seams in one bundle, as the engine carries them.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use dolmen_buffer::Arena;

use crate::clock::Clock;
use crate::executor::Spawner;

/// The seam to randomness: identities and nonces, drawn from the system or from a seed.
pub trait Entropy {
    /// Fills `into` with unpredictable bytes.
    fn fill(&self, into: &mut [u8]);

    /// 64 unpredictable bits.
    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// A fresh 128-bit identity, never all zeros.
    fn next_id(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        while bytes == [0; 16] {
            self.fill(&mut bytes);
        }
        bytes
    }
}

/// Everything that the engine may use of the world beside its disks. Clones are handles to the same.
#[derive(Clone)]
pub struct Seams {
    /// Time.
    pub clock: Rc<dyn Clock>,
    /// Randomness.
    pub entropy: Rc<dyn Entropy>,
    /// Tasks.
    pub spawner: Rc<dyn Spawner>,
    /// Memory for the payloads of clients.
    pub data: Arena,
    /// Memory for metadata: apart, so that metadata never waits for a client's buffer.
    pub metadata: Arena,
}

impl fmt::Debug for Seams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seams")
            .field("data", &self.data)
            .field("metadata", &self.metadata)
            .finish_non_exhaustive()
    }
}

struct SplitMix(Cell<u64>);

impl Entropy for SplitMix {
    fn fill(&self, into: &mut [u8]) {
        for chunk in into.chunks_mut(8) {
            self.0.set(self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
            let mut z = self.0.get();
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let bytes = (z ^ (z >> 31)).to_le_bytes();
            for (to, from) in chunk.iter_mut().zip(bytes) {
                *to = from;
            }
        }
    }
}

/// Randomness that repeats for a seed (SplitMix64, Steele, Lea and Flood 2014): for tests and simulation only.
#[must_use]
pub fn fixed_entropy(seed: u64) -> Rc<dyn Entropy> {
    Rc::new(SplitMix(Cell::new(seed)))
}

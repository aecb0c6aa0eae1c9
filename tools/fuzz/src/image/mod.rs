//! Whole images as somebody forged them, opened by the engine.
//!
//! Who forges an image seals it as well, so nothing of it can be told from what the engine wrote. What is demanded nevertheless:
//!
//! - It is opened, or refused with a reason; nothing panics, and all of it ends within a number of steps that is far above what any
//!   sound image of this size takes. Memory is bounded (the driver looks at that).
//! - *No content that nobody wrote.* A block that is read is zeros, or what was written to some block once, whole: its checksum
//!   stands in a table, and nobody forges content that fits one by chance. A forged map may say that it is another block's, and a
//!   forged table that there was none. The one exception is a block that was accepted unverified, and is listed.
//! - *What is written from then on is right.* What the forged pool acknowledges and flushes is read back, or is an error, then and
//!   when the pool is opened again, also where the forged map gives the same allocation units to two rows. Not where it has two
//!   rows with one id: ids are what tells tables and records of one row from those of another.
//! - Whatever reads images beside the engine (`check`, `rescue`) comes to its end as well.
//!
//! That a forged image is noticed is not demanded, nor that what was on it before is still there.

mod base;
mod forge;
mod verdict;

use crate::Reached;
use crate::lab::Lab;
use crate::script::Script;
use base::bases;
use forge::Forge;

/// Steps of forging, at most.
const FORGED_MAX: usize = 8;
/// Steps of the world for one opening with all that is done there; sound images take a hundredth of it.
const STEPS_MAX: u64 = 2_000_000;

/// One input.
pub(crate) fn run(input: &[u8]) -> Reached {
    let mut script = Script::new(input);
    let bases = bases();
    let base = &bases[script.index(bases.len())];
    let mode = script.byte();
    let mut forge = Forge::new(base);
    forge.forge(&mut script, FORGED_MAX);
    let lab = Lab::new(3, forge.images).on_record(base.named);
    lab.world.set_steps_max(STEPS_MAX);
    verdict::verdict(&lab, mode)
}

/// Inputs to begin with.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for base in 0..3 {
        for mode in 0..4 {
            seeds.push(vec![base, mode]);
        }
        for step in 0..8u8 {
            seeds.push(vec![base, 0, step, step, 1, 0, 3, 40, 0, 7, 2, 9, 0, 4]);
        }
    }
    seeds
}

#[cfg(test)]
mod tests {
    use dolmen_pool::keys;

    use super::*;

    /// Where the record of a row names the first allocation unit of its first slab: behind its head and the head of that slab.
    const FIRST_UNIT_AT: usize = 48 + 16;
    /// Shifts of the sizes that an allocation unit may have.
    const UNIT_SHIFTS: [u32; 3] = [12, 16, 20];

    /// A sealed map names a slab whose last byte is the last that an address can name, on each row of each base.
    #[test]
    fn a_slab_beyond_its_disk_is_refused_whatever_a_sealed_map_says() {
        for base in bases().iter() {
            for (key, value) in base.entries.iter().filter(|(key, _)| key.0[0] == keys::Kind::Row as u8) {
                for shift in UNIT_SHIFTS {
                    let mut value = value.clone();
                    let first = (u64::MAX >> shift) - ((1 << 20) >> shift) + 1;
                    value[FIRST_UNIT_AT..FIRST_UNIT_AT + 8].copy_from_slice(&first.to_le_bytes());
                    let mut forge = Forge::new(base);
                    forge.append_value(key, &value);
                    let lab = Lab::new(3, forge.images).on_record(base.named);
                    lab.world.set_steps_max(STEPS_MAX);
                    verdict::verdict(&lab, 2);
                }
            }
        }
    }
}

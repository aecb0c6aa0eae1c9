//! Garbage collection: where flash is rewritten, what is still valid in a block must move before it can be erased.
//!
//! A real device maps each 4 KiB. Here the same greedy collector works on a small image of the device, in which a slot
//! stands for many megabytes: 128 slots make a block, each slot is rewritten when as many bytes as it stands for have been
//! written in its surroundings, and the block with the fewest valid slots is collected. What comes out is how many
//! slots move for each that is written, which depends on the spare room and on the pattern, not on the scale.

use crate::random::Random;
use crate::time::{mul_div, wide};

/// Blocks of the image.
const BLOCKS: usize = 256;
/// Slots of a block.
const BLOCK_SLOTS: usize = 128;
/// Blocks that are kept erased.
const ERASED_MIN: usize = 2;
/// Over how many slot writes the amplification is smoothed.
const SMOOTHED: u64 = 2_048;
/// How often every slot is rewritten to come to the steady state.
const STEADY_PASSES: u64 = 4;

/// No slot, no block.
const NONE: usize = usize::MAX;

/// What a device has been through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Nothing was written.
    Fresh,
    /// All of it was written at random, several times.
    Steady,
}

/// The collector of one device.
#[derive(Debug, Clone)]
pub(crate) struct Collector {
    /// Where each logical slot is: block times [`BLOCK_SLOTS`] plus place.
    places: Vec<usize>,
    /// Which logical slot each place holds.
    holds: Vec<usize>,
    /// Valid slots of each block.
    valid: Vec<usize>,
    erased: Vec<usize>,
    open: usize,
    filled: usize,
    slot_bytes: u64,
    credit_bytes: u64,
    /// Slots programmed for each slot written, in thousandths, smoothed; scaled by [`SMOOTHED`].
    smoothed: u64,
    written: u64,
    programmed: u64,
}

impl Collector {
    /// The collector of a device that programs so many bytes for each byte written at random.
    pub(crate) fn new(
        capacity_bytes: u64,
        amplification_per_mille: u64,
        condition: Condition,
        random: &mut Random,
    ) -> Self {
        // The formula is exact for blocks without end; a trial shows how far the image is from it, and the aim is moved
        // by as much.
        let mut trial = Self::fresh(capacity_bytes, spare_per_mille(amplification_per_mille));
        let found = trial.age(&mut random.clone());
        let aim = amplification_per_mille.saturating_mul(2).saturating_sub(found).max(1_000);
        let mut collector = Self::fresh(capacity_bytes, spare_per_mille(aim));
        if condition == Condition::Steady {
            collector.age(random);
            collector.written = 0;
            collector.programmed = 0;
        }
        collector
    }

    /// Nothing was written.
    fn fresh(capacity_bytes: u64, spare_per_mille: u64) -> Self {
        let slots = BLOCKS * BLOCK_SLOTS;
        let usable = wide(slots - (ERASED_MIN + 2) * BLOCK_SLOTS);
        let logical = mul_div(usable, 1_000, 1_000 + spare_per_mille);
        let logical = usize::try_from(logical).unwrap_or(slots / 2);
        Self {
            places: vec![NONE; logical],
            holds: vec![NONE; slots],
            valid: vec![0; BLOCKS],
            erased: (1..BLOCKS).rev().collect(),
            open: 0,
            filled: 0,
            slot_bytes: (capacity_bytes / wide(logical)).max(1),
            credit_bytes: 0,
            smoothed: 1_000 * SMOOTHED,
            written: 0,
            programmed: 0,
        }
    }

    /// Writes all of it, then at random until it is steady; says how much it programs for each write in the end.
    fn age(&mut self, random: &mut Random) -> u64 {
        let logical = self.places.len();
        (0..logical).for_each(|slot| self.rewrite(slot));
        for _ in 0..STEADY_PASSES {
            self.written = 0;
            self.programmed = 0;
            for _ in 0..logical {
                let slot = usize::try_from(random.below(wide(logical))).unwrap_or(0);
                self.rewrite(slot);
            }
        }
        self.amplification_per_mille()
    }

    /// Notes a write, and says how many bytes are programmed for it, those that move included.
    pub(crate) fn write(&mut self, at: u64, length: u64) -> u64 {
        self.credit_bytes = self.credit_bytes.saturating_add(length);
        let mut slot = at / self.slot_bytes;
        while self.credit_bytes >= self.slot_bytes {
            self.credit_bytes -= self.slot_bytes;
            let logical = usize::try_from(slot % wide(self.places.len())).unwrap_or(0);
            self.rewrite(logical);
            slot += 1;
        }
        mul_div(length, self.smoothed, 1_000 * SMOOTHED)
    }

    /// Slots programmed for each slot written so far, in thousandths; one for one before anything was.
    pub(crate) fn amplification_per_mille(&self) -> u64 {
        if self.written == 0 { 1_000 } else { mul_div(self.programmed, 1_000, self.written) }
    }

    fn rewrite(&mut self, slot: usize) {
        let before = self.programmed;
        self.put(slot);
        while self.erased.len() < ERASED_MIN {
            self.collect();
        }
        self.written += 1;
        let now = (self.programmed - before) * 1_000;
        self.smoothed = self.smoothed - self.smoothed / SMOOTHED + now;
    }

    /// Programs a slot into the open block.
    fn put(&mut self, slot: usize) {
        if self.filled == BLOCK_SLOTS {
            self.open = self.erased.pop().unwrap_or(self.open);
            self.filled = 0;
        }
        let place = self.open * BLOCK_SLOTS + self.filled;
        self.filled += 1;
        self.programmed += 1;
        let old = self.places.get_mut(slot).map_or(NONE, |kept| std::mem::replace(kept, place));
        if let Some(held) = self.holds.get_mut(old) {
            *held = NONE;
            if let Some(count) = self.valid.get_mut(old / BLOCK_SLOTS) {
                *count -= 1;
            }
        }
        if let Some(held) = self.holds.get_mut(place) {
            *held = slot;
        }
        if let Some(count) = self.valid.get_mut(self.open) {
            *count += 1;
        }
    }

    /// Moves what is valid out of the block with the least of it, and erases it.
    fn collect(&mut self) {
        let closed = |block: &usize| *block != self.open && !self.erased.contains(block);
        let fewest = |block: &usize| self.valid.get(*block).copied().unwrap_or(NONE);
        let Some(victim) = (0..BLOCKS).filter(closed).min_by_key(fewest) else { return };
        for place in victim * BLOCK_SLOTS..(victim + 1) * BLOCK_SLOTS {
            let slot = self.holds.get(place).copied().unwrap_or(NONE);
            if slot != NONE {
                self.put(slot);
            }
        }
        self.erased.push(victim);
    }
}

/// How much room beyond its size a device needs, in thousandths of it, to program so many bytes for each byte that is
/// written at random.
///
/// For a greedy collector of large blocks, a block is erased when a part `v` of it is valid, where with `t` times as
/// much flash as data `t = (v - 1) / ln v`, and `1 / (1 - v)` bytes are programmed for each (Desnoyers, "Analytic
/// Modeling of SSD Write Performance", SYSTOR 2012, in the limit of large blocks).
fn spare_per_mille(amplification_per_mille: u64) -> u64 {
    // v = 1 - 1 / a, and -ln v = sum of (1 / a)^n / n. In millionths; the sum ends when its terms vanish.
    let one: u64 = 1_000_000;
    let free = mul_div(one, 1_000, amplification_per_mille).min(one - 1_000);
    let mut power = free;
    let mut logarithm = 0;
    for n in 1..=10_000 {
        logarithm += power / n;
        power = mul_div(power, free, one);
        if power / (n + 1) == 0 {
            break;
        }
    }
    // (v - 1) / ln v = free / logarithm is data per flash; its inverse is flash per data.
    mul_div(logarithm, 1_000, free).saturating_sub(1_000).max(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_writes_move_as_much_as_the_spare_room_says() {
        // In the steady state the image programs about as much as the formula for its spare room foretells.
        for wanted in [1_200, 1_500, 2_000, 2_800, 4_000] {
            let mut random = Random::new(1);
            let capacity = 1 << 40;
            let mut collector = Collector::new(capacity, wanted, Condition::Steady, &mut random);
            for _ in 0..100_000 {
                let at = random.below(capacity / 4096) * 4096;
                collector.write(at, 1 << 25);
            }
            let found = collector.amplification_per_mille();
            assert!(found.abs_diff(wanted) * 100 < wanted * 3, "wanted {wanted}, found {found}");
        }
    }

    #[test]
    fn writing_in_order_moves_nothing_on_a_fresh_device() {
        let mut collector = Collector::new(1 << 40, 3_000, Condition::Fresh, &mut Random::new(1));
        for pass in 0..3 {
            for at in (0..1 << 40).step_by(1 << 26) {
                collector.write(at, 1 << 26);
            }
            assert_eq!(collector.amplification_per_mille(), 1_000, "pass {pass}");
        }
    }
}

//! Random draws that repeat for a seed. Each purpose and each disk draws from a stream of its own, so that one more
//! draw in one place does not change what happens in another.

use std::cell::RefCell;
use std::fmt;

use dolmen_block_io::Entropy;

/// How likely something is, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Rate {
    per_million: u32,
}

impl Rate {
    /// It does not happen.
    pub const NEVER: Self = Self { per_million: 0 };
    /// It happens each time.
    pub const ALWAYS: Self = Self { per_million: 1_000_000 };

    /// So often in a million times; more than a million is always.
    #[must_use]
    pub const fn per_million(count: u32) -> Self {
        Self { per_million: if count > 1_000_000 { 1_000_000 } else { count } }
    }

    /// Once in so many times; once in zero is never.
    #[must_use]
    pub const fn one_in(count: u32) -> Self {
        match 1_000_000u32.checked_div(count) {
            Some(per_million) => Self { per_million },
            None => Self::NEVER,
        }
    }

    /// Whether it cannot happen.
    #[must_use]
    pub const fn is_never(self) -> bool {
        self.per_million == 0
    }
}

/// What the streams of a world are drawn from. Two worlds that differ in one of them differ in nothing else at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seeds {
    /// Order of tasks and of completions, and how long commands take.
    pub schedule: u64,
    /// What fails, and what a crash leaves.
    pub faults: u64,
    /// What a test does.
    pub workload: u64,
    /// What the engine gets when it asks for random bytes.
    pub entropy: u64,
}

impl Seeds {
    /// All streams from one seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let part = |label| Random::derived(seed, label).next_u64();
        Self { schedule: part(1), faults: part(2), workload: part(3), entropy: part(4) }
    }
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { schedule, faults, workload, entropy } = self;
        write!(f, "schedule {schedule:#x}, faults {faults:#x}, workload {workload:#x}, entropy {entropy:#x}")
    }
}

/// A stream of draws (SplitMix64, Steele, Lea and Flood 2014).
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A stream of its own for each `label` under one seed.
    #[must_use]
    pub fn derived(seed: u64, label: u64) -> Self {
        Self::new(scatter(seed ^ scatter(label.wrapping_add(0x5851_f42d_4c95_7f2d))))
    }

    /// 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scatter(self.state)
    }

    /// A number below `end`; 0 when `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        u64::try_from((u128::from(self.next_u64()) * u128::from(end)) >> 64).unwrap_or(0)
    }

    /// An index below `end`; 0 when `end` is 0.
    pub fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).unwrap_or(0)
    }

    /// Whether something of this rate happens now. Nothing is drawn for what never happens.
    pub fn happens(&mut self, rate: Rate) -> bool {
        !rate.is_never() && self.below(1_000_000) < u64::from(rate.per_million)
    }

    /// Heads or tails.
    pub fn coin(&mut self) -> bool {
        self.next_u64() & 1 == 1
    }

    /// Random bytes.
    pub fn fill(&mut self, into: &mut [u8]) {
        for chunk in into.chunks_mut(8) {
            let bytes = self.next_u64().to_le_bytes();
            for (to, from) in chunk.iter_mut().zip(bytes) {
                *to = from;
            }
        }
    }
}

/// The finalizer of SplitMix64: a bijection that spreads every bit over all.
pub(crate) fn scatter(value: u64) -> u64 {
    let mut z = value;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The engine's randomness in a world.
pub(crate) struct SeededEntropy(pub(crate) RefCell<Random>);

impl Entropy for SeededEntropy {
    fn fill(&self, into: &mut [u8]) {
        self.0.borrow_mut().fill(into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_happen_about_as_often_as_they_say() {
        let mut random = Random::new(1);
        let mut count = |rate| (0..100_000).filter(|_| random.happens(rate)).count();
        assert_eq!(count(Rate::NEVER), 0);
        assert_eq!(count(Rate::ALWAYS), 100_000);
        assert!((9_000..11_000).contains(&count(Rate::one_in(10))));
    }

    #[test]
    fn numbers_stay_below_their_end_and_reach_all_of_it() {
        let mut random = Random::new(2);
        let mut seen = [false; 7];
        for _ in 0..1000 {
            seen[random.index(7)] = true;
        }
        assert_eq!((seen, random.below(0), random.below(1)), ([true; 7], 0, 0));
    }

    #[test]
    fn streams_of_one_seed_differ() {
        let seeds = Seeds::from_seed(7);
        let all = [seeds.schedule, seeds.faults, seeds.workload, seeds.entropy];
        for (index, seed) in all.iter().enumerate() {
            assert!(!all[..index].contains(seed));
        }
    }
}

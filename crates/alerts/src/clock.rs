//! Time that passes, made of a wall clock that may jump.
//!
//! Delays are counted in *elapsed* seconds: the sum of the steps of the wall clock between calls, where a step back counts nothing and a
//! step forward counts [`STEP_MAX_S`] at most. So a clock that jumps a day neither opens, closes, reminds nor expires a day's worth at once.
//! A caller that calls less often than that, or was not running, makes delays longer.

use serde::{Deserialize, Serialize};

/// The longest step that counts.
pub const STEP_MAX_S: u64 = 30;

/// Elapsed time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Elapsed {
    /// The wall clock at the last step, in seconds since 1970; absent before the first.
    wall_s: Option<u64>,
    /// Seconds that elapsed.
    total_s: u64,
}

impl Elapsed {
    /// Notes the wall clock, and returns the seconds that elapsed in all.
    pub(crate) fn step(&mut self, now_s: u64) -> u64 {
        let step = self.wall_s.map_or(0, |wall| now_s.saturating_sub(wall).min(STEP_MAX_S));
        self.wall_s = Some(now_s);
        self.total_s = self.total_s.saturating_add(step);
        self.total_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_of_the_clock_counts_a_bounded_step() {
        let mut elapsed = Elapsed::default();
        let steps = [1_000_000, 1_000_010, 1_086_410, 1_000_020, 1_000_025].map(|now| elapsed.step(now));
        assert_eq!(steps, [0, 10, 40, 40, 45]);
    }
}

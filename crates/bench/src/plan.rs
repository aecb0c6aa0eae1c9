//! Which loads are laid on which targets, and in which order.

use dolmen_units::Bytes;
use serde::{Serialize, Serializer};

use crate::job::Engine;
use crate::profile::{Load, Profile};
use crate::target::{Path, Target};

/// Rounds, at most.
pub const ROUNDS_MAX: u32 = 100;
/// Seconds that one load takes, at most.
pub const RUNTIME_S_MAX: u32 = 86_400;
/// Writes between two flushes, at most.
pub const FLUSH_WRITES_MAX: u32 = 1 << 20;
/// What starting and ending `fio` takes, for the time that is still to come.
const START_MS: u64 = 400;
/// What a whole file is expected to take before anything is known, by its size.
const FILE_BYTES_PER_MS: u64 = 200_000;

/// When writes are made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flush {
    /// Never during the load.
    Never,
    /// After each so many writes.
    Every(u32),
    /// Once, behind the last write; the time that it takes counts.
    End,
}

impl std::fmt::Display for Flush {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Never => f.write_str("none"),
            Self::Every(writes) => write!(f, "every {writes}"),
            Self::End => f.write_str("end"),
        }
    }
}

impl Serialize for Flush {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How long, how often, and with which flushes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Seconds that each load is measured.
    pub runtime_s: u32,
    /// Seconds before that in which the load runs and is not counted.
    pub ramp_s: u32,
    /// How often everything is measured.
    pub rounds: u32,
    /// The flushes that stand beside a write without any; `Never` for none.
    pub flush: Flush,
    /// What carries I/Os to devices and files, past the page cache.
    pub engine: Engine,
    /// What carries them through it.
    pub buffered: Engine,
}

impl Settings {
    /// The engine for a target, as `fio` calls it.
    #[must_use]
    pub fn engine_for(&self, access: Path) -> &'static str {
        match access {
            Path::Direct => self.engine.word(),
            Path::Buffered => self.buffered.word(),
            Path::Nbd => "nbd",
        }
    }
}

/// One load on one target, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Which round, from 0.
    pub round: u32,
    /// Which target.
    pub target: usize,
    /// Which profile.
    pub profile: usize,
    /// Which of its loads.
    pub load: Load,
    /// With which flushes.
    pub flush: Flush,
}

/// Everything that is to be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// On what.
    pub targets: Vec<Target>,
    /// With which loads.
    pub profiles: Vec<Profile>,
    /// How.
    pub settings: Settings,
}

/// A plan that cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Nothing is measured in no time.
    #[error("a runtime of {found} s; it is 1 to {RUNTIME_S_MAX}")]
    Runtime {
        /// What was given.
        found: u32,
    },
    /// What comes before takes too long.
    #[error("{found} s before each load is measured; it is 0 to {RUNTIME_S_MAX}")]
    Ramp {
        /// What was given.
        found: u32,
    },
    /// Nothing is measured in no round.
    #[error("{found} rounds; it is 1 to {ROUNDS_MAX}")]
    Rounds {
        /// What was given.
        found: u32,
    },
    /// A flush after no write.
    #[error("a flush every {found} writes; it is 1 to {FLUSH_WRITES_MAX}, `end` or `none`")]
    Flush {
        /// What was given.
        found: u32,
    },
    /// The target is too small.
    #[error(
        "{target} has {found} to work on, and profile {profile} needs {wanted}; name a larger target or another profile"
    )]
    Room {
        /// Which target.
        target: String,
        /// Which profile.
        profile: String,
        /// What is there.
        found: Bytes,
        /// What is needed.
        wanted: Bytes,
    },
    /// The target's sectors are longer than an I/O.
    #[error(
        "I/Os to {target} are whole multiples of {unit}, and profile {profile} makes some of {found}; choose another profile, or --buffered"
    )]
    Unit {
        /// Which target.
        target: String,
        /// Which profile.
        profile: String,
        /// The size of its I/Os.
        found: Bytes,
        /// What the target takes.
        unit: Bytes,
    },
}

impl Plan {
    /// Whether it can be carried out.
    ///
    /// # Errors
    /// When it cannot, with the first reason.
    pub fn check(&self) -> Result<(), PlanError> {
        let Settings { runtime_s, ramp_s, rounds, flush, .. } = self.settings;
        if !(1..=RUNTIME_S_MAX).contains(&runtime_s) {
            return Err(PlanError::Runtime { found: runtime_s });
        }
        if ramp_s > RUNTIME_S_MAX {
            return Err(PlanError::Ramp { found: ramp_s });
        }
        if !(1..=ROUNDS_MAX).contains(&rounds) {
            return Err(PlanError::Rounds { found: rounds });
        }
        if let Flush::Every(found) = flush
            && !(1..=FLUSH_WRITES_MAX).contains(&found)
        {
            return Err(PlanError::Flush { found });
        }
        for target in &self.targets {
            self.profiles.iter().try_for_each(|profile| fits(target, profile))?;
        }
        Ok(())
    }

    /// What is to be known of figures on a target.
    #[must_use]
    pub fn notes(&self, target: &Target) -> Vec<String> {
        let mut notes = target.notes();
        if target.access == Path::Buffered && self.settings.buffered == Engine::Libaio {
            notes.push("this machine refuses io_uring, and libaio carries I/Os through the page cache one after another: more outstanding I/Os bring nothing".to_owned());
        }
        notes
    }

    /// The ways in which a profile is flushed, of which the first is without flushes.
    #[must_use]
    pub fn flushes(&self, profile: &Profile) -> Vec<Flush> {
        let is_whole = matches!(profile.loads, crate::profile::Loads::Files { .. });
        match self.settings.flush {
            Flush::Every(_) | Flush::End if !profile.writes() => vec![Flush::Never],
            Flush::Never => vec![Flush::Never],
            // Whoever writes a file once asks when all of it is safe.
            Flush::Every(_) | Flush::End if is_whole => vec![Flush::Never, Flush::End],
            flush => vec![Flush::Never, flush],
        }
    }

    /// All steps. Targets stand next to each other under one load, and their order turns round with each round, so that
    /// what drifts on the machine meets all of them alike.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for round in 0..self.settings.rounds {
            for (at, profile) in self.profiles.iter().enumerate() {
                for load in profile.loads() {
                    for flush in self.flushes(profile) {
                        let step = |target| Step { round, target, profile: at, load, flush };
                        let targets = 0..self.targets.len();
                        if round.is_multiple_of(2) {
                            steps.extend(targets.map(step));
                        } else {
                            steps.extend(targets.rev().map(step));
                        }
                    }
                }
            }
        }
        steps
    }

    /// What a step is expected to take.
    #[must_use]
    pub fn expected_ms(&self, step: &Step) -> u64 {
        let lasting = (u64::from(self.settings.runtime_s) + u64::from(self.settings.ramp_s)) * 1000;
        let own = step.load.file.map_or(lasting, |size| size.0 / FILE_BYTES_PER_MS);
        own + START_MS
    }
}

/// Whether a profile can run on a target.
fn fits(target: &Target, profile: &Profile) -> Result<(), PlanError> {
    let names = || (target.name.clone(), profile.name.clone());
    if profile.room() > target.working_set {
        let ((target_name, profile_name), found) = (names(), target.working_set);
        let wanted = profile.room();
        return Err(PlanError::Room { target: target_name, profile: profile_name, found, wanted });
    }
    if target.access == Path::Direct && !profile.block.0.is_multiple_of(target.unit.0) {
        let ((target_name, profile_name), unit) = (names(), target.unit);
        let found = profile.block;
        return Err(PlanError::Unit { target: target_name, profile: profile_name, found, unit });
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::built_in::profiles_named;
    use crate::target::TargetPath;

    pub(crate) fn target(name: &str, access: Path) -> Target {
        let path = match access {
            Path::Nbd => TargetPath::Nbd { uri: format!("nbd+unix:///{name}?socket=/run/s") },
            Path::Direct | Path::Buffered => TargetPath::File { path: format!("/{name}") },
        };
        let (name, what) = (name.to_owned(), "a file".to_owned());
        let (working_set, unit) = (Bytes::gib(4), Bytes(512));
        Target { name, what, path, access, working_set, unit, caches: Vec::new(), is_filled: true }
    }

    pub(crate) fn plan(names: &[&str]) -> Plan {
        let profiles = names.iter().flat_map(|name| profiles_named(name, &[]).unwrap()).collect();
        let (engine, buffered) = (Engine::Libaio, Engine::IoUring);
        let settings =
            Settings { runtime_s: 10, ramp_s: 1, rounds: 2, flush: Flush::Every(32), engine, buffered };
        Plan { targets: vec![target("a", Path::Direct), target("b", Path::Nbd)], profiles, settings }
    }

    /// Two targets, two rounds: each load meets both, back to back, and the order turns round.
    #[test]
    fn targets_alternate_and_the_order_turns_round() {
        let plan = plan(&["restore"]);
        let steps = plan.steps();
        assert_eq!(steps.len(), 2 * 9 * 2 * 2);
        let first: Vec<usize> = steps.iter().take(4).map(|step| step.target).collect();
        let second: Vec<usize> = steps.iter().skip(36).take(4).map(|step| step.target).collect();
        assert_eq!((first, second), (vec![0, 1, 0, 1], vec![1, 0, 1, 0]));
        for pair in steps.chunks(2) {
            assert_eq!((pair[0].load, pair[0].flush), (pair[1].load, pair[1].flush));
        }
    }

    /// A write never stands alone; a read has nothing to flush; a whole file is flushed at its end.
    #[test]
    fn each_write_has_a_flushed_one_next_to_it() {
        let mut plan = plan(&["streaming", "restore", "files"]);
        let flushes = |plan: &Plan| -> Vec<Vec<Flush>> {
            plan.profiles.iter().map(|profile| plan.flushes(profile)).collect()
        };
        let (never, every, end) = (Flush::Never, Flush::Every(32), Flush::End);
        assert_eq!(flushes(&plan), [vec![never], vec![never, every], vec![never, end], vec![never]]);
        plan.settings.flush = Flush::Never;
        assert!(flushes(&plan).iter().all(|of| of == &[never]));
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let good = plan(&["restore"]);
        assert_eq!(good.check(), Ok(()));
        let with = |change: fn(&mut Plan)| {
            let mut plan = good.clone();
            change(&mut plan);
            plan.check().unwrap_err().to_string()
        };
        assert!(with(|plan| plan.settings.runtime_s = 0).contains("a runtime of 0 s"));
        assert!(with(|plan| plan.settings.ramp_s = u32::MAX).contains("s before each load"));
        assert!(with(|plan| plan.settings.rounds = 0).contains("0 rounds"));
        assert!(with(|plan| plan.settings.flush = Flush::Every(0)).contains("every 0 writes"));
        let small = with(|plan| plan.targets[1].working_set = Bytes::kib(4));
        assert_eq!(
            small,
            "b has 4 KiB to work on, and profile restore needs 64 KiB; name a larger target or another profile"
        );
    }

    /// A profile of 8 KiB on sectors of 16 KiB: refused past the page cache, before anything is written.
    #[test]
    fn an_io_is_no_part_of_a_sector() {
        let mut plan = plan(&["database"]);
        plan.targets[0].unit = Bytes::kib(16);
        assert_eq!(
            plan.check().unwrap_err().to_string(),
            "I/Os to a are whole multiples of 16 KiB, and profile database makes some of 8 KiB; choose another profile, or --buffered"
        );
        plan.targets[0].access = Path::Buffered;
        assert_eq!(plan.check(), Ok(()));
    }

    /// Where io_uring is refused, what is buffered goes another way, and that is said.
    #[test]
    fn buffered_targets_have_an_engine_that_the_machine_allows() {
        let mut plan = plan(&["restore"]);
        plan.targets[0].access = Path::Buffered;
        assert_eq!(plan.settings.engine_for(Path::Buffered), "io_uring");
        assert!(plan.notes(&plan.targets[0]).is_empty());
        plan.settings.buffered = Engine::Libaio;
        assert_eq!(plan.settings.engine_for(Path::Buffered), "libaio");
        assert!(plan.notes(&plan.targets[0])[0].contains("refuses io_uring"));
        assert!(plan.notes(&plan.targets[1]).is_empty());
    }
}

//! How far a run is, and what is left of it.

use dolmen_bench::{Event, Plan, Step};
use dolmen_units::Bytes;
use serde::Serialize;

use super::machine::milliseconds;
use crate::terminal::out::{Kind, Out};
use dolmen_api::duration;

/// Characters of a line that is overwritten: one that wraps would leave pieces behind.
const LINE_MAX: usize = 79;

/// How progress is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Telling {
    /// In words for people.
    Words,
    /// Each step as a line of JSON, for the daemon.
    Steps,
}

/// A step for the daemon.
#[derive(Debug, Serialize)]
struct StepLine<'a> {
    step: &'a str,
    done: usize,
    total: usize,
    left_s: Option<u64>,
}

/// Tells how far a run is.
pub(super) struct Progress<'a> {
    plan: &'a Plan,
    telling: Telling,
    /// When what is under way began: filling a target, or measuring.
    began_ms: u64,
    round_reported: Option<(u32, usize)>,
    target_reported: Option<usize>,
}

impl<'a> Progress<'a> {
    /// Of a plan that begins now.
    pub(super) fn new(plan: &'a Plan, telling: Telling) -> Self {
        Self { plan, telling, began_ms: milliseconds(), round_reported: None, target_reported: None }
    }

    /// Tells what goes on: every event on a terminal, now and then elsewhere.
    pub(super) fn print(&mut self, event: &Event<'_>, out: &mut Out<'_>) {
        match *event {
            Event::Filling { target, done, total } => {
                let is_new = self.target_reported.replace(target) != Some(target);
                if is_new {
                    self.began_ms = milliseconds();
                }
                let text = self.filling(target, done, total);
                match self.telling {
                    Telling::Words => show(&text, is_new, out),
                    Telling::Steps => {
                        let total = self.plan.steps().len();
                        tell(&StepLine { step: &text, done: 0, total, left_s: None }, out);
                    }
                }
            }
            Event::Step { step, done, total, spent_ms, left_ms } => {
                if done == 0 {
                    self.began_ms = milliseconds();
                }
                let place = (step.round, step.profile);
                let is_new = self.round_reported.replace(place) != Some(place);
                let took = milliseconds().saturating_sub(self.began_ms);
                let left_s = left_ms_of(took, spent_ms, left_ms).div_ceil(1000);
                let text = self.step(step);
                match self.telling {
                    Telling::Words => {
                        let left = duration(left_s);
                        show(&format!("{done} of {total} done, {left} left: {text}"), is_new, out);
                    }
                    Telling::Steps => {
                        tell(&StepLine { step: &text, done, total, left_s: Some(left_s) }, out);
                    }
                }
            }
            Event::Measured { .. } => {}
        }
    }

    fn step(&self, step: &Step) -> String {
        let profile = self.plan.profiles.get(step.profile).map_or("", |profile| profile.name.as_str());
        let load = match step.load.file {
            Some(size) => format!("a file of {size}"),
            None => format!("{} outstanding", step.load.outstanding),
        };
        let (round, rounds) = (step.round + 1, self.plan.settings.rounds);
        format!(
            "round {round} of {rounds}, {profile}, {load}, flush {}, {}",
            step.flush,
            self.name(step.target)
        )
    }

    fn filling(&self, target: usize, done: Bytes, total: Bytes) -> String {
        let took = milliseconds().saturating_sub(self.began_ms);
        let left = match done {
            Bytes::ZERO => String::new(),
            done => format!(", {} left", duration(left_ms_of(took, done.0, total.0 - done.0).div_ceil(1000))),
        };
        format!("writing {} once: {done} of {total}{left}", self.name(target))
    }

    fn name(&self, target: usize) -> &str {
        self.plan.targets.get(target).map_or("", |target| target.name.as_str())
    }
}

fn tell(line: &StepLine<'_>, out: &mut Out<'_>) {
    // Texts and numbers can always be written down.
    serde_json::to_string(line).iter().for_each(|line| out.print(line));
}

fn show(text: &str, is_new: bool, out: &mut Out<'_>) {
    match out.messages_kind {
        Kind::Terminal => out.overwrite_line(&text.chars().take(LINE_MAX).collect::<String>()),
        Kind::Plain if is_new => out.print(text),
        Kind::Plain => {}
    }
}

/// What was done of the work and the time that it took tell how long the rest will take; with nothing done, the rest is
/// taken for milliseconds.
fn left_ms_of(took_ms: u64, done: u64, left: u64) -> u64 {
    if done == 0 {
        return left;
    }
    u64::try_from(u128::from(took_ms) * u128::from(left) / u128::from(done)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_what_is_done_says() {
        assert_eq!(left_ms_of(0, 0, 7000), 7000);
        assert_eq!(left_ms_of(3000, 2000, 4000), 6000);
        assert_eq!(left_ms_of(u64::MAX, 1, u64::MAX), u64::MAX);
    }
}

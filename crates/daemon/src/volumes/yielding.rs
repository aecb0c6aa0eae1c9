//! When a long operation on a volume yields to its clients: a decision over a table, from what the meter of the space counted.
//!
//! A worker is a client of the space like others, so a meter shows both. While the worker stands, it shows the others alone. Hence a
//! space that is busy for long has the worker stand for two short windows, and the second one decides. A load that comes has it stand
//! within five seconds.

use std::time::Duration;

use dolmen_block_io::{Figures, Instant};

/// Time between two looks.
const WINDOW: Duration = Duration::from_secs(1);
/// The same while the worker stands so that others are seen.
const SHORT_WINDOW: Duration = Duration::from_millis(500);
/// Time for which a busy space is worked on before others are looked at.
const WORK: Duration = Duration::from_secs(3);
/// Time after the begin of a load by which the worker stands: that of work, and the windows in which load and work begin.
const STANDS_WITHIN: Duration = Duration::from_secs(5);
const _: () = assert!(WORK.as_secs() + 2 * WINDOW.as_secs() <= STANDS_WITHIN.as_secs());
/// Time after quiet windows for which slow requests count as those of the worker: a slow disk alone would have it stand for most of
/// the time.
const ALONE: Duration = Duration::from_secs(5);
/// Requests that give a latency.
const REQUESTS_MIN: u64 = 20;
/// Thousandths of a window for which a space has requests, from which on it is busy.
const BUSY: u128 = 500;
/// The same, up to which it is quiet.
const QUIET: u128 = 200;
/// Quiet windows after which work goes on.
const QUIET_WINDOWS: u32 = 2;
const _: () = assert!(QUIET < BUSY);

/// Load of a space within a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    /// Few requests.
    Quiet,
    /// More requests, and room for others.
    Light,
    /// Requests for most of the time.
    Busy,
    /// Requests take longer than the limit.
    Slow,
}

/// State of a long operation towards clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It works.
    Working {
        /// Time before which the space was not busy.
        busy_since: Instant,
        /// Time until which slow requests count as its own.
        alone_until: Instant,
    },
    /// It stands, so that others are seen; windows that have passed.
    Looking(u32),
    /// It yields; quiet windows that have passed.
    Yielding(u32),
}

impl State {
    fn window(self) -> Duration {
        match self {
            Self::Looking(_) => SHORT_WINDOW,
            Self::Working { .. } | Self::Yielding(_) => WINDOW,
        }
    }
}

/// Decisions about one operation.
#[derive(Debug)]
pub(super) struct Yielding {
    state: State,
    before: Figures,
}

impl Yielding {
    /// Returns the decisions about an operation that begins.
    pub(super) fn new(figures: Figures) -> Self {
        Self { state: State::Working { busy_since: figures.at, alone_until: figures.at }, before: figures }
    }

    /// Returns the time from one look to the next.
    pub(super) fn window(&self) -> Duration {
        self.state.window()
    }

    /// Decides whether the operation stands until the next look. `limit` bounds the latency of 99 in 100 reads and writes.
    pub(super) fn look(&mut self, figures: Figures, limit: Option<Duration>) -> bool {
        let load = load(&self.before, &figures, limit);
        self.state = next(self.state, load, figures.at);
        self.before = figures;
        match self.state {
            State::Working { .. } => false,
            State::Looking(_) | State::Yielding(_) => true,
        }
    }
}

fn next(state: State, load: Load, now: Instant) -> State {
    let alone = State::Working { busy_since: now, alone_until: now + ALONE };
    match (state, load) {
        (State::Working { alone_until, .. }, Load::Slow) if now >= alone_until => State::Yielding(0),
        (State::Working { busy_since, .. }, Load::Busy | Load::Slow) if now.since(busy_since) >= WORK => {
            State::Looking(0)
        }
        (State::Working { .. }, Load::Busy | Load::Slow) => state,
        (State::Working { alone_until, .. }, Load::Quiet | Load::Light) => {
            State::Working { busy_since: now, alone_until }
        }
        // It holds the end of the worker's own requests.
        (State::Looking(0), _) => State::Looking(1),
        (State::Looking(_), Load::Quiet | Load::Light) => alone,
        (State::Looking(_), Load::Busy | Load::Slow) => State::Yielding(0),
        (State::Yielding(quiet), Load::Quiet) if quiet + 1 >= QUIET_WINDOWS => alone,
        (State::Yielding(quiet), Load::Quiet) => State::Yielding(quiet + 1),
        (State::Yielding(_), Load::Light | Load::Busy | Load::Slow) => State::Yielding(0),
    }
}

fn load(before: &Figures, after: &Figures, limit: Option<Duration>) -> Load {
    let of = |figures: &Figures| figures.reads.latency.and(&figures.writes.latency);
    let lately = of(after).since(&of(before));
    let p99 = lately.percentile_us(990).filter(|_| lately.count() >= REQUESTS_MIN);
    if let (Some(p99), Some(limit)) = (p99, limit)
        && u128::from(p99) > limit.as_micros()
    {
        return Load::Slow;
    }
    let busy = after.busy.saturating_sub(before.busy).as_micros() * 1000;
    let share = busy.checked_div(after.at.since(before.at).as_micros()).unwrap_or(0);
    match share {
        share if share >= BUSY => Load::Busy,
        share if share > QUIET => Load::Light,
        _ => Load::Quiet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Instant {
        Instant(0) + Duration::from_secs(second)
    }

    fn working(busy_since: u64, alone_until: u64) -> State {
        State::Working { busy_since: at(busy_since), alone_until: at(alone_until) }
    }

    /// Runs the table from a state over one load a second, and returns the states.
    fn run(mut state: State, loads: &[Load]) -> Vec<State> {
        let seconds = (100..).zip(loads);
        seconds
            .map(|(second, load)| {
                state = next(state, *load, at(second));
                state
            })
            .collect()
    }

    #[test]
    fn slow_clients_have_the_operation_stand_until_two_windows_are_quiet() {
        use Load::{Light, Quiet, Slow};
        let states = run(working(99, 99), &[Slow, Light, Quiet, Slow, Quiet, Quiet]);
        let expected = [0, 0, 1, 0, 1].map(State::Yielding);
        assert_eq!(states, [expected.as_slice(), &[working(105, 110)]].concat());
    }

    #[test]
    fn slow_requests_right_after_quiet_are_those_of_the_operation() {
        use Load::Slow;
        let states = run(working(99, 102), &[Slow, Slow, Slow]);
        assert_eq!(states, [working(99, 102), working(99, 102), State::Yielding(0)]);
    }

    #[test]
    fn a_busy_space_is_looked_at_without_the_operation() {
        use Load::{Busy, Quiet};
        assert_eq!(run(working(99, 99), &[Busy]), [working(99, 99)]);
        let alone = run(working(80, 99), &[Busy, Busy, Quiet]);
        assert_eq!(alone, [State::Looking(0), State::Looking(1), working(102, 107)]);
        let others = run(working(80, 99), &[Busy, Busy, Busy]);
        assert_eq!(others, [State::Looking(0), State::Looking(1), State::Yielding(0)]);
    }

    /// Scenario: a load begins in each state of work, and stays; its requests are fast, or of no limit. Looks come late by a quarter of a
    /// second.
    #[test]
    fn an_operation_is_held_within_five_seconds_of_load() {
        use Load::{Busy, Light, Quiet, Slow};
        for before in [Quiet, Light, Busy] {
            for load in [Busy, Slow] {
                let late = Duration::from_millis(250);
                let mut now = at(100);
                let mut state = next(working(99, 104), before, now);
                let begun = now;
                while matches!(state, State::Working { .. }) {
                    now = now + WINDOW + late;
                    state = next(state, load, now);
                }
                assert!(now.since(begun) <= STANDS_WITHIN, "{before:?} {load:?}: {:?}", now.since(begun));
                let is_sure = state == State::Yielding(0);
                assert_eq!(state.window(), if is_sure { WINDOW } else { SHORT_WINDOW });
            }
        }
    }

    #[test]
    fn an_operation_works_again_within_five_seconds_of_quiet() {
        for state in [State::Looking(0), State::Looking(1), State::Yielding(0), State::Yielding(1)] {
            let states = run(state, &[Load::Quiet; 4]);
            assert!(
                states.iter().any(|state| matches!(state, State::Working { .. })),
                "{state:?}: {states:?}"
            );
        }
    }
}

//! The search: every state that is reachable in so many events, each checked.

#[expect(clippy::disallowed_types, reason = "its hasher is fixed, and it is never iterated")]
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, DefaultHasher};

use dolmen_units::{Epoch, Lsn};

use super::state::{
    DISKS, Disk, HOSTS, Index, Line, Log, Mask, Open, Ruling, SHELF, State, Table, disk_ids, host_id,
    members, subsets,
};
use crate::{EpochRecord, Kind, Owner, Successor, commit_counts, next};

/// Which of two epochs with one number, made apart, compares as the newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nonces {
    Ascending,
    Descending,
}

/// When an export withdraws the host's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExportOrder {
    RecordFirst,
    RecordLast,
}

/// How far to search, and in which world.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) depth: usize,
    pub(super) writes_max: usize,
    pub(super) confirmations_max: usize,
    pub(super) nonces: Nonces,
    pub(super) export: ExportOrder,
}

/// What the search found.
pub(super) struct Outcome {
    pub(super) states: usize,
    /// Events that were tried in those states.
    pub(super) events: u64,
    /// The broken property and the shortest way to it.
    pub(super) violation: Option<(&'static str, Vec<Event>)>,
}

/// One event. The sets are of disks, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Move { disk: usize, place: usize },
    Crash { host: usize },
    Write { host: usize },
    HalfWriteAndCrash { host: usize, reached: Mask },
    Open { host: usize, voters: Mask, step: Step },
    Confirm { host: usize, voters: Mask, step: Step },
    Revote { host: usize, voters: Mask, step: Step },
    Export { host: usize, step: Step },
    Look { host: usize, disks: Mask },
}

/// How far a change of epoch came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Pended on these, then a crash.
    Pended(Mask),
    /// Pended on these and named by the arbiter; settled on those. In force when settled on all.
    Named { reached: Mask, durable: Mask },
}

/// A change of epoch about to be made.
#[derive(Clone, Copy)]
struct Change {
    host: usize,
    build_on: Index,
    highest: Epoch,
    voters: Mask,
    log: Log,
    kind: Kind,
    is_export: bool,
}

struct Search {
    bounds: Bounds,
    table: Table,
    #[expect(clippy::disallowed_types, reason = "its hasher is fixed, and it is never iterated")]
    found: HashSet<State, BuildHasherDefault<DefaultHasher>>,
    queue: Vec<(State, usize, Event, usize)>,
    events: u64,
    violation: Option<(&'static str, usize, Event)>,
}

pub(super) fn explore(bounds: Bounds) -> Outcome {
    let mut table = Table::new();
    let owner = Owner::Host(host_id(0));
    let all = (1 << DISKS) - 1;
    let first = table.add(EpochRecord::first(100, owner, disk_ids(all), Lsn(1)).unwrap());
    let start = State {
        disks: [Disk { base: first, pending: 0, log: Log::default(), served_len: 0, place: 0 }; DISKS],
        arbiter: [first, 0],
        open: [Some(Open { epoch: first, members: all }), None],
        lines: Default::default(),
        confirmations: 0,
        writes: 0,
    };
    let origin = (start, 0, Event::Crash { host: SHELF }, 0);
    let mut search = Search {
        bounds,
        table,
        found: std::iter::once(start).collect(),
        queue: vec![origin],
        events: 0,
        violation: None,
    };
    let mut at = 0;
    while let Some(&(state, _, _, depth)) = search.queue.get(at) {
        if search.violation.is_some() {
            break;
        }
        search.check_liveness(&state, at);
        if depth < bounds.depth {
            search.expand(&state, at);
        }
        at += 1;
    }
    let violation = search.violation.map(|v| (v.0, search.way_to(v.1, v.2)));
    Outcome { states: at, events: search.events, violation }
}

impl Search {
    fn way_to(&self, mut at: usize, last: Event) -> Vec<Event> {
        let mut events = vec![last];
        while at != 0 {
            let (_, parent, event, _) = self.queue[at];
            events.push(event);
            at = parent;
        }
        events.reverse();
        events
    }

    fn fail(&mut self, what: &'static str, at: usize, event: Event) {
        self.violation.get_or_insert((what, at, event));
    }

    fn reach(&mut self, state: State, at: usize, event: Event) {
        self.events += 1;
        if let [Some(one), Some(other)] = state.open
            && self.table.line(&state, one.epoch) == self.table.line(&state, other.epoch)
        {
            self.fail("two writers on one line", at, event);
        }
        if self.found.insert(state) {
            let depth = self.queue[at].3 + 1;
            self.queue.push((state, at, event, depth));
        }
    }

    fn check_liveness(&mut self, state: &State, at: usize) {
        if state.confirmations > 0 {
            return;
        }
        for host in 0..HOSTS {
            let here = state.here(host);
            for disks in subsets(here).filter(|disks| *disks != 0) {
                let is_complete = disks == (1 << DISKS) - 1;
                if !is_complete && !self.is_owner_with_a_voter(state, host, disks) {
                    continue;
                }
                if let Ruling::ReadOnly { .. } = self.table.rule(state, host, disks) {
                    let what = if is_complete { "all disks refused" } else { "owner with a voter refused" };
                    self.fail(what, at, Event::Look { host, disks });
                }
            }
            self.check_lost_labels(state, at, host);
        }
    }

    /// What the arbiter names had reached all its voters: that one of them loses it again does not keep its owner from it.
    fn check_lost_labels(&mut self, state: &State, at: usize, host: usize) {
        let (named, disks) = (state.arbiter[host], state.here(host));
        if !self.are_own(state, host, disks) || named == 0 {
            return;
        }
        let voters = disks & self.table.voters(named);
        let holds = |disk: usize| state.disks[disk].base == named || state.disks[disk].pending == named;
        for lost in members(voters).filter(|lost| state.disks[*lost].pending == named) {
            if !members(voters).any(|other| other != lost && holds(other)) {
                continue;
            }
            let mut without = *state;
            without.disks[lost].pending = 0;
            let ruling = self.table.rule(&without, host, disks);
            if !matches!(ruling, Ruling::Write { build_on, .. } if build_on == named) {
                self.fail("a label that is lost undoes what is named", at, Event::Look { host, disks });
            }
        }
    }

    /// Whether the host's arbiter names an epoch that a voter here has settled on, and no disk here says that
    /// the pool went on elsewhere.
    fn is_owner_with_a_voter(&self, state: &State, host: usize, disks: Mask) -> bool {
        let named = state.arbiter[host];
        named != 0
            && self.are_own(state, host, disks)
            && members(disks & self.table.voters(named)).any(|disk| state.disks[disk].base == named)
    }

    /// Whether no disk knows of an epoch of another owner than this host.
    fn are_own(&self, state: &State, host: usize, disks: Mask) -> bool {
        let own = |index: Index| index == 0 || self.table.get(index).owner() == Owner::Host(host_id(host));
        members(disks).all(|disk| own(state.disks[disk].base) && own(state.disks[disk].pending))
    }

    fn expand(&mut self, state: &State, at: usize) {
        self.expand_moves(state, at);
        for host in 0..HOSTS {
            match state.open[host] {
                Some(open) => self.expand_open(state, at, host, open),
                None if state.here(host) != 0 => self.expand_closed(state, at, host),
                None => {}
            }
        }
    }

    fn expand_moves(&mut self, state: &State, at: usize) {
        for disk in 0..DISKS {
            for place in (0..=SHELF).filter(|place| *place != state.disks[disk].place) {
                let mut moved = *state;
                moved.disks[disk].place = place;
                for open in &mut moved.open {
                    let left = open.map(|o| Open { members: o.members & !(1 << disk), ..o });
                    *open = left.filter(|o| o.members != 0);
                }
                self.reach(moved, at, Event::Move { disk, place });
            }
        }
    }

    fn expand_open(&mut self, state: &State, at: usize, host: usize, open: Open) {
        let mut crashed = *state;
        crashed.open[host] = None;
        self.reach(crashed, at, Event::Crash { host });
        let line = self.table.line(state, open.epoch);
        let log = state.lines[line].served;
        let counts = commit_counts(&disk_ids(open.members), self.table.get(open.epoch));
        if counts && state.writes < self.bounds.writes_max {
            self.expand_writes(state, at, host, open);
        }
        let highest = self.table.get(open.epoch).number();
        let change = |voters, is_export| Change {
            host,
            build_on: open.epoch,
            highest,
            voters,
            log,
            kind: Kind::Change,
            is_export,
        };
        if counts {
            self.change(state, at, change(open.members, true), |step| Event::Export { host, step });
        }
        let joining = state.here(host) & !self.table.voters(open.epoch);
        for voters in subsets(open.members | joining) {
            if voters & open.members != 0 && (!counts || voters != open.members) {
                self.change(state, at, change(voters, false), |step| Event::Revote { host, voters, step });
            }
        }
    }

    fn expand_writes(&mut self, state: &State, at: usize, host: usize, open: Open) {
        let mut base = *state;
        base.writes += 1;
        let line = self.table.line(state, open.epoch);
        let served = state.lines[line].served;
        for reached in subsets(open.members).filter(|reached| *reached != 0) {
            let mut after = base;
            for disk in members(reached) {
                after.disks[disk].log = served;
                after.disks[disk].log.push(open.epoch);
                if reached == open.members {
                    after.disks[disk].served_len = after.disks[disk].log.len();
                }
            }
            if reached == open.members {
                after.lines[line].served.push(open.epoch);
                self.reach(after, at, Event::Write { host });
            } else {
                after.open[host] = None;
                self.reach(after, at, Event::HalfWriteAndCrash { host, reached });
            }
        }
    }

    fn expand_closed(&mut self, state: &State, at: usize, host: usize) {
        let here = state.here(host);
        let (build_on, highest, kind) = match self.table.rule(state, host, here) {
            Ruling::Write { build_on, highest } => (build_on, highest, Kind::Opening),
            Ruling::ReadOnly { newest, highest, .. } => (newest, highest, Kind::Forced),
        };
        if kind == Kind::Forced && state.confirmations == self.bounds.confirmations_max {
            return;
        }
        let log = self.table.recover(state, build_on, here);
        if kind == Kind::Opening {
            self.check_opening(state, at, host, build_on, log);
        }
        for voters in
            subsets(here).filter(|voters| voters & self.table.voters(build_on) != 0).collect::<Vec<_>>()
        {
            let change = Change { host, build_on, highest, voters, log, kind, is_export: false };
            self.change(state, at, change, |step| match kind {
                Kind::Opening | Kind::Change => Event::Open { host, voters, step },
                Kind::Forced => Event::Confirm { host, voters, step },
            });
        }
    }

    /// What an unconfirmed opening must recover.
    fn check_opening(&mut self, state: &State, at: usize, host: usize, build_on: Index, log: Log) {
        let disks = state.here(host);
        let line = self.table.line(state, build_on);
        if !log.entries().starts_with(state.lines[line].served.entries()) {
            self.fail("opens without a served write", at, Event::Look { host, disks });
        }
        for disk in members(disks) {
            let known = usize::from(state.disks[disk].served_len);
            for (place, entry) in state.disks[disk].log.entries().iter().enumerate().take(known) {
                let was_served =
                    state.lines.iter().any(|line| line.served.entries().get(place) == Some(entry));
                if was_served && log.entries().get(place) != Some(entry) {
                    self.fail("silently ignores what a present disk served", at, Event::Look { host, disks });
                }
            }
        }
    }

    /// Makes a change of epoch, stopping after every durable step.
    fn change(&mut self, state: &State, at: usize, change: Change, event: impl Fn(Step) -> Event) {
        let Change { host, build_on, voters, log, kind, is_export, .. } = change;
        let Some(record) = self.successor(state, change) else { return };
        let epoch = self.table.add(record.clone());
        let mut begun = *state;
        begun.open[host] = None;
        if is_export && self.bounds.export == ExportOrder::RecordFirst {
            begun.arbiter[host] = 0;
        }
        if kind == Kind::Forced {
            begun.confirmations += 1;
            begun.lines[begun.confirmations] = Line { forced: epoch, served: log };
        }
        for reached in subsets(voters) {
            let mut pended = begun;
            for disk in members(reached) {
                let (base, pending) = if kind == Kind::Forced { (epoch, 0) } else { (build_on, epoch) };
                pended.disks[disk] = Disk { base, pending, log, served_len: log.len(), ..state.disks[disk] };
            }
            self.reach(pended, at, event(Step::Pended(reached)));
            if commit_counts(&disk_ids(reached), &record) {
                self.come_into_force(pended, at, change, (epoch, reached), &event);
            }
        }
    }

    fn successor(&self, state: &State, change: Change) -> Option<EpochRecord> {
        let number = change.highest.next();
        let nonce = match self.bounds.nonces {
            Nonces::Ascending => self.table.nonce(state, number, 1..100),
            Nonces::Descending => self.table.nonce(state, number, (1..100).rev()),
        };
        let owner = if change.is_export { Owner::Exported } else { Owner::Host(host_id(change.host)) };
        let successor = Successor {
            highest: change.highest,
            owner,
            voters: disk_ids(change.voters),
            present: disk_ids(state.here(change.host)),
            nonce,
            oldest: Lsn(1),
            first: change.log.end(),
            kind: change.kind,
        };
        next(self.table.get(change.build_on), successor).ok()
    }

    fn come_into_force(
        &mut self,
        pended: State,
        at: usize,
        change: Change,
        (epoch, reached): (Index, Mask),
        event: &impl Fn(Step) -> Event,
    ) {
        let mut state = pended;
        state.arbiter[change.host] = if change.is_export { 0 } else { epoch };
        // None settled, one that settled before the others, and all, which is when it is in force.
        for durable in [0, reached & reached.wrapping_neg(), reached] {
            for disk in members(durable) {
                state.disks[disk] = Disk { base: epoch, pending: 0, ..state.disks[disk] };
            }
            if durable == reached && !change.is_export {
                let line = self.table.line(&state, epoch);
                state.lines[line].served = change.log;
                state.open[change.host] = Some(Open { epoch, members: reached });
            }
            self.reach(state, at, event(Step::Named { reached, durable }));
        }
    }
}

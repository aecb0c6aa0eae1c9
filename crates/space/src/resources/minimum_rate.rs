//! Spaces that are to get something, and what others leave to them (docs/design/0017).
//!
//! Every so often what each space with a minimum got is held against it. One that had requests under way for most of the time and
//! got less *lacks* something: first jobs of the pool rest longer, then requests of other spaces go one after another at a rate
//! that is cut until it lacks nothing, and grows again when all of them have more than enough.
//!
//! Invariant: what others get is cut to a sixty-fourth of what they had, and no further: a disk may be slower than what was
//! promised of it.
//!
//! Invariant: where no space of a pool has a minimum, a request costs one look at one flag.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use dolmen_block_io::{Clock, Instant, Meter};
use dolmen_units::SpaceId;

use crate::format::limits::Limits;
use crate::resources::bucket::{Bucket, reached};
use crate::resources::throttle::Throttle;

/// Requests that a minimum should bring between two looks, so that one more or less says little.
const SAMPLE: u64 = 10;
/// The time between two looks.
const WINDOW: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// A space that had requests under way for this part of the time wanted more than it got.
const WANTING: f64 = 0.5;
/// Of its minimum, what a space has to get so that nobody cuts what others get; from how much on they get more again; and from how
/// much on it is one of the others.
const ENOUGH: f64 = 1.02;
const PLENTY: f64 = 1.15;
const OTHER: f64 = 1.3;
/// What becomes of the rate of others at a look: at least, at most, and where it grows.
const CUT: (f64, f64) = (0.5, 0.95);
const GROWTH: f64 = 1.1;
/// Others that use less than this part of what they may are not held any more.
const UNUSED: f64 = 0.5;
/// What others get of what they had, at least; and in any case.
const LEFT_PARTS: u64 = 64;
const LEFT_MIN: u64 = 16 * COST_OF_ONE;
/// A request takes a disk as long as some KiB more.
const COST_OF_ONE: u64 = 16;

/// What a request costs those who share disks, in KiB.
fn cost(bytes: u64) -> u64 {
    COST_OF_ONE + bytes.div_ceil(1024)
}

/// What a space with a minimum had got when it was looked at last.
#[derive(Debug, Default)]
pub(crate) struct MinimumRate {
    requests: Cell<u64>,
    bytes: Cell<u64>,
    busy: Cell<Duration>,
    /// What it got in the time before that, as a part of its minimum.
    share: Cell<f64>,
}

/// What all spaces of a pool share.
#[derive(Default)]
pub(crate) struct MinimumRates {
    is_on: Cell<bool>,
    spaces: RefCell<Vec<Weak<Terms>>>,
    window: Cell<Duration>,
    looked: Cell<Instant>,
    /// What requests of the others go through while somebody lacks something.
    others: Bucket,
    /// Who lacked most when others were cut last: it is none of them.
    needy: Cell<Option<SpaceId>>,
    /// What others asked for since the last look.
    asked: Cell<u64>,
    /// What they had when they were cut first, in a second.
    read_cached: Cell<u64>,
}

impl MinimumRates {
    /// Whether a space has a minimum.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.get()
    }

    /// These are the spaces from now on; those that have no minimum are left out.
    pub(crate) fn set(&self, spaces: impl Iterator<Item = Rc<Terms>>, now: Instant) {
        let with_min: Vec<Rc<Terms>> = spaces.filter(|space| space.limits().has_min()).collect();
        let least = with_min.iter().filter_map(|space| space.limits().iops_min).min().unwrap_or(u64::MAX);
        let (shortest, longest) = WINDOW;
        let sample = Duration::from_millis(SAMPLE * 1000 / least.max(1));
        self.window.set(sample.clamp(shortest, longest));
        with_min.iter().for_each(|space| space.minimum.begin(space));
        self.is_on.set(!with_min.is_empty());
        *self.spaces.borrow_mut() = with_min.iter().map(Rc::downgrade).collect();
        self.looked.set(now);
        self.asked.set(0);
        if !self.is_on.get() {
            self.others.set(0, now);
        }
    }

    /// Waits as long as a request of a space has to, so that others get what they lack.
    pub(crate) async fn wait(&self, space: &Terms, bytes: u64, clock: &dyn Clock) {
        if !self.is_other(space) {
            return;
        }
        let (now, cost) = (clock.now(), cost(bytes));
        self.asked.set(self.asked.get().saturating_add(cost));
        if self.others.is_on() {
            // Whoever comes to lack something itself does not wait behind those who are to give way.
            reached(clock, &[(&self.others, self.others.ask(cost, now))], || !self.is_other(space)).await;
        }
    }

    fn is_other(&self, space: &Terms) -> bool {
        let has_plenty = space.minimum.share.get() >= OTHER && self.needy.get() != Some(space.space);
        !space.limits().has_min() || has_plenty
    }

    /// Holds what spaces got against their minima, when it is time for that.
    pub(crate) fn look(&self, now: Instant, throttle: &Throttle) {
        let passed = now.since(self.looked.get());
        if passed < self.window.get() {
            return;
        }
        self.looked.set(now);
        let seconds = passed.as_secs_f64();
        // The least of what those that wanted more got, as parts of their minima.
        let mut worst: Option<(f64, SpaceId)> = None;
        for space in self.spaces.borrow().iter().filter_map(Weak::upgrade) {
            let got = space.minimum.look(&space, now, seconds).map(|share| (share, space.space));
            worst = [worst, got]
                .into_iter()
                .flatten()
                .reduce(|one, other| if other.0 < one.0 { other } else { one });
        }
        let asked = per_second(self.asked.replace(0), seconds);
        self.act(worst, asked, now, throttle);
    }

    /// Makes jobs, then others, give way; or the other way round, lets others, then jobs, have more again.
    fn act(&self, worst: Option<(f64, SpaceId)>, asked: u64, now: Instant, throttle: &Throttle) {
        match worst {
            Some((worst, needy)) if worst < ENOUGH => {
                if !throttle.give_way(now) {
                    self.needy.set(Some(needy));
                    self.cut(worst, asked, now);
                }
            }
            Some((worst, _)) if worst < PLENTY => {}
            _ if self.others.is_on() => self.let_grow(asked, now),
            _ => throttle.take_back(),
        }
    }

    fn cut(&self, worst: f64, asked: u64, now: Instant) {
        let rate = match self.others.is_on() {
            true => self.others.rate(),
            false => {
                self.read_cached.set(asked);
                asked
            }
        };
        let (least, most) = CUT;
        let wanted = scaled(rate, worst.clamp(least, most));
        self.others.set(wanted.max(self.read_cached.get() / LEFT_PARTS).max(LEFT_MIN), now);
    }

    fn let_grow(&self, asked: u64, now: Instant) {
        let rate = scaled(self.others.rate(), GROWTH) + 1;
        let is_unused = asked < scaled(rate, UNUSED);
        self.others.set(if is_unused { 0 } else { rate }, now);
    }
}

impl MinimumRate {
    /// Begins to count.
    fn begin(&self, space: &Terms) {
        let totals = space.meter.totals();
        self.requests.set(totals.requests);
        self.bytes.set(totals.bytes);
        self.busy.set(totals.busy);
        self.share.set(0.0);
    }

    /// What the space got in so many seconds, as a part of its minimum, if it wanted more than it got.
    fn look(&self, space: &Terms, now: Instant, seconds: f64) -> Option<f64> {
        let (totals, limits) = (space.meter.totals(), space.limits());
        let requests = totals.requests.saturating_sub(self.requests.replace(totals.requests));
        let bytes = totals.bytes.saturating_sub(self.bytes.replace(totals.bytes));
        let busy = totals.busy.saturating_sub(self.busy.replace(totals.busy));
        let share = share(limits, requests, bytes, seconds);
        self.share.set(share);
        // One that its own limits hold back lacks nothing that others could leave to it.
        let wants_more = busy.as_secs_f64() >= WANTING * seconds && !space.is_at_most(now);
        wants_more.then_some(share)
    }
}

/// The lesser of the parts that it got of its minima.
#[allow(clippy::cast_precision_loss)] // parts of what was promised, to a few digits
fn share(limits: Limits, requests: u64, bytes: u64, seconds: f64) -> f64 {
    let part = |got: u64, min: Option<u64>| min.map(|min| got as f64 / seconds / min as f64);
    let parts = [part(requests, limits.iops_min), part(bytes, limits.rate_min.map(|rate| rate.0))];
    parts.into_iter().flatten().reduce(f64::min).unwrap_or(f64::INFINITY)
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn scaled(rate: u64, by: f64) -> u64 {
    (rate as f64 * by) as u64
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn per_second(count: u64, seconds: f64) -> u64 {
    (count as f64 / seconds) as u64
}

/// What a space may have, and is to get.
pub(crate) struct Terms {
    /// The space.
    pub(crate) space: SpaceId,
    /// What clients ask of it.
    pub(crate) meter: Rc<Meter>,
    pub(crate) limits: Cell<Limits>,
    /// Requests in a second.
    pub(crate) requests: Bucket,
    /// Bytes in a second.
    pub(crate) bytes: Bucket,
    pub(crate) minimum: MinimumRate,
}

impl Terms {
    /// Returns the terms of a space that has no limits yet.
    pub(crate) fn new(space: SpaceId, meter: Rc<Meter>) -> Self {
        Self {
            space,
            meter,
            limits: Cell::default(),
            requests: Bucket::default(),
            bytes: Bucket::default(),
            minimum: MinimumRate::default(),
        }
    }

    /// Returns the limits that were set last.
    pub(crate) fn limits(&self) -> Limits {
        self.limits.get()
    }

    /// These from now on.
    pub(crate) fn set(&self, limits: Limits, now: Instant) {
        self.limits.set(limits);
        self.requests.set(limits.iops_max.unwrap_or(0), now);
        self.bytes.set(limits.rate_max.map_or(0, |rate| rate.0), now);
    }

    /// Whether the space has had all that it may have by now.
    pub(crate) fn is_at_most(&self, now: Instant) -> bool {
        self.requests.is_empty(now) || self.bytes.is_empty(now)
    }

    pub(crate) fn has_max(&self) -> bool {
        self.requests.is_on() || self.bytes.is_on()
    }
}

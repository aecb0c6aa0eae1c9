//! An exhaustive model of members without a vote, around the shipping table of `member.rs`.
//!
//! Two members hold a copy of each write, or are on record as lacking it. The metadata is one value that changes at once: that
//! its copies agree is what the model of voters shows. Breadth first over every order of: a pool is opened (each label written
//! or not, cut behind each step), written to, stamped, closed or killed; a member leaves, is detached, is put back from an image
//! that was taken at any time, is taken back in (cut behind each step), and is filled. What must hold:
//!
//! - **nothing old counts**: a member that takes part holds each write that was served, or is on record as lacking it. Excused is
//!   an image that was taken after the last label of its disk that the metadata names: nothing tells it from its disk;
//! - **no sound member is called old**: one that was not put back from an image takes part.

#[expect(clippy::disallowed_types, reason = "its hasher is fixed, and it is never iterated")]
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, DefaultHasher};

use dolmen_mutation::mutation;
use dolmen_units::{Epoch, HostId, Lsn};

use super::state::disk_id;
use crate::{Claim, Entry, EpochRecord, Kind, Owner, Standing, Successor, next, next_sequence, standing};

const MEMBERS: usize = 2;
const WRITES_MAX: u32 = 2;
/// The disk that carries the metadata.
const VOTER: usize = MEMBERS;

type Mask = u8;

/// When the metadata names the labels of an opening or a stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    LabelsFirst,
    NamesFirst,
}

/// How a label is numbered that a disk gets when it is taken back in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Numbers {
    AboveAll,
    AboveItsOwn,
}

/// When a disk that is taken back in gets its label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Return {
    LabelFirst,
    LabelLast,
}

#[derive(Debug, Clone, Copy)]
struct World {
    depth: usize,
    opening: Order,
    stamp: Order,
    numbers: Numbers,
    back: Return,
}

/// A disk: its label and its copies of writes, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Disk {
    sequence: u8,
    base: u8,
    has: Mask,
}

/// An image of a disk, and whether the metadata has named a later label of that disk since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Image {
    disk: Disk,
    is_outdated: bool,
}

/// What is known of the content of a disk, beside what the protocol sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Content {
    /// It is what was written to it.
    Own,
    /// It was put back from an image that the metadata can tell.
    Old,
    /// It was put back from an image that nothing tells.
    Excused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    epoch: u8,
    entries: [u8; MEMBERS],
    left: [u8; MEMBERS],
    missed: [Mask; MEMBERS],
    served: Mask,
    disks: [Disk; MEMBERS],
    images: [Option<Image>; MEMBERS],
    content: [Content; MEMBERS],
    attached: Mask,
    /// The members that take part, while the pool is open.
    open: Option<Mask>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Begin,
    /// Labels of these were written; then so many steps: named, settled.
    Open {
        written: Mask,
        steps: u8,
    },
    Write,
    Stamp {
        written: Mask,
        is_named: bool,
    },
    End,
    Crash,
    Leave {
        member: usize,
    },
    Move {
        member: usize,
    },
    Image {
        member: usize,
    },
    PutBack {
        member: usize,
    },
    /// Marked, labelled, counted in, settled: cut behind so many steps.
    TakeBack {
        member: usize,
        steps: u8,
    },
    Fill {
        member: usize,
    },
}

fn members(mask: Mask) -> impl Iterator<Item = usize> {
    (0..MEMBERS).filter(move |member| mask & (1 << member) != 0)
}

fn subsets(of: Mask) -> impl Iterator<Item = Mask> {
    (0..=of).filter(move |mask| mask & !of == 0)
}

struct Search {
    world: World,
    records: Vec<EpochRecord>,
    #[expect(clippy::disallowed_types, reason = "its hasher is fixed, and it is never iterated")]
    found: HashSet<State, BuildHasherDefault<DefaultHasher>>,
    queue: Vec<(State, usize, Event, usize)>,
    violation: Option<(&'static str, usize, Event)>,
}

/// Epochs of one line, the first one at place 1, all with one voter.
fn records(count: usize) -> Vec<EpochRecord> {
    let voters = vec![disk_id(VOTER)];
    let owner = Owner::Host(HostId([1; 16]));
    let first = EpochRecord::first(1, owner, voters.clone(), Lsn(1)).unwrap();
    let mut records = vec![first.clone(), first];
    while records.len() < count {
        let last = records.last().unwrap();
        let successor = Successor {
            highest: last.number(),
            owner,
            voters: voters.clone(),
            present: voters.clone(),
            nonce: 1,
            oldest: Lsn(1),
            first: Lsn(1),
            kind: Kind::Opening,
        };
        records.push(next(last, successor).unwrap());
    }
    records
}

fn explore(world: World) -> (usize, Option<(&'static str, Vec<Event>)>) {
    let all = (1 << MEMBERS) - 1;
    let start = State {
        epoch: 1,
        entries: [1; MEMBERS],
        left: [0; MEMBERS],
        missed: [0; MEMBERS],
        served: 0,
        disks: [Disk { sequence: 1, base: 1, has: 0 }; MEMBERS],
        images: [None; MEMBERS],
        content: [Content::Own; MEMBERS],
        attached: all,
        open: Some(all),
    };
    let mut search = Search {
        world,
        records: records(world.depth + 3),
        found: std::iter::once(start).collect(),
        queue: vec![(start, 0, Event::Begin, 0)],
        violation: None,
    };
    let mut at = 0;
    while let Some(&(state, _, _, depth)) = search.queue.get(at) {
        if search.violation.is_some() {
            break;
        }
        if depth < world.depth {
            search.expand(&state, at);
        }
        at += 1;
    }
    let violation = search.violation.map(|(what, at, last)| (what, search.way_to(at, last)));
    (at, violation)
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
        for member in members(state.open.unwrap_or(0)) {
            let lacks = state.served & !state.missed[member] & !state.disks[member].has;
            if lacks != 0 && state.content[member] != Content::Excused {
                self.fail("content of before is believed", at, event);
            }
        }
        if self.found.insert(state) {
            let depth = self.queue[at].3 + 1;
            self.queue.push((state, at, event, depth));
        }
    }

    /// The shipping decision about a member that is here.
    fn verify(&mut self, state: &State, member: usize, at: usize, event: Event) -> Standing {
        let disk = state.disks[member];
        let claim = Claim {
            disk: disk_id(member),
            base: &self.records[usize::from(disk.base)],
            pending: None,
            sequence: disk.sequence.into(),
            entry: Some(Entry {
                left: Epoch(state.left[member].into()),
                sequence: state.entries[member].into(),
            }),
        };
        let (decided, _) = standing(claim.facts(&self.records[usize::from(state.epoch)]));
        if decided != Standing::TakesPart && state.content[member] == Content::Own {
            self.fail("a sound member is called old", at, event);
        }
        decided
    }

    fn expand(&mut self, state: &State, at: usize) {
        match state.open {
            Some(open) => self.expand_open(state, at, open),
            None => self.expand_opening(state, at),
        }
        for member in 0..MEMBERS {
            if state.open.is_some_and(|open| open & (1 << member) != 0) {
                continue;
            }
            let mut moved = *state;
            moved.attached ^= 1 << member;
            self.reach(moved, at, Event::Move { member });
            if let Some(image) = state.images[member].filter(|image| image.disk != state.disks[member]) {
                let mut put = *state;
                put.disks[member] = image.disk;
                put.content[member] = if image.is_outdated { Content::Old } else { Content::Excused };
                self.reach(put, at, Event::PutBack { member });
            }
        }
        for member in 0..MEMBERS {
            let mut taken = *state;
            taken.images[member] = Some(Image { disk: state.disks[member], is_outdated: false });
            // An image of what was put back is as old as that.
            if state.content[member] == Content::Own {
                self.reach(taken, at, Event::Image { member });
            }
        }
    }

    /// Writes labels of members; those that were written can be named.
    fn label(state: &mut State, written: Mask) {
        for member in members(written) {
            state.disks[member].sequence += 1;
        }
    }

    /// Names the newest labels of members in the metadata.
    fn name(state: &mut State, written: Mask, order: Order) {
        for member in members(written) {
            let early = u8::from(order == Order::NamesFirst);
            state.entries[member] = state.entries[member].max(state.disks[member].sequence + early);
            if let Some(image) = &mut state.images[member] {
                image.is_outdated = true;
            }
        }
    }

    fn expand_opening(&mut self, state: &State, at: usize) {
        let mut taking = 0;
        let mut begun = *state;
        for member in members(state.attached) {
            let event = Event::Open { written: 0, steps: 0 };
            match self.verify(state, member, at, event) {
                Standing::TakesPart => taking |= 1 << member,
                Standing::Old | Standing::Apart if begun.left[member] == 0 => {
                    begun.left[member] = state.disks[member].base;
                }
                Standing::Old | Standing::Apart => {}
            }
        }
        for written in subsets(taking) {
            if self.world.opening == Order::NamesFirst {
                // Named, and then cut before the labels are durable.
                let mut named = begun;
                Self::enter(&mut named, taking);
                Self::name(&mut named, written, Order::NamesFirst);
                self.reach(named, at, Event::Open { written, steps: 0 });
            }
            let mut labelled = *state;
            Self::label(&mut labelled, written);
            self.reach(labelled, at, Event::Open { written, steps: 0 });
            let mut named = State { left: begun.left, ..labelled };
            Self::enter(&mut named, taking);
            Self::name(&mut named, written, Order::LabelsFirst);
            self.reach(named, at, Event::Open { written, steps: 1 });
            for durable in [0, taking] {
                let mut open = named;
                for member in members(durable) {
                    open.disks[member] = Disk {
                        base: open.epoch,
                        sequence: open.disks[member].sequence + 1,
                        ..open.disks[member]
                    };
                }
                open.open = Some(taking);
                self.reach(open, at, Event::Open { written, steps: 2 });
            }
        }
    }

    /// A new epoch, in which these take part.
    fn enter(state: &mut State, taking: Mask) {
        state.epoch += 1;
        for member in 0..MEMBERS {
            if taking & (1 << member) != 0 {
                state.left[member] = 0;
            } else if state.left[member] == 0 {
                state.left[member] = state.epoch;
            }
        }
    }

    fn expand_open(&mut self, state: &State, at: usize, open: Mask) {
        let crashed = State { open: None, ..*state };
        self.reach(crashed, at, Event::Crash);
        if state.served.count_ones() < WRITES_MAX {
            let bit = state.served + 1;
            let mut wrote = State { served: state.served | bit, ..*state };
            for member in 0..MEMBERS {
                if open & (1 << member) != 0 {
                    wrote.disks[member].has |= bit;
                } else {
                    wrote.missed[member] |= bit;
                }
            }
            self.reach(wrote, at, Event::Write);
        }
        self.expand_stamp(state, at, open);
        for member in members(open) {
            let mut left = *state;
            Self::enter(&mut left, open & !(1 << member));
            left.open = Some(open & !(1 << member));
            self.reach(left, at, Event::Leave { member });
            if state.missed[member] != 0 {
                let mut filled = *state;
                filled.disks[member].has |= state.missed[member];
                self.reach(State { open: None, ..filled }, at, Event::Fill { member });
                filled.missed[member] = 0;
                self.reach(filled, at, Event::Fill { member });
            }
        }
        for member in members(state.attached & !open) {
            self.take_back(state, at, open, member);
        }
    }

    fn expand_stamp(&mut self, state: &State, at: usize, open: Mask) {
        for written in subsets(open) {
            if self.world.stamp == Order::NamesFirst {
                let mut named = State { open: None, ..*state };
                Self::name(&mut named, written, Order::NamesFirst);
                self.reach(named, at, Event::Stamp { written, is_named: true });
            }
            let mut labelled = *state;
            Self::label(&mut labelled, written);
            self.reach(State { open: None, ..labelled }, at, Event::Stamp { written, is_named: false });
            let mut named = labelled;
            Self::name(&mut named, written, Order::LabelsFirst);
            self.reach(named, at, Event::Stamp { written, is_named: true });
            if written == open {
                self.reach(State { open: None, ..named }, at, Event::End);
            }
        }
    }

    fn take_back(&mut self, state: &State, at: usize, open: Mask, member: usize) {
        let event = |steps| Event::TakeBack { member, steps };
        let mut back = *state;
        match self.verify(state, member, at, event(0)) {
            Standing::Old => back.missed[member] = state.served,
            Standing::TakesPart => {}
            Standing::Apart => return,
        }
        let cut = |search: &mut Self, back: &State, steps| {
            search.reach(State { open: None, ..*back }, at, event(steps));
        };
        cut(self, &back, 1);
        let known = if self.world.numbers == Numbers::AboveAll { state.entries[member] } else { 0 };
        let sequence =
            u8::try_from(next_sequence(state.disks[member].sequence.into(), known.into())).unwrap();
        let is_first = self.world.back == Return::LabelFirst;
        if is_first {
            back.disks[member].sequence = sequence;
            cut(self, &back, 2);
        }
        Self::enter(&mut back, open | 1 << member);
        if is_first {
            Self::name(&mut back, 1 << member, Order::LabelsFirst);
        }
        back.open = Some(open | 1 << member);
        back.content[member] =
            if back.content[member] == Content::Excused { Content::Excused } else { Content::Own };
        cut(self, &back, 3);
        self.reach(back, at, event(3));
        let last = back.disks[member].sequence;
        back.disks[member].sequence = if is_first { last + 1 } else { sequence };
        back.disks[member].base = back.epoch;
        self.reach(back, at, event(4));
    }
}

fn shipped(depth: usize) -> World {
    let order = |is_awake| if is_awake { Order::NamesFirst } else { Order::LabelsFirst };
    World {
        depth,
        opening: order(mutation!(MemberNamedEarly)),
        stamp: order(mutation!(StampBeforeLabels)),
        numbers: Numbers::AboveAll,
        back: if mutation!(ReturnUnstamped) { Return::LabelLast } else { Return::LabelFirst },
    }
}

/// Every order of events: no image of before counts, and no sound member is called old.
#[test]
fn no_order_of_events_believes_an_image_of_before_or_drops_a_sound_member() {
    let depth = super::depth(5);
    let (states, violation) = explore(shipped(depth));
    println!("members without a vote: {states} states by every order of up to {depth} events");
    assert_eq!(violation, None);
    assert!(states > 10_000, "only {states} states: the model hardly moved");
}

fn assert_found(world: World, expected: &str) {
    let (states, violation) = explore(world);
    let Some((what, way)) = violation else { panic!("no violation in {states} states") };
    assert_eq!(what, expected, "{way:?}");
}

/// Control: an opening that names labels before they are durable calls a sound member old.
#[test]
fn control_an_opening_that_names_labels_early_fails() {
    let world = World { opening: Order::NamesFirst, ..shipped(5) };
    assert_found(world, "a sound member is called old");
}

/// Control: so does a stamp.
#[test]
fn control_a_stamp_that_names_labels_early_fails() {
    assert_found(World { stamp: Order::NamesFirst, ..shipped(5) }, "a sound member is called old");
}

/// Control: a label of a disk that is taken back in has to be above the entry of that disk, not only above its own.
#[test]
fn control_a_label_that_is_not_above_the_entry_fails() {
    assert_found(World { numbers: Numbers::AboveItsOwn, ..shipped(7) }, "a sound member is called old");
}

/// Control: a disk that counts before it has a label of its own is called old behind a crash, or an image of it counts.
#[test]
fn control_a_disk_that_counts_before_it_has_its_label_fails() {
    let (states, violation) = explore(World { back: Return::LabelLast, ..shipped(7) });
    assert!(violation.is_some(), "no violation in {states} states");
}

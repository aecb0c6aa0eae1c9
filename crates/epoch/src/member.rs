//! Whether a disk that is here is the member that the pool takes it for (docs/design/0027).
//!
//! Each member has an *entry* in the labels of the voters. The entry names the newest label of that member which is known to
//! be durable, by the label's `sequence`. A disk whose newest label is older than its entry was put back from an older image:
//! it lacks what was written since, and nothing on record says which blocks these are.
//!
//! # Invariants
//! - An entry names a label only when that label is durable on its disk. So no disk that kept its label is called old.
//! - An opening and a stamp name a later label of each member that they reach, before anything is acknowledged behind them.
//!   So each image from before the last of these is called old.
//! - The newest label at hand is never called old: a label names only labels that were written before it.
//!
//! [`standing`] decides by a table in which exactly one line fits each combination of facts.

use dolmen_mutation::mutation;
use dolmen_units::{DiskId, Epoch};

use crate::record::EpochRecord;

/// How the epochs that a label names relate to the epoch that is built on, or is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// The label holds that epoch, as the one in force or as pending.
    Holds,
    /// The label's epoch is in the past of that epoch.
    Past,
    /// The label's epoch belongs to another side, or is unknown.
    Apart,
}

/// Whether the epoch counts the disk among its voters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vote {
    /// It does.
    Voter,
    /// It does not.
    None,
}

/// What the members' table of the epoch says of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attendance {
    /// The disk takes part.
    Here,
    /// The disk left with an epoch that it does not know.
    Left,
    /// The disk left with an epoch that it knows: it was left out as an old one before.
    LeftOut,
    /// The table has no entry for the disk.
    Unlisted,
}

/// How the disk's newest label compares with the label that its entry names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelAge {
    /// It is that label or a later one.
    Current,
    /// It is an older one.
    After,
}

/// The facts that decide about a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Its epoch.
    pub history: History,
    /// Its vote.
    pub vote: Vote,
    /// Its entry.
    pub attendance: Attendance,
    /// Its label.
    pub label: LabelAge,
}

/// The decision about a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It takes part; what it missed is on record, slab by slab.
    TakesPart,
    /// It is as it was before: it counts as absent, and all of it is stale until it was taken back in and filled.
    Old,
    /// It went on apart: it counts as absent, and is never merged.
    Apart,
}

/// The part of an entry in the members' table that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The first epoch without the disk; 0 while it takes part.
    pub left: Epoch,
    /// The least sequence that the disk's newest label has.
    pub sequence: u64,
}

/// A disk that says to be a member.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// The disk.
    pub disk: DiskId,
    /// The epoch that its label calls in force.
    pub base: &'a EpochRecord,
    /// The epoch that its label calls pending.
    pub pending: Option<&'a EpochRecord>,
    /// The sequence of its newest label.
    pub sequence: u64,
    /// Its entry in the members' table of the epoch.
    pub entry: Option<Entry>,
}

impl Claim<'_> {
    /// The facts, compared with the epoch that is built on or in force.
    #[must_use]
    pub fn facts(&self, epoch: &EpochRecord) -> Facts {
        let holds = [Some(self.base), self.pending].into_iter().flatten().any(|held| held.id() == epoch.id());
        let history = match holds {
            true => History::Holds,
            false if epoch.continues(self.base) => History::Past,
            false => History::Apart,
        };
        let attendance = match self.entry {
            None => Attendance::Unlisted,
            Some(entry) if entry.left == Epoch(0) => Attendance::Here,
            Some(entry) if entry.left <= self.base.number() => Attendance::LeftOut,
            Some(_) => Attendance::Left,
        };
        let is_after = self.entry.is_some_and(|entry| self.sequence < entry.sequence);
        Facts {
            history,
            vote: if epoch.voters().contains(&self.disk) { Vote::Voter } else { Vote::None },
            attendance,
            label: if is_after { LabelAge::After } else { LabelAge::Current },
        }
    }
}

/// A line of the table: the facts that it fits, and the decision.
#[derive(Debug)]
struct Rule {
    name: &'static str,
    history: &'static [History],
    vote: &'static [Vote],
    attendance: &'static [Attendance],
    label: &'static [LabelAge],
    standing: Standing,
}

const SAME_SIDE: &[History] = &[History::Holds, History::Past];
const ANY_VOTE: &[Vote] = &[Vote::Voter, Vote::None];
const ANY_ATTENDANCE: &[Attendance] =
    &[Attendance::Here, Attendance::Left, Attendance::LeftOut, Attendance::Unlisted];
const NOT_LEFT_OUT: &[Attendance] = &[Attendance::Here, Attendance::Left, Attendance::Unlisted];
const ANY_LABEL: &[LabelAge] = &[LabelAge::Current, LabelAge::After];
const CURRENT: &[LabelAge] = &[LabelAge::Current];

/// The table. Its order does not matter: exactly one line fits.
const RULES: [Rule; 8] = [
    Rule {
        name: "went on apart",
        history: &[History::Apart],
        vote: ANY_VOTE,
        attendance: ANY_ATTENDANCE,
        label: ANY_LABEL,
        standing: Standing::Apart,
    },
    Rule {
        name: "label older than its entry",
        history: SAME_SIDE,
        vote: ANY_VOTE,
        attendance: ANY_ATTENDANCE,
        label: &[LabelAge::After],
        standing: Standing::Old,
    },
    Rule {
        name: "left out before",
        history: SAME_SIDE,
        vote: ANY_VOTE,
        attendance: &[Attendance::LeftOut],
        label: CURRENT,
        standing: Standing::Old,
    },
    Rule {
        name: "holds the epoch",
        history: &[History::Holds],
        vote: ANY_VOTE,
        attendance: NOT_LEFT_OUT,
        label: CURRENT,
        standing: Standing::TakesPart,
    },
    Rule {
        name: "voter that lacks the epoch",
        history: &[History::Past],
        vote: &[Vote::Voter],
        attendance: NOT_LEFT_OUT,
        label: CURRENT,
        standing: Standing::Old,
    },
    Rule {
        name: "member whose label still names an earlier epoch",
        history: &[History::Past],
        vote: &[Vote::None],
        attendance: &[Attendance::Here],
        label: CURRENT,
        standing: Standing::TakesPart,
    },
    Rule {
        name: "member that was away",
        history: &[History::Past],
        vote: &[Vote::None],
        attendance: &[Attendance::Left],
        label: CURRENT,
        standing: Standing::TakesPart,
    },
    Rule {
        name: "no member any more",
        history: &[History::Past],
        vote: &[Vote::None],
        attendance: &[Attendance::Unlisted],
        label: CURRENT,
        standing: Standing::TakesPart,
    },
];

impl Rule {
    fn fits(&self, facts: Facts) -> bool {
        self.history.contains(&facts.history)
            && self.vote.contains(&facts.vote)
            && self.attendance.contains(&facts.attendance)
            && self.label.contains(&facts.label)
    }
}

/// Returns the decision about a disk, and the name of the line of the table that made it.
///
/// # Panics
/// Never: a line fits each combination of facts.
#[must_use]
pub fn standing(facts: Facts) -> (Standing, &'static str) {
    let believed =
        if mutation!(OldMemberTrusted) { Facts { label: LabelAge::Current, ..facts } } else { facts };
    let found = RULES.iter().find(|rule| rule.fits(believed));
    let Some(rule) = found else { unreachable!("no line of the table fits {facts:?}") };
    (rule.standing, rule.name)
}

/// Returns the sequence for a disk's next label: above the label that the disk has and above everything that the pool knows of,
/// and for another slot than that label, so that a torn write leaves it.
#[must_use]
pub fn next_sequence(label: u64, known: u64) -> u64 {
    let next = label.max(known).saturating_add(1);
    if next % 2 == label % 2 { next.saturating_add(1) } else { next }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Owner, Successor, next};
    use dolmen_units::{HostId, Lsn};

    fn all_facts() -> impl Iterator<Item = Facts> {
        let histories = [History::Holds, History::Past, History::Apart];
        histories.into_iter().flat_map(|history| {
            ANY_VOTE.iter().flat_map(move |&vote| {
                ANY_ATTENDANCE.iter().flat_map(move |&attendance| {
                    ANY_LABEL.iter().map(move |&label| Facts { history, vote, attendance, label })
                })
            })
        })
    }

    /// Every combination of facts: one line of the table fits it, and no line is superfluous.
    #[test]
    fn one_line_fits_each_combination_of_facts() {
        let mut used = [0; RULES.len()];
        let mut count = 0;
        for facts in all_facts() {
            let fitting: Vec<usize> = (0..RULES.len()).filter(|&line| RULES[line].fits(facts)).collect();
            assert_eq!(fitting.len(), 1, "{facts:?}");
            used[fitting[0]] += 1;
            count += 1;
        }
        assert_eq!(count, 3 * 2 * 4 * 2);
        assert!(used.iter().all(|uses| *uses > 0), "{used:?}");
    }

    /// A label that is older than its entry never takes part, and one of another side never does.
    #[test]
    fn what_is_old_or_apart_never_takes_part() {
        for facts in all_facts() {
            let (decided, _) = standing(facts);
            let is_apart = facts.history == History::Apart;
            let is_after = facts.label == LabelAge::After;
            assert_eq!(decided == Standing::Apart, is_apart, "{facts:?}");
            assert!(!is_after || decided != Standing::TakesPart, "{facts:?}");
        }
    }

    /// The facts follow from the labels: epochs by their ids, attendance by the epoch of the label, age by its sequence.
    #[test]
    fn facts_follow_from_label_and_entry() {
        let disk = |index: u8| DiskId([index; 16]);
        let host = Owner::Host(HostId([1; 16]));
        let first = EpochRecord::first(7, host, vec![disk(1), disk(2)], Lsn(1)).unwrap();
        let after = |record: &EpochRecord| {
            let successor = Successor {
                highest: record.number(),
                owner: host,
                voters: vec![disk(1)],
                present: vec![disk(1)],
                nonce: 9,
                oldest: Lsn(1),
                first: Lsn(1),
                kind: Kind::Opening,
            };
            next(record, successor).unwrap()
        };
        let second = after(&first);
        let third = after(&second);
        let entry = |left: u64, sequence: u64| Some(Entry { left: Epoch(left), sequence });
        let claim = |entry| Claim { disk: disk(3), base: &second, pending: None, sequence: 5, entry };
        let facts = |claim: Claim<'_>| claim.facts(&third);
        let expected =
            |attendance, label| Facts { history: History::Past, vote: Vote::None, attendance, label };
        assert_eq!(facts(claim(entry(0, 5))), expected(Attendance::Here, LabelAge::Current));
        assert_eq!(facts(claim(entry(0, 6))), expected(Attendance::Here, LabelAge::After));
        assert_eq!(facts(claim(entry(3, 0))), expected(Attendance::Left, LabelAge::Current));
        assert_eq!(facts(claim(entry(2, 5))), expected(Attendance::LeftOut, LabelAge::Current));
        assert_eq!(facts(claim(None)), expected(Attendance::Unlisted, LabelAge::Current));
        let voter = Claim { disk: disk(1), ..claim(entry(0, 5)) };
        assert_eq!(voter.facts(&third).vote, Vote::Voter);
        let pending = Claim { pending: Some(&third), ..claim(entry(0, 5)) };
        assert_eq!(pending.facts(&third).history, History::Holds);
        let ahead = Claim { base: &third, ..claim(entry(0, 5)) };
        assert_eq!(ahead.facts(&second).history, History::Apart);
    }

    /// The next label is above all that is known, and leaves the label that the disk has in its slot.
    #[test]
    fn the_next_label_goes_above_and_next_to_it() {
        for label in 1..20 {
            for known in 0..30 {
                let next = next_sequence(label, known);
                assert!(next > label && next > known && next % 2 != label % 2, "{label} {known} {next}");
            }
        }
    }
}

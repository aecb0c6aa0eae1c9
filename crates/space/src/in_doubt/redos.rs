//! Redos: stripes that may be half in place, and whose content the write cache has.

use super::Rule;

/// Row of a redo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RedoRow {
    /// Detached, or of a space that is not known.
    Detached,
    /// Attached; its lock is not held.
    Attached,
    /// Attached; its lock is held.
    Locked,
}

/// Content of a redo, from the cache or from its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RedoContent {
    Unread,
    /// A block may be on disks that are away or unresponsive.
    Away,
    /// A block is on no disk, and none is away.
    Lost,
    Complete,
}

/// Copies that the cache rows have of the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RedoCopies {
    /// As many as the cache is meant to have.
    All,
    /// Fewer; the cache has room for all copies elsewhere.
    FewerThanRoom,
    /// Fewer; the cache has no room for more, and a disk could take a copy.
    FewerThanDisks,
    /// Fewer, and nothing could have more.
    AsManyAsPossible,
}

/// Facts about a redo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RedoFacts {
    pub(crate) row: RedoRow,
    /// The log says that the stripe is in place.
    pub(crate) is_done: bool,
    /// Each column has a slab on a disk that is here.
    pub(crate) has_columns: bool,
    /// Blocks of the row are in doubt.
    pub(crate) is_row_deferred: bool,
    pub(crate) content: RedoContent,
    pub(crate) copies: RedoCopies,
}

/// Decision about a redo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RedoDecision {
    /// Take the lock of the stripe, then ask again.
    TakeLock,
    /// Read the content, then ask again.
    ReadContent,
    /// Its places in the cache are dead.
    Void,
    /// The versions that it put in place have ended.
    Done,
    /// Leave it for later.
    Wait,
    /// Move the content within the cache, where it has all copies.
    Move,
    /// Leave it until the cache has more copies.
    WaitForCopies,
    /// Lost blocks and parity become damaged, the rest goes in place.
    Lost,
    /// Put all of it in place.
    Complete,
}

fn is_live(facts: &RedoFacts) -> bool {
    facts.row != RedoRow::Detached && !facts.is_done
}

/// Returns whether the content decides.
fn is_held(facts: &RedoFacts) -> bool {
    is_live(facts) && facts.has_columns && facts.row == RedoRow::Locked && !facts.is_row_deferred
}

fn is_read(facts: &RedoFacts) -> bool {
    is_held(facts) && matches!(facts.content, RedoContent::Lost | RedoContent::Complete)
}

fn has_enough_copies(facts: &RedoFacts) -> bool {
    matches!(facts.copies, RedoCopies::All | RedoCopies::AsManyAsPossible)
}

/// Rules for redos.
pub(crate) const REDOS: &[Rule<RedoFacts, RedoDecision>] = &[
    Rule {
        label: "R0 unlocked",
        when: |facts| is_live(facts) && facts.has_columns && facts.row == RedoRow::Attached,
        then: |_| RedoDecision::TakeLock,
    },
    Rule {
        label: "R0 unread",
        when: |facts| is_held(facts) && facts.content == RedoContent::Unread,
        then: |_| RedoDecision::ReadContent,
    },
    Rule {
        label: "R1 void",
        when: |facts| facts.row == RedoRow::Detached && !facts.is_done,
        then: |_| RedoDecision::Void,
    },
    // Also where the row is detached: what a shadow row had put in place has ended versions of its row.
    Rule { label: "R2 done", when: |facts| facts.is_done, then: |_| RedoDecision::Done },
    Rule {
        label: "R3 column-away",
        when: |facts| is_live(facts) && !facts.has_columns,
        then: |_| RedoDecision::Wait,
    },
    Rule {
        label: "R4 in-doubt",
        when: |facts| {
            is_live(facts) && facts.has_columns && facts.row == RedoRow::Locked && facts.is_row_deferred
        },
        then: |_| RedoDecision::Wait,
    },
    Rule {
        label: "R5 content-away",
        when: |facts| is_held(facts) && facts.content == RedoContent::Away,
        then: |_| RedoDecision::Wait,
    },
    Rule {
        label: "R6 copies-lacking-move",
        when: |facts| is_read(facts) && facts.copies == RedoCopies::FewerThanRoom,
        then: |_| RedoDecision::Move,
    },
    Rule {
        label: "R6 copies-lacking-wait",
        when: |facts| is_read(facts) && facts.copies == RedoCopies::FewerThanDisks,
        then: |_| RedoDecision::WaitForCopies,
    },
    Rule {
        label: "R7 lost",
        when: |facts| is_read(facts) && has_enough_copies(facts) && facts.content == RedoContent::Lost,
        then: |_| RedoDecision::Lost,
    },
    Rule {
        label: "R8 complete",
        when: |facts| is_read(facts) && has_enough_copies(facts) && facts.content == RedoContent::Complete,
        then: |_| RedoDecision::Complete,
    },
];

#[cfg(test)]
mod tests {
    use super::super::decide;
    use super::super::tests::assert_one_rule_matches;
    use super::*;

    const ROWS: [RedoRow; 3] = [RedoRow::Detached, RedoRow::Attached, RedoRow::Locked];
    const CONTENTS: [RedoContent; 4] =
        [RedoContent::Unread, RedoContent::Away, RedoContent::Lost, RedoContent::Complete];
    const COPIES: [RedoCopies; 4] = [
        RedoCopies::All,
        RedoCopies::FewerThanRoom,
        RedoCopies::FewerThanDisks,
        RedoCopies::AsManyAsPossible,
    ];

    fn all() -> Vec<RedoFacts> {
        let mut all = Vec::new();
        for (row, content, copies) in ROWS
            .iter()
            .flat_map(|row| CONTENTS.iter().flat_map(move |c| COPIES.iter().map(move |o| (*row, *c, *o))))
        {
            for bits in 0..8_u8 {
                let bit = |nth: u8| bits & (1 << nth) != 0;
                all.push(RedoFacts {
                    row,
                    is_done: bit(0),
                    has_columns: bit(1),
                    is_row_deferred: bit(2),
                    content,
                    copies,
                });
            }
        }
        all
    }

    /// Every input of the table: one rule matches it, and each rule matches an input.
    #[test]
    fn one_rule_matches_each_input_about_a_redo() {
        assert_eq!(assert_one_rule_matches(REDOS, all()), 3 * 4 * 4 * 8);
    }

    /// Nothing goes in place without the lock, and nothing is called lost while a disk that may have it is away.
    #[test]
    fn a_redo_goes_in_place_under_the_lock_with_all_that_can_be_had() {
        for facts in all() {
            let (label, decision) = decide(REDOS, &facts);
            let is_put = matches!(decision, RedoDecision::Lost | RedoDecision::Complete);
            assert!(!is_put || facts.row == RedoRow::Locked && !facts.is_row_deferred, "{label}");
            assert!(!is_put || facts.copies != RedoCopies::FewerThanDisks, "{label}");
            let is_away = matches!(facts.content, RedoContent::Away | RedoContent::Unread);
            assert!(!is_put || !is_away, "{label}");
        }
    }
}

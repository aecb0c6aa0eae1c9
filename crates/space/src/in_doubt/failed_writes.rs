//! Blocks of a write that failed while the pool is open, and that cannot stand.

use dolmen_mutation::mutation;

use super::Rule;

/// Newest of the two states that a trusted copy has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailedCopies {
    Unread,
    /// No trusted copy answered.
    Silent,
    /// A trusted copy has the state before the write.
    Old,
    /// None has that, and a trusted copy has what was written.
    New,
    /// None has either.
    Neither,
}

/// Facts about a block of a write that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FailedFacts {
    /// The block was never written before.
    pub(crate) was_never: bool,
    pub(crate) copies: FailedCopies,
}

/// Decision about such a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailedDecision {
    /// Read the copies, then ask again.
    ReadCopies,
    Never,
    /// Wait for disks.
    Defer,
    /// The state before, given to all copies.
    Old,
    /// The state that was written, given to all copies.
    New,
}

fn is_read(facts: &FailedFacts, copies: FailedCopies) -> bool {
    !facts.was_never && facts.copies == copies
}

/// Rules for blocks of failed writes.
pub(crate) const FAILED_WRITES: &[Rule<FailedFacts, FailedDecision>] = &[
    Rule {
        label: "F0 unread",
        when: |facts| is_read(facts, FailedCopies::Unread),
        then: |_| FailedDecision::ReadCopies,
    },
    Rule {
        label: "F1 fresh",
        when: |facts| facts.was_never,
        then: |_| if mutation!(FreshWriteInDoubt) { FailedDecision::Defer } else { FailedDecision::Never },
    },
    Rule {
        label: "F2 out-of-reach",
        when: |facts| is_read(facts, FailedCopies::Silent),
        then: |_| FailedDecision::Defer,
    },
    Rule { label: "F3 old", when: |facts| is_read(facts, FailedCopies::Old), then: |_| FailedDecision::Old },
    Rule { label: "F3 new", when: |facts| is_read(facts, FailedCopies::New), then: |_| FailedDecision::New },
    Rule {
        label: "F4 neither",
        when: |facts| is_read(facts, FailedCopies::Neither),
        then: |_| FailedDecision::Defer,
    },
];

#[cfg(test)]
mod tests {
    use super::super::tests::{BOTH, assert_one_rule_matches};
    use super::*;

    const COPIES: [FailedCopies; 5] = [
        FailedCopies::Unread,
        FailedCopies::Silent,
        FailedCopies::Old,
        FailedCopies::New,
        FailedCopies::Neither,
    ];

    /// Every input of the table: one rule matches it, and each rule matches an input.
    #[test]
    fn one_rule_matches_each_input_about_a_failed_write() {
        let all =
            BOTH.into_iter().flat_map(|was_never| COPIES.map(|copies| FailedFacts { was_never, copies }));
        assert_eq!(assert_one_rule_matches(FAILED_WRITES, all), 2 * 5);
    }
}

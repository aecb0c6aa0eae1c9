//! Blocks of copied layouts that the log names and that no flush has covered.

use dolmen_mutation::mutation;

use super::Rule;

/// State of a block when a flush covered it last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    /// No disk that is here can tell.
    Unknown,
    Never,
    Damaged,
    Valid,
}

/// Newest state that a copy has. *Never* needs no copy. The candidates are the claims, newest first, then the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstMatch {
    /// The newest candidate that is not *damaged*.
    NewestKnown,
    /// A claim before that.
    Older,
    /// The base, where it differs from the newest.
    Base,
    /// No candidate.
    None,
}

/// Answers of the copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copies {
    Unread,
    /// No trusted copy answered.
    Silent,
    Read(FirstMatch),
}

/// Claims that say *damaged*.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LostClaims {
    None,
    /// Some, and not the last.
    Earlier,
    /// The last, and not all.
    Last,
    All,
}

/// Facts about a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockFacts {
    pub(crate) base: Base,
    pub(crate) copies: Copies,
    pub(crate) lost: LostClaims,
    /// A claim says that flushed content was being overwritten in place.
    pub(crate) has_intent: bool,
    /// The space accepts such content unverified.
    pub(crate) is_relaxed: bool,
    /// A trusted copy can be read.
    pub(crate) is_readable: bool,
    /// A copy that was not read may be good.
    pub(crate) may_be_elsewhere: bool,
    /// The row has a write cache, which may hold the block.
    pub(crate) has_cache: bool,
}

/// Decision about a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockDecision {
    /// Read the copies, then ask again.
    ReadCopies,
    /// Wait for disks.
    Defer,
    /// The first match is the state; other copies are rewritten.
    Stands,
    /// As before; the newest content is not there any more.
    Reverted,
    /// The readable copy is the content; the event says *accepted unverified*.
    AcceptedUnverified,
    /// The block is damaged; the event says *lost*.
    Torn,
    /// The block is damaged, as a claim says; the event says *lost*.
    DeclaredLost,
    /// The newest known state stays, for a copy elsewhere; the event says *corrupt here*.
    CorruptHere,
    /// The newest known state stays; the event says *lost*.
    Corrupt,
}

fn is_read(facts: &BlockFacts, first: FirstMatch) -> bool {
    facts.base != Base::Unknown && facts.copies == Copies::Read(first)
}

fn is_torn(facts: &BlockFacts) -> bool {
    is_read(facts, FirstMatch::None) && facts.has_intent
}

fn may_accept(facts: &BlockFacts) -> bool {
    let is_undamaged = facts.base != Base::Damaged && facts.lost == LostClaims::None;
    facts.is_relaxed && facts.is_readable && is_undamaged
}

/// Returns whether no candidate has a copy although nothing was being written over the block.
fn is_corrupt(facts: &BlockFacts) -> bool {
    is_read(facts, FirstMatch::None) && !facts.has_intent
}

fn is_declared_lost(facts: &BlockFacts) -> bool {
    matches!(facts.lost, LostClaims::Last | LostClaims::All) && !facts.may_be_elsewhere && !facts.has_cache
}

/// Returns whether a copy elsewhere may have what is known of the block.
fn is_good_elsewhere(facts: &BlockFacts) -> bool {
    let is_known = facts.base != Base::Damaged || facts.lost != LostClaims::All;
    is_known && facts.may_be_elsewhere
}

/// Rules for blocks of copied layouts.
pub(crate) const BLOCKS: &[Rule<BlockFacts, BlockDecision>] = &[
    Rule {
        label: "B0 unread",
        when: |facts| facts.base != Base::Unknown && facts.copies == Copies::Unread,
        then: |_| BlockDecision::ReadCopies,
    },
    Rule {
        label: "B1 base-unknown",
        when: |facts| facts.base == Base::Unknown,
        then: |_| BlockDecision::Defer,
    },
    Rule {
        label: "B2 out-of-reach",
        when: |facts| facts.base != Base::Unknown && facts.copies == Copies::Silent,
        then: |_| BlockDecision::Defer,
    },
    Rule {
        label: "B3 newest-stands",
        when: |facts| is_read(facts, FirstMatch::NewestKnown),
        then: |_| BlockDecision::Stands,
    },
    Rule {
        label: "B4 older-stands",
        when: |facts| is_read(facts, FirstMatch::Older),
        then: |_| BlockDecision::Reverted,
    },
    Rule {
        label: "B5 base-stands",
        when: |facts| is_read(facts, FirstMatch::Base),
        then: |_| BlockDecision::Reverted,
    },
    Rule {
        label: "B6 accepted-unverified",
        when: |facts| is_torn(facts) && may_accept(facts),
        then: |_| BlockDecision::AcceptedUnverified,
    },
    Rule {
        label: "B7 torn",
        when: |facts| is_torn(facts) && !may_accept(facts),
        then: |_| BlockDecision::Torn,
    },
    Rule {
        label: "B8 declared-lost",
        when: |facts| is_corrupt(facts) && is_declared_lost(facts),
        then: |_| BlockDecision::DeclaredLost,
    },
    Rule {
        label: "B9 corrupt-here",
        when: |facts| is_corrupt(facts) && !is_declared_lost(facts) && is_good_elsewhere(facts),
        then: |_| BlockDecision::CorruptHere,
    },
    Rule {
        label: "B10 corrupt",
        when: |facts| {
            let is_elsewhere = is_good_elsewhere(facts) && !mutation!(RuleOverlaps);
            is_corrupt(facts) && !is_declared_lost(facts) && !is_elsewhere
        },
        then: |_| BlockDecision::Corrupt,
    },
];

#[cfg(test)]
mod tests {
    use super::super::decide;
    use super::super::tests::assert_one_rule_matches;
    use super::*;

    const BASES: [Base; 4] = [Base::Unknown, Base::Never, Base::Damaged, Base::Valid];
    const COPIES: [Copies; 6] = [
        Copies::Unread,
        Copies::Silent,
        Copies::Read(FirstMatch::NewestKnown),
        Copies::Read(FirstMatch::Older),
        Copies::Read(FirstMatch::Base),
        Copies::Read(FirstMatch::None),
    ];
    const LOST: [LostClaims; 4] = [LostClaims::None, LostClaims::Earlier, LostClaims::Last, LostClaims::All];

    fn all() -> Vec<BlockFacts> {
        let mut all = Vec::new();
        for (base, copies, lost) in
            BASES.iter().flat_map(|b| COPIES.iter().flat_map(move |c| LOST.iter().map(move |l| (*b, *c, *l))))
        {
            for bits in 0..32_u8 {
                let bit = |nth: u8| bits & (1 << nth) != 0;
                all.push(BlockFacts {
                    base,
                    copies,
                    lost,
                    has_intent: bit(0),
                    is_relaxed: bit(1),
                    is_readable: bit(2),
                    may_be_elsewhere: bit(3),
                    has_cache: bit(4),
                });
            }
        }
        all
    }

    /// Every input of the table: one rule matches it, and each rule matches an input.
    #[test]
    fn one_rule_matches_each_input_about_a_block() {
        assert_eq!(assert_one_rule_matches(BLOCKS, all()), 4 * 6 * 4 * 32);
    }

    /// A block becomes damaged only where no candidate has a copy, and either it was being overwritten or a claim says so.
    #[test]
    fn a_block_with_a_copy_is_never_called_damaged() {
        for facts in all() {
            let (label, decision) = decide(BLOCKS, &facts);
            let is_damaged = matches!(decision, BlockDecision::Torn | BlockDecision::DeclaredLost);
            let is_excused = facts.has_intent || facts.lost != LostClaims::None;
            assert!(!is_damaged || facts.copies == Copies::Read(FirstMatch::None) && is_excused, "{label}");
            // What a copy elsewhere or the write cache may have is not declared lost.
            let is_kept = facts.may_be_elsewhere || facts.has_cache;
            assert!(decision != BlockDecision::DeclaredLost || !is_kept, "{facts:?}");
        }
    }

    /// Unverified content is accepted only in a relaxed space, over a block of which nothing says that it was damaged.
    #[test]
    fn strict_and_damaged_blocks_are_never_accepted_unverified() {
        for facts in all() {
            if decide(BLOCKS, &facts).1 == BlockDecision::AcceptedUnverified {
                assert!(facts.is_relaxed && facts.is_readable && facts.has_intent, "{facts:?}");
                assert!(facts.base != Base::Damaged && facts.lost == LostClaims::None, "{facts:?}");
            }
        }
    }
}

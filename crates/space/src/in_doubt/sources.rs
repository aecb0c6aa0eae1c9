//! Slots that alternating stripes have left, where no flush has covered that (docs/design/0026).

use super::Rule;

/// Parity of the stripe in the row that it went to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetParity {
    Unread,
    /// Its table is out of reach.
    Away,
    Never,
    Damaged,
    Valid,
}

/// Facts about the source of a slot switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SourceFacts {
    /// The row that the stripe went to is attached.
    pub(crate) has_partner: bool,
    /// The stripe is in doubt there.
    pub(crate) is_target_deferred: bool,
    pub(crate) parity: TargetParity,
}

/// Decision about a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceDecision {
    /// Read the table of the target, then ask again.
    ReadTarget,
    /// Wait for disks.
    Defer,
    /// The stripe is in the target. The log keeps the claims of the source until tables say that the target has it.
    Switched,
    /// The stripe is in the source, which is made whole.
    Stands,
    /// As before; the target, whose content nothing can tell, is *never*.
    StandsAlone,
}

fn is_known(facts: &SourceFacts, parity: TargetParity) -> bool {
    facts.has_partner && !facts.is_target_deferred && facts.parity == parity
}

/// Rules for sources of slot switches.
pub(crate) const SOURCES: &[Rule<SourceFacts, SourceDecision>] = &[
    Rule {
        label: "A0 target-unread",
        when: |facts| is_known(facts, TargetParity::Unread),
        then: |_| SourceDecision::ReadTarget,
    },
    Rule { label: "A1 no-partner", when: |facts| !facts.has_partner, then: |_| SourceDecision::Stands },
    Rule {
        label: "A2 target-in-doubt",
        when: |facts| facts.has_partner && facts.is_target_deferred,
        then: |_| SourceDecision::Defer,
    },
    Rule {
        label: "A3 target-away",
        when: |facts| is_known(facts, TargetParity::Away),
        then: |_| SourceDecision::Defer,
    },
    Rule {
        label: "A4 switched",
        when: |facts| is_known(facts, TargetParity::Valid),
        then: |_| SourceDecision::Switched,
    },
    Rule {
        label: "A5 not-switched",
        when: |facts| is_known(facts, TargetParity::Never),
        then: |_| SourceDecision::Stands,
    },
    Rule {
        label: "A6 target-damaged",
        when: |facts| is_known(facts, TargetParity::Damaged),
        then: |_| SourceDecision::StandsAlone,
    },
];

#[cfg(test)]
mod tests {
    use super::super::decide;
    use super::super::tests::{BOTH, assert_one_rule_matches};
    use super::*;

    const PARITIES: [TargetParity; 5] = [
        TargetParity::Unread,
        TargetParity::Away,
        TargetParity::Never,
        TargetParity::Damaged,
        TargetParity::Valid,
    ];

    fn all() -> impl Iterator<Item = SourceFacts> {
        let flags = BOTH.into_iter().flat_map(|one| BOTH.into_iter().map(move |other| (one, other)));
        flags.flat_map(|(has_partner, is_target_deferred)| {
            PARITIES.into_iter().map(move |parity| SourceFacts { has_partner, is_target_deferred, parity })
        })
    }

    /// Every input of the table: one rule matches it, and each rule matches an input.
    #[test]
    fn one_rule_matches_each_input_about_a_source() {
        assert_eq!(assert_one_rule_matches(SOURCES, all()), 2 * 2 * 5);
    }

    /// A source goes only where its target was decided and is valid.
    #[test]
    fn a_source_goes_only_when_its_target_is_valid() {
        for facts in all() {
            let is_there = facts.has_partner && !facts.is_target_deferred;
            let is_valid = is_there && facts.parity == TargetParity::Valid;
            assert_eq!(decide(SOURCES, &facts).1 == SourceDecision::Switched, is_valid, "{facts:?}");
        }
    }
}

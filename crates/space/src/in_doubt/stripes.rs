//! Stripes of parity layouts that the log names and that no flush has covered.

use dolmen_mutation::mutation;

use super::Rule;

/// Tables of a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tables {
    /// The table of a column that the log names is out of reach.
    ColumnAway,
    Unread,
    /// The base of a block, or the state of another block, is out of reach.
    BaseAway,
    Known,
}

/// Newest states of the blocks that the log names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Newest {
    /// All of them are *never*.
    Never,
    /// Not all of them, and the stripe is what it was.
    AsBase,
    /// The stripe differs from what it was.
    Changed,
}

/// Answers of the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Columns {
    Unread,
    /// Fewer than the data columns answered.
    TooFew,
    /// The newest states verify, or can be computed from those that do.
    Decodable,
    NotDecodable,
}

/// Facts about a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StripeFacts {
    pub(crate) tables: Tables,
    pub(crate) newest: Newest,
    /// The base of the first parity block is not *never*.
    pub(crate) had_parity: bool,
    /// The row has a row beside it that alternates with it.
    pub(crate) has_partner: bool,
    /// The stripe was written as a whole, to a slot that was never written.
    pub(crate) was_in_flight: bool,
    /// A claim says that a block is damaged: nothing is *never* that was declared lost.
    pub(crate) has_lost_claim: bool,
    /// As many columns as there are data columns have a trusted slab here.
    pub(crate) is_enough_here: bool,
    pub(crate) columns: Columns,
}

/// Decision about a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StripeDecision {
    /// Read the tables, then ask again.
    ReadTables,
    /// Read the columns, then ask again.
    ReadColumns,
    /// Wait for disks.
    Defer,
    /// The slot was the source of a switch: the target decides (`sources`).
    ByTarget,
    /// The newest states are the stripe.
    Newest,
    /// The newest states are the stripe; columns that lack them are rewritten.
    Whole,
    /// The stripe is what it was; content that was valid before the slot was written is *never*.
    RevertedInFlight { damaged: Damaged },
    /// The stripe is what it was.
    Reverted,
}

/// Fate of blocks of a stripe in flight that the table calls damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damaged {
    Stays,
    /// The table was lost, and the slot was never written before.
    IsNever,
}

fn is_source(facts: &StripeFacts) -> bool {
    facts.newest == Newest::Never && facts.had_parity && facts.has_partner
}

/// Returns whether content has to be read to decide.
fn is_open(facts: &StripeFacts) -> bool {
    let is_changed = match facts.newest {
        Newest::Never => false,
        Newest::AsBase => facts.was_in_flight,
        Newest::Changed => true,
    };
    facts.tables == Tables::Known && is_changed
}

fn is_read(facts: &StripeFacts, columns: Columns) -> bool {
    is_open(facts) && facts.is_enough_here && facts.columns == columns
}

/// Rules for stripes of parity layouts.
pub(crate) const STRIPES: &[Rule<StripeFacts, StripeDecision>] = &[
    Rule {
        label: "S0 tables-unread",
        when: |facts| facts.tables == Tables::Unread,
        then: |_| StripeDecision::ReadTables,
    },
    Rule {
        label: "S0 columns-unread",
        when: |facts| is_read(facts, Columns::Unread),
        then: |_| StripeDecision::ReadColumns,
    },
    Rule {
        label: "S1 table-away",
        when: |facts| facts.tables == Tables::ColumnAway,
        then: |_| StripeDecision::Defer,
    },
    Rule {
        label: "S2 base-unknown",
        when: |facts| facts.tables == Tables::BaseAway,
        then: |_| StripeDecision::Defer,
    },
    Rule {
        label: "S3 source-of-switch",
        when: |facts| facts.tables == Tables::Known && is_source(facts),
        then: |_| StripeDecision::ByTarget,
    },
    Rule {
        label: "S4 never",
        when: |facts| facts.tables == Tables::Known && facts.newest == Newest::Never && !is_source(facts),
        then: |_| StripeDecision::Newest,
    },
    Rule {
        label: "S5 as-recorded",
        when: |facts| facts.tables == Tables::Known && facts.newest == Newest::AsBase && !facts.was_in_flight,
        then: |_| StripeDecision::Newest,
    },
    Rule {
        label: "S6 too-few-here",
        when: |facts| is_open(facts) && !facts.is_enough_here,
        then: |_| StripeDecision::Defer,
    },
    Rule {
        label: "S7 too-few-answered",
        when: |facts| is_read(facts, Columns::TooFew),
        then: |_| StripeDecision::Defer,
    },
    Rule {
        label: "S8 stands",
        when: |facts| is_read(facts, Columns::Decodable),
        then: |_| StripeDecision::Whole,
    },
    Rule {
        label: "S9 reverted-in-flight",
        when: |facts| is_read(facts, Columns::NotDecodable) && facts.was_in_flight,
        then: |facts| StripeDecision::RevertedInFlight {
            damaged: if facts.has_lost_claim || mutation!(InFlightStaysDamaged) {
                Damaged::Stays
            } else {
                Damaged::IsNever
            },
        },
    },
    Rule {
        label: "S10 reverted",
        when: |facts| is_read(facts, Columns::NotDecodable) && !facts.was_in_flight,
        then: |_| StripeDecision::Reverted,
    },
];

#[cfg(test)]
mod tests {
    use super::super::decide;
    use super::super::tests::assert_one_rule_matches;
    use super::*;

    const TABLES: [Tables; 4] = [Tables::ColumnAway, Tables::Unread, Tables::BaseAway, Tables::Known];
    const NEWEST: [Newest; 3] = [Newest::Never, Newest::AsBase, Newest::Changed];
    const COLUMNS: [Columns; 4] =
        [Columns::Unread, Columns::TooFew, Columns::Decodable, Columns::NotDecodable];

    fn all() -> Vec<StripeFacts> {
        let mut all = Vec::new();
        for (tables, newest, columns) in TABLES
            .iter()
            .flat_map(|t| NEWEST.iter().flat_map(move |n| COLUMNS.iter().map(move |c| (*t, *n, *c))))
        {
            for bits in 0..32_u8 {
                let bit = |nth: u8| bits & (1 << nth) != 0;
                all.push(StripeFacts {
                    tables,
                    newest,
                    had_parity: bit(0),
                    has_partner: bit(1),
                    was_in_flight: bit(2),
                    is_enough_here: bit(3),
                    has_lost_claim: bit(4),
                    columns,
                });
            }
        }
        all
    }

    /// Every input of the table: one rule matches it, and each rule matches an input.
    #[test]
    fn one_rule_matches_each_input_about_a_stripe() {
        assert_eq!(assert_one_rule_matches(STRIPES, all()), 4 * 3 * 4 * 32);
    }

    /// A stripe that enough columns cannot tell is never reverted, and a stripe is reverted only after its columns were read.
    #[test]
    fn a_stripe_is_reverted_only_when_enough_columns_deny_it() {
        for facts in all() {
            let (label, decision) = decide(STRIPES, &facts);
            let is_reverted =
                matches!(decision, StripeDecision::Reverted | StripeDecision::RevertedInFlight { .. });
            let is_denied = facts.columns == Columns::NotDecodable && facts.is_enough_here;
            assert!(!is_reverted || is_denied && facts.tables == Tables::Known, "{label}: {facts:?}");
            assert!(decision != StripeDecision::Whole || facts.columns == Columns::Decodable, "{label}");
        }
    }

    /// A damaged block becomes *never* only in a stripe in flight of which no claim says that it was lost.
    #[test]
    fn a_declared_loss_is_never_forgotten() {
        for facts in all() {
            if let (label, StripeDecision::RevertedInFlight { damaged: Damaged::IsNever }) =
                decide(STRIPES, &facts)
            {
                assert!(facts.was_in_flight && !facts.has_lost_claim, "{label}: {facts:?}");
            }
        }
    }

    /// A stripe that a flush has covered, and that is what it was, stands without a read: S10 never sees one.
    #[test]
    fn a_stripe_as_recorded_is_not_read() {
        for facts in all() {
            let is_recorded = facts.newest == Newest::AsBase && !facts.was_in_flight;
            if facts.tables == Tables::Known && is_recorded {
                assert_eq!(decide(STRIPES, &facts).0, "S5 as-recorded", "{facts:?}");
            }
        }
    }
}

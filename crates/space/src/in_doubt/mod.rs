//! In-doubt resolution: tables of rules that decide after a crash, or when disks are back (docs/design/0032).
//!
//! A table is pure: facts in, a decision out, no I/O and no allocation. The modules that collect facts and act on decisions are
//! `recovery`, `in_flight`, `replay`, `pages` and `reach`. A fact that costs I/O begins as *unread*. The table answers with a rule
//! that asks for it, where it would change the decision. So nothing is read for a block that cannot be decided.
//!
//! # Invariants
//! - Exactly one rule of a table matches each input. The order of the rules has no meaning.
//! - [`decide`] asserts this for the input at hand. The tests of each table enumerate all inputs.

pub(crate) mod blocks;
pub(crate) mod failed_writes;
pub(crate) mod pages;
pub(crate) mod redos;
pub(crate) mod sources;
pub(crate) mod stripes;
pub(crate) mod versions;

/// A rule of a table.
pub(crate) struct Rule<F: 'static, D: 'static> {
    /// Name in logs and in tests.
    pub(crate) label: &'static str,
    /// Returns whether the rule matches these facts.
    pub(crate) when: fn(&F) -> bool,
    /// Returns the decision.
    pub(crate) then: fn(&F) -> D,
}

/// Returns the label of the rule that matches, and its decision.
///
/// # Panics
/// If no rule matches, or two do: a wrong decision here could overwrite the last good copy of a block.
pub(crate) fn decide<F: std::fmt::Debug, D>(rules: &'static [Rule<F, D>], facts: &F) -> (&'static str, D) {
    let mut matching = rules.iter().filter(|rule| (rule.when)(facts));
    let Some(rule) = matching.next() else { unreachable!("no rule matches {facts:?}") };
    let second = matching.next().map(|rule| rule.label);
    assert!(second.is_none(), "{} and {} both match {facts:?}", rule.label, second.unwrap_or_default());
    (rule.label, (rule.then)(facts))
}

#[cfg(test)]
mod tests {
    use super::{Rule, decide};

    /// Asserts that exactly one rule matches each of these inputs, and that each rule matches one. Returns the number of inputs.
    pub(super) fn assert_one_rule_matches<F: std::fmt::Debug, D>(
        rules: &'static [Rule<F, D>],
        inputs: impl IntoIterator<Item = F>,
    ) -> usize {
        let mut uses = vec![0; rules.len()];
        let mut count = 0;
        for facts in inputs {
            let matching: Vec<usize> = (0..rules.len()).filter(|rule| (rules[*rule].when)(&facts)).collect();
            let labels: Vec<&str> = matching.iter().map(|rule| rules[*rule].label).collect();
            assert_eq!(labels.len(), 1, "rules {labels:?} match {facts:?}");
            uses[matching[0]] += 1;
            count += 1;
        }
        for (rule, uses) in rules.iter().zip(uses) {
            assert!(uses > 0, "no input matches {}", rule.label);
        }
        count
    }

    pub(super) const BOTH: [bool; 2] = [false, true];

    const OVERLAPPING: &[Rule<u8, u8>] = &[
        Rule { label: "low", when: |number| *number < 3, then: |_| 0 },
        Rule { label: "high", when: |number| *number > 1, then: |_| 1 },
    ];

    /// Input 2 matches both rules of a table: the decision is refused.
    #[test]
    #[should_panic(expected = "low and high both match 2")]
    fn an_input_that_matches_two_rules_is_refused() {
        assert_eq!(decide(OVERLAPPING, &1), ("low", 0));
        decide(OVERLAPPING, &2);
    }

    /// The suite itself finds the input that two rules match.
    #[test]
    #[should_panic(expected = "rules [\"low\", \"high\"] match 2")]
    fn the_suite_finds_an_overlap() {
        assert_one_rule_matches(OVERLAPPING, 0..5);
    }
}

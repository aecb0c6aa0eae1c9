//! Table pages, of which disks have copies that a crash may have torn or left behind.

use super::Rule;

/// Trusted slabs that should have the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrustedHolders {
    /// There is none.
    None,
    /// One was not read, or did not answer.
    SomeSilent,
    /// All answered.
    AllAnswered,
}

/// Copies of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageCopies {
    Unread,
    /// A trusted copy is as new as it has to be, or has both slots valid where nothing says how new that is.
    Current,
    NoneCurrent(TrustedHolders),
}

/// Facts about a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageFacts {
    /// The tables of the row were written.
    pub(crate) is_formatted: bool,
    /// The page came into memory, or was written, while its copies were read.
    pub(crate) is_overtaken: bool,
    /// The row is detached.
    pub(crate) is_detached: bool,
    pub(crate) copies: PageCopies,
}

/// Decision about a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageDecision {
    /// Read the copies, then ask again.
    ReadCopies,
    /// No block of it was written.
    Blank,
    /// Begin again.
    Again,
    /// The newest current copy is the page; others are healed.
    Newest,
    /// Nothing is known until disks are back.
    Away,
    /// All its blocks are damaged; the event says *table lost*.
    Lost,
}

fn is_read(facts: &PageFacts) -> bool {
    facts.is_formatted && !facts.is_overtaken
}

/// Returns whether nothing may be concluded from the copies that answered.
fn is_away(facts: &PageFacts) -> bool {
    let PageCopies::NoneCurrent(holders) = facts.copies else { return false };
    is_read(facts) && (facts.is_detached || holders != TrustedHolders::AllAnswered)
}

/// Rules for table pages.
pub(crate) const PAGES: &[Rule<PageFacts, PageDecision>] = &[
    Rule {
        label: "P0 unread",
        when: |facts| is_read(facts) && facts.copies == PageCopies::Unread,
        then: |_| PageDecision::ReadCopies,
    },
    Rule { label: "P1 blank", when: |facts| !facts.is_formatted, then: |_| PageDecision::Blank },
    Rule {
        label: "P2 overtaken",
        when: |facts| facts.is_formatted && facts.is_overtaken,
        then: |_| PageDecision::Again,
    },
    Rule {
        label: "P3 newest",
        when: |facts| is_read(facts) && facts.copies == PageCopies::Current,
        then: |_| PageDecision::Newest,
    },
    Rule { label: "P4 away", when: is_away, then: |_| PageDecision::Away },
    Rule {
        label: "P5 lost",
        when: |facts| is_read(facts) && matches!(facts.copies, PageCopies::NoneCurrent(_)) && !is_away(facts),
        then: |_| PageDecision::Lost,
    },
];

#[cfg(test)]
mod tests {
    use super::super::decide;
    use super::super::tests::{BOTH, assert_one_rule_matches};
    use super::*;

    const COPIES: [PageCopies; 5] = [
        PageCopies::Unread,
        PageCopies::Current,
        PageCopies::NoneCurrent(TrustedHolders::None),
        PageCopies::NoneCurrent(TrustedHolders::SomeSilent),
        PageCopies::NoneCurrent(TrustedHolders::AllAnswered),
    ];

    fn all() -> Vec<PageFacts> {
        let mut all = Vec::new();
        for (is_formatted, is_overtaken) in BOTH.into_iter().flat_map(|one| BOTH.map(|other| (one, other))) {
            for (is_detached, copies) in BOTH.into_iter().flat_map(|one| COPIES.map(|copies| (one, copies))) {
                all.push(PageFacts { is_formatted, is_overtaken, is_detached, copies });
            }
        }
        all
    }

    /// Every input of the table: one rule matches it, and each rule matches an input.
    #[test]
    fn one_rule_matches_each_input_about_a_page() {
        assert_eq!(assert_one_rule_matches(PAGES, all()), 2 * 2 * 2 * 5);
    }

    /// A page is lost only when all trusted holders answered and none has it.
    #[test]
    fn a_page_is_lost_only_when_all_trusted_holders_answered() {
        for facts in all() {
            if decide(PAGES, &facts).1 == PageDecision::Lost {
                assert_eq!(facts.copies, PageCopies::NoneCurrent(TrustedHolders::AllAnswered));
                assert!(!facts.is_detached, "{facts:?}");
            }
        }
    }
}

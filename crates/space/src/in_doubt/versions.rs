//! Versions of blocks in a write cache, as the log has them.

use super::Rule;

/// Content of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VersionKind {
    Discard,
    Cached,
}

/// State of the block of the cache row in which a version lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlaceState {
    Unread,
    /// The cache row could not be decided.
    Unknown,
    /// The block may hold the version's checksum.
    MayHold,
    CannotHold,
}

/// Facts about a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VersionFacts {
    /// A newer version of the block is marked.
    pub(crate) is_superseded: bool,
    /// A flush has covered the version.
    pub(crate) is_marked: bool,
    pub(crate) kind: VersionKind,
    /// A disk that has the version's place is here.
    pub(crate) is_in_reach: bool,
    pub(crate) place: PlaceState,
}

/// Decision about a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VersionDecision {
    /// Read the table of the cache row, then ask again.
    ReadPlace,
    Superseded,
    /// The version stands, and needs no flush.
    Covered,
    /// The version stands from the next flush on.
    Unflushed,
    /// Wait for disks.
    InDoubt,
    /// The version is not there.
    Void,
}

fn is_open(facts: &VersionFacts) -> bool {
    !facts.is_superseded && !facts.is_marked && facts.kind == VersionKind::Cached
}

fn is_read(facts: &VersionFacts, place: PlaceState) -> bool {
    is_open(facts) && facts.is_in_reach && facts.place == place
}

/// Rules for versions of a write cache.
pub(crate) const VERSIONS: &[Rule<VersionFacts, VersionDecision>] = &[
    Rule {
        label: "V0 unread",
        when: |facts| is_read(facts, PlaceState::Unread),
        then: |_| VersionDecision::ReadPlace,
    },
    Rule { label: "V1 superseded", when: |facts| facts.is_superseded, then: |_| VersionDecision::Superseded },
    Rule {
        label: "V2 marked",
        when: |facts| !facts.is_superseded && facts.is_marked,
        then: |_| VersionDecision::Covered,
    },
    Rule {
        // A discard has no content that a flush would have to cover: its record is all of it.
        label: "V3 discard",
        when: |facts| !facts.is_superseded && !facts.is_marked && facts.kind == VersionKind::Discard,
        then: |_| VersionDecision::Covered,
    },
    Rule {
        label: "V4 place-away",
        when: |facts| is_open(facts) && !facts.is_in_reach,
        then: |_| VersionDecision::InDoubt,
    },
    Rule {
        label: "V5 row-in-doubt",
        when: |facts| is_read(facts, PlaceState::Unknown),
        then: |_| VersionDecision::InDoubt,
    },
    Rule {
        label: "V6 found",
        when: |facts| is_read(facts, PlaceState::MayHold),
        then: |_| VersionDecision::Unflushed,
    },
    Rule {
        label: "V7 void",
        when: |facts| is_read(facts, PlaceState::CannotHold),
        then: |_| VersionDecision::Void,
    },
];

#[cfg(test)]
mod tests {
    use super::super::decide;
    use super::super::tests::{BOTH, assert_one_rule_matches};
    use super::*;

    const PLACES: [PlaceState; 4] =
        [PlaceState::Unread, PlaceState::Unknown, PlaceState::MayHold, PlaceState::CannotHold];

    fn all() -> Vec<VersionFacts> {
        let mut all = Vec::new();
        for (is_superseded, is_marked) in BOTH.into_iter().flat_map(|one| BOTH.map(|other| (one, other))) {
            for (is_in_reach, place) in BOTH.into_iter().flat_map(|one| PLACES.map(|place| (one, place))) {
                for kind in [VersionKind::Discard, VersionKind::Cached] {
                    all.push(VersionFacts { is_superseded, is_marked, kind, is_in_reach, place });
                }
            }
        }
        all
    }

    /// Every input of the table: one rule matches it, and each rule matches an input.
    #[test]
    fn one_rule_matches_each_input_about_a_version() {
        assert_eq!(assert_one_rule_matches(VERSIONS, all()), 2 * 2 * 2 * 2 * 4);
    }

    /// A version that a flush has covered never comes to nothing, and neither does one whose place nothing here can tell.
    #[test]
    fn a_version_comes_to_nothing_only_where_its_place_denies_it() {
        for facts in all() {
            if decide(VERSIONS, &facts).1 == VersionDecision::Void {
                assert!(!facts.is_marked && facts.is_in_reach, "{facts:?}");
                assert_eq!(facts.place, PlaceState::CannotHold);
            }
        }
    }
}

//! Readiness of exchanges: obstacles that keep a row from going, as a pure function of facts (docs/design/0032, *One readiness
//! function*).
//!
//! Invariant: the facts are read under the table mutex and the commit mutex, without an await between them and the commit.
//!
//! Left to others: reading the facts, and the commit (`exchange`).

use dolmen_mutation::mutation;
use smallvec::SmallVec;

/// Kind of an exchange: a commit that changes which row a place names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExchangeKind {
    /// The shadow row of a stream, or of alternating slots, takes the place of its row.
    Promotion,
    /// A conversion shadow takes the place of its row.
    Conversion,
    /// A row loses its shadow row.
    Drop,
    /// A place loses its row.
    Free,
    /// A row that holds nothing becomes another row.
    Renewal,
}

/// Cause of the end of shadow rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndCause {
    /// They are idle, or a stream asks for others.
    Unused,
    /// A claim lacks their room.
    LackOfRoom,
}

/// Reason why an exchange cannot be committed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Obstacle {
    /// The row or its shadow row is no longer what the place names.
    RowDetached,
    /// The space is deleted.
    SpaceDeleted,
    /// The row or its shadow row has deferred blocks, or blocks that are about to be deferred.
    InDoubt,
    /// The shadow row has unflushed blocks; at a drop, the row or the shadow row.
    Unflushed,
    /// The row or its shadow row has acknowledged blocks that are out of reach.
    UnflushedAway,
    /// The disks of the shadow row lack a page of its tables.
    TablesDirty,
    /// The write cache has blocks of the row; at a conversion, of the shadow row.
    Cached,
    /// A stripe of the row or its shadow row is half destaged; at a conversion, of the shadow row.
    HalfDestaged,
    /// The row has a stripe that its shadow row lacks.
    Lacks,
    /// The shadow row has a stripe.
    HoldsStripes,
    /// A page that says which of the two has a stripe is not in memory.
    PageAway,
    /// A client has written to the row since it was copied.
    Changed,
    /// A conversion holds the row.
    Held,
    /// Another task holds the own lock of the conversion shadow.
    ShadowLocked,
    /// The layout of the row that stays is not that of the space, or the row has it already.
    WrongLayout,
    /// The row has a shadow row.
    HasShadow,
    /// The row that stays lacks slabs that the exchange needs.
    SlabsLacking,
    /// The row holds something.
    HoldsContent,
}

impl Obstacle {
    /// All obstacles, in order.
    pub(crate) const ALL: &[Self] = &[
        Self::RowDetached,
        Self::SpaceDeleted,
        Self::InDoubt,
        Self::Unflushed,
        Self::UnflushedAway,
        Self::TablesDirty,
        Self::Cached,
        Self::HalfDestaged,
        Self::Lacks,
        Self::HoldsStripes,
        Self::PageAway,
        Self::Changed,
        Self::Held,
        Self::ShadowLocked,
        Self::WrongLayout,
        Self::HasShadow,
        Self::SlabsLacking,
        Self::HoldsContent,
    ];
}

/// Obstacles of an exchange.
pub(crate) type Obstacles = SmallVec<[Obstacle; 4]>;

/// Fact that is true or not, or that cannot be known from memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Known {
    #[default]
    No,
    Yes,
    /// A page that says so is not in memory.
    Away,
}

/// Facts of one of the two rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RowFacts {
    /// The place names another row, or none.
    pub(crate) is_detached: bool,
    pub(crate) is_in_doubt: bool,
    pub(crate) is_unflushed: bool,
    pub(crate) is_unflushed_away: bool,
    /// A page differs from the disks, or a write-back has to look at the row again, or the row holds something and is not
    /// formatted.
    pub(crate) has_dirty_tables: bool,
    pub(crate) is_cached: bool,
    pub(crate) is_half_destaged: bool,
    pub(crate) is_held: bool,
    pub(crate) has_shadow: bool,
    /// Columns without a slab that can be read.
    pub(crate) columns_lacking: usize,
    /// Columns that the content can be computed without.
    pub(crate) columns_spare: usize,
    /// Some slab cannot be read, even if another one of its column can.
    pub(crate) lacks_a_slab: bool,
}

/// Facts of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) kind: ExchangeKind,
    pub(crate) row: RowFacts,
    /// Facts of the shadow row that takes the place, or is dropped.
    pub(crate) shadow: RowFacts,
    pub(crate) is_space_deleted: bool,
    /// A claim lacks the room that the exchange frees.
    pub(crate) is_for_room: bool,
    pub(crate) is_shadow_locked: bool,
    pub(crate) is_changed: bool,
    pub(crate) is_layout_wrong: bool,
    /// The row has a stripe that its shadow row lacks.
    pub(crate) lacks_stripe: Known,
    /// The shadow row has a stripe.
    pub(crate) has_stripe: Known,
    /// Slabs of the row do not suffice for a new row.
    pub(crate) lacks_slabs_of_new: bool,
    pub(crate) holds_content: bool,
}

impl Facts {
    /// Facts of an exchange without an obstacle.
    pub(crate) fn new(kind: ExchangeKind) -> Self {
        Self {
            kind,
            row: RowFacts::default(),
            shadow: RowFacts::default(),
            is_space_deleted: false,
            is_for_room: false,
            is_shadow_locked: false,
            is_changed: false,
            is_layout_wrong: false,
            lacks_stripe: Known::No,
            has_stripe: Known::No,
            lacks_slabs_of_new: false,
            holds_content: false,
        }
    }

    fn has(&self, obstacle: Obstacle) -> bool {
        let (row, shadow) = (&self.row, &self.shadow);
        match obstacle {
            Obstacle::RowDetached => row.is_detached || shadow.is_detached,
            Obstacle::SpaceDeleted => self.is_space_deleted,
            Obstacle::InDoubt => row.is_in_doubt || shadow.is_in_doubt,
            Obstacle::Unflushed => match self.kind {
                ExchangeKind::Drop => row.is_unflushed || shadow.is_unflushed,
                _ => shadow.is_unflushed,
            },
            Obstacle::UnflushedAway => row.is_unflushed_away || shadow.is_unflushed_away,
            Obstacle::TablesDirty => shadow.has_dirty_tables,
            Obstacle::Cached => match self.kind {
                ExchangeKind::Conversion => shadow.is_cached,
                _ => row.is_cached,
            },
            Obstacle::HalfDestaged => match self.kind {
                ExchangeKind::Conversion => shadow.is_half_destaged,
                _ => row.is_half_destaged || shadow.is_half_destaged,
            },
            Obstacle::Lacks => self.lacks_stripe == Known::Yes,
            Obstacle::HoldsStripes => self.has_stripe == Known::Yes,
            Obstacle::PageAway => self.lacks_stripe == Known::Away || self.has_stripe == Known::Away,
            Obstacle::Changed => self.is_changed,
            Obstacle::Held => row.is_held,
            Obstacle::ShadowLocked => self.is_shadow_locked,
            Obstacle::WrongLayout => self.is_layout_wrong,
            Obstacle::HasShadow => row.has_shadow,
            Obstacle::SlabsLacking => match self.kind {
                ExchangeKind::Promotion => !may_replace(shadow, row, self.is_for_room),
                ExchangeKind::Conversion => shadow.lacks_a_slab,
                ExchangeKind::Drop => !may_replace(row, shadow, self.is_for_room),
                ExchangeKind::Free | ExchangeKind::Renewal => self.lacks_slabs_of_new,
            },
            Obstacle::HoldsContent => self.holds_content,
        }
    }
}

/// Returns whether one of a row and its shadow row may get all content of the other one, which goes then. The row that stays
/// lacks no more columns than the row that goes, so that redundancy is no lower afterwards. For room that a claim lacks, it is
/// enough that the row that stays can be decoded.
pub(crate) fn may_replace(stays: &RowFacts, goes: &RowFacts, is_for_room: bool) -> bool {
    let is_spared = is_for_room && stays.columns_lacking <= stays.columns_spare;
    stays.columns_lacking <= goes.columns_lacking || is_spared
}

/// Returns every obstacle.
pub(crate) fn obstacles(facts: &Facts) -> Obstacles {
    let all = Obstacle::ALL.iter().copied();
    all.filter(|obstacle| {
        hinders(*obstacle, facts.kind) && facts.has(*obstacle) && !is_passed_over(*obstacle, facts.kind)
    })
    .collect()
}

/// Returns whether an obstacle hinders exchanges of a kind.
fn hinders(obstacle: Obstacle, kind: ExchangeKind) -> bool {
    use ExchangeKind::{Conversion, Drop, Promotion, Renewal};
    match obstacle {
        Obstacle::RowDetached => true,
        // A renewed row of a space that is about to be deleted is freed with the others.
        Obstacle::SpaceDeleted => matches!(kind, Promotion | Conversion | Drop),
        Obstacle::InDoubt | Obstacle::UnflushedAway | Obstacle::SlabsLacking => {
            matches!(kind, Promotion | Conversion | Drop | Renewal)
        }
        // A row that holds nothing has nothing that a flush would have to cover.
        Obstacle::Unflushed | Obstacle::TablesDirty => matches!(kind, Promotion | Conversion | Drop),
        // At a drop, the row keeps what is cached of it. Of a row that holds nothing, discards alone are cached.
        Obstacle::Cached => matches!(kind, Promotion | Conversion),
        Obstacle::HalfDestaged => matches!(kind, Promotion | Conversion | Drop | Renewal),
        Obstacle::Lacks => kind == Promotion,
        Obstacle::HoldsStripes => kind == Drop,
        Obstacle::PageAway => matches!(kind, Promotion | Drop),
        Obstacle::Changed | Obstacle::ShadowLocked => kind == Conversion,
        // A conversion holds the row itself; what is deleted does not wait for it.
        Obstacle::Held => matches!(kind, Promotion | Drop | Renewal),
        Obstacle::WrongLayout => matches!(kind, Conversion | Renewal),
        Obstacle::HasShadow | Obstacle::HoldsContent => kind == Renewal,
    }
}

/// Returns whether a mutant passes over an obstacle.
fn is_passed_over(obstacle: Obstacle, kind: ExchangeKind) -> bool {
    use ExchangeKind::{Conversion, Drop, Free, Promotion, Renewal};
    match (kind, obstacle) {
        (Promotion, Obstacle::Unflushed | Obstacle::UnflushedAway) => mutation!(ShadowBeforeFlush),
        (Promotion, Obstacle::TablesDirty) => mutation!(ShadowBeforeFlush) || mutation!(ShadowBeforeTables),
        (Promotion, Obstacle::Cached) => mutation!(ShadowBeforeCached),
        (Promotion, Obstacle::Lacks) => mutation!(PromotionLacksStripes),
        (Promotion | Drop, Obstacle::SlabsLacking) => mutation!(PromotionDegrades),
        (Conversion, Obstacle::Unflushed) => mutation!(ConversionShadowBeforeFlush),
        (Conversion, Obstacle::TablesDirty) => {
            mutation!(ConversionShadowBeforeFlush) || mutation!(ConversionShadowBeforeTables)
        }
        (Conversion, Obstacle::Cached | Obstacle::HalfDestaged) => mutation!(ConversionShadowWhileCached),
        (Conversion, Obstacle::Changed) => mutation!(ConversionShadowMissesWrites),
        (Conversion, Obstacle::ShadowLocked) => mutation!(ConversionShadowUnlocked),
        (Conversion, Obstacle::SlabsLacking) => mutation!(ConversionDegrades),
        (Drop, Obstacle::Unflushed | Obstacle::UnflushedAway | Obstacle::TablesDirty) => {
            mutation!(ShadowDroppedBeforeFlush)
        }
        (Drop, Obstacle::HoldsStripes) => mutation!(DropWithAStripe),
        (Free, Obstacle::RowDetached) => mutation!(FreeWithoutRecheck),
        (Promotion | Conversion | Drop | Renewal, Obstacle::RowDetached) => mutation!(ExchangeOfDetached),
        (Promotion | Conversion | Drop | Renewal, Obstacle::InDoubt) => mutation!(ExchangeInDoubt),
        (Promotion | Drop, Obstacle::HalfDestaged) => mutation!(ExchangeHalfDestaged),
        (Renewal, Obstacle::HoldsContent) => mutation!(ReserveTakesWritten),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::ExchangeKind::{Conversion, Drop, Free, Promotion, Renewal};
    use super::*;

    const KINDS: [ExchangeKind; 5] = [Promotion, Conversion, Drop, Free, Renewal];

    /// A fact, the obstacle that it is, and the kinds of exchanges that it hinders.
    type Input = (fn(&mut Facts), Obstacle, &'static [ExchangeKind]);

    const INPUTS: &[Input] = &[
        (|facts| facts.row.is_detached = true, Obstacle::RowDetached, &KINDS),
        (|facts| facts.shadow.is_detached = true, Obstacle::RowDetached, &KINDS),
        (|facts| facts.is_space_deleted = true, Obstacle::SpaceDeleted, &[Promotion, Conversion, Drop]),
        (|facts| facts.row.is_in_doubt = true, Obstacle::InDoubt, &[Promotion, Conversion, Drop, Renewal]),
        (|facts| facts.shadow.is_in_doubt = true, Obstacle::InDoubt, &[Promotion, Conversion, Drop, Renewal]),
        (|facts| facts.row.is_unflushed = true, Obstacle::Unflushed, &[Drop]),
        (|facts| facts.shadow.is_unflushed = true, Obstacle::Unflushed, &[Promotion, Conversion, Drop]),
        (
            |facts| facts.row.is_unflushed_away = true,
            Obstacle::UnflushedAway,
            &[Promotion, Conversion, Drop, Renewal],
        ),
        (
            |facts| facts.shadow.is_unflushed_away = true,
            Obstacle::UnflushedAway,
            &[Promotion, Conversion, Drop, Renewal],
        ),
        (|facts| facts.row.has_dirty_tables = true, Obstacle::TablesDirty, &[]),
        (|facts| facts.shadow.has_dirty_tables = true, Obstacle::TablesDirty, &[Promotion, Conversion, Drop]),
        (|facts| facts.row.is_cached = true, Obstacle::Cached, &[Promotion]),
        (|facts| facts.shadow.is_cached = true, Obstacle::Cached, &[Conversion]),
        (|facts| facts.row.is_half_destaged = true, Obstacle::HalfDestaged, &[Promotion, Drop, Renewal]),
        (
            |facts| facts.shadow.is_half_destaged = true,
            Obstacle::HalfDestaged,
            &[Promotion, Conversion, Drop, Renewal],
        ),
        (|facts| facts.lacks_stripe = Known::Yes, Obstacle::Lacks, &[Promotion]),
        (|facts| facts.lacks_stripe = Known::Away, Obstacle::PageAway, &[Promotion, Drop]),
        (|facts| facts.has_stripe = Known::Yes, Obstacle::HoldsStripes, &[Drop]),
        (|facts| facts.has_stripe = Known::Away, Obstacle::PageAway, &[Promotion, Drop]),
        (|facts| facts.is_changed = true, Obstacle::Changed, &[Conversion]),
        (|facts| facts.row.is_held = true, Obstacle::Held, &[Promotion, Drop, Renewal]),
        (|facts| facts.is_shadow_locked = true, Obstacle::ShadowLocked, &[Conversion]),
        (|facts| facts.is_layout_wrong = true, Obstacle::WrongLayout, &[Conversion, Renewal]),
        (|facts| facts.row.has_shadow = true, Obstacle::HasShadow, &[Renewal]),
        (|facts| facts.row.columns_lacking = 1, Obstacle::SlabsLacking, &[Drop]),
        (|facts| facts.shadow.columns_lacking = 1, Obstacle::SlabsLacking, &[Promotion]),
        (|facts| facts.row.lacks_a_slab = true, Obstacle::SlabsLacking, &[]),
        (|facts| facts.shadow.lacks_a_slab = true, Obstacle::SlabsLacking, &[Conversion]),
        (|facts| facts.lacks_slabs_of_new = true, Obstacle::SlabsLacking, &[Renewal]),
        (|facts| facts.holds_content = true, Obstacle::HoldsContent, &[Renewal]),
    ];

    /// Scenario: each fact alone, and each two facts together, for each kind of exchange. The obstacles are those of the table,
    /// and no others. Two facts of one place in the facts are not combined.
    #[test]
    fn each_fact_is_the_obstacle_that_the_table_names() {
        for kind in KINDS {
            assert!(obstacles(&Facts::new(kind)).is_empty(), "{kind:?} without a fact");
            for (one, (set, obstacle, kinds)) in INPUTS.iter().enumerate() {
                let mut facts = Facts::new(kind);
                set(&mut facts);
                let expected: &[Obstacle] = if kinds.contains(&kind) { &[*obstacle] } else { &[] };
                assert_eq!(obstacles(&facts).as_slice(), expected, "{kind:?} with fact {one}");
                for (two, (also, other, others)) in INPUTS.iter().enumerate() {
                    let is_one_place = matches!((one, two), (15, 16) | (16, 15) | (17, 18) | (18, 17));
                    let are_columns = matches!((one, two), (24, 25) | (25, 24));
                    if is_one_place || are_columns {
                        continue;
                    }
                    let mut both = facts;
                    also(&mut both);
                    let mut expected = Obstacles::from_slice(expected);
                    expected.extend(others.contains(&kind).then_some(*other));
                    expected.sort_unstable();
                    expected.dedup();
                    assert_eq!(obstacles(&both), expected, "{kind:?} with facts {one} and {two}");
                }
            }
        }
    }

    /// Scenario: all numbers of lacking columns of either row, with and without a claim that lacks room. The row that stays lacks no
    /// more columns than the row that goes; for room it may, as long as it can be decoded.
    #[test]
    fn the_row_that_stays_lacks_no_more_columns() {
        for (stays, goes, spare) in (0..4)
            .flat_map(|stays| (0..4).flat_map(move |goes| (0..4).map(move |spare| (stays, goes, spare))))
        {
            for is_for_room in [false, true] {
                let lacks = |columns_lacking| RowFacts {
                    columns_lacking,
                    columns_spare: spare,
                    ..RowFacts::default()
                };
                let is_hindered = stays > goes && !(is_for_room && stays <= spare);
                let facts = |kind, row, shadow| {
                    obstacles(&Facts {
                        row: lacks(row),
                        shadow: lacks(shadow),
                        is_for_room,
                        ..Facts::new(kind)
                    })
                };
                let expected = Obstacles::from_iter(is_hindered.then_some(Obstacle::SlabsLacking));
                assert_eq!(facts(Promotion, goes, stays), expected, "{stays} {goes} {spare} {is_for_room}");
                assert_eq!(facts(Drop, stays, goes), expected, "{stays} {goes} {spare} {is_for_room}");
                assert!(facts(Free, stays, goes).is_empty(), "a deletion asks for no slab");
            }
        }
    }
}

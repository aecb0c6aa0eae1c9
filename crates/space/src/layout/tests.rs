//! The suite of every layout: each entry of [`LAYOUTS`], each shape with up to [`SLABS_MAX`] slabs, each set of lost slabs.

use std::collections::{BTreeMap, BTreeSet};

use dolmen_units::{BLOCK_BYTES, Bytes};

use super::plan::{WriteClass, WriteFacts, WritePlan};
use super::*;
use crate::resources::locks::Range;

const SLABS_MAX: u32 = 14;
const INTERLEAVE: u32 = 2;
/// Bytes of a block as the suite encodes them: codes take any length.
const BYTES: usize = 8;

/// Returns every shape with up to [`SLABS_MAX`] slabs that a layout accepts: with whole rounds, and with a short last one.
fn shapes() -> Vec<RowShape> {
    let mut all = Vec::new();
    for layout in LAYOUTS {
        for (data, parity) in (1..=SLABS_MAX).flat_map(|data| (0..=2).map(move |parity| (data, parity))) {
            for copies in 1..=4 {
                for interleaves in [data * 3, data * 3 + 1] {
                    let bytes = |blocks: u32| Bytes(u64::from(blocks) * BLOCK_BYTES);
                    let row = bytes(interleaves * INTERLEAVE);
                    let Some(shape) = Shape::new(row, bytes(INTERLEAVE), data, parity) else { continue };
                    let shape = RowShape::new(*layout, copies, shape);
                    if shape.check().is_ok() && slabs_of(&shape) <= SLABS_MAX as usize {
                        all.push(shape);
                    }
                }
            }
        }
    }
    all
}

fn slabs_of(shape: &RowShape) -> usize {
    shape.columns() * shape.copies()
}

/// Returns every set of the slabs of a row.
fn sets_of(shape: &RowShape) -> impl Iterator<Item = SlabSet> + use<> {
    (0..1u64 << slabs_of(shape)).map(SlabSet)
}

fn columns_with_a_slab(shape: &RowShape, lost: SlabSet) -> Vec<usize> {
    (0..shape.columns()).filter(|column| !lost.has_column(shape, *column)).collect()
}

/// Returns a block of each column of a stripe: data that differs, then what is computed from it.
fn stripe_of(shape: &RowShape, salt: u8) -> Vec<Vec<u8>> {
    let byte = |column: usize, at: usize| u8::try_from((column * 37 + at * 11 + 1) % 256).unwrap() ^ salt;
    let mut blocks: Vec<Vec<u8>> =
        (0..shape.columns()).map(|column| (0..BYTES).map(|at| byte(column, at)).collect()).collect();
    let (data, computed) = blocks.split_at_mut(shape.data_columns());
    let data: Vec<Option<&[u8]>> = data.iter().map(|block| Some(block.as_slice())).collect();
    let mut into: Vec<Option<&mut [u8]>> =
        computed.iter_mut().map(|block| Some(block.as_mut_slice())).collect();
    shape.encode(&data, &mut into);
    blocks
}

/// Returns the blocks of wanted columns, computed from given ones.
fn rebuilt(shape: &RowShape, stripe: &[Vec<u8>], given: &[usize], wanted: &[usize]) -> Option<Vec<Vec<u8>>> {
    let plan = shape.rebuild(given, wanted)?;
    let sources: Vec<Option<&[u8]>> =
        plan.sources().iter().map(|column| Some(stripe[*column].as_slice())).collect();
    let mut blocks = vec![vec![0; BYTES]; wanted.len()];
    let mut into: Vec<&mut [u8]> = blocks.iter_mut().map(Vec::as_mut_slice).collect();
    plan.reconstruct(&sources, &mut into).unwrap();
    Some(blocks)
}

/// Scenario: layouts are named by numbers in records and by words in requests. Each has its own, and has shapes.
#[test]
fn every_layout_has_a_number_a_name_and_shapes() {
    let codes: BTreeSet<u8> = LAYOUTS.iter().map(|layout| layout.code()).collect();
    let names: BTreeSet<&str> = LAYOUTS.iter().map(|layout| layout.name()).collect();
    assert_eq!((codes.len(), names.len()), (LAYOUTS.len(), LAYOUTS.len()));
    let found: BTreeSet<u8> = shapes().iter().map(|shape| shape.layout.code()).collect();
    assert_eq!(found, codes);
    let all = [
        Resiliency::Simple,
        Resiliency::Span,
        Resiliency::Mirror { copies: 2 },
        Resiliency::Parity { parity: 1 },
    ];
    for resiliency in all {
        assert_eq!(resiliency.layout().code(), resiliency.number(), "{resiliency}");
        assert!(resiliency.to_string().starts_with(resiliency.layout().name()), "{resiliency}");
        let named = LAYOUTS.iter().any(|layout| layout.code() == resiliency.number());
        assert!(named, "{resiliency} is in the table");
    }
}

/// Scenario: placement is asked for a row of each resiliency. The layout asks for what the resiliency stands for.
#[test]
fn layouts_ask_placement_for_what_their_resiliency_is() {
    for resiliency in [
        Resiliency::Simple,
        Resiliency::Span,
        Resiliency::Mirror { copies: 3 },
        Resiliency::Parity { parity: 1 },
        Resiliency::Parity { parity: 2 },
    ] {
        let bytes = |blocks: u64| Bytes(blocks * BLOCK_BYTES);
        let columns = if resiliency == Resiliency::Span { 1 } else { 4 };
        let shape = Shape::new(bytes(64), bytes(2), columns, resiliency.parity_columns().into()).unwrap();
        let shape = RowShape::new(resiliency.layout(), resiliency.copies().into(), shape);
        assert_eq!(shape.check(), Ok(()));
        assert_eq!(shape.placement().code, resiliency.code());
        assert_eq!(shape.losses(), usize::from(resiliency.losses()));
    }
}

/// Scenario: every block of every shape is looked up. It has a place of its own in a data column, and the way back leads to it.
#[test]
fn every_block_has_one_place_and_the_way_back_leads_to_it() {
    for shape in shapes() {
        let mut seen = BTreeSet::new();
        for block in 0..shape.row_blocks() {
            let spot = shape.locate(block);
            assert!(spot.column < shape.data_columns(), "{shape:?}: block {block}");
            assert!(spot.block < shape.column_blocks(spot.column), "{shape:?}: block {block}");
            assert_eq!(shape.row_block(spot.column, spot.block), block, "{shape:?}");
            assert!(seen.insert((spot.column, spot.block)), "{shape:?}: block {block} shares its place");
            let last = shape.locate(block + spot.contiguous - 1);
            assert_eq!(
                (last.column, last.block),
                (spot.column, spot.block + spot.contiguous - 1),
                "{shape:?}"
            );
        }
    }
}

/// Scenario: one data block of a stripe changes. What is computed from it is in the unit of the block, and who changes it locks all
/// data that the unit holds, whichever of its columns is named.
#[test]
fn locks_cover_each_unit() {
    for shape in shapes() {
        let before = stripe_of(&shape, 0);
        let is_other = |column: &usize| {
            let mut changed = before.clone();
            let mut computed = changed.split_off(shape.data_columns());
            changed[0][0] ^= 0xff;
            let data: Vec<Option<&[u8]>> = changed.iter().map(|block| Some(block.as_slice())).collect();
            let mut into: Vec<Option<&mut [u8]>> =
                computed.iter_mut().map(|block| Some(block.as_mut_slice())).collect();
            shape.encode(&data, &mut into);
            computed[*column - shape.data_columns()] != before[*column]
        };
        let dependent: Vec<usize> = shape.computed_columns().filter(is_other).collect();
        let is_alone = dependent.is_empty();
        assert_eq!(
            shape.unit() == Unit::Block,
            is_alone,
            "{shape:?}: what is computed changes with its data"
        );
        for column in 0..shape.columns() {
            for block in 0..shape.column_blocks(column) {
                let lock = shape.lock_range(column, Range { first: block, count: 1 });
                let of_unit = (0..shape.data_columns()).filter(|other| {
                    if is_alone { *other == column } else { block < shape.column_blocks(*other) }
                });
                for other in of_unit {
                    let data = shape.row_block(other, block);
                    assert!(
                        lock.blocks().contains(&data),
                        "{shape:?}: a lock of {column}, {block} leaves out {data}"
                    );
                }
                for run in (block..shape.column_blocks(column))
                    .map(|last| Range { first: block, count: last - block + 1 })
                {
                    let all = shape.lock_range(column, run);
                    let end = lock.first + lock.count;
                    assert!(all.first <= lock.first && end <= all.first + all.count, "{shape:?}: {run:?}");
                    assert!(all.first + all.count <= shape.row_blocks(), "{shape:?}: {run:?}");
                }
            }
        }
    }
}

/// Scenario: slabs are lost, in every combination. A row is decodable exactly when all of its columns can be rebuilt to what was
/// encoded, and exactly when each has a plan of a read, which names slabs that are left.
#[test]
fn a_row_is_decodable_exactly_when_rebuilding_gives_what_was_encoded() {
    for shape in shapes() {
        let stripe = stripe_of(&shape, 0x5a);
        for lost in sets_of(&shape) {
            let left = columns_with_a_slab(&shape, lost);
            let lacking: Vec<usize> = (0..shape.columns()).filter(|column| !left.contains(column)).collect();
            let wanted: Vec<Vec<u8>> = lacking.iter().map(|column| stripe[*column].clone()).collect();
            let gives_all = lacking.is_empty() || rebuilt(&shape, &stripe, &left, &lacking) == Some(wanted);
            let is_decodable = shape.decodable(lost);
            assert_eq!(
                is_decodable, gives_all,
                "{shape:?} without {lost:?}: decodable is not what can be rebuilt"
            );
            let mut is_planned = true;
            for column in 0..shape.columns() {
                match shape.plan_read(column, lost) {
                    ReadPlan::Copy(from) => {
                        assert!(!from.is_empty() && from.without(lost) == from, "{shape:?} without {lost:?}");
                        assert!(from.without(SlabSet::of_column(&shape, column)).is_empty(), "{shape:?}");
                    }
                    ReadPlan::Rebuild(from) => {
                        assert!(from.iter().all(|other| left.contains(other)), "{shape:?} without {lost:?}");
                        assert_eq!(from.len(), shape.sources(), "{shape:?}");
                        let one = rebuilt(&shape, &stripe, &from, &[column]);
                        assert_eq!(one, Some(vec![stripe[column].clone()]), "{shape:?} without {lost:?}");
                    }
                    ReadPlan::Lost => is_planned = false,
                }
            }
            assert_eq!(
                is_decodable, is_planned,
                "{shape:?} without {lost:?}: decodable is not what is planned"
            );
        }
    }
}

/// Scenario: a row lies as close together as its placement permits, and disks are lost: as many as it states, then one more. It stays
/// decodable, and then may not.
#[test]
fn placement_keeps_a_row_decodable_for_the_losses_that_it_states() {
    for shape in shapes() {
        let losses = shape.losses();
        // Disks that a loss of these slabs takes at least: a disk has one slab of what is kept apart.
        let disks_of = |lost: SlabSet| match shape.placement().apart {
            Apart::Row => lost.0.count_ones() as usize,
            Apart::Column => {
                let of_column =
                    |column| SlabSet(lost.0 & SlabSet::of_column(&shape, column).0).0.count_ones();
                (0..shape.columns()).map(of_column).max().unwrap_or(0) as usize
            }
        };
        let mut is_tight = false;
        for lost in sets_of(&shape) {
            let is_decodable = shape.decodable(lost);
            assert!(disks_of(lost) > losses || is_decodable, "{shape:?} does not survive {lost:?}");
            is_tight |= disks_of(lost) == losses + 1 && !is_decodable;
        }
        assert!(is_tight, "{shape:?} survives more than {losses} disks");
    }
}

/// Scenario: slabs are lost, in every combination. The number of further losses is the largest at which every further set is decodable.
#[test]
fn losses_left_are_those_that_every_further_set_survives() {
    for shape in shapes().into_iter().filter(|shape| slabs_of(shape) <= 9) {
        for lost in sets_of(&shape) {
            let left_of = |column| SlabSet::of_column(&shape, column).without(lost).0.count_ones() as usize;
            let further = sets_of(&shape).filter(|more| more.without(lost) == *more);
            let is_fatal = |more: &SlabSet| !shape.decodable(SlabSet(more.0 | lost.0));
            let fewest = further.filter(is_fatal).map(|more| more.0.count_ones() as usize).min().unwrap();
            assert_eq!(shape.losses_left(left_of), fewest.saturating_sub(1), "{shape:?} without {lost:?}");
        }
    }
}

/// Scenario: as many slabs are lost as a row may lose. A slab with each table is left, and the tables of a slab have numbers of their own.
#[test]
fn tables_outlast_the_losses_of_a_row() {
    for shape in shapes() {
        let mut tables = BTreeSet::new();
        for column in 0..shape.columns() {
            let holders: BTreeMap<usize, usize> = shape.table_holders(column).collect();
            assert_eq!(holders.get(&column), Some(&0), "{shape:?}: a slab has its own table first");
            assert!(holders.len() * shape.copies() > shape.losses(), "{shape:?}");
            assert!(
                holders.iter().all(|place| tables.insert((*place.0, *place.1))),
                "{shape:?}: {holders:?}"
            );
        }
    }
}

/// Scenario: writes meet any facts. A plan never overwrites flushed content in place where that is not allowed, never writes below
/// cached content, and sends what depends on other blocks to a free slot or to the write cache.
#[test]
fn plans_write_over_nothing_that_is_needed() {
    let classes = [WriteClass::Fresh, WriteClass::Rewrite, WriteClass::Overwrite];
    for shape in shapes() {
        for (class, bits) in classes.into_iter().flat_map(|class| (0..8).map(move |bits| (class, bits))) {
            let [is_cached, is_strict, has_free_slot] = [1, 2, 4].map(|bit| bits & bit != 0);
            let now = WriteFacts { class, is_cached, is_strict, has_free_slot };
            let plan = shape.plan_write(&now);
            let is_needed = is_cached || is_strict && class == WriteClass::Overwrite;
            match shape.unit() {
                Unit::Block => assert_eq!(plan == WritePlan::Cached, is_needed, "{shape:?}: {now:?}"),
                Unit::Stripe => {
                    let is_whole = has_free_slot && !is_cached;
                    assert_eq!(plan == WritePlan::WholeStripes, is_whole, "{shape:?}: {now:?}");
                    assert_ne!(plan, WritePlan::InPlace, "{shape:?}: {now:?}");
                }
            }
            let is_in_place = shape.overwrites() == Overwrites::InPlace;
            assert!(is_in_place || plan != WritePlan::InPlace, "{shape:?}: {now:?}");
        }
    }
}

/// Scenario: records name shapes that no layout has. Each is refused with the number that is wrong.
#[test]
fn shapes_that_no_layout_has_are_refused() {
    let bytes = |blocks: u64| Bytes(blocks * BLOCK_BYTES);
    let wide = Shape::new(bytes(512), bytes(2), 200, 0).unwrap();
    let error = RowShape::new(&Simple, 1, wide).check().unwrap_err().to_string();
    assert!(error.contains("simple has 200 columns; this layout has 1 to 14"), "{error}");
    assert!(RowShape::new(&Simple, 2, Shape::new(bytes(64), bytes(2), 2, 0).unwrap()).check().is_err());
    assert!(RowShape::new(&Parity, 1, Shape::new(bytes(64), bytes(2), 2, 0).unwrap()).check().is_err());
    assert!(RowShape::new(&Span, 1, Shape::new(bytes(64), bytes(2), 2, 0).unwrap()).check().is_err());
    assert!(RowShape::new(&Parity, 1, Shape::new(bytes(64), bytes(2), 13, 2).unwrap()).check().is_err());
}

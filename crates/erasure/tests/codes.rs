//! The codes against their definition, with every kernel that this machine can run.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)]

mod slow;

use dolmen_erasure::{Change, Code, DATA_COUNT_MAX, Kernel, PARITY_COUNT_MAX, Shape};
use proptest::prelude::*;

/// All kernels that can run here.
fn kernels() -> Vec<Kernel> {
    Kernel::ALL.into_iter().filter(|kernel| kernel.is_available()).collect()
}

fn code(data_count: usize, parity_count: usize, kernel: Kernel) -> Code {
    Code::with_kernel(Shape { data_count, parity_count }, kernel).unwrap()
}

/// Bytes that look random and are the same each time.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..bytes).map(|_| next()).collect()
}

fn stripes_data(data_count: usize, bytes: usize, seed: u64) -> Vec<Vec<u8>> {
    (0..data_count).map(|column| noise(seed * 64 + column as u64, bytes)).collect()
}

fn given(blocks: &[Vec<u8>]) -> Vec<Option<&[u8]>> {
    blocks.iter().map(|block| Some(block.as_slice())).collect()
}

/// Room for blocks, full of what must not shine through.
fn room(count: usize, bytes: usize) -> Vec<Vec<u8>> {
    vec![vec![0xa5; bytes]; count]
}

fn encoded(code: &Code, data: &[Option<&[u8]>], bytes: usize) -> Vec<Vec<u8>> {
    let mut parity = room(code.shape().parity_count, bytes);
    let mut places: Vec<_> = parity.iter_mut().map(|block| Some(block.as_mut_slice())).collect();
    code.encode(data, &mut places).unwrap();
    parity
}

/// Computes `wanted` of a stripe from `from`, and expects what the stripe has.
fn expect_restored(code: &Code, stripe: &[Vec<u8>], from: &[usize], wanted: &[usize]) {
    let plan = code.plan(from, wanted).unwrap();
    assert_eq!(plan.targets(), wanted);
    assert_eq!(plan.sources(), &from[..code.shape().data_count]);
    let sources: Vec<_> = plan.sources().iter().map(|column| Some(stripe[*column].as_slice())).collect();
    let mut restored = room(wanted.len(), stripe[0].len());
    let mut targets: Vec<_> = restored.iter_mut().map(Vec::as_mut_slice).collect();
    plan.reconstruct(&sources, &mut targets).unwrap();
    for (column, block) in wanted.iter().zip(&restored) {
        assert_eq!(block, &stripe[*column], "column {column} of {:?} from {from:?}", code.shape());
    }
}

/// The columns of a stripe, split by whether their bit is set.
fn split(columns: usize, bits: usize) -> (Vec<usize>, Vec<usize>) {
    (0..columns).partition(|column| bits >> column & 1 == 1)
}

#[test]
fn kernels_that_were_not_compared_here_are_named() {
    for kernel in Kernel::ALL.into_iter().filter(|kernel| !kernel.is_available()) {
        println!("skipped: kernel {kernel}: this processor cannot run it");
    }
    assert!(kernels().starts_with(&[Kernel::Scalar, Kernel::Portable]));
}

#[test]
fn p_and_q_are_those_of_linux_md() {
    // By hand: Q = 1 × 0x01 + 2 × 0x02 + 4 × 0x80, and 4 × 0x80 = 0x200 = 2 × 0x11d + 0x3a.
    for kernel in kernels() {
        let data = [vec![0x01], vec![0x02], vec![0x80]];
        assert_eq!(encoded(&code(3, 2, kernel), &given(&data), 1), [[0x83], [0x01 ^ 0x04 ^ 0x3a]]);
        // Each data column alone, 0x01 in every byte: Q names the power of two, and reduces from the ninth on.
        let ones = [1; 300];
        for (column, expected) in
            [1, 2, 4, 8, 16, 32, 64, 128, 0x1d, 0x3a, 0x74, 0xe8].into_iter().enumerate()
        {
            let mut data = [None; 12];
            data[column] = Some(ones.as_slice());
            assert_eq!(encoded(&code(12, 2, kernel), &data, 300), [[1; 300], [expected; 300]], "{kernel}");
        }
    }
}

#[test]
fn factors_are_those_of_the_formula_in_codes_of_every_shape() {
    for data_count in 1..=DATA_COUNT_MAX {
        for parity_count in 1..=PARITY_COUNT_MAX {
            let code = code(data_count, parity_count, Kernel::Scalar);
            for row in 0..parity_count {
                let expected: Vec<u8> = (0..data_count).map(|column| slow::factor(row, column)).collect();
                assert_eq!(code.factors(row).unwrap(), expected);
            }
            assert_eq!(code.factors(parity_count), None);
        }
    }
}

#[test]
fn each_kernel_multiplies_with_all_factors_and_bytes_as_the_definition_does() {
    // Every factor comes up in plans: all bytes of one column, computed from a column that is a multiple of it.
    let bytes: Vec<u8> = (0..=255).collect();
    for kernel in kernels() {
        let mut met = [false; 256];
        for column in 0..DATA_COUNT_MAX {
            for row in 0..PARITY_COUNT_MAX {
                let code = code(DATA_COUNT_MAX, PARITY_COUNT_MAX, kernel);
                let factor = slow::factor(row, column);
                let mut data = [None; DATA_COUNT_MAX];
                data[column] = Some(bytes.as_slice());
                let parity = encoded(&code, &data, 256);
                let product: Vec<u8> = bytes.iter().map(|byte| slow::times(factor, *byte)).collect();
                assert_eq!(parity[row], product, "{kernel}: times {factor}");
                // Back again, which is multiplication with the inverse.
                let mut from: Vec<usize> = (0..DATA_COUNT_MAX).filter(|other| *other != column).collect();
                from.push(DATA_COUNT_MAX + row);
                let plan = code.plan(&from, &[column]).unwrap();
                let mut sources = [None; DATA_COUNT_MAX];
                sources[DATA_COUNT_MAX - 1] = Some(parity[row].as_slice());
                let mut restored = vec![0; 256];
                plan.reconstruct(&sources, &mut [&mut restored]).unwrap();
                assert_eq!(restored, bytes, "{kernel}: divided by {factor}");
                met[usize::from(factor)] = true;
                met[usize::from(slow::inverse(factor))] = true;
            }
        }
        let met = met.iter().filter(|met| **met).count();
        assert!(met > 180, "only {met} factors were met");
    }
}

#[test]
fn every_loss_in_small_codes_is_restored() {
    // All shapes up to 5 + 4, all sets of lost columns, all the rest given in ascending and descending order.
    for kernel in kernels() {
        for (data_count, parity_count) in (1..=5).flat_map(|k| (1..=4).map(move |m| (k, m))) {
            let code = code(data_count, parity_count, kernel);
            let stripe = slow::stripe(&stripes_data(data_count, 131, 7), parity_count);
            assert_eq!(encoded(&code, &given(&stripe[..data_count]), 131), stripe[data_count..]);
            let columns = data_count + parity_count;
            for bits in 0..1 << columns {
                let (mut from, lost) = split(columns, bits);
                if from.len() < data_count {
                    assert!(code.plan(&from, &lost).is_err());
                    continue;
                }
                expect_restored(&code, &stripe, &from, &lost);
                from.reverse();
                expect_restored(&code, &stripe, &from, &lost);
            }
        }
    }
}

#[test]
fn every_loss_of_two_in_the_widest_dual_parity_is_restored() {
    for kernel in kernels() {
        for (data_count, parity_count) in [(12, 2), (8, 1), (DATA_COUNT_MAX, 2)] {
            let code = code(data_count, parity_count, kernel);
            let stripe = slow::stripe(&stripes_data(data_count, 67, 9), parity_count);
            let columns = data_count + parity_count;
            for (a, b) in (0..columns).flat_map(|a| (a..columns).map(move |b| (a, b))) {
                let from: Vec<usize> = (0..columns).filter(|column| *column != a && *column != b).collect();
                let lost = if a == b { vec![a] } else { vec![a, b] };
                if lost.len() <= parity_count {
                    expect_restored(&code, &stripe, &from, &lost);
                }
            }
        }
    }
}

#[test]
fn any_part_of_what_is_lost_is_computed_alone() {
    let stripe = slow::stripe(&stripes_data(6, 200, 3), 3);
    for kernel in kernels() {
        let code = code(6, 3, kernel);
        for wanted in [&[1][..], &[4], &[7], &[7, 1], &[4, 7], &[4, 1, 7], &[]] {
            expect_restored(&code, &stripe, &[0, 2, 3, 5, 6, 8], wanted);
        }
    }
}

#[test]
fn a_stripe_of_which_nothing_was_written_is_zeros() {
    for kernel in kernels() {
        let code = code(4, 3, kernel);
        assert_eq!(encoded(&code, &[None; 4], 500), vec![vec![0; 500]; 3]);
        let plan = code.plan(&[0, 2, 4, 6], &[1, 3]).unwrap();
        let (mut a, mut b) = (vec![9; 500], vec![9; 500]);
        plan.reconstruct(&[None; 4], &mut [&mut a, &mut b]).unwrap();
        assert_eq!([a, b], [vec![0; 500], vec![0; 500]]);
    }
}

/// A stripe of any shape: shape, length, places at which the blocks begin, and which were never written.
#[derive(Debug, Clone)]
struct Drawn {
    data_count: usize,
    parity_count: usize,
    bytes: usize,
    skips: Vec<usize>,
    never: Vec<bool>,
    seed: u64,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let bytes = prop_oneof![1_usize..80, 1_usize..700, Just(4096)];
    let skips = proptest::collection::vec(0_usize..64, DATA_COUNT_MAX + PARITY_COUNT_MAX);
    let never = proptest::collection::vec(proptest::bool::weighted(0.2), DATA_COUNT_MAX);
    (1..=DATA_COUNT_MAX, 1..=PARITY_COUNT_MAX, bytes, skips, never, any::<u64>()).prop_map(
        |(data_count, parity_count, bytes, skips, never, seed)| Drawn {
            data_count,
            parity_count,
            bytes,
            skips,
            never,
            seed,
        },
    )
}

impl Drawn {
    /// The data as it counts, zeros included.
    fn data(&self) -> Vec<Vec<u8>> {
        let mut data = stripes_data(self.data_count, self.bytes, self.seed % 1000);
        for (block, _) in data.iter_mut().zip(&self.never).filter(|(_, never)| **never) {
            block.fill(0);
        }
        data
    }

    /// Blocks in memory that begin at odd places.
    fn placed(&self, blocks: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let place = |(block, skip): (&Vec<u8>, &usize)| [&vec![0xee; *skip], block.as_slice()].concat();
        blocks.iter().zip(&self.skips).map(place).collect()
    }

    fn given<'a>(&self, placed: &'a [Vec<u8>]) -> Vec<Option<&'a [u8]>> {
        let blocks = placed.iter().zip(&self.skips).map(|(block, skip)| &block[*skip..]);
        let never = self.never.iter().chain(std::iter::repeat(&false));
        blocks
            .enumerate()
            .zip(never)
            .map(|((at, block), never)| (at >= self.data_count || !never).then_some(block))
            .collect()
    }
}

proptest! {
    #[test]
    fn all_kernels_encode_as_the_definition_at_any_length_and_place(drawn in drawn()) {
        let stripe = slow::stripe(&drawn.data(), drawn.parity_count);
        let placed = drawn.placed(&stripe[..drawn.data_count]);
        for kernel in kernels() {
            let code = code(drawn.data_count, drawn.parity_count, kernel);
            // Parity at odd places, too, with a byte on each side that is nobody's.
            let mut parity: Vec<Vec<u8>> =
                drawn.skips[DATA_COUNT_MAX..].iter().take(drawn.parity_count).map(|skip| vec![0xa5; drawn.bytes + skip + 2]).collect();
            let mut places: Vec<_> = parity
                .iter_mut()
                .zip(&drawn.skips[DATA_COUNT_MAX..])
                .map(|(block, skip)| Some(&mut block[1 + skip..=skip + drawn.bytes]))
                .collect();
            code.encode(&drawn.given(&placed), &mut places).unwrap();
            for ((block, skip), expected) in parity.iter().zip(&drawn.skips[DATA_COUNT_MAX..]).zip(&stripe[drawn.data_count..]) {
                prop_assert_eq!(&block[1 + skip..=skip + drawn.bytes], expected.as_slice(), "{}", kernel);
                prop_assert!(block[..=*skip].iter().all(|byte| *byte == 0xa5) && block.last() == Some(&0xa5));
            }
        }
    }

    #[test]
    fn all_kernels_restore_what_was_lost_as_elimination_does(drawn in drawn(), draw in any::<u64>()) {
        let stripe = slow::stripe(&drawn.data(), drawn.parity_count);
        let columns = drawn.data_count + drawn.parity_count;
        // Any order of columns: the last ones are lost.
        let mut order: Vec<usize> = (0..columns).collect();
        for at in (1..columns).rev() {
            let step = noise(draw.wrapping_add(at as u64), 9).iter().fold(0, |sum, byte| sum * 7 + usize::from(*byte));
            order.swap(at, step % (at + 1));
        }
        let (from, lost) = order.split_at(drawn.data_count);
        let known: Vec<_> = from.iter().map(|column| (*column, stripe[*column].clone())).collect();
        prop_assert_eq!(slow::solve(drawn.data_count, &known), &stripe[..drawn.data_count]);
        for kernel in kernels() {
            expect_restored(&code(drawn.data_count, drawn.parity_count, kernel), &stripe, from, lost);
        }
    }

    #[test]
    fn parity_updated_by_a_change_equals_a_full_encoding(drawn in drawn(), turn in 0_usize..32, count in 1_usize..=32) {
        let before = drawn.data();
        let mut after = before.clone();
        let changed: Vec<usize> = (0..count.min(drawn.data_count)).map(|at| (at * 5 + turn) % drawn.data_count).collect();
        let changed: std::collections::BTreeSet<usize> = changed.into_iter().collect();
        for column in &changed {
            // Of every other case, each third one is discarded.
            let bytes = if turn % 2 == 0 && (column + turn) % 3 == 0 { vec![0; drawn.bytes] } else { noise(drawn.seed ^ 77, drawn.bytes) };
            after[*column] = bytes;
        }
        let was = slow::stripe(&before, drawn.parity_count);
        let expected = slow::stripe(&after, drawn.parity_count);
        let placed = drawn.placed(&before);
        let old = drawn.given(&placed);
        for kernel in kernels() {
            let changes: Vec<_> = changed
                .iter()
                .map(|column| Change {
                    column: *column,
                    old: old[*column],
                    new: after[*column].iter().any(|byte| *byte != 0).then_some(after[*column].as_slice()),
                })
                .collect();
            let mut parity = was[drawn.data_count..].to_vec();
            let mut places: Vec<_> = parity.iter_mut().map(|block| Some(block.as_mut_slice())).collect();
            code(drawn.data_count, drawn.parity_count, kernel).update(&changes, &mut places).unwrap();
            prop_assert_eq!(&parity, &expected[drawn.data_count..], "{}", kernel);
        }
    }

    #[test]
    fn parity_that_is_not_here_is_left_out(drawn in drawn(), here in any::<u8>()) {
        let data = drawn.data();
        let stripe = slow::stripe(&data, drawn.parity_count);
        let is_here = |row: usize| here >> row & 1 == 1;
        for kernel in kernels() {
            let code = code(drawn.data_count, drawn.parity_count, kernel);
            let mut parity = room(drawn.parity_count, drawn.bytes);
            let mut places: Vec<_> = parity.iter_mut().enumerate().map(|(row, block)| is_here(row).then_some(block.as_mut_slice())).collect();
            code.encode(&given(&data), &mut places).unwrap();
            // Taking the first data column out of it again leaves parity of the others.
            code.update(&[Change { column: 0, old: Some(&data[0]), new: None }], &mut places).unwrap();
            code.update(&[Change { column: 0, old: None, new: Some(&data[0]) }], &mut places).unwrap();
            for (row, block) in parity.iter().enumerate() {
                let untouched = vec![0xa5; drawn.bytes];
                prop_assert_eq!(block, if is_here(row) { &stripe[drawn.data_count + row] } else { &untouched });
            }
        }
    }
}

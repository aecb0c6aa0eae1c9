//! Eight bytes at a time in plain Rust, on any processor; compilers turn it into the vectors that every processor of a
//! kind has.
//!
//! A product is a sum of doublings: with the bits f_7 to f_0 of its factor, f × d = ((f_7 d × 2 + f_6 d) × 2 + …) + f_0 d.
//! For a sum of products the doublings are shared: from the highest bit to the lowest, the sum is doubled and all
//! sources whose factor has that bit are added, which takes seven doublings for however many sources. For Q of up to eight
//! data columns, whose factors are the powers of two, that is Horner's rule, as Linux md computes it (Anvin).

use super::{Source, Start};
use crate::field::REDUCTION;

/// Bytes of each block that are worked on before the next ones: few enough to stay in registers.
const PIECE_BYTES: usize = 128;
const WORDS: usize = PIECE_BYTES / 8;
const LOWEST_BITS: u64 = 0x0101_0101_0101_0101;

/// Sums over whole pieces, and says how many bytes these are.
pub(super) fn add_up(sources: &[Source<'_>], targets: &mut [&mut [u8]], start: Start) -> usize {
    let count = targets.first().map_or(0, |target| target.len() / PIECE_BYTES);
    for place in 0..count {
        // One piece for all targets before the next piece, because its sources are in the nearest cache then.
        for (number, target) in targets.iter_mut().enumerate() {
            let Some(piece) = target.as_chunks_mut::<PIECE_BYTES>().0.get_mut(place) else { break };
            let sum = sum_of_piece(sources, number, place);
            for (word, sum) in piece.as_chunks_mut::<8>().0.iter_mut().zip(sum) {
                let kept = if start == Start::Kept { u64::from_ne_bytes(*word) } else { 0 };
                *word = (kept ^ sum).to_ne_bytes();
            }
        }
    }
    count * PIECE_BYTES
}

fn sum_of_piece(sources: &[Source<'_>], number: usize, place: usize) -> [u64; WORDS] {
    let mut sum = [0; WORDS];
    let factor = |source: &Source<'_>| source.factors.get(number).copied().unwrap_or(0);
    let all = sources.iter().fold(0, |all, source| all | factor(source));
    // Where no factor has a high bit, there is nothing yet to be doubled.
    for bit in (0..8 - all.leading_zeros()).rev() {
        double(&mut sum);
        for source in sources.iter().filter(|source| factor(source) >> bit & 1 == 1) {
            let (pieces, _) = source.bytes.as_chunks::<PIECE_BYTES>();
            let Some(piece) = pieces.get(place) else { unreachable!("blocks differ in length") };
            for (sum, word) in sum.iter_mut().zip(piece.as_chunks::<8>().0) {
                *sum ^= u64::from_ne_bytes(*word);
            }
        }
    }
    sum
}

/// Doubles each byte of each word.
fn double(words: &mut [u64; WORDS]) {
    for word in words {
        let high = *word & (LOWEST_BITS << 7);
        // 0x7f in each byte that overflows, which keeps all bits of the reduction; no byte borrows from another.
        let overflown = high - (high >> 7);
        *word = ((*word ^ high) << 1) ^ (overflown & (LOWEST_BITS * REDUCTION as u64));
    }
}

//! Kernels for x86-64.
//!
//! Multiplication with a factor is linear over the bits of a byte, and these processors have two ways to do that to many
//! bytes at once: to look both halves of each up in a table of sixteen (`pshufb`; J. S. Plank, K. M. Greenan, E. L.
//! Miller, *Screaming Fast Galois Field Arithmetic Using Intel SIMD Instructions*, FAST 2013; Anvin), or to multiply it
//! with a bit matrix (`gf2p8affineqb`). All kernels are one loop: some vectors of each source are loaded, multiplied and
//! added to sums that stay in registers; the sums are then stored. So data is read once and parity written once.
//!
//! A piece of each block, the bytes that are worked on before the next ones, has 32 to 256 bytes: as many as registers
//! allow, but no more. With 512 of each source the speed from memory was found to halve, because the processor does not
//! fetch ahead of streams that it leaves and takes up again so late.

use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_and_si128, _mm_loadu_si128, _mm_set1_epi8, _mm_setzero_si128,
    _mm_shuffle_epi8, _mm_srli_epi64, _mm_storeu_si128, _mm_xor_si128, _mm256_and_si256,
    _mm256_broadcastsi128_si256, _mm256_gf2p8affine_epi64_epi8, _mm256_loadu_si256, _mm256_set1_epi8,
    _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256,
    _mm256_xor_si256, _mm512_and_si512, _mm512_broadcast_i32x4, _mm512_gf2p8affine_epi64_epi8,
    _mm512_loadu_si512, _mm512_set1_epi8, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_shuffle_epi8,
    _mm512_srli_epi64, _mm512_storeu_si512, _mm512_xor_si512,
};

use super::{Source, Start};
use crate::field::{BIT_MATRICES, NIBBLES};

/// The half of each byte that is looked up.
const LOW_HALF: i8 = 0x0f;

/// The loop, for one kind of vector and of multiplication. A macro, because generic functions cannot be told which
/// instructions they may use.
macro_rules! kernel {
    (
        $name:ident, $features:literal, $vector:ident of $bytes:literal,
        $zero:ident, $add:ident, $load:ident, $store:ident, $factor:ident, $multiply:ident,
        pieces of $narrow:literal vectors for one sum or two and $wide:literal for more
    ) => {
        /// Sums over whole pieces, and says how many bytes these are.
        #[target_feature(enable = $features)]
        pub(super) fn $name(sources: &[Source<'_>], targets: &mut [&mut [u8]], start: Start) -> usize {
            /// The sums of so many targets, with pieces of so many vectors; of a plain one, the first target is the sum
            /// of the sources as they are.
            #[target_feature(enable = $features)]
            fn sums<const TARGETS: usize, const VECTORS: usize, const PIECE: usize, const PLAIN: bool>(
                sources: &[Source<'_>],
                targets: &mut [&mut [u8]; TARGETS],
                start: Start,
            ) -> usize {
                const { assert!(PIECE == VECTORS * $bytes) };
                let count = targets.first().map_or(0, |target| target.len() / PIECE);
                for place in 0..count {
                    let mut sums = [[$zero(); VECTORS]; TARGETS];
                    if start == Start::Kept {
                        for (sum, target) in sums.iter_mut().zip(targets.iter()) {
                            let piece = piece::<PIECE>(target, place);
                            for (sum, bytes) in sum.iter_mut().zip(piece.as_chunks().0) {
                                *sum = $load(bytes);
                            }
                        }
                    }
                    for source in sources {
                        let mut vectors = [$zero(); VECTORS];
                        let piece = piece::<PIECE>(source.bytes, place);
                        for (vector, bytes) in vectors.iter_mut().zip(piece.as_chunks().0) {
                            *vector = $load(bytes);
                        }
                        for ((number, sum), factor) in sums.iter_mut().enumerate().zip(source.factors) {
                            if PLAIN && number == 0 {
                                for (sum, vector) in sum.iter_mut().zip(&vectors) {
                                    *sum = $add(*sum, *vector);
                                }
                            } else {
                                let factor = $factor(factor);
                                for (sum, vector) in sum.iter_mut().zip(&vectors) {
                                    *sum = $add(*sum, $multiply(*vector, factor));
                                }
                            }
                        }
                    }
                    for (sum, target) in sums.iter().zip(targets.iter_mut()) {
                        let piece = piece_mut::<PIECE>(target, place);
                        for (sum, bytes) in sum.iter().zip(piece.as_chunks_mut().0) {
                            $store(bytes, *sum);
                        }
                    }
                }
                count * PIECE
            }

            const NARROW: usize = $narrow * $bytes;
            const WIDE: usize = $wide * $bytes;
            let plain = sources.iter().all(|source| source.factors.first() == Some(&1));
            match (targets, plain) {
                ([a], true) => sums::<1, $narrow, NARROW, true>(sources, &mut [a], start),
                ([a], false) => sums::<1, $narrow, NARROW, false>(sources, &mut [a], start),
                ([a, b], true) => sums::<2, $narrow, NARROW, true>(sources, &mut [a, b], start),
                ([a, b], false) => sums::<2, $narrow, NARROW, false>(sources, &mut [a, b], start),
                ([a, b, c], true) => sums::<3, $wide, WIDE, true>(sources, &mut [a, b, c], start),
                ([a, b, c], false) => sums::<3, $wide, WIDE, false>(sources, &mut [a, b, c], start),
                ([a, b, c, d], true) => sums::<4, $wide, WIDE, true>(sources, &mut [a, b, c, d], start),
                ([a, b, c, d], false) => sums::<4, $wide, WIDE, false>(sources, &mut [a, b, c, d], start),
                _ => 0,
            }
        }
    };
}

kernel!(
    ssse3, "ssse3", __m128i of 16,
    _mm_setzero_si128, _mm_xor_si128, load_128, store_128, halves_128, look_up_128,
    pieces of 4 vectors for one sum or two and 2 for more
);
kernel!(
    avx2, "avx2", __m256i of 32,
    _mm256_setzero_si256, _mm256_xor_si256, load_256, store_256, halves_256, look_up_256,
    pieces of 4 vectors for one sum or two and 2 for more
);
kernel!(
    avx512, "avx512f,avx512bw", __m512i of 64,
    _mm512_setzero_si512, _mm512_xor_si512, load_512, store_512, halves_512, look_up_512,
    pieces of 4 vectors for one sum or two and 2 for more
);
kernel!(
    avx2_gfni, "avx2,gfni", __m256i of 32,
    _mm256_setzero_si256, _mm256_xor_si256, load_256, store_256, matrix_256, transform_256,
    pieces of 4 vectors for one sum or two and 2 for more
);
kernel!(
    avx512_gfni, "avx512f,avx512bw,gfni", __m512i of 64,
    _mm512_setzero_si512, _mm512_xor_si512, load_512, store_512, matrix_512, transform_512,
    pieces of 4 vectors for one sum or two and 2 for more
);

#[inline]
fn piece<const BYTES: usize>(block: &[u8], place: usize) -> &[u8; BYTES] {
    let Some(piece) = block.as_chunks().0.get(place) else { unreachable!("blocks differ in length") };
    piece
}

#[inline]
fn piece_mut<const BYTES: usize>(block: &mut [u8], place: usize) -> &mut [u8; BYTES] {
    let Some(piece) = block.as_chunks_mut().0.get_mut(place) else { unreachable!("blocks differ in length") };
    piece
}

/// The two tables of a factor.
#[inline]
fn halves(factor: u8) -> &'static [[u8; 16]; 2] {
    const NONE: [[u8; 16]; 2] = [[0; 16]; 2];
    NIBBLES.get(usize::from(factor)).unwrap_or(&NONE)
}

/// The bit matrix of a factor.
#[inline]
fn matrix(factor: u8) -> i64 {
    BIT_MATRICES.get(usize::from(factor)).map_or(0, |matrix| matrix.cast_signed())
}

#[inline]
#[target_feature(enable = "ssse3")]
fn load_128(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: sixteen bytes may be read there, and the instruction asks for no alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "ssse3")]
fn store_128(bytes: &mut [u8; 16], vector: __m128i) {
    // SAFETY: sixteen bytes may be written there, and the instruction asks for no alignment.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), vector) }
}

#[inline]
#[target_feature(enable = "ssse3")]
fn halves_128(factor: u8) -> [__m128i; 2] {
    let [low, high] = halves(factor);
    [load_128(low), load_128(high)]
}

#[inline]
#[target_feature(enable = "ssse3")]
fn look_up_128(vector: __m128i, [low, high]: [__m128i; 2]) -> __m128i {
    let mask = _mm_set1_epi8(LOW_HALF);
    let from_low = _mm_shuffle_epi8(low, _mm_and_si128(vector, mask));
    let from_high = _mm_shuffle_epi8(high, _mm_and_si128(_mm_srli_epi64::<4>(vector), mask));
    _mm_xor_si128(from_low, from_high)
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_256(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: 32 bytes may be read there, and the instruction asks for no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_256(bytes: &mut [u8; 32], vector: __m256i) {
    // SAFETY: 32 bytes may be written there, and the instruction asks for no alignment.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), vector) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn halves_256(factor: u8) -> [__m256i; 2] {
    let [low, high] = halves_128(factor);
    [_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high)]
}

#[inline]
#[target_feature(enable = "avx2")]
fn look_up_256(vector: __m256i, [low, high]: [__m256i; 2]) -> __m256i {
    let mask = _mm256_set1_epi8(LOW_HALF);
    let from_low = _mm256_shuffle_epi8(low, _mm256_and_si256(vector, mask));
    let from_high = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi64::<4>(vector), mask));
    _mm256_xor_si256(from_low, from_high)
}

#[inline]
#[target_feature(enable = "avx2,gfni")]
fn matrix_256(factor: u8) -> __m256i {
    _mm256_set1_epi64x(matrix(factor))
}

#[inline]
#[target_feature(enable = "avx2,gfni")]
fn transform_256(vector: __m256i, matrix: __m256i) -> __m256i {
    _mm256_gf2p8affine_epi64_epi8::<0>(vector, matrix)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load_512(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: 64 bytes may be read there, and the instruction asks for no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn store_512(bytes: &mut [u8; 64], vector: __m512i) {
    // SAFETY: 64 bytes may be written there, and the instruction asks for no alignment.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), vector) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn halves_512(factor: u8) -> [__m512i; 2] {
    let [low, high] = halves_128(factor);
    [_mm512_broadcast_i32x4(low), _mm512_broadcast_i32x4(high)]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn look_up_512(vector: __m512i, [low, high]: [__m512i; 2]) -> __m512i {
    let mask = _mm512_set1_epi8(LOW_HALF);
    let from_low = _mm512_shuffle_epi8(low, _mm512_and_si512(vector, mask));
    let from_high = _mm512_shuffle_epi8(high, _mm512_and_si512(_mm512_srli_epi64::<4>(vector), mask));
    _mm512_xor_si512(from_low, from_high)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn matrix_512(factor: u8) -> __m512i {
    _mm512_set1_epi64(matrix(factor))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn transform_512(vector: __m512i, matrix: __m512i) -> __m512i {
    _mm512_gf2p8affine_epi64_epi8::<0>(vector, matrix)
}

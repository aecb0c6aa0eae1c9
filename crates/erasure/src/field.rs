//! The field GF(2^8): bytes that are added by XOR and multiplied as polynomials over GF(2), modulo
//! x^8 + x^4 + x^3 + x^2 + 1. Its generator 2 has the order 255, so each byte but zero is a power of it.
//!
//! All tables are built while compiling. They say one thing in four ways, because the kernels look it up in four ways;
//! tests compare each with multiplication bit by bit.
#![allow(
    clippy::indexing_slicing,
    reason = "tables are filled while compiling; an index outside would not compile"
)]

/// The field's polynomial without its highest term: what a byte that is doubled beyond x^7 is reduced by.
pub(crate) const REDUCTION: u8 = 0x1d;
/// Powers of the generator before they come round.
const ORDER: usize = 255;

/// `EXP[e]` is 2^e. Twice round, so that the sum of two logarithms needs no reduction.
static EXP: [u8; 2 * ORDER] = powers();
/// `LOG[x]` is e with 2^e = x; that of zero stands for nothing.
static LOG: [u8; 256] = logarithms();
/// `PRODUCTS[a][b]` is a × b.
pub(crate) static PRODUCTS: [[u8; 256]; 256] = products();
/// For each factor, its products with 0 to 15, and with 16 times that: the two halves of a byte are looked up apart.
#[cfg(any(target_arch = "x86_64", test))]
pub(crate) static NIBBLES: [[[u8; 16]; 2]; 256] = nibbles();
/// For each factor, multiplication with it as the bit matrix that `gf2p8affineqb` takes: byte 7 - i holds the bits of
/// the argument whose sum is bit i of the product. The instruction's own multiplication is of no use here, since it has
/// another polynomial.
#[cfg(any(target_arch = "x86_64", test))]
pub(crate) static BIT_MATRICES: [u64; 256] = bit_matrices();

/// Twice `x`.
const fn double(x: u8) -> u8 {
    (x << 1) ^ if x & 0x80 == 0 { 0 } else { REDUCTION }
}

/// `a` × `b`.
pub(crate) const fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 { 0 } else { EXP[LOG[a as usize] as usize + LOG[b as usize] as usize] }
}

/// The number that gives 1 when multiplied with `x`; zero, which has none, for zero.
pub(crate) const fn inverse(x: u8) -> u8 {
    if x == 0 { 0 } else { EXP[ORDER - LOG[x as usize] as usize] }
}

/// 2 to the power of `exponent`.
pub(crate) const fn power(exponent: usize) -> u8 {
    EXP[exponent % ORDER]
}

const fn powers() -> [u8; 2 * ORDER] {
    let mut table = [1; 2 * ORDER];
    let mut exponent = 1;
    while exponent < table.len() {
        table[exponent] = double(table[exponent - 1]);
        exponent += 1;
    }
    table
}

const fn logarithms() -> [u8; 256] {
    let mut table = [0; 256];
    let mut exponent: u8 = 0;
    while (exponent as usize) < ORDER {
        table[EXP[exponent as usize] as usize] = exponent;
        exponent += 1;
    }
    table
}

const fn products() -> [[u8; 256]; 256] {
    let mut table = [[0; 256]; 256];
    let mut factor: u8 = 0;
    loop {
        let row = &mut table[factor as usize];
        let mut single = factor;
        let mut other = 1;
        while other < 256 {
            if other & (other - 1) == 0 {
                row[other] = single;
                single = double(single);
            } else {
                // Its lowest bit and the rest are both smaller, so their products are known.
                row[other] = row[other & (other - 1)] ^ row[other & other.wrapping_neg()];
            }
            other += 1;
        }
        if factor == u8::MAX {
            return table;
        }
        factor += 1;
    }
}

#[cfg(any(target_arch = "x86_64", test))]
const fn nibbles() -> [[[u8; 16]; 2]; 256] {
    let mut table = [[[0; 16]; 2]; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            table[factor][0][nibble] = PRODUCTS[factor][nibble];
            table[factor][1][nibble] = PRODUCTS[factor][nibble << 4];
            nibble += 1;
        }
        factor += 1;
    }
    table
}

#[cfg(any(target_arch = "x86_64", test))]
const fn bit_matrices() -> [u64; 256] {
    let mut table = [0; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut column = 0;
        while column < 8 {
            let image = PRODUCTS[factor][1 << column] as u64;
            let mut row = 0;
            while row < 8 {
                table[factor] |= ((image >> row) & 1) << (8 * (7 - row) + column);
                row += 1;
            }
            column += 1;
        }
        factor += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, bit by bit, with the polynomial written out.
    fn by_definition(a: u8, b: u8) -> u8 {
        let mut wide: u16 = 0;
        for bit in 0..8 {
            if b >> bit & 1 == 1 {
                wide ^= u16::from(a) << bit;
            }
        }
        for bit in (8..16).rev() {
            if wide >> bit & 1 == 1 {
                wide ^= 0x11d << (bit - 8);
            }
        }
        u8::try_from(wide).unwrap()
    }

    /// What `gf2p8affineqb` does with one byte, as its manual has it.
    fn affine(matrix: u64, x: u8) -> u8 {
        let rows = matrix.to_le_bytes();
        (0..8).map(|bit| u8::from((rows[7 - bit] & x).count_ones() % 2 == 1) << bit).sum()
    }

    #[test]
    fn all_tables_hold_the_products_of_the_definition() {
        for a in 0..=255 {
            for b in 0..=255 {
                let expected = by_definition(a, b);
                let [low, high] = NIBBLES[usize::from(a)];
                assert_eq!(multiply(a, b), expected);
                assert_eq!(PRODUCTS[usize::from(a)][usize::from(b)], expected);
                assert_eq!(low[usize::from(b & 15)] ^ high[usize::from(b >> 4)], expected);
                assert_eq!(affine(BIT_MATRICES[usize::from(a)], b), expected, "{a} times {b}");
            }
        }
    }

    #[test]
    fn every_number_but_zero_has_an_inverse_and_is_one_power_of_two() {
        let mut seen = [false; 256];
        for exponent in 0..ORDER {
            let x = power(exponent);
            assert!(x != 0 && !std::mem::replace(&mut seen[usize::from(x)], true), "2^{exponent} = {x}");
            assert_eq!(by_definition(x, inverse(x)), 1);
        }
        assert_eq!(power(8), REDUCTION);
        assert_eq!(inverse(0), 0);
    }
}

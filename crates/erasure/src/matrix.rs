//! The parity matrix: which multiple of which data column goes into which parity column; and its inversion.
//!
//! # The matrix
//! Rows are parity columns, from 0; columns are data columns, from 0; g = 2.
//!
//! - Row 0, all ones: P, the XOR.
//! - Row 1, g^j: Q, as Linux md has it.
//! - Row i from 2 on: (1 + g^(i-1)) × g^j / (1 + g^(i-1+j)).
//!
//! # Why any loss of as many columns as there are parity columns can be undone
//! Let y_j = g^-j, x_1 = 0 and x_i = g^(i-1) for i from 2 on. Then each row i from 1 on is (x_i + 1) / (x_i + y_j):
//! for i = 1 that is 1 / y_j = g^j. So below row 0 stands a Cauchy matrix, each row times a constant that is not zero.
//! With at most 32 columns and 8 rows all y_j differ, all x_i differ, and no x_i is a y_j: they are the powers 224 to 255,
//! and 1 to 6 besides zero.
//!
//! Data columns that are lost can be computed when the rows of as many parity columns, cut to those columns, are
//! invertible. Say they are not: then there are v_j, not all zero, with Σ v_j / (x_i + y_j) = 0 for all of these i, and
//! Σ v_j = 0 if row 0 is among them. Of n columns, f(X) = Σ v_j / (X + y_j) is a polynomial of degree below n, divided
//! by Π (X + y_j). It is not zero, since f has a pole wherever v_j is not zero. Without row 0 it has n roots x_i, too many.
//! With row 0 it has n - 1 roots, but its highest coefficient is Σ v_j = 0, so its degree is below n - 1: too many again.
//!
//! Cauchy matrices for this purpose: J. Blömer et al., *An XOR-Based Erasure-Resilient Coding Scheme*, ICSI TR-95-048,
//! 1995. That one with a row of ones can begin with P and Q: A. Mazzoleni, whose program SnapRAID has this matrix for
//! up to six rows. P and Q: H. P. Anvin, *The mathematics of RAID-6*, 2004 to 2011. Rows of powers alone, in the manner
//! of Q, have square parts that are not invertible from the fourth row on: of g^(3j), g^j and ones the columns 0, 1 and
//! 25, since 1 + 2 + 2^25 = 0 (J. S. Plank, Y. Ding, *Note: Correction to the 1997 tutorial on Reed-Solomon coding*,
//! 2005; J. Lacan, J. Fimes, *Systematic MDS erasure codes based on Vandermonde matrices*, 2004).
#![allow(
    clippy::indexing_slicing,
    reason = "the matrix is filled while compiling; an index outside would not compile"
)]

use crate::field::{inverse, multiply, power};
use crate::{DATA_COUNT_MAX, PARITY_COUNT_MAX};

// The x_i are the powers below the number of rows less one, the y_j those from 255 less the number of columns: apart.
const _: () = assert!(PARITY_COUNT_MAX - 2 + DATA_COUNT_MAX <= 255, "the matrix would divide by zero");

/// Factors of all data columns in one sum.
pub(crate) type Row = [u8; DATA_COUNT_MAX];

/// The parity matrix of the largest code; smaller codes are its upper left corner.
pub(crate) static PARITY: [Row; PARITY_COUNT_MAX] = parity();

const fn parity() -> [Row; PARITY_COUNT_MAX] {
    let mut matrix = [[1; DATA_COUNT_MAX]; PARITY_COUNT_MAX];
    let mut row = 1;
    while row < PARITY_COUNT_MAX {
        let x = if row == 1 { 0 } else { power(row - 1) };
        let mut column = 0;
        while column < DATA_COUNT_MAX {
            let y = inverse(power(column));
            matrix[row][column] = multiply(x ^ 1, inverse(x ^ y));
            column += 1;
        }
        row += 1;
    }
    matrix
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the square parts of a matrix by elimination, and names the first that is not invertible.
    ///
    /// The determinant of rows r_1 < … < r_n and columns c_1 < … < c_n is the product of the n numbers that elimination
    /// divides by, in that order. The last of them stands at (r_n, c_n) of what the first n - 1 steps leave (the Schur
    /// complement), so each part costs one number there, and each is met exactly once.
    fn count_parts<const COLUMNS: usize>(
        rest: &[[u8; COLUMNS]],
        from: usize,
        chosen: &mut Vec<(usize, usize)>,
    ) -> Result<u64, Vec<(usize, usize)>> {
        let mut count = 0;
        for row in 0..rest.len() {
            for column in from..COLUMNS {
                chosen.push((rest.len() - row, column));
                if rest[row][column] == 0 {
                    return Err(chosen.clone());
                }
                let scale = inverse(rest[row][column]);
                let mut below = [[0; COLUMNS]; PARITY_COUNT_MAX];
                let below = &mut below[..rest.len() - row - 1];
                for (other, new) in rest[row + 1..].iter().zip(below.iter_mut()) {
                    let factor = multiply(other[column], scale);
                    for place in column + 1..COLUMNS {
                        new[place] = other[place] ^ multiply(factor, rest[row][place]);
                    }
                }
                count += 1 + count_parts(below, column + 1, chosen)?;
                chosen.pop();
            }
        }
        Ok(count)
    }

    #[test]
    fn every_square_part_of_the_matrix_is_invertible() {
        // All of them, of every order. They are as many as there are ways to lose 8 of 40 columns, less the loss of
        // parity alone: (40 over 8) - 1.
        let transports: u64 = (1..=8).fold(1, |transports, n| transports * (40 - 8 + n) / n);
        assert_eq!(count_parts(&PARITY, 0, &mut Vec::new()), Ok(transports - 1));
    }

    #[test]
    fn control_rows_of_powers_have_parts_that_are_not_invertible() {
        // g^(i × j), which goes on from P and Q in the obvious way: the search has to object.
        let mut powers = [[0; DATA_COUNT_MAX]; PARITY_COUNT_MAX];
        for (row, factors) in powers.iter_mut().enumerate() {
            for (column, factor) in factors.iter_mut().enumerate() {
                *factor = power(row * column);
            }
        }
        assert!(count_parts(&powers[..4], 0, &mut Vec::new()).is_err());
        assert!(count_parts(&powers[..3], 0, &mut Vec::new()).is_ok());
        // Up to two rows they are the rows of the code.
        assert_eq!(powers[..2], PARITY[..2]);
    }

    #[test]
    fn the_matrix_begins_as_the_published_one() {
        // Six rows as SnapRAID and its author's proposal to Linux have them, as far as two data columns tell.
        let second: Vec<u8> = PARITY[..6].iter().map(|row| row[1]).collect();
        assert_eq!(second, [0x01, 0x02, 0xf5, 0xbb, 0x97, 0x2b]);
        assert_eq!(PARITY[2][..8], [0x01, 0xf5, 0xd2, 0xc4, 0x9a, 0x71, 0xf1, 0x7f]);
        assert_eq!(PARITY[3][..8], [0x01, 0xbb, 0xa6, 0xd7, 0xc7, 0x07, 0xce, 0x82]);
        assert_eq!(PARITY[4][..8], [0x01, 0x97, 0x7f, 0x9c, 0x7c, 0x18, 0xbd, 0xa2]);
        assert_eq!(PARITY[5][..8], [0x01, 0x2b, 0x3f, 0xcf, 0x73, 0x2c, 0xd6, 0xed]);
        assert!(PARITY.iter().all(|row| row[0] == 1));
    }
}

//! The code by its definition, slowly and without a stripe of the crate: polynomials over GF(2) multiplied and reduced bit
//! by bit, inverses found by trying, the parity matrix from its formula, reconstruction by elimination with a search for
//! the pivot over the whole stripe.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

/// `a` × `b` modulo x^8 + x^4 + x^3 + x^2 + 1.
pub(crate) fn times(a: u8, b: u8) -> u8 {
    let mut product =
        (0..8).filter(|bit| b >> bit & 1 == 1).fold(0_u16, |sum, bit| sum ^ u16::from(a) << bit);
    for degree in (8..16).rev() {
        if product >> degree & 1 == 1 {
            product ^= 0b1_0001_1101 << (degree - 8);
        }
    }
    u8::try_from(product).unwrap()
}

/// 1 / `a`.
pub(crate) fn inverse(a: u8) -> u8 {
    (1..=255).find(|b| times(a, *b) == 1).unwrap()
}

/// 2 to the power of `exponent`.
pub(crate) fn power(exponent: usize) -> u8 {
    (0..exponent).fold(1, |power, _| times(power, 2))
}

/// What data column `column` is multiplied with in parity column `row`.
pub(crate) fn factor(row: usize, column: usize) -> u8 {
    match row {
        0 => 1,
        1 => power(column),
        _ => {
            let above = times(1 ^ power(row - 1), power(column));
            times(above, inverse(1 ^ power(row - 1 + column)))
        }
    }
}

/// All columns of a stripe with this data.
pub(crate) fn stripe(data: &[Vec<u8>], parity_count: usize) -> Vec<Vec<u8>> {
    let mut stripe = data.to_vec();
    for row in 0..parity_count {
        let mut sum = vec![0; data[0].len()];
        for (column, block) in data.iter().enumerate() {
            let factor = factor(row, column);
            for (sum, byte) in sum.iter_mut().zip(block) {
                *sum ^= times(factor, *byte);
            }
        }
        stripe.push(sum);
    }
    stripe
}

/// The data of a stripe of which only the columns in `given` are there: (number, block).
pub(crate) fn solve(data_count: usize, given: &[(usize, Vec<u8>)]) -> Vec<Vec<u8>> {
    let mut equations: Vec<(Vec<u8>, Vec<u8>)> = given
        .iter()
        .map(|(column, block)| {
            let factors = (0..data_count).map(|data| match column.checked_sub(data_count) {
                Some(row) => factor(row, data),
                None => u8::from(data == *column),
            });
            (factors.collect(), block.clone())
        })
        .collect();
    for column in 0..data_count {
        let pivot = (column..equations.len()).find(|at| equations[*at].0[column] != 0).unwrap();
        equations.swap(column, pivot);
        let scale = inverse(equations[column].0[column]);
        let (factors, block) = &mut equations[column];
        factors.iter_mut().chain(block).for_each(|byte| *byte = times(scale, *byte));
        let own = equations[column].clone();
        for (at, (factors, block)) in equations.iter_mut().enumerate() {
            let multiple = factors[column];
            if at != column && multiple != 0 {
                let pairs = factors.iter_mut().zip(&own.0).chain(block.iter_mut().zip(&own.1));
                pairs.for_each(|(byte, own)| *byte ^= times(multiple, *own));
            }
        }
    }
    equations.into_iter().take(data_count).map(|(_, block)| block).collect()
}

//! One byte after the other, from the table of all products. It is the definition written down, and it takes the few bytes
//! at the end of a block that do not fill a vector.

use super::{Source, Start};
use crate::field::PRODUCTS;

/// Sums from byte `from` to the end of the blocks.
pub(super) fn add_up(sources: &[Source<'_>], targets: &mut [&mut [u8]], start: Start, from: usize) {
    for (number, target) in targets.iter_mut().enumerate() {
        let Some(target) = target.get_mut(from..).filter(|rest| !rest.is_empty()) else { continue };
        if start == Start::Zeros {
            target.fill(0);
        }
        for source in sources {
            let factor = source.factors.get(number).copied().unwrap_or(0);
            let Some(products) = PRODUCTS.get(usize::from(factor)) else { continue };
            for (sum, byte) in target.iter_mut().zip(source.bytes.get(from..).unwrap_or(&[])) {
                *sum ^= products.get(usize::from(*byte)).copied().unwrap_or(0);
            }
        }
    }
}

//! Bytes that are all zero.

/// Whether all bytes are zero: the first is, and each is the same as the one before. The comparison ends at the first
/// that differs, so data that is not zero costs next to nothing.
#[must_use]
pub fn is_zeros(bytes: &[u8]) -> bool {
    match (bytes.split_first(), bytes.split_last()) {
        (Some((first, after)), Some((_, before))) => *first == 0 && after == before,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::is_zeros;

    #[test]
    fn one_byte_that_is_not_zero_is_found_wherever_it_is() {
        for length in 0..70 {
            let mut bytes = vec![0; length];
            assert!(is_zeros(&bytes));
            for at in 0..length {
                bytes[at] = 1;
                assert!(!is_zeros(&bytes), "byte {at} of {length}");
                bytes[at] = 0;
            }
        }
    }
}

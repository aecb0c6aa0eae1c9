//! Checksums: CRC-32C for a block of user data, CRC-64/NVME for a block of metadata.
//!
//! A data block carries 32 bits because there is one for every 4 KiB of every disk; a metadata block carries
//! 64 because it costs the same to compute and there are few of them. Both detect every burst up to their own
//! width. Neither is a defence against somebody who forges blocks.

use crc_fast::CrcAlgorithm;

/// CRC-32C (Castagnoli, reflected, as in iSCSI and RFC 3720) of `data`.
#[must_use]
pub fn crc32c(data: &[u8]) -> u32 {
    // The library returns every width in a u64; the upper half of a 32-bit CRC is zero.
    let wide = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, data);
    u32::try_from(wide & 0xffff_ffff).unwrap_or(0)
}

/// CRC-64/NVME of `data`.
#[must_use]
pub fn crc64(data: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, data)
}

/// CRC-64/NVME of parts, as if they lay behind each other.
#[must_use]
pub fn crc64_of_parts(parts: &[&[u8]]) -> u64 {
    let mut digest = crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme);
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_published_check_values_hold() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc64(b"123456789"), 0xae8b_1486_0a79_9888);
    }

    proptest! {
        // An independent implementation stands beside the fast one, because fused kernels are easy to get
        // wrong at odd lengths and alignments.
        #[test]
        fn crc32c_equals_an_independent_implementation(data in proptest::collection::vec(any::<u8>(), 0..9000), skip in 0usize..64) {
            let tail = data.get(skip..).unwrap_or(&[]);
            prop_assert_eq!(crc32c(tail), ::crc32c::crc32c(tail));
        }

        #[test]
        fn the_checksum_of_parts_is_that_of_the_whole(data in proptest::collection::vec(any::<u8>(), 0..9000), at in 0usize..9000) {
            let (head, tail) = data.split_at(at.min(data.len()));
            prop_assert_eq!(crc64_of_parts(&[head, &[], tail]), crc64(&data));
        }
    }
}

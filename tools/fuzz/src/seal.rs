//! Checksums that are right, over whatever was forged: where they stand and what they cover, from `docs/format` alone.

use dolmen_checksum::crc64;

/// The fixed part of a label, whose last eight bytes are its checksum.
const LABEL_HEADER: usize = 4096;

/// A little-endian number of so many bytes.
#[must_use]
pub(crate) fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    let field = bytes.get(at..at + length).unwrap_or_default();
    field.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Writes bytes at a place.
pub(crate) fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

/// Gives bytes the checksum of them all, with the field for it zero.
fn seal_with_zero(bytes: &mut [u8], at: usize) {
    put(bytes, at, &[0; 8]);
    let sum = crc64(bytes).to_le_bytes();
    put(bytes, at, &sum);
}

/// A label: all of the length that it names, as far as it is there.
pub(crate) fn label(bytes: &mut [u8]) {
    let length = number(bytes, 12, 4) as usize;
    let length = if length >= LABEL_HEADER { length.min(bytes.len()) } else { bytes.len() };
    seal_with_zero(&mut bytes[..length], LABEL_HEADER - 8);
}

/// A checkpoint block.
pub(crate) fn checkpoint(block: &mut [u8]) {
    let sum = crc64(&block[..4088]).to_le_bytes();
    put(block, 4088, &sum);
}

/// A page of the map.
pub(crate) fn page(page: &mut [u8]) {
    let sum = crc64(&page[16..]).to_le_bytes();
    put(page, 8, &sum);
}

/// A batch of the log: all of the length that it names, as far as it is there.
pub(crate) fn batch(bytes: &mut [u8]) {
    let length = number(bytes, 80, 4) as usize;
    let length = if length >= 128 { length.min(bytes.len()) } else { bytes.len() };
    seal_with_zero(&mut bytes[..length], 8);
}

/// A page of a table.
pub(crate) fn table(slot: &mut [u8]) {
    seal_with_zero(slot, 56);
}

/// The header of a slab.
pub(crate) fn slab(block: &mut [u8]) {
    seal_with_zero(block, 4088);
}

//! Content of blocks that says what it is: which space, block and write it is of. So whatever is read can be told apart: it is what
//! was written somewhere once, whole, or nobody wrote it.

/// Bytes of a block.
pub(crate) const BLOCK: usize = 4096;
/// The first bytes of each sector.
const MARK: [u8; 4] = *b"fuzz";
const SECTOR: usize = 512;

/// What a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tag {
    pub(crate) space: u8,
    pub(crate) block: u32,
    pub(crate) fill: u16,
}

fn word(tag: Tag, sector: usize) -> u64 {
    let place =
        u64::from(tag.space) << 56 | u64::from(tag.fill) << 40 | u64::from(tag.block) << 8 | sector as u64;
    let mixed = (place ^ place >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

/// Fills a block.
pub(crate) fn fill(tag: Tag, block: &mut [u8]) {
    for (sector, bytes) in block.chunks_mut(SECTOR).enumerate() {
        let word = word(tag, sector).to_le_bytes();
        bytes.chunks_mut(8).for_each(|to| to.copy_from_slice(&word));
        bytes[..4].copy_from_slice(&MARK);
        bytes[4] = tag.space;
        bytes[5..7].copy_from_slice(&tag.fill.to_le_bytes());
        bytes[7] = sector as u8;
        bytes[8..12].copy_from_slice(&tag.block.to_le_bytes());
    }
}

/// What was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    Zeros,
    Content(Tag),
    /// Nobody wrote that.
    Other,
}

/// What a block that was read is.
pub(crate) fn read(block: &[u8]) -> Read {
    if block.iter().all(|byte| *byte == 0) {
        return Read::Zeros;
    }
    if block.len() != BLOCK || block[..4] != MARK {
        return Read::Other;
    }
    let number = |range: std::ops::Range<usize>| {
        block[range].iter().rev().fold(0u32, |sum, byte| sum << 8 | u32::from(*byte))
    };
    let tag = Tag { space: block[4], fill: number(5..7) as u16, block: number(8..12) };
    let mut expected = [0; BLOCK];
    fill(tag, &mut expected);
    if block == expected { Read::Content(tag) } else { Read::Other }
}

//! Checkpoint blocks and pages of the map, each by itself: made, edited and sealed here, read by the engine.
//!
//! Oracle: this file writes both from `docs/format/store.md` alone. What the engine reads of a block or a page is written by it
//! again, to the same bytes; what it wrote itself the engine reads.

use dolmen_store::{
    Anchor, Area, CHECKPOINT_BLOCK_BYTES, CheckpointBlock, Defect, Key, MapPage, PAGE_BYTES, PageContent,
    PageName,
};
use dolmen_units::{DiskId, PoolId};

use crate::labels::first_difference;
use crate::script::Script;
use crate::{Reached, edits, named, seal};

const POOL: PoolId = PoolId([7; 16]);
/// Bytes before the body of a page.
const HEADER: usize = 64;

fn name_bytes(name: &PageName) -> [u8; 24] {
    let mut bytes = [0; 24];
    seal::put(&mut bytes, 0, &name.page.to_le_bytes());
    seal::put(&mut bytes, 8, &name.sequence.to_le_bytes());
    seal::put(&mut bytes, 16, &name.checksum.to_le_bytes());
    bytes
}

/// A checkpoint block, as the document has it; `root_key` is not told by the engine.
pub(crate) fn checkpoint_bytes(block: &CheckpointBlock, root_key: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; CHECKPOINT_BLOCK_BYTES];
    seal::put(&mut bytes, 0, b"DOLMENCP");
    seal::put(&mut bytes, 8, &1u32.to_le_bytes());
    seal::put(&mut bytes, 12, &4096u32.to_le_bytes());
    seal::put(&mut bytes, 16, &block.pool.0);
    seal::put(&mut bytes, 32, &block.disk.0);
    let numbers = [block.at, block.sequence, block.area.pages_at, block.area.pages_length];
    for (place, number) in numbers.into_iter().enumerate() {
        seal::put(&mut bytes, 48 + 8 * place, &number.to_le_bytes());
    }
    if let Some((root, level)) = &block.root {
        seal::put(&mut bytes, 80, root_key);
        seal::put(&mut bytes, 104, &name_bytes(root));
        seal::put(&mut bytes, 144, &(u16::from(*level) + 1).to_le_bytes());
    }
    seal::put(&mut bytes, 128, &block.entries.to_le_bytes());
    seal::put(&mut bytes, 136, &block.used_pages.to_le_bytes());
    seal::put(&mut bytes, 146, &(block.bitmaps.len() as u16).to_le_bytes());
    seal::put(&mut bytes, 152, &block.anchor.0);
    for (place, bitmap) in block.bitmaps.iter().enumerate() {
        seal::put(&mut bytes, 216 + 24 * place, &name_bytes(bitmap));
    }
    seal::checkpoint(&mut bytes);
    bytes
}

/// The body of a page of the tree, as the document has it.
fn body_of(content: &PageContent) -> Option<(u8, u16, Vec<u8>)> {
    let mut body = Vec::new();
    match content {
        PageContent::Leaf(entries) => {
            let mut at = HEADER + 2 * entries.len();
            for (_, value) in entries {
                body.extend((at as u16).to_le_bytes());
                at += 24 + value.len();
            }
            for (key, value) in entries {
                body.extend(key.0);
                body.extend(value);
            }
            Some((1, entries.len() as u16, body))
        }
        PageContent::Inner(children) => {
            for (key, name) in children {
                body.extend(key.0);
                body.extend(name_bytes(name));
            }
            Some((2, children.len() as u16, body))
        }
        PageContent::Bitmap { .. } => None,
    }
}

/// A page, as the document has it, with any bytes in its body.
fn framed(page: &MapPage, kind: u8, count: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; PAGE_BYTES];
    seal::put(&mut bytes, 0, b"DOLMENPG");
    seal::put(&mut bytes, 16, &1u32.to_le_bytes());
    bytes[20] = kind;
    bytes[21] = page.level;
    seal::put(&mut bytes, 22, &count.to_le_bytes());
    seal::put(&mut bytes, 24, &page.pool.0);
    seal::put(&mut bytes, 40, &page.name.page.to_le_bytes());
    seal::put(&mut bytes, 48, &page.name.sequence.to_le_bytes());
    seal::put(&mut bytes, 56, &(body.len() as u32).to_le_bytes());
    seal::put(&mut bytes, HEADER, body);
    seal::page(&mut bytes);
    bytes
}

/// A page as the script describes it.
fn sample_page(script: &mut Script<'_>) -> Vec<u8> {
    let shape = script.byte();
    let name = PageName { page: 5, sequence: 9, checksum: 0 };
    let key = |number: u64| {
        let mut key = [5; 24];
        seal::put(&mut key, 16, &number.to_be_bytes());
        Key(key)
    };
    let count = 1 + script.below(60);
    let content = match shape % 3 {
        0 => PageContent::Leaf((0..count).map(|n| (key(n), vec![n as u8; (n % 7 * 30) as usize])).collect()),
        1 => PageContent::Inner((0..count).map(|n| (key(n), PageName { page: n + 9, ..name })).collect()),
        _ => PageContent::Bitmap { index: 0, used: 0 },
    };
    let level = u8::from(shape % 3 == 1);
    let page = MapPage { pool: POOL, name, level, content };
    match body_of(&page.content) {
        Some((kind, count, body)) => framed(&page, kind, count, &body),
        None => framed(&page, 3, 0, &[0x0f; 48]),
    }
}

fn verify_page(bytes: &[u8], is_sound: bool) -> Reached {
    let page = match MapPage::parse(bytes) {
        Ok(page) => page,
        Err(error) => {
            assert!(!is_sound, "a page that the document describes is refused: {error}");
            return named(&error);
        }
    };
    assert_eq!(page.name.checksum, seal::number(bytes, 8, 8), "a page is named by its checksum");
    match (&page.content, body_of(&page.content)) {
        (_, Some((kind, count, body))) => {
            let again = framed(&page, kind, count, &body);
            assert_eq!(first_difference(&again, bytes), None, "a field of a page was passed over");
        }
        (PageContent::Bitmap { index, used }, None) => {
            let length = seal::number(bytes, 56, 4) as usize;
            let body = &bytes[HEADER..HEADER + length];
            let bits: u64 = body.iter().map(|byte| u64::from(byte.count_ones())).sum();
            assert_eq!(*used, bits, "bits of a page are counted");
            let again = framed(&page, 3, *index, body);
            assert_eq!(first_difference(&again, bytes), None, "a field of a page of bits was passed over");
        }
        (_, None) => {}
    }
    if let PageContent::Leaf(entries) = &page.content {
        assert!(entries.windows(2).all(|pair| pair[0].0 < pair[1].0), "keys of a page ascend");
    }
    Reached::Held
}

fn sample_checkpoint(script: &mut Script<'_>) -> Vec<u8> {
    let name = |page| PageName { page, sequence: 8, checksum: 99 + page };
    let shape = script.byte();
    let sequence = 8 + u64::from(shape & 1);
    let area = Area { checkpoint_at: 1 << 20, pages_at: 4 << 20, pages_length: 6 << 20 };
    let at = area.checkpoint_at + sequence % 2 * 4096;
    let root = (shape & 2 != 0).then(|| (name(3), shape >> 2 & 3));
    let entries = if root.is_some() { 40 } else { 0 };
    let bitmaps = vec![name(1)];
    let anchor = Anchor([1; 64]);
    let disk = DiskId([2; 16]);
    let block = CheckpointBlock {
        pool: POOL,
        disk,
        at,
        area,
        sequence,
        root,
        entries,
        used_pages: 5,
        bitmaps,
        anchor,
    };
    checkpoint_bytes(&block, &[0; 24])
}

fn verify_checkpoint(bytes: &[u8], is_sound: bool) -> Reached {
    match CheckpointBlock::parse(bytes) {
        Ok(block) => {
            let root_key = if block.root.is_some() { &bytes[80..104] } else { &[0; 24] };
            let again = checkpoint_bytes(&block, root_key);
            assert_eq!(first_difference(&again, bytes), None, "a field of a checkpoint was passed over");
            Reached::Held
        }
        Err(error) => {
            assert!(!is_sound, "a checkpoint that the document describes is refused: {error}");
            assert!(
                !matches!(error, Defect::Checksum { .. }) || !is_sealed(bytes),
                "{error}, and it is right"
            );
            named(&error)
        }
    }
}

fn is_sealed(block: &[u8]) -> bool {
    dolmen_checksum::crc64(&block[..4088]) == seal::number(block, 4088, 8)
}

/// One input.
pub(crate) fn run(input: &[u8]) -> Reached {
    let mut script = Script::new(input);
    let shape = script.byte();
    let is_page = shape & 1 != 0;
    let mut bytes = if is_page { sample_page(&mut script) } else { sample_checkpoint(&mut script) };
    let sound = bytes.clone();
    edits::edit(&mut script, &mut bytes);
    if shape & 2 != 0 {
        if is_page { seal::page(&mut bytes) } else { seal::checkpoint(&mut bytes) }
    }
    let is_sound = bytes == sound;
    if is_page { verify_page(&bytes, is_sound) } else { verify_checkpoint(&bytes, is_sound) }
}

/// Inputs to begin with.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for shape in 0..3 {
        seeds.push(vec![3, shape, 20]);
        seeds.push(vec![2, shape << 1 | 1]);
        for at in (8..72u8).step_by(4) {
            seeds.push(vec![3, shape, 20, 3, at, 0, at % 24]);
            seeds.push(vec![2, shape << 1, 3, at + 72, 0, at % 24]);
        }
    }
    seeds
}

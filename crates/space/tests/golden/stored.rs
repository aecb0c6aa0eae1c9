//! How disks are kept: each block that is not zeros once, as runs of words. The README beside draws it.

use std::collections::BTreeMap;

use dolmen_checksum::crc64;
use dolmen_sim::Image;

use super::{BLOCK, Disk};

const MAGIC: &[u8; 8] = b"DOLMGOLD";
const LAYOUT: u32 = 1;
const NAME_BYTES: usize = 16;
const WORDS: usize = BLOCK / 8;
/// The bit of a run's head that says that its words differ.
const VARIED: u16 = 1 << 15;

/// The stored form of images, by name: the disks of each.
pub fn pack(images: &[(&str, &[Disk])]) -> Vec<u8> {
    let (mut blocks, mut numbers, mut places) = (Vec::new(), BTreeMap::new(), Vec::new());
    for (name, disks) in images {
        places.extend_from_slice(&name_bytes(name));
        places.extend_from_slice(&(disks.len() as u32).to_le_bytes());
        for disk in *disks {
            let held = blocks_of(disk);
            places.extend_from_slice(&disk.capacity.to_le_bytes());
            places.extend_from_slice(&(held.len() as u32).to_le_bytes());
            for (block, bytes) in held {
                let next = numbers.len() as u32;
                let number = *numbers.entry(bytes.clone()).or_insert_with(|| {
                    pack_block(&bytes, &mut blocks);
                    next
                });
                places.extend_from_slice(&(block as u32).to_le_bytes());
                places.extend_from_slice(&number.to_le_bytes());
            }
        }
    }
    let mut body = Vec::from((numbers.len() as u32).to_le_bytes());
    body.extend_from_slice(&blocks);
    body.extend_from_slice(&(images.len() as u32).to_le_bytes());
    body.extend_from_slice(&places);
    let mut stored = MAGIC.to_vec();
    stored.extend_from_slice(&LAYOUT.to_le_bytes());
    stored.extend_from_slice(&crc64(&body).to_le_bytes());
    stored.extend_from_slice(&body);
    stored
}

fn name_bytes(name: &str) -> [u8; NAME_BYTES] {
    let mut bytes = [0; NAME_BYTES];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    bytes
}

/// The blocks of a disk that are not zeros, by number.
pub fn blocks_of(disk: &Disk) -> Vec<(u64, Vec<u8>)> {
    let mut held = Vec::new();
    let mut bytes = vec![0; BLOCK];
    for block in 0..disk.capacity / BLOCK as u64 {
        disk.image.read(block * BLOCK as u64, &mut bytes);
        if bytes[..] != [0; BLOCK] {
            held.push((block, bytes.clone()));
        }
    }
    held
}

fn pack_block(bytes: &[u8], into: &mut Vec<u8>) {
    let words: Vec<&[u8]> = bytes.chunks(8).collect();
    let mut at = 0;
    while at < WORDS {
        let same = words[at..].iter().take_while(|word| **word == words[at]).count();
        if same > 1 {
            into.extend_from_slice(&(same as u16).to_le_bytes());
            into.extend_from_slice(words[at]);
            at += same;
        } else {
            let is_new = |place: &usize| words.get(place + 1).is_none_or(|next| *next != words[*place]);
            let end = at + (at..WORDS).take_while(is_new).count();
            into.extend_from_slice(&(VARIED | (end - at) as u16).to_le_bytes());
            words[at..end].iter().for_each(|word| into.extend_from_slice(word));
            at = end;
        }
    }
}

/// The images that are stored there: name, and disks.
pub fn unpack(stored: &[u8]) -> Vec<(String, Vec<Disk>)> {
    let mut reader = Reader { rest: stored };
    assert_eq!(reader.take(8), MAGIC, "these are no stored images");
    assert_eq!(reader.u32(), LAYOUT, "they are stored in a way that is not known");
    let sum = reader.u64();
    assert_eq!(sum, crc64(reader.rest), "the stored images are damaged");
    let blocks: Vec<Vec<u8>> = (0..reader.u32()).map(|_| reader.block()).collect();
    let images = (0..reader.u32()).map(|_| {
        let name = String::from_utf8(reader.take(NAME_BYTES).to_vec()).unwrap();
        let disks = (0..reader.u32()).map(|_| reader.disk(&blocks)).collect();
        (name.trim_end_matches('\0').to_owned(), disks)
    });
    let images = images.collect();
    assert!(reader.rest.is_empty(), "something is behind the stored images");
    images
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        taken
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().unwrap())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take(8).try_into().unwrap())
    }

    fn disk(&mut self, blocks: &[Vec<u8>]) -> Disk {
        let capacity = self.u64();
        let mut image = Image::new();
        for _ in 0..self.u32() {
            let (block, number) = (self.u32(), self.u32());
            image.write(u64::from(block) * BLOCK as u64, &blocks[number as usize]);
        }
        Disk { capacity, image }
    }

    fn block(&mut self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BLOCK);
        while bytes.len() < BLOCK {
            let head = u16::from_le_bytes(self.take(2).try_into().unwrap());
            let count = usize::from(head & !VARIED);
            if head & VARIED != 0 {
                bytes.extend_from_slice(self.take(8 * count));
            } else {
                let word = self.take(8);
                (0..count).for_each(|_| bytes.extend_from_slice(word));
            }
        }
        assert_eq!(bytes.len(), BLOCK, "a block of another length");
        bytes
    }
}

//! A file system in memory: extents with owners that are counted, holes, unwritten room, unnamed files, writers that run
//! between any two calls, kills between any two calls, and power cuts that lose what was not synced.
//!
//! The content that users wrote is kept a second time, file by file, and compared at the end.
// Each test file uses a part of it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::{Rc, Weak};

use dolmen_dedup::{
    Action, Control, DeviceRange, Extent, ExtentKind, FileError, FileId, FileInfo, Files, Next, Progress,
    Scratch, ScratchAction, ScratchError, ShareRange, Shared, Skipped,
};
use dolmen_mutation::mutation;

pub(crate) const BLOCK: u64 = 4096;
const BYTES: usize = 4096;

/// Seeds of the rounds of a test.
pub(crate) fn seeds(count: u64) -> std::ops::Range<u64> {
    match std::env::var("DOLMEN_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..count,
    }
}

/// Numbers drawn from a seed.
#[derive(Clone)]
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1)
    }
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end.max(1)
    }
    pub(crate) fn bytes(&mut self, length: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length as usize + 8);
        while (bytes.len() as u64) < length {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(length as usize);
        bytes
    }
}

/// A block of a file: number on the device, and whether it was written.
#[derive(Clone, Copy)]
struct Mapped {
    block: u64,
    written: bool,
}

#[derive(Clone, Default)]
struct File {
    generation: u32,
    size: u64,
    changed: i64,
    blocks: BTreeMap<u64, Mapped>,
    content: Vec<u8>,
}

pub(crate) struct Writer {
    draw: Draw,
    /// One of so many calls meets a writer.
    one_in: u64,
}

pub(crate) struct Model {
    disk: Vec<u8>,
    owners: Vec<u32>,
    /// Blocks whose content a power cut loses.
    unsynced: Vec<bool>,
    files: BTreeMap<u64, File>,
    packs: BTreeMap<u64, (Weak<()>, File)>,
    pack_next: u64,
    listed: Option<u64>,
    hint: u64,
    /// Blocks that no file gets: metadata.
    fixed: Vec<DeviceRange>,
    pub(crate) time: i64,
    pub(crate) calls: u64,
    pub(crate) kill_at: u64,
    /// Files whose times change at a call.
    pub(crate) touch_at: Option<(u64, Vec<u64>)>,
    pub(crate) writer: Option<Writer>,
    /// One of so many calls on a file fails.
    pub(crate) failing: Option<Writer>,
    /// One of so many ranges is not given to a pack that is led there.
    pub(crate) straying: Option<Writer>,
    /// Targets of requests to share, with the time of their last change.
    pub(crate) shared: Vec<(u64, i64)>,
    pub(crate) reads: u64,
    pub(crate) call_bytes_max: u64,
    /// Bytes that packs held at a time.
    pub(crate) packed_max: u64,
    /// Free bytes that no writer gets.
    pub(crate) reserve: u64,
    pub(crate) packs_made: u64,
    /// Packs that were made since the last trim.
    pub(crate) packs_since_trim: u64,
    /// Lists of files that were begun behind packs and before a trim.
    pub(crate) untrimmed_lists: u64,
    pub(crate) paths: BTreeMap<u64, String>,
}

pub(crate) enum Handle {
    File(FileId),
    Pack(u64, Rc<()>),
}

struct Killed;

impl Model {
    pub(crate) fn new(blocks: u64) -> Self {
        Self {
            disk: vec![0; blocks as usize * BYTES],
            owners: vec![0; blocks as usize],
            unsynced: vec![false; blocks as usize],
            files: BTreeMap::new(),
            packs: BTreeMap::new(),
            pack_next: 0,
            listed: None,
            hint: 0,
            fixed: Vec::new(),
            time: 1000,
            calls: 0,
            kill_at: u64::MAX,
            touch_at: None,
            writer: None,
            failing: None,
            straying: None,
            shared: Vec::new(),
            reads: 0,
            call_bytes_max: 0,
            packed_max: 0,
            reserve: 0,
            packs_made: 0,
            packs_since_trim: 0,
            untrimmed_lists: 0,
            paths: BTreeMap::new(),
        }
    }

    pub(crate) fn write_between(&mut self, seed: u64, one_in: u64) {
        self.writer = Some(Writer { draw: Draw::new(seed), one_in });
    }

    /// Makes room on the device that belongs to no file.
    pub(crate) fn fix(&mut self, block: u64) {
        self.owners[block as usize] += 1;
        self.fixed.push(DeviceRange { start: block * BLOCK, length: BLOCK });
    }

    /// Lets one of so many ranges be refused to a pack that is led there.
    pub(crate) fn stray(&mut self, seed: u64, one_in: u64) {
        self.straying = Some(Writer { draw: Draw::new(seed ^ 7), one_in });
    }

    pub(crate) fn is_free(&self, block: u64) -> bool {
        self.owners.get(block as usize) == Some(&0)
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.owners.iter().filter(|owners| **owners == 0).count() as u64 * BLOCK
    }

    /// Bytes of the free runs of a row that have 16 KiB and more.
    pub(crate) fn hole_bytes_in(&self, row: u64, row_bytes: u64) -> u64 {
        let blocks = (row_bytes / BLOCK) as usize;
        let runs = self.owners[row as usize * blocks..][..blocks].split(|owners| *owners > 0);
        runs.map(|run| run.len() as u64 * BLOCK).filter(|bytes| *bytes >= 16 << 10).sum()
    }

    /// Writes files until so many blocks are free.
    pub(crate) fn fill_until_free(&mut self, seed: u64, blocks: u64) {
        let mut draw = Draw::new(seed ^ 31);
        for inode in 1000.. {
            let left = (self.free_bytes() / BLOCK).saturating_sub(blocks);
            if left == 0 {
                break;
            }
            let content = draw.bytes((1 + draw.clone().below(30)).min(left) * BLOCK);
            self.create(inode, &content);
        }
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.owners.iter().filter(|owners| **owners > 0).count() as u64 * BLOCK
            - self.fixed.len() as u64 * BLOCK
    }

    pub(crate) fn sharers_max(&self) -> u32 {
        self.owners.iter().copied().max().unwrap_or(0)
    }

    pub(crate) fn live_in(&self, row: u64, row_bytes: u64) -> u64 {
        let blocks = (row_bytes / BLOCK) as usize;
        let row = row as usize * blocks;
        self.owners[row..row + blocks].iter().filter(|owners| **owners > 0).count() as u64 * BLOCK
    }

    pub(crate) fn claimed(&self, row_bytes: u64) -> Vec<u64> {
        let rows = self.owners.len() as u64 * BLOCK / row_bytes;
        (0..rows).filter(|row| self.live_in(*row, row_bytes) > 0).collect()
    }

    pub(crate) fn inodes(&self) -> Vec<u64> {
        self.files.keys().copied().collect()
    }

    pub(crate) fn id(&self, inode: u64) -> FileId {
        FileId { inode, generation: self.files[&inode].generation }
    }

    pub(crate) fn size(&self, inode: u64) -> u64 {
        self.files[&inode].size
    }

    pub(crate) fn extent_count(&self, inode: u64) -> usize {
        let map = self.map_of(&self.files[&inode]);
        map.len()
            - map
                .windows(2)
                .filter(|pair| {
                    pair[0].end() == pair[1].logical && pair[0].physical + pair[0].length == pair[1].physical
                })
                .count()
    }

    /// Places new files from a block on.
    pub(crate) fn place_from(&mut self, block: u64) {
        self.hint = block;
    }

    pub(crate) fn create(&mut self, inode: u64, content: &[u8]) {
        self.time += 1;
        let generation = u32::try_from(self.time).unwrap();
        self.files.insert(inode, File { generation, changed: self.time, ..File::default() });
        self.write(inode, 0, content);
    }

    pub(crate) fn delete(&mut self, inode: u64) {
        if let Some(file) = self.files.remove(&inode) {
            for mapped in file.blocks.values() {
                self.owners[mapped.block as usize] -= 1;
            }
        }
    }

    pub(crate) fn clone_file(&mut self, inode: u64, from: u64) {
        self.delete(inode);
        self.time += 1;
        let mut file = self.files[&from].clone();
        file.generation = u32::try_from(self.time).unwrap();
        file.changed = self.time;
        for mapped in file.blocks.values() {
            self.owners[mapped.block as usize] += 1;
        }
        self.files.insert(inode, file);
    }

    pub(crate) fn touch(&mut self, inode: u64) {
        self.time += 1;
        self.files.get_mut(&inode).unwrap().changed = self.time;
    }

    pub(crate) fn truncate(&mut self, inode: u64, size: u64) {
        self.time += 1;
        let mut file = self.files.remove(&inode).unwrap();
        file.content.resize(size as usize, 0);
        self.cut_file(&mut file, size);
        file.changed = self.time;
        self.files.insert(inode, file);
    }

    fn cut_file(&mut self, file: &mut File, size: u64) {
        for (_, mapped) in file.blocks.split_off(&size.div_ceil(BLOCK)) {
            self.owners[mapped.block as usize] -= 1;
        }
        let inside = (size % BLOCK) as usize;
        if size < file.size && inside > 0 && file.blocks.contains_key(&(size / BLOCK)) {
            let zeros = vec![0; BYTES - inside];
            self.put(file, size, &zeros, false);
        }
        file.size = size;
    }

    /// Allocates unwritten room: whole parts of a block between files stay holes.
    pub(crate) fn preallocate(&mut self, inode: u64, offset: u64, length: u64) {
        self.time += 1;
        let mut file = self.files.remove(&inode).unwrap();
        for logical in offset / BLOCK..(offset + length).div_ceil(BLOCK) {
            if !file.blocks.contains_key(&logical)
                && let Some(block) = self.allocate()
            {
                file.blocks.insert(logical, Mapped { block, written: false });
            }
        }
        file.changed = self.time;
        self.files.insert(inode, file);
    }

    pub(crate) fn write(&mut self, inode: u64, offset: u64, content: &[u8]) {
        self.time += 1;
        let mut file = self.files.remove(&inode).unwrap();
        let end = (offset as usize) + content.len();
        if self.put(&mut file, offset, content, false) {
            if file.content.len() < end {
                file.content.resize(end, 0);
            }
            file.content[offset as usize..end].copy_from_slice(content);
            file.size = file.size.max(end as u64);
        }
        file.changed = self.time;
        self.files.insert(inode, file);
    }

    fn allocate(&mut self) -> Option<u64> {
        let count = self.owners.len() as u64;
        let block = (self.hint..count).chain(0..self.hint).find(|block| self.owners[*block as usize] == 0)?;
        self.hint = (block + 1) % count;
        self.owners[block as usize] = 1;
        self.unsynced[block as usize] = false;
        Some(block)
    }

    /// Writes content into the blocks of a file: in place where it is the only owner, else into new ones.
    fn put(&mut self, file: &mut File, offset: u64, content: &[u8], unsynced: bool) -> bool {
        let end = offset + content.len() as u64;
        for logical in offset / BLOCK..end.div_ceil(BLOCK) {
            let mut bytes = self.block_of(file, logical);
            let start = logical * BLOCK;
            let (from, to) = (offset.max(start), end.min(start + BLOCK));
            bytes[(from - start) as usize..(to - start) as usize]
                .copy_from_slice(&content[(from - offset) as usize..(to - offset) as usize]);
            let block = match file.blocks.get(&logical) {
                Some(mapped) if self.owners[mapped.block as usize] == 1 => mapped.block,
                mapped => {
                    let former = mapped.map(|mapped| mapped.block);
                    let Some(block) = self.allocate() else { return false };
                    if let Some(former) = former {
                        self.owners[former as usize] -= 1;
                    }
                    block
                }
            };
            file.blocks.insert(logical, Mapped { block, written: true });
            self.disk[block as usize * BYTES..][..BYTES].copy_from_slice(&bytes);
            self.unsynced[block as usize] = unsynced;
        }
        true
    }

    fn block_of(&self, file: &File, logical: u64) -> Vec<u8> {
        match file.blocks.get(&logical) {
            Some(mapped) if mapped.written => self.disk[mapped.block as usize * BYTES..][..BYTES].to_vec(),
            _ => vec![0; BYTES],
        }
    }

    fn content_of(&self, file: &File, offset: u64, length: u64) -> Vec<u8> {
        let end = (offset + length).min(file.size).max(offset);
        let mut bytes = Vec::new();
        for logical in offset / BLOCK..end.div_ceil(BLOCK) {
            bytes.extend(self.block_of(file, logical));
        }
        let skip = (offset % BLOCK) as usize;
        bytes.get(skip..skip + (end - offset) as usize).map(<[u8]>::to_vec).unwrap_or_default()
    }

    fn map_of(&self, file: &File) -> Vec<Extent> {
        let mut map: Vec<Extent> = Vec::new();
        for (logical, mapped) in &file.blocks {
            let shared = self.owners[mapped.block as usize] > 1;
            let kind = if mapped.written { ExtentKind::Plain } else { ExtentKind::Unwritten };
            let (logical, physical) = (logical * BLOCK, mapped.block * BLOCK);
            match map.last_mut() {
                Some(last)
                    if last.end() == logical
                        && last.physical + last.length == physical
                        && last.kind == kind
                        && last.shared == shared =>
                {
                    last.length += BLOCK;
                }
                _ => map.push(Extent { logical, physical, length: BLOCK, kind, shared }),
            }
        }
        map
    }

    /// Compares all content with what users wrote, and all owners with the maps.
    #[track_caller]
    pub(crate) fn verify(&mut self, seed: u64) {
        self.free_packs();
        let mut owners = vec![0u32; self.owners.len()];
        for range in &self.fixed {
            owners[(range.start / BLOCK) as usize] += 1;
        }
        for (inode, file) in &self.files {
            assert_eq!(file.size, file.content.len() as u64, "seed {seed}: size of inode {inode}");
            let found = self.content_of(file, 0, file.size);
            let first = found.iter().zip(&file.content).position(|(found, written)| found != written);
            assert_eq!(
                first, None,
                "seed {seed}: content of inode {inode} is not what was written, from this byte on"
            );
            for mapped in file.blocks.values() {
                owners[mapped.block as usize] += 1;
            }
        }
        assert!(self.packs.is_empty() && owners == self.owners, "seed {seed}: owners of blocks");
    }

    /// Frees unnamed files whose handles were dropped.
    pub(crate) fn free_packs(&mut self) {
        let dead: Vec<u64> = self
            .packs
            .iter()
            .filter(|(_, (handle, _))| handle.strong_count() == 0)
            .map(|(pack, _)| *pack)
            .collect();
        for pack in dead {
            for mapped in self.packs.remove(&pack).unwrap().1.blocks.values() {
                self.owners[mapped.block as usize] -= 1;
            }
        }
    }

    /// Cuts the power: blocks that were not synced hold anything.
    pub(crate) fn power_cut(&mut self) {
        self.free_packs();
        for (block, unsynced) in self.unsynced.iter_mut().enumerate() {
            if std::mem::take(unsynced) {
                self.disk[block * BYTES..][..BYTES].fill(0xdb);
            }
        }
    }

    pub(crate) fn fail_calls(&mut self, seed: u64, one_in: u64) {
        self.failing = Some(Writer { draw: Draw::new(seed ^ 99), one_in });
    }

    fn fails(&mut self, action: Action) -> Result<(), FileError> {
        let failing = self.failing.as_mut().is_some_and(|failing| failing.draw.below(failing.one_in) == 0);
        if !failing {
            return Ok(());
        }
        Err(FileError::Failed { action, inode: 0, offset: 0, source: "the model fails".into() })
    }

    fn call(&mut self) {
        self.free_packs();
        let packed: usize = self.packs.values().map(|(_, pack)| pack.blocks.len()).sum();
        self.packed_max = self.packed_max.max(packed as u64 * BLOCK);
        self.calls += 1;
        if self.calls >= self.kill_at {
            resume_unwind(Box::new(Killed));
        }
        if let Some((_, inodes)) = self.touch_at.take_if(|(call, _)| *call <= self.calls) {
            inodes.into_iter().for_each(|inode| self.touch(inode));
        }
        if let Some(mut writer) = self.writer.take() {
            if writer.draw.below(writer.one_in) == 0 {
                self.write_something(&mut writer.draw);
            }
            self.writer = Some(writer);
        }
    }

    pub(crate) fn write_something(&mut self, draw: &mut Draw) {
        let inodes = self.inodes();
        let inode = inodes[draw.below(inodes.len() as u64) as usize];
        let size = self.size(inode);
        match draw.below(8) {
            0..=3 => {
                let offset = draw.below(size + 1);
                let length = 1 + draw.below(9000);
                let content = draw.bytes(length);
                self.write(inode, offset, &content);
            }
            4 => self.truncate(inode, size - draw.below(size + 1).min(size)),
            5 => {
                let other = inodes[draw.below(inodes.len() as u64) as usize];
                if other != inode {
                    self.clone_file(inode, other);
                }
            }
            6 => self.preallocate(inode, size / 2, 20_000),
            _ => {
                let length = 1 + draw.below(100_000);
                let content = draw.bytes(length);
                self.delete(inode);
                self.create(inode, &content);
            }
        }
    }

    /// Runs `work` and returns nothing if it was killed.
    pub(crate) fn until_killed<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> Option<R> {
        match catch_unwind(AssertUnwindSafe(|| work(self))) {
            Ok(result) => Some(result),
            Err(payload) if payload.is::<Killed>() => None,
            Err(payload) => resume_unwind(payload),
        }
    }

    fn file(&self, handle: &Handle, action: Action) -> Result<&File, FileError> {
        match handle {
            Handle::File(id) => match self.files.get(&id.inode) {
                Some(file) if file.generation == id.generation => Ok(file),
                _ => Err(FileError::Deleted { action, inode: id.inode }),
            },
            Handle::Pack(pack, _) => Ok(&self.packs[pack].1),
        }
    }

    fn take(&mut self, handle: &Handle, action: Action) -> Result<File, FileError> {
        self.file(handle, action)?;
        Ok(match handle {
            Handle::File(id) => self.files.remove(&id.inode).unwrap(),
            Handle::Pack(pack, _) => std::mem::take(&mut self.packs.get_mut(pack).unwrap().1),
        })
    }

    fn put_back(&mut self, handle: &Handle, file: File) {
        match handle {
            Handle::File(id) => drop(self.files.insert(id.inode, file)),
            Handle::Pack(pack, _) => self.packs.get_mut(pack).unwrap().1 = file,
        }
    }
}

impl Files for Model {
    type Handle = Handle;

    fn block_bytes(&self) -> u64 {
        BLOCK
    }

    fn rewind(&mut self) -> Result<(), FileError> {
        self.call();
        self.listed = None;
        self.untrimmed_lists += u64::from(self.packs_since_trim > 0);
        Ok(())
    }

    fn list(&mut self, into: &mut Vec<FileInfo>) -> Result<bool, FileError> {
        self.call();
        let after = self.listed.map_or(0, |inode| inode + 1);
        let next: Vec<u64> = self.files.range(after..).map(|(inode, _)| *inode).take(7).collect();
        for inode in &next {
            let file = &self.files[inode];
            let id = FileId { inode: *inode, generation: file.generation };
            let (size, changed_ns, modified_ns) = (file.size, file.changed, file.changed);
            into.push(FileInfo { id, size, changed_ns, modified_ns, links: 1 });
        }
        self.listed = next.last().copied().or(self.listed);
        Ok(!next.is_empty())
    }

    fn path(&mut self, file: FileId, into: &mut Vec<u8>) -> Result<(), FileError> {
        self.call();
        into.clear();
        into.extend_from_slice(self.paths.get(&file.inode).map_or(b"file", |path| path.as_bytes()));
        Ok(())
    }

    fn open(&mut self, file: FileId) -> Result<Handle, FileError> {
        self.call();
        self.fails(Action::Open)?;
        let handle = Handle::File(file);
        self.file(&handle, Action::Open)?;
        Ok(handle)
    }

    fn info(&mut self, handle: &Handle) -> Result<FileInfo, FileError> {
        self.call();
        self.fails(Action::Inspect)?;
        let file = self.file(handle, Action::Inspect)?;
        let Handle::File(id) = handle else { panic!("state of a pack") };
        Ok(FileInfo {
            id: *id,
            size: file.size,
            changed_ns: file.changed,
            modified_ns: file.changed,
            links: 1,
        })
    }

    fn read(&mut self, handle: &Handle, offset: u64, into: &mut [u8]) -> Result<usize, FileError> {
        self.call();
        self.fails(Action::Read)?;
        let file = self.file(handle, Action::Read)?;
        let content = self.content_of(file, offset, into.len() as u64);
        into[..content.len()].copy_from_slice(&content);
        self.reads += content.len() as u64;
        Ok(content.len())
    }

    fn extents(
        &mut self,
        handle: &Handle,
        range: std::ops::Range<u64>,
        limit: usize,
        into: &mut Vec<Extent>,
    ) -> Result<bool, FileError> {
        self.call();
        self.fails(Action::Map)?;
        let map = self.map_of(self.file(handle, Action::Map)?);
        let touching: Vec<Extent> = map
            .into_iter()
            .filter(|extent| extent.logical < range.end && extent.end() > range.start)
            .collect();
        into.extend(touching.iter().take(limit));
        Ok(touching.len() <= limit)
    }

    fn share(&mut self, source: &Handle, target: &Handle, range: ShareRange) -> Result<Shared, FileError> {
        self.call();
        self.fails(Action::Share)?;
        self.call_bytes_max = self.call_bytes_max.max(range.length);
        let from = self.file(source, Action::Share)?.clone();
        let to = self.file(target, Action::Share)?;
        if let Handle::File(id) = target {
            let changed = to.changed;
            self.shared.push((id.inode, changed));
        }
        let to = self.file(target, Action::Share)?;
        assert!(
            range.source_offset.is_multiple_of(BLOCK) && range.target_offset.is_multiple_of(BLOCK),
            "unaligned request {range:?}"
        );
        let (source_end, target_end) =
            (range.source_offset + range.length, range.target_offset + range.length);
        if source_end > from.size || target_end > to.size {
            return Ok(Shared::Changed);
        }
        let ends = source_end == from.size && target_end == to.size;
        let length = if ends { range.length } else { range.length / BLOCK * BLOCK };
        if !mutation!(SharedWithoutCompare)
            && self.content_of(&from, range.source_offset, length)
                != self.content_of(to, range.target_offset, length)
        {
            return Ok(Shared::Differs);
        }
        let mut to = self.take(target, Action::Share)?;
        for step in 0..length.div_ceil(BLOCK) {
            let logical = range.target_offset / BLOCK + step;
            let mapped =
                from.blocks.get(&(range.source_offset / BLOCK + step)).filter(|mapped| mapped.written);
            if let Some(mapped) = mapped {
                self.owners[mapped.block as usize] += 1;
                to.blocks
                    .insert(logical, *mapped)
                    .into_iter()
                    .for_each(|former| self.owners[former.block as usize] -= 1);
            } else if let Some(former) = to.blocks.remove(&logical) {
                self.owners[former.block as usize] -= 1;
            }
        }
        self.put_back(target, to);
        Ok(Shared::Bytes(length))
    }

    fn pack(&mut self, bytes: u64) -> Result<Handle, FileError> {
        self.call();
        self.fails(Action::Pack)?;
        let count = bytes.div_ceil(BLOCK);
        let free = |block: &u64| self.owners[*block as usize] == 0;
        let run = (0..(self.owners.len() as u64).saturating_sub(count))
            .find(|start| (*start..*start + count).all(|block| free(&block)));
        let mut file = File::default();
        let blocks: Vec<u64> = match run {
            Some(start) => (start..start + count).collect(),
            None => (0..self.owners.len() as u64).filter(free).take(count as usize).collect(),
        };
        if (blocks.len() as u64) < count {
            return Err(FileError::NoRoom { bytes });
        }
        for (logical, block) in blocks.into_iter().enumerate() {
            self.owners[block as usize] = 1;
            self.unsynced[block as usize] = true;
            file.blocks.insert(logical as u64, Mapped { block, written: false });
        }
        let handle = Rc::new(());
        self.pack_next += 1;
        self.packs_made += 1;
        self.packs_since_trim += 1;
        self.packs.insert(self.pack_next, (Rc::downgrade(&handle), file));
        Ok(Handle::Pack(self.pack_next, handle))
    }

    fn pack_at(&mut self, ranges: &[DeviceRange], into: &mut Vec<DeviceRange>) -> Result<Handle, FileError> {
        self.call();
        self.fails(Action::Pack)?;
        let mut file = File::default();
        assert!(ranges.windows(2).all(|pair| pair[0].end() <= pair[1].start), "ranges overlap: {ranges:?}");
        for range in ranges {
            let blocks = range.start / BLOCK..range.end() / BLOCK;
            let strays = self.straying.as_mut().is_some_and(|one| one.draw.below(one.one_in) == 0);
            if strays || blocks.clone().any(|block| self.owners.get(block as usize) != Some(&0)) {
                continue;
            }
            for block in blocks {
                self.owners[block as usize] = 1;
                self.unsynced[block as usize] = true;
                file.blocks.insert(block, Mapped { block, written: false });
            }
            file.size = range.end();
            into.push(*range);
        }
        let handle = Rc::new(());
        self.pack_next += 1;
        self.packs_made += 1;
        self.packs_since_trim += 1;
        self.packs.insert(self.pack_next, (Rc::downgrade(&handle), file));
        Ok(Handle::Pack(self.pack_next, handle))
    }

    fn copy(&mut self, source: &Handle, pack: &Handle, range: ShareRange) -> Result<u64, FileError> {
        self.call();
        self.fails(Action::Pack)?;
        let content = self.content_of(self.file(source, Action::Read)?, range.source_offset, range.length);
        let mut file = self.take(pack, Action::Pack)?;
        let put = self.put(&mut file, range.target_offset, &content, true);
        assert!(put, "a pack has its room");
        file.size = file.size.max(range.target_offset + content.len() as u64);
        self.put_back(pack, file);
        Ok(content.len() as u64)
    }

    fn cut(&mut self, pack: &Handle, bytes: u64) -> Result<(), FileError> {
        self.call();
        self.fails(Action::Pack)?;
        let mut file = self.take(pack, Action::Pack)?;
        assert!(bytes <= file.size, "a pack is cut to {bytes} bytes from {}", file.size);
        self.cut_file(&mut file, bytes);
        self.put_back(pack, file);
        Ok(())
    }

    fn sync(&mut self, pack: &Handle) -> Result<(), FileError> {
        self.call();
        self.fails(Action::Pack)?;
        let blocks: Vec<u64> =
            self.file(pack, Action::Pack)?.blocks.values().map(|mapped| mapped.block).collect();
        for block in blocks {
            self.unsynced[block as usize] = false;
        }
        Ok(())
    }

    fn fixed(&mut self, into: &mut Vec<DeviceRange>) -> Result<(), FileError> {
        self.call();
        into.extend_from_slice(&self.fixed);
        Ok(())
    }

    fn free(&mut self, each: &mut dyn FnMut(DeviceRange)) -> Result<(), FileError> {
        self.call();
        let mut start = None;
        for (block, owners) in self.owners.iter().chain([&1]).enumerate() {
            let at = block as u64 * BLOCK;
            match (start, *owners) {
                (None, 0) => start = Some(at),
                (Some(first), 1..) => {
                    each(DeviceRange { start: first, length: at - first });
                    start = None;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn available(&mut self) -> Result<u64, FileError> {
        self.call();
        Ok(self.free_bytes().saturating_sub(self.reserve))
    }

    fn trim(&mut self) -> Result<u64, FileError> {
        self.call();
        self.packs_since_trim = 0;
        Ok(self.free_bytes())
    }
}

/// Scratch in memory.
#[derive(Default)]
pub(crate) struct Memory {
    kept: BTreeMap<&'static str, Rc<Vec<u8>>>,
    /// Calls until one fails.
    pub(crate) fail_after: Option<u64>,
}

impl Memory {
    fn fails(&mut self, action: ScratchAction) -> Result<(), ScratchError> {
        match &mut self.fail_after {
            Some(0) => Err(ScratchError { action, offset: 0, source: "the model fails".into() }),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub(crate) fn spoil(&mut self, draw: &mut Draw) {
        for file in self.kept.values_mut() {
            let mut bytes = file.to_vec();
            if !bytes.is_empty() {
                let at = draw.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << draw.below(8);
                if draw.below(3) == 0 {
                    bytes.truncate(at);
                }
            }
            *file = Rc::new(bytes);
        }
    }
}

impl Scratch for Memory {
    type File = Rc<Vec<u8>>;

    fn create(&mut self) -> Result<Rc<Vec<u8>>, ScratchError> {
        self.fails(ScratchAction::Create)?;
        Ok(Rc::new(Vec::new()))
    }

    fn append(&mut self, file: &mut Rc<Vec<u8>>, bytes: &[u8]) -> Result<(), ScratchError> {
        self.fails(ScratchAction::Append)?;
        Rc::get_mut(file).unwrap().extend_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, file: &Rc<Vec<u8>>, offset: u64, into: &mut [u8]) -> Result<usize, ScratchError> {
        self.fails(ScratchAction::Read)?;
        let rest = file.get(offset as usize..).unwrap_or(&[]);
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn keep(&mut self, file: Rc<Vec<u8>>, name: &'static str) -> Result<(), ScratchError> {
        self.fails(ScratchAction::Name)?;
        self.kept.insert(name, file);
        Ok(())
    }

    fn kept(&mut self, name: &'static str) -> Result<Option<Rc<Vec<u8>>>, ScratchError> {
        self.fails(ScratchAction::Name)?;
        Ok(self.kept.get(name).cloned())
    }
}

/// A caller that stops after a number of questions.
pub(crate) struct Steer {
    pub(crate) left: u64,
    pub(crate) asked: u64,
    pub(crate) skipped: Vec<(FileId, String)>,
}

impl Steer {
    pub(crate) fn on() -> Self {
        Self { left: u64::MAX, asked: 0, skipped: Vec::new() }
    }
}

impl Control for Steer {
    fn next(&mut self, _: &Progress) -> Next {
        self.asked += 1;
        if self.asked > self.left { Next::Stop } else { Next::Go }
    }

    fn skipped(&mut self, file: FileId, reason: Skipped) {
        self.skipped.push((file, reason.to_string()));
    }
}

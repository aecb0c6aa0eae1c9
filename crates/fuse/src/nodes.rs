//! The files of the mounted folder: one per attached space, each with a number that is never given twice.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use dolmen_attach::{Access, SpaceKey};

use crate::wire::{Attributes, ROOT_NODE};

/// A regular file that only its owner may read and write.
const FILE_MODE: u32 = libc::S_IFREG | 0o600;
/// A folder that only its owner may enter.
pub(crate) const FOLDER_MODE: u32 = libc::S_IFDIR | 0o700;
/// The block that is announced to file systems, and the granularity of discards.
pub(crate) const BLOCK_BYTES: u32 = 4096;

/// The file of an attached space.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) node: u64,
    pub(crate) name: String,
    pub(crate) space: SpaceKey,
    pub(crate) access: Access,
    pub(crate) size: AtomicU64,
}

impl File {
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    pub(crate) fn attributes(&self) -> Attributes {
        let size = self.size();
        Attributes {
            inode: self.node,
            size,
            sectors: size / 512,
            mode: FILE_MODE,
            links: 1,
            block_bytes: BLOCK_BYTES,
            ..Attributes::default()
        }
    }
}

pub(crate) fn folder_attributes() -> Attributes {
    Attributes {
        inode: ROOT_NODE,
        mode: FOLDER_MODE,
        links: 2,
        block_bytes: BLOCK_BYTES,
        ..Attributes::default()
    }
}

/// The table of files.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    files: RwLock<BTreeMap<u64, Arc<File>>>,
}

impl Nodes {
    pub(crate) fn insert(&self, file: Arc<File>) {
        assert!(file.node > ROOT_NODE, "the folder's own node is no file's");
        let before = self.files.write().unwrap_or_else(PoisonError::into_inner).insert(file.node, file);
        assert!(before.is_none(), "a node is given once");
    }

    pub(crate) fn remove(&self, node: u64) {
        self.files.write().unwrap_or_else(PoisonError::into_inner).remove(&node);
    }

    pub(crate) fn get(&self, node: u64) -> Option<Arc<File>> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).get(&node).cloned()
    }

    pub(crate) fn named(&self, name: &[u8]) -> Option<Arc<File>> {
        self.all().into_iter().find(|file| file.name.as_bytes() == name)
    }

    pub(crate) fn all(&self) -> Vec<Arc<File>> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

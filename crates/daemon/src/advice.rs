//! What a user should do about a finding.

use dolmen_api::{Finding, FindingCode, Object};
use dolmen_pool::Disk;

use crate::open_pool::OpenPool;

/// What to do, and about what.
#[derive(Debug, Clone)]
pub(crate) struct Advice {
    pub(crate) about: Vec<(FindingCode, Object)>,
    pub(crate) text: String,
}

impl Advice {
    pub(crate) fn new(code: FindingCode, object: Object, text: String) -> Self {
        Self { about: vec![(code, object)], text }
    }

    pub(crate) fn for_disk(open: &OpenPool, code: FindingCode, disk: &Disk, text: String) -> Self {
        Self::new(code, Object::disk(open.name(), disk.slot().0), text)
    }

    /// Whether it is about this.
    pub(crate) fn is_for(&self, finding: &Finding) -> bool {
        self.about.iter().any(|(code, object)| *code == finding.code && *object == finding.object)
    }
}

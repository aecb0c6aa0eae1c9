//! Copies of blocks as they were read, and what their checksums say of them.

use std::rc::Rc;

use dolmen_block_io::DeviceError;
use dolmen_buffer::Buffer;
use dolmen_checksum::crc32c;
use dolmen_pool::Disk;
use smallvec::SmallVec;

use crate::format::record::BlockState;

/// A copy of a block as it was read.
pub(crate) struct Copy {
    pub(crate) disk: Rc<Disk>,
    pub(crate) at: u64,
    pub(crate) trusted: bool,
    pub(crate) bytes: Buffer,
    pub(crate) result: Result<(), DeviceError>,
    /// Nobody waited for it.
    pub(crate) is_timed_out: bool,
}

impl Copy {
    /// Whether it is trusted, and cannot be read or is not what the table says. Of one that nobody waited for nobody knows.
    pub(crate) fn is_to_be_healed(&self, state: BlockState) -> bool {
        let is_good = self.result.is_ok() && matches_state(&self.bytes, state);
        self.trusted && !self.is_timed_out && !is_good
    }
}

/// Where something is on a disk: bytes of the data area, and lengths.
pub(crate) type Places = SmallVec<[(u64, usize); 2]>;

/// Whether a block has the content that its state promises.
pub(crate) fn matches_state(bytes: &[u8], state: BlockState) -> bool {
    match state {
        BlockState::Never => true,
        BlockState::Valid(checksum) => crc32c(bytes) == checksum,
        BlockState::Damaged => false,
    }
}

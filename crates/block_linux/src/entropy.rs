//! Randomness from the system.

use dolmen_block_io::Entropy;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// The system's source of unpredictable bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, into: &mut [u8]) {
        let mut filled = 0;
        while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match getrandom(rest, GetRandomFlags::empty()) {
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                // Identities that repeat would join two pools in one; there is no way to go on without randomness.
                Err(error) => panic!("the system has no randomness to give: {error}"),
            }
        }
    }
}

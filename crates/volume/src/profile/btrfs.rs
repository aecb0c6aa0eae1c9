//! btrfs.

use super::{Options, Question, Redundancy};
use crate::profile::Purpose;
use crate::version::Version;

/// A btrfs-progs that surely has the feature: 6.2 as Debian builds it has not.
const BLOCK_GROUP_TREE_TOOLS: Version = Version::new(6, 8);
/// First kernel that reads the result.
const BLOCK_GROUP_TREE_KERNEL: Version = Version::new(6, 1);
/// Below it block groups are mixed, as mkfs.btrfs(8) recommends. With separate ones a plain disk of 400 MiB that had been full aborted a
/// transaction for want of room for metadata, and was read-only from then on.
const SEPARATE_GROUPS_BYTES_MIN: u64 = 1 << 30;

/// Options of `mkfs.btrfs` and of the mount.
pub(super) fn options(question: &Question<'_>) -> Options {
    let mut options = Options::default();
    options.both(["-U", &question.uuid.to_string(), "-d", "single"]);
    let is_mixed = question.space.bytes < SEPARATE_GROUPS_BYTES_MIN;
    match question.space.redundancy {
        _ if is_mixed => {
            options.both(["-m", "single", "--mixed", "-n", "4096"]);
            options.because(
                "Data and metadata share their room in btrfs of less than 1 GiB, where one could lack what the other does not use; both \
                 have one copy, and it stays so when the volume grows. A thin volume may be larger from the start.",
            );
        }
        Redundancy::Present => {
            options.both(["-m", "single"]);
            options.because("Metadata has one copy in btrfs: the pool below checks and heals each block, and a second one would double its writes.");
        }
        Redundancy::Absent => {
            options.both(["-m", "dup"]);
            options.because(
                "Metadata has two copies in btrfs: the space has no redundancy that would heal a bad block.",
            );
        }
    }
    options.both(["-s", "4096"]);
    if question.tools >= BLOCK_GROUP_TREE_TOOLS {
        // Later tools turn it on by themselves, and earlier kernels cannot write such a volume.
        let readable = question.host.oldest() >= BLOCK_GROUP_TREE_KERNEL;
        options.both(["-O", if readable { "block-group-tree" } else { "^block-group-tree" }]);
        if readable {
            options.because("block-group-tree keeps the mount of a large volume short.");
        }
    }
    if let Some(label) = &question.label {
        options.both(["-L", label.as_str()]);
    }
    options.over_zeros.push("-K".to_owned());
    options.because("A new space has nothing to discard, so mkfs does not discard.");
    // Since Linux 6.2 a mount discards by itself where the device can.
    options.mount.push("nodiscard");
    match question.purpose {
        Purpose::Documents | Purpose::Backup | Purpose::Files => {
            options.mount.push("compress=zstd:3");
            options.because("zstd:3 compresses what shrinks, and leaves alone what does not.");
        }
        Purpose::Vms | Purpose::Database => {
            options.because(format!(
                "btrfs scatters {}, which are overwritten in place; XFS would suit them better.",
                question.purpose
            ));
        }
    }
    options
}

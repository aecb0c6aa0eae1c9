//! ext4.

use super::{BLOCK_BYTES, Options, Question};
use crate::version::Version;

/// First e2fsprogs with `orphan_file` and `assume_storage_prezeroed`.
const TOOLS_1_47: Version = Version::new(1, 47);
/// First kernel that reads an `orphan_file`.
const ORPHAN_FILE_KERNEL: Version = Version::new(5, 15);

/// Options of `mke2fs` and of the mount.
pub(super) fn options(question: &Question<'_>) -> Options {
    let mut options = Options::default();
    options.both(["-t", "ext4", "-b", "4096", "-I", "256", "-m", "0", "-e", "remount-ro"]);
    options.because("-m 0: no room is reserved for root on a volume of data.");
    options.because("-e remount-ro: a damaged volume takes no more writes.");
    let mut features = vec!["metadata_csum", "64bit"];
    if question.tools >= TOOLS_1_47 {
        // These tools turn it on by themselves, and earlier kernels cannot write such a volume.
        let readable = question.host.oldest() >= ORPHAN_FILE_KERNEL;
        features.push(if readable { "orphan_file" } else { "^orphan_file" });
    }
    options.both(["-O", &features.join(","), "-U", &question.uuid.to_string()]);
    if let Some(label) = &question.label {
        options.both(["-L", label.as_str()]);
    }
    // A second -E replaces the first, so each run has one with all of them.
    let mut extended: Vec<String> = Vec::new();
    if let Some(stripe) = question.space.lasting_stripe() {
        let stride = stripe.interleave_bytes / BLOCK_BYTES;
        extended.push(format!("stride={stride}"));
        extended.push(format!("stripe_width={}", stride * u64::from(stripe.data_columns)));
        options.because("stride and stripe_width align large files to the stripe of a fixed parity space.");
    }
    let mut over_zeros = extended.clone();
    over_zeros.push("nodiscard".to_owned());
    options.because("A new space has nothing to discard, so mke2fs does not discard.");
    if question.tools >= TOOLS_1_47 {
        over_zeros.push("assume_storage_prezeroed=1".to_owned());
        options.because("A new space reads as zeros, so tables of inodes are not written in advance.");
    }
    options.over_zeros.extend(["-E".to_owned(), over_zeros.join(",")]);
    if !extended.is_empty() {
        options.again.extend(["-E".to_owned(), extended.join(",")]);
    }
    options.because("ext4 has neither instant copies of files nor deduplication.");
    options
}

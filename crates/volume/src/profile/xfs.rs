//! XFS.

use super::{Missing, Options, Question};
use crate::file_system::FileSystem;
use crate::version::Version;

/// A feature of XFS that `mkfs.xfs` turns on or off.
struct Feature {
    /// Group of options that has it.
    group: &'static str,
    /// Name of the option.
    name: &'static str,
    /// First xfsprogs with the option.
    tools: Version,
    /// First kernel that reads the result and calls it stable enough to be a default later.
    kernel: Version,
    /// What is lost without it, as a sentence; nothing if nobody would miss it.
    lost: &'static str,
}

const REPAIR: &str = "Without parent pointers no kernel can repair lost folders while the volume is mounted.";

/// In the order in which they are given. Every kernel from `KERNEL_MIN` on reads `reflink` and `rmapbt`.
const FEATURES: [Feature; 7] = [
    feature("-m", "reflink", (5, 10), (5, 10), ""),
    feature("-m", "rmapbt", (5, 10), (5, 10), ""),
    feature("-m", "bigtime", (5, 10), (5, 15), "Without bigtime no file has a time after 2038."),
    feature("-m", "inobtcount", (5, 10), (5, 15), ""),
    feature("-i", "nrext64", (5, 19), (6, 6), ""),
    feature("-i", "exchange", (6, 10), (6, 10), ""),
    feature("-n", "parent", (6, 10), (6, 10), REPAIR),
];
/// First xfsprogs that may make metadata folders by default, which only later kernels read and nothing here needs.
const METADIR_TOOLS: Version = Version::new(6, 13);

const fn feature(
    group: &'static str,
    name: &'static str,
    tools: (u32, u32),
    kernel: (u32, u32),
    lost: &'static str,
) -> Feature {
    Feature {
        group,
        name,
        tools: Version::new(tools.0, tools.1),
        kernel: Version::new(kernel.0, kernel.1),
        lost,
    }
}

/// Decides over all features; a feature that the tools do not know is left out.
fn feature_options(question: &Question<'_>, options: &mut Options) {
    let oldest = question.host.oldest();
    let mut groups =
        [("-m", vec![format!("uuid={}", question.uuid)]), ("-i", Vec::new()), ("-n", Vec::new())];
    for feature in &FEATURES {
        let readable = oldest >= feature.kernel;
        let known = question.tools >= feature.tools;
        if known {
            let group = groups.iter_mut().find(|(name, _)| *name == feature.group);
            if let Some((_, list)) = group {
                list.push(format!("{}={}", feature.name, u8::from(readable)));
            }
        }
        if feature.lost.is_empty() || (readable && known) {
            continue;
        }
        let lost = feature.lost.to_owned();
        options.missing.push(if readable {
            let (package, needed) = (FileSystem::Xfs.package(), feature.tools);
            Missing { package, needed, found: Some(question.tools), lost }
        } else {
            Missing { package: "kernel", needed: feature.kernel, found: Some(oldest), lost }
        });
    }
    if question.tools >= METADIR_TOOLS
        && let Some((_, list)) = groups.first_mut()
    {
        list.push("metadir=0".to_owned());
    }
    for (group, list) in groups.iter().filter(|(_, list)| !list.is_empty()) {
        options.both([group, list.join(",").as_str()]);
    }
}

/// Options of `mkfs.xfs` and of the mount.
pub(super) fn options(question: &Question<'_>) -> Options {
    let mut options = Options::default();
    feature_options(question, &mut options);
    options.because(
        "rmapbt=1 lets Dolmen name the file of a damaged block, and later kernels repair the volume online.",
    );
    options.because("reflink=1 gives instant copies of files and deduplication.");
    match question.space.lasting_stripe() {
        Some(stripe) => {
            options.both(["-d", &format!("su={},sw={}", stripe.interleave_bytes, stripe.data_columns)]);
            options.because("su and sw align large files to the stripe of a fixed parity space.");
        }
        None => {
            options.both(["-d", "noalign"]);
            options.because("noalign: rows change their layout, so no alignment lasts.");
        }
    }
    // The engine checks and writes blocks of 4 KiB, and a device with such sectors can carry the volume later.
    options.both(["-s", "size=4096"]);
    if let Some(label) = &question.label {
        options.both(["-L", label.as_str()]);
    }
    options.over_zeros.push("-K".to_owned());
    options.because("A new space has nothing to discard, so mkfs does not discard.");
    options
}

//! Features that a volume does without, so that an older kernel can mount it.

use crate::version::Version;

/// Returns the features that options of `mkfs` turn on: `-m bigtime=1` and `-O orphan_file`, and not `bigtime=0` or `^orphan_file`.
fn features(options: &[String]) -> impl Iterator<Item = &str> {
    let words = options.iter().flat_map(|option| option.split(','));
    words.filter_map(|word| match word.split_once('=') {
        Some((name, "1")) => Some(name),
        Some(_) => None,
        None => Some(word),
    })
}

/// Returns what it costs that a kernel is to mount a volume, as a sentence: `unbound` are the options without it.
pub(super) fn cost(oldest: Version, unbound: &[String], bound: &[String]) -> String {
    let lost: Vec<&str> =
        features(unbound).filter(|feature| features(bound).all(|one| one != *feature)).collect();
    if lost.is_empty() {
        return format!(
            "Kernel {oldest} is to mount it, which costs nothing: it reads all that mkfs turns on."
        );
    }
    format!("Kernel {oldest} is to mount it, so mkfs turns off what it does not read: {}.", lost.join(", "))
}

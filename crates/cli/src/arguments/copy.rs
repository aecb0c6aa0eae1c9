//! The command line of `dolmen copy`.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::common::Intent;

/// Help after that of the options.
pub(crate) const COPY_HELP: &str = "\
The last PATH is the target. Where it is a folder that exists, each source is copied into it under its own name; else there is \
one source, and the target is the name of its copy. Nothing is replaced. A copy gets its name when all of it is on disk; what a \
killed copy leaves is called .dolmen-copy-NUMBER beside its target, and can be deleted.

Examples:
  dolmen copy vm.img vm-test.img
  dolmen copy photos letters /srv/home/before
  dolmen copy --or-copy photos /mnt/usb/photos";

/// `dolmen copy`
#[derive(Debug, Args)]
pub(crate) struct CopyArguments {
    /// Files and folders, and the target at the end
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Copy the bytes of files that cannot be shared, such as those of another file system; without it such a copy is refused
    #[arg(long)]
    pub or_copy: bool,
    /// Change nothing; show how much lies on the device of the target, and how much on another one
    #[arg(short = 'n', long = "dry-run")]
    pub dry_run: bool,
}

impl CopyArguments {
    /// Returns whether it is to be done.
    pub(crate) fn intent(&self) -> Intent {
        if self.dry_run { Intent::DryRun } else { Intent::Act }
    }
}

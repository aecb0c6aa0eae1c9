//! Versions that tools print of themselves. A text that no parser knows is an error that shows it.

use crate::version::Version;
use std::fmt;

/// A tool that prints its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// `mkfs.xfs -V`.
    MkfsXfs,
    /// `mkfs.btrfs --version`.
    MkfsBtrfs,
    /// `mke2fs -V`, which prints to standard error.
    Mke2fs,
    /// `smbd -V`.
    Smbd,
    /// `net --version`.
    Net,
    /// `mount.nfs -V`: `exportfs` of the same package prints no version.
    NfsUtils,
    /// `ganesha.nfsd -v`.
    Ganesha,
}

impl Tool {
    /// All tools.
    pub const ALL: [Self; 7] =
        [Self::MkfsXfs, Self::MkfsBtrfs, Self::Mke2fs, Self::Smbd, Self::Net, Self::NfsUtils, Self::Ganesha];

    /// Program and argument that print the version.
    #[must_use]
    pub const fn command(self) -> [&'static str; 2] {
        match self {
            Self::MkfsXfs => ["mkfs.xfs", "-V"],
            Self::MkfsBtrfs => ["mkfs.btrfs", "--version"],
            Self::Mke2fs => ["mke2fs", "-V"],
            Self::Smbd => ["smbd", "-V"],
            Self::Net => ["net", "--version"],
            Self::NfsUtils => ["mount.nfs", "-V"],
            Self::Ganesha => ["ganesha.nfsd", "-v"],
        }
    }

    /// Text in front of the number.
    const fn prefix(self) -> &'static str {
        match self {
            Self::MkfsXfs => "mkfs.xfs version ",
            Self::MkfsBtrfs => "mkfs.btrfs, part of btrfs-progs v",
            Self::Mke2fs => "mke2fs ",
            Self::Smbd | Self::Net => "Version ",
            Self::NfsUtils => "mount.nfs: (linux nfs-utils ",
            Self::Ganesha => "NFS-Ganesha Release = V",
        }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [program, argument] = self.command();
        write!(f, "{program} {argument}")
    }
}

/// A text with no version in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{tool} printed {found:?}, and a line that begins {expected:?} was expected; report it, and install the package of the distribution meanwhile"
)]
pub struct ToolVersionError {
    /// Tool that was asked.
    pub tool: Tool,
    /// Text in front of the version.
    pub expected: &'static str,
    /// What it printed, cut to 200 characters.
    pub found: String,
}

/// Reads what a tool printed, standard output and standard error together.
///
/// # Errors
/// Fails if no line begins as those of the tool do, or no version is behind it.
pub fn parse(tool: Tool, printed: &str) -> Result<Version, ToolVersionError> {
    let expected = tool.prefix();
    let behind = printed.lines().find_map(|line| line.trim_start().strip_prefix(expected));
    let word = behind.map(|text| text.split([' ', ')', '\t']).next().unwrap_or_default());
    word.and_then(|word| word.parse().ok()).ok_or_else(|| ToolVersionError {
        tool,
        expected,
        found: printed.chars().take(200).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn versions_of_the_tools_of_distributions_are_read() {
        for (tool, printed, version) in [
            (Tool::MkfsXfs, "mkfs.xfs version 6.1.0\n", (6, 1, 0)),
            (Tool::MkfsBtrfs, "mkfs.btrfs, part of btrfs-progs v6.2\n", (6, 2, 0)),
            (Tool::MkfsBtrfs, "mkfs.btrfs, part of btrfs-progs v6.6.3\n", (6, 6, 3)),
            (Tool::Mke2fs, "mke2fs 1.47.0 (5-Feb-2023)\n\tUsing EXT2FS Library version 1.47.0\n", (1, 47, 0)),
            (Tool::Smbd, "Version 4.17.12-Debian\n", (4, 17, 12)),
            (Tool::Net, "Version 4.22.4-Debian-4.22.4+dfsg-1~deb13u1\n", (4, 22, 4)),
            (Tool::NfsUtils, "mount.nfs: (linux nfs-utils 2.6.2)\n", (2, 6, 2)),
            (Tool::Ganesha, "NFS-Ganesha Release = V4.3\n", (4, 3, 0)),
        ] {
            let (major, minor, patch) = version;
            assert_eq!(parse(tool, printed), Ok(Version { major, minor, patch }), "{printed}");
        }
    }

    #[test]
    fn unknown_output_is_an_error_that_shows_it() {
        for tool in Tool::ALL {
            for printed in ["", "command not found", "version six", tool.prefix()] {
                let error = parse(tool, printed).unwrap_err();
                assert_eq!(error.found, printed);
                assert!(error.to_string().contains(&format!("{printed:?}")), "{error}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_text_stops_the_parser(kind in 0..7_usize, text in "(?s).*", behind in ".*") {
            let tool = Tool::ALL[kind];
            let _ = (parse(tool, &text), parse(tool, &format!("{}{behind}", tool.prefix())));
        }
    }
}

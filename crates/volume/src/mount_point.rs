//! Paths that people give: where a volume is mounted, and which folder in it a quota or a share is for.
//!
//! Both are kept normalised, so that two spellings of one place are one value. Symbolic links and content of the place
//! are the business of the process that mounts.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Bytes of a path, at most. A record holds one beside its other fields.
pub const PATH_BYTES_MAX: usize = 1024;
/// Bytes of one name in a path, at most: the bound of Linux.
const COMPONENT_BYTES_MAX: usize = 255;
/// Trees that the kernel fills, or that a restart empties.
const KERNEL_TREES: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];
/// Trees from which the system takes programs, libraries and settings, and the state of the daemon. Whoever writes there owns the
/// host.
const SYSTEM_TREES: [&str; 17] = [
    "/bin",
    "/boot",
    "/efi",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/sbin",
    "/usr",
    "/var/lib/dolmen",
    "/var/lib/dpkg",
    "/var/lib/polkit-1",
    "/var/lib/rpm",
    "/var/lib/systemd",
    "/var/spool/at",
    "/var/spool/cron",
];
/// Home of root: programs obey its hidden folders, and shells its `bin`.
const HOME_OF_ROOT: &str = "/root";

/// A text that cannot be such a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// A mount point begins at the root.
    #[error("the mount point {text:?} does not begin with a slash; write the whole path")]
    NotAbsolute {
        /// Text that was given.
        text: String,
    },
    /// A folder begins at the root of its volume.
    #[error("the folder {text:?} begins with a slash; write its path within the volume, such as docs/2026")]
    Absolute {
        /// Text that was given.
        text: String,
    },
    /// Nothing is mounted over the root of the host.
    #[error("a volume cannot be mounted on /; name a folder below it, such as /srv/home")]
    Root,
    /// The place belongs to the kernel.
    #[error("the mount point {text:?} lies in {tree}, which the system fills itself; choose a place outside")]
    KernelTree {
        /// Text that was given.
        text: String,
        /// Tree that it lies in.
        tree: &'static str,
    },
    /// The place belongs to the system.
    #[error(
        "the mount point {text:?} is part of {tree}, which holds programs or settings of the system; choose a place outside, such as /srv/home"
    )]
    SystemTree {
        /// Text that was given.
        text: String,
        /// Tree that it lies in, or that lies in it.
        tree: &'static str,
    },
    /// `.`, `..` or no name between two slashes, or a slash at the end.
    #[error("the path {text:?} has {component:?} between its slashes; write it without")]
    NotNormal {
        /// Text that was given.
        text: String,
        /// Component that names no folder.
        component: String,
    },
    /// A control character.
    #[error("the path {text:?} has the control character {character:?} in it; rename the folder")]
    Control {
        /// Text that was given.
        text: String,
        /// First such character.
        character: char,
    },
    /// The path or one name in it.
    #[error("the path {text:?} has {found} bytes in {part}, at most {most} are allowed; shorten it")]
    TooLong {
        /// Text that was given, cut to 80 characters.
        text: String,
        /// `it` or `one name`.
        part: &'static str,
        /// Its bytes.
        found: usize,
        /// Bytes that are allowed.
        most: usize,
    },
}

fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Checks what is behind the first slash of a mount point, or a folder.
fn check_components(whole: &str, relative: &str) -> Result<(), PathError> {
    if whole.len() > PATH_BYTES_MAX {
        let (found, most) = (whole.len(), PATH_BYTES_MAX);
        return Err(PathError::TooLong { text: shown(whole), part: "it", found, most });
    }
    if let Some(character) = whole.chars().find(|c| c.is_control()) {
        return Err(PathError::Control { text: shown(whole), character });
    }
    for component in relative.split('/') {
        if matches!(component, "" | "." | "..") {
            return Err(PathError::NotNormal { text: shown(whole), component: component.to_owned() });
        }
        if component.len() > COMPONENT_BYTES_MAX {
            let (found, most) = (component.len(), COMPONENT_BYTES_MAX);
            return Err(PathError::TooLong { text: shown(whole), part: "one name", found, most });
        }
    }
    Ok(())
}

/// A place to mount a volume on: absolute, normalised, without control characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MountPoint(String);

impl MountPoint {
    /// The path.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the tree of the system that a mount here would cover, in whole or in part. No volume is mounted there; a record that
    /// says so can be read, and given another place.
    #[must_use]
    pub fn system_tree(&self) -> Option<&'static str> {
        let lies_in = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if let Some(below) = self.0.strip_prefix(HOME_OF_ROOT) {
            let name = below.trim_start_matches('/').split('/').next().unwrap_or_default();
            let is_obeyed = name.is_empty() || name.starts_with('.') || name == "bin";
            return (is_obeyed && lies_in(&self.0, HOME_OF_ROOT)).then_some(HOME_OF_ROOT);
        }
        SYSTEM_TREES.into_iter().find(|tree| lies_in(&self.0, tree) || lies_in(tree, &self.0))
    }

    /// Reads a mount point that people choose.
    ///
    /// # Errors
    /// Fails if the text is no mount point, or the place belongs to the system.
    pub fn chosen(text: &str) -> Result<Self, PathError> {
        let place: Self = text.parse()?;
        match place.system_tree() {
            Some(tree) => Err(PathError::SystemTree { text: shown(text), tree }),
            None => Ok(place),
        }
    }

    /// Path of a folder of the volume, seen from the host.
    #[must_use]
    pub fn join(&self, folder: &Folder) -> String {
        if folder.is_root() { self.0.clone() } else { format!("{}/{}", self.0, folder.0) }
    }
}

impl FromStr for MountPoint {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        let relative = text.strip_prefix('/').ok_or_else(|| PathError::NotAbsolute { text: shown(text) })?;
        if relative.is_empty() {
            return Err(PathError::Root);
        }
        check_components(text, relative)?;
        let lies_in =
            |tree: &str| text.strip_prefix(tree).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        match KERNEL_TREES.into_iter().find(|tree| lies_in(tree)) {
            Some(tree) => Err(PathError::KernelTree { text: shown(text), tree }),
            None => Ok(Self(text.to_owned())),
        }
    }
}

/// A folder within a volume: relative and normalised; no text is the root of the volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Folder(String);

impl Folder {
    /// The path; empty for the root of the volume.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the whole volume.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for Folder {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        if text.starts_with('/') {
            return Err(PathError::Absolute { text: shown(text) });
        }
        if !text.is_empty() {
            check_components(text, text)?;
        }
        Ok(Self(text.to_owned()))
    }
}

macro_rules! text_of_a_path {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl From<$name> for String {
            fn from(path: $name) -> Self {
                path.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = PathError;

            fn try_from(text: String) -> Result<Self, PathError> {
                text.parse()
            }
        }
    };
}

text_of_a_path!(MountPoint);
text_of_a_path!(Folder);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_normalised_absolute_paths_are_mount_points() {
        for text in ["/srv/home", "/a", "/srv/a b", "/srv/ä%\"'\\", "/srv/...", "/devices", "/srv/dev"] {
            assert_eq!(text.parse::<MountPoint>().unwrap().as_str(), text);
        }
        for text in [
            "",
            "/",
            "srv",
            "/srv/",
            "/srv//a",
            "/srv/./a",
            "/srv/../etc",
            "/..",
            "/srv/a\nb",
            "/a\u{7f}",
            "/proc",
            "/sys/fs",
            "/dev/shm",
            "/run/x",
            "//srv",
        ] {
            assert!(text.parse::<MountPoint>().is_err(), "{text:?}");
        }
        assert!(format!("/{}", "a".repeat(255)).parse::<MountPoint>().is_ok());
        assert!(format!("/{}", "a".repeat(256)).parse::<MountPoint>().is_err());
        assert!("/aaa".repeat(257).parse::<MountPoint>().is_err());
    }

    #[test]
    fn no_place_of_the_system_is_chosen() {
        for text in [
            "/usr/local/sbin",
            "/etc",
            "/etc/udev/rules.d",
            "/lib64",
            "/boot/efi",
            "/var",
            "/var/lib",
            "/var/spool",
        ]
        .into_iter()
        .chain([
            "/var/lib/dolmen/x",
            "/var/spool/cron",
            "/root",
            concat!("/root", "/.ssh"),
            concat!("/root", "/bin"),
        ]) {
            let error = MountPoint::chosen(text).expect_err(text);
            assert!(matches!(error, PathError::SystemTree { .. }), "{error}");
            assert!(text.parse::<MountPoint>().is_ok(), "a record with {text} cannot be read");
        }
        for text in [
            "/srv/usr",
            "/usrs",
            "/library",
            "/home",
            "/homes/etc",
            "/var/lib/postgresql",
            "/var/www",
            "/var/libs",
        ]
        .into_iter()
        .chain([
            concat!("/root", "/tree/.demo/mnt"),
            "/rooted",
            "/mnt",
            "/data",
            "/opt/data",
            "/var/spool/mail",
        ]) {
            assert_eq!(MountPoint::chosen(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn a_folder_stays_within_its_volume() {
        let home: MountPoint = "/srv/home".parse().unwrap();
        for (text, path) in [("", "/srv/home"), ("docs", "/srv/home/docs"), ("a/b c", "/srv/home/a/b c")] {
            assert_eq!(home.join(&text.parse().unwrap()), path);
        }
        for text in ["/", "/etc", "..", "a/../../etc", "a/", "a//b", ".", "a\0"] {
            assert!(text.parse::<Folder>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_accepted_folder_leaves_its_volume(text in "[./a ]{0,12}") {
            let home: MountPoint = "/srv/home".parse().unwrap();
            if let Ok(folder) = text.parse::<Folder>() {
                let joined = home.join(&folder);
                prop_assert!(joined.starts_with("/srv/home"));
                let parsed: MountPoint = joined.parse().unwrap();
                prop_assert_eq!(parsed.as_str(), joined.as_str());
            }
        }

        #[test]
        fn no_text_stops_the_parsers(text in ".*") {
            let _ = text.parse::<MountPoint>();
            let _ = text.parse::<Folder>();
        }
    }
}

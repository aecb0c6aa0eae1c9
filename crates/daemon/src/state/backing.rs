//! What has become of what a disk lies on.

use dolmen_api::{BackingState, FindingCode};
use dolmen_pool::Disk;
use dolmen_units::Bytes;

/// What has become of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backing {
    /// The file has no name any more.
    Removed,
    /// The file is no longer than this.
    CutTo(Bytes),
    /// The device is gone.
    Unplugged,
}

impl Backing {
    /// As the API has it.
    pub(crate) fn kind(self) -> BackingState {
        match self {
            Self::Removed => BackingState::Removed,
            Self::CutTo(_) => BackingState::CutShort,
            Self::Unplugged => BackingState::Unplugged,
        }
    }

    pub(crate) fn code(self) -> FindingCode {
        match self {
            Self::Removed => FindingCode::DiskFileRemoved,
            Self::CutTo(_) => FindingCode::DiskCutShort,
            Self::Unplugged => FindingCode::DiskUnplugged,
        }
    }

    /// What that means for a disk.
    pub(crate) fn why(self, disk: &Disk) -> String {
        let name = disk.name();
        match self {
            Self::Removed => format!(
                "the file of {name} was removed: what is on it can be read and written for as long as this daemon runs, and is \
                 lost when it ends"
            ),
            Self::CutTo(found) => format!(
                "the file of {name} was cut to {found} of {}: what was behind that is lost, and the disk leaves with the next \
                 flush",
                disk.size().capacity()
            ),
            Self::Unplugged => {
                format!(
                    "the device of {name} is gone: the disk leaves with the next command that it is given"
                )
            }
        }
    }

    /// Returns what to do about it. Spaces `alone` may have data on the disk that no other disk has.
    pub(crate) fn todo(self, pool: &str, called: &str, disk: &Disk, alone: &[String]) -> String {
        let slot = disk.slot().0;
        match self {
            Self::Removed => format!(
                "`dolmen disk replace {pool} {slot} NEW` before this daemon ends, which moves what {called} has to another disk"
            ),
            Self::CutTo(_) => {
                let backup = match alone.is_empty() {
                    true => String::new(),
                    false => format!("; {} then has to be restored from a backup", alone.join(", ")),
                };
                format!(
                    "`dolmen disk replace {pool} {slot} NEW`, which makes what {called} had again from the other disks, where \
                     they have it{backup}"
                )
            }
            Self::Unplugged => format!(
                "attach {called} again and `dolmen disk online {pool} {slot}`, or `dolmen disk replace {pool} {slot} NEW`"
            ),
        }
    }
}

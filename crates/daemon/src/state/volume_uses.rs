//! Spaces whose volumes are mounted or at work: services of spaces leave these alone.

use std::cell::RefCell;
use std::collections::BTreeMap;

use dolmen_api::{ErrorBody, ErrorCode};
use dolmen_attach::SpaceKey;
use dolmen_mutation::mutation;

use crate::answer::Answer;

/// Use that a volume makes of its space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VolumeUse {
    /// Its file system is being made.
    Making,
    /// The job that was to make it has failed. The space may be detached, so that its pool can move to a host that makes it.
    Unmade,
    /// It is mounted at a path.
    Mounted(String),
}

/// Spaces whose volumes are mounted or being made.
#[derive(Debug, Default)]
pub(crate) struct VolumeUses {
    uses: RefCell<BTreeMap<SpaceKey, VolumeUse>>,
}

impl VolumeUses {
    /// Notes the use of a space; none where its volume leaves it alone.
    pub(crate) fn note(&self, space: SpaceKey, how: Option<VolumeUse>) {
        match how {
            Some(how) => drop(self.uses.borrow_mut().insert(space, how)),
            None => drop(self.uses.borrow_mut().remove(&space)),
        }
    }

    /// Returns the path that the volume of a space is mounted at.
    pub(crate) fn mounted_at(&self, space: SpaceKey) -> Option<String> {
        match self.uses.borrow().get(&space) {
            Some(VolumeUse::Mounted(path)) => Some(path.clone()),
            Some(VolumeUse::Making | VolumeUse::Unmade) | None => None,
        }
    }

    /// Returns whether the file system on a space is being made.
    pub(crate) fn is_being_made(&self, space: SpaceKey) -> bool {
        self.uses.borrow().get(&space) == Some(&VolumeUse::Making)
    }

    /// Returns whether the job that was to make the volume of a space has failed.
    pub(crate) fn is_unmade(&self, space: SpaceKey) -> bool {
        self.uses.borrow().get(&space) == Some(&VolumeUse::Unmade)
    }

    /// Refuses to detach a space whose volume is mounted or being made; `name` is that of both.
    pub(crate) fn check_detachable(&self, space: SpaceKey, name: &str) -> Answer<()> {
        match self.uses.borrow().get(&space) {
            Some(VolumeUse::Unmade) => Ok(()),
            Some(VolumeUse::Making | VolumeUse::Mounted(_)) | None => {
                self.check_free(space, name, "detached")
            }
        }
    }

    /// Refuses what a volume in use would not survive; `name` is that of the space and of its volume.
    pub(crate) fn check_free(&self, space: SpaceKey, name: &str, doing: &str) -> Answer<()> {
        let (how, hint) = match self.uses.borrow().get(&space) {
            None => return Ok(()),
            Some(_) if mutation!(VolumeUseIgnored) => return Ok(()),
            Some(VolumeUse::Making) => (
                "its volume is being made".to_owned(),
                "`dolmen jobs` shows how far that is; `dolmen job stop JOB` calls it off".to_owned(),
            ),
            Some(VolumeUse::Unmade) => (
                "its volume was not made to the end".to_owned(),
                format!(
                    "`dolmen volume mount {name}` goes on with it, `dolmen volume delete {name}` deletes it"
                ),
            ),
            Some(VolumeUse::Mounted(path)) => (
                format!("volume {name} on it is mounted at {path}"),
                format!("`dolmen volume unmount {name}`"),
            ),
        };
        let message = format!("space {name} cannot be {doing} while {how}; nothing was changed");
        Err(ErrorBody::new(ErrorCode::Busy, message).on(name).hint(hint))
    }
}

#[cfg(test)]
mod tests {
    use dolmen_units::{PoolId, SpaceId};

    use super::*;

    #[test]
    fn a_space_is_free_unless_its_volume_is_in_use_and_the_refusal_names_the_volume() {
        let uses = VolumeUses::default();
        let key = SpaceKey { pool: PoolId([1; 16]), space: SpaceId(7) };
        let other = SpaceKey { space: SpaceId(8), ..key };
        uses.note(key, Some(VolumeUse::Mounted("/srv/home".to_owned())));
        assert!(uses.check_free(other, "tank/other", "deleted").is_ok());
        let refused = uses.check_free(key, "tank/home", "deleted").unwrap_err();
        assert_eq!(refused.code, ErrorCode::Busy);
        assert!(refused.message.contains("volume tank/home on it is mounted at /srv/home"), "{refused}");
        assert_eq!(uses.mounted_at(key).as_deref(), Some("/srv/home"));
        assert!(uses.check_detachable(key, "tank/home").is_err());
        uses.note(key, Some(VolumeUse::Unmade));
        assert!(uses.check_free(key, "tank/home", "renamed").is_err());
        assert!(uses.check_detachable(key, "tank/home").is_ok());
        uses.note(key, None);
        assert!(uses.check_free(key, "tank/home", "deleted").is_ok());
    }
}

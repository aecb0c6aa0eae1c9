//! Roles of members that take no rows although they are sound: spares, and disks that are to stay empty (docs/design/0023).
//!
//! A role stands in the map, with the identity of the disk: its number may be another one's by then. It says where new slabs
//! go, and nothing of what is on disks.

use dolmen_units::DiskId;

/// The number of the setting, in its key of the map.
pub(crate) const ROLE: u64 = 1;
/// More are not looked for: a pool has no more disks.
pub(crate) const ROLES_MAX: usize = 1024;
/// The number of the setting of a member that is declared lost, in its key of the map; its value is the disk's identity.
pub(crate) const DECLARED_LOST: u64 = 2;

/// What a member is that takes no rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It waits to take the place of a lost disk.
    Spare,
    /// It is to stay empty until somebody says otherwise.
    Idle,
}

impl Role {
    const fn number(self) -> u64 {
        match self {
            Self::Spare => 1,
            Self::Idle => 2,
        }
    }

    const fn of_number(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::Spare),
            2 => Some(Self::Idle),
            _ => None,
        }
    }
}

/// The identity of the disk, then the role.
pub(crate) fn encode(disk: DiskId, role: Role) -> Vec<u8> {
    disk.0.into_iter().chain(role.number().to_le_bytes()).collect()
}

pub(crate) fn decode(disk: DiskId, value: &[u8]) -> Option<Role> {
    let (id, role) = value.split_first_chunk::<16>()?;
    let role = u64::from_le_bytes(role.try_into().ok()?);
    (*id == disk.0).then(|| Role::of_number(role)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_that_of_the_disk_that_it_was_given() {
        let (one, other) = (DiskId([1; 16]), DiskId([2; 16]));
        for role in [Role::Spare, Role::Idle] {
            assert_eq!(decode(one, &encode(one, role)), Some(role));
            assert_eq!(decode(other, &encode(one, role)), None);
        }
        assert_eq!(decode(one, &[1; 24]), None);
        assert_eq!(decode(one, &[]), None);
    }
}

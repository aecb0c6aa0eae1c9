//! Members that take no rows although they are sound: spares, and disks that are to stay empty (docs/design/0023).
//!
//! A role stands in the map, with the identity of the disk: its number may be another one's by then. It says where new slabs
//! go, and nothing of what is on disks.
//!
//! Left to others: emptying a disk that has something (crate `space`), and when a spare takes a lost disk's place (the daemon).

use std::rc::Rc;

use dolmen_disk::MemberState;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_placement::Offer;
use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes, DiskId, DiskSlot};

use crate::change::Purpose;
use crate::claim::size_of;
use crate::disk::Disk;
use crate::error::PoolError;
use crate::free::FreeMap;
use crate::keys;
use crate::pool::Pool;
use crate::removal::DECLARED_LOST;

/// The number of the setting, in its key of the map.
const ROLE: u64 = 1;
/// More are not looked for: a pool has no more disks.
const ROLES_MAX: usize = 1024;

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

impl Pool {
    /// What a member is, if it takes no rows.
    #[must_use]
    pub fn role_of(&self, disk: &Disk) -> Option<Role> {
        self.roles.borrow().get(&disk.id()).copied()
    }

    /// Whether a member takes rows, if it is here.
    #[must_use]
    pub fn takes_rows(&self, disk: &Disk) -> bool {
        let is_free = self.role_of(disk).is_none() || mutation!(SpareTakesRows);
        disk.member().state == MemberState::Active && is_free
    }

    /// Whether a member is to hold nothing: it is to leave, or has a role.
    #[must_use]
    pub fn is_to_be_empty(&self, disk: &Disk) -> bool {
        self.is_drained(disk) || (self.is_member(disk) && self.role_of(disk).is_some())
    }

    /// Whether any slab has allocation units of a member, which may be away.
    #[must_use]
    pub fn holds_rows(&self, disk: &Disk) -> bool {
        let free = self.free.borrow().get(&disk.slot()).map(FreeMap::total);
        free.is_some_and(|free| free < size_of(disk))
    }

    /// What all slabs take on the members, also on those that are away.
    #[must_use]
    pub fn used(&self) -> Bytes {
        let free = self.free.borrow();
        let of = |disk: &Rc<Disk>| Some(size_of(disk).saturating_sub(free.get(&disk.slot())?.total()));
        Bytes(self.disks().iter().filter_map(of).sum::<u64>() * ALLOCATION_UNIT_BYTES)
    }

    /// What a member that takes no rows would offer to a repair if it took them.
    #[must_use]
    pub fn offer_as_member(&self, disk: &Disk) -> Option<Offer> {
        let offers = self.offers_as_if(disk);
        offers.into_iter().find(|offer| offer.slot == disk.slot())
    }

    /// Gives a member a role, or takes it away.
    ///
    /// # Errors
    /// What the pool says when it cannot be written; nothing has changed then.
    #[pooled]
    pub async fn set_role(self: &Rc<Self>, disk: &Disk, role: Option<Role>) -> Result<(), PoolError> {
        let mut change = self.change(Purpose::Release).await;
        if !self.is_member(disk) {
            return Err(self.not_replaced(disk, "it is no member any more"));
        }
        let key = keys::member_setting(disk.slot(), ROLE);
        match role {
            Some(role) => change.put(key, encode(disk.id(), role)),
            None => change.delete(key),
        }
        // Before it is durable: no claim finds the disk once it is. What is refused is taken back.
        let before = self.note_role(disk.id(), role);
        let committed = change.commit().await;
        if committed.is_err() {
            self.note_role(disk.id(), before);
        }
        self.changed.notify_all();
        committed
    }

    fn note_role(&self, disk: DiskId, role: Option<Role>) -> Option<Role> {
        let mut roles = self.roles.borrow_mut();
        match role {
            Some(role) => roles.insert(disk, role),
            None => roles.remove(&disk),
        }
    }

    /// Reads them, when the pool is opened. One of a disk that is no member is of the past.
    #[pooled]
    pub(crate) async fn load_roles(&self) -> Result<(), PoolError> {
        let found = self.scan(keys::member_settings(), ROLES_MAX).await?;
        let disks = self.disks();
        for (key, value) in found {
            let (_, slot, which) = keys::parts(&key);
            let slot = u16::try_from(slot).map(DiskSlot).ok();
            let Some(disk) = disks.iter().find(|disk| Some(disk.slot()) == slot) else { continue };
            if which == ROLE
                && let Some(role) = decode(disk.id(), &value)
            {
                self.note_role(disk.id(), Some(role));
            }
            if which == DECLARED_LOST && value == disk.id().0 {
                self.declared_lost.borrow_mut().insert(disk.id());
            }
        }
        Ok(())
    }
}

/// The identity of the disk, then the role.
fn encode(disk: DiskId, role: Role) -> Vec<u8> {
    disk.0.into_iter().chain(role.number().to_le_bytes()).collect()
}

fn decode(disk: DiskId, value: &[u8]) -> Option<Role> {
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

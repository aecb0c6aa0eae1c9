//! Members that are to leave without another in their place: retired, and active again if that is called off.
//!
//! Left to others: moving what they hold (crate `space`), striking them when they hold nothing (`epochs`).

use std::rc::Rc;

use dolmen_disk::MemberState;
use dolmen_future_pool::pooled;

use crate::change::Purpose;
use crate::disk::Disk;
use crate::epochs::{SPANS_FOR_REQUESTS, plan_of};
use crate::error::PoolError;
use crate::keys;
use crate::pool::Pool;

/// The number of the setting of a member that is declared lost, in its key of the map; its value is the disk's identity.
pub(crate) const DECLARED_LOST: u64 = 2;

impl Pool {
    /// Whether a member is to leave without another in its place.
    #[must_use]
    pub fn is_drained(&self, disk: &Disk) -> bool {
        let member = disk.member();
        self.is_member(disk) && member.state == MemberState::Retired && member.successor.is_none()
    }

    /// Whether a member takes data: it is neither to leave nor part of a replacement.
    #[must_use]
    pub fn is_active(&self, disk: &Disk) -> bool {
        let is_part = |(old, new): &(Rc<Disk>, Rc<Disk>)| old.id() == disk.id() || new.id() == disk.id();
        let is_member = self.is_member(disk) && disk.member().state == MemberState::Active;
        is_member && !self.replacements().iter().any(is_part)
    }

    /// Retires a member: nothing new goes there from the epoch on that says so. Nothing to do where it is already.
    ///
    /// # Errors
    /// [`PoolError::NotReplaced`] for a part of a replacement, and for the last disk that takes anything; what the pool says when
    /// it cannot be written.
    #[pooled]
    pub async fn retire(self: &Rc<Self>, disk: &Disk) -> Result<(), PoolError> {
        if disk.member().state != MemberState::Retired {
            // Whoever wrote it off did so for another time.
            self.forget_declared_lost(disk).await?;
        }
        let mutex = self.mutex_for_request(SPANS_FOR_REQUESTS).await?;
        self.writable_log()?;
        if self.is_drained(disk) {
            return Ok(());
        }
        if !self.is_member(disk) {
            return Err(self.not_replaced(disk, "it is no member any more"));
        }
        let is_part = |(old, new): &(Rc<Disk>, Rc<Disk>)| old.id() == disk.id() || new.id() == disk.id();
        if self.replacements().iter().any(is_part) {
            return Err(self.not_replaced(disk, "it is part of a replacement"));
        }
        let takes =
            |other: &Rc<Disk>| other.id() != disk.id() && other.is_present() && self.takes_rows(other);
        if !self.disks().iter().any(takes) {
            return Err(self.not_replaced(disk, "no other disk that is here takes what it holds"));
        }
        self.set_state(disk, MemberState::Retired).await?;
        drop(mutex);
        self.changed.notify_all();
        Ok(())
    }

    /// Whether a member that is about to leave, with another in its place or without, is lost for good, and what it alone had is given
    /// up (docs/design/0025).
    #[must_use]
    pub fn is_declared_lost(&self, disk: &Disk) -> bool {
        self.is_leaving(disk) && self.declared_lost.borrow().contains(&disk.id())
    }

    fn is_leaving(&self, disk: &Disk) -> bool {
        self.is_member(disk) && disk.member().state == MemberState::Retired
    }

    /// Puts on record that a member that is about to leave is lost for good.
    ///
    /// # Errors
    /// [`PoolError::NotReplaced`] for one that is not about to leave; what the pool says when it cannot be written.
    #[pooled]
    pub async fn declare_lost(self: &Rc<Self>, disk: &Disk) -> Result<(), PoolError> {
        let mut change = self.change(Purpose::Release).await;
        if !self.is_leaving(disk) {
            return Err(self.not_replaced(disk, "it is not about to leave"));
        }
        change.put(keys::member_setting(disk.slot(), DECLARED_LOST), disk.id().0.to_vec());
        change.commit().await?;
        self.declared_lost.borrow_mut().insert(disk.id());
        self.changed.notify_all();
        Ok(())
    }

    /// Takes that back of members that are here: who has a disk again wants what is on it.
    ///
    /// # Errors
    /// What the pool says when it cannot be written.
    #[pooled]
    pub async fn take_back_returned(self: &Rc<Self>) -> Result<(), PoolError> {
        if self.declared_lost.borrow().is_empty() {
            return Ok(());
        }
        for disk in self.disks().into_iter().filter(|disk| disk.is_present()) {
            self.forget_declared_lost(&disk).await?;
        }
        Ok(())
    }

    /// Takes that back. Called without the turn of epochs: a disk that fails meanwhile needs it.
    pub(crate) async fn forget_declared_lost(self: &Rc<Self>, disk: &Disk) -> Result<(), PoolError> {
        if !self.declared_lost.borrow().contains(&disk.id()) {
            return Ok(());
        }
        let mut change = self.change(Purpose::Release).await;
        change.delete(keys::member_setting(disk.slot(), DECLARED_LOST));
        change.commit().await?;
        self.declared_lost.borrow_mut().remove(&disk.id());
        Ok(())
    }

    /// Lets a member that was retired take data again. What was moved off it stays where it is.
    ///
    /// # Errors
    /// [`PoolError::NotReplaced`] for one that is not to leave, or is being replaced, or holds nothing any more and is being
    /// struck; what the pool says when it cannot be written.
    #[pooled]
    pub async fn reinstate(self: &Rc<Self>, disk: &Disk) -> Result<(), PoolError> {
        if self.is_drained(disk) {
            // First, so that nobody who removes it one day gives anything up.
            self.forget_declared_lost(disk).await?;
        }
        let mutex = self.mutex_for_request(SPANS_FOR_REQUESTS).await?;
        self.writable_log()?;
        if !self.is_drained(disk) {
            return Err(self.not_replaced(disk, "it is not about to leave"));
        }
        // Whoever strikes a disk forgets its room first.
        if !self.free.borrow().contains_key(&disk.slot()) {
            return Err(
                self.not_replaced(disk, "it holds nothing any more, and is being removed from the pool")
            );
        }
        self.set_state(disk, MemberState::Active).await?;
        drop(mutex);
        self.changed.notify_all();
        Ok(())
    }

    /// Changes the state of a member that has no successor, by an epoch. The caller holds the turn of epochs.
    async fn set_state(self: &Rc<Self>, disk: &Disk, state: MemberState) -> Result<(), PoolError> {
        self.change_epoch(|generation, _| {
            let mut plan = plan_of(generation);
            let members = plan.members.iter_mut();
            members.filter(|member| member.disk == disk.id()).for_each(|member| member.state = state);
            plan
        })
        .await?;
        self.write_other_labels().await;
        Ok(())
    }
}

//! Members that are to leave without another in their place: retired, and active again if that is called off.
//!
//! Left to others: moving what they hold (crate `space`), evicting them when they hold nothing (`eviction`).

use std::rc::Rc;

use dolmen_disk::MemberState;
use dolmen_future_pool::pooled;

use crate::disks::disk::Disk;
use crate::epochs::change::SPANS_FOR_REQUESTS;
use crate::error::PoolError;
use crate::keys;
use crate::members::role::{DECLARED_LOST, Role};
use crate::members::role::{ROLE, encode};
use crate::membership::requests::Membership;
use crate::metadata::map::Purpose;

impl Membership {
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
        self.log.writable()?;
        if self.members.is_drained(disk) {
            return Ok(());
        }
        if !self.members.is_member(disk) {
            return Err(self.identity.not_replaced(disk, "it is no member any more"));
        }
        let is_part = |(old, new): &(Rc<Disk>, Rc<Disk>)| old.id() == disk.id() || new.id() == disk.id();
        if self.members.replacements().iter().any(is_part) {
            return Err(self.identity.not_replaced(disk, "it is part of a replacement"));
        }
        let takes = |other: &Rc<Disk>| {
            other.id() != disk.id() && other.is_present() && self.members.takes_rows(other)
        };
        if !self.members.disks().iter().any(takes) {
            return Err(self.identity.not_replaced(disk, "no other disk that is here takes what it holds"));
        }
        self.set_state(disk, MemberState::Retired).await?;
        drop(mutex);
        self.members.changed.notify_all();
        Ok(())
    }

    /// Lets a member that was retired take data again. What was moved off it stays where it is.
    ///
    /// # Errors
    /// [`PoolError::NotReplaced`] for one that is not to leave, or is being replaced, or holds nothing any more and is being
    /// struck; what the pool says when it cannot be written.
    #[pooled]
    pub async fn reinstate(self: &Rc<Self>, disk: &Disk) -> Result<(), PoolError> {
        if self.members.is_drained(disk) {
            // First, so that nobody who removes it one day gives anything up.
            self.forget_declared_lost(disk).await?;
        }
        let mutex = self.mutex_for_request(SPANS_FOR_REQUESTS).await?;
        self.log.writable()?;
        if !self.members.is_drained(disk) {
            return Err(self.identity.not_replaced(disk, "it is not about to leave"));
        }
        // Whoever strikes a disk forgets its room first.
        if !self.free_space.maps.borrow().contains_key(&disk.slot()) {
            return Err(self
                .identity
                .not_replaced(disk, "it holds nothing any more, and is being removed from the pool"));
        }
        self.set_state(disk, MemberState::Active).await?;
        drop(mutex);
        self.members.changed.notify_all();
        Ok(())
    }

    /// Puts on record that a member that is about to leave is lost for good.
    ///
    /// # Errors
    /// [`PoolError::NotReplaced`] for one that is not about to leave; what the pool says when it cannot be written.
    #[pooled]
    pub async fn declare_lost(self: &Rc<Self>, disk: &Disk) -> Result<(), PoolError> {
        let mut change = self.changes.begin(Purpose::Release).await;
        if !self.members.is_leaving(disk) {
            return Err(self.identity.not_replaced(disk, "it is not about to leave"));
        }
        change.put(keys::member_setting(disk.slot(), DECLARED_LOST), disk.id().0.to_vec());
        change.commit().await?;
        self.members.declared_lost.borrow_mut().insert(disk.id());
        self.members.changed.notify_all();
        Ok(())
    }

    /// Takes that back of members that are here: who has a disk again wants what is on it.
    ///
    /// # Errors
    /// What the pool says when it cannot be written.
    #[pooled]
    pub async fn take_back_returned(self: &Rc<Self>) -> Result<(), PoolError> {
        if self.members.declared_lost.borrow().is_empty() {
            return Ok(());
        }
        for disk in self.members.disks().into_iter().filter(|disk| disk.is_present()) {
            self.forget_declared_lost(&disk).await?;
        }
        Ok(())
    }

    /// Takes that back. Called without the turn of epochs: a disk that fails meanwhile needs it.
    pub(crate) async fn forget_declared_lost(self: &Rc<Self>, disk: &Disk) -> Result<(), PoolError> {
        if !self.members.declared_lost.borrow().contains(&disk.id()) {
            return Ok(());
        }
        let mut change = self.changes.begin(Purpose::Release).await;
        change.delete(keys::member_setting(disk.slot(), DECLARED_LOST));
        change.commit().await?;
        self.members.declared_lost.borrow_mut().remove(&disk.id());
        Ok(())
    }

    /// Gives a member a role, or takes it away.
    ///
    /// # Errors
    /// What the pool says when it cannot be written; nothing has changed then.
    #[pooled]
    pub async fn set_role(self: &Rc<Self>, disk: &Disk, role: Option<Role>) -> Result<(), PoolError> {
        let mut change = self.changes.begin(Purpose::Release).await;
        if !self.members.is_member(disk) {
            return Err(self.identity.not_replaced(disk, "it is no member any more"));
        }
        let key = keys::member_setting(disk.slot(), ROLE);
        match role {
            Some(role) => change.put(key, encode(disk.id(), role)),
            None => change.delete(key),
        }
        // Before it is durable: no claim finds the disk once it is. What is refused is taken back.
        let before = self.members.note_role(disk.id(), role);
        let committed = change.commit().await;
        if committed.is_err() {
            self.members.note_role(disk.id(), before);
        }
        self.members.changed.notify_all();
        committed
    }
}

//! Members that are removed when they hold nothing any more, and replacements that are reversed.

use std::rc::Rc;

use dolmen_disk::MemberState;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_units::Epoch;

use crate::disks::disk::Disk;
use crate::epochs::change::{SPANS_FOR_REQUESTS, plan_of, retire};
use crate::error::PoolError;
use crate::keys;
use crate::members::table::size_of;
use crate::membership::requests::Membership;
use crate::metadata::map::Purpose;
use crate::room::free_map::FreeMap;

/// Why a disk that was retired is none any more.
const CALLED_OFF: &str = "its replacement was called off";

impl Membership {
    /// Strikes a retired disk that holds nothing any more from the members, if it still is one. Its label is wiped by the caller.
    ///
    /// # Errors
    /// When the pool cannot be written; [`PoolError::NotReplaced`] when the disk is not retired any more, or something lies on it;
    /// [`PoolError::Full`] when it alone carries the metadata, and none that stays has room for it.
    #[pooled]
    pub async fn evict(self: &Rc<Self>, disk: &Rc<Disk>) -> Result<(), PoolError> {
        // Its number may be another one's by now.
        let is_member = || self.members.is_member(disk);
        let votes_alone = || self.members.voters() == [disk.id()];
        if !is_member() {
            return Ok(());
        }
        if self.members.voters().contains(&disk.id()) {
            // Before it goes, so that there are no fewer at any time than others can be.
            self.voter_tender.tend_without(Some(disk.id())).await?;
        }
        let why = "no other disk has room for the metadata that the one to be struck carries";
        let last = || PoolError::Full { name: self.identity.name.clone(), why };
        if votes_alone() {
            return Err(last());
        }
        self.forget_room(disk).await?;
        let mutex = self.epochs.mutex.take().await;
        if !is_member() {
            return Ok(());
        }
        let stays = match disk.member().state {
            _ if votes_alone() => Some(last()),
            MemberState::Active => Some(self.identity.not_replaced(disk, CALLED_OFF)),
            MemberState::Retired => None,
        };
        if let Some(why) = stays {
            // All of its room is its own again.
            drop(mutex);
            self.give_room(disk).await?;
            // So is what it is for: that was forgotten with its room.
            if let Some(role) = self.members.role_of(disk) {
                self.set_role(disk, Some(role)).await?;
            }
            return Err(why);
        }
        self.epochs
            .change(|generation, _| {
                let mut plan = plan_of(generation);
                plan.voters.retain(|voter| *voter != disk.id());
                plan.members.retain(|member| member.disk != disk.id());
                plan
            })
            .await?;
        disk.unseat(Epoch(u64::MAX));
        self.members.disks.borrow_mut().remove(&disk.slot());
        drop(mutex);
        self.members.changed.notify_all();
        // It may have come back in between, and have been given all of its room.
        if self.free_space.maps.borrow().contains_key(&disk.slot()) {
            self.forget_room(disk).await
        } else {
            Ok(())
        }
    }

    /// Forgets what is free on a retired disk that holds nothing any more: whoever gets its slot next has allocation units of its
    /// own. A crash behind this finds a member without a record of its room, all of which is free.
    #[pooled]
    async fn forget_room(self: &Rc<Self>, disk: &Disk) -> Result<(), PoolError> {
        let mut change = self.changes.begin(Purpose::Release).await;
        let slot = disk.slot();
        if self.members.disk(slot).is_some_and(|other| other.id() != disk.id()) {
            return Ok(());
        }
        // With the change in hand, so that nobody takes any of it meanwhile.
        if self.members.is_member(disk) && disk.member().state != MemberState::Retired {
            return Err(self.identity.not_replaced(disk, CALLED_OFF));
        }
        let known = self.free_space.maps.borrow().get(&slot).map(FreeMap::total);
        if known.is_some_and(|free| free < size_of(disk)) && !mutation!(EvictedWhileNamed) {
            return Err(self.identity.not_replaced(disk, "something lies on it still"));
        }
        self.free_space.maps.borrow_mut().remove(&slot);
        // What is all free is one run.
        change.delete(keys::free(slot, 0));
        change.delete(keys::free_total(slot));
        keys::of_member(slot).into_iter().for_each(|key| change.delete(key));
        change.commit().await?;
        disk.size().set_on_record(None);
        Ok(())
    }

    /// Turns a replacement round, by one epoch: `old` takes data again, and `new` is retired in its place. What lies on
    /// `new` goes to `old` from then on as in any replacement, and so does what lies on others that `new` was to stand for.
    ///
    /// # Errors
    /// [`PoolError::NotReplaced`] when `new` does not take the place of `old`, or has taken it all but for the last word; what
    /// the pool says when it cannot be written.
    #[pooled]
    pub async fn reverse_replacement(self: &Rc<Self>, old: &Disk, new: &Disk) -> Result<(), PoolError> {
        let is_so = |(one, other): &(Rc<Disk>, Rc<Disk>)| one.id() == old.id() && other.id() == new.id();
        if self.members.replacements().iter().any(is_so) {
            self.forget_declared_lost(old).await?;
        }
        let mutex = self.mutex_for_request(SPANS_FOR_REQUESTS).await?;
        self.log.writable()?;
        let refused = |why| self.identity.not_replaced(old, why);
        if !self.members.replacements().iter().any(is_so) {
            return Err(refused("no replacement of it is under way"));
        }
        // Whoever strikes a disk forgets its room first.
        if !self.free_space.maps.borrow().contains_key(&old.slot()) {
            return Err(refused("it holds nothing any more, and is being removed from the pool"));
        }
        let (old, new) = (old.id(), new.id());
        self.epochs
            .change(|generation, _| {
                let mut plan = plan_of(generation);
                let back = plan.members.iter_mut().find(|member| member.disk == old);
                let slot = back.map(|member| {
                    (member.state, member.successor) = (MemberState::Active, None);
                    member.slot
                });
                if let Some(slot) = slot {
                    retire(&mut plan.members, Some(new), slot);
                }
                plan
            })
            .await?;
        self.labels.write_other_labels().await;
        drop(mutex);
        self.members.changed.notify_all();
        Ok(())
    }
}

//! The table of members: which disks a pool has, what each is for, and the epoch in force.
//!
//! Left to others: changing it (`epochs`, `membership`).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dolmen_block_io::sync::Notify;
use dolmen_disk::{Generation, Label, Member, MemberState};
use dolmen_journal::LogCopy;
use dolmen_mutation::mutation;
use dolmen_placement::DomainId;
use dolmen_store::Replica;
use dolmen_units::DISKS_MAX;
use dolmen_units::{DiskId, DiskSlot, EpochId};

use crate::disks::disk::{Ailment, Disk};
use crate::error::PoolError;
use crate::members::identity::Identity;
use crate::members::role::Role;

/// Members of an open pool and the epoch in force.
pub struct Members {
    pub(crate) identity: Rc<Identity>,
    pub(crate) disks: RefCell<BTreeMap<DiskSlot, Rc<Disk>>>,
    /// The epoch in force and its members.
    pub(crate) now: RefCell<Generation>,
    /// Members that take no rows.
    pub(crate) roles: RefCell<BTreeMap<DiskId, Role>>,
    /// Members of which it is on record that they are declared lost.
    pub(crate) declared_lost: RefCell<BTreeSet<DiskId>>,
    pub(crate) changed: Notify,
}

impl Members {
    pub(crate) fn new(
        identity: &Rc<Identity>,
        disks: BTreeMap<DiskSlot, Rc<Disk>>,
        now: Generation,
    ) -> Rc<Self> {
        Rc::new(Self {
            identity: Rc::clone(identity),
            disks: RefCell::new(disks),
            now: RefCell::new(now),
            roles: RefCell::default(),
            declared_lost: RefCell::default(),
            changed: Notify::new(),
        })
    }

    /// The epoch in force.
    #[must_use]
    pub fn epoch(&self) -> EpochId {
        self.now.borrow().epoch.id()
    }

    /// Disks that carry log and metadata.
    #[must_use]
    pub fn voters(&self) -> Vec<DiskId> {
        self.now.borrow().epoch.voters().to_vec()
    }

    /// All members, present or not, by slot.
    #[must_use]
    pub fn disks(&self) -> Vec<Rc<Disk>> {
        self.disks.borrow().values().cloned().collect()
    }

    /// A member.
    #[must_use]
    pub fn disk(&self, slot: DiskSlot) -> Option<Rc<Disk>> {
        self.disks.borrow().get(&slot).cloned()
    }

    /// Whether a member is away.
    #[must_use]
    pub fn lacks_disks(&self) -> bool {
        self.disks.borrow().values().any(|disk| !disk.is_present())
    }

    /// Members that are here, and the number of their [`seating`](Disk::seating).
    #[must_use]
    pub fn attachments(&self) -> BTreeMap<DiskSlot, u64> {
        let disks = self.disks.borrow();
        disks.values().filter(|disk| disk.is_present()).map(|disk| (disk.slot(), disk.seating())).collect()
    }

    /// Replacements that are not at their end: a retired disk, and the one that gets its slabs. The epoch that took the new
    /// disk in says so, so that no moment is left in which a daemon that dies leaves a retired disk that nobody knows of.
    #[must_use]
    pub fn replacements(&self) -> Vec<(Rc<Disk>, Rc<Disk>)> {
        let retired = self.disks().into_iter().filter(|disk| disk.member().state == MemberState::Retired);
        retired.filter_map(|old| Some((Rc::clone(&old), self.disk(old.member().successor?)?))).collect()
    }

    /// Where what is on a disk is to be in the end: there, unless it is being replaced.
    #[must_use]
    pub fn destination(&self, slot: DiskSlot) -> DiskSlot {
        let disks = self.disks.borrow();
        let mut last = slot;
        // No chain is longer than there are members.
        for _ in 0..disks.len() {
            let member = disks.get(&last).map(|disk| disk.member());
            let retired = member.filter(|member| member.state == MemberState::Retired);
            let Some(next) = retired.and_then(|member| member.successor) else { break };
            last = next;
        }
        last
    }

    /// What a member may fail together with.
    #[must_use]
    pub fn domain_of(&self, slot: DiskSlot) -> Option<DomainId> {
        self.disks.borrow().get(&slot).map(|disk| domain_of(&disk.member()))
    }

    /// Rings whenever disks, epoch or state have changed.
    #[must_use]
    pub fn changed(&self) -> &Notify {
        &self.changed
    }

    /// The member that is `what`: the name of its device here, its id or the first digits of that, or its slot.
    ///
    /// # Errors
    /// [`PoolError::NoSuchDisk`], also when more than one disk is meant.
    pub fn find_disk(&self, what: &str) -> Result<Rc<Disk>, PoolError> {
        let disks = self.disks();
        let exact = disks.iter().filter(|disk| disk.name() == what || disk.slot().0.to_string() == what);
        let by_id = disks.iter().filter(|disk| what.len() >= 4 && disk.id().to_string().starts_with(what));
        let mut found: Vec<&Rc<Disk>> = exact.chain(by_id).collect();
        found.dedup_by_key(|disk| disk.slot());
        match found.as_slice() {
            [disk] => Ok(Rc::clone(disk)),
            _ => Err(PoolError::NoSuchDisk { name: self.identity.name.clone(), what: what.to_owned() }),
        }
    }

    /// Members that are here and take new slabs.
    pub(crate) fn claimable(&self) -> Vec<Rc<Disk>> {
        let active = |disk: &Rc<Disk>| disk.is_present() && disk.member().state == MemberState::Active;
        self.disks().into_iter().filter(active).collect()
    }

    /// Whether a disk is a member, and not only of the number of one.
    #[must_use]
    pub fn is_member(&self, disk: &Disk) -> bool {
        self.disk(disk.slot()).is_some_and(|other| other.id() == disk.id())
    }

    /// Whether a label is that of a disk that was a member of this pool and is none any more. One that belongs to a line that
    /// went on apart is not.
    #[must_use]
    pub fn is_former_member(&self, label: &Label) -> bool {
        let is_member = self.disks().iter().any(|disk| disk.id() == label.disk);
        label.pool == self.identity.id && !is_member && self.now.borrow().epoch.continues(&label.base.epoch)
    }

    /// A slot for a new member.
    ///
    /// # Errors
    /// [`PoolError::Full`].
    pub fn free_slot(&self) -> Result<DiskSlot, PoolError> {
        let disks = self.disks.borrow();
        let slots = (0..DISKS_MAX).filter_map(|slot| u16::try_from(slot).ok()).map(DiskSlot);
        let why = "it has as many as a pool can have";
        slots
            .filter(|slot| !disks.contains_key(slot))
            .min()
            .ok_or(PoolError::Full { name: self.identity.name.clone(), why })
    }

    /// Log copies and replicas of the metadata on the disks named.
    pub(crate) fn copies_of(&self, voters: &[DiskId]) -> (Vec<LogCopy>, Vec<Replica>) {
        let devices = self.disks().into_iter().filter(|disk| voters.contains(&disk.id()));
        let devices: Vec<_> = devices.filter_map(|disk| Some((disk.id(), disk.device()?))).collect();
        let copies =
            devices.iter().map(|(disk, device)| LogCopy { disk: *disk, device: Rc::clone(device) }).collect();
        let replicas = devices.into_iter().map(|(disk, device)| Replica { disk, device }).collect();
        (copies, replicas)
    }

    pub(crate) fn note_failed_id(&self, id: DiskId) {
        self.disks().iter().filter(|disk| disk.id() == id).for_each(|disk| disk.absence().note_failed());
    }

    /// Fault domains of the members that take new slabs, if they are here, and that `is_meant` means.
    pub(crate) fn domains(&self, is_meant: impl Fn(&Disk) -> bool) -> u32 {
        let members = self.disks().into_iter().filter(|disk| self.takes_rows(disk) && is_meant(disk));
        let domains: BTreeSet<DomainId> = members.map(|disk| domain_of(&disk.member())).collect();
        u32::try_from(domains.len()).unwrap_or(u32::MAX)
    }

    /// What is known against the disk in a slot.
    #[must_use]
    pub fn ailment_of(&self, slot: DiskSlot) -> Option<Ailment> {
        self.disk(slot).filter(|disk| disk.is_present()).and_then(|disk| disk.ailment())
    }

    /// What a member is, if it takes no rows.
    #[must_use]
    pub fn role_of(&self, disk: &Disk) -> Option<Role> {
        self.roles.borrow().get(&disk.id()).copied()
    }

    pub(crate) fn note_role(&self, disk: DiskId, role: Option<Role>) -> Option<Role> {
        let mut roles = self.roles.borrow_mut();
        match role {
            Some(role) => roles.insert(disk, role),
            None => roles.remove(&disk),
        }
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

    /// Whether a member that is about to leave, with another in its place or without, is lost for good, and what it alone had is given
    /// up (docs/design/0025).
    #[must_use]
    pub fn is_declared_lost(&self, disk: &Disk) -> bool {
        self.is_leaving(disk) && self.declared_lost.borrow().contains(&disk.id())
    }

    pub(crate) fn is_leaving(&self, disk: &Disk) -> bool {
        self.is_member(disk) && disk.member().state == MemberState::Retired
    }
}

/// What may fail as one with a disk: the number it was given, or else itself alone.
pub(crate) fn domain_of(member: &Member) -> DomainId {
    const ALONE: u32 = 1 << 31;
    match member.fault_domain {
        0 => DomainId(ALONE + u32::from(member.slot.0)),
        number => DomainId(number),
    }
}

/// Allocation units of a disk in all; of one that is away, those that are on record.
pub(crate) fn size_of(disk: &Disk) -> u64 {
    disk.size().units()
}

//! Free allocation units of all members, and what they offer to new slabs.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_disk::{Extent, MemberState};
use dolmen_mutation::mutation;
use dolmen_placement::{DomainId, Kept, Offer, Standing, kept};
use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes, DiskSlot};

use crate::disks::disk::{Disk, DiskState};
use crate::members::role::Role;
use crate::members::table::{Members, domain_of, size_of};
use crate::metadata::map::Purpose;
use crate::room::free_map::{FreeMap, Run};

/// Allocation units that ordinary claims leave free on each disk: four slabs of 64 MiB with their tables, so that
/// moves and repairs find room on a full pool. On a small disk, a sixteenth.
const RESERVE_UNITS: u64 = 4 * (64 * 1024 * 1024 + 512 * 1024) / ALLOCATION_UNIT_BYTES;
/// What a small slab takes, with its tables.
const SLAB_UNITS: u64 = (2 << 20) / ALLOCATION_UNIT_BYTES;

/// Room on a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskRoom {
    /// Which disk.
    pub slot: DiskSlot,
    /// Data area.
    pub data: Bytes,
    /// Of it, not given to any slab.
    pub free: Bytes,
    /// Of that, kept for moves and repairs.
    pub reserve: Bytes,
    /// What may fail as one with it.
    pub domain: DomainId,
    /// Whether it is here.
    pub state: DiskState,
}

/// Free allocation units of the members of an open pool.
pub struct FreeSpace {
    pub(crate) members: Rc<Members>,
    pub(crate) maps: RefCell<BTreeMap<DiskSlot, FreeMap>>,
    /// Lost disks for which claims leave room.
    pub(crate) keep: Cell<u32>,
    pub(crate) order_number: Cell<u64>,
}

impl FreeSpace {
    pub(crate) fn new(members: &Rc<Members>) -> Rc<Self> {
        Rc::new(Self {
            members: Rc::clone(members),
            maps: RefCell::default(),
            keep: Cell::new(0),
            order_number: Cell::new(0),
        })
    }

    /// Room on every member, by slot.
    #[must_use]
    pub fn room(&self) -> Vec<DiskRoom> {
        let free = self.maps.borrow();
        let room = |disk: &Rc<Disk>| {
            let units = free.get(&disk.slot()).map_or(0, FreeMap::total);
            DiskRoom {
                slot: disk.slot(),
                data: disk.data_bytes(),
                free: Bytes(units * ALLOCATION_UNIT_BYTES),
                reserve: Bytes(self.reserve_of(disk) * ALLOCATION_UNIT_BYTES),
                domain: domain_of(&disk.member()),
                state: disk.state(),
            }
        };
        self.members.disks().iter().map(room).collect()
    }

    /// Allocation units that ordinary claims leave on a disk, whether it is here or not: of one that is absent, its size is on
    /// record.
    pub(crate) fn reserve_of(&self, disk: &Disk) -> u64 {
        RESERVE_UNITS.min(size_of(disk) / 16)
    }

    /// Free runs of a disk, in order of address; `None` while it has not been given its room, or has it no more.
    #[must_use]
    pub fn free_runs(&self, slot: DiskSlot) -> Option<Vec<Run>> {
        Some(self.maps.borrow().get(&slot)?.runs().collect())
    }

    /// Returns the first free runs of a disk that begin at an allocation unit or behind it, in order of address, so many at most;
    /// none where [`free_runs`](Self::free_runs) has none.
    #[must_use]
    pub fn free_runs_from(&self, slot: DiskSlot, first: u64, max: usize) -> Vec<Run> {
        self.maps.borrow().get(&slot).map_or_else(Vec::new, |map| map.runs_from(first, max))
    }

    /// Returns the allocation units of a member, which may be away; `None` where [`free_runs`](Self::free_runs) is.
    #[must_use]
    pub fn units_on(&self, slot: DiskSlot) -> Option<u64> {
        Some(self.maps.borrow().get(&slot)?.units())
    }

    /// Has a member of a pool that is open for reading the allocation units that its label says more than the map: a growth was
    /// cut short, and the next opening for writing gives them.
    pub(crate) fn show_gained(&self, disk: &Disk, extent: Extent) {
        let units = extent.unit_count();
        let Some(known) = disk.size().on_record().filter(|known| *known < units) else { return };
        if let Some(map) = self.maps.borrow_mut().get_mut(&disk.slot()) {
            map.extend(units);
            let _ = map.give(Run { first: known, count: units - known });
        }
        disk.size().set_on_record(Some(units));
    }

    /// Returns what is free on a member; `None` while it has not been given its room, or has it no more.
    #[must_use]
    pub fn free_on(&self, slot: DiskSlot) -> Option<Bytes> {
        Some(Bytes(self.maps.borrow().get(&slot)?.total() * ALLOCATION_UNIT_BYTES))
    }

    /// Whether any slab has allocation units of a member, which may be away.
    #[must_use]
    pub fn holds_rows(&self, disk: &Disk) -> bool {
        let free = self.maps.borrow().get(&disk.slot()).map(FreeMap::total);
        free.is_some_and(|free| free < size_of(disk))
    }

    /// What all slabs take on the members, also on those that are away.
    #[must_use]
    pub fn used(&self) -> Bytes {
        let free = self.maps.borrow();
        let of = |disk: &Rc<Disk>| Some(size_of(disk).saturating_sub(free.get(&disk.slot())?.total()));
        Bytes(self.members.disks().iter().filter_map(of).sum::<u64>() * ALLOCATION_UNIT_BYTES)
    }

    /// Lost disks for whose repair claims leave room.
    #[must_use]
    pub fn keeps_room_for(&self) -> u32 {
        self.keep.get()
    }

    /// The turn of the next row that is placed.
    #[must_use]
    pub fn next_in_order(&self) -> u64 {
        self.order_number.get()
    }

    /// What each disk that takes new slabs has to offer.
    #[must_use]
    pub fn offers(&self, purpose: Purpose) -> Vec<Offer> {
        self.offers_of(|disk| self.members.takes_rows(disk) && disk.is_present(), purpose)
    }

    /// As [`offers`](Self::offers), absent disks included: a row with copies may have some there, as long as it has one here.
    #[must_use]
    pub fn offers_with_absent(&self, purpose: Purpose) -> Vec<Offer> {
        self.offers_of(|disk| self.members.takes_rows(disk), purpose)
    }

    /// As [`offers`](Self::offers) of a claim, with the room that is kept for repair: what moves may use.
    #[must_use]
    pub fn offers_for_repair(&self) -> Vec<Offer> {
        let mut offers = self.offers(Purpose::Claim);
        offers.retain(|offer| offer.standing == Standing::Claimable);
        offers.iter_mut().for_each(|offer| offer.keep = 0);
        offers
    }

    /// As [`offers_for_repair`](Self::offers_for_repair), with a member as if it took rows.
    pub(crate) fn offers_as_if(&self, other: &Disk) -> Vec<Offer> {
        let is_other = |disk: &Rc<Disk>| disk.id() == other.id();
        let here = |disk: &Rc<Disk>| disk.is_present() && (is_other(disk) || self.members.takes_rows(disk));
        self.offers_with(here, Purpose::Claim, 0)
    }

    /// What a member that takes no rows would offer to a repair if it took them.
    #[must_use]
    pub fn offer_as_member(&self, disk: &Disk) -> Option<Offer> {
        let offers = self.offers_as_if(disk);
        offers.into_iter().find(|offer| offer.slot == disk.slot())
    }

    /// Whether hardly a row fits any more; only a mutant asks.
    pub(crate) fn is_short(&self) -> bool {
        let has_room = |offer: &Offer| offer.free_units > offer.reserve_units + SLAB_UNITS;
        self.offers(Purpose::Claim).into_iter().filter(has_room).count() < 2
    }

    /// What a disk is to those that keep room, where it takes nothing now.
    fn standing_of(&self, disk: &Rc<Disk>) -> Standing {
        match (disk.member().state, self.members.role_of(disk)) {
            (MemberState::Retired, _) => Standing::Leaving,
            (MemberState::Active, None) => Standing::Away,
            (MemberState::Active, Some(Role::Spare)) if disk.is_present() && !self.holds_rows(disk) => {
                Standing::Spare
            }
            // What it may have goes to the others.
            (MemberState::Active, Some(Role::Spare | Role::Idle)) => Standing::Leaving,
        }
    }

    /// For how many lost disks there is room, and for how many people want it kept.
    #[must_use]
    pub fn kept_room(&self) -> Kept {
        kept(&self.offers_keeping(self.keep.get()))
    }

    /// What claims would find if room for so many lost disks were kept.
    #[must_use]
    pub fn offers_keeping(&self, losses: u32) -> Vec<Offer> {
        let here = |disk: &Rc<Disk>| self.members.takes_rows(disk) && disk.is_present();
        self.offers_with(here, Purpose::Claim, losses)
    }

    fn offers_of(&self, is_meant: impl Fn(&Rc<Disk>) -> bool, purpose: Purpose) -> Vec<Offer> {
        let is_kept = purpose == Purpose::Claim && !mutation!(KeptRoomIsClaimed);
        let keep = if is_kept { self.keep.get() } else { 0 };
        self.offers_with(is_meant, purpose, keep)
    }

    /// Where room is kept, disks that are not meant are told as well: what is on them may have to be repaired.
    fn offers_with(&self, is_meant: impl Fn(&Rc<Disk>) -> bool, purpose: Purpose, keep: u32) -> Vec<Offer> {
        let free = self.maps.borrow();
        let offer = |disk: &Rc<Disk>| {
            let size = size_of(disk);
            Offer {
                slot: disk.slot(),
                domain: domain_of(&disk.member()),
                free_units: free.get(&disk.slot()).map_or(0, FreeMap::total),
                reserve_units: if purpose == Purpose::Claim { self.reserve_of(disk) } else { 0 },
                standing: if is_meant(disk) { Standing::Claimable } else { self.standing_of(disk) },
                space_rows: 0,
                size_units: size,
                keep,
            }
        };
        if keep == 0 {
            return self.members.disks().iter().filter(|disk| is_meant(disk)).map(offer).collect();
        }
        let mut offers: Vec<Offer> = self.members.disks().iter().map(offer).collect();
        // What is on a disk that is being replaced goes to the one that takes its place, and to no other.
        for (old, new) in self.members.replacements() {
            let leaving = offers.extract_if(.., |offer| offer.slot == old.slot()).next();
            let used = leaving.map_or(0, |offer| offer.size_units.saturating_sub(offer.free_units));
            let taken = offers.iter_mut().filter(|offer| offer.slot == new.slot());
            taken.for_each(|offer| offer.free_units = offer.free_units.saturating_sub(used));
        }
        offers
    }
}

//! What changes would do, in figures.

use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_api::{Change, ErrorBody, ErrorCode, Plan, SCHEMA};
use dolmen_disk::Extent;
use dolmen_mutation::mutation;
use dolmen_placement::{DomainId, Offer, Placer, Standing};
use dolmen_pool::Purpose;
use dolmen_space::{LARGE_SPACE_BYTES, Provisioning, Resiliency, Space, SpaceSpec, slab_units};
use dolmen_units::{ALLOCATION_UNIT_BYTES, BLOCK_BYTES, Bytes, DiskSlot, Name};

use crate::answer::Answer;
use crate::fault;
use crate::open_pool::OpenPool;
use crate::open_pools::OpenPools;
use crate::rooms::{usable_for, usable_now};

/// The reserve of a disk, as the pool keeps it: four slabs of 64 MiB with their tables, or a sixteenth.
const RESERVE_UNITS: u64 = 4 * (64 * 1024 * 1024 + 512 * 1024) / ALLOCATION_UNIT_BYTES;

/// How a change is taken back.
pub(crate) enum Undo {
    /// By a command.
    By(String),
    /// It leaves nothing that anybody would take back.
    NotNeeded,
    /// By no command of this version.
    ByNothing,
}

impl Undo {
    /// By a command, unless what disks held is lost, which nothing brings back.
    pub(crate) fn unless_destroying(destroyed: &[String], command: String) -> Self {
        if destroyed.is_empty() { Self::By(command) } else { Self::ByNothing }
    }
}

/// Room before and after a change, and bytes that it moves.
pub(crate) struct Figures {
    pub(crate) before: u64,
    pub(crate) after: u64,
    pub(crate) moved: u64,
}

impl Figures {
    /// Of a change that moves nothing.
    pub(crate) fn of_room(before: u64, after: u64) -> Self {
        Self { before, after, moved: 0 }
    }

    pub(crate) fn plan(self, undo: Undo, steps: Vec<String>) -> Plan {
        let (is_reversible, undo) = match undo {
            Undo::By(command) => (true, Some(command)),
            Undo::NotNeeded => (true, None),
            Undo::ByNothing => (false, None),
        };
        Plan {
            usable_before_bytes: self.before,
            usable_after_bytes: self.after,
            moved_bytes: self.moved,
            is_reversible,
            undo,
            steps,
        }
    }
}

/// What an empty disk of this kind will offer.
pub(crate) fn offer_of(slot: u16, extent: &Extent, fault_domain: u32) -> Offer {
    let units = extent.unit_count();
    // A domain of its own, unless it was given a number: those below are given by people.
    let domain = if fault_domain == 0 { (1 << 31) + u32::from(slot) } else { fault_domain };
    Offer {
        slot: DiskSlot(slot),
        domain: DomainId(domain),
        free_units: units,
        reserve_units: RESERVE_UNITS.min(units / 16),
        standing: Standing::Claimable,
        space_rows: 0,
        size_units: units,
        keep: 0,
    }
}

/// What a space of some resiliency could still take, on these disks.
pub(crate) async fn usable(offers: &Rc<[Offer]>, resiliency: Resiliency) -> Bytes {
    let Ok(name) = "x".parse() else { return Bytes::ZERO };
    usable_for(offers, &SpaceSpec::usual(name, Bytes::gib(1), resiliency)).await
}

/// The largest fixed space of some resiliency that could be made, on these disks.
pub(crate) async fn usable_fixed(offers: &Rc<[Offer]>, resiliency: Resiliency) -> Bytes {
    let Ok(name) = "x".parse() else { return Bytes::ZERO };
    let usual =
        SpaceSpec { provisioning: Provisioning::Fixed, ..SpaceSpec::usual(name, Bytes::gib(1), resiliency) };
    let fits = usable_for(offers, &usual).await;
    if fits <= LARGE_SPACE_BYTES {
        return fits;
    }
    // Above the limit rows are longer still; where those do not reach it, the largest is one of the limit.
    let large = usable_for(offers, &SpaceSpec { size: fits, ..usual }).await;
    large.max(LARGE_SPACE_BYTES)
}

/// Of the losses for which room is kept, those behind which rows of a space could be repaired, as far as the number of disks goes.
pub(crate) fn repairable_for(offers: &[Offer], spec: &SpaceSpec) -> u32 {
    spec.check().map_or(u32::MAX, |request| Placer::new(request, units_for(spec)).repairable(offers))
}

/// What plans speak of: room for a mirror of two copies, or in a single fault domain for one.
pub(crate) fn usual_room(offers: &[Offer]) -> u64 {
    let resiliency = usual_resiliency(offers);
    let Ok(name) = "x".parse() else { return 0 };
    usable_now(offers, &SpaceSpec::usual(name, Bytes::gib(1), resiliency)).0
}

fn usual_resiliency(offers: &[Offer]) -> Resiliency {
    let domains: BTreeSet<DomainId> = offers.iter().map(|offer| offer.domain).collect();
    if domains.len() > 1 { Resiliency::Mirror { copies: 2 } } else { Resiliency::Simple }
}

/// What the disks of a pool offer to claims, taken once for all that a question asks of it.
pub(crate) struct Offered {
    here: Rc<[Offer]>,
    with_absent: Rc<[Offer]>,
}

impl OpenPool {
    pub(crate) fn offered(&self) -> Offered {
        let with_absent = self.spaces.pool().free_space().offers_with_absent(Purpose::Claim);
        Offered { here: self.offers().into(), with_absent: with_absent.into() }
    }

    pub(crate) fn offers(&self) -> Vec<Offer> {
        self.spaces.pool().free_space().offers(Purpose::Claim)
    }

    /// Whether a small thin space of some resiliency could be made now.
    pub(crate) fn can_make(&self, resiliency: Resiliency) -> bool {
        let taken = |name: &Name| self.spaces.find(name.as_str()).is_ok();
        let mut names = (0u64..).filter_map(|number| format!("new{number}").parse().ok());
        let Some(name) = names.find(|name| !taken(name)) else { return false };
        let spec = SpaceSpec::usual(name, Bytes(BLOCK_BYTES), resiliency);
        self.spaces.changes().check_create(&spec).is_ok()
    }

    /// Whether a new row of a space finds too few disks in use, or too few fault domains, while others are absent: no deleting
    /// and no trimming helps then.
    pub(crate) async fn lacks_disks_for(&self, space: &Space, offered: &Offered) -> bool {
        let is_absent = self.spaces.pool().disks().iter().any(|disk| !disk.is_present());
        let emptied = |offer: &Offer| Offer { free_units: u64::from(u32::MAX), ..*offer };
        let emptied = |offers: &[Offer]| offers.iter().map(emptied).collect();
        is_absent && {
            let (here, with_absent) = (emptied(&offered.here), emptied(&offered.with_absent));
            room_for(&space.spec(), &Offered { here, with_absent }).await.0 == 0
        }
    }

    /// A plan that leaves the room as it is.
    pub(crate) fn plan(&self, undo: Undo, steps: Vec<String>) -> Plan {
        let room = usual_room(&self.offers());
        Figures::of_room(room, room).plan(undo, steps)
    }

    /// How much room a space of this kind would take when it is full, its rows as the next one.
    pub(crate) fn full_size(&self, spec: &SpaceSpec) -> Answer<u64> {
        let request = spec.check().map_err(|error| fault::space(&error))?;
        let offers = self
            .spaces
            .changes()
            .offers_with_cache(spec.write_cache())
            .map_err(|error| fault::space(&error))?;
        let placed = Placer::new(request, units_for(spec)).place(&offers, 0);
        let of_row = match &placed {
            Ok(placement) => placement.slabs.iter().map(|slab| slab.units).sum(),
            // No row fits; one of them would take this at least.
            Err(_) => units_for(spec)(spec.row_bytes()) * u64::from(spec.resiliency.copies()),
        };
        let rows = spec.size.0.div_ceil(spec.row_bytes().0);
        Ok(rows.saturating_mul(of_row).saturating_mul(ALLOCATION_UNIT_BYTES))
    }

    /// Free bytes on all disks that are here.
    pub(crate) fn free(&self) -> u64 {
        let room = self.spaces.pool().free_space().room();
        room.iter().filter(|room| room.state == dolmen_pool::DiskState::Present).map(|room| room.free.0).sum()
    }

    /// The room after `bytes` more, or fewer, are free, in proportion to how the room depends on them now.
    pub(crate) fn room_with_free(&self, free_after: u64) -> u64 {
        let mut offers = self.offers();
        let free_before = self.free().max(1);
        for offer in &mut offers {
            let scaled = u128::from(offer.free_units) * u128::from(free_after) / u128::from(free_before);
            offer.free_units = u64::try_from(scaled).unwrap_or(u64::MAX);
        }
        usual_room(&offers)
    }
}

/// What a space can take still: in rows with all of their copies on disks that are here or, where there is no place for
/// those, with some on absent disks.
pub(crate) async fn room_for(spec: &SpaceSpec, Offered { here, with_absent }: &Offered) -> Bytes {
    let whole = usable_for(here, spec).await;
    let Resiliency::Mirror { copies } = spec.resiliency else { return whole };
    if whole.0 > 0 {
        return whole;
    }
    let with = |resiliency| SpaceSpec { resiliency, ..spec.clone() };
    let mut fewer = usable_for(here, &with(Resiliency::Simple)).await;
    for copies in 2..copies {
        fewer = fewer.max(usable_for(here, &with(Resiliency::Mirror { copies })).await);
    }
    usable_for(with_absent, spec).await.min(fewer)
}

impl OpenPools {
    /// Computes what plans say of the room of pools as they are now, on another thread, so that they find it known.
    pub(crate) async fn know_rooms(&self) {
        for open in self.open_pools() {
            let offers: Rc<[Offer]> = open.offers().into();
            let _ = usable(&offers, usual_resiliency(&offers)).await;
        }
    }
}

/// A change that was only planned.
pub(crate) fn planned(plan: Plan, message: impl Into<String>) -> Change {
    change(plan, message, false)
}

/// A change that was made.
pub(crate) fn made(plan: Plan, message: impl Into<String>) -> Change {
    change(plan, message, true)
}

fn change(plan: Plan, message: impl Into<String>, is_changed: bool) -> Change {
    Change {
        schema: SCHEMA,
        is_changed,
        plan,
        message: message.into(),
        warnings: Vec::new(),
        job: None,
        further_jobs: Vec::new(),
        pool: None,
        space: None,
        attachment: None,
        export: None,
        volume: None,
        share: None,
        volume_plan: None,
    }
}

/// Refuses to destroy something whose name was not typed.
pub(crate) fn check_typed(typed: Option<&str>, name: &str, what: &str) -> Answer<()> {
    match typed {
        Some(typed) if typed == name || mutation!(AnyNameDestroys) => Ok(()),
        Some(typed) => {
            let message =
                format!("{typed:?} was typed to destroy {what} {name}: not the same; nothing was changed");
            Err(ErrorBody::new(ErrorCode::NeedsConfirmation, message).on(name))
        }
        None => {
            let message = format!("destroying {what} {name} loses its data for good; nothing was changed");
            let hint = format!("confirm with --destroy={name}");
            Err(ErrorBody::new(ErrorCode::NeedsConfirmation, message).on(name).hint(hint))
        }
    }
}

/// How many allocation units a slab of a space takes, by the bytes of data in it.
fn units_for(spec: &SpaceSpec) -> impl Fn(Bytes) -> u64 + Copy + use<> {
    slab_units(spec.interleave, u32::from(spec.resiliency.parity_columns()))
}

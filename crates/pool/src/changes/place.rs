//! Which disks a row gets, and which of their allocation units.

use std::collections::BTreeSet;

use dolmen_placement::{Code, DomainId, Offer, Placement, Placer, Request, Resiliency, SlabPlace, Width};
use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes, DiskSlot};

use crate::changes::change::{Change, Claim, give};
use crate::error::PoolError;
use crate::members::table::domain_of;
use crate::metadata::map::Purpose;
use crate::room::free_map::RUNS_MAX;

/// A row's slabs and, in the same order, their allocation units.
pub(crate) type Placed = (Placement, Vec<Claim>);

impl Change<'_> {
    /// Chooses disks for a row and takes their allocation units: of absent disks as well, where those that are here do not do for
    /// all copies (docs/design/0002). Every column has a slab that is here. `slab_units` tells how many allocation units a slab of
    /// so many bytes needs; `own` tells how many rows of the space lie on a disk already, which matters for `span`.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`], and nothing is taken.
    pub fn place(
        &mut self,
        request: &Request,
        slab_units: impl Fn(Bytes) -> u64,
        own: impl Fn(DiskSlot) -> u64,
    ) -> Result<Placed, PoolError> {
        let rotation = self.changes.free_space.order_number.get();
        self.changes.free_space.order_number.set(rotation + 1);
        let lacks_domains = self.lacks_domains(request.resiliency());
        // Fault domains that are absent come back, and a row with all copies in one would stay so.
        if lacks_domains && let Some(placed) = self.place_degraded(request, &slab_units, rotation) {
            return Ok(placed);
        }
        match self.place_here(&self.placer(request, &slab_units), &own, rotation) {
            Err(refused @ PoolError::NoSpace { .. }) if !lacks_domains => {
                self.place_degraded(request, &slab_units, rotation).ok_or(refused)
            }
            other => other,
        }
    }

    /// As [`place`](Self::place), on some of the disks that are here and no others; `None` where these do not do for all copies,
    /// or where the copies would be kept apart better on disks that are absent.
    pub fn place_among(
        &mut self,
        request: &Request,
        slab_units: impl Fn(Bytes) -> u64,
        among: &BTreeSet<DiskSlot>,
    ) -> Option<Placed> {
        if self.lacks_domains(request.resiliency()) {
            return None;
        }
        let rotation = self.changes.free_space.order_number.get();
        let others = self.changes.free_space.offers(self.purpose).into_iter().map(|offer| offer.slot);
        let left_out: Vec<DiskSlot> = others.filter(|slot| !among.contains(slot)).collect();
        let placer = self.placer(request, &slab_units);
        let own = |_| 0;
        let placed = match self.place_sparing(&placer, &own, rotation, &left_out) {
            Some(placed) => placed,
            None => self.place_without(left_out, &placer, &own, rotation).ok()?,
        };
        self.changes.free_space.order_number.set(rotation + 1);
        Some(placed)
    }

    /// What places rows of a request. What moves may use the room that is kept for repair, and is to be repaired all the same.
    fn placer(&self, request: &Request, slab_units: impl Fn(Bytes) -> u64) -> Placer {
        let placer = Placer::new(*request, slab_units);
        match self.purpose {
            Purpose::Move => placer.no_wider_than_claims(&self.changes.free_space.offers(Purpose::Claim)),
            Purpose::Claim | Purpose::Release => placer,
        }
    }

    /// Whether the members have fault domains enough to keep the copies of a column apart by them, and those here do not.
    fn lacks_domains(&self, resiliency: Resiliency) -> bool {
        let Resiliency::Striped { copies } = resiliency else { return false };
        self.keeps_domains_apart(copies) && self.changes.members.domains(|disk| disk.is_present()) < copies
    }

    fn keeps_domains_apart(&self, copies: u32) -> bool {
        self.changes.members.domains(|_| true) >= copies
    }

    /// A row on disks that are here; on those that are slow or failing where it cannot be laid otherwise.
    fn place_here(
        &mut self,
        placer: &Placer,
        own: &impl Fn(DiskSlot) -> u64,
        rotation: u64,
    ) -> Result<Placed, PoolError> {
        match self.place_sparing(placer, own, rotation, &[]) {
            Some(placed) => Ok(placed),
            None => self.place_without(Vec::new(), placer, own, rotation),
        }
    }

    /// A row on disks that are here, but for some.
    pub(crate) fn place_without(
        &mut self,
        mut left_out: Vec<DiskSlot>,
        placer: &Placer,
        own: &impl Fn(DiskSlot) -> u64,
        rotation: u64,
    ) -> Result<Placed, PoolError> {
        // A disk whose free allocation units lie in too many pieces for one slab is left out and the choice made again.
        loop {
            let mut offers = self.changes.free_space.offers(self.purpose);
            offers.iter_mut().for_each(|offer| offer.space_rows = own(offer.slot));
            let placement = placer.place_without(&offers, &left_out, rotation);
            let placement = placement
                .map_err(|source| PoolError::NoSpace { name: self.changes.identity.name.clone(), source })?;
            let mut claims = Vec::with_capacity(placement.slabs.len());
            for slab in &placement.slabs {
                match self.take(slab.slot, slab.units) {
                    Ok(claim) => claims.push(claim),
                    Err(_) => {
                        left_out.push(slab.slot);
                        break;
                    }
                }
            }
            if claims.len() == placement.slabs.len() {
                return Ok((placement, claims));
            }
            self.untake_all(&claims);
        }
    }

    /// A row with as many copies here as possible, and the others on members that are absent.
    fn place_degraded(
        &mut self,
        request: &Request,
        slab_units: &impl Fn(Bytes) -> u64,
        rotation: u64,
    ) -> Option<Placed> {
        let Resiliency::Striped { copies } = request.resiliency() else { return None };
        if !self
            .changes
            .members
            .disks()
            .iter()
            .any(|disk| self.changes.members.takes_rows(disk) && !disk.is_present())
        {
            return None;
        }
        // As wide as can be, or else as narrow: that one fits wherever any does.
        let narrow = Width::Columns(1);
        let widths = [Some(request.width()), (request.width() == Width::Auto).then_some(narrow)];
        let whole = Placer::new(*request, slab_units);
        let domains = self.changes.members.domains(|disk| disk.is_present());
        let here_max = if self.keeps_domains_apart(copies) { domains.min(copies - 1) } else { copies - 1 };
        for here in (1..=here_max).rev() {
            for width in widths.into_iter().flatten() {
                let striped = Resiliency::Striped { copies: here };
                let fewer = Request::new(striped, width, request.row(), request.interleave()).ok()?;
                let placed = self.place_here(&Placer::new(fewer, slab_units), &|_| 0, rotation);
                let Ok((placement, claims)) = placed else { continue };
                match self.take_further(&whole, &placement.slabs, (here, copies)) {
                    Some(further) => return Some(with_further((placement, claims), further, copies)),
                    None => self.untake_all(&claims),
                }
            }
        }
        None
    }

    /// Slabs for the copies that the columns of a row have not, on disks that are here or absent.
    fn take_further(
        &mut self,
        placer: &Placer,
        placed: &[SlabPlace],
        (here, copies): (u32, u32),
    ) -> Option<Vec<(SlabPlace, Claim)>> {
        let domains = self.keeps_domains_apart(copies);
        let mut used: BTreeSet<DiskSlot> = placed.iter().map(|slab| slab.slot).collect();
        let mut taken: Vec<(SlabPlace, Claim)> = Vec::new();
        for column in placed.chunk_by(|one, next| one.column == next.column) {
            let Some(first) = column.first() else { continue };
            let mut of_column: Vec<DiskSlot> = column.iter().map(|slab| slab.slot).collect();
            for copy in here..copies {
                let Some(claim) = self.take_extra(placer, &of_column, first.units, (&used, domains)) else {
                    let claims: Vec<Claim> = taken.into_iter().map(|(_, claim)| claim).collect();
                    self.untake_all(&claims);
                    return None;
                };
                of_column.push(claim.slot);
                used.insert(claim.slot);
                taken.push((SlabPlace { slot: claim.slot, copy, ..*first }, claim));
            }
        }
        Some(taken)
    }

    /// Allocation units of one more disk for a column: one that is here if possible, and that the row does not use yet.
    fn take_extra(
        &mut self,
        placer: &Placer,
        of_column: &[DiskSlot],
        units: u64,
        (used, domains_apart): (&BTreeSet<DiskSlot>, bool),
    ) -> Option<Claim> {
        let domain = |slot: DiskSlot| self.changes.members.disk(slot).map(|disk| domain_of(&disk.member()));
        let others: Vec<Option<DomainId>> = of_column.iter().map(|slot| domain(*slot)).collect();
        let is_apart = |offer: &Offer| !domains_apart || !others.contains(&Some(offer.domain));
        let mut fit: Vec<_> = placer
            .claimable(&self.changes.free_space.offers_with_absent(self.purpose))
            .into_iter()
            .filter(|offer| !of_column.contains(&offer.slot) && is_apart(offer))
            .filter(|offer| offer.claimable_units() >= units)
            .map(|offer| {
                let is_here = self.changes.members.disk(offer.slot).is_some_and(|disk| disk.is_present());
                let fitness = self.fitness(offer.slot);
                (is_here, fitness, !used.contains(&offer.slot), offer.claimable_units(), offer.slot)
            })
            .collect();
        fit.sort_unstable();
        fit.into_iter().rev().find_map(|(.., slot)| self.take(slot, units).ok())
    }

    /// Takes allocation units of one disk.
    ///
    /// # Errors
    /// [`PoolError::Fragmented`] when up to [`RUNS_MAX`] runs do not hold as many.
    pub fn take(&mut self, slot: DiskSlot, units: u64) -> Result<Claim, PoolError> {
        let runs = self.changes.free_space.maps.borrow_mut().get_mut(&slot).and_then(|map| map.take(units));
        let runs = runs.ok_or(PoolError::Fragmented {
            name: self.changes.identity.name.clone(),
            slot,
            wanted: Bytes(units * ALLOCATION_UNIT_BYTES),
            runs_max: RUNS_MAX,
        })?;
        self.taken.extend(runs.iter().map(|run| (slot, *run)));
        Ok(Claim { slot, runs })
    }

    pub(crate) fn untake_all(&mut self, claims: &[Claim]) {
        for claim in claims {
            self.taken.retain(|(slot, run)| *slot != claim.slot || !claim.runs.contains(run));
            let _ = give(self.changes, claim.runs.iter().map(|run| (claim.slot, *run)));
        }
    }
}

/// A row with further slabs, in the order of columns, and of copies within each.
fn with_further((placement, claims): Placed, further: Vec<(SlabPlace, Claim)>, copies: u32) -> Placed {
    let mut all: Vec<(SlabPlace, Claim)> = placement.slabs.into_iter().zip(claims).chain(further).collect();
    all.sort_by_key(|(slab, _)| (slab.column, slab.copy));
    let (slabs, claims) = all.into_iter().unzip();
    (Placement { code: Code::Striped { copies }, columns: placement.columns, slabs }, claims)
}

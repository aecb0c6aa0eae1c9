//! Disks that are known to be slow or failing get new slabs last (docs/design/0022).
//!
//! Invariants:
//! - What can be laid with them is laid, and with the same redundancy: they are tried last, and not left out.
//! - Doing without a slow disk takes no room from the rows that come later.

use std::collections::BTreeSet;

use dolmen_mutation::mutation;
use dolmen_placement::{Code, Offer, Placement, Placer};
use dolmen_units::DiskSlot;

use crate::changes::change::{Change, Changes};
use crate::changes::place::Placed;
use crate::disks::disk::Ailment;

/// Of what a row holds, the part that doing without a slow disk may cost beside it: columns that differ by an interleave shift
/// what fits by as much.
const LOSS_PARTS: u64 = 256;

/// Disks to do without, and whether it is worth room.
struct Sparing {
    spared: BTreeSet<DiskSlot>,
    /// Those that are done without at any price; what fits is reckoned with the others.
    at_any_price: BTreeSet<DiskSlot>,
}

impl Changes {
    /// Ways to do without disks that are slow or failing, the best first; none where all are well.
    fn sparings(&self) -> Vec<Sparing> {
        if mutation!(NewRowsAnywhere) {
            return Vec::new();
        }
        let with = |ailment| -> BTreeSet<DiskSlot> {
            let disks = self.members.disks();
            let slots = disks.iter().map(|disk| disk.slot());
            slots.filter(|slot| self.members.ailment_of(*slot) == Some(ailment)).collect()
        };
        let (slow, failing) = (with(Ailment::Slow), with(Ailment::Failing));
        let mut transports = Vec::new();
        if !slow.is_empty() {
            transports.push(Sparing {
                spared: slow.union(&failing).copied().collect(),
                at_any_price: failing.clone(),
            });
        }
        if !failing.is_empty() {
            transports.push(Sparing { spared: failing.clone(), at_any_price: failing });
        }
        transports
    }
}

/// The offers of all disks but some.
fn without(mut offers: Vec<Offer>, spared: &BTreeSet<DiskSlot>) -> Vec<Offer> {
    offers.retain(|offer| !spared.contains(&offer.slot));
    offers
}

/// Allocation units of the data columns of a row, one copy of each.
fn data_units(placement: &Placement) -> u64 {
    let data = match placement.code {
        Code::Striped { .. } => placement.columns,
        Code::Parity { data, .. } => data,
    };
    let one_of_each = placement.slabs.iter().filter(|slab| slab.copy == 0 && slab.column < data);
    one_of_each.map(|slab| slab.units).sum()
}

impl Change<'_> {
    /// A row for which disks that are slow or failing are done without, on some of those that are here; nothing where none is, or no
    /// such row can be laid.
    pub(crate) fn place_sparing(
        &mut self,
        placer: &Placer,
        own: &impl Fn(DiskSlot) -> u64,
        rotation: u64,
        left_out: &[DiskSlot],
    ) -> Option<Placed> {
        self.changes
            .sparings()
            .into_iter()
            .find_map(|way| self.place_by(&way, placer, own, rotation, left_out))
    }

    fn place_by(
        &mut self,
        way: &Sparing,
        placer: &Placer,
        own: &impl Fn(DiskSlot) -> u64,
        rotation: u64,
        left_out: &[DiskSlot],
    ) -> Option<Placed> {
        let all = without(self.changes.free_space.offers(self.purpose), &left_out.iter().copied().collect());
        let well = without(all.clone(), &way.spared);
        // Rows whose parts would be kept apart worse have less redundancy.
        if placer.keeps_domains_apart(&all) && !placer.keeps_domains_apart(&well) {
            return None;
        }
        let fits = |offers| placer.bound(&without(offers, &way.at_any_price)).column_units;
        let is_priced = way.spared.len() > way.at_any_price.len();
        let before = is_priced.then(|| fits(all));
        let out = left_out.iter().chain(&way.spared).copied().collect();
        let (placement, claims) = self.place_without(out, placer, own, rotation).ok()?;
        if let Some(before) = before {
            let after = fits(without(
                self.changes.free_space.offers(self.purpose),
                &left_out.iter().copied().collect(),
            ));
            let own = data_units(&placement);
            if after + own + own / LOSS_PARTS < before {
                self.untake_all(&claims);
                return None;
            }
        }
        Some((placement, claims))
    }

    /// How gladly a disk is chosen for a further copy: a failing one last.
    pub(crate) fn fitness(&self, slot: DiskSlot) -> std::cmp::Reverse<Option<Ailment>> {
        std::cmp::Reverse(self.changes.members.ailment_of(slot))
    }
}

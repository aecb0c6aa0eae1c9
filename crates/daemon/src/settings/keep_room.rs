//! Room that is kept so that lost disks can be repaired on the others (docs/design/0023): set, and what is left of it told.

use dolmen_api::{ErrorBody, ErrorCode, Finding, FindingCode, Health, Object};
use dolmen_placement::{Kept, Offer, Placer, kept};
use dolmen_pool::PoolState;
use dolmen_space::{Resiliency, Space, SpaceSpec, slab_units};
use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes};

use crate::advice::Advice;
use crate::answer::Answer;
use crate::fault;
use crate::finding::found;
use crate::open_pool::OpenPool;
use crate::plan::repairable_for;
use crate::rooms::usable_now;
use crate::words::counted;

/// Disks of which each row is looked at before room is promised for the loss of one of them; of more, the fullest.
const LOOKED_AT_MAX: usize = 24;

/// Returns a refusal for want of room with the setting that keeps room for repair, where more of a space would fit without it.
pub(crate) fn with_kept_room(pool: &OpenPool, spec: &SpaceSpec, refusal: ErrorBody) -> ErrorBody {
    let (name, losses) = (pool.name(), pool.spaces.pool().free_space().keeps_room_for());
    let fits = |losses| usable_now(&offers_keeping(pool, losses), spec);
    let is_for_room = matches!(refusal.code, ErrorCode::NoSpace | ErrorCode::BadSize);
    if losses == 0 || !is_for_room || fits(losses) >= fits(0) {
        return refusal;
    }
    let kept = format!(
        "pool {name} keeps {}; without it {} fit: `dolmen pool set {name} --keep-room-for 0`",
        in_words(losses),
        fits(0)
    );
    let hint = refusal.hint.as_ref().map_or_else(|| kept.clone(), |hint| format!("{kept}; or {hint}"));
    refusal.hint(hint)
}

/// What claims would find if room for so many losses were kept.
pub(super) fn offers_keeping(pool: &OpenPool, losses: u32) -> Vec<Offer> {
    pool.spaces.pool().free_space().offers_keeping(losses)
}

pub(super) fn in_words(losses: u32) -> String {
    match losses {
        0 => "no room for repair".to_owned(),
        losses => format!("room to repair the loss of {}", counted(losses as usize, "disk", "disks")),
    }
}

/// Room is promised where it is: by what the disks have in all, and row by row for the loss of each single disk.
pub(super) async fn check_that_it_is_there(pool: &OpenPool, offers: &[Offer], losses: u32) -> Answer<()> {
    let (name, found) = (pool.name(), kept(offers));
    if found.losses < losses {
        let (used, holds) = used_and_left(offers, losses);
        let message = format!(
            "to repair the loss of {} of pool {name}, the others would have to hold {used}, and they hold {holds}; nothing was changed",
            counted(losses as usize, "disk", "disks")
        );
        return Err(ErrorBody::new(ErrorCode::NoSpace, message).on(name.as_str()).hint(format!(
            "add {} more on disks as large, purge or trim something, or keep room for fewer: there is room for {}",
            Bytes(used.0.saturating_sub(holds.0)),
            found.losses
        )));
    }
    let beyond = beyond_repair(pool, offers, losses);
    if !beyond.is_empty() {
        let message = format!(
            "rows of {beyond} need more disks than would be left after the loss of {}; nothing was changed",
            counted(losses as usize, "disk", "disks")
        );
        let hint = format!("add a disk first: `dolmen pool add {name} DISK`; or keep room for fewer");
        return Err(ErrorBody::new(ErrorCode::NoSpace, message).on(name.as_str()).hint(hint));
    }
    let mut disks = pool.spaces.pool().disks();
    disks.retain(|disk| {
        pool.spaces.pool().members().is_active(disk) && pool.spaces.pool().members().takes_rows(disk)
    });
    let room = pool.spaces.pool().free_space().room();
    let free = |slot| room.iter().find(|room| room.slot == slot).map_or(0, |room| room.free.0);
    disks.sort_by_key(|disk| std::cmp::Reverse(disk.data_bytes().0.saturating_sub(free(disk.slot()))));
    for disk in disks.iter().take(LOOKED_AT_MAX) {
        let more = pool.offer_of_spare_for(disk);
        let forecast = pool.spaces.moves().forecast_removal_with(disk.slot(), &more).await;
        let forecast = forecast.map_err(|error| fault::space(&error))?;
        if forecast.stuck.is_empty() {
            continue;
        }
        let stuck = forecast.stuck.values();
        let stuck: Vec<String> = stuck
            .map(|stuck| format!("{} of {name}/{}", counted(stuck.rows, "row", "rows"), stuck.name))
            .collect();
        let message = format!(
            "were {} of pool {name} lost, {} could not be repaired on the other disks; nothing was changed",
            disk.name(),
            stuck.join(", ")
        );
        return Err(ErrorBody::new(ErrorCode::NoSpace, message).on(disk.name()).hint(format!(
            "add a disk and `dolmen pool rebalance {name}`, or, where rows are as wide as there are disks, make them narrower with \
             `dolmen space convert {name}/SPACE --columns N`"
        )));
    }
    Ok(())
}

/// What is on all disks, and what those hold that are left when the largest are lost.
fn used_and_left(offers: &[Offer], losses: u32) -> (Bytes, Bytes) {
    let used: u64 = offers.iter().map(|offer| offer.size_units.saturating_sub(offer.free_units)).sum();
    let size = |offer: &Offer| offer.size_units.saturating_sub(offer.reserve_units);
    let mut sizes: Vec<u64> = offers.iter().filter(|offer| offer.stays()).map(size).collect();
    sizes.sort_unstable();
    let left = sizes.len().saturating_sub(losses as usize);
    let holds: u64 = sizes.iter().take(left).sum();
    (Bytes(used * ALLOCATION_UNIT_BYTES), Bytes(holds * ALLOCATION_UNIT_BYTES))
}

/// What of the free room claims leave for repair, as rows of two copies see it.
pub(crate) fn kept_bytes(pool: &OpenPool) -> Bytes {
    let offers = pool.offers();
    let Ok(name) = "x".parse() else { return Bytes::ZERO };
    let spec = SpaceSpec::usual(name, Bytes::gib(1), Resiliency::Mirror { copies: 2 });
    let Ok(request) = spec.check() else { return Bytes::ZERO };
    let placer = Placer::new(request, slab_units(spec.interleave, 0));
    let left = |offers: &[Offer]| offers.iter().map(Offer::claimable_units).sum::<u64>();
    Bytes(left(&offers).saturating_sub(left(&placer.claimable(&offers))) * ALLOCATION_UNIT_BYTES)
}

impl OpenPool {
    /// For how many losses there is room: in all, and for the rows of each space that there is.
    pub(crate) fn has_room_for(&self) -> u32 {
        let in_all = self.spaces.pool().free_space().kept_room().losses;
        let (spaces, offers) = (self.spaces.list(), self.offers());
        let of_spaces = spaces.iter().map(|space| repairable_for(&offers, &space.spec()));
        of_spaces.fold(in_all, u32::min)
    }
}

/// That room which is to be kept is used, by a repair, or that disks are left which rows need all of.
pub(crate) fn room_used(open: &OpenPool) -> Option<Finding> {
    let pool = open.spaces.pool();
    let (Kept { wanted, losses: in_all }, losses) = (pool.free_space().kept_room(), open.has_room_for());
    if losses >= wanted || pool.state() != PoolState::Writable {
        return None;
    }
    let name = open.name();
    let why = match losses < in_all {
        true => {
            format!(
                "rows of {} need more disks than would be left",
                beyond_repair(open, &open.offers(), in_all)
            )
        }
        false => "what it kept for that is used".to_owned(),
    };
    let text = match losses {
        0 => format!("pool {name} has no room to repair the loss of a disk: {why}"),
        losses => format!(
            "pool {name} has room to repair the loss of {}, and is to keep it for {wanted}: {why}",
            counted(losses as usize, "disk", "disks")
        ),
    };
    Some(found(FindingCode::RoomForRepairUsed, Health::Warning, Object::pool(name), text))
}

/// Spaces whose rows could not be repaired behind so many losses.
fn beyond_repair(open: &OpenPool, offers: &[Offer], losses: u32) -> String {
    let spaces = open.spaces.list();
    let is_beyond = |space: &&Space| repairable_for(offers, &space.spec()) < losses;
    let names = spaces.iter().filter(is_beyond).map(|space| format!("{}/{}", open.name(), space.name()));
    names.collect::<Vec<String>>().join(", ")
}

/// What to do about that.
pub(crate) fn room_advice(open: &OpenPool) -> Option<Advice> {
    let used = room_used(open)?;
    let name = open.name();
    let sizes = open.spaces.pool().disks().into_iter().map(|disk| disk.size().capacity());
    let largest = sizes.max().unwrap_or_default();
    let text = format!(
        "add a disk of {largest} to pool {name}, or purge or trim something; or have it keep less: `dolmen pool set {name} \
         --keep-room-for {}`",
        open.has_room_for()
    );
    Some(Advice::new(used.code, used.object, text))
}

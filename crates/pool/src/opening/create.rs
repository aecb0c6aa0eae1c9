//! Making a pool of devices, and preparing a device for a pool.
//!
//! Write order: every device is looked at before any is written. Then old signatures go, the log's ring is zeroed, the
//! empty map is written to the voters and flushed, and only then do labels say that there is a pool: the voters' last.
//! A crash before the last label leaves disks of a pool that never was; `create` names them and wants to be told to
//! overwrite them.

use std::rc::Rc;

use dolmen_block_io::{BlockDevice, Seams};
use dolmen_disk::{
    Extent, Generation, LOG_BYTES_MAX, LOG_BYTES_MIN, Label, Medium, Member, MemberState, write_label,
};
use dolmen_epoch::{EpochRecord, Owner};
use dolmen_future_pool::pooled;
use dolmen_store::{Replica, Store};
use dolmen_units::{Bytes, DiskId, DiskSlot, Epoch, Lsn, Name, PoolId};

use crate::arbiter::Arbiter;
use crate::disks::discover::Candidate;
use crate::disks::prepare::MEBIBYTE;
use crate::disks::prepare::{CHECKPOINT_BYTES, areas, check_devices, prepare};
use crate::epochs::change::VOTERS_WANTED;
use crate::error::CreateError;
use crate::log::need::LogNeed;
use crate::opening::open::{Opened, open_new};

/// For so many bytes of disks, a voter has a byte of metadata: 8 MiB for a TiB.
const METADATA_WANTED_SHARE: u64 = 128 * 1024;
/// So many voters at least, if there are as many disks, even if one of them makes the map small: all layouts with two
/// copies or one parity, and those with three copies or two parities, lose data before they lose all of these.
const VOTERS_ENOUGH: usize = 3;
const _: () = assert!(VOTERS_ENOUGH <= VOTERS_WANTED, "the least is no more than the usual");

/// How a pool is to be made.
#[derive(Debug, Clone)]
pub struct CreateOptions {
    /// Its name.
    pub name: Name,
    /// Names of devices whose content may be overwritten, whatever it is.
    pub overwrite: Vec<String>,
    /// A fault domain for each device, 0 for alone; missing ones are alone.
    pub fault_domains: Vec<u32>,
}

/// Makes a pool of the devices and opens it.
///
/// # Errors
/// [`CreateError`]; whatever is found before the first write is found on all devices before the first write.
#[pooled]
pub async fn create(
    seams: &Seams,
    arbiter: Rc<dyn Arbiter>,
    devices: &[Rc<dyn BlockDevice>],
    options: &CreateOptions,
) -> Result<Opened, CreateError> {
    let pool = PoolId(seams.entropy.next_id());
    create_as(seams, arbiter, devices, options, pool).await
}

/// As [`create`], under an identity that was drawn before, so that it can be on record before the first write.
///
/// # Errors
/// As there.
#[pooled]
pub async fn create_as(
    seams: &Seams,
    arbiter: Rc<dyn Arbiter>,
    devices: &[Rc<dyn BlockDevice>],
    options: &CreateOptions,
    pool: PoolId,
) -> Result<Opened, CreateError> {
    let extents = check_devices(seams, devices, &options.overwrite).await?;
    let members: Vec<Member> = (0u16..)
        .zip(devices)
        .zip(&extents)
        .map(|((slot, device), extent)| Member {
            disk: DiskId(seams.entropy.next_id()),
            capacity: extent.capacity,
            slot: DiskSlot(slot),
            state: MemberState::Active,
            fault_domain: options.fault_domains.get(usize::from(slot)).copied().unwrap_or(0),
            left: Epoch(0),
            successor: None,
            medium: Medium::of(&device.geometry()),
            sequence: 0,
        })
        .collect();
    let voters = choose_voters(devices, &members, &extents);
    let smallest = voters.iter().filter_map(|index| extents.get(*index)).map(|extent| extent.metadata).min();
    let (log, pages) = metadata_lengths(smallest.unwrap_or_default());
    let voter_ids: Vec<DiskId> =
        voters.iter().filter_map(|index| members.get(*index)).map(|m| m.disk).collect();
    let nonce = seams.entropy.next_u64();
    let epoch = EpochRecord::first(nonce, Owner::Host(arbiter.host()), voter_ids.clone(), Lsn(1))?;
    for (device, member) in devices.iter().zip(&members) {
        prepare(seams, device.as_ref(), log).await?;
        tracing::debug!(device = %device.name(), disk = %member.disk, "prepared");
    }
    let replicas: Vec<Replica> = devices
        .iter()
        .zip(&members)
        .filter(|(_, member)| voter_ids.contains(&member.disk))
        .map(|(device, member)| Replica { disk: member.disk, device: Rc::clone(device) })
        .collect();
    let (_, area) = areas(log, pages);
    Store::format(seams, Epoch(1), pool, area, &replicas, LogNeed::ALL.to_anchor()).await?;
    let generation = Generation { epoch: epoch.clone(), members: members.clone() };
    let label = |extent: &Extent, member: &Member| Label {
        pool,
        pool_name: options.name.clone(),
        disk: member.disk,
        sequence: 1,
        extent: *extent,
        log,
        pages,
        heartbeat: 0,
        base: generation.clone(),
        pending: None,
    };
    let mut candidates = Vec::new();
    for voting in [false, true] {
        for ((device, extent), member) in devices.iter().zip(&extents).zip(&members) {
            if voter_ids.contains(&member.disk) == voting {
                let label = label(extent, member);
                write_label(seams, device.as_ref(), Epoch(1), &label).await?;
                candidates.push(Candidate { device: Rc::clone(device), label, lost_labels: Vec::new() });
            }
        }
    }
    open_new(seams, arbiter, candidates).await.map_err(|error| CreateError::Open(Box::new(error)))
}

/// The least metadata area that is enough for a pool of these disks, or for one that grows from them as far as its largest
/// disk suggests.
///
/// The smallest first voter decides for good how many pages the map has, so one small disk, however fast, must not: with a
/// disk of 32 GB beside others of 8 TB, rows of a few TB would fill the map. Rows of 64 MiB with two copies take some
/// 100 bytes for each 128 MiB of disks, free runs as much again, and claims use half of the pages: 4 MiB for a TiB. Twice
/// that is asked for. An area of a quarter of the largest disk's is enough in any case.
fn metadata_wanted(extents: &[Extent]) -> Bytes {
    let total: u64 = extents.iter().map(|extent| extent.capacity.0).sum();
    let largest = extents.iter().map(|extent| extent.metadata.0).max().unwrap_or(0);
    Bytes((largest / 4).min(total / METADATA_WANTED_SHARE))
}

/// Indices of the devices that carry the metadata: those with room for it first, then fast ones, then large ones, no two of
/// one fault domain while there are others. Those without room are taken only where there would be too few voters:
/// that all copies of the metadata are lost before the data is worse than a map that is full early.
fn choose_voters(devices: &[Rc<dyn BlockDevice>], members: &[Member], extents: &[Extent]) -> Vec<usize> {
    let wanted = metadata_wanted(extents);
    let is_small = |index: &usize| extents.get(*index).is_none_or(|extent| extent.metadata < wanted);
    let mut order: Vec<usize> = (0..members.len()).collect();
    let rank = |index: &usize| {
        let rotational = devices.get(*index).is_some_and(|device| device.geometry().rotational);
        let capacity = members.get(*index).map_or(Bytes::ZERO, |member| member.capacity);
        (is_small(index), rotational, std::cmp::Reverse(capacity), *index)
    };
    order.sort_by_key(rank);
    let ample = order.iter().filter(|index| !is_small(index)).count();
    order.truncate(ample.max(VOTERS_ENOUGH));
    let domain = |index: &usize| members.get(*index).map_or(0, |member| member.fault_domain);
    let mut chosen: Vec<usize> = Vec::new();
    for alone in [true, false] {
        for index in &order {
            let shares = domain(index) != 0 && chosen.iter().any(|other| domain(other) == domain(index));
            if chosen.len() < VOTERS_WANTED && !chosen.contains(index) && (!alone || !shares) {
                chosen.push(*index);
            }
        }
    }
    chosen
}

/// Lengths of log and pages for the smallest metadata area of any voter.
#[must_use]
pub fn metadata_lengths(smallest: Bytes) -> (Bytes, Bytes) {
    // A quarter of the smallest voter's metadata area, within bounds.
    let log = Bytes(smallest.0 / 4).align_down(MEBIBYTE).0.clamp(LOG_BYTES_MIN, LOG_BYTES_MAX);
    let pages = Bytes(smallest.0 - CHECKPOINT_BYTES - log).align_down(MEBIBYTE);
    (Bytes(log), pages)
}

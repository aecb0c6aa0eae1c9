//! Labels: a sound one with edits, sealed again or not, or any bytes.
//!
//! Oracle: what is read is written back to the same bytes, so no field was passed over; a label with the checksum of another
//! content is refused, and so is one at another place; whatever is refused is refused with a reason.

use dolmen_disk::{Extent, LABEL_BYTES_MAX, Label, LabelError, Medium, Member, MemberState};
use dolmen_epoch::{EpochRecord, Owner};
use dolmen_units::{Bytes, DISKS_MAX, DiskId, DiskSlot, Epoch, HostId, Lsn, PoolId};

use crate::script::Script;
use crate::{Reached, edits, named, seal};

/// Addresses of labels.
const PLACES: [u64; 4] = [64 << 10, 128 << 10, 1022 << 20, (1022 << 20) + (64 << 10)];

fn disk(number: u16) -> DiskId {
    let [low, high] = number.to_le_bytes();
    DiskId([low, high, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15])
}

fn member(number: u16) -> Member {
    let leaves = number % 3 == 1;
    Member {
        disk: disk(number),
        capacity: Bytes::gib(1),
        slot: DiskSlot(number),
        state: if leaves { MemberState::Retired } else { MemberState::Active },
        fault_domain: u32::from(number / 2),
        left: Epoch(u64::from(leaves)),
        successor: leaves.then_some(DiskSlot(0)),
        medium: Medium::SolidState,
        sequence: u64::from(number),
    }
}

/// A label with so many members.
fn sample(members: u16, is_pending: bool) -> Label {
    let owner = Owner::Host(HostId([9; 16]));
    let epoch = EpochRecord::first(77, owner, vec![disk(0), disk(1)], Lsn(1)).unwrap();
    let base = dolmen_disk::Generation { epoch, members: (0..members).map(member).collect() };
    Label {
        pool: PoolId([3; 16]),
        pool_name: "tank".parse().unwrap(),
        disk: disk(0),
        sequence: 12,
        extent: Extent::of(Bytes::gib(1)).unwrap(),
        log: Bytes::mib(2),
        pages: Bytes::mib(6),
        heartbeat: 5,
        pending: is_pending.then(|| base.clone()),
        base,
    }
}

/// One input.
pub(crate) fn run(input: &[u8]) -> Reached {
    let mut script = Script::new(input);
    let shape = script.byte();
    let at = script.pick(&PLACES);
    let members = 1 + script.below(DISKS_MAX as u64) as u16;
    let sound = sample(members, shape & 1 != 0).encode(at);
    let mut bytes = sound.clone();
    if shape & 2 != 0 {
        bytes = script.rest().to_vec();
        bytes.resize(bytes.len().clamp(4096, LABEL_BYTES_MAX), 0);
    } else {
        edits::edit(&mut script, &mut bytes);
    }
    if shape & 4 != 0 {
        seal::label(&mut bytes);
    }
    verdict(&bytes, at, &sound)
}

fn verdict(bytes: &[u8], at: u64, sound: &[u8]) -> Reached {
    match Label::parse(bytes, at) {
        Ok(label) => {
            let length = seal::number(bytes, 12, 4) as usize;
            assert_eq!(
                first_difference(&label.encode(at), &bytes[..length]),
                None,
                "a field of a label was passed over"
            );
            let elsewhere = Label::parse(bytes, at + 4096);
            assert!(
                matches!(elsewhere, Err(LabelError::Misplaced { .. })),
                "a label counts where it was not written: {elsewhere:?}"
            );
            let mut turned = bytes[..length].to_vec();
            turned[length / 2] ^= 1;
            assert!(Label::parse(&turned, at).is_err(), "a label with a turned bit is believed");
            Reached::Held
        }
        Err(error) => {
            assert_ne!(bytes, sound, "a sound label is refused: {error}");
            named(&error)
        }
    }
}

/// Where two stretches of bytes differ first.
pub(crate) fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    let differs = one.iter().zip(other).position(|(one, other)| one != other);
    differs.or_else(|| (one.len() != other.len()).then(|| one.len().min(other.len())))
}

/// Inputs to begin with.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![4, 0, 1], vec![5, 1, 2], vec![5, 2, 239], vec![0, 3, 0]];
    // Each field of the head in turn, with a number at which things break.
    for at in (0..=255u8).step_by(8) {
        seeds.push(vec![5, 0, 1, 4, at, 0, at % 24]);
    }
    seeds.push(vec![6, 0, 0].into_iter().chain(*b"DOLMENLB\x03\0\0\0\0\x10\0\0").collect());
    seeds
}

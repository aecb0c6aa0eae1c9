//! What recovery believes, what it does not, and what it calls damage.

use std::rc::Rc;

use dolmen_block_io::{DeviceError, fixed_entropy};
use dolmen_units::{DiskId, Lsn, PoolId};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use super::{POOL, RING, World, contents, epoch, owner};
use crate::format::{Batch, BatchError, BatchHeader, Expected, HEADER_BYTES, checksum};
use crate::{Class, Damage, Log, Place, RecoverError, Ring, Start, Wait, recover};

/// Ten batches of one block, LSN 1 to 10, each with its number; 4 and 8 durable, 5 settled.
fn ten(world: &World) -> Rc<Log> {
    let log = world.fresh();
    for number in 1..=10u8 {
        let log = Rc::clone(&log);
        let wait = if matches!(number, 4 | 8) { Wait::Durable } else { Wait::Written };
        let lsn = world.block_on(async move {
            if number == 9 {
                log.mark_durable(Lsn(5));
            }
            log.append(1, &[&[number]], Class::Ordinary, wait).await
        });
        assert_eq!(lsn, Ok(Lsn(u64::from(number))));
    }
    log
}

fn numbers(recovered: &crate::Recovered) -> Vec<u8> {
    contents(recovered).into_iter().map(|(_, _, body)| body[0]).collect()
}

/// The bytes of batch `lsn` of [`ten`] on a disk.
fn range(lsn: u64) -> std::ops::Range<usize> {
    let at = usize::try_from(RING.at + (lsn - 1) * 4096).unwrap();
    at..at + 4096
}

/// Gives a batch that was changed a checksum that is right.
fn reseal(bytes: &mut [u8]) {
    let sum = checksum(bytes);
    BatchHeader::mut_from_prefix(bytes).unwrap().0.checksum = U64::new(sum);
}

// Each batch in turn is destroyed on both copies: it is damage exactly when the durable mark covers it, or a later
// batch names it as durable; when one copy is left, nothing is missing and healing gives it to the other.
#[test]
fn a_missing_batch_is_damage_exactly_when_it_was_marked_or_durable() {
    for lsn in 1..=10u64 {
        let world = World::new(2);
        drop(ten(&world));
        world.disks[0].damage(|content| content[range(lsn)][200] ^= 4);
        let recovered = world.heal(world.recover(&[0, 1], Place::FIRST, &[owner(1, 1)]));
        assert_eq!(numbers(&recovered), (1..=10).collect::<Vec<u8>>());
        assert!(world.disks[0].content() == world.disks[1].content(), "healed copies are equal");

        world.disks.iter().for_each(|disk| disk.damage(|content| content[range(lsn)][200] ^= 4));
        let recovered = world.recover(&[0, 1], Place::FIRST, &[owner(1, 1)]);
        let at = Lsn(lsn);
        let expected = match lsn {
            1..=5 => vec![Damage::MarkedDurable { first: at, last: at, durable_mark: Lsn(5) }],
            8 => vec![Damage::Durable { lsn: at, named_by: Lsn(9) }],
            _ => vec![],
        };
        assert_eq!(recovered.damage(), expected, "{at}");
        let hole = if lsn == 10 { vec![] } else { vec![at..=at] };
        assert_eq!(recovered.holes(), hole, "{at}");
    }
}

// A hole is listed by the next opener; then the copy comes back that has the batch. It stays a hole, and is no damage
// although a later settled mark covers it.
#[test]
fn a_hole_stays_a_hole_when_the_batch_comes_back() {
    let world = World::new(2);
    drop(ten(&world));
    world.disks[0].damage(|content| content[range(7)].fill(0));
    world.disks[0].damage(|content| content[range(10)].fill(0));
    let recovered = world.heal(world.recover(&[0], Place::FIRST, &[owner(1, 1)]));
    assert_eq!((recovered.holes(), recovered.next().lsn), (&[Lsn(7)..=Lsn(7)][..], Lsn(10)));
    let log = world.start(2, world.copies(&[0]), Start::Recovered(&recovered));
    assert_eq!(log.cut(), Lsn(10), "a list of holes needs no cut");
    let spans = [owner(1, 1), owner(2, 10)];
    world.block_on(async move {
        assert_eq!(log.written(Lsn(10)).await, Ok(()), "the list goes out by itself");
        log.mark_durable(Lsn(10));
        assert_eq!(log.mark().await, Ok(Lsn(11)));
        log.stop().await;
    });
    let recovered = world.recover(&[1, 0], Place::FIRST, &spans);
    assert_eq!(numbers(&recovered), [1, 2, 3, 4, 5, 6, 8, 9]);
    assert_eq!((recovered.damage(), recovered.durable_mark()), (&[][..], Lsn(10)));
}

// Healing made the last batch durable, which no earlier batch could say: the next opener's first batch says it.
#[test]
fn what_was_healed_may_not_be_missing_later() {
    let world = World::new(1);
    drop(ten(&world));
    let recovered = world.heal(world.recover(&[0], Place::FIRST, &[owner(1, 1)]));
    let log = world.start(2, world.all(), Start::Recovered(&recovered));
    assert_eq!(world.block_on(async move { log.mark().await }), Ok(Lsn(11)));
    world.disks[0].damage(|content| content[range(10)].fill(0));
    let recovered = world.recover(&[0], Place::FIRST, &[owner(1, 1), owner(2, 11)]);
    assert_eq!(recovered.damage(), [Damage::Durable { lsn: Lsn(10), named_by: Lsn(11) }]);
}

type Change = fn(&mut BatchHeader);

// Bytes of a whole batch are changed and its checksum is made right again: each field that says where it belongs
// keeps it out on its own.
#[test]
fn a_batch_that_belongs_elsewhere_is_not_believed() {
    let elsewhere: [(&str, Change); 6] = [
        ("pool", |header| header.pool[0] ^= 1),
        ("epoch", |header| header.epoch_number = U64::new(2)),
        ("nonce", |header| header.epoch_nonce = U64::new(5)),
        ("lap", |header| header.position = U64::new(header.position.get() + RING.length)),
        ("address", |header| header.address = U64::new(header.address.get() + 4096)),
        ("reserved", |header| header.reserved[3] = 1),
    ];
    for (what, change) in elsewhere {
        let world = World::new(1);
        drop(ten(&world));
        world.disks[0].damage(|content| {
            let bytes = &mut content[range(10)];
            change(BatchHeader::mut_from_prefix(bytes).unwrap().0);
            reseal(bytes);
        });
        let recovered = world.recover(&[0], Place::FIRST, &[owner(1, 1)]);
        assert_eq!(numbers(&recovered), (1..=9).collect::<Vec<u8>>(), "{what}");
    }
    let world = World::new(1);
    drop(ten(&world));
    let misdirected = world.disks[0].content()[range(10)].to_vec();
    world.disks[0].damage(|content| content[range(12)].copy_from_slice(&misdirected));
    world.disks[0].damage(|content| content[range(10)].fill(0));
    assert_eq!(numbers(&world.recover(&[0], Place::FIRST, &[owner(1, 1)])).len(), 9);
}

#[test]
fn what_is_below_the_tail_or_of_no_owner_does_not_count() {
    let world = World::new(1);
    drop(ten(&world));
    let tail = Place { lsn: Lsn(4), position: 3 * 4096 };
    assert_eq!(numbers(&world.recover(&[0], tail, &[owner(1, 1)])), [4, 5, 6, 7, 8, 9, 10]);
    let recovered = world.recover(&[0], tail, &[owner(1, 1), owner(2, 9)]);
    assert_eq!(
        (numbers(&recovered), recovered.next()),
        (vec![4, 5, 6, 7, 8], Place { lsn: Lsn(9), position: 8 * 4096 })
    );
    assert_eq!(numbers(&world.recover(&[0], tail, &[])), [] as [u8; 0]);
}

// An epoch was installed behind a batch that then was lost: the new epoch's first LSN is kept, what lies before it is
// a hole, and the lost batch may turn up later.
#[test]
fn the_next_lsn_is_not_below_the_newest_epochs_first() {
    let world = World::new(1);
    drop(ten(&world));
    world.disks[0].damage(|content| content[range(10)].fill(0));
    let recovered = world.recover(&[0], Place::FIRST, &[owner(1, 1), owner(2, 11)]);
    assert_eq!(recovered.next(), Place { lsn: Lsn(11), position: 9 * 4096 });
    assert_eq!(recovered.holes(), [Lsn(10)..=Lsn(10)]);
}

// A later version in a live batch stops the opening; in a dead one it says nothing.
#[test]
fn a_live_batch_of_a_later_version_is_refused_by_name() {
    let world = World::new(1);
    drop(ten(&world));
    world.disks[0].damage(|content| {
        let bytes = &mut content[range(10)];
        BatchHeader::mut_from_prefix(bytes).unwrap().0.version = 2;
        reseal(bytes);
    });
    let (seams, copies) = (world.seams.clone(), world.all());
    let (live, dead) = world.block_on(async move {
        let token = dolmen_units::Epoch(9);
        let spans = [owner(1, 1)];
        let live = recover(&seams, token, POOL, RING, &copies, Place::FIRST, &spans).await.err();
        let after = Place { lsn: Lsn(11), position: 10 * 4096 };
        (live, recover(&seams, token, POOL, RING, &copies, after, &spans).await.is_ok())
    });
    assert!(matches!(live, Some(RecoverError::Version { version: 2, disk: DiskId(_), .. })), "{live:?}");
    assert!(dead);
}

// Single flipped bits and whole blocks of noise, on both copies, anywhere: nothing panics, and nothing is recovered
// that was not appended.
#[test]
fn noise_is_never_believed() {
    let entropy = fixed_entropy(5);
    for _ in 0..150 {
        let world = World::new(2);
        drop(ten(&world));
        for disk in &world.disks {
            disk.damage(|content| {
                for _ in 0..entropy.next_u64() % 12 {
                    let draw = usize::try_from(entropy.next_u64() % RING.length).unwrap();
                    let at = usize::try_from(RING.at).unwrap() + draw;
                    match entropy.next_u64() % 3 {
                        0 => content[at] ^= 1 << (draw % 8),
                        1 => content[at - at % 4096 + draw % HEADER_BYTES] ^= 1 << (draw % 8),
                        _ => entropy.fill(&mut content[at - at % 4096 + 8..][..4000]),
                    }
                }
            });
        }
        let recovered = world.recover(&[0, 1], Place::FIRST, &[owner(1, 1)]);
        for (lsn, kind, body) in contents(&recovered) {
            assert_eq!((lsn, kind, body.len()), (Lsn(u64::from(body[0])), 1, 1));
        }
    }
}

// Every field of a header takes extreme values, with a checksum that is right: typed errors, no panic.
#[test]
fn a_header_may_say_anything() {
    let world = World::new(1);
    drop(ten(&world));
    let good = world.disks[0].content()[range(1)].to_vec();
    let expected = Expected { pool: POOL, ring: RING, address: RING.at };
    assert!(Batch::parse(&good, &expected).is_ok());
    for at in (16..HEADER_BYTES + 16).step_by(4) {
        for value in [0, 1, 127, 129, 4095, 4097, 0x7fff_ffff, u32::MAX] {
            let mut bad = good.clone();
            bad[at..at + 4].copy_from_slice(U32::new(value).as_bytes());
            reseal(&mut bad);
            if let Ok(batch) = Batch::parse(&bad, &expected) {
                assert_eq!(batch.records().count(), 1, "at {at}: {value}");
            }
        }
    }
    let foreign = Expected { pool: PoolId([1; 16]), ..expected };
    assert_eq!(
        Batch::parse(&good, &foreign),
        Err(BatchError::Pool { found: POOL, expected: PoolId([1; 16]) })
    );
    assert_eq!(Batch::parse(&good[..100], &expected), Err(BatchError::Magic));
    assert_eq!(Batch::parse(&good[..4095], &expected), Err(BatchError::Short { length: 4096 }));
}

// Each byte that is to be zero, in the header and behind the records, is set, with a checksum that is right.
#[test]
fn what_is_to_be_zero_is_zero_or_no_batch() {
    let world = World::new(1);
    drop(ten(&world));
    let good = world.disks[0].content()[range(1)].to_vec();
    let expected = Expected { pool: POOL, ring: RING, address: RING.at };
    let used = BatchHeader::ref_from_prefix(&good).unwrap().0.used.get();
    let padding = usize::try_from(used).unwrap()..good.len();
    assert!(!padding.is_empty());
    for at in (18..20).chain(HEADER_BYTES - 24..HEADER_BYTES).chain(padding) {
        let mut bad = good.clone();
        bad[at] = 1;
        reseal(&mut bad);
        assert_eq!(Batch::parse(&bad, &expected), Err(BatchError::Reserved), "at {at}");
    }
}

// A block that one copy's medium does not give is taken from the other and written again; a copy that is gone is
// named, and healing names it too.
#[test]
fn bad_blocks_and_absent_copies_are_reported_and_repaired() {
    let world = World::new(2);
    drop(ten(&world));
    world.disks[0].unreadable.borrow_mut().push(RING.at + 2 * 4096);
    let recovered = world.recover(&[0, 1], Place::FIRST, &[owner(1, 1)]);
    assert_eq!((numbers(&recovered).len(), recovered.unreadable_blocks()), (10, 1));
    let recovered = world.heal(recovered);
    assert!(world.disks[0].unreadable.borrow().is_empty(), "{recovered:?}");

    world.disks[1].failing.set(Some(DeviceError::Detached));
    let recovered = world.recover(&[0, 1], Place::FIRST, &[owner(1, 1)]);
    assert_eq!(recovered.failures()[0].disk, world.copy(1).disk);
    let error = world.block_on(async move { recovered.heal().await }).unwrap_err();
    assert_eq!(error.failures.len(), 1);
    world.disks[0].failing.set(Some(DeviceError::Detached));
    let (seams, copies) = (world.seams.clone(), world.all());
    let nothing = world.block_on(async move {
        recover(&seams, dolmen_units::Epoch(9), POOL, RING, &copies, Place::FIRST, &[]).await.err()
    });
    assert!(matches!(nothing, Some(RecoverError::Unreadable { .. })), "{nothing:?}");
}

// A ring of several megabytes: batches reach across the pieces in which it is read.
#[test]
fn a_large_ring_is_read_in_pieces() {
    let mut world = World::new(0);
    world.disks = (0..2).map(|number| super::disk::TestDisk::new(number, 4 << 20)).collect();
    let ring = Ring { at: 4096, length: 3 << 20 };
    let log = Log::start(
        world.seams.clone(),
        epoch(1).number,
        POOL,
        ring,
        world.all(),
        epoch(1),
        Start::Fresh(Place::FIRST),
    );
    world.block_on(async move {
        for number in 0..9u8 {
            let body = vec![number; 200_000 + usize::from(number) * 5000];
            assert!(log.append(1, &[&body], Class::Ordinary, Wait::Written).await.is_ok());
        }
    });
    world.disks[1].damage(|content| content.fill(0));
    let (seams, copies) = (world.seams.clone(), world.all());
    let found = world.block_on(async move {
        let token = epoch(9).number;
        let recovered =
            recover(&seams, token, POOL, ring, &copies, Place::FIRST, &[owner(1, 1)]).await.unwrap();
        assert!(recovered.heal().await.is_ok());
        let healed =
            recover(&seams, token, POOL, ring, &copies[1..], Place::FIRST, &[owner(1, 1)]).await.unwrap();
        (contents(&recovered), contents(&healed))
    });
    assert_eq!(found.0.len(), 9);
    assert!(found.0 == found.1);
}

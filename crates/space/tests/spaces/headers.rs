//! Headers of slabs: a verification finds and heals those that are not what the map says, and calls no other wrong.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation)]

use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sleep;
use dolmen_sim::Random;
use dolmen_space::{HeaderFault, Progress, Resiliency, SpaceSpec, Spaces, Verification};
use dolmen_units::Bytes;

use crate::harness::slow_disks::{CAPACITY, PowerCut};
use crate::harness::{Bench, Lab, Outcome, ROW};

const BLOCK: u64 = 4096;
/// Where the id of the space stands in a header, and what that of a space of shadow rows has in it beside the other's.
const SPACE: std::ops::Range<usize> = 40..48;
const OF_SHADOWS: u64 = 1 << 63;

/// Where headers of slabs stand: disk, address, and what they are.
fn headers(bench: &Bench) -> Vec<(usize, u64, Vec<u8>)> {
    let mut found = Vec::new();
    for (number, disk) in bench.disks.iter().enumerate() {
        for at in (0..disk.profile().geometry.capacity.0).step_by(BLOCK as usize) {
            let mut block = vec![0; BLOCK as usize];
            if disk.show(at, &mut block) && block.starts_with(b"DOLMENSL") {
                found.push((number, at, block));
            }
        }
    }
    found
}

/// A mirror, a space with parity and, with that, a write cache, all of whose rows have tables.
async fn make(lab: &Lab) -> Result<Rc<Spaces>, Box<dyn std::error::Error>> {
    let spaces = lab.create().await?;
    for (name, resiliency) in
        [("copies", Resiliency::Mirror { copies: 2 }), ("lines", Resiliency::Parity { parity: 1 })]
    {
        let space = lab.space(&spaces, name, Bytes::mib(4), resiliency).await?;
        for row in 0..2 {
            lab.write(&space, row << 20, 1 << 20, 1).await?;
        }
        space.flush().await?;
        lab.write(&space, 0, 8192, 2).await?;
    }
    spaces.flush().await?;
    spaces.pool().checkpoint().await?;
    Ok(spaces)
}

async fn verify(spaces: &Spaces) -> Result<Verification, Box<dyn std::error::Error>> {
    let seen = spaces.scrubs().verify(&Progress::default()).await?;
    assert!(seen.is_sound(), "{seen:?}");
    assert_eq!(seen.header_count, seen.headers.len() as u64);
    Ok(seen)
}

/// Scenario: a bit turns in the header of each slab, of copies, of parity and of the write cache. A verification names each
/// slab, and writes its header as it was; the next one finds nothing.
#[test]
fn a_bit_flip_in_any_header_is_found_and_healed() {
    let bench = Rc::new(Bench::new(41, 5, CAPACITY));
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = make(&lab).await?;
            assert_eq!(verify(&spaces).await?.headers, []);
            let before = headers(&outside);
            let mut random = Random::new(41);
            for (disk, at, _) in &before {
                outside.disks[*disk].rot(at + random.below(BLOCK), random.below(8) as u8);
            }
            let found = verify(&spaces).await?.headers;
            assert_eq!(found.len(), before.len());
            let all_equal = found.iter().all(|one| one.fault == HeaderFault::Corrupt && one.is_healed);
            assert!(all_equal, "{found:?}");
            for name in ["copies", "lines"] {
                assert!(found.iter().any(|header| header.space.to_string() == name), "{found:?}");
            }
            for (disk, device) in outside.disks.iter().enumerate() {
                let of_disk = found.iter().filter(|header| header.disk == device.name()).count();
                assert_eq!(of_disk, before.iter().filter(|header| header.0 == disk).count());
            }
            assert_eq!(headers(&outside), before);
            lab.check_and_close(spaces).await
        })
        .unwrap();
    bench.run(async |lab| lab.check_and_close(lab.open().await?).await).unwrap();
}

/// Scenario: a header was written to the place of another one, and one cannot be read. Both are named and rewritten.
#[test]
fn a_header_of_another_slab_and_one_that_cannot_be_read_are_found_and_healed() {
    let bench = Rc::new(Bench::new(42, 5, CAPACITY));
    bench.run(async |lab| lab.check_and_close(make(&lab).await?).await).unwrap();
    bench.world.kill();
    let before = headers(&bench);
    let on_first: Vec<_> = before.iter().filter(|header| header.0 == 0).collect();
    let mut image = bench.disks[0].truth();
    image.write(on_first[1].1, &on_first[0].2);
    bench.disks[0].replace_content(image);
    bench.disks[0].make_unreadable(on_first[2].1);
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = lab.open().await?;
            let found = verify(&spaces).await?.headers;
            assert!(found.iter().all(|header| header.is_healed), "{found:?}");
            let count =
                |is_it: fn(&HeaderFault) -> bool| found.iter().filter(|one| is_it(&one.fault)).count();
            assert_eq!(count(|fault| *fault == HeaderFault::Foreign), 1, "{found:?}");
            assert_eq!(count(|fault| matches!(fault, HeaderFault::Unreadable(_))), 1, "{found:?}");
            assert_eq!((found.len(), headers(&outside).len()), (2, before.len()));
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: power fails right behind the change of the map by which shadow rows were promoted, before a flush. Headers of
/// these slabs name the space of shadow rows: none of them is called wrong, and all are as the map says behind a verification.
#[test]
fn a_leftover_header_of_a_shadow_row_is_not_called_wrong() {
    let bench = Rc::new(Bench::new(43, 5, Bytes::mib(128)));
    let cut = PowerCut::of(&bench);
    let fails = Rc::clone(&cut);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(8), Resiliency::Parity { parity: 1 });
            (spec.row, spec.columns, spec.interleave) = (Some(ROW), Some(2), Bytes::kib(16));
            let space = spaces.create(spec).await?;
            for fill in [1, 2] {
                for at in (0..1 << 20).step_by(1 << 16) {
                    lab.write(&space, at, 1 << 16, fill).await?;
                }
                spaces.flush().await?;
            }
            while spaces.counters().shadows_promoted == 0 {
                sleep(lab.seams.clock.as_ref(), Duration::from_millis(10)).await;
                assert!(spaces.counters().shadows_made > 0);
            }
            fails.now();
            lab.hold((spaces, space));
            Ok(())
        })
        .unwrap();
    let left = Rc::new(cut.left(&bench, None));
    let of_shadows = |bench: &Bench| {
        let space = |block: &[u8]| u64::from_le_bytes(block[SPACE].try_into().unwrap());
        let found = headers(bench).into_iter().map(|(_, _, block)| space(&block));
        found.filter(|space| *space >= OF_SHADOWS && *space < u64::MAX - 255).count()
    };
    assert_eq!(of_shadows(&left), 3, "of each column");
    let outside = Rc::clone(&left);
    let verified = left.run(async move |lab| -> Outcome {
        let spaces = lab.open().await?;
        let space = spaces.find("data")?;
        lab.expect(&space, 0, 1 << 20, 2).await?;
        drop(space);
        assert_eq!(spaces.counters().shadows_found, 0, "it had taken over");
        assert_eq!(verify(&spaces).await?.headers, []);
        assert_eq!(of_shadows(&outside), 0);
        lab.check_and_close(spaces).await
    });
    verified.unwrap();
}

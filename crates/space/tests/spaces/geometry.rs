//! Disks that come back with another geometry: the same bytes behind sectors of another size, and short of their last
//! megabytes, as an image has them that was copied to another medium.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;

use dolmen_causes::in_one_line;
use dolmen_disk::Extent;
use dolmen_pool::MemoryArbiter;
use dolmen_sim::{DiskProfile, Image};
use dolmen_space::{Resiliency, Space, SpaceSpec, Spaces};
use dolmen_units::{Bytes, HostId};

use crate::harness::{Bench, Lab, Outcome, ROW, check, file};

const DISKS: usize = 3;
/// An odd number of sectors of 512 bytes, so that a disk of 4 KiB sectors loses the last of them too.
const CAPACITY: Bytes = Bytes((72 << 20) + 5 * 512);
/// Bytes that the disks lose at their end: one mebibyte less than a disk leaves unused there.
const LOST: u64 = 7 << 20;
const BLOCK: usize = 4096;
/// Blocks are written this far from each other.
const STEP: u64 = 64 << 10;
/// Every space, with its sector: all kinds of rows, each kind addressed in sectors of either size.
const SPACES: [(&str, Resiliency, u64); 4] = [
    ("mirror", Resiliency::Mirror { copies: 2 }, 512),
    ("wide", Resiliency::Mirror { copies: 3 }, 4096),
    ("parity", Resiliency::Parity { parity: 1 }, 512),
    ("simple", Resiliency::Simple, 4096),
];
/// The space that takes what the others leave.
const LAST: &str = "simple";
/// The row that is written again.
const AGAIN: u64 = 3;
/// Size of each other space.
const SIZE: Bytes = Bytes::mib(12);

/// How a disk is addressed, and how long it is.
#[derive(Debug, Clone, Copy)]
struct Geometry {
    sector: u64,
    lost: u64,
}

impl Geometry {
    fn profile(self) -> DiskProfile {
        let mut profile = file(CAPACITY);
        profile.geometry.capacity = Bytes(CAPACITY.0 - self.lost).align_down(self.sector);
        if self.sector == 4096 { profile.native_4k() } else { profile }
    }
}

/// How a pool is left before its disks change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Closed,
    PowerCut,
}

/// The host with disks of this geometry that hold what these images do.
fn bench(geometry: Geometry, images: &[Image], arbiter: &Rc<MemoryArbiter>) -> Bench {
    let mut bench = Bench::new(11, 0, CAPACITY);
    let add = |(number, image): (usize, &Image)| {
        bench.world.add_disk_with(&format!("disk{number}"), geometry.profile(), image.clone())
    };
    bench.disks = images.iter().enumerate().map(add).collect();
    bench.arbiter = Rc::clone(arbiter);
    bench
}

/// Runs a body on disks of this geometry; what is on them then.
fn seen<F>(geometry: Geometry, images: &[Image], arbiter: &Rc<MemoryArbiter>, end: End, body: F) -> Vec<Image>
where
    F: AsyncFnOnce(Lab, Rc<Spaces>) -> Outcome + 'static,
{
    let bench = bench(geometry, images, arbiter);
    let is_new = images.iter().all(|image| image.first_difference(&Image::new(), CAPACITY.0).is_none());
    bench
        .run(async move |lab| {
            let spaces = if is_new { lab.create().await? } else { lab.open().await? };
            body(lab.clone(), Rc::clone(&spaces)).await?;
            if end == End::Closed { lab.check_and_close(spaces).await } else { Ok(spaces.flush().await?) }
        })
        .unwrap_or_else(|error| panic!("{geometry:?}, {end:?}: {}", in_one_line(&*error)));
    bench.world.power_cut();
    bench.disks.iter().map(|disk| disk.durable()).collect()
}

/// Where blocks are written in a row: all over it, and at its very end.
fn places(row: u64) -> impl Iterator<Item = u64> {
    let (start, end) = (row * ROW.0, (row + 1) * ROW.0);
    (start..end).step_by(STEP as usize).chain([end - BLOCK as u64])
}

/// Makes every space and fills it, the last one until the pool is full; how many of its rows that took.
async fn fill(lab: &Lab, spaces: &Spaces) -> Result<u64, Box<dyn Error>> {
    for (name, resiliency, sector) in SPACES {
        let last = name == LAST;
        let size = if last { Bytes(3 * CAPACITY.0).align_down(ROW.0) } else { SIZE };
        let mut spec = SpaceSpec::usual(name.parse()?, size, resiliency);
        (spec.sector, spec.row, spec.interleave) = (Bytes(sector), Some(ROW), Bytes::kib(64));
        let space = spaces.create(spec).await?;
        for row in 0..size.0 / ROW.0 {
            match write_row(lab, &space, row, 1).await {
                Ok(()) => {}
                Err(error) if last && row > 0 => {
                    assert!(error.to_string().contains("has no room"), "{error}");
                    spaces.flush().await?;
                    return Ok(row);
                }
                Err(error) => return Err(error),
            }
        }
    }
    Err("the pool never was full".into())
}

async fn write_row(lab: &Lab, space: &Space, row: u64, fill: u8) -> Outcome {
    for at in places(row) {
        lab.write(space, at, BLOCK, fill).await?;
    }
    Ok(())
}

/// Everything that was written is there, and nothing else is: `latest` of the row that was written again.
async fn expect_all(lab: &Lab, spaces: &Spaces, rows: u64, latest: u8) -> Outcome {
    for (name, ..) in SPACES {
        let space = spaces.find(name)?;
        let rows = if name == LAST { rows } else { SIZE.0 / ROW.0 };
        for row in 0..rows {
            let fill = if row == AGAIN { latest } else { 1 };
            for at in places(row) {
                lab.expect(&space, at, BLOCK, fill).await?;
            }
            lab.expect(&space, row * ROW.0 + BLOCK as u64, BLOCK, 0).await?;
        }
    }
    Ok(())
}

/// Writes one row of each space again.
async fn write_again(lab: &Lab, spaces: &Spaces, fill: u8) -> Outcome {
    for (name, ..) in SPACES {
        write_row(lab, &spaces.find(name)?, AGAIN, fill).await?;
    }
    Ok(())
}

/// Data reaches to what the pool keeps back of every disk for repairs: 1/16, and less than a row.
fn assert_full(images: &[Image]) {
    let Extent { data_start, data_end, .. } = Extent::of(CAPACITY).unwrap();
    let kept_back = (data_end - data_start) / 16 + 2 * ROW.0;
    for (number, image) in images.iter().enumerate() {
        let mut last = vec![0; kept_back as usize];
        image.read(data_end - kept_back, &mut last);
        assert!(last.iter().any(|byte| *byte != 0), "disk{number} is not full");
    }
}

/// A pool that is full is made on sectors of one size and opened on sectors of the other, `lost` bytes
/// shorter, behind a power cut too. Everything is there, can be written, and is sound; and once more where the disks have
/// their first geometry and length again, with the labels that the pool could not reach meanwhile.
fn moves(from: u64, to: u64, lost: u64) {
    for end in [End::Closed, End::PowerCut] {
        let arbiter = MemoryArbiter::new(HostId([7; 16]));
        let (first, second) = (Geometry { sector: from, lost: 0 }, Geometry { sector: to, lost });
        let rows = Rc::new(Cell::new(0));
        let filled = Rc::clone(&rows);
        let empty = vec![Image::new(); DISKS];
        let images = seen(first, &empty, &arbiter, end, async move |lab, spaces| {
            filled.set(fill(&lab, &spaces).await?);
            Ok(())
        });
        let rows = rows.get();
        assert_full(&images);
        let images = seen(second, &images, &arbiter, end, async move |lab, spaces| {
            expect_all(&lab, &spaces, rows, 1).await?;
            write_again(&lab, &spaces, 2).await?;
            spaces.flush().await?;
            check(&spaces).await?;
            expect_all(&lab, &spaces, rows, 2).await
        });
        seen(first, &images, &arbiter, End::Closed, async move |lab, spaces| {
            expect_all(&lab, &spaces, rows, 2).await?;
            write_again(&lab, &spaces, 3).await?;
            expect_all(&lab, &spaces, rows, 3).await
        });
    }
}

#[test]
fn a_pool_made_on_512_byte_sectors_opens_on_4096() {
    moves(512, 4096, 0);
}

#[test]
fn a_pool_made_on_4096_byte_sectors_opens_on_512() {
    moves(4096, 512, 0);
}

#[test]
fn a_pool_opens_on_larger_sectors_and_short_of_seven_megabytes() {
    moves(512, 4096, LOST);
}

#[test]
fn a_pool_opens_on_smaller_sectors_and_short_of_seven_megabytes() {
    moves(4096, 512, LOST);
}

/// The same disks, shorter than where their data ends: refused in words that say so, and not a byte of them changes.
#[test]
fn disks_that_lost_data_at_their_end_are_refused() {
    let arbiter = MemoryArbiter::new(HostId([7; 16]));
    let whole = Geometry { sector: 512, lost: 0 };
    let images = seen(whole, &vec![Image::new(); DISKS], &arbiter, End::Closed, async move |lab, spaces| {
        fill(&lab, &spaces).await.map(drop)
    });
    let short = bench(Geometry { sector: 4096, lost: 10 << 20 }, &images, &arbiter);
    let refused = short.run(async move |lab| lab.open().await.map(drop)).unwrap_err();
    let refused = in_one_line(&*refused);
    assert!(refused.contains("the image was cut short"), "{refused}");
    for (image, disk) in images.iter().zip(&short.disks) {
        assert_eq!(image.first_difference(&disk.truth(), CAPACITY.0), None);
    }
}

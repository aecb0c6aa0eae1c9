//! What requests of clients hold of memory for their futures: blocks of the future pool, whatever the request waits for.
#![allow(clippy::unwrap_used)]

use dolmen_block_io::Durability;
use dolmen_future_pool::{figures, reset_peak};
use dolmen_space::{Integrity, Resiliency, Space};
use dolmen_units::Bytes;

use crate::harness::{Bench, Kind, Lab, Outcome};

/// Blocks that a write to a mirror holds at most, in bytes, where its rows exist.
const MIRROR_BYTES_MAX: usize = 4 * 1024;
/// The same of a write to a space with parity, or with a write cache; and of any write that claims rows.
const PARITY_BYTES_MAX: usize = 16 * 1024;
/// The same of a read.
const READ_BYTES_MAX: usize = 4 * 1024;

/// The most that a request held beyond what was lent when it began, and whether the allocator was asked for blocks.
#[derive(Debug, Clone, Copy)]
struct Held {
    peak: usize,
    made: u64,
}

async fn held<T, E: std::error::Error + 'static>(
    request: impl Future<Output = Result<T, E>>,
    before: dolmen_future_pool::Figures,
) -> Result<Held, Box<dyn std::error::Error>> {
    request.await?;
    let after = figures();
    Ok(Held { peak: after.peak_bytes - before.lent_bytes, made: after.made - before.made })
}

/// Writes of several classes, then reads; what the largest of each held. Writes of the first round claim the rows.
async fn requests(lab: &Lab, space: &Space) -> Result<[Held; 2], Box<dyn std::error::Error>> {
    let mut largest = [Held { peak: 0, made: 0 }; 2];
    for round in 0..3 {
        // Never written, written since the last flush, flushed: small, whole stripes, and some blocks.
        for (at, length) in
            [(0, 4096), (0, 4096), (1 << 20, 512 * 1024), (1 << 20, 512 * 1024), (4096, 12288)]
        {
            let mut data = lab.seams.data.take(length).await;
            data.fill(round + 1);
            let data = data.freeze();
            reset_peak();
            let before = figures();
            let written = held(space.write(at, &data, Durability::Cached), before).await?;
            assert!(
                written.peak <= PARITY_BYTES_MAX,
                "a write of {length} at {at} in round {round}: {written:?}"
            );
            reset_peak();
            let before = figures();
            let read = held(space.read(at, length), before).await?;
            for (largest, now) in largest.iter_mut().zip([written, read]) {
                if round > 0 {
                    largest.peak = largest.peak.max(now.peak);
                }
                // What the first rounds have made is used again.
                largest.made = if round < 2 { 0 } else { largest.made + now.made };
            }
        }
        space.flush().await?;
    }
    Ok(largest)
}

fn expect_bounds(kind: Kind, disks: usize, write_max: usize) -> Outcome {
    let bench = Bench::new(1, disks, Bytes::mib(192));
    bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let space = lab.space_of_kind(&spaces, "data", Bytes::mib(24), kind).await?;
        let [write, read] = requests(&lab, &space).await?;
        assert!(write.peak <= write_max, "a write to {kind} held {} bytes", write.peak);
        assert!(read.peak <= READ_BYTES_MAX, "a read of {kind} held {} bytes", read.peak);
        assert_eq!(write.made + read.made, 0, "the steady path asked the allocator for blocks");
        drop(space);
        lab.check_and_close(spaces).await
    })
}

/// A write to a mirror, of every class, holds 4 KiB of futures at most, and from its second time on none that are new.
#[test]
fn a_write_to_a_mirror_holds_little_memory_for_futures() {
    for copies in [2, 3] {
        expect_bounds(Kind::usual(Resiliency::Mirror { copies }), 4, MIRROR_BYTES_MAX).unwrap();
    }
    expect_bounds(Kind::usual(Resiliency::Simple), 2, MIRROR_BYTES_MAX).unwrap();
}

/// A write to a space with parity or to a strict one, of every class, holds 16 KiB of futures at most.
#[test]
fn a_write_through_the_write_cache_holds_little_memory_for_futures() {
    for (parity, disks) in [(1, 4), (2, 5)] {
        expect_bounds(Kind::usual(Resiliency::Parity { parity }), disks, PARITY_BYTES_MAX).unwrap();
    }
    let strict = Kind { resiliency: Resiliency::Mirror { copies: 2 }, integrity: Integrity::Strict };
    expect_bounds(strict, 3, PARITY_BYTES_MAX).unwrap();
}

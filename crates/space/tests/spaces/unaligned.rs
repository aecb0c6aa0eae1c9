//! Requests of any alignment: a write that begins or ends within a block changes its own bytes alone, beside other writers of
//! the same block and whatever a power cut leaves of it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation)]

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use dolmen_block_io::Durability;
use dolmen_block_io::sync::join_all;
use dolmen_sim::{Fate, PendingWrite, Random, Tear};
use dolmen_space::{Resiliency, Space};
use dolmen_units::Bytes;

use crate::harness::{Bench, Kind, Lab, Outcome, file, pattern, read};

const KINDS: [Kind; 7] = [
    Kind::usual(Resiliency::Simple),
    Kind::usual(Resiliency::Span),
    Kind::usual(Resiliency::Mirror { copies: 2 }),
    Kind::usual(Resiliency::Parity { parity: 1 }),
    Kind::usual(Resiliency::Parity { parity: 2 }),
    Kind::strict(Resiliency::Simple),
    Kind::strict(Resiliency::Mirror { copies: 2 }),
];
/// Bytes that clients write: the end of one row and the beginning of the next.
const REGION: Range<u64> = (1 << 20) - (128 << 10)..(1 << 20) + (192 << 10);
const CLIENTS: usize = 6;
/// Requests of one client.
const REQUESTS: u64 = 40;

/// A client, the bytes that it alone writes, and what they hold.
struct Client {
    number: usize,
    owned: Vec<(u64, Vec<u8>)>,
    random: Random,
}

/// Cuts the region into pieces of random length, mostly shorter than a block, and gives them to clients in turn.
fn clients(random: &mut Random) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..CLIENTS)
        .map(|number| Client { number, owned: Vec::new(), random: Random::new(random.next_u64()) })
        .collect();
    let (mut at, mut turn) = (REGION.start, 0);
    while at < REGION.end {
        let longest = if random.below(12) == 0 { 120_000 } else { 3000 };
        let length = (1 + random.below(longest)).min(REGION.end - at);
        clients[turn % CLIENTS].owned.push((at, vec![0; length as usize]));
        (at, turn) = (at + length, turn + 1);
    }
    clients
}

impl Client {
    /// Writes, zeroes, discards and reads ranges of its own bytes, of any alignment.
    async fn run(&mut self, lab: &Lab, space: &Space) -> Outcome {
        for round in 0..REQUESTS {
            let piece = self.random.index(self.owned.len());
            let (start, content) = &mut self.owned[piece];
            let from = self.random.below(content.len() as u64);
            let length = 1 + self.random.below(content.len() as u64 - from);
            let (at, range) = (*start + from, from as usize..(from + length) as usize);
            match self.random.below(10) {
                0 => {
                    space.write_zeroes(at, length).await?;
                    content[range].fill(0);
                }
                1 => {
                    space.write_allocated_zeroes(at, length).await?;
                    content[range].fill(0);
                }
                2 => {
                    space.discard(at, length).await?;
                    // Whole blocks are forgotten, and parts of blocks stay.
                    let (first, end) = (at.next_multiple_of(4096), (at + length) / 4096 * 4096);
                    if first < end {
                        content[(first - *start) as usize..(end - *start) as usize].fill(0);
                    }
                }
                3 => space.flush().await?,
                kind => {
                    let durability = if kind == 4 { Durability::Durable } else { Durability::Cached };
                    let fill = (1 + (self.number as u64 + round * CLIENTS as u64) % 250) as u8;
                    lab.write_as(space, at, length as usize, fill, durability).await?;
                    pattern(at, fill, &mut content[range]);
                }
            }
            self.verify(space, piece).await?;
        }
        Ok(())
    }

    /// Reads one of its pieces back.
    async fn verify(&self, space: &Space, piece: usize) -> Outcome {
        let (start, content) = &self.owned[piece];
        let found = read(space, *start, content.len()).await?;
        match found.iter().zip(content).position(|(found, expected)| found != expected) {
            None => Ok(()),
            Some(index) => {
                let (found, expected) = (found[index], content[index]);
                let (client, at) = (self.number, *start + index as u64);
                Err(format!("byte {at} of client {client} is {found} instead of {expected}").into())
            }
        }
    }
}

/// Zeroing claims no room where nothing was written, whatever its alignment: a request of 256 MiB in pieces that begin and end
/// within a block, as a kernel cuts it for a device that takes 4 GiB less a sector.
#[test]
fn zeroes_over_nothing_claim_no_room() {
    for (number, kind) in KINDS.into_iter().enumerate() {
        let bench = Bench::new(7500 + number as u64, 4, Bytes::mib(96));
        let outcome = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space_of_kind(&spaces, "data", Bytes::mib(256), kind).await?;
            lab.write(&space, 100 << 20, 4096, 1).await?;
            let claimed = space.claimed();
            let pieces = (0..256 << 20).step_by((16 << 20) - 512);
            for at in pieces {
                space.write_zeroes(at, ((16 << 20) - 512).min((256 << 20) - at)).await?;
            }
            assert!(space.claimed() <= claimed, "{} of {claimed} are claimed", space.claimed());
            lab.expect(&space, 100 << 20, 8192, 0).await?;
            drop(space);
            lab.check_and_close(spaces).await
        });
        outcome.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}

/// Scenario: six clients write, zero, discard and read at once, each its own bytes, which share blocks with the bytes of others.
/// Each reads what it wrote, all the time, and again after the pool was closed and opened.
#[test]
fn writers_of_one_block_keep_the_bytes_of_each_other() {
    for (number, kind) in KINDS.into_iter().enumerate() {
        for seed in 0..3 {
            let seed = 7000 + 10 * number as u64 + seed;
            let bench = Bench::new(seed, 4, Bytes::mib(96));
            let outcome = bench.run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.space_of_kind(&spaces, "data", Bytes::mib(8), kind).await?;
                let mut clients = clients(&mut Random::new(seed));
                let runs = clients.iter_mut().map(|client| client.run(&lab, &space));
                join_all(runs).await.into_iter().collect::<Outcome>()?;
                spaces.close().await?;
                drop((space, spaces));
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                for client in &clients {
                    for piece in 0..client.owned.len() {
                        client.verify(&space, piece).await?;
                    }
                }
                drop(space);
                lab.check_and_close(spaces).await
            });
            outcome.unwrap_or_else(|error| panic!("{kind}, seed {seed}: {error}"));
        }
    }
}

/// A range at the end of a space that is no whole block is served; one that ends behind it is refused, with its length and the size.
#[test]
fn a_range_ends_with_the_space_at_any_byte() {
    let bench = Bench::new(7200, 1, Bytes::mib(96));
    let outcome = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let space = lab.space(&spaces, "data", Bytes::mib(2), Resiliency::Simple).await?;
        let end = 2 << 20;
        lab.write(&space, end - 1, 1, 3).await?;
        lab.expect(&space, end - 1, 1, 3).await?;
        lab.expect(&space, end - 4096, 4095, 0).await?;
        for (at, length) in [(end - 1, 2), (end, 1), (end + 4096, 1)] {
            let error = lab.write(&space, at, length, 3).await.unwrap_err().to_string();
            assert!(error.contains("end beyond space data"), "{error}");
        }
        drop(space);
        lab.check_and_close(spaces).await
    });
    outcome.unwrap();
}

/// Where the data of a disk begins.
const DATA_AT: u64 = 9 << 20;
/// Bytes that are flushed before.
const BEFORE: usize = 4 * 4096;
/// What is written when power fails: within a block, and over the border of two.
const WRITTEN: [(u64, usize); 2] = [(1000, 100), (2 * 4096 - 700, 1400)];

/// Flushes some blocks and writes parts of them, and stops after so many writes and flushes of that; whether it came so far.
fn stopped_in_a_write(bench: &Bench, kind: Kind, steps: u64) -> bool {
    let (begins, is_over): (Rc<Cell<bool>>, Rc<Cell<bool>>) = Default::default();
    let (lab, begin, over) = (bench.lab(), Rc::clone(&begins), Rc::clone(&is_over));
    let run = async move {
        let spaces = lab.create().await.unwrap();
        let space = lab.space_of_kind(&spaces, "data", Bytes::mib(2), kind).await.unwrap();
        lab.write(&space, 0, BEFORE, 1).await.unwrap();
        spaces.flush().await.unwrap();
        begin.set(true);
        for (at, length) in WRITTEN {
            lab.write_as(&space, at, length, 2, Durability::Durable).await.unwrap();
        }
        over.set(true);
        std::future::pending::<()>().await;
    };
    bench.world.spawn("run", Box::pin(run));
    bench.world.run_until(|_| begins.get()).unwrap();
    let begun = bench.world.change_count();
    bench.world.run_until(|world| is_over.get() || world.change_count() >= begun + steps).unwrap();
    !is_over.get()
}

/// Scenario: parts of blocks that a flush has covered are written, and power fails at each write and flush of that, and tears every
/// block on its way to the data at the same sector. The bytes around what was written are as they were, and those of the write are
/// old or new.
#[test]
fn a_torn_write_of_a_part_of_a_block_leaves_its_neighbours() {
    let mut torn = 0;
    for kind in KINDS {
        for sector in [2, 5] {
            for steps in 0.. {
                let bench = Bench::with_profile(7300, 4, || file(Bytes::mib(96)).tearing());
                if !stopped_in_a_write(&bench, kind, steps) {
                    break;
                }
                bench.world.power_cut_choosing(&mut |write: &PendingWrite| {
                    if write.at < DATA_AT || write.unit_count < 8 {
                        return Fate::Landed;
                    }
                    torn += 1;
                    Fate::Torn(Tear::First(sector))
                });
                let found = bench.run(async |lab| {
                    let spaces = lab.open().await?;
                    let space = spaces.find("data")?;
                    expect_old_or_new(&space).await?;
                    drop(space);
                    lab.check_and_close(spaces).await
                });
                found.unwrap_or_else(|error| {
                    panic!("{kind}, torn at sector {sector} after {steps} writes and flushes: {error}")
                });
            }
        }
    }
    assert!(torn > 0, "no block was torn");
}

async fn expect_old_or_new(space: &Space) -> Outcome {
    let (mut old, mut new) = (vec![0; BEFORE], vec![0; BEFORE]);
    pattern(0, 1, &mut old);
    new.clone_from(&old);
    for (at, length) in WRITTEN {
        pattern(at, 2, &mut new[at as usize..][..length]);
    }
    let found = read(space, 0, BEFORE).await?;
    let is_wrong = |index: &usize| found[*index] != old[*index] && found[*index] != new[*index];
    match (0..BEFORE).find(is_wrong) {
        None => Ok(()),
        Some(index) => {
            Err(format!("byte {index} is {} instead of {} or {}", found[index], old[index], new[index])
                .into())
        }
    }
}

//! Power cuts and killed daemons against a model that knows every record and what was promised of it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dolmen_block_io::{Entropy, Spawner, fixed_entropy};
use dolmen_units::Lsn;

use super::disk::Cut;
use super::{World, contents, epoch};
use crate::{Class, Log, Owner, Place, Recovered, Start, Wait};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Promise {
    None,
    /// Complete on every copy; a power cut may take it.
    Written(Lsn),
    /// Nothing may take it but the loss of all copies.
    Durable(Lsn),
}

#[derive(Default)]
struct Model {
    promises: BTreeMap<u64, Promise>,
    /// What was not there when an opener began to serve.
    dead: BTreeSet<u64>,
    next_id: u64,
}

struct Run {
    world: World,
    entropy: Rc<dyn Entropy>,
    model: Rc<RefCell<Model>>,
    voters: Vec<usize>,
    spans: Vec<Owner>,
    tail: Place,
    epoch: u64,
    seed: u64,
}

fn body(id: u64) -> Vec<u8> {
    let length = match id % 7 {
        0 => 9000,
        1 => 3000,
        2 => 0,
        _ => 100 + id % 200,
    };
    let filler = (0..length).map(|at| u8::try_from((id * 31 + at * 7) % 251).unwrap());
    id.to_le_bytes().into_iter().chain(filler).collect()
}

impl Run {
    fn draw(&self, below: u64) -> u64 {
        self.entropy.next_u64() % below
    }

    fn append(&self, log: &Rc<Log>) {
        let id = self.model.borrow().next_id;
        self.model.borrow_mut().next_id += 1;
        self.model.borrow_mut().promises.insert(id, Promise::None);
        let wait = if self.draw(3) == 0 { Wait::Durable } else { Wait::Written };
        let class = if self.draw(4) == 0 { Class::Reserved } else { Class::Ordinary };
        let (log, model) = (Rc::clone(log), Rc::clone(&self.model));
        self.world.executor.spawn(
            "append",
            Box::pin(async move {
                let (bytes, kind) = (body(id), u8::try_from(id % 200).unwrap() + 1);
                let (front, back) = bytes.split_at(3);
                let Ok(lsn) = log.append(kind, &[front, back], class, wait).await else { return };
                let promise = match wait {
                    Wait::Written => Promise::Written(lsn),
                    Wait::Durable => Promise::Durable(lsn),
                };
                model.borrow_mut().promises.insert(id, promise);
            }),
        );
    }

    /// Lets everything complete, makes it durable and says so: what a flush of the pool does.
    fn flush(&self, log: &Rc<Log>) {
        let cut = log.cut();
        self.calm();
        for number in &self.voters {
            self.world.disks[*number].make_durable();
        }
        for promise in self.model.borrow_mut().promises.values_mut() {
            if let Promise::Written(lsn) = *promise {
                *promise = Promise::Durable(lsn);
            }
        }
        if log.usage().used_bytes < log.usage().capacity_bytes {
            log.mark_durable(Lsn(cut.0 - 1));
            let log = Rc::clone(log);
            self.world.executor.spawn(
                "mark",
                Box::pin(async move {
                    let _ = log.mark().await;
                }),
            );
        }
    }

    fn calm(&self) {
        self.world.run_until_idle();
        while self.voters.iter().any(|number| self.world.disks[*number].held_count() > 0) {
            self.voters.iter().for_each(|number| self.world.disks[*number].release_all());
            self.world.run_until_idle();
        }
    }

    /// A checkpoint said that the log begins later.
    fn trim(&mut self, log: &Rc<Log>) {
        let last = log.place_of(self.tail.lsn).map_or(self.tail.lsn, |place| place.lsn);
        let to = Lsn(last.0 + self.draw(6));
        // What is not complete on every copy is never behind a checkpoint.
        let Some(place) =
            log.place_of(to).filter(|_| self.voters.iter().all(|n| self.world.disks[*n].held_count() == 0))
        else {
            return;
        };
        self.tail = place.max(self.tail);
        log.trim(place);
    }

    fn work(&mut self, log: &Rc<Log>, steps: u64) {
        for _ in 0..steps {
            match self.draw(20) {
                0..=8 => self.append(log),
                9 => self.flush(log),
                10 | 11 => self.trim(log),
                12 => drop(log.cut()),
                13 => self.calm(),
                14..=16 => {
                    let number = self.voters[usize::try_from(self.draw(self.voters.len() as u64)).unwrap()];
                    if self.world.disks[number].held_count() > 0 {
                        self.world.disks[number].release(0);
                    }
                }
                _ => {
                    for _ in 0..self.draw(5) {
                        let pick = self.draw(64);
                        self.world.executor.run_one(|ready| usize::try_from(pick).unwrap() % ready);
                    }
                }
            }
        }
    }

    /// Ends everything that runs and takes what the cut may take.
    fn cut(&self, cut: Cut) {
        self.world.executor.abandon();
        for disk in &self.world.disks {
            disk.holding.set(false);
            let luck = self.draw(4);
            disk.cut(cut, || self.draw(4) < luck);
        }
    }

    fn check(&self, recovered: &Recovered, cut: Cut) {
        let seed = self.seed;
        assert!(recovered.damage().is_empty(), "seed {seed}: {recovered:?}");
        let mut found = BTreeMap::new();
        let mut before = Lsn(0);
        for (lsn, kind, bytes) in contents(recovered) {
            let id = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            assert!(
                bytes == body(id) && u64::from(kind) == id % 200 + 1,
                "seed {seed}: record {id} is as it was"
            );
            assert!(lsn >= before && lsn >= self.tail.lsn, "seed {seed}: records come in order");
            before = lsn;
            assert!(found.insert(id, lsn).is_none(), "seed {seed}: record {id} comes once");
        }
        let model = self.model.borrow();
        for (id, promise) in &model.promises {
            let (lsn, must) = match *promise {
                Promise::None => continue,
                Promise::Written(lsn) => (lsn, cut == Cut::Process),
                Promise::Durable(lsn) => (lsn, true),
            };
            let there = found.get(id);
            assert!(there.is_none_or(|at| *at == lsn), "seed {seed}: record {id} is where it was said to be");
            assert!(
                !must || lsn < self.tail.lsn || there.is_some(),
                "seed {seed}: record {id} at {lsn} is lost"
            );
        }
        for id in found.keys() {
            assert!(!model.dead.contains(id), "seed {seed}: record {id} came back from the dead");
            assert!(model.promises.contains_key(id), "seed {seed}: record {id} was appended");
        }
    }

    /// Opens again on some voters, with strays among the copies read, and serves from what was found.
    fn reopen(&mut self, cut: Cut) -> Rc<Log> {
        let mut present = self.voters.clone();
        let gone = if present.len() > 1 && self.draw(3) > 0 {
            let index = usize::try_from(self.draw(present.len() as u64)).unwrap();
            Some(present.remove(index))
        } else {
            None
        };
        let recovered = self.world.recover(&present, self.tail, &self.spans);
        self.check(&recovered, cut);
        let union = (contents(&recovered), recovered.next());
        // An opener that came this far and no further leaves batches of an epoch that is never in force.
        if self.draw(3) == 0 {
            let recovered = self.world.heal(recovered);
            let log = self.world.start(
                1000 + self.epoch,
                self.world.copies(&present),
                Start::Recovered(&recovered),
            );
            let mark = Rc::clone(&log);
            self.world.executor.spawn(
                "mark",
                Box::pin(async move {
                    let _ = mark.mark().await;
                }),
            );
            self.world.run_until_idle();
            self.cut(Cut::Power);
            drop(log);
        } else {
            drop(self.world.heal(recovered));
        }
        // A second cut, after which any one of the healed copies alone tells the same.
        self.cut(Cut::Power);
        let alone = present[usize::try_from(self.draw(present.len() as u64)).unwrap()];
        let again = self.world.recover(&[alone], self.tail, &self.spans);
        assert_eq!((contents(&again), again.next()), union, "seed {}: healed copies are equal", self.seed);
        // Strays are read too, once an epoch owns what comes: here they only see what the voters had.
        self.serve(again, &present, gone)
    }

    fn serve(&mut self, recovered: Recovered, present: &[usize], gone: Option<usize>) -> Rc<Log> {
        let found: BTreeSet<u64> = contents(&recovered)
            .iter()
            .map(|(_, _, bytes)| u64::from_le_bytes(bytes[..8].try_into().unwrap()))
            .collect();
        {
            let mut model = self.model.borrow_mut();
            let ids: Vec<u64> = model.promises.keys().copied().collect();
            for id in ids {
                if found.contains(&id) {
                    let lsn = contents(&recovered)
                        .iter()
                        .find(|(_, _, bytes)| bytes[..8] == id.to_le_bytes())
                        .unwrap()
                        .0;
                    model.promises.insert(id, Promise::Durable(lsn));
                } else {
                    model.promises.remove(&id);
                    model.dead.insert(id);
                }
            }
        }
        self.epoch += 1;
        self.spans.push(Owner { epoch: epoch(self.epoch), first: recovered.next().lsn });
        self.voters = present.to_vec();
        let log = self.world.start(self.epoch, self.world.copies(present), Start::Recovered(&recovered));
        let first = Rc::clone(&log);
        if log.usage().used_bytes < log.usage().capacity_bytes {
            // Fails only when a list of holes finds the ring full; the opener then trims first.
            let _ = self.world.executor.block_on(async move { first.mark().await });
        }
        if let Some(gone) = gone {
            self.return_of(gone);
        }
        for number in present {
            self.world.disks[*number].holding.set(true);
        }
        log
    }

    /// A voter that was away is read beside the others: it adds nothing.
    fn return_of(&self, gone: usize) {
        let mut with: Vec<usize> = self.voters.clone();
        let without = self.world.recover(&with, self.tail, &self.spans);
        with.insert(0, gone);
        let together = self.world.recover(&with, self.tail, &self.spans);
        assert_eq!(contents(&together), contents(&without), "seed {}: a stale copy adds nothing", self.seed);
        assert!(together.damage().is_empty(), "seed {}: {together:?}", self.seed);
    }
}

fn run(seed: u64, copies: u8) {
    let world = World::new(copies);
    let log = world.fresh();
    world.disks.iter().for_each(|disk| disk.holding.set(true));
    let mut run = Run {
        voters: (0..usize::from(copies)).collect(),
        world,
        entropy: fixed_entropy(seed),
        model: Rc::default(),
        spans: vec![Owner { epoch: epoch(1), first: Lsn(1) }],
        tail: Place::FIRST,
        epoch: 1,
        seed,
    };
    let mut log = log;
    for _ in 0..3 {
        let steps = 10 + run.draw(120);
        run.work(&log, steps);
        let cut = if run.draw(4) == 0 { Cut::Process } else { Cut::Power };
        run.cut(cut);
        drop(log);
        log = run.reopen(cut);
    }
    run.world.executor.abandon();
}

// Random appends, cuts, marks, flushes and trims on two and three held disks, a cut at any moment that keeps any
// blocks of what was not durable, one disk gone, an opener that fails half-way, a second cut: every promise holds.
#[test]
fn every_promise_holds_after_any_cut() {
    let count = std::env::var("DOLMEN_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    for seed in 0..count {
        run(seed, 2);
        run(seed, 3);
    }
}

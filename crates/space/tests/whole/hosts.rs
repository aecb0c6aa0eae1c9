//! Two hosts and three disks that a person carries between them, with the code that opens and exports: whatever is done in
//! whatever order, two sides never both go on from the same past, nothing acknowledged is lost, and a stale side never wins.
//!
//! History is a tree. Every acknowledged write is the tip of a *line*; a confirmed opening, and nothing else, begins a
//! new line. An opening that nobody had to confirm has to show the tip of a line, and ends the right of whoever held that
//! line to go on. `DOLMEN_HOSTS_DEPTH` sets how long the orders are that are all tried, `DOLMEN_HOSTS_WALKS` how many
//! longer ones are drawn, `DOLMEN_HOSTS_SEED` which.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::error::Error;
use std::rc::Rc;
use std::time::Instant;

use crate::harness::{ROW, read};
use dolmen_block_io::{BlockDevice, Durability};
use dolmen_buffer::ArenaConfig;
use dolmen_pool::{
    Arbiter, CreateOptions, MemoryArbiter, OpenError, OpenMode, OpenOptions, create, discover, open,
};
use dolmen_sim::{DiskProfile, Image, Random, SimDisk, StopAt, World};
use dolmen_space::{Progress, Resiliency, Spaces};
use dolmen_units::{Bytes, HostId};

const DISKS: usize = 3;
const CAPACITY: Bytes = Bytes::mib(64);
const ARENAS: ArenaConfig = ArenaConfig { small_count: 256, medium_count: 16, large_count: 6 };
const BLOCK: usize = 4096;

/// What a person or an incident does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// Carries a disk to the other host, whatever is open there.
    Carry(usize),
    Open(usize),
    Confirm(usize),
    Look(usize),
    Write(usize),
    Export(usize),
    /// Power fails at a host.
    Crash(usize),
    /// Power fails at a host that is opening or exporting, after so many commands.
    CrashIn(usize, u64),
}

/// A pool that a host has open.
struct Session {
    number: usize,
    line: usize,
    world: World,
    /// Disks by number; those that were carried away have vanished.
    disks: Vec<(usize, Rc<SimDisk>)>,
    spaces: Rc<Spaces>,
}

struct Host {
    arbiter: Rc<MemoryArbiter>,
    session: Option<Session>,
}

/// A line of history.
#[derive(Debug, Clone)]
struct HistoryLine {
    tip: u64,
    /// Written behind the tip and not acknowledged.
    maybe: BTreeSet<u64>,
    holder: usize,
}

struct Scene {
    seed: u64,
    images: Vec<Image>,
    place: Vec<usize>,
    hosts: [Host; 2],
    lines: Vec<HistoryLine>,
    /// Everything that was ever written.
    values: BTreeSet<u64>,
    sessions: usize,
    done: Vec<Act>,
}

/// The pool at the beginning of every order: made by host 0 and closed.
struct Start {
    images: Vec<Image>,
    arbiter: Rc<MemoryArbiter>,
}

type Result<T> = std::result::Result<T, String>;

fn world_with(seed: u64, images: &[(usize, Image)]) -> (World, Vec<(usize, Rc<SimDisk>)>) {
    let world = World::new(seed);
    world.set_arenas(ARENAS, ARENAS);
    world.set_steps_max(1_000_000);
    let profile = || DiskProfile::new(CAPACITY);
    let add = |(number, image): &(usize, Image)| {
        (*number, world.add_disk_with(&format!("disk{number}"), profile(), image.clone()))
    };
    let disks = images.iter().map(add).collect();
    (world, disks)
}

fn attach(world: &World, disks: &[(usize, Rc<SimDisk>)]) -> Vec<Rc<dyn BlockDevice>> {
    disks.iter().map(|(_, disk)| disk.attach(world)).collect()
}

async fn write_value(spaces: Rc<Spaces>, value: u64) -> std::result::Result<(), Box<dyn Error>> {
    let space = spaces.find("data")?;
    let mut buffer = spaces.pool().seams().data.take(BLOCK).await;
    buffer.fill(0);
    buffer[..8].copy_from_slice(&value.to_le_bytes());
    space.write(0, &buffer.freeze(), Durability::Cached).await?;
    spaces.flush().await?;
    Ok(())
}

async fn read_value(spaces: &Spaces) -> std::result::Result<u64, Box<dyn Error>> {
    let bytes = read(&spaces.find("data")?, 0, BLOCK).await?;
    Ok(u64::from_le_bytes(bytes[..8].try_into()?))
}

fn start() -> Start {
    let zeros: Vec<_> = (0..DISKS).map(|number| (number, Image::new())).collect();
    let (world, disks) = world_with(1, &zeros);
    let devices = attach(&world, &disks);
    let arbiter = MemoryArbiter::new(HostId([1; 16]));
    let (seams, host) = (world.seams(), Rc::clone(&arbiter) as Rc<dyn Arbiter>);
    let body = async move {
        let options =
            CreateOptions { name: "tank".parse()?, overwrite: Vec::new(), fault_domains: Vec::new() };
        let spaces = Spaces::start(create(&seams, host, &devices, &options).await?).await?;
        let mirror = Resiliency::Mirror { copies: 3 };
        let mut spec = dolmen_space::SpaceSpec::usual("data".parse()?, Bytes::mib(2), mirror);
        spec.row = Some(ROW);
        spaces.create(spec).await?;
        write_value(Rc::clone(&spaces), 1).await?;
        spaces.close().await?;
        Ok::<_, Box<dyn Error>>(())
    };
    world.run(async move { body.await.map_err(|error| error.to_string()) }).unwrap().unwrap();
    Start { images: disks.iter().map(|(_, disk)| disk.durable()).collect(), arbiter }
}

impl Scene {
    fn new(start: &Start, seed: u64) -> Self {
        let host = |arbiter| Host { arbiter, session: None };
        Self {
            seed,
            images: start.images.clone(),
            place: vec![0; DISKS],
            hosts: [host(start.arbiter.snapshot()), host(MemoryArbiter::new(HostId([2; 16])))],
            lines: vec![HistoryLine { tip: 1, maybe: BTreeSet::new(), holder: 0 }],
            values: BTreeSet::from([1]),
            sessions: 0,
            done: Vec::new(),
        }
    }

    /// What makes sense now. Disks are alike, so the first to be carried is disk 0, the next new one disk 1.
    fn acts(&self) -> Vec<Act> {
        let relogged: BTreeSet<usize> = self
            .done
            .iter()
            .filter_map(|act| if let Act::Carry(disk) = act { Some(*disk) } else { None })
            .collect();
        let mut acts: Vec<Act> = (0..DISKS.min(relogged.len() + 1)).map(Act::Carry).collect();
        for host in 0..2 {
            match &self.hosts[host].session {
                Some(_) => acts.extend([Act::Write(host), Act::Export(host), Act::Crash(host)]),
                None if self.place.contains(&host) => acts.extend([Act::Open(host), Act::Confirm(host)]),
                None => {}
            }
        }
        acts
    }

    fn act(&mut self, act: Act) -> Result<()> {
        self.done.push(act);
        self.seed = self.seed.wrapping_add(1);
        match act {
            Act::Carry(disk) => self.carry(disk),
            Act::Open(host) => self.open(host, OpenMode::Write, None),
            Act::Confirm(host) => self.open(host, OpenMode::Confirmed, None),
            Act::Look(host) => self.open(host, OpenMode::Read, None),
            Act::Write(host) => self.write(host),
            Act::Export(host) => self.export(host, None),
            Act::Crash(host) => self.crash(host),
            Act::CrashIn(host, commands) if self.hosts[host].session.is_some() => {
                self.export(host, Some(commands))
            }
            Act::CrashIn(host, commands) => self.open(host, OpenMode::Write, Some(commands)),
        }
    }

    fn carry(&mut self, disk: usize) -> Result<()> {
        let from = self.place[disk];
        self.place[disk] = 1 - from;
        let Some(session) = &self.hosts[from].session else { return Ok(()) };
        if let Some((_, attach)) =
            session.disks.iter().find(|(number, attach)| *number == disk && !attach.is_absent())
        {
            attach.vanish();
            self.images[disk] = attach.truth();
        }
        Ok(())
    }

    fn here(&self, host: usize) -> Vec<(usize, Image)> {
        let here = (0..DISKS).filter(|disk| self.place[*disk] == host);
        here.map(|disk| (disk, self.images[disk].clone())).collect()
    }

    fn keep(&mut self, disks: &[(usize, Rc<SimDisk>)]) {
        for (number, disk) in disks.iter().filter(|(_, disk)| !disk.is_absent()) {
            self.images[*number] = disk.truth();
        }
    }

    fn open(&mut self, host: usize, mode: OpenMode, stop: Option<u64>) -> Result<()> {
        let (world, disks) = world_with(self.seed, &self.here(host));
        let devices = attach(&world, &disks);
        let (seams, arbiter) = (world.seams(), Rc::clone(&self.hosts[host].arbiter) as Rc<dyn Arbiter>);
        let body = async move {
            let candidates = discover(&seams, &devices).await.pools.into_values().next().unwrap_or_default();
            let opened = open(&seams, arbiter, candidates, &OpenOptions { mode }).await?;
            let confirmed = opened.read_only.is_some();
            Ok::<_, OpenError>((Spaces::start(opened).await.map_err(|error| error.to_string()), confirmed))
        };
        let commands = stop.unwrap_or(u64::MAX);
        let ran = world.run_to(StopAt::Commands(commands), body).map_err(|stuck| stuck.to_string())?;
        let dolmen_sim::Ran::Finished(opened) = ran else {
            world.power_cut();
            self.keep(&disks);
            return Ok(());
        };
        match opened {
            Err(OpenError::ReadOnly { .. } | OpenError::NoMetadata { .. } | OpenError::NoDisks) => {
                self.expect_untouched(&disks, "a refused opening")
            }
            Err(error) => Err(format!("opening failed: {error}")),
            Ok((spaces, _)) if mode == OpenMode::Read => {
                drop(spaces);
                let looked = self.expect_untouched(&disks, "a read-only opening");
                world.power_cut();
                looked
            }
            Ok((spaces, confirmed)) => self.attach(host, world, disks, spaces?, confirmed),
        }
    }

    fn expect_untouched(&self, disks: &[(usize, Rc<SimDisk>)], what: &str) -> Result<()> {
        for (number, disk) in disks {
            if let Some(at) = self.images[*number].first_difference(&disk.truth(), CAPACITY.0) {
                return Err(format!("{what} changed byte {at} of disk{number}"));
            }
        }
        Ok(())
    }

    /// A host has the pool open: which line it continues, or that a new one begins.
    fn attach(
        &mut self,
        host: usize,
        world: World,
        disks: Vec<(usize, Rc<SimDisk>)>,
        spaces: Rc<Spaces>,
        confirmed: bool,
    ) -> Result<()> {
        self.sessions += 1;
        let number = self.sessions;
        let looking = Rc::clone(&spaces);
        let value = world.run(async move {
            let found = read_value(&looking).await.map_err(|error| error.to_string());
            let _ = looking.members().resync(&Progress::default()).await;
            found
        });
        let value = value.map_err(|stuck| stuck.to_string())?;
        let Ok(value) = value else {
            // Only stale copies are here: nothing is shown, so nothing wrong either.
            drop(spaces);
            world.power_cut();
            self.keep(&disks);
            return Ok(());
        };
        let line = if confirmed {
            if !self.values.contains(&value) {
                return Err(format!("a confirmed opening shows {value}, which nobody wrote"));
            }
            self.lines.push(HistoryLine { tip: value, maybe: BTreeSet::new(), holder: number });
            self.lines.len() - 1
        } else {
            let found = self.lines.iter().position(|line| line.tip == value || line.maybe.contains(&value));
            found.ok_or_else(|| {
                format!("an opening that nobody confirmed shows {value}; the lines are {:?}", self.lines)
            })?
        };
        self.lines[line] = HistoryLine { tip: value, maybe: BTreeSet::new(), holder: number };
        self.hosts[host].session = Some(Session { number, line, world, disks, spaces });
        // Every line gets a tip of its own at once.
        self.write(host)
    }

    fn write(&mut self, host: usize) -> Result<()> {
        let Some(session) = &self.hosts[host].session else { return Ok(()) };
        let value = self.values.last().copied().unwrap_or(0) + 1;
        self.values.insert(value);
        let spaces = Rc::clone(&session.spaces);
        let written = session
            .world
            .run(async move { write_value(spaces, value).await.map_err(|error| error.to_string()) });
        let written = written.map_err(|stuck| stuck.to_string())?;
        let line = &mut self.lines[session.line];
        match written {
            Ok(()) if line.holder != session.number => {
                Err(format!("host {host} acknowledged {value}, although another went on with its line"))
            }
            Ok(()) => {
                (line.tip, line.maybe) = (value, BTreeSet::new());
                Ok(())
            }
            Err(_) => {
                line.maybe.insert(value);
                Ok(())
            }
        }
    }

    fn export(&mut self, host: usize, stop: Option<u64>) -> Result<()> {
        let Some(session) = self.hosts[host].session.take() else { return Ok(()) };
        let Session { world, disks, spaces, .. } = session;
        let body = async move { spaces.export().await.map_err(|error| error.to_string()) };
        let commands = stop.unwrap_or(u64::MAX);
        // One that fails is followed by a crash: what is on the disks counts.
        let _ = world.run_to(StopAt::Commands(commands), body).map_err(|stuck| stuck.to_string())?;
        world.power_cut();
        self.keep(&disks);
        Ok(())
    }

    fn crash(&mut self, host: usize) -> Result<()> {
        let Some(Session { world, disks, spaces, .. }) = self.hosts[host].session.take() else {
            return Ok(());
        };
        drop(spaces);
        world.power_cut();
        self.keep(&disks);
        Ok(())
    }

    /// Both hosts look, open what they may, and write.
    fn finish(&mut self) -> Result<()> {
        for host in 0..2 {
            if self.hosts[host].session.is_none() && self.place.contains(&host) {
                self.act(Act::Look(host))?;
                self.act(Act::Open(host))?;
            }
        }
        (0..2).try_for_each(|host| self.act(Act::Write(host)))
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

fn reported(scene: &Scene, why: &str) -> String {
    format!("{why}\nafter {:?}", scene.done)
}

/// Every order of acts up to a length, each followed by both hosts opening what they may.
#[test]
fn whatever_two_hosts_do_history_never_goes_on_twice() {
    let begun = Instant::now();
    let depth = number("DOLMEN_HOSTS_DEPTH", 3);
    let start = start();
    let (mut orders, mut acts) = (0u64, 0u64);
    let mut open: Vec<Vec<Act>> = vec![Vec::new()];
    while let Some(order) = open.pop() {
        let mut scene = Scene::new(&start, 1);
        let verdict = order.iter().try_for_each(|act| scene.act(*act));
        verdict.unwrap_or_else(|why| panic!("{}", reported(&scene, &why)));
        if (order.len() as u64) < depth {
            open.extend(scene.acts().into_iter().map(|act| [order.as_slice(), &[act]].concat()));
            continue;
        }
        scene.finish().unwrap_or_else(|why| panic!("{}", reported(&scene, &why)));
        orders += 1;
        acts += scene.done.len() as u64;
    }
    println!("{orders} orders of {depth} acts, {acts} acts, in {:?}", begun.elapsed());
}

/// Long orders, drawn, with crashes inside openings and exports.
#[test]
fn long_orders_of_acts_keep_history_single() {
    let begun = Instant::now();
    let (seed, walks) = (number("DOLMEN_HOSTS_SEED", 1), number("DOLMEN_HOSTS_WALKS", 40));
    println!("seed {seed}");
    let start = start();
    let (mut acts, mut confirmed) = (0, 0);
    for walk in 0..walks {
        let mut random = Random::derived(seed, walk);
        let mut scene = Scene::new(&start, random.next_u64());
        for _ in 0..14 {
            let host = random.index(2);
            let mut choices = scene.acts();
            choices.extend([Act::CrashIn(host, 1 + random.below(60)), Act::Look(host)]);
            choices.retain(|act| match act {
                // Rare, or every history would soon be all confirmations.
                Act::Confirm(_) => random.below(6) == 0,
                Act::Look(host) => scene.hosts[*host].session.is_none() && scene.place.contains(host),
                Act::CrashIn(host, _) => scene.place.contains(host),
                _ => true,
            });
            let act = choices[random.index(choices.len())];
            scene
                .act(act)
                .unwrap_or_else(|why| panic!("walk {walk}, seed {seed}: {}", reported(&scene, &why)));
        }
        scene.finish().unwrap_or_else(|why| panic!("walk {walk}, seed {seed}: {}", reported(&scene, &why)));
        acts += scene.done.len();
        confirmed += scene.lines.len() - 1;
    }
    println!("{walks} walks, {acts} acts, {confirmed} lines begun by confirming, in {:?}", begun.elapsed());
}

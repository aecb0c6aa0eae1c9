//! What clients get while redundancy is restored, and how much longer that takes when they are not to wait: exact, in virtual
//! time. `cargo test -p dolmen-space --test spaces -- --nocapture repair_throttle::` prints the table.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss)]

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sync::join_all;
use dolmen_block_io::{Durability, sleep};
use dolmen_buffer::ArenaConfig;
use dolmen_sim::Random;
use dolmen_space::{JobShare, Priority, Progress, Resiliency, Space, SpaceError, SpaceSpec, Spaces};
use dolmen_units::Bytes;

use crate::harness::slow_disks::Modelled;
use crate::harness::{Bench, Lab, pattern};

const CAPACITY: Bytes = Bytes::gib(4);
const SIZE: u64 = 512 << 20;
const LARGE: u64 = 1 << 20;
const DISKS: usize = 4;
/// Clients, each of which reads or writes a block, and then thinks.
const CLIENTS: u64 = 3;
const THINKING: Duration = Duration::from_millis(40);
const ARENA: ArenaConfig = ArenaConfig { small_count: 8192, medium_count: 192, large_count: 48 };

/// What clients got, and how long the repair took.
struct Seen {
    /// Requests, the fastest first.
    latencies: Vec<Duration>,
    took: Duration,
}

impl Seen {
    fn share(&self, of_hundred: usize) -> Duration {
        let at = (self.latencies.len() * of_hundred / 100).min(self.latencies.len().saturating_sub(1));
        self.latencies.get(at).copied().unwrap_or_default()
    }

    fn print(&self, title: &str) {
        let millis = |of_hundred| self.share(of_hundred).as_secs_f64() * 1e3;
        println!(
            "{title:32} {:5} requests, median {:5.1} ms, p95 {:5.1} ms, p99 {:5.1} ms; {:5.1} s",
            self.latencies.len(),
            millis(50),
            millis(95),
            millis(99),
            self.took.as_secs_f64()
        );
    }
}

async fn filled(lab: &Lab, spaces: &Spaces) -> Result<Space, Box<dyn Error>> {
    let mut spec = SpaceSpec::usual("data".parse()?, Bytes(SIZE), Resiliency::Mirror { copies: 2 });
    spec.row = Some(Bytes::mib(16));
    let space = spaces.create(spec).await?;
    let mut buffer = lab.seams.data.take(usize::try_from(LARGE)?).await;
    pattern(0, 1, &mut buffer);
    let data = buffer.freeze();
    let places: Vec<u64> = (0..SIZE / LARGE).map(|nth| nth * LARGE).collect();
    for together in places.chunks(16) {
        let writes = together.iter().map(|at| space.write(*at, &data, Durability::Cached));
        join_all(writes).await.into_iter().collect::<Result<(), SpaceError>>()?;
    }
    drop(data);
    spaces.flush().await?;
    spaces.pool().checkpoint().await?;
    Ok(space)
}

/// A client's requests until it is told to end; how long each took is noted.
async fn client(
    lab: &Lab,
    space: &Space,
    seed: u64,
    (is_over, seen): (&Cell<bool>, &RefCell<Vec<Duration>>),
) -> Result<(), Box<dyn Error>> {
    let mut random = Random::new(seed);
    while !is_over.get() {
        let at = random.below(SIZE / 4096) * 4096;
        let mut buffer = lab.seams.data.take(4096).await;
        pattern(at, 2, &mut buffer);
        let began = lab.seams.clock.now();
        match random.below(3) {
            0 => space.write(at, &buffer.freeze(), Durability::Cached).await?,
            _ => drop(space.read(at, 4096).await?),
        }
        seen.borrow_mut().push(lab.seams.clock.now().since(began));
        sleep(lab.seams.clock.as_ref(), THINKING).await;
    }
    Ok(())
}

/// A disk is replaced while clients are there; or, without an effort, nothing is done beside them for ten seconds.
async fn replace(bench: &Bench, lab: Lab, job_share: Option<JobShare>) -> Result<Seen, Box<dyn Error>> {
    let spare = lab.devices.last().cloned().ok_or("there is a disk to spare")?;
    let lab = Lab { devices: lab.devices.split_last().map(|(_, all)| all.to_vec()).unwrap(), ..lab };
    let spaces = lab.create().await?;
    let space = filled(&lab, &spaces).await?;
    let lost = spaces.pool().members().find_disk("disk0")?;
    bench.disks.first().unwrap().vanish();
    lab.write(&space, 0, 4096, 2).await?;
    spaces.flush().await?;
    let new = match job_share {
        Some(_) => Some(spaces.pool().membership().add_instead_of(&lost, spare, &[]).await?),
        None => None,
    };
    spaces.set_job_share(job_share.unwrap_or_default());
    let (is_over, latencies) = (Cell::new(false), RefCell::default());
    let clock = &lab.seams.clock;
    let began = clock.now();
    let took = Cell::new(Duration::ZERO);
    let repair = async {
        match &new {
            Some(new) => {
                let done = spaces.moves().finish_replacing(&lost, new, &Progress::default()).await;
                assert!(done.unwrap(), "everything is moved");
            }
            None => sleep(clock.as_ref(), Duration::from_secs(10)).await,
        }
        took.set(clock.now().since(began));
        is_over.set(true);
        Ok(())
    };
    let clients = (0..CLIENTS).map(|seed| client(&lab, &space, seed, (&is_over, &latencies)));
    let clients = async { join_all(clients).await.into_iter().collect::<Result<(), Box<dyn Error>>>() };
    let tasks: [crate::harness::slow_disks::Both<'_>; 2] = [Box::pin(repair), Box::pin(clients)];
    join_all(tasks).await.into_iter().collect::<Result<(), Box<dyn Error>>>()?;
    drop(space);
    lab.check_and_close(spaces).await?;
    let mut latencies = latencies.into_inner();
    latencies.sort_unstable();
    Ok(Seen { latencies, took: took.get() })
}

fn measure(title: &str, job_share: Option<JobShare>) -> Seen {
    let bench = Rc::new(Bench::with_profile(1, DISKS + 1, || Modelled::spinning().profile(CAPACITY)));
    bench.world.set_arenas(ARENA, ARENA);
    let found = Rc::new(RefCell::new(None));
    let (inner, into) = (Rc::clone(&bench), Rc::clone(&found));
    let run = bench.run(async move |lab| {
        *into.borrow_mut() = Some(replace(&inner, lab, job_share).await?);
        Ok(())
    });
    run.unwrap();
    let seen = found.borrow_mut().take().unwrap();
    seen.print(title);
    seen
}

#[test]
fn a_repair_keeps_to_the_latency_that_clients_are_promised() {
    let limit = Duration::from_millis(40);
    let job_share = |priority, latency_limit| Some(JobShare { priority, latency_limit });
    let alone = measure("nothing else", None);
    let all = measure("a repair that takes all", job_share(Priority::High, None));
    let half = measure("half of the time", job_share(Priority::Normal, None));
    let little = measure("an eighth of the time", job_share(Priority::Low, None));
    let kept = measure("one in twenty above 40 ms", job_share(Priority::High, Some(limit)));
    assert!(alone.share(95) <= limit, "the limit can be kept: {:?}", alone.share(95));
    assert!(all.share(95) > limit, "a repair disturbs clients: {:?}", all.share(95));
    assert!(kept.share(90) <= limit, "{:?}", kept.share(90));
    assert!(kept.took > all.took, "what it costs is time");
    assert!(half.took > all.took && little.took > half.took, "{:?}, {:?}", half.took, little.took);
    assert!(little.share(95) < all.share(95), "{:?}", little.share(95));
}

//! Every target, on stable Rust: first all that is kept in the corpus, then what a small mutator makes of it.
//!
//! `DOLMEN_FUZZ_SECONDS` says for how long each target is mutated (default: a second), `DOLMEN_FUZZ_SEEDS` how many inputs are
//! made instead, and `DOLMEN_FUZZ_SEED` from where they are drawn. `DOLMEN_FUZZ_INPUT` is a file to try alone. An input that breaks
//! something is written to `DOLMEN_FUZZ_KEEP`, or told in full where that is not set.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::disallowed_types
)] // a test may fail, tell its figures, read its files, look at the clock, and count what is allocated

mod heap;

use std::panic::catch_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dolmen_fuzz::{Reached, Target, mutate, target};
use dolmen_sim::Random;

/// How long each target is mutated unless told otherwise.
const SECONDS: u64 = 1;
/// How long one input may take: far more than any needs.
const INPUT_TIME_MAX: Duration = Duration::from_secs(120);
/// Bytes that one input may hold at a time.
const HEAP_BYTES_MAX: isize = 768 << 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

fn corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let read = |path: PathBuf| (path.display().to_string(), std::fs::read(path).unwrap());
    paths.into_iter().map(read).collect()
}

/// Ends the process if an input takes for ever: nothing else can.
struct Watch {
    began: Instant,
    /// Milliseconds since `began` at which the input was begun, and 0 between two.
    since: AtomicU64,
    input: Mutex<Vec<u8>>,
}

impl Watch {
    fn start(name: &'static str) -> Arc<Self> {
        let watch =
            Arc::new(Self { began: Instant::now(), since: AtomicU64::new(0), input: Mutex::default() });
        let shared = Arc::downgrade(&watch);
        std::thread::spawn(move || {
            while let Some(watch) = shared.upgrade() {
                let since = watch.since.load(Ordering::Relaxed);
                let now = watch.now();
                if since > 0 && u128::from(now - since) > INPUT_TIME_MAX.as_millis() {
                    let input = watch.input.lock().unwrap().clone();
                    println!("{name}: an input takes longer than {INPUT_TIME_MAX:?}; {}", keep(name, &input));
                    std::process::abort();
                }
                drop(watch);
                std::thread::sleep(Duration::from_millis(500));
            }
        });
        watch
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap() + 1
    }
}

/// Writes an input that broke something to where it can be found; what to tell of it.
fn keep(name: &str, input: &[u8]) -> String {
    let text = format!("the input is {input:02x?}");
    let Some(folder) = std::env::var_os("DOLMEN_FUZZ_KEEP") else { return text };
    let sum = dolmen_checksum::crc64(input);
    let path = PathBuf::from(folder).join(format!("{name}-{sum:016x}"));
    std::fs::write(&path, input).map_or(text, |()| format!("the input is in {}", path.display()))
}

fn attempt(target: &Target, watch: &Watch, origin: &str, input: &[u8]) -> Reached {
    watch.input.lock().unwrap().clone_from(&input.to_vec());
    if let Some(folder) = std::env::var_os("DOLMEN_FUZZ_KEEP") {
        // What ends the process leaves no time to tell its input.
        std::fs::write(PathBuf::from(folder).join(format!("{}-current", target.name)), input).unwrap();
    }
    watch.since.store(watch.now(), Ordering::Relaxed);
    let before = heap::begin();
    let run = catch_unwind(|| (target.run)(input));
    let held = heap::most() - before;
    watch.since.store(0, Ordering::Relaxed);
    let name = target.name;
    match run {
        Ok(_) if held > HEAP_BYTES_MAX => {
            panic!("{name}: {origin} made the engine hold {held} bytes; {}", keep(name, input))
        }
        Ok(reached) => reached,
        Err(_) => panic!("{name}: {origin} broke the oracle; {}", keep(name, input)),
    }
}

fn fuzz(name: &'static str) {
    let target = target(name).unwrap();
    let watch = Watch::start(name);
    if let Some(path) = std::env::var_os("DOLMEN_FUZZ_INPUT") {
        let reached = attempt(&target, &watch, "the file given", &std::fs::read(path).unwrap());
        println!("{name}: {reached:?}");
        return;
    }
    let kept = corpus(name);
    assert!(!kept.is_empty(), "{name} has a corpus");
    let mut reached = [0u64; 2];
    for (path, input) in &kept {
        reached[attempt(&target, &watch, path, input) as usize] += 1;
    }
    let mut inputs: Vec<Vec<u8>> = (target.seeds)();
    for input in &inputs {
        reached[attempt(&target, &watch, "an input to begin with", input) as usize] += 1;
    }
    inputs.extend(kept.into_iter().map(|(_, input)| input));
    let seed = number("DOLMEN_FUZZ_SEED").unwrap_or(1);
    let count = number("DOLMEN_FUZZ_SEEDS");
    let time = Duration::from_secs(number("DOLMEN_FUZZ_SECONDS").unwrap_or(SECONDS));
    println!("{name}: DOLMEN_FUZZ_SEED={seed}");
    let begun = Instant::now();
    let mut random = Random::new(seed);
    let mut made = 0;
    while count.map_or_else(|| begun.elapsed() < time, |count| made < count) {
        let input = mutate::mutated(&inputs, &mut random);
        reached[attempt(&target, &watch, &format!("input {made}"), &input) as usize] += 1;
        made += 1;
    }
    println!("{name}: {made} inputs made; of all {} were refused and {} held", reached[0], reached[1]);
    assert!(reached.iter().all(|count| *count > 0), "{name} reaches too little: {reached:?}");
}

macro_rules! targets {
    ($($(#[$doc:meta])* $test:ident = $name:literal;)*) => {
        $($(#[$doc])* #[test] fn $test() { fuzz($name); })*

        #[test]
        fn every_target_has_a_test() {
            let names: Vec<&str> = dolmen_fuzz::TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$($name),*]);
        }
    };
}

targets! {
    /// Labels that somebody forged are read whole, or refused.
    fuzzed_labels_are_read_whole_or_refused = "labels";
    /// So are checkpoint blocks and pages of the map.
    fuzzed_pages_of_the_map_are_read_whole_or_refused = "map";
    /// A log is read as the document says, whatever stands in it.
    fuzzed_logs_are_read_as_documented = "log";
    /// Headers of slabs, pages of tables, rows, spaces, changes and records of blocks are read whole, or refused.
    fuzzed_tables_and_rows_are_read_whole_or_refused = "tables";
    /// A forged pool opens or is refused, and neither brings nor keeps anything but what was written.
    fuzzed_images_bring_nothing_that_nobody_wrote = "image";
    /// A pool holds what was written, whatever is done with it, and wherever that is cut off.
    fuzzed_runs_of_a_pool_lose_nothing = "actions";
    /// A client is answered as the protocol's document says, whatever it sends.
    fuzzed_clients_get_protocol_answers = "nbd";
    /// Nothing that a request asks for is passed over.
    fuzzed_requests_are_parsed_exactly_or_refused = "api";
}

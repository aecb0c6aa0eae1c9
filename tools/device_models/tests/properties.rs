//! What holds for every model, whatever it is made of.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a panic here is a failed test")]

use dolmen_device_models::catalogue::{self, DEVICES, Kind, Model};
use dolmen_device_models::load::{Load, Outcome, Pattern, run};
use dolmen_device_models::{
    Condition, Device, Disk, DiskParameters, Flash, FlashParameters, Random, Request, SECOND_NS, SubmitError,
    Time, WriteBuffer, WriteCache,
};
use proptest::prelude::*;

const SEED: u64 = 7;

fn short(model: &Model, load: Load) -> Load {
    match model.kind {
        Kind::Disk(_) => load.lasting(5 * SECOND_NS, 40 * SECOND_NS),
        Kind::Flash(_) => load.lasting(SECOND_NS / 100, SECOND_NS / 40),
    }
}

fn outcome(model: &Model, load: Load) -> Outcome {
    let mut device = model.build(SEED).unwrap();
    run(&mut *device, &short(model, load), Time::ZERO, SEED).unwrap()
}

fn disks() -> impl Iterator<Item = (&'static str, DiskParameters)> {
    DEVICES.into_iter().filter_map(|model| match model.kind {
        Kind::Disk(parameters) => Some((model.name, parameters)),
        Kind::Flash(_) => None,
    })
}

fn flashes() -> impl Iterator<Item = (&'static str, FlashParameters)> {
    DEVICES.into_iter().filter_map(|model| match model.kind {
        Kind::Disk(_) => None,
        Kind::Flash(parameters) => Some((model.name, parameters)),
    })
}

#[test]
fn nothing_passes_faster_than_the_interface() {
    // Large commands, in order and at random, reading and writing.
    for model in &DEVICES {
        let most = match model.kind {
            Kind::Disk(parameters) => parameters.interface_bytes_per_second,
            Kind::Flash(parameters) => parameters.interface_bytes_per_second,
        };
        for reads in [0, 1_000] {
            let random = Load::random(model.capacity_bytes(), 1 << 17, reads, 32);
            let ordered = Load { pattern: Pattern::Sequential { from: 0 }, ..random };
            for load in [random, ordered] {
                let got = outcome(model, load).bytes_per_second();
                // The counted time may begin and end within one command of each that is outstanding.
                assert!(got <= most + most / 100, "{}: {got} of {most}", model.name);
            }
        }
    }
}

#[test]
fn littles_law_holds() {
    // Commands outstanding are commands a second times the mean response, whatever the mixture and the depth.
    for model in &DEVICES {
        for (reads, depth) in [(1_000, 1), (670, 8), (0, 16), (500, 64)] {
            let got = outcome(model, Load::random(model.capacity_bytes(), 8_192, reads, depth));
            let (found, wanted) = (got.responses_ns, got.outstanding_ns);
            assert!(found.abs_diff(wanted) * 100 < wanted * 4, "{} {reads} {depth}: {got:?}", model.name);
        }
    }
}

#[test]
fn more_outstanding_reads_never_get_less() {
    for model in &DEVICES {
        let rates: Vec<u64> = [1, 2, 4, 8, 16, 32, 64]
            .iter()
            .map(|depth| {
                outcome(model, Load::random(model.capacity_bytes(), 4_096, 1_000, *depth)).per_second()
            })
            .collect();
        for pair in rates.windows(2) {
            assert!(pair[1] * 100 >= pair[0] * 98, "{}: {rates:?}", model.name);
        }
    }
}

#[test]
fn reading_in_order_runs_at_the_rate_of_the_zone() {
    // A reader that answers slowly enough to lose a turn without read-ahead, and readers with more outstanding, in the
    // first zone and in the last.
    for (name, parameters) in disks() {
        for (from, depth) in [(0, 1), (0, 4), (0, 16), (parameters.capacity_bytes - (1 << 30), 1)] {
            let mut disk = Disk::new(parameters, SEED).unwrap();
            let rate = disk.zone_rate(from);
            let load = Load {
                pattern: Pattern::Sequential { from },
                ..Load::random(0, 65_536, 1_000, depth).lasting(SECOND_NS, 5 * SECOND_NS).from_host(100_000)
            };
            let got = run(&mut disk, &load, Time::ZERO, SEED).unwrap().bytes_per_second();
            let all = format!("{name} at {from}, {depth} outstanding: {got} of {rate}");
            assert!(got * 100 >= rate * 95 && got * 100 <= rate * 102, "{all}");
        }
    }
}

#[test]
fn readers_that_come_out_of_order_do_not_take_the_head_back() {
    // One read starts the stream; then come windows of sixteen, each handed over backwards. The head still passes each
    // byte once.
    for (name, parameters) in disks() {
        let mut disk = Disk::new(parameters, SEED).unwrap();
        let (window, length) = (16, 65_536);
        disk.submit(Time::ZERO, Request::read(0, length)).unwrap();
        let mut now = disk.next_event().unwrap();
        while disk.poll(now).is_none() {
            now = disk.next_event().unwrap();
        }
        for first in (1..64u64 * window).step_by(16) {
            for block in (first..first + window).rev() {
                disk.submit(now, Request::read(block * length, length)).unwrap();
            }
            let mut left = window;
            while left > 0 {
                now = disk.next_event().unwrap();
                left -= std::iter::from_fn(|| disk.poll(now)).count() as u64;
            }
        }
        let rate = 64 * window * length * 1_000 / (now.ns() / 1_000_000);
        assert!(rate * 100 >= disk.zone_rate(0) * 80, "{name}: {rate} of {}", disk.zone_rate(0));
    }
}

#[test]
fn writing_in_order_needs_the_cache_or_a_queue() {
    // Without a cache each write of one writer waits a turn; with one, or with several writes, the zone sets the rate.
    for (name, parameters) in disks() {
        let rate = |cache, depth| {
            let mut disk = Disk::new(parameters.with_write_cache(cache), SEED).unwrap();
            let load = Load {
                pattern: Pattern::Sequential { from: 0 },
                ..Load::random(0, 65_536, 0, depth).lasting(SECOND_NS, 10 * SECOND_NS)
            };
            let got = run(&mut disk, &load, Time::ZERO, SEED).unwrap().bytes_per_second();
            got * 100 / disk.zone_rate(0)
        };
        assert!(rate(WriteCache::Off, 1) < 70, "{name}");
        assert!(rate(WriteCache::On, 1) >= 90, "{name}: {}", rate(WriteCache::On, 1));
        assert!(rate(WriteCache::Off, 4) >= 90, "{name}: {}", rate(WriteCache::Off, 4));
    }
}

#[test]
fn a_flush_leaves_nothing_in_the_cache() {
    // Writes at random, answered from the cache; when the flush is answered, the disk has nothing more to do.
    for (name, parameters) in disks() {
        let mut disk = Disk::new(parameters.with_write_cache(WriteCache::On), SEED).unwrap();
        let mut random = Random::new(SEED);
        for _ in 0..200 {
            let at = random.below(parameters.capacity_bytes / 4_096) * 4_096;
            disk.submit(Time::ZERO, Request::write(at, 4_096)).unwrap();
        }
        let mut now = Time::ZERO;
        let mut writes = 0;
        while writes < 200 {
            now = disk.next_event().unwrap();
            writes += std::iter::from_fn(|| disk.poll(now)).count();
        }
        let flush = disk.submit(now, Request::flush()).unwrap();
        let done = loop {
            let at = disk.next_event().unwrap();
            if let Some(done) = disk.poll(at) {
                break done;
            }
        };
        assert_eq!(done.ticket, flush, "{name}");
        assert!(done.response_ns() > parameters.revolution_ns(), "{name}: {done:?}");
        assert_eq!(disk.next_event(), None, "{name}");
    }
}

#[test]
fn a_flush_empties_a_volatile_buffer_of_flash_and_costs_little_with_a_protected_one() {
    for (name, parameters) in flashes() {
        let mut device = Flash::new(parameters, Condition::Steady, SEED).unwrap();
        for block in 0..64 {
            device.submit(Time::ZERO, Request::write(block << 20, 1 << 20)).unwrap();
        }
        device.submit(Time::ZERO, Request::flush()).unwrap();
        let flushed = loop {
            let at = device.next_event().unwrap();
            if let Some(done) = device.poll(at).filter(|done| done.request == Request::flush()) {
                break done.completed;
            }
        };
        let left = device.buffered_bytes(flushed);
        match parameters.buffer {
            WriteBuffer::Volatile => assert_eq!(left, 0, "{name}"),
            WriteBuffer::Protected => assert!(left > 0, "{name}"),
        }
    }
}

#[test]
fn a_write_that_must_be_durable_is_not_answered_by_the_cache() {
    for (name, parameters) in disks() {
        let mut disk = Disk::new(parameters.with_write_cache(WriteCache::On), SEED).unwrap();
        disk.submit(Time::ZERO, Request::write(0, 4_096)).unwrap();
        let at = parameters.capacity_bytes / 2;
        disk.submit(Time::ZERO, Request::write_through(at, 4_096)).unwrap();
        let done = |disk: &mut Disk| loop {
            let at = disk.next_event().unwrap();
            if let Some(done) = disk.poll(at) {
                return done;
            }
        };
        let cached = done(&mut disk);
        let through = done(&mut disk);
        assert_eq!(cached.request.at, 0, "{name}");
        assert!(cached.response_ns() < 1_000_000, "{name}: {cached:?}");
        assert!(through.response_ns() > parameters.write_seeks.single_ns, "{name}: {through:?}");
    }
}

#[test]
fn flash_programs_at_least_what_is_written_and_settles() {
    // In the steady state two stretches of random writes move the same, and what the data sheet foretells.
    for (name, parameters) in flashes() {
        let mut device = Flash::new(parameters, Condition::Steady, SEED).unwrap();
        let mut random = Random::new(SEED);
        let blocks = parameters.capacity_bytes >> 24;
        let mut span = |device: &mut Flash| {
            for _ in 0..blocks * 2 {
                let now = device.next_event().unwrap_or_default();
                device.submit(now, Request::write(random.below(blocks) << 24, 1 << 24)).unwrap();
                while device.poll(now).is_some() {}
            }
            device.write_amplification_per_mille()
        };
        let first = span(&mut device);
        let both = span(&mut device);
        let foretold = parameters.amplification_per_mille();
        assert!(first >= 1_000 && both >= 1_000, "{name}: {first} {both}");
        assert!(first.abs_diff(both) * 100 < both * 5, "{name}: {first} {both}");
        assert!(both.abs_diff(foretold) * 100 < foretold * 4, "{name}: {both} of {foretold}");
    }
}

#[test]
fn one_seed_is_one_run() {
    for model in &DEVICES {
        let load = Load::random(model.capacity_bytes(), 8_192, 500, 16);
        assert_eq!(outcome(model, load), outcome(model, load), "{}", model.name);
    }
}

#[test]
fn names_and_parameters_that_are_none_are_refused() {
    let error = catalogue::device("cheetah").err().unwrap().to_string();
    assert!(error.contains("\"cheetah\"") && error.contains("cheetah-15k5, savvio-10k1"), "{error}");
    let error = catalogue::link("ethernet-2g").unwrap_err().to_string();
    assert!(error.contains("ethernet-1g, ethernet-10g"), "{error}");
    let (_, disk) = disks().next().unwrap();
    let wrong = [
        ("capacity_bytes", DiskParameters { capacity_bytes: 0, ..disk }),
        ("revolutions_per_minute", DiskParameters { revolutions_per_minute: 0, ..disk }),
        ("outer_track_bytes", DiskParameters { outer_track_bytes: 1, ..disk }),
        ("zones", DiskParameters { zones: 0, ..disk }),
        ("queue_depth", DiskParameters { queue_depth: 0, ..disk }),
        ("skew_ns", DiskParameters { skew_ns: SECOND_NS, ..disk }),
    ];
    for (field, parameters) in wrong {
        let error = Disk::new(parameters, SEED).err().unwrap();
        assert_eq!(error.field, field, "{error}");
    }
    let (_, flash) = flashes().next().unwrap();
    let wrong = [
        ("channels", FlashParameters { channels: 0, ..flash }),
        ("dies", FlashParameters { dies: 1, ..flash }),
        ("random_writes_per_second", FlashParameters { random_writes_per_second: 1_000_000, ..flash }),
    ];
    for (field, parameters) in wrong {
        let error = Flash::new(parameters, Condition::Fresh, SEED).err().unwrap();
        assert_eq!(error.field, field, "{error}");
        assert!(error.to_string().starts_with(field), "{error}");
    }
}

#[test]
fn every_model_of_the_catalogue_can_be_made() {
    for model in &DEVICES {
        let device = model.build(SEED).unwrap();
        assert_eq!(device.capacity_bytes(), model.capacity_bytes());
        assert_eq!(catalogue::device(model.name).unwrap(), model);
    }
    for model in &catalogue::LINKS {
        model.build().unwrap();
    }
}

/// What a list of commands and pauses gets from a model: tickets and times of completion.
fn answers(model: &Model, steps: &[(u64, u8, u64, u64)], ask: Ask) -> Vec<(u64, u64, u64)> {
    let mut device = model.build(SEED).unwrap();
    let blocks = model.capacity_bytes() / 4_096;
    let (mut now, mut got) = (Time::ZERO, Vec::new());
    for (pause_ns, kind, place, length) in steps {
        let until = now.after(*pause_ns);
        while let Some(at) = device.next_event().filter(|at| ask == Ask::AtEachEvent && *at <= until) {
            now = now.max(at);
            got.extend(std::iter::from_fn(|| device.poll(now)));
        }
        now = until;
        let length = length * 4_096;
        let at = (place % (blocks - 256)) * 4_096;
        let request = match kind % 8 {
            0..3 => Request::read(at, length),
            3..6 => Request::write(at, length),
            6 => Request::write_through(at, length),
            _ => Request::flush(),
        };
        device.submit(now, request).unwrap();
    }
    while let Some(at) = device.next_event() {
        now = now.max(at);
        got.extend(std::iter::from_fn(|| device.poll(now)));
    }
    assert_eq!(device.under_way(), 0);
    got.iter().map(|done| (done.ticket.0, done.submitted.ns(), done.completed.ns())).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ask {
    AtEachEvent,
    TooLate,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_command_is_answered_once_after_it_was_submitted_and_asking_late_changes_nothing(
        steps in prop::collection::vec((0..20_000_000u64, any::<u8>(), any::<u64>(), 1..256u64), 1..60),
    ) {
        for model in &DEVICES {
            let each = answers(model, &steps, Ask::AtEachEvent);
            let mut tickets: Vec<u64> = each.iter().map(|(ticket, ..)| *ticket).collect();
            tickets.sort_unstable();
            prop_assert!(tickets.iter().copied().eq(0..tickets.len() as u64), "{}: {tickets:?}", model.name);
            prop_assert_eq!(tickets.len(), steps.len());
            prop_assert!(each.iter().all(|(_, submitted, completed)| submitted <= completed));
            let late = answers(model, &steps, Ask::TooLate);
            let sorted = |mut list: Vec<(u64, u64, u64)>| { list.sort_unstable(); list };
            prop_assert_eq!(sorted(each), sorted(late), "{}", model.name);
        }
    }
}

#[test]
fn commands_that_fit_no_device_are_refused_and_change_nothing() {
    for model in &DEVICES {
        let mut device = model.build(SEED).unwrap();
        let end = model.capacity_bytes();
        let now = Time::from_ns(1_000);
        device.submit(now, Request::read(0, 4_096)).unwrap();
        let past = device.submit(now, Request::write(end - 4_096, 8_192)).unwrap_err();
        assert!(matches!(past, SubmitError::PastEnd { .. }), "{past}");
        assert!(past.to_string().contains(&end.to_string()), "{past}");
        let far = device.submit(now, Request::read(u64::MAX, 2)).unwrap_err();
        assert!(matches!(far, SubmitError::PastEnd { .. }), "{far}");
        let empty = device.submit(now, Request::read(0, 0)).unwrap_err();
        assert!(matches!(empty, SubmitError::Empty { .. }), "{empty}");
        let back = device.submit(Time::from_ns(999), Request::read(0, 1)).unwrap_err();
        assert!(matches!(back, SubmitError::TimeWentBack { .. }), "{back}");
        assert_eq!(device.under_way(), 1, "{}", model.name);
    }
}

#[test]
fn a_load_that_fits_no_device_is_refused() {
    let model = catalogue::device("savvio-10k1").unwrap();
    let refused = |load: Load| run(&mut *model.build(SEED).unwrap(), &load, Time::ZERO, SEED).unwrap_err();
    let none = refused(Load::random(1 << 30, 0, 1_000, 1));
    assert!(matches!(none, SubmitError::Empty { .. }), "{none}");
    let past = refused(Load::random(1 << 50, 4_096, 1_000, 4));
    assert!(matches!(past, SubmitError::PastEnd { .. }), "{past}");
    let idle = run(&mut *model.build(SEED).unwrap(), &Load::random(1 << 30, 4_096, 0, 0), Time::ZERO, SEED);
    assert_eq!(idle.unwrap().commands, 0);
}

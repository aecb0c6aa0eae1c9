//! Arrays of modelled disks: what stripes, mirrors and parity make of their members.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a panic here is a failed test")]

use dolmen_device_models::catalogue::{controller, device};
use dolmen_device_models::figures::sweep;
use dolmen_device_models::load::{Load, Pattern, run};
use dolmen_device_models::{
    Array, ArrayCache, ArrayParameters, Device, Disk, DiskParameters, Level, Request, SECOND_NS, Time,
};

const SEED: u64 = 11;
const FILE_BYTES: u64 = 32_000_000_000;
const WARM_NS: u64 = 5 * SECOND_NS;
const COUNTED_NS: u64 = 10 * SECOND_NS;

fn cheetah() -> DiskParameters {
    match device("cheetah-15k5").unwrap().kind {
        dolmen_device_models::catalogue::Kind::Disk(parameters) => parameters,
        dolmen_device_models::catalogue::Kind::Flash(_) => panic!("a rotating disk"),
    }
}

fn array(parameters: ArrayParameters, members: u64, disk: DiskParameters) -> Array {
    let made = (0..members).map(|seed| Box::new(Disk::new(disk, seed).unwrap()) as Box<dyn Device>).collect();
    Array::new(parameters, made).unwrap()
}

fn rate(array: &mut Array, load: Load) -> u64 {
    // Streams settle at once, and have many more commands.
    let load = match load.pattern {
        Pattern::Random { .. } => load.lasting(WARM_NS, COUNTED_NS),
        Pattern::Sequential { .. } => load.lasting(2 * SECOND_NS, 2 * SECOND_NS),
    };
    run(array, &load, Time::ZERO, SEED).unwrap().per_second()
}

#[test]
fn twice_the_disks_of_a_stripe_do_twice_the_work() {
    // The five profiles of file copies, file servers, databases, streams and restores, with as much data and as many
    // commands for each disk: a file that does not grow makes the arms of more disks go less far.
    let random = |length, reads| Load::random(0, length, reads, 0);
    let ordered = |reads| Load { pattern: Pattern::Sequential { from: 0 }, ..random(65_536, reads) };
    for load in [random(65_536, 500), random(65_536, 670), random(8_192, 670), ordered(1_000), ordered(0)] {
        let of = |members: u64, depth| {
            let parameters = controller(Level::Stripe, ArrayCache::WriteThrough);
            let pattern = match load.pattern {
                Pattern::Random { from, .. } => Pattern::Random { from, bytes: members * FILE_BYTES / 4 },
                ordered @ Pattern::Sequential { .. } => ordered,
            };
            rate(&mut array(parameters, members, cheetah()), Load { depth, pattern, ..load })
        };
        let (four, eight) = (of(4, 64), of(8, 128));
        let ratio = eight * 100 / four;
        assert!((185..=215).contains(&ratio), "{load:?}: {four} to {eight}");
    }
}

#[test]
fn whole_rows_with_parity_cost_one_member() {
    // Writes in order through the cache become whole rows: of eight members, seven carry data.
    let ordered = Load { pattern: Pattern::Sequential { from: 0 }, ..Load::random(0, 65_536, 0, 16) };
    let through = |level| rate(&mut array(controller(level, ArrayCache::WriteBack), 8, cheetah()), ordered);
    let (stripe, parity) = (through(Level::Stripe), through(Level::Parity));
    assert!(parity * 100 >= stripe * 7 / 8 * 95, "{parity} of {stripe}");
    assert!(parity * 100 <= stripe * 7 / 8 * 105, "{parity} of {stripe}");
}

#[test]
fn small_writes_with_parity_cost_four_commands() {
    // At saturation and without a cache, a stripe gets about four times as many small random writes as parity does.
    let small = Load::random(FILE_BYTES, 8_192, 0, 128);
    let without = |level| rate(&mut array(controller(level, ArrayCache::WriteThrough), 8, cheetah()), small);
    let ratio = without(Level::Stripe) * 100 / without(Level::Parity);
    assert!((320..=480).contains(&ratio), "{ratio}");
}

#[test]
fn mirrors_read_from_both_sides() {
    let small = Load::random(FILE_BYTES, 8_192, 1_000, 128);
    let reads = |level| rate(&mut array(controller(level, ArrayCache::WriteThrough), 8, cheetah()), small);
    let (stripe, mirror) = (reads(Level::Stripe), reads(Level::Mirror));
    // Half as much data fits, so the arms go twice as far; still all eight work.
    assert!(mirror * 100 >= stripe * 85, "{mirror} of {stripe}");
}

#[test]
fn the_cache_answers_writes_until_it_is_full() {
    // A burst that fits is answered at the speed of the bus; what is read back from the cache costs no disk.
    let mut array = array(controller(Level::Parity, ArrayCache::WriteBack), 5, cheetah());
    for block in 0..1_000u64 {
        array.submit(Time::ZERO, Request::write(block * 7_919 * 8_192, 8_192)).unwrap();
    }
    array.submit(Time::ZERO, Request::flush()).unwrap();
    let soon = Time::from_ns(SECOND_NS / 20);
    let answered = std::iter::from_fn(|| array.poll(soon)).count();
    assert_eq!(answered, 1_001);
    assert!(array.dirty_bytes() > 0);
    array.submit(soon, Request::read(7_919 * 8_192, 8_192)).unwrap();
    let read = array.poll(soon.after(SECOND_NS / 1_000)).unwrap();
    assert!(read.response_ns() < 100_000, "{read:?}");
    // Left alone, the controller writes everything back.
    while let Some(at) = array.next_event() {
        array.poll(at);
    }
    assert_eq!(array.dirty_bytes(), 0);
}

#[test]
fn one_seed_is_one_run_and_littles_law_holds() {
    for level in [Level::Stripe, Level::Mirror, Level::Parity] {
        for cache in [ArrayCache::WriteBack, ArrayCache::WriteThrough] {
            let once = || {
                let mut made = array(controller(level, cache), 4, cheetah());
                let load = Load::random(FILE_BYTES, 65_536, 670, 24).lasting(WARM_NS, COUNTED_NS);
                run(&mut made, &load, Time::ZERO, SEED).unwrap()
            };
            let got = once();
            assert_eq!(got, once());
            let (found, wanted) = (got.responses_ns, got.outstanding_ns);
            assert!(found.abs_diff(wanted) * 100 < wanted * 4, "{level:?} {cache:?}: {got:?}");
        }
    }
}

#[test]
fn members_that_make_no_array_are_refused() {
    let refused = |level, count: u64| {
        let made = (0..count).map(|seed| device("savvio-10k1").unwrap().build(seed).unwrap()).collect();
        Array::new(controller(level, ArrayCache::WriteBack), made).err().unwrap()
    };
    assert_eq!(refused(Level::Stripe, 0).field, "members");
    assert_eq!(refused(Level::Parity, 2).field, "members");
    assert!(refused(Level::Mirror, 3).to_string().contains("even"));
    let wrong = ArrayParameters { interleave_bytes: 0, ..controller(Level::Stripe, ArrayCache::WriteBack) };
    let made = vec![device("savvio-10k1").unwrap().build(0).unwrap()];
    assert_eq!(Array::new(wrong, made).err().unwrap().field, "interleave_bytes");
}

#[test]
fn a_stripe_over_three_volumes_does_three_times_what_a_span_does() {
    // A span whose file fills its first volume has that volume's work; a stripe has all three volumes'. The ratio at
    // saturation is three, and so is that of the knees.
    let (span, stripe) = (sweep(1).unwrap(), sweep(3).unwrap());
    let ratio = stripe.most * 100 / span.most;
    assert!((285..=315).contains(&ratio), "{span:?} and {stripe:?}");
    assert!((25..=35).contains(&(stripe.knee * 10 / span.knee)), "{span:?} and {stripe:?}");
}

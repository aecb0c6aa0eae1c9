//! What a seed draws before anything runs: disks, spaces, faults, and which disk may suffer.

use std::rc::Rc;
use std::time::Duration;

use dolmen_disk::Extent;
use dolmen_sim::{DiskProfile, FaultKind, FaultRates, Random, Rate, SimpleLatency};
use dolmen_space::{Integrity, Provisioning, Resiliency, SpaceSpec};
use dolmen_units::Bytes;

/// Where the data of a small disk begins: labels and metadata are in front.
pub const DATA_AT: u64 = 9 << 20;
/// How many times as large disks are where rows are as long as nobody chose them, and spaces.
const USUAL_DISKS: u64 = 4;
const USUAL_SPACES: u64 = 3;
/// Disks that are no members at first.
const SPARES: usize = 3;

/// Faults behind which a pool does without a disk until it is taken back in.
pub const LEAVING: [FaultKind; 5] =
    [FaultKind::WriteError, FaultKind::FlushError, FaultKind::Reset, FaultKind::Hung, FaultKind::NoSpace];
/// Faults that damage what a disk has.
pub const CONTENT: [FaultKind; 6] = [
    FaultKind::BitRot,
    FaultKind::LatentError,
    FaultKind::LostWrite,
    FaultKind::MisdirectedWrite,
    FaultKind::MisdirectedRead,
    FaultKind::TornWrite,
];
/// Faults that leave a copy as no client wrote it, or older than what a flush covered. A torn write alone does not.
pub const DAMAGING: [FaultKind; 6] = [
    FaultKind::BitRot,
    FaultKind::LostWrite,
    FaultKind::MisdirectedWrite,
    FaultKind::MisdirectedRead,
    FaultKind::DroppedFlush,
    FaultKind::ReturnedOld,
];

/// A seed's draws.
pub struct Setup {
    pub profiles: Vec<DiskProfile>,
    pub spares: Vec<DiskProfile>,
    /// Every space has at least two copies: one disk may do anything.
    pub redundant: bool,
    /// Somebody stirs.
    pub unrest: bool,
    /// Disks leave without another in their place, and are added.
    pub removes: bool,
    /// Spaces are converted to other layouts.
    pub converts: bool,
    /// What is where is evened out, and verified.
    pub evens: bool,
    /// People set what is reserved, what is kept, and what disks are for.
    pub settings: bool,
    /// Two disks may be away at once, and nothing else fails.
    pub pairs: bool,
    /// Some space has one copy, and the disk that suffers damages that too.
    pub frail: bool,
    pub tearing: bool,
    pub clients: usize,
    pub operations: u64,
    pub rates: FaultRates,
    /// Rates of all other disks: being slow damages nothing.
    pub others: FaultRates,
    pub names: u32,
    /// Rows and interleave are what they are when nobody chooses them, as every eighth seed has it.
    pub usual: bool,
    /// Draws the spaces with parity.
    parity: Option<Random>,
    /// Draws which of the others are strict.
    strict: Option<Random>,
}

/// A stream of draws for a purpose.
pub fn stream(seed: u64, purpose: u64) -> Random {
    Random::derived(seed, purpose)
}

impl Setup {
    pub fn of(seed: u64) -> Self {
        let mut random = stream(seed, 900);
        let usual = stream(seed, 908).below(8) == 0;
        let times = if usual { USUAL_DISKS } else { 1 };
        let count = 3 + random.index(4);
        let profiles: Vec<DiskProfile> = (0..count).map(|_| profile(times, &mut random)).collect();
        let spares: Vec<DiskProfile> = (0..SPARES).map(|_| spare(times, &mut random)).collect();
        let tearing =
            profiles.iter().chain(&spares).any(|profile| profile.geometry.atomic_write_bytes == 512);
        let redundant = random.below(4) != 0;
        let mut rates = rates(redundant, &mut random);
        let mut lies = stream(seed, 902);
        if redundant && lies.below(3) == 0 {
            rates = rates.with(FaultKind::DroppedFlush, Rate::one_in(4 << lies.below(4)));
        }
        let mut stirs = stream(seed, 904);
        let unrest = stirs.below(4) > u64::from(!redundant);
        let pairs = unrest && redundant && stirs.below(3) == 0;
        if pairs || (unrest && !redundant) {
            // Two at once may be more than is survived, also of log and map.
            rates = FaultRates::NONE.with(FaultKind::Slow, Rate::one_in(300));
        }
        let mut alone = stream(seed, 917);
        let has_one_copy = !redundant && !unrest;
        let frail = has_one_copy && alone.coin();
        if has_one_copy {
            rates = leaving(rates, &mut alone);
        }
        let slow = slow_periods(&mut stream(seed, 903));
        rates = rates.with(FaultKind::SlowPeriod, slow);
        Self {
            profiles,
            spares,
            redundant,
            unrest,
            removes: stream(seed, 907).below(3) > 0,
            converts: stream(seed, 909).below(4) == 0,
            evens: stream(seed, 912).below(3) == 0,
            settings: stream(seed, 916).below(3) == 0,
            pairs,
            frail,
            tearing,
            clients: 2 + random.index(3),
            operations: 1000 + random.below(200),
            rates,
            others: FaultRates::NONE.with(FaultKind::SlowPeriod, slow),
            names: 0,
            usual,
            parity: parity(seed),
            strict: strict(seed),
        }
    }

    /// A space of a drawn kind.
    pub fn space(&mut self, random: &mut Random) -> SpaceSpec {
        self.names += 1;
        let most = self.profiles.len().min(4) as u64;
        let choice = if self.redundant { 2 + random.below(3) } else { random.below(5) };
        let resiliency = match choice {
            0 => Resiliency::Simple,
            1 => Resiliency::Span,
            _ => Resiliency::Mirror { copies: u8::try_from((2 + random.below(3)).min(most)).unwrap() },
        };
        let wide = self.profiles.len() > 3;
        let parity = self.parity.as_mut().filter(|_| self.profiles.len() > 2).and_then(|draws| {
            let has_parity = draws.coin();
            has_parity.then(|| Resiliency::Parity { parity: 1 + u8::from(wide && draws.coin()) })
        });
        let resiliency = parity.unwrap_or(resiliency);
        let name = format!("space{}", self.names).parse().unwrap();
        let mut spec = SpaceSpec::usual(name, Bytes(self.drawn_size(random)), resiliency);
        if let Some(draws) = &mut self.strict
            && parity.is_none()
            && draws.coin()
        {
            spec.integrity = Integrity::Strict;
        }
        if !self.usual {
            spec.row = Some(Bytes::mib(1 << random.below(3)));
        }
        // Short rows would mostly get one column by themselves.
        let copies = u64::from(spec.resiliency.copies());
        let widest = self.profiles.len() as u64 / copies;
        if spec.resiliency != Resiliency::Span && random.coin() {
            spec.columns = u8::try_from(1 + random.below(widest)).ok();
        }
        if let Resiliency::Parity { parity } = spec.resiliency {
            let widest = self.profiles.len() as u64 - u64::from(parity);
            spec.columns =
                spec.columns.and_then(|columns| u8::try_from(u64::from(columns).clamp(2, widest)).ok());
        }
        if !self.usual {
            spec.interleave = Bytes::kib(16 << random.below(5));
        }
        spec.sector = Bytes(if random.coin() { 512 } else { 4096 });
        spec.provisioning = if random.below(4) == 0 { Provisioning::Fixed } else { Provisioning::Thin };
        spec
    }

    /// Bytes of a space.
    pub fn drawn_size(&self, random: &mut Random) -> u64 {
        let size = (1 << 20) + random.below(7 << 8) * 4096;
        if self.usual { USUAL_SPACES * size } else { size }
    }
}

/// Whether a seed has spaces with parity, as every second one has, and what draws them.
fn parity(seed: u64) -> Option<Random> {
    let mut draws = stream(seed, 905);
    (draws.below(2) == 0).then_some(draws)
}

/// Whether a seed has strict spaces without parity, as every third one has, and what draws them.
fn strict(seed: u64) -> Option<Random> {
    let mut draws = stream(seed, 906);
    (draws.below(3) == 0).then_some(draws)
}

fn spare(times: u64, random: &mut Random) -> DiskProfile {
    let mut spare = profile(times, random);
    spare.geometry.capacity = Bytes::mib(times * 160);
    spare
}

fn profile(times: u64, random: &mut Random) -> DiskProfile {
    let capacity = Bytes::mib(times * (72 + random.below(89)));
    // A file, as the daemon makes one: what is not data has its room from the beginning.
    let Ok(extent) = Extent::of(capacity) else { panic!("{capacity} are enough for a disk") };
    let mut profile = DiskProfile::new(capacity).thin_within(extent.data_start..extent.data_end);
    if random.coin() {
        profile = profile.tearing();
    } else if random.coin() {
        profile = profile.native_4k();
    }
    if random.below(4) == 0 {
        profile = profile.without_cache();
    }
    if random.below(3) == 0 {
        profile = profile.without_fua();
    }
    profile.hang_limit = Some(Duration::from_millis(400));
    profile.latency = Rc::new(speed(random));
    profile
}

/// How fast a disk is: most are alike, some take up to twenty times as long as others.
fn speed(random: &mut Random) -> SimpleLatency {
    let times = [1, 1, 1, 5, 20][random.index(5)];
    let SimpleLatency { fixed_ns, per_kib_ns, jitter_ns } = SimpleLatency::FAST;
    SimpleLatency { fixed_ns: times * fixed_ns, per_kib_ns: times * per_kib_ns, jitter_ns: times * jitter_ns }
}

/// Rates of the disk that suffers, far above those of life. Where some space has one copy only and others stir too, no disk may
/// leave by itself.
fn rates(redundant: bool, random: &mut Random) -> FaultRates {
    let mut rates = FaultRates::NONE;
    for kind in CONTENT {
        if random.coin() {
            rates = rates.with(kind, Rate::one_in(100 << random.below(5)));
        }
    }
    rates = rates.with(FaultKind::StaleAfterError, Rate::one_in(4)).with(FaultKind::Slow, Rate::one_in(300));
    if redundant {
        rates = leaving(rates, random);
    }
    rates
}

/// With rates of what a disk does not do for a pool that goes on to use it.
fn leaving(mut rates: FaultRates, random: &mut Random) -> FaultRates {
    for kind in LEAVING {
        if random.below(3) == 0 {
            rates = rates.with(kind, Rate::one_in(500 << random.below(4)));
        }
    }
    rates
}

/// How often disks become slow for a while; in some worlds never.
fn slow_periods(random: &mut Random) -> Rate {
    match random.below(4) {
        0 => Rate::NEVER,
        _ => Rate::one_in(200 << random.below(4)),
    }
}

/// A damage policy: one disk, and of it all, or its metadata alone.
pub fn policy(victim: &Rc<std::cell::Cell<usize>>, whole: bool) -> Rc<dyn dolmen_sim::DamagePolicy> {
    let victim = Rc::clone(victim);
    Rc::new(move |disk: dolmen_sim::DiskIndex, range: std::ops::Range<u64>| {
        disk.0 == victim.get() && (whole || range.end <= DATA_AT)
    })
}

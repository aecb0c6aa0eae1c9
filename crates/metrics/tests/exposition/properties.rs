//! Properties over documents of any content.

use std::collections::BTreeMap;

use dolmen_api::{IoFigures, LatencyBucket, Load};
use dolmen_metrics::{BOUNDS_US, Family, Kind};
use proptest::prelude::*;

use crate::documents::{Documents, disk, host, job, space, volume};
use crate::parser::{Labels, Parsed, parse};

/// Names of any characters, those that the format escapes often among them.
fn names() -> impl Strategy<Value = String> {
    let unfriendly = "[\"\\\\\n\r{},=# a-c\u{e9}\u{1f980}\0]{0,12}";
    prop_oneof![3 => unfriendly, 1 => any::<String>(), 1 => "[x\"]{300}"]
}

fn requests() -> impl Strategy<Value = IoFigures> {
    let bucket = (0u64..40_000_000, prop_oneof![4 => 0u64..1_000_000, 1 => any::<u64>()]);
    (any::<u64>(), any::<u64>(), any::<u64>(), prop::collection::btree_map(bucket.0, bucket.1, 0..30))
        .prop_map(|(count, bytes, total_us, latency)| {
            let latency = latency.into_iter().map(|(up_to_us, count)| LatencyBucket { up_to_us, count });
            IoFigures { count, bytes, total_us, latency: latency.collect() }
        })
}

fn loads() -> impl Strategy<Value = Load> {
    let kinds = (requests(), requests(), requests(), requests());
    (any::<u32>(), any::<u64>(), any::<u64>(), any::<u64>(), kinds).prop_map(
        |(under_way, queue_us, busy_us, errors, (reads, writes, discards, flushes))| Load {
            since_us: 0,
            under_way,
            queue_us,
            busy_us,
            errors,
            reads,
            writes,
            discards,
            flushes,
        },
    )
}

/// Documents with names of any characters, loads of any numbers, and objects that have one name twice.
fn documents() -> impl Strategy<Value = Documents> {
    (prop::collection::vec((names(), names(), loads(), loads()), 0..4), any::<u64>(), any::<i64>()).prop_map(
        |(pools, number, temperature)| {
            let mut all = host("tank", "home");
            all.status.pools[0].disks[0].smart.as_mut().unwrap().temperature_c = Some(temperature);
            all.status.uptime_s = number;
            for (pool, name, of_space, of_disk) in pools {
                let one = host(&pool, &name);
                all.status.pools.extend(one.status.pools);
                all.status.spaces.push(space(&pool, &name));
                let mut named = disk(1, dolmen_api::DiskState::Present);
                (named.bay, named.path) = (Some(name.clone()), Some(pool.clone()));
                all.status.pools[0].disks.push(named);
                all.findings.extend(one.findings);
                for (mut space, mut disk) in one.figures.spaces.into_iter().zip(one.figures.disks) {
                    (space.load, disk.load) = (of_space.clone(), of_disk.clone());
                    all.figures.spaces.push(space);
                    all.figures.disks.push(disk);
                }
                all.counters.pools.extend(one.counters.pools);
                all.jobs.jobs.push(job(number, &pool, dolmen_api::JobState::Running));
                all.volumes.volumes.push(volume(&pool, &name));
                all.rooms.extend(one.rooms);
            }
            all
        },
    )
}

fn number(text: &str) -> f64 {
    text.parse().unwrap()
}

/// Histograms by their labels without the bound: counts in the order of the bounds, with the bounds.
fn histograms(family: &Parsed, name: &str) -> BTreeMap<Labels, Vec<(String, u64)>> {
    let mut all: BTreeMap<Labels, Vec<(String, u64)>> = BTreeMap::new();
    for (sample, labels, value) in &family.samples {
        if *sample == format!("{name}_bucket") {
            let mut labels = labels.clone();
            let bound = labels.remove("le").unwrap();
            all.entry(labels).or_default().push((bound, value.parse().unwrap()));
        }
    }
    all
}

/// Returns a load after more requests.
fn grown(load: &Load, more: u64) -> Load {
    let add = |io: &IoFigures| {
        let mut io = io.clone();
        let (count, us) = (more % 1000, more % 40_000_000);
        io.count = io.count.saturating_add(count);
        io.bytes = io.bytes.saturating_add(more);
        io.total_us = io.total_us.saturating_add(more);
        match io.latency.iter_mut().find(|bucket| bucket.up_to_us == us) {
            Some(bucket) => bucket.count = bucket.count.saturating_add(count),
            None => io.latency.push(LatencyBucket { up_to_us: us, count }),
        }
        io.latency.sort_by_key(|bucket| bucket.up_to_us);
        io
    };
    Load {
        queue_us: load.queue_us.saturating_add(more),
        busy_us: load.busy_us.saturating_add(more),
        errors: load.errors.saturating_add(more),
        reads: add(&load.reads),
        writes: add(&load.writes),
        discards: add(&load.discards),
        flushes: add(&load.flushes),
        ..load.clone()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Documents of any content and names of any characters: a strict parser reads every line, and no sample is there twice.
    #[test]
    fn every_line_parses(documents in documents()) {
        let text = documents.exposition();
        prop_assert!(parse(&text).is_ok(), "{:?}\n{text}", parse(&text));
    }

    /// A label value reads back as it was, but for a carriage return and what is too long.
    #[test]
    fn names_read_back(pool in names(), name in names()) {
        let parsed = parse(&host(&pool, &name).exposition()).unwrap();
        let (_, labels, _) = &parsed[Family::SpaceSizeBytes.name()].samples[0];
        for (label, name) in [("pool", &pool), ("space", &name)] {
            let expected = name.replace('\r', " ");
            let is_short = name.len() <= dolmen_metrics::LABEL_BYTES_MAX;
            let is_same = if is_short { labels[label] == expected } else { expected.starts_with(&labels[label]) };
            prop_assert!(is_same, "{label} reads {:?}", labels[label]);
        }
    }

    /// Buckets only grow towards larger bounds, all have the fixed bounds, and the last is the count.
    #[test]
    fn histograms_are_monotone_and_end_with_their_count(documents in documents()) {
        let parsed = parse(&documents.exposition()).unwrap();
        for family in Family::ALL.iter().filter(|family| family.kind() == Kind::Histogram) {
            let (name, found) = (family.name(), &parsed[family.name()]);
            for (labels, buckets) in histograms(found, name) {
                prop_assert_eq!(buckets.len(), BOUNDS_US.len() + 1);
                prop_assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1));
                let bounds = buckets.iter().map(|(bound, _)| number(&bound.replace("+Inf", "inf")));
                prop_assert!(bounds.collect::<Vec<_>>().is_sorted_by(|a, b| a < b));
                let count = found.samples.iter().find(|(sample, of, _)| *sample == format!("{name}_count") && *of == labels);
                prop_assert_eq!(&buckets.last().unwrap().1.to_string(), &count.unwrap().2);
            }
        }
    }

    /// Two looks, the second after more requests: no counter, bucket, sum or count is less than it was.
    #[test]
    fn counters_never_fall_between_looks_that_grew(first in documents(), more in any::<u64>()) {
        let mut second = first.clone();
        second.figures.spaces.iter_mut().for_each(|one| one.load = grown(&one.load, more));
        second.figures.disks.iter_mut().for_each(|one| one.load = grown(&one.load, more));
        second.counters.pools.iter_mut().for_each(|one| one.spaces.healed_blocks += more % 1000);
        let (before, after) = (parse(&first.exposition()).unwrap(), parse(&second.exposition()).unwrap());
        for family in Family::ALL.iter().filter(|family| family.kind() != Kind::Gauge) {
            let (before, after) = (&before[family.name()], &after[family.name()]);
            prop_assert_eq!(before.samples.len(), after.samples.len());
            for (was, is) in before.samples.iter().zip(&after.samples) {
                prop_assert_eq!((&was.0, &was.1), (&is.0, &is.1));
                prop_assert!(number(&was.2) <= number(&is.2), "{:?} became {:?}", was, is);
            }
        }
    }
}

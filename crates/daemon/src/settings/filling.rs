//! How full a pool is, and when it will be: thresholds that people set, and the pace of the last week (docs/design/0023).
//!
//! A pool in which nothing thin can grow is not reported: that it is full was intended.

use dolmen_api::{FillForecast, FillState, Finding, FindingCode, Health, Object};
use dolmen_history::{Fill, forecast};
use dolmen_placement::{Offer, Placer};
use dolmen_pool::{DiskState, PoolState};
use dolmen_space::{Resiliency, SpaceSpec, slab_units};
use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes};

use crate::finding::found;
use crate::jobs::seconds_now;
use crate::open_pool::OpenPool;
use crate::state::{DAYS_REPORTED, HOUR_S, kib, percent_used, reached};

/// That a threshold is reached, and how far it is from it: a pool that comes and goes around one is reported with another each time.
fn reached_text(name: &str, at: u8, used: u64, left: u64) -> String {
    format!(
        "pool {name}: {} percent of what spaces can claim is used, warning from {at} percent on: {} can be claimed still, on all disks together",
        percent_used(used, left),
        Bytes(left)
    )
}

/// Bytes used on disks that are here, and bytes that claims may still take of them.
fn used_and_left(pool: &OpenPool) -> (u64, u64) {
    let room = pool.spaces.pool().free_space().room();
    let here = room.iter().filter(|room| room.state == DiskState::Present);
    let used = here.map(|room| room.data.0.saturating_sub(room.free.0)).sum();
    let offers = pool.offers();
    let request = "x".parse().ok().and_then(|name| {
        let spec = SpaceSpec::usual(name, Bytes::gib(1), Resiliency::Mirror { copies: 2 });
        Some((spec.check().ok()?, spec.interleave))
    });
    let claimable = match request {
        Some((request, interleave)) => Placer::new(request, slab_units(interleave, 0)).claimable(&offers),
        None => offers,
    };
    (used, claimable.iter().map(Offer::claimable_units).sum::<u64>() * ALLOCATION_UNIT_BYTES)
}

/// Whether a thin space may still ask for room.
fn may_grow(pool: &OpenPool) -> bool {
    let spaces = pool.spaces.list();
    spaces.iter().any(|space| space.size().0 > space.claimed().0)
}

/// Tells when a pool is full, as far as its history says.
pub(crate) fn fill_of(pool: &OpenPool) -> FillForecast {
    let (now_s, (_, left)) = (seconds_now(), used_and_left(pool));
    // In whole hours: a document that is shown all the time does not change each second.
    let at = |after_s: u64| now_s.saturating_add(after_s) / HOUR_S * HOUR_S;
    match forecast(&pool.recording.uses.borrow(), kib(left), now_s) {
        Fill::Unknown => FillForecast { state: FillState::Unknown, ..FillForecast::default() },
        Fill::Steady => FillForecast { state: FillState::Steady, ..FillForecast::default() },
        Fill::After { mean_s, earliest_s, latest_s } => FillForecast {
            state: FillState::Filling,
            full_at_s: Some(at(mean_s)),
            earliest_s: Some(at(earliest_s)),
            latest_s: latest_s.map(at),
        },
    }
}

/// Looks at how full the pool is, for those who ask later.
pub(crate) async fn look_at_filling(pool: &OpenPool) {
    if !pool.filling.is_known.get()
        && let Ok(thresholds) = pool.spaces.pool().settings().alert_at().await
    {
        pool.filling.thresholds.replace(thresholds);
        pool.filling.is_known.set(true);
    }
    // Also of disks that are away: one that comes back is no growth.
    pool.filling.note(seconds_now(), pool.spaces.pool().free_space().used().0);
}

/// That the pool is above a threshold, or will be full soon.
pub(crate) fn filling_findings(pool: &OpenPool) -> Vec<Finding> {
    if pool.spaces.pool().state() != PoolState::Writable || !may_grow(pool) {
        return Vec::new();
    }
    let (used, left) = used_and_left(pool);
    let (name, object) = (pool.name(), Object::pool(pool.name()));
    let mut findings = Vec::new();
    if let Some(at) = reached(&pool.filling.thresholds.borrow(), used, left) {
        let text = reached_text(&name, at, used, left);
        let finding = found(FindingCode::PoolNearlyFull, Health::Warning, object.clone(), text);
        findings.push(Finding { amount: at.into(), ..finding });
    }
    let days = pool.filling.days_left(seconds_now(), pool.spaces.pool().free_space().used().0, left);
    if let Some(days) = days.filter(|days| *days < DAYS_REPORTED) {
        let days = if days == 1 { "1 day".to_owned() } else { format!("{days} days") };
        let text = format!("pool {name} is full in about {days} at the pace of the last week");
        findings.push(found(FindingCode::PoolFilling, Health::Warning, object, text));
    }
    findings
}

pub(super) fn in_words(percents: &[u8]) -> String {
    if percents.is_empty() {
        return "at no fullness".to_owned();
    }
    let listed: Vec<String> = percents.iter().map(|percent| format!("{percent} %")).collect();
    format!("at {}", listed.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{DAY_S, Filling, LOOKS_MAX, WEEK_S};

    const GIB: u64 = 1 << 30;

    fn filled(gib_a_day: u64, days: u64) -> (Filling, u64) {
        let (filling, begin) = (Filling::default(), 1_700_000_000);
        for hour in 0..=days * 24 {
            filling.note(begin + hour * HOUR_S, 100 * GIB + hour * gib_a_day * GIB / 24);
        }
        (filling, begin + days * DAY_S)
    }

    /// Scenario: a pool grows by 10 GiB a day, and has 70 left: a week. What it did before the last week says nothing.
    #[test]
    fn days_left_follow_the_rate_of_the_last_week() {
        let (filling, now_s) = filled(10, 5);
        assert_eq!(filling.days_left(now_s, 150 * GIB, 70 * GIB), Some(7));
        let (filling, now_s) = filled(10, 30);
        assert!(filling.looks().len() <= LOOKS_MAX);
        assert_eq!(filling.days_left(now_s, 400 * GIB, 70 * GIB), Some(7));
        // It stands still for a week then.
        for hour in 1..=7 * 24 {
            filling.note(now_s + hour * HOUR_S, 400 * GIB);
        }
        assert_eq!(filling.days_left(now_s + WEEK_S, 400 * GIB, 70 * GIB), None);
    }

    /// Scenario: too little is known, the clock goes back, or the pool gets emptier: nothing is foretold.
    #[test]
    fn nothing_is_foretold_of_what_is_not_known() {
        let filling = Filling::default();
        assert_eq!(filling.days_left(1000, 5, 5), None);
        filling.note(1_700_000_000, GIB);
        filling.note(1_700_000_001, 9 * GIB);
        assert_eq!(filling.looks().len(), 1, "one an hour");
        assert_eq!(filling.days_left(1_700_000_000 + HOUR_S, 9 * GIB, GIB), None, "of an hour");
        assert_eq!(filling.days_left(1_700_000_000 + DAY_S, 0, GIB), None, "it got emptier");
        filling.note(1_600_000_000, GIB);
        assert_eq!(filling.looks().len(), 1, "what is of the future is forgotten");
        let again = Filling::default();
        again.recall(&filling.looks());
        assert_eq!(again.looks(), filling.looks());
    }

    #[test]
    fn the_highest_threshold_that_is_reached_counts() {
        for (used, expected) in [(79, None), (80, Some(80)), (89, Some(80)), (90, Some(90)), (100, Some(90))]
        {
            assert_eq!(reached(&[80, 90], used, 100 - used), expected, "{used}");
        }
        assert_eq!(
            reached_text("tank", 80, 89 << 20, 11 << 20),
            "pool tank: 89 percent of what spaces can claim is used, warning from 80 percent on: 11 MiB can be claimed still, on all disks together"
        );
        assert_eq!(reached(&[], 100, 0), None);
        assert_eq!(reached(&[1], 0, 0), None, "of no disks");
    }
}

//! History of a pool, a space or a disk, as documents (docs/design/0040).

use dolmen_api::{
    ErrorBody, ErrorCode, History, HistoryBytes, HistoryPoint, HistoryQuery, HistoryRequests, SCHEMA,
};
use dolmen_history::{Gauge, Level, Object, Point, Question, Requests};

use crate::answer::Answer;
use crate::api::reports::Reports;
use crate::disks::find_disk;
use crate::jobs::seconds_now;
use crate::open_pool::OpenPool;
use crate::state::object_of;

/// Seconds that an answer is about where nobody says otherwise.
const USUAL_S: u64 = 3600;

/// What history is asked of.
struct Asked {
    object: Object,
    of: &'static str,
    name: String,
}

impl Reports {
    pub(crate) async fn history(&self, pool: String, query: HistoryQuery) -> Answer<History> {
        let open = self.pools.pool(&pool)?;
        let asked = asked(&open, &query)?;
        let now_s = seconds_now();
        let to_s = query.to_s.unwrap_or(now_s);
        let from_s = query.from_s.unwrap_or(to_s.saturating_sub(USUAL_S));
        if from_s > to_s {
            let message =
                format!("history from {from_s} to {to_s} was asked for, which ends before it begins");
            return Err(ErrorBody::new(ErrorCode::BadRequest, message).on(pool));
        }
        let level = level_of(query.step_s, from_s, to_s, now_s).map_err(|error| error.on(pool.as_str()))?;
        if open.recording.recorder.borrow().is_none() {
            // It is being loaded, or saved for the last time.
            drop(open.recording.mutex.take().await);
        }
        let question = Question { object: asked.object, level, from_s, to_s };
        let points = self.history_reads.answer(&open, question, shown).await?;
        Ok(History {
            schema: SCHEMA,
            pool,
            of: asked.of.to_owned(),
            name: asked.name,
            from_s,
            to_s,
            step_s: level.step_s(),
            points,
            problem: open.recording.problem.borrow().clone(),
        })
    }
}

fn asked(open: &OpenPool, query: &HistoryQuery) -> Answer<Asked> {
    let lacking = |what: &str| {
        let message = format!("history of a {what} was asked for, and no name of one was given");
        ErrorBody::new(ErrorCode::BadRequest, message).on(open.name()).hint("add `name`")
    };
    match (query.of.as_deref().unwrap_or("pool"), query.name.as_deref()) {
        ("pool", None) => Ok(Asked { object: Object::Pool, of: "pool", name: open.name() }),
        ("pool", Some(name)) => {
            let message = format!("the history of a pool was asked for, and the name {name} as well");
            let hint = "say what it is the name of: `of` is `space` or `disk`";
            Err(ErrorBody::new(ErrorCode::BadRequest, message).on(open.name()).hint(hint))
        }
        ("space", Some(name)) => {
            let space = open.space(name)?;
            Ok(Asked { object: Object::Space(space.id().0), of: "space", name: name.to_owned() })
        }
        ("disk", Some(name)) => {
            let disk = find_disk(open, name)?;
            Ok(Asked { object: object_of(disk.id()), of: "disk", name: disk.name() })
        }
        ("space", None) => Err(lacking("space")),
        ("disk", None) => Err(lacking("disk")),
        (other, _) => {
            let shown: String = other.chars().take(40).collect();
            let message = format!("`of` is pool, space or disk, and {shown:?} was found");
            Err(ErrorBody::new(ErrorCode::BadRequest, message).on(open.name()))
        }
    }
}

/// Chooses the resolution of an answer.
fn level_of(step_s: Option<u64>, from_s: u64, to_s: u64, now_s: u64) -> Answer<Level> {
    let points = |level: Level| (to_s - from_s) / level.step_s();
    let is_fit = |level: &Level| points(*level) <= HistoryQuery::POINTS_MAX;
    let coarsest = Level::all().next_back().unwrap_or(Level::HOURS);
    let Some(step_s) = step_s else {
        let reaches = |level: &Level| from_s.saturating_add(level.reach_s()) >= now_s;
        return Ok(Level::all().find(|level| is_fit(level) && reaches(level)).unwrap_or(coarsest));
    };
    let level = Level::all().find(|level| level.step_s() >= step_s).unwrap_or(coarsest);
    if is_fit(&level) {
        return Ok(level);
    }
    let message = format!(
        "the range has {} points of {} seconds, and an answer has {} at most",
        points(level),
        level.step_s(),
        HistoryQuery::POINTS_MAX
    );
    Err(ErrorBody::new(ErrorCode::BadRequest, message)
        .hint("ask for a shorter range, or for a longer `step_s`"))
}

fn shown(at_s: u64, point: &Point) -> HistoryPoint {
    let bytes = |gauge: Gauge| HistoryBytes {
        min: gauge.least.saturating_mul(1024),
        mean: point.mean(gauge).saturating_mul(1024),
        max: gauge.most.saturating_mul(1024),
    };
    HistoryPoint {
        at_s,
        covered_s: point.seconds,
        reads: requests(&point.reads),
        writes: requests(&point.writes),
        errors: point.errors,
        busy_ms: point.busy_ms,
        queue_ms: point.queue_ms,
        used: bytes(point.used),
        waiting: bytes(point.waiting),
        size_bytes: point.size_kib.saturating_mul(1024),
    }
}

fn requests(requests: &Requests) -> HistoryRequests {
    HistoryRequests {
        count: requests.count,
        bytes: requests.bytes,
        per_s_min: requests.per_s.least,
        per_s_max: requests.per_s.most,
        bytes_per_s_min: requests.bytes_per_s.least,
        bytes_per_s_max: requests.bytes_per_s.most,
        average_us: requests.total_us.checked_div(requests.count),
        p50_us: requests.latencies.percentile_us(500),
        p99_us: requests.latencies.percentile_us(990),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: ranges of an hour to years, up to now and long ago. The resolution is the finest that is kept that far back and fits.
    #[test]
    fn the_resolution_follows_the_range() {
        const NOW_S: u64 = 1_800_000_000;
        let chosen = |back_s: u64, length_s: u64| {
            let from_s = NOW_S - back_s;
            level_of(None, from_s, from_s + length_s, NOW_S).unwrap().step_s()
        };
        const DAY_S: u64 = 86_400;
        assert_eq!(chosen(3600, 3600), 10);
        assert_eq!(chosen(3700, 3700), 60);
        assert_eq!(chosen(DAY_S, 3600), 60);
        assert_eq!(chosen(DAY_S, DAY_S), 60);
        assert_eq!(chosen(7 * DAY_S, 7 * DAY_S), 600);
        assert_eq!(chosen(60 * DAY_S, DAY_S), 3600);
        assert_eq!(chosen(400 * DAY_S, 400 * DAY_S), 86_400);
        assert_eq!(level_of(Some(61), 0, 1000, NOW_S).unwrap().step_s(), 600);
        assert_eq!(level_of(Some(1 << 40), 0, 1000, NOW_S).unwrap().step_s(), 86_400);
        let refused = level_of(Some(1), 0, 100_000, NOW_S).unwrap_err();
        assert!(refused.message.contains("10000 points of 10 seconds"), "{}", refused.message);
    }
}

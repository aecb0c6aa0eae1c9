//! How long spaces have been in the trash, as far as this host has seen it (docs/design/0018, *When a purge comes by itself*).
//!
//! Counted by the clock that only goes forward, while a pool is open. The file is a help: where it is lost or older than it could
//! be, spaces stay longer.
//!
//! Invariants:
//! - No age is more than the time for which a daemon of this host had the pool open with the space in its trash.
//! - The clock of the system decides nothing.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::Instant;
use dolmen_space::Space;
use dolmen_units::{PoolId, SpaceId};
use serde::{Deserialize, Serialize};

use crate::files::write_durably;
use crate::io_worker::IoWorker;
use crate::jobs::{Content, read, seconds_now};

/// The version of the file.
const VERSION: u32 = 1;
const FILE: &str = "trash.json";
/// What one look counts, at most: a daemon that stood still for longer was not there.
const LOOK_MAX: Duration = Duration::from_secs(120);
/// The file is written this often, at the most; of short periods, in an eighth of them.
const WRITE_EVERY: Duration = Duration::from_secs(600);
/// Spaces that are remembered, at most; the others begin again behind a restart.
const SPACES_MAX: usize = 4096;
/// What a space takes in the file, at most.
const SPACE_TEXT_MAX: usize = 160;
const _: () = assert!(
    (SPACES_MAX * SPACE_TEXT_MAX) as u64 <= crate::files::FILE_BYTES_MAX,
    "a file that was written is read whole"
);

/// A stay of a space in the trash. One that comes there again is there again.
type Stay = (PoolId, SpaceId, u64);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RecordedStay {
    pool: String,
    space: u64,
    trashed_s: u64,
    seen_s: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Recorded {
    version: u32,
    spaces: Vec<RecordedStay>,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    #[error("it makes no sense")]
    Json(#[from] serde_json::Error),
    #[error("it is of version {found}, and this is a daemon for version {VERSION}")]
    Version { found: u32 },
}

fn parse(text: &str) -> Result<BTreeMap<Stay, Duration>, Unfit> {
    let recorded: Recorded = serde_json::from_str(text)?;
    if recorded.version != VERSION {
        return Err(Unfit::Version { found: recorded.version });
    }
    let stay = |one: RecordedStay| {
        let pool = one.pool.parse().ok()?;
        Some(((pool, SpaceId(one.space), one.trashed_s), Duration::from_secs(one.seen_s)))
    };
    Ok(recorded.spaces.into_iter().filter_map(stay).collect())
}

/// The ages.
pub(crate) struct TrashAges {
    path: PathBuf,
    file_worker: Rc<IoWorker>,
    seen: RefCell<BTreeMap<Stay, Duration>>,
    /// When each pool was looked at last.
    looked: RefCell<BTreeMap<PoolId, Instant>>,
    written: Cell<Option<Instant>>,
    is_changed: Cell<bool>,
}

impl TrashAges {
    pub(crate) fn new(folder: &std::path::Path, file_worker: Rc<IoWorker>) -> Self {
        Self {
            path: folder.join(FILE),
            file_worker,
            seen: RefCell::default(),
            looked: RefCell::default(),
            written: Cell::default(),
            is_changed: Cell::default(),
        }
    }

    /// Takes over what is on record.
    pub(crate) async fn recall(&self) {
        let path = self.path.clone();
        let found = self
            .file_worker
            .run(move || Ok::<_, io::Error>(read("the trash", &path, seconds_now(), parse)))
            .await;
        if let Ok(Content::Usable(seen)) = found {
            self.seen.replace(seen);
        }
    }

    /// How long a space was seen in the trash.
    pub(crate) fn of(&self, pool: PoolId, space: &Space) -> Duration {
        let stay = space.trashed_at().map(|at_s| (pool, space.id(), at_s));
        stay.and_then(|stay| self.seen.borrow().get(&stay).copied()).unwrap_or_default()
    }

    /// Counts the time since the last look at a pool that was open all the while, for what is in its trash. What was there for
    /// less than one look is counted from the next one on.
    pub(crate) fn count(&self, pool: PoolId, trash: &[Space], now: Instant) {
        let before = self.looked.borrow_mut().insert(pool, now);
        let passed = before.map_or(Duration::ZERO, |before| now.since(before)).min(LOOK_MAX);
        let mut seen = self.seen.borrow_mut();
        let stays: Vec<Stay> =
            trash.iter().filter_map(|space| Some((pool, space.id(), space.trashed_at()?))).collect();
        let known = seen.len();
        seen.retain(|stay, _| stay.0 != pool || stays.contains(stay));
        self.is_changed.set(self.is_changed.get() || known != seen.len() || !stays.is_empty());
        for stay in stays {
            match seen.get_mut(&stay) {
                Some(age) => *age = age.saturating_add(passed),
                None => _ = seen.insert(stay, Duration::ZERO),
            }
        }
    }

    /// Notes that a pool is not looked at any more.
    pub(crate) fn note_closed(&self, pool: PoolId) {
        self.looked.borrow_mut().remove(&pool);
    }

    /// Forgets a pool that is no more.
    pub(crate) fn forget(&self, pool: PoolId) {
        self.note_closed(pool);
        self.seen.borrow_mut().retain(|stay, _| stay.0 != pool);
        self.is_changed.set(true);
    }

    /// Puts the ages on record, now and then.
    pub(crate) async fn keep(&self, period: Option<Duration>, now: Instant) {
        let every = period.map_or(WRITE_EVERY, |period| (period / 8).min(WRITE_EVERY));
        let is_due = self.written.get().is_none_or(|written| now.since(written) >= every);
        if is_due && self.is_changed.replace(false) {
            self.written.set(Some(now));
            self.write().await;
        }
    }

    /// The same at once.
    pub(crate) async fn write(&self) {
        let stay = |((pool, space, trashed_s), seen): (&Stay, &Duration)| RecordedStay {
            pool: pool.to_string(),
            space: space.0,
            trashed_s: *trashed_s,
            seen_s: seen.as_secs(),
        };
        let spaces = self.seen.borrow().iter().take(SPACES_MAX).map(stay).collect();
        let Ok(mut text) = serde_json::to_vec(&Recorded { version: VERSION, spaces }) else { return };
        text.push(b'\n');
        let path = self.path.clone();
        if let Err(error) = self.file_worker.run(move || write_durably(&path, &text)).await {
            self.is_changed.set(true);
            tracing::debug!(%error, "how long spaces were in the trash is not on record; they stay longer");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_and_what_makes_no_sense_is_refused() {
        let pool = PoolId([3; 16]);
        let text = format!(
            "{{\"version\":1,\"spaces\":[{{\"pool\":\"{pool}\",\"space\":7,\"trashed_s\":1,\"seen_s\":90}},\
             {{\"pool\":\"none\",\"space\":7,\"trashed_s\":1,\"seen_s\":90}}]}}"
        );
        let seen = parse(&text).unwrap();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [((pool, SpaceId(7), 1), Duration::from_secs(90))]);
        assert!(matches!(parse("{\"version\":2,\"spaces\":[]}"), Err(Unfit::Version { found: 2 })));
        assert!(matches!(parse(&text[..40]), Err(Unfit::Json(_))));
    }
}

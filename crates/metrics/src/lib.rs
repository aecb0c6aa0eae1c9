//! Metrics for Prometheus, made of the documents of the API: text in, text out.
//!
//! [`exposition`] writes the text format 0.0.4. [`Family`] is the one table of names, types, labels and texts; `docs/metrics.md` is made
//! of it, and a test compares them.
//!
//! Invariants:
//! - Every sample belongs to a declared family and has exactly its labels. No two samples of a family have the same label values.
//! - A family has at most [`SERIES_MAX`] label sets, and a label value at most [`LABEL_BYTES_MAX`] bytes, whatever the documents hold.
//!   `dolmen_series_left_out` counts what the bound left out.
//! - Counters are counters of the documents. They fall only where those begin again: with the daemon, or with an export of a pool.
//! - Buckets of histograms are fixed, so that series of two looks and of two hosts can be added.
//!
//! Asking the daemon, HTTP and access rights are left to the caller. A document that the caller could not get is `None`, and its
//! families are absent.

mod daemon;
mod disks;
mod family;
mod histogram;
mod jobs;
mod loads;
mod page;
mod pools;
mod spaces;
mod text;
mod volumes;

use dolmen_api::{Counters, Df, Figures, Finding, Jobs, Status, Volumes};

pub use family::{Family, Kind};
pub use histogram::BOUNDS_US;
pub use page::metrics_page;

use text::Text;

/// Content type of the answer.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Label sets of one family. A host has at most a few hundred disks and spaces.
pub const SERIES_MAX: usize = 2048;
/// Bytes of one label value. Names of pools and spaces are shorter; paths may be longer, and are cut.
pub const LABEL_BYTES_MAX: usize = 256;

/// A certificate, and when it expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Certificate<'a> {
    /// Its purpose, such as `web`.
    pub name: &'a str,
    /// When it expires, in seconds since 1970.
    pub expires_s: u64,
}

/// Documents of one look at the daemon. An empty one says that the daemon did not answer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Looks<'a> {
    /// The state of everything: pools, disks, spaces.
    pub status: Option<&'a Status>,
    /// Findings of all pools, and of the daemon itself.
    pub findings: Option<&'a [Finding]>,
    /// Load of spaces and disks.
    pub figures: Option<&'a Figures>,
    /// Counters of the engine.
    pub counters: Option<&'a Counters>,
    /// Jobs.
    pub jobs: Option<&'a Jobs>,
    /// Volumes.
    pub volumes: Option<&'a Volumes>,
    /// Room of pools, for each pool that was asked.
    pub rooms: &'a [Df],
    /// Certificates of the caller.
    pub certificates: &'a [Certificate<'a>],
}

/// Returns the metrics of a look in the text format 0.0.4 of Prometheus.
#[must_use]
pub fn exposition(looks: &Looks<'_>) -> String {
    let mut text = Text::default();
    daemon::put(&mut text, looks);
    if let Some(status) = looks.status {
        pools::put(&mut text, status, looks.findings);
        disks::put(&mut text, status);
        spaces::put(&mut text, status, looks.findings);
    }
    looks.rooms.iter().for_each(|room| pools::put_room(&mut text, room));
    if let Some(counters) = looks.counters {
        pools::put_counters(&mut text, counters);
    }
    if let Some(figures) = looks.figures {
        loads::put(&mut text, figures);
    }
    if let Some(jobs) = looks.jobs {
        jobs::put(&mut text, jobs);
    }
    if let Some(volumes) = looks.volumes {
        volumes::put(&mut text, volumes);
    }
    text.finish()
}

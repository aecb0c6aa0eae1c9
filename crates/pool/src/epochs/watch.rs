//! Disks that two hosts can see at once: whoever opens a pool looks for the heartbeat of another host first (docs/design/0009).
//!
//! Order of an opening that does not know itself alone: it *watches* the labels, and writes nothing while they change; then it
//! writes its pending epoch; then it *holds*, and goes on only if nobody has written over that.
//!
//! Left to others: the heartbeat (`heartbeat`); disks that no other host can reach, of which nothing is asked
//! (`Geometry::shareable`).

use std::collections::BTreeSet;
use std::time::Duration;

use dolmen_block_io::sync::join_all;
use dolmen_block_io::{Seams, sleep};
use dolmen_disk::{Contents, Label, look};
use dolmen_epoch::Owner;
use dolmen_mutation::mutation;
use dolmen_units::{DiskId, EpochId};

use crate::disks::discover::Candidate;
use crate::error::OpenError;

/// How often an open pool writes its labels again where another host may see them.
pub(crate) const BEAT: Duration = Duration::from_secs(2);
/// How long an opening that does not know itself alone looks on before it writes.
pub const WATCH: Duration = Duration::from_secs(10);
/// How long what it wrote has to stand before it goes on.
pub const HOLD: Duration = Duration::from_secs(4);
const _: () = assert!(
    HOLD.as_secs() >= 2 * BEAT.as_secs(),
    "whoever wrote in the same moment is seen, also if it was slow"
);

const _: () = assert!(
    WATCH.as_secs() >= HOLD.as_secs() + 2 * BEAT.as_secs(),
    "whoever began to open while this looked has held and written again before this writes"
);

/// What a label says that another host changes when it writes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OwnerFields {
    sequence: u64,
    base: EpochId,
    pending: Option<EpochId>,
}

impl OwnerFields {
    fn of(label: &Label) -> Self {
        let pending = label.pending.as_ref().map(|generation| generation.epoch.id());
        Self { sequence: label.sequence, base: label.base.epoch.id(), pending }
    }
}

/// Who wrote a label, as far as it says so: the host that is about to own the pool, or does.
pub(crate) fn writer(label: &Label) -> String {
    let epoch = label.pending.as_ref().map_or(&label.base.epoch, |generation| &generation.epoch);
    match epoch.owner() {
        Owner::Host(host) => format!("host {host}"),
        Owner::Exported => "another host".to_owned(),
    }
}

/// Whether another host may reach a disk that was found.
pub(crate) fn is_shareable(candidate: &Candidate) -> bool {
    candidate.device.geometry().shareable
}

/// Fails if the label of a disk is not what it was when that was found: another host writes to it.
async fn check_unchanged(seams: &Seams, candidate: &Candidate) -> Result<(), OpenError> {
    let known = OwnerFields::of(&candidate.label);
    let by = match look(seams, candidate.device.as_ref()).await {
        Ok(Contents::Member { label, .. }) if OwnerFields::of(&label) != known => writer(&label),
        Ok(Contents::Empty | Contents::Foreign(_)) => "another host".to_owned(),
        // A disk that fails will do so when the pool is opened; a label that is just being written leaves the one before.
        Ok(Contents::Member { .. } | Contents::Unusable(_)) | Err(_) => return Ok(()),
    };
    let name = candidate.label.pool_name.clone();
    Err(OpenError::OpenElsewhere { name, disk: candidate.device.name(), by })
}

/// Fails if the label of a shareable disk is not what this host knows; disks in `unlabelled` may have either of two labels.
///
/// # Errors
/// [`OpenError::OpenElsewhere`].
pub(crate) async fn check_labelled(
    seams: &Seams,
    candidates: &[Candidate],
    unlabelled: &BTreeSet<DiskId>,
) -> Result<(), OpenError> {
    let is_labelled =
        |candidate: &&Candidate| mutation!(HoldOfUnlabelled) || !unlabelled.contains(&candidate.label.disk);
    check_all_unchanged(seams, candidates.iter().filter(is_labelled)).await
}

async fn check_all_unchanged<'a>(
    seams: &Seams,
    candidates: impl Iterator<Item = &'a Candidate>,
) -> Result<(), OpenError> {
    let shared = candidates.filter(|candidate| is_shareable(candidate));
    let checked = join_all(shared.map(|candidate| check_unchanged(seams, candidate))).await;
    checked.into_iter().collect()
}

/// Looks on for as long as an owner that lives needs to show itself.
///
/// # Errors
/// [`OpenError::OpenElsewhere`] as soon as somebody writes.
pub(crate) async fn watch(seams: &Seams, candidates: &[Candidate]) -> Result<(), OpenError> {
    if mutation!(NoWatch) || !candidates.iter().any(is_shareable) {
        return Ok(());
    }
    tracing::info!(seconds = WATCH.as_secs(), "watching whether another host has the pool open");
    let end = seams.clock.now() + WATCH;
    while seams.clock.now() < end {
        sleep(seams.clock.as_ref(), BEAT).await;
        check_all_unchanged(seams, candidates.iter()).await?;
    }
    Ok(())
}

/// Waits until whoever began to open the pool in the same moment has written its labels too. A disk in `unlabelled` did not take
/// the label that this host wrote, so its label differs without another host; the voters that took theirs are compared.
///
/// # Errors
/// [`OpenError::OpenElsewhere`] if a label is not what this host wrote.
pub(crate) async fn hold(
    seams: &Seams,
    candidates: &[Candidate],
    unlabelled: &BTreeSet<DiskId>,
) -> Result<(), OpenError> {
    if mutation!(NoHold) || !candidates.iter().any(is_shareable) {
        return Ok(());
    }
    sleep(seams.clock.as_ref(), HOLD).await;
    check_labelled(seams, candidates, unlabelled).await
}

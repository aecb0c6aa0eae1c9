//! From an order to its last message.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, Write};
use std::path::Path;

use dolmen_files::volume::{trim, usage};
use rustix::fs::FlockOperation;

use crate::protocol::{Failure, FailureCode, Message, Operation, Order, Outcome, Volume};
use crate::steering::Steering;
use crate::{compaction, content, grow, make, mount, names, quotas, shares, sharing};

/// Carries out the order that the first line of `input` is, and says to `output` what comes of it. Returns whether it succeeded.
///
/// A long operation reads commands from the rest of `input` and writes progress to `output` before.
pub fn run(mut input: impl BufRead + Send + 'static, mut output: impl Write) -> bool {
    let outcome = order_of(&mut input).and_then(|order| {
        let _lock = lock(&order.lock)?;
        carry_out(&order.operation, input, &mut output)
    });
    let is_done = outcome.is_ok();
    let message = match outcome {
        Ok(outcome) => Message::Done { outcome },
        Err(failure) => Message::Failed { failure },
    };
    // A daemon that is no more reads nothing; what was done stays done.
    if let Ok(mut line) = serde_json::to_vec(&message) {
        line.push(b'\n');
        let _ = output.write_all(&line).and_then(|()| output.flush());
    }
    is_done
}

fn order_of(input: &mut impl BufRead) -> Result<Order, Failure> {
    let mut line = String::new();
    let read = input.read_line(&mut line).map_err(|error| error.to_string());
    let order = read.and_then(|_| serde_json::from_str(&line).map_err(|error| error.to_string()));
    order.map_err(|error| Failure {
        code: FailureCode::BadOrder,
        message: format!("the order cannot be read: {error}"),
        hint: "use the daemon and the worker of one version".to_owned(),
    })
}

/// Locks a file for as long as the process lives, and makes it where there is none.
fn lock(path: &Path) -> Result<File, Failure> {
    let refused = |code, error: &dyn std::fmt::Display, hint: &str| Failure {
        code,
        message: format!("lock {} cannot be had: {error}", path.display()),
        hint: hint.to_owned(),
    };
    let opened = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let file = opened.map_err(|error| refused(FailureCode::BadPath, &error, ""))?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
        let hint = "wait for the operation on this volume that is under way; `dolmen jobs` shows it";
        refused(FailureCode::Busy, &error, hint)
    })?;
    Ok(file)
}

fn carry_out(
    operation: &Operation,
    input: impl BufRead + Send + 'static,
    output: &mut dyn Write,
) -> Result<Outcome, Failure> {
    match operation {
        Operation::Probe { device } => content::content(device).map(Outcome::Content),
        Operation::Make { volume } => make::make(volume),
        Operation::Mount { volume } => mount::mount(volume),
        Operation::Unmount { volume } => mount::unmount(volume),
        Operation::Grow { volume } => grow::grow(volume),
        Operation::Trim { volume, minimum } => {
            let root = root_of(volume)?;
            // What was freed a moment ago is on disk behind this, and is discarded too.
            rustix::fs::syncfs(&root).map_err(|error| refused(volume, &error))?;
            let bytes = trim(&root, 0, u64::MAX, *minimum).map_err(|error| refused(volume, &error))?;
            Ok(Outcome::Trimmed { bytes })
        }
        Operation::Usage { volume } => {
            let found = usage(&root_of(volume)?).map_err(|error| refused(volume, &error))?;
            let (total, free) = (found.total, found.free);
            Ok(Outcome::Usage { total, free, inodes: found.inodes, inodes_free: found.inodes_free })
        }
        Operation::Check { volume, repair } => make::check(volume, *repair),
        Operation::QuotaSet { volume, quota } => quotas::set(volume, &root_of(volume)?, quota),
        Operation::QuotaList { volume, quotas } => quotas::list(volume, &root_of(volume)?, quotas),
        Operation::QuotaRemove { volume, quota } => quotas::remove(volume, &root_of(volume)?, quota),
        Operation::Dedup { volume, selection, load, state } => {
            let (root, mut steering) = (root_of(volume)?, Steering::new(input, output)?);
            sharing::deduplicate(volume, root, selection, load, state, &mut steering)
        }
        Operation::Estimate { volume, selection, load, state, sample } => {
            let (root, mut steering) = (root_of(volume)?, Steering::new(input, output)?);
            sharing::estimate(volume, root, (selection, load), state, *sample, &mut steering)
        }
        Operation::Undo { volume, paths, load, state } => {
            let (root, mut steering) = (root_of(volume)?, Steering::new(input, output)?);
            sharing::undo(volume, root, paths, (load, state), &mut steering)
        }
        Operation::Compact { volume, occupancy, budget_bytes, load, state } => {
            let (root, mut steering) = (root_of(volume)?, Steering::new(input, output)?);
            let budget_bytes = *budget_bytes;
            let order = compaction::Order { volume, occupancy, budget_bytes, load, state };
            compaction::compact(&order, root, &mut steering)
        }
        Operation::Names { volume, ranges, names_max } => {
            let (root, mut steering) = (root_of(volume)?, Steering::new(input, output)?);
            names::names(volume, &root, ranges, *names_max, &mut steering)
        }
        Operation::SharePut(order) => shares::put(order),
        Operation::ShareRemove(order) => shares::remove(order),
        Operation::ShareList { servers } => shares::list(servers),
        Operation::ShareProbe(order) => shares::probe(order),
        Operation::ShareSessions(order) => shares::sessions(order),
    }
}

/// Opens the root of a volume that is mounted where it is to be.
fn root_of(volume: &Volume) -> Result<File, Failure> {
    mount::require_mounted(volume)?;
    File::open(volume.record.mount_point.as_str()).map_err(|error| refused(volume, &error))
}

/// An answer of the kernel about a mounted volume.
fn refused(volume: &Volume, error: &dyn std::fmt::Display) -> Failure {
    let message = format!("the file system at {}: {error}", volume.record.mount_point.as_str());
    Failure { code: FailureCode::Refused, message, hint: String::new() }
}

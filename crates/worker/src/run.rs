//! From an order to its last message.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, Write};
use std::path::Path;

use dolmen_files::volume::usage;
use dolmen_mutation::mutation;
use dolmen_volume::mount_point::Folder;
use rustix::fs::{AtFlags, FlockOperation};
use rustix::io::{Errno, FdFlags};

use crate::free_room::trim_at_rest;
use crate::kernel_errors::kernel_errors;
use crate::mount::root_of;
use crate::protocol::{
    Failure, FailureCode, MESSAGE_BYTES_MAX, Message, Operation, Order, Outcome, Usage, Volume,
};
use crate::steering::{AtEnd, Steering};
use crate::{compaction, content, grow, make, mount, names, quotas, scrub, shares, sharing};

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
        if line.len() >= usize::try_from(MESSAGE_BYTES_MAX).unwrap_or(usize::MAX) {
            line = serde_json::to_vec(&too_long(line.len())).unwrap_or_default();
        }
        line.push(b'\n');
        let _ = output.write_all(&line).and_then(|()| output.flush());
    }
    is_done
}

/// Message in place of one that the daemon would not read.
fn too_long(bytes: usize) -> Message {
    let failure = Failure {
        code: FailureCode::Refused,
        message: format!(
            "the answer has {bytes} bytes, and {MESSAGE_BYTES_MAX} are read at most; what was done stays"
        ),
        hint: "ask for less at a time".to_owned(),
    };
    Message::Failed { failure }
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

/// Locks a file for as long as the process lives, or a tool that it started: a repair goes on after its worker was killed, and the
/// volume is not free before its end. Makes the file where there is none.
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
    if !mutation!(LockEndsWithWorker) {
        rustix::io::fcntl_setfd(&file, FdFlags::empty())
            .map_err(|error| refused(FailureCode::Refused, &error, ""))?;
    }
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
            let bytes = trim_at_rest(&root, *minimum).map_err(|error| refused(volume, &error))?;
            Ok(Outcome::Trimmed { bytes })
        }
        Operation::Usage { volume } => look(volume).map(Outcome::Usage),
        Operation::Check { volume, repair, drop_log } => {
            make::check(volume, (*repair).then_some(make::Repair { drops_log: *drop_log }))
        }
        Operation::Scrub { volume } => {
            let (root, mut steering) = (root_of(volume)?, Steering::new(input, AtEnd::Stop, output)?);
            scrub::run(volume, &root, &mut steering)
        }
        Operation::QuotaSet { volume, quota } => quotas::set(volume, &root_of(volume)?, quota),
        Operation::Missing { volume, paths } => {
            Ok(Outcome::Missing { paths: missing(&root_of(volume)?, paths) })
        }
        Operation::QuotaList { volume, quotas } => quotas::list(volume, &root_of(volume)?, quotas),
        Operation::QuotaRemove { volume, quota } => quotas::remove(volume, &root_of(volume)?, quota),
        Operation::Dedup { volume, selection, load, state, undos } => {
            let (root, mut steering) = (root_of(volume)?, Steering::new(input, AtEnd::Stop, output)?);
            sharing::deduplicate((volume, root), (selection, load), (state, *undos), &mut steering)
        }
        Operation::Estimate { volume, selection, load, state, sample } => {
            let (root, mut steering) = (root_of(volume)?, Steering::new(input, AtEnd::Stop, output)?);
            sharing::estimate(volume, root, (selection, load), state, *sample, &mut steering)
        }
        Operation::Undo { volume, paths, load, state, pool_room_bytes } => {
            let (root, mut steering) = (root_of(volume)?, Steering::new(input, AtEnd::Stop, output)?);
            let pool_room_bytes = *pool_room_bytes;
            let order = sharing::UndoOrder { volume, paths, load, state, pool_room_bytes };
            sharing::undo(&order, root, &mut steering)
        }
        Operation::Compact { volume, occupancy, budget_bytes, load, state, pool_room_bytes } => {
            let (root, mut steering) = (root_of(volume)?, Steering::new(input, AtEnd::Stop, output)?);
            let (budget_bytes, pool_room_bytes) = (*budget_bytes, *pool_room_bytes);
            let order = compaction::Order { volume, occupancy, budget_bytes, pool_room_bytes, load, state };
            compaction::compact(&order, root, &mut steering)
        }
        Operation::Names { volume, ranges, names_max } => {
            let (root, mut steering) = (root_of(volume)?, Steering::new(input, AtEnd::GoOn, output)?);
            names::names(volume, &root, ranges, *names_max, &mut steering)
        }
        Operation::SharePut(order) => shares::put(order),
        Operation::ShareRemove(order) => shares::remove(order),
        Operation::ShareList { servers } => shares::list(servers),
        Operation::ShareProbe(order) => shares::probe(order),
        Operation::ShareSessions(order) => shares::sessions(order),
    }
}

/// Returns the paths that the file system of `root` does not have. A path that it cannot look at is left to who asks for more.
fn missing(root: &File, paths: &[Folder]) -> Vec<Folder> {
    let is_missing = |path: &&Folder| {
        let found = rustix::fs::statat(root, path.as_str(), AtFlags::SYMLINK_NOFOLLOW);
        !path.is_root() && matches!(found, Err(Errno::NOENT | Errno::NOTDIR))
    };
    paths.iter().filter(is_missing).cloned().collect()
}

/// Returns how full a mounted volume is, and what the kernel found wrong with it.
fn look(volume: &Volume) -> Result<Usage, Failure> {
    mount::require_mounted(volume)?;
    let root = match File::open(volume.record.mount_point.as_str()) {
        Ok(root) => root,
        Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => return Ok(shut_down()),
        Err(error) => return Err(refused(volume, &error)),
    };
    let found = usage(&root).map_err(|error| refused(volume, &error))?;
    // XFS answers that, shut down or not; its root folder it does not list.
    if let Err(error) = fs::read_dir(volume.record.mount_point.as_str())
        && error.raw_os_error() == Some(Errno::IO.raw_os_error())
    {
        return Ok(shut_down());
    }
    let errors = kernel_errors(volume, &root);
    let (total, free) = (found.total, found.free);
    Ok(Usage { total, free, inodes: found.inodes, inodes_free: found.inodes_free, errors })
}

fn shut_down() -> Usage {
    let error = "its root folder answers with an I/O error: the kernel has shut the file system down";
    Usage { errors: vec![error.to_owned()], ..Usage::default() }
}

/// An answer of the kernel about a mounted volume.
fn refused(volume: &Volume, error: &dyn std::fmt::Display) -> Failure {
    let message = format!("the file system at {}: {error}", volume.record.mount_point.as_str());
    let hint =
        "`dmesg` shows what the kernel found; `dolmen volume show` shows whether the file system has errors";
    Failure { code: FailureCode::Refused, message, hint: hint.to_owned() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn nothing_at_a_path_and_a_path_below_a_file_are_missing() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        std::os::unix::fs::symlink("nowhere", folder.path().join("link")).unwrap();
        let paths = ["file", "link", "none", "file/below"].map(|path| path.parse::<Folder>().unwrap());
        assert_eq!(missing(&File::open(folder.path()).unwrap(), &paths), paths[2..]);
    }
}

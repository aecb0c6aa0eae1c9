//! What disks say of themselves: `smartctl` is asked when a disk comes, and every half an hour (docs/design/0022).
//!
//! It may hang for as long as the disk does. It is asked on a thread of its own, on which nothing else waits, one disk after
//! another, with a time limit; a disk whose last question still hangs is not asked again.
//!
//! Invariant: nothing depends on an answer but reports, the score, and whether the disk counts as failing.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{io, thread};

use dolmen_api::{Finding, FindingCode, Health, Object, Smart};
use dolmen_block_io::{Clock, Instant, sleep};
use dolmen_pool::Disk;
use dolmen_units::DiskId;

use crate::advice::Advice;
use crate::disks::empty_job::outlook_of_failing;
use crate::disks::smart_parse::{ANSWER_BYTES_MAX, parse};
use crate::finding::found;
use crate::io_worker::IoWorker;
use crate::jobs::JobView;
use crate::open_pool::OpenPool;
use crate::open_pools::OpenPools;
use crate::state::{Defects, NAMED_LIMIT, SmartState};

/// How often it is looked whether a disk is to be asked.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long an answer may take. Disks that have to spin up take a dozen seconds.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// Where it is, if not by `PATH`: services often have no folders of administrators in theirs.
const USUAL_PLACES: [&str; 2] = ["/usr/sbin/smartctl", "/sbin/smartctl"];
/// Devices that lie on others, or on nothing, and have nothing to say.
const WITHOUT_SMART: [&str; 8] = ["loop", "dm-", "md", "zram", "ram", "nbd", "ublkb", "rbd"];

/// Disks that are here and say that they fail, or have lost more places than anybody has acknowledged.
pub(crate) fn smart_findings(pool: &OpenPool) -> Vec<Finding> {
    let name = pool.name();
    let finding = |disk: &Rc<Disk>| {
        if !disk.is_present() {
            return None;
        }
        let (object, smart) = (Object::disk(name.as_str(), disk.slot().0), pool.smarts.of(disk.id()));
        if pool.smarts.is_failing(disk.id()) {
            let text = match &smart {
                Some(smart) => {
                    format!("{} says that it is about to fail: {}", pool.called(disk), in_words(smart))
                }
                None => format!("{} has said that it is about to fail", pool.called(disk)),
            };
            return Some(found(FindingCode::DiskFailing, Health::Warning, object, text));
        }
        let smart = smart?;
        let amount = pool.smarts.unseen_defects(disk.id());
        let text =
            format!("{} says that places on it have gone bad: {}", pool.called(disk), in_words(&smart));
        (amount > 0).then_some(Finding {
            code: FindingCode::DiskDefects,
            health: Health::Warning,
            object,
            text,
            amount,
        })
    };
    pool.spaces.pool().disks().iter().filter_map(finding).collect()
}

/// What to do about it.
pub(crate) fn smart_advice(pool: &OpenPool, jobs: &[JobView]) -> Vec<Advice> {
    let name = pool.name();
    let disks = pool.spaces.pool().disks();
    let advice = |finding: Finding| {
        let disk = disks.iter().find(|disk| disk.slot().0.to_string() == finding.object.name)?;
        let slot = disk.slot().0;
        let text = if finding.code == FindingCode::DiskFailing {
            let outlook = outlook_of_failing(pool, disk, jobs).map(|text| format!("{text}; "));
            format!(
                "{}replace {} soon: `dolmen disk replace {name} {slot} NEW`, or `dolmen pool remove {name} {slot}`",
                outlook.unwrap_or_default(),
                pool.called(disk)
            )
        } else {
            format!(
                "`dolmen scrub {name}` to see whether all is sound; replace {} if there are more of them; `dolmen pool \
                 acknowledge {name}` ends this warning until then",
                pool.called(disk)
            )
        };
        Some(Advice::new(finding.code, finding.object, text))
    };
    smart_findings(pool).into_iter().filter_map(advice).collect()
}

/// Disks with defects that nobody has acknowledged.
pub(crate) fn unseen_defects_of(pool: &OpenPool) -> Vec<Defects> {
    let disks = pool.spaces.pool().disks().into_iter().filter(|disk| disk.is_present());
    let of = |disk: Rc<Disk>| {
        let (unseen, all) = (pool.smarts.unseen_defects(disk.id()), pool.smarts.defects(disk.id()));
        Defects { disk, unseen, all }
    };
    disks.map(of).filter(|defects| defects.unseen > 0).collect()
}

/// Ends the warning about them until there are more.
pub(crate) fn acknowledge_defects(pool: &OpenPool, seen: &[Defects]) {
    for defects in seen {
        pool.smarts.acknowledge(defects.disk.id(), defects.all);
    }
}

/// What of it matters, in words.
fn in_words(smart: &Smart) -> String {
    let mut words = Vec::new();
    if smart.passed == Some(false) {
        words.push("its own test has failed".to_owned());
    }
    let bits = smart.critical_warning.unwrap_or_default();
    let critical = ["little spare is left", "it is too warm", "it is unreliable", "it takes no more writes"];
    let set = critical.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
    words.extend(set.map(|(_, word)| (*word).to_owned()));
    let counts = [
        (smart.reallocated_sectors, "sectors reallocated"),
        (smart.pending_sectors, "pending"),
        (smart.uncorrectable_sectors, "uncorrectable"),
        (smart.media_errors, "errors of its media"),
    ];
    let counts = counts.iter().filter_map(|(count, what)| Some((count.filter(|count| *count > 0)?, what)));
    words.extend(counts.map(|(count, what)| format!("{count} {what}")));
    words.extend(
        smart.percentage_used.filter(|used| *used >= 90).map(|used| format!("{used} % of its life used")),
    );
    words.join(", ")
}

/// Programs that were ended because they took too long, and may be there still, by the disk that they ask.
#[derive(Clone, Default)]
struct Hanging(Arc<Mutex<BTreeMap<PathBuf, Arc<AtomicBool>>>>);

impl Hanging {
    /// Whether the last one that asked a disk is there still.
    fn is(&self, disk: &Path) -> bool {
        let mut hanging = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let hangs = hanging.get(disk).is_some_and(|is_gone| !is_gone.load(Ordering::Acquire));
        if !hangs {
            hanging.remove(disk);
        }
        hangs
    }

    fn note(&self, disk: &Path, is_gone: Arc<AtomicBool>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(disk.to_owned(), is_gone);
    }
}

/// Asks disks for as long as the engine lives.
pub(crate) async fn follow_smart(
    pools: Weak<OpenPools>,
    smartctl: Option<PathBuf>,
    smart_worker: IoWorker,
    clock: Rc<dyn Clock>,
) {
    let hanging = Hanging::default();
    loop {
        let Some(due) = pools.upgrade().map(|pools| disk_to_ask(&pools, clock.now())) else { return };
        // Nobody waits for this with a pool, or a disk of it, in hand.
        let Some((pool, disk, name)) = due else {
            sleep(clock.as_ref(), LOOK_EVERY).await;
            continue;
        };
        let path = PathBuf::from(&name);
        let (hanging, named) = (hanging.clone(), smartctl.clone());
        let stated = smart_worker.run(move || Ok(ask_about(&path, named.as_deref(), &hanging))).await;
        let stated = stated
            .unwrap_or_else(|error| SmartState::Nothing(format!("smartctl could not be asked: {error}")));
        if let Some(pool) = pool.upgrade() {
            pool.smarts.note(disk, clock.now(), name, stated);
        }
    }
}

/// Returns the disk that is to be asked next, with its name.
fn disk_to_ask(pools: &OpenPools, now: Instant) -> Option<(Weak<OpenPool>, DiskId, String)> {
    pools.open_pools().into_iter().filter(|pool| !pool.is_closing.get()).find_map(|pool| {
        let disks = pool.spaces.pool().disks();
        let due = disks.into_iter().find(|disk| disk.is_present() && pool.smarts.is_due(disk, now))?;
        Some((Rc::downgrade(&pool), due.id(), due.name()))
    })
}

/// Asks about a disk. A program that somebody named is asked about all of them.
fn ask_about(path: &Path, named: Option<&Path>, hanging: &Hanging) -> SmartState {
    if hanging.is(path) {
        return SmartState::Nothing("the smartctl that asked it before hangs still".to_owned());
    }
    let note = |is_gone| hanging.note(path, is_gone);
    if let Some(program) = named {
        return ask(program, path, NAMED_LIMIT, note);
    }
    let device = match device_of(path, Path::new("/sys")) {
        Ok(device) => device,
        Err(why) => return SmartState::Nothing(why.to_owned()),
    };
    let usual = USUAL_PLACES.iter().map(Path::new).find(|place| place.exists());
    ask(usual.unwrap_or(Path::new("smartctl")), &device, ANSWER_LIMIT, note)
}

/// The whole disk that a path leads to, if that is one that may have something to say.
fn device_of(path: &Path, sys: &Path) -> Result<PathBuf, &'static str> {
    let real = path.canonicalize().map_err(|_| "it is not where it was")?;
    if real.metadata().is_ok_and(|status| status.is_file()) {
        return Err("a file has none");
    }
    let name = real.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let entry = sys.join("class/block").join(name);
    let whole = match entry.join("partition").exists() {
        // The folder of a partition is in that of its disk.
        true => entry.canonicalize().ok().and_then(|entry| Some(entry.parent()?.file_name()?.to_owned())),
        false => Some(name.into()),
    };
    let whole = whole.and_then(|name| name.into_string().ok()).unwrap_or_default();
    if whole.is_empty() || WITHOUT_SMART.iter().any(|prefix| whole.starts_with(prefix)) {
        return Err("a device of this kind has none");
    }
    Ok(Path::new("/dev").join(whole))
}

/// Asks `smartctl` about a device. Its status is many things besides success, and what it says tells more.
fn ask(program: &Path, device: &Path, limit: Duration, note: impl FnOnce(Arc<AtomicBool>)) -> SmartState {
    let mut command = Command::new(program);
    command.args(["--json", "-a"]).arg(device);
    match output_within(command, limit, note) {
        Ok(Some(answer)) => parse(&answer).map_or_else(SmartState::Nothing, SmartState::This),
        Ok(None) => SmartState::Nothing(format!("smartctl did not answer within {} s", limit.as_secs())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            SmartState::Nothing("smartctl is not installed".to_owned())
        }
        Err(error) => SmartState::Nothing(format!("smartctl could not be started: {error}")),
    }
}

/// What a program says until it ends, a byte more than is looked at for one that says too much; nothing when it takes longer: then
/// `note` gets what tells when it is gone.
fn output_within(
    mut command: Command,
    limit: Duration,
    note: impl FnOnce(Arc<AtomicBool>),
) -> io::Result<Option<Vec<u8>>> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let Some(stdout) = child.stdout.take() else { return Err(io::Error::other("it has no output")) };
    let (sender, answer) = sync_channel(1);
    // Neither the read nor the end of a program can be waited for with a limit: this thread may stay as long as the disk hangs.
    let reading = thread::Builder::new().name("dolmen smartctl".to_owned()).stack_size(64 * 1024);
    reading.spawn(move || {
        let mut bytes = Vec::new();
        let read = stdout.take(ANSWER_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
        let _ = sender.send(read.map(|_| bytes));
    })?;
    let received = answer.recv_timeout(limit);
    let is_gone = end(child);
    if received.is_err() {
        note(is_gone);
    }
    match received {
        Ok(bytes) => bytes.map(Some),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("its output could not be read")),
    }
}

/// Ends a program, and forgets it when it is gone, which is told then. One that waits for a disk in the kernel ends when that does.
fn end(mut child: Child) -> Arc<AtomicBool> {
    let _ = child.kill();
    let is_gone = Arc::new(AtomicBool::new(false));
    let reported = Arc::clone(&is_gone);
    let waiting = thread::Builder::new().name("dolmen smartctl".to_owned()).stack_size(64 * 1024);
    let waiting = waiting.spawn(move || {
        let _ = child.wait();
        reported.store(true, Ordering::Release);
    });
    if waiting.is_err() {
        // Nobody would tell: it counts as gone.
        is_gone.store(true, Ordering::Release);
    }
    is_gone
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::Instant;

    use super::*;

    fn script(folder: &Path, text: &str) -> PathBuf {
        let path = folder.join("smartctl");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        path
    }

    fn silence(stated: SmartState) -> String {
        match stated {
            SmartState::Nothing(why) => why,
            SmartState::This(smart) => panic!("{smart:?}"),
        }
    }

    /// Scenario: programs that hang, with a child that does and holds the output open, that say nothing, garbage or far too much, and
    /// one that is not there. Each is told, within the limit and a little.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a program takes real time")]
    fn a_misbehaving_program_is_reported_and_awaited_up_to_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let limit = Duration::from_millis(500);
        let cases = [
            ("exec sleep 60", "did not answer"),
            ("sleep 60 & exec sleep 60", "did not answer"),
            ("exit 0", "makes no sense"),
            ("echo '{\"a'", "makes no sense"),
            ("exec cat /dev/zero", "longer than"),
            (
                "echo '{\"smartctl\":{\"messages\":[{\"string\":\"no such device\"}]}}'; exit 2",
                "no such device",
            ),
        ];
        for (text, expected) in cases {
            let (program, begun) = (script(folder.path(), text), Instant::now());
            let why = silence(ask(&program, Path::new("/dev/null"), limit, drop));
            assert!(why.contains(expected), "{text}: {why}");
            assert!(begun.elapsed() < limit * 8, "{text}: {:?}", begun.elapsed());
        }
        let why = silence(ask(&folder.path().join("none"), Path::new("/dev/null"), limit, drop));
        assert_eq!(why, "smartctl is not installed");
        let program = script(
            folder.path(),
            "[ \"$*\" = '--json -a /dev/null' ] && echo '{\"smart_status\":{\"passed\":false}}'; exit 8",
        );
        let stated = ask(&program, Path::new("/dev/null"), limit, drop);
        assert!(matches!(&stated, SmartState::This(smart) if smart.is_failing()), "{stated:?}");
    }

    /// Scenario: a question hangs. The disk is not asked again before the program that asked is gone, and then it is.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a program takes real time")]
    fn a_disk_is_not_asked_while_a_question_hangs() {
        let folder = tempfile::tempdir().unwrap();
        let program = script(folder.path(), "exec echo '{\"smart_status\":{\"passed\":true}}'");
        let (hanging, disk, is_gone) = (Hanging::default(), Path::new("/dev/null"), Arc::default());
        let asked = || ask_about(disk, Some(&program), &hanging);
        assert!(matches!(asked(), SmartState::This(_)));
        hanging.note(disk, Arc::clone(&is_gone));
        assert!(silence(asked()).contains("hangs still"));
        is_gone.store(true, Ordering::Release);
        assert!(matches!(asked(), SmartState::This(_)));
        // One that took too long is noted, and gone soon.
        let program = script(folder.path(), "exec sleep 60");
        let noted = std::cell::Cell::new(None);
        silence(ask(&program, disk, Duration::from_millis(100), |is_gone| noted.set(Some(is_gone))));
        let (is_gone, begun) = (noted.take().unwrap(), Instant::now());
        while !is_gone.load(Ordering::Acquire) {
            assert!(begun.elapsed() < Duration::from_secs(20), "a program that was killed is gone");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Scenario: a file, a loop device, a disk and a partition of it.
    #[test]
    fn only_whole_disks_are_asked() {
        let folder = tempfile::tempdir().unwrap();
        let sys = folder.path().join("sys");
        let disk = sys.join("devices/pci/block/sdx");
        fs::create_dir_all(disk.join("sdx1")).unwrap();
        fs::write(disk.join("sdx1/partition"), "1\n").unwrap();
        fs::create_dir_all(sys.join("class/block")).unwrap();
        symlink(&disk, sys.join("class/block/sdx")).unwrap();
        symlink(disk.join("sdx1"), sys.join("class/block/sdx1")).unwrap();
        let at = |name: &str| {
            let path = folder.path().join(name);
            // What stands for a device is no file.
            fs::create_dir_all(&path).unwrap();
            device_of(&path, &sys)
        };
        assert_eq!(at("sdx"), Ok(PathBuf::from("/dev/sdx")));
        assert_eq!(at("sdx1"), Ok(PathBuf::from("/dev/sdx")));
        assert!(at("loop7").is_err() && at("dm-0").is_err());
        fs::write(folder.path().join("file"), "").unwrap();
        assert_eq!(device_of(&folder.path().join("file"), &sys), Err("a file has none"));
        assert!(device_of(&folder.path().join("gone"), &sys).is_err());
    }
}

//! Scrub of a mounted btrfs: a check of all content while the volume is used.
//!
//! The kernel reads and compares on a thread of its own. A pause ends that, and it goes on later from the address that it reached. What the
//! kernel says of wrong blocks, with the files that they belong to, is in its log; it says no more than a few lines a second.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use dolmen_dedup::{Control, Next, Phase, Progress};
use dolmen_files::FilesError;
use dolmen_files::scrub::{Correction, ScrubCounts, ScrubEnd, cancel, only_device, progress, scrub};
use dolmen_files::volume::usage;
use dolmen_volume::file_system::FileSystem;
use rustix::fs::OFlags;

use crate::protocol::long::Scrubbed;
use crate::protocol::{Failure, FailureCode, Outcome, Volume};
use crate::steering::Steering;

/// Time between two looks at commands and progress.
const LOOK: Duration = Duration::from_millis(200);
/// Log of the kernel.
const LOG: &str = "/dev/kmsg";
/// Lines of the log that are kept, and bytes of one.
const LINES_MAX: usize = 1000;
const LINE_BYTES_MAX: usize = 2048;

fn failed(volume: &Volume, error: &FilesError) -> Failure {
    Failure {
        code: if error.is_unsupported() { FailureCode::Unsupported } else { FailureCode::Refused },
        message: format!("the file system at {}: {error}", volume.record.mount_point.as_str()),
        hint: "`dmesg` shows what the kernel found; `btrfs scrub status` shows a scrub of somebody else"
            .to_owned(),
    }
}

/// Scrubs a mounted volume.
pub(crate) fn run(volume: &Volume, root: &File, steering: &mut Steering<'_>) -> Result<Outcome, Failure> {
    if volume.record.file_system != FileSystem::Btrfs {
        return Err(Failure {
            code: FailureCode::Unsupported,
            message: format!("{} has no scrub; nothing was changed", volume.record.file_system),
            hint: "unmount the volume, and check it".to_owned(),
        });
    }
    let words = |error: FilesError| failed(volume, &error);
    let device = only_device(root).map_err(words)?;
    let used = usage(root).map_err(words)?;
    let total = used.total.saturating_sub(used.free);
    let is_read_only = dolmen_files::volume::is_read_only(root).unwrap_or(false);
    let correction = if is_read_only { Correction::Nothing } else { Correction::FromCopies };
    let mut log = Log::open(&volume.device);
    let mut counts = ScrubCounts::default();
    let mut end = ScrubEnd::Cancelled;
    let mut is_stopped = false;
    while end == ScrubEnd::Cancelled && !is_stopped {
        // A pause is waited for here, while nothing reads.
        is_stopped = steering.next(&shown(counts.bytes, total)) == Next::Stop;
        if !is_stopped {
            let part = part_of((root, device), (counts, total), correction, steering).map_err(words)?;
            counts = counts.then(part.0);
            end = part.1;
        }
        log.read_on();
    }
    Ok(Outcome::Scrubbed(Scrubbed {
        bytes: counts.bytes,
        read_errors: counts.read_errors,
        checksum_errors: counts.checksum_errors,
        verify_errors: counts.verify_errors,
        super_errors: counts.super_errors,
        uncorrectable: counts.uncorrectable,
        corrected: counts.corrected,
        messages: log.lines,
        stopped: is_stopped,
    }))
}

fn shown(bytes: u64, total: u64) -> Progress {
    Progress { phase: Phase::Scan, files: 0, bytes, bytes_planned: total.max(bytes), bytes_saved: 0 }
}

/// Scrubs until the end, a command, or a cancellation by others.
fn part_of(
    (root, device): (&File, u64),
    (before, total): (ScrubCounts, u64),
    correction: Correction,
    steering: &mut Steering<'_>,
) -> Result<(ScrubCounts, ScrubEnd), FilesError> {
    std::thread::scope(|scope| {
        let (sender, ended) = sync_channel(1);
        scope.spawn(move || {
            let _ = sender.send(scrub(root, device, before.last_physical, correction));
        });
        loop {
            match ended.recv_timeout(LOOK) {
                Ok(part) => return part,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok((before, ScrubEnd::Cancelled)),
            }
            if steering.is_to_halt() {
                // One that has not begun yet is ended at the next look.
                cancel(root)?;
            } else if let Some(now) = progress(root, device)? {
                let _ = steering.next(&shown(before.bytes.saturating_add(now.bytes), total));
            }
        }
    })
}

/// Lines of the kernel about the file systems of a device, from the time on when this was opened. Without the right to read the log it has
/// none.
struct Log {
    file: Option<File>,
    device: String,
    lines: Vec<String>,
}

impl Log {
    fn open(device: &Path) -> Self {
        // The kernel names a btrfs by its device.
        let path = fs::canonicalize(device).unwrap_or_else(|_| device.to_owned());
        let device = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        let file = OpenOptions::new().read(true).custom_flags(flags).open(LOG);
        let file = file.and_then(|mut file| file.seek(SeekFrom::End(0)).map(|_| file)).ok();
        Self { file, device, lines: Vec::new() }
    }

    /// Reads what came since.
    fn read_on(&mut self) {
        let Some(file) = self.file.as_mut().filter(|_| !self.device.is_empty()) else { return };
        let mut record = vec![0; 8192];
        loop {
            match file.read(&mut record) {
                Ok(0) => return,
                Ok(read) => {
                    let text = String::from_utf8_lossy(record.get(..read).unwrap_or_default()).into_owned();
                    if let Some(line) = line_about(&text, &self.device)
                        && self.lines.len() < LINES_MAX
                    {
                        self.lines.push(line);
                    }
                }
                // The oldest records were overwritten; the next one is there.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
                Err(_) => return,
            }
        }
    }
}

/// Returns the text of a record of the kernel's log if it is an error or a warning of btrfs about a device.
fn line_about(record: &str, device: &str) -> Option<String> {
    let text = record.split_once(';')?.1.lines().next()?;
    let rest = text.strip_prefix("BTRFS ").filter(|rest| !rest.starts_with("info "))?;
    let name = rest.split_once("(device ")?.1.split([' ', ')', ':']).next()?;
    (name == device).then(|| text.chars().take(LINE_BYTES_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_known_by_their_device() {
        let record = |device: &str| {
            format!(
                "4,1,2,-;BTRFS warning (device {device}): checksum error at logical 1 (path: a (b)/c)\n SUBSYSTEM=block\n"
            )
        };
        let expected = "BTRFS warning (device loop3): checksum error at logical 1 (path: a (b)/c)";
        assert_eq!(line_about(&record("loop3"), "loop3").as_deref(), Some(expected));
        assert_eq!(
            line_about(&record("loop3 state E"), "loop3").map(|line| line.len()),
            Some(expected.len() + 8)
        );
        assert_eq!(line_about(&record("loop31"), "loop3"), None);
        assert_eq!(line_about("6,1,2,-;BTRFS info (device loop3): scrub: started on devid 1", "loop3"), None);
        assert_eq!(line_about("6,1,2,-;EXT4-fs (loop3): mounted", "loop3"), None);
        assert_eq!(line_about("nonsense", "loop3"), None);
    }
}

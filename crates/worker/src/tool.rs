//! Programs of file systems: started without a shell, with words of the C locale, and with bounded output.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use crate::protocol::{Failure, FailureCode};

/// Bytes of a tool's output that are kept: its begin, which says what the tool does, and its end.
const BEGIN_BYTES_MAX: usize = 64 * 1024;
const KEPT_BYTES_MAX: usize = 256 * 1024;
const _: () = assert!(BEGIN_BYTES_MAX < KEPT_BYTES_MAX);
/// Where tools of file systems lie, beside what the worker was started with.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a tool did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: ExitStatus,
    /// Output and errors, as they came.
    pub(crate) text: String,
}

/// Runs a tool to its end.
///
/// # Errors
/// [`FailureCode::MissingTool`] if it is not installed.
pub(crate) fn run<A: AsRef<OsStr>>(program: &str, arguments: &[A]) -> Result<Ran, Failure> {
    let failed = |error: std::io::Error| Failure {
        code: match error.kind() {
            ErrorKind::NotFound => FailureCode::MissingTool,
            _ => FailureCode::Refused,
        },
        message: format!("{program} cannot be run: {error}"),
        hint: package_of(program).map(|package| format!("install {package}")).unwrap_or_default(),
    };
    let (mut reader, writer) = std::io::pipe().map_err(failed)?;
    let errors = writer.try_clone().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("PATH", PATH).env("LC_ALL", "C");
    let mut child = command.stdin(Stdio::null()).stdout(writer).stderr(errors).spawn().map_err(failed)?;
    // Its own copies of the writing end would keep the pipe open.
    drop(command);
    let mut kept = Vec::new();
    let mut piece = [0; 8192];
    loop {
        let read = match reader.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(failed(error)),
        };
        kept.extend_from_slice(piece.get(..read).unwrap_or_default());
        if kept.len() > 2 * KEPT_BYTES_MAX {
            kept.drain(BEGIN_BYTES_MAX..kept.len() - KEPT_BYTES_MAX);
        }
    }
    let status = child.wait().map_err(failed)?;
    Ok(Ran { status, text: String::from_utf8_lossy(&kept).into_owned() })
}

/// Shows a tool one block device: `/dev` is a file system of its own in a mount namespace of its own, with that node and the usual
/// sources and sinks. The mounts of other volumes that the namespace begins with are given up: they would keep those in use. The
/// first word is the path of the device, the next two its numbers, and the others are the tool.
const ALONE: &str = "set -e
device=$1 major=$2 minor=$3
shift 3
while read -r source target rest; do
    case $source in /dev/loop[0-9]* | /dev/ublkb*) ;; *) continue ;; esac
    case $target in / | /usr* | /lib* | /bin | /sbin | /etc*) continue ;; esac
    umount -l -- \"$(printf %b \"$target\")\" || :
done </proc/self/mounts
mount -t tmpfs -o mode=755,nosuid,noexec none /dev
mknod -m 666 /dev/null c 1 3
mknod -m 666 /dev/zero c 1 5
mknod -m 666 /dev/random c 1 8
mknod -m 666 /dev/urandom c 1 9
mkdir -p \"${device%/*}\"
mknod -m 600 \"$device\" b \"$major\" \"$minor\"
exec \"$@\"";

/// As [`run`], for a tool of a device: it sees no other block device. `mkfs.btrfs` looks at all of them for its UUID, and one whose
/// server is away answers when that is back.
///
/// A user without the right to mount gets [`run`].
pub(crate) fn run_alone(program: &str, arguments: &[OsString], device: &Path) -> Result<Ran, Failure> {
    let found = fs::metadata(device).ok().filter(|found| found.file_type().is_block_device());
    let found = found.filter(|_| rustix::process::geteuid().is_root() && device.starts_with("/dev"));
    let Some(number) = found.map(|found| found.rdev()) else { return run(program, arguments) };
    let number =
        [rustix::fs::major(number), rustix::fs::minor(number)].map(|part| OsString::from(part.to_string()));
    let before = ["--mount", "--propagation", "slave", "--", "sh", "-c", ALONE, "sh"].map(OsString::from);
    let mut words = Vec::from(before);
    words.push(device.as_os_str().to_owned());
    words.extend(number);
    words.push(program.into());
    words.extend_from_slice(arguments);
    let ran = run("unshare", &words)?;
    match ran.status.code() {
        // As shells say it.
        Some(127) => Err(missing(program)),
        _ => Ok(ran),
    }
}

/// As [`run_alone`], and fails unless the tool ends with 0.
pub(crate) fn succeed_alone(program: &str, arguments: &[OsString], device: &Path) -> Result<String, Failure> {
    must(program, run_alone(program, arguments, device)?)
}

/// As [`run`], and fails unless the tool ends with 0.
pub(crate) fn succeed<A: AsRef<OsStr>>(program: &str, arguments: &[A]) -> Result<String, Failure> {
    must(program, run(program, arguments)?)
}

fn missing(program: &str) -> Failure {
    Failure {
        code: FailureCode::MissingTool,
        message: format!("{program} cannot be run: it is not installed"),
        hint: package_of(program).map(|package| format!("install {package}")).unwrap_or_default(),
    }
}

fn must(program: &str, ran: Ran) -> Result<String, Failure> {
    if ran.status.success() {
        return Ok(ran.text);
    }
    let output = ran.text.trim();
    let finding = finding(program, output).map_or_else(String::new, |line| format!(": {line}"));
    let rest = if output.lines().count() > 1 { format!("\n{output}") } else { String::new() };
    Err(Failure {
        code: FailureCode::Refused,
        message: format!("{program} ended with {}{finding}{rest}", ran.status),
        hint: format!(
            "the log of the daemon has all that {program} wrote; `dmesg` shows what the kernel found"
        ),
    })
}

/// Returns the line of a tool's output that says most: the last one that the tool begins with its name or `ERROR`, or else the last
/// one.
fn finding<'a>(program: &str, output: &'a str) -> Option<&'a str> {
    let name = program.rsplit('/').next().unwrap_or(program);
    let lines = || output.lines().map(str::trim).filter(|line| !line.is_empty());
    let says = |line: &&str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(':')) || line.starts_with("ERROR")
    };
    lines().rfind(says).or_else(|| lines().next_back())
}

/// The Debian package that has a tool.
fn package_of(program: &str) -> Option<&'static str> {
    let name = program.rsplit('/').next().unwrap_or(program);
    match name {
        "mkfs.xfs" | "xfs_repair" | "xfs_growfs" | "xfs_admin" => Some("xfsprogs"),
        "mkfs.btrfs" | "btrfs" => Some("btrfs-progs"),
        "mkfs.ext4" | "mke2fs" | "e2fsck" | "resize2fs" => Some("e2fsprogs"),
        "blkid" | "wipefs" => Some("util-linux"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_errors_are_kept_and_a_missing_tool_is_named() {
        let ran = run("sh", &["-c", "echo one; echo two >&2; exit 3"]).unwrap();
        assert_eq!((ran.status.code(), ran.text.as_str()), (Some(3), "one\ntwo\n"));
        let long =
            run("sh", &["-c", "echo Phase 1; head -c 3000000 /dev/zero | tr '\\0' x; echo end"]).unwrap();
        assert!(long.text.starts_with("Phase 1\n"));
        assert!(long.text.ends_with("xend\n") && long.text.len() <= 2 * KEPT_BYTES_MAX + 8192);
        let missing = run::<&str>("mkfs.nothing-of-the-kind", &[]).unwrap_err();
        assert_eq!(missing.code, FailureCode::MissingTool);
        assert!(succeed("false", &[] as &[&str]).unwrap_err().message.contains("exit status: 1"));
    }

    /// Scenario: a tool prints a table, its error and a hint, and fails. The sentence has the error alone, and the log all of it.
    #[test]
    fn a_failed_tool_is_one_sentence_and_its_output_follows_on_lines_of_its_own() {
        let output = "meta-data=/dev/x isize=512\nxfs_growfs: no room\n  see dmesg(1)\n";
        assert_eq!(finding("xfs_growfs", output), Some("xfs_growfs: no room"));
        assert_eq!(finding("resize2fs", "resize2fs 1.47\nno such device\n"), Some("no such device"));
        assert_eq!(finding("btrfs", "Resize\nERROR: unable to resize\n"), Some("ERROR: unable to resize"));
        assert_eq!(finding("mkfs", "one\ntwo\n\n"), Some("two"));
        assert_eq!(finding("mkfs", " \n"), None);
        let failed = succeed("sh", &["-c", "echo table; echo sh: no room; exit 1"]).unwrap_err();
        let (sentence, rest) = failed.message.split_once('\n').unwrap();
        assert_eq!((sentence, rest), ("sh ended with exit status: 1: sh: no room", "table\nsh: no room"));
        assert!(failed.hint.contains("log of the daemon"), "{}", failed.hint);
    }

    /// Scenario: tools of three distributions could not grow a file system. The finding is their sentence, not their table or headline.
    #[test]
    fn the_finding_of_a_growth_that_failed_is_the_sentence_of_the_tool() {
        for text in [
            include_str!("../tests/transcripts/xfs_growfs-6.1.0-not-mounted.txt"),
            include_str!("../tests/transcripts/xfs_growfs-6.13.0-not-mounted.txt"),
            include_str!("../tests/transcripts/xfs_growfs-7.2.0-not-mounted.txt"),
        ] {
            assert_eq!(
                finding("xfs_growfs", text),
                Some("xfs_growfs: small.img is not a mounted XFS filesystem")
            );
        }
        for text in [
            include_str!("../tests/transcripts/btrfs-6.2-resize-not-mounted.txt"),
            include_str!("../tests/transcripts/btrfs-6.14-resize-not-mounted.txt"),
            include_str!("../tests/transcripts/btrfs-7.1-resize-not-mounted.txt"),
        ] {
            assert!(finding("btrfs", text).unwrap().starts_with("ERROR: not a btrfs filesystem"), "{text}");
        }
        for text in [
            include_str!("../tests/transcripts/resize2fs-1.47.0-no-file-system.txt"),
            include_str!("../tests/transcripts/resize2fs-1.47.2-no-file-system.txt"),
            include_str!("../tests/transcripts/resize2fs-1.47.4-no-file-system.txt"),
        ] {
            let wanted = "resize2fs: Bad magic number in super-block while trying to open small.img";
            assert_eq!(finding("resize2fs", text), Some(wanted));
        }
    }

    /// Scenario: a tool for a block device lists `/dev`, and ends with a number; another one is not installed.
    #[test]
    fn a_tool_of_a_device_sees_no_other_one() {
        let names = fs::read_dir("/sys/block")
            .unwrap()
            .map(|entry| Path::new("/dev").join(entry.unwrap().file_name()));
        let Some(device) = names.into_iter().find(|path| path.exists()) else {
            println!("skipped: no block device is here");
            return;
        };
        if !rustix::process::geteuid().is_root() {
            println!("skipped: a file system of its own for /dev takes root");
            return;
        }
        let words = ["-c", "ls /dev; test -b \"$1\" && test -c /dev/null; exit 3", "sh"].map(OsString::from);
        let ran =
            run_alone("sh", &[&words[..], &[device.clone().into_os_string()]].concat(), &device).unwrap();
        let mut seen: Vec<&str> = ran.text.lines().collect();
        let name = device.file_name().unwrap().to_str().unwrap();
        let mut expected = vec![name, "null", "random", "urandom", "zero"];
        seen.sort_unstable();
        expected.sort_unstable();
        assert_eq!((ran.status.code(), seen), (Some(3), expected));
        let missing = run_alone("mkfs.nothing-of-the-kind", &[], &device).unwrap_err();
        assert_eq!(missing.code, FailureCode::MissingTool);
        assert!(missing.message.contains("mkfs.nothing-of-the-kind"), "{}", missing.message);
        assert!(succeed_alone("false", &[], &device).unwrap_err().message.contains("exit status: 1"));
    }
}

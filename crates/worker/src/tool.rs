//! Programs of file systems: started without a shell, with words of the C locale, and with bounded output.

use std::ffi::OsStr;
use std::io::{ErrorKind, Read};
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

/// As [`run`], and fails unless the tool ends with 0.
pub(crate) fn succeed<A: AsRef<OsStr>>(program: &str, arguments: &[A]) -> Result<String, Failure> {
    let ran = run(program, arguments)?;
    if ran.status.success() {
        return Ok(ran.text);
    }
    Err(Failure {
        code: FailureCode::Refused,
        message: format!("{program} ended with {}: {}", ran.status, ran.text.trim()),
        hint: String::new(),
    })
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
}

//! What this host has for file systems: versions of tools, its kernel, and what that can mount.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use dolmen_volume::file_system::FileSystem;
use dolmen_volume::profile::{Host, KERNEL_MIN};
use dolmen_volume::tool_versions::{Tool, parse};
use dolmen_volume::version::Version;

/// Where tools of file systems lie; services often have no folders of administrators in their `PATH`.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Looks at the host. Runs programs, so it is for a thread that may wait.
pub(super) fn look() -> Host {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    // A kernel whose version cannot be read counts as the oldest.
    let kernel = release.parse().unwrap_or(KERNEL_MIN);
    Host {
        xfsprogs: version_of(Tool::MkfsXfs),
        btrfs_progs: version_of(Tool::MkfsBtrfs),
        e2fsprogs: version_of(Tool::Mke2fs),
        kernel,
        oldest_kernel: None,
        not_mountable: not_mountable(&release),
    }
}

/// Asks a tool for its version; none where it is not installed, or its answer is not understood.
fn version_of(tool: Tool) -> Option<Version> {
    let [program, argument] = tool.command();
    let mut command = Command::new(program);
    command.arg(argument).env_clear().env("PATH", PATH).env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.output().ok()?;
    let printed = [output.stdout, output.stderr].concat();
    match parse(tool, &String::from_utf8_lossy(&printed)) {
        Ok(version) => Some(version),
        Err(error) => {
            tracing::warn!(%error, "the version of a tool is not understood: it counts as absent");
            None
        }
    }
}

/// File systems that the kernel neither has nor can load.
fn not_mountable(release: &str) -> BTreeSet<FileSystem> {
    let able = able_to_mount(release);
    FileSystem::ALL.into_iter().filter(|one| !able(one.name())).collect()
}

/// Returns whether the kernel has or can load the server for NFS.
pub(super) fn has_nfs_server() -> bool {
    able_to_mount(&rustix::system::uname().release().to_string_lossy())("nfsd")
}

/// Returns which file systems the kernel has or can load, by their names. A kernel that does not list them counts as able to.
fn able_to_mount(release: &str) -> impl Fn(&str) -> bool {
    let known = fs::read_to_string("/proc/filesystems").ok();
    let modules = Path::new("/lib/modules").join(release);
    let listed: Vec<String> = ["modules.dep", "modules.builtin"]
        .iter()
        .filter_map(|list| fs::read_to_string(modules.join(list)).ok())
        .collect();
    move |name| {
        let Some(known) = &known else { return true };
        let module = format!("/{name}.ko");
        known.lines().any(|line| line.split_whitespace().last() == Some(name))
            || listed.iter().any(|list| list.contains(&module))
    }
}

/// Returns the distance of the local time from UTC in minutes, positive to the east; 0 if the host has no program that tells it. Runs a
/// program, so it is for a thread that may wait.
///
/// # Errors
/// The program could not be run, or was ended: a busy host may tell it later.
pub(super) fn utc_offset_minutes() -> io::Result<i32> {
    let mut command = Command::new("date");
    // A zone in TZ counts for the daemon as for the programs of a person.
    command.arg("+%z").env("PATH", PATH).env("LC_ALL", "C").stdin(Stdio::null());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let parsed = parse_offset(text.trim()).filter(|_| output.status.success());
    parsed.ok_or_else(|| io::Error::other(format!("date ended with {} and wrote {text:?}", output.status)))
}

/// Parses `+0130`.
fn parse_offset(text: &str) -> Option<i32> {
    let (sign, digits) = match text.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = digits.split_at_checked(2).filter(|_| digits.len() == 4)?;
    let number =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<i32>().ok())?;
    Some(sign * (number(hours)? * 60 + number(minutes)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_read_and_nonsense_is_none() {
        let texts = ["+0000", "+0130", "-1145", "0130", "+130", "+01:30", "", "+ 130"];
        let expected = [Some(0), Some(90), Some(-705), None, None, None, None, None];
        assert_eq!(texts.map(parse_offset), expected);
    }
}

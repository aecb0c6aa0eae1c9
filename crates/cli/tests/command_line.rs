//! The command line as a process: help, and what it refuses before it asks anybody.
//!
//! Help texts are compared with `tests/golden`; with DOLMEN_UPDATE_GOLDEN set, they are written there instead.
#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn dolmen(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dolmen"));
    command.args(words).env_clear().env("COLUMNS", "100").stdin(Stdio::null());
    // Nobody listens there: whatever gets that far ends with "no daemon".
    command.env("DOLMEN_SOCKET", "/nowhere/dolmen.sock");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Scenario: results go to a device that is always full, and to a pipe whose reader has gone. The first is no success and says
/// why; the second ends quietly. Neither panics.
#[test]
fn results_that_cannot_be_written_are_no_success() {
    for words in [vec!["plan", "4x8TB"], vec!["--help"], vec!["explain"], vec!["completion", "bash"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_dolmen")).args(&words).stdout(full).output().unwrap();
        let reported = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(74), "{words:?}: {reported}");
        assert!(
            reported.contains("No space left on device") && !reported.contains("panicked"),
            "{words:?}: {reported}"
        );
        let (read, write) = std::io::pipe().unwrap();
        drop(read);
        let output = Command::new(env!("CARGO_BIN_EXE_dolmen")).args(&words).stdout(write).output().unwrap();
        let reported = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), reported.as_str()), (Some(0), ""), "{words:?}");
    }
}

#[test]
fn help_reads_as_it_was_agreed() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for (name, words) in [
        ("help", &["--help"][..]),
        ("help-short", &["-h"]),
        ("pool", &["pool", "-h"]),
        ("pool-create", &["pool", "create", "--help"]),
        ("disk-replace", &["disk", "replace", "--help"]),
        ("space", &["space", "-h"]),
        ("space-create", &["space", "create", "--help"]),
        ("space-set", &["space", "set", "--help"]),
        ("iostat", &["iostat", "--help"]),
        ("top", &["top", "--help"]),
        ("trash", &["trash", "-h"]),
        ("trash-purge", &["trash", "purge", "--help"]),
        ("daemon", &["daemon", "--help"]),
        ("plan", &["plan", "--help"]),
        ("bench", &["bench", "--help"]),
        ("copy", &["copy", "--help"]),
        ("image", &["image", "-h"]),
        ("image-add", &["image", "add", "--help"]),
        ("image-clone", &["image", "clone", "--help"]),
    ] {
        let output = dolmen(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        let (found, path) = (text(&output.stdout), folder.join(format!("{name}.txt")));
        if std::env::var_os("DOLMEN_UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &found).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap();
        assert_eq!(found, expected, "{}: DOLMEN_UPDATE_GOLDEN=1 writes it again", path.display());
    }
}

/// Each line is refused with exit code 2, before anybody is asked, and the message names what is wrong.
#[test]
fn bad_input_is_refused_with_the_reason() {
    let long = "x".repeat(64);
    let long_space = format!("space create tank/{long} --size 1G");
    for (line, message) in [
        ("space create tank/x --size 0", "a size of 0 holds nothing"),
        ("space create tank/x --size=0", "a size of 0 holds nothing"),
        ("space create tank/x --size -1", "\"-1\" is not a size"),
        ("space create tank/x --size=-1", "\"-1\" is not a size"),
        ("space create tank/x --size 9E", "more than the largest space, 4 PiB"),
        ("space create tank/x --size 10Q", "\"10Q\" is not a size"),
        ("space create tank/x --size 1000", "not a multiple of 4 KiB; the next one is 4096 bytes"),
        ("space resize tank/x -1", "\"-1\" is not a size"),
        ("space resize tank/x 0", "a size of 0 holds nothing"),
        ("space create tank/x", "--size"),
        ("image add tank/vms f --name a/b", "contains '/'"),
        ("image add tank/vms f --name ..", "begins with '.'"),
        ("image add tank/vms f --name -x", "begins with '-'"),
        ("image clone tank/vms x", "named with its volume, as POOL/VOLUME/NAME"),
        ("image clone tank/vms/", "1 to 200 bytes, not 0"),
        ("image clone tank/vms/a/b x", "contains '/'"),
        ("image clone tank/vms/a", "<TARGET>"),
        ("image clone tank/vms/a x --space tank/y", "cannot be used with"),
        ("image clone tank/vms/a x --size 0", "a size of 0 holds nothing"),
        ("plan", "no disks to plan for"),
        ("plan -1T", "unexpected argument '-1' found"),
        ("plan 2x8TB --html /dev/zero", "would be written over a device"),
        ("plan 8TB -r raid5", "no resiliency is called \"raid5\""),
        ("plan 2x8TB -r mirror:3", "needs 3 fault domains, and there are 2"),
        ("space create tank --size 1G", "named with its pool, as POOL/SPACE"),
        ("space create /x --size 1G", "the pool before the slash: a name has at least one character"),
        ("space create tank/ --size 1G", "the space behind the slash: a name has at least one character"),
        ("space create tank/a/b --size 1G", "has '/' in it"),
        ("space create tank/ä --size 1G", "has 'ä' in it"),
        (&long_space, "has 64 characters, more than 63"),
        ("space create tank/x --size 1G --copies 1", "1 is not in 2..=4"),
        ("space create tank/x --size 1G --copies 5", "5 is not in 2..=4"),
        (
            "space create tank/x --size 1G --resiliency simple --copies 2",
            "--copies goes with --resiliency mirror only",
        ),
        ("space create tank/x --size 1G --resiliency raid", "invalid value 'raid'"),
        ("space create tank/x --size 1G --columns 0", "0 is not in 1..=240"),
        ("space create tank/x --size 1G --sector 520", "invalid value '520'"),
        ("space create tank/x --size 1G --interleave 0", "a size of 0 holds nothing"),
        ("pool create tank", "<DISK>..."),
        ("pool create -x /a", "unexpected argument '-x'"),
        ("pool create .hidden /a", "begins with '.'"),
        ("pool create a/b /a", "has '/' in it"),
        ("pool show", "<POOL>"),
        ("pool import --read-only --confirmed", "cannot be used with"),
        ("disk replace tank 3", "<NEW>"),
        ("jobs seven", "invalid value 'seven'"),
        ("jobs --wait", "<JOB>"),
        ("--timeout 0 status", "expected a number of seconds from 1"),
        ("-o yaml", "invalid value 'yaml'"),
        ("check", "<DISK>..."),
        ("polo list", "unrecognized subcommand 'polo'"),
        ("-w 0", "expected a number of seconds from 1"),
        ("status -w soon", "expected a number of seconds from 1"),
        ("-w 2 df", "-w in front of a command would go with none"),
        ("explain disk_absnet", "\"disk_absnet\" is no code"),
        ("events --since x", "invalid value 'x'"),
        ("why", "<OBJECT>"),
        ("completion sh", "invalid value 'sh'"),
    ] {
        expect_refused(line, message);
    }
    let empty = dolmen(&["pool", "show", ""]);
    assert_eq!(empty.status.code(), Some(2));
}

fn expect_refused(line: &str, message: &str) {
    let output = dolmen(&line.split_whitespace().collect::<Vec<_>>());
    let messages = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}: {messages}");
    assert_eq!(text(&output.stdout), "", "{line}");
    assert!(messages.contains(message), "{line}: {messages}");
}

/// The same of limits of spaces, and of reports of what they do.
#[test]
fn bad_limits_and_bad_intervals_are_refused_with_the_reason() {
    for (line, message) in [
        ("space set tank/x", "--name <NAME>"),
        ("space set tank/x --iops-max 0", "a limit of I/Os in a second is a number from 1"),
        ("space set tank/x --iops-min -5", "a limit of I/Os in a second is a number from 1"),
        ("space set tank/x --iops-max 1K", "a limit of I/Os in a second is a number from 1"),
        ("space set tank/x --rate-max 0", "none takes a limit away"),
        ("space set tank/x --rate-max 50MB/s", "a limit of bytes in a second is a size such as 50M, or none"),
        ("space set tank/x --rate-min 1000", "are not whole KiB; the next limit is 1024 bytes"),
        ("space set tank/x --rate-min 5T", "more than a limit of bytes in a second can be"),
        ("iostat tank 0", "an interval is a number of seconds from 1 to 86400, not 0"),
        ("iostat 1.5", "an interval is a number of seconds from 1 to 86400, not 1.5"),
        ("iostat tank 1 0", "a number of reports is 1 at least, not 0"),
        ("iostat 1 2 3", "3 numbers after the objects"),
        ("top -e 0", "expected a number of seconds from 1"),
    ] {
        expect_refused(line, message);
    }
}

/// Programs that ask for documents get one for a line that cannot be read too, with the words that people get beside it.
#[test]
fn a_line_that_cannot_be_read_is_a_document_where_one_is_asked_for() {
    for line in [
        "-o json space create tank/x --size 0",
        "space create tank/x --size 0 --output json",
        "--output=json space create tank/x --size 0",
        "space create -ojson tank/x --size 0",
    ] {
        let output = dolmen(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(2), "{line}");
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&document["schema"], &document["error"]["code"]),
            (&1.into(), &"bad_request".into()),
            "{line}"
        );
        let message = document["error"]["message"].as_str().unwrap();
        assert!(message.contains("a size of 0 holds nothing"), "{line}: {message}");
        assert!(text(&output.stderr).contains(message), "{line}: {}", text(&output.stderr));
    }
    let help = dolmen(&["-o", "json", "--help"]);
    assert_eq!((help.status.code(), help.stdout.first()), (Some(0), Some(&b'P')));
}

#[test]
fn without_a_daemon_every_command_says_how_to_start_it() {
    for line in [
        "",
        "status",
        "pool list",
        "space list",
        "df",
        "jobs",
        "events",
        "events -f",
        "why tank",
        "iostat",
        "iostat tank 1",
        "top",
        "-w",
        "space attach tank/x",
    ] {
        let output = dolmen(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(75), "{line}");
        assert!(text(&output.stderr).contains("dolmen daemon"), "{line}: {}", text(&output.stderr));
    }
}

/// Consent to the loss of what is none of the disks given is refused, and the daemon is not even asked. Whether there is anything of
/// the name that would be lost, only the daemon knows.
#[test]
fn without_a_terminal_destruction_is_refused() {
    for (line, status, reported) in [
        ("pool create tank /a --destroy=/b", 73, "nothing was changed"),
        ("pool destroy tank --yes", 75, "dolmen daemon"),
        ("space delete tank/x --purge", 75, "dolmen daemon"),
    ] {
        let output = dolmen(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(status), "{line}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(reported), "{line}");
    }
}

/// A line of usage has what the line lacks, and nothing that only the environment says.
#[test]
fn usage_after_an_error_has_what_is_needed_and_no_more() {
    for (line, usage) in [
        ("space show", "Usage: dolmen space show <POOL/SPACE>\n"),
        ("disk replace tank 1 /d --cancel", "dolmen disk replace [OPTIONS] --cancel <POOL> <OLD>\n"),
        ("disk replace tank 1", "Usage: dolmen disk replace [OPTIONS] <POOL> <OLD> <NEW>\n"),
    ] {
        expect_refused(line, usage);
        let output = dolmen(&line.split_whitespace().collect::<Vec<_>>());
        assert!(!text(&output.stderr).contains("--socket"), "{line}: {}", text(&output.stderr));
    }
}

/// A reader that leaves early, such as `head`, is no error and no panic.
#[test]
fn a_reader_may_leave() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_dolmen"))
        .args(["completion", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn check_reports_what_it_cannot_open() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty");
    std::fs::File::create(&empty).unwrap().set_len(64 << 20).unwrap();
    let tiny = folder.path().join("tiny");
    std::fs::write(&tiny, "abc").unwrap();
    for (path, code, message) in [
        (tiny.to_str().unwrap(), 2, "none of the 1 devices given belongs to a pool"),
        ("/nowhere/at/all", 2, "there is nothing at this path"),
        ("/dev/null", 2, "expected a disk, a partition or a regular file"),
        (empty.to_str().unwrap(), 2, "none of the 1 devices given belongs to a pool"),
    ] {
        let output = dolmen(&["check", path]);
        assert_eq!(output.status.code(), Some(code), "{path}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(message), "{path}: {}", text(&output.stderr));
    }
}

/// Scenario: a dependency brings the daemon into the command line, and with it the daemon's build time. Cargo.toml does not name it.
#[test]
fn the_command_line_does_not_link_the_daemon() {
    let manifest = include_str!("../Cargo.toml");
    assert!(manifest.contains("dolmen-api") && !manifest.contains("dolmen-daemon"), "{manifest}");
}

//! What `xfs_repair -n`, `btrfs check --readonly` and `e2fsck -fn` report, as findings and an outcome.
//!
//! Invariants:
//! - Clean is what the tool's exit code says is clean, and no line known as an error contradicts.
//! - Names of files stand in the output, and people choose names: no line from the part of a check that prints names makes an
//!   outcome better than the exit code.
//! - A line that is not known to be progress is kept as a finding.

use crate::file_system::FileSystem;

/// Findings that are kept, at most; the others are counted.
pub const FINDINGS_MAX: usize = 1000;
/// Characters of a finding that are kept, at most.
const FINDING_CHARS_MAX: usize = 400;

/// Outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckOutcome {
    /// The file system is whole.
    Clean,
    /// The file system is damaged.
    Damaged,
    /// The log of XFS has changes that only a mount replays: the check has no result.
    LogNotReplayed,
    /// The check did not run to its end, or found no such file system.
    Failed,
}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A line that no parser knows.
    Unknown,
    /// A line that the tool calls a warning.
    Warning,
    /// Damage.
    Error,
}

/// One line of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckFinding {
    /// Its severity.
    pub severity: Severity,
    /// The line, cut to 400 characters.
    pub text: String,
    /// Inode that it names first, if any.
    pub inode: Option<u64>,
    /// Path that it names, if any.
    pub path: Option<String>,
}

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckReport {
    /// Outcome.
    pub outcome: CheckOutcome,
    /// Findings in the order of the tool, at most [`FINDINGS_MAX`].
    pub findings: Vec<CheckFinding>,
    /// Findings that were left out.
    pub omitted: usize,
}

/// Reads a line of the kernel's log about a btrfs that is scrubbed: `… inode 257 … (path: docs/file)`.
#[must_use]
pub fn scrub_finding(line: &str) -> CheckFinding {
    let path = line.split_once("(path: ").and_then(|(_, rest)| rest.strip_suffix(')'));
    CheckFinding { path: path.map(|path| format!("/{path}")), ..finding(Severity::Error, line) }
}

/// Arguments of the process that checks a device without writing to it, the program first; [`parse`] reads what it prints.
#[must_use]
pub fn check_command(file_system: FileSystem, device: &str) -> Vec<String> {
    let words: &[&str] = match file_system {
        FileSystem::Xfs => &["xfs_repair", "-n"],
        FileSystem::Btrfs => &["btrfs", "check", "--readonly"],
        FileSystem::Ext4 => &["e2fsck", "-fn"],
    };
    words.iter().copied().chain([device]).map(str::to_owned).collect()
}

/// Reads what the tool of a file system printed to both of its outputs. `exit` is its exit code; none if a signal ended it.
#[must_use]
pub fn parse(file_system: FileSystem, exit: Option<i32>, printed: &[u8]) -> CheckReport {
    let text = String::from_utf8_lossy(printed);
    let read = match file_system {
        FileSystem::Xfs => xfs_line,
        FileSystem::Btrfs => btrfs_line,
        FileSystem::Ext4 => ext4_line,
    };
    let mut findings = Vec::new();
    let mut omitted = 0;
    let mut has_error = false;
    for finding in text.lines().filter_map(read) {
        has_error |= finding.severity == Severity::Error;
        if findings.len() < FINDINGS_MAX {
            findings.push(finding);
        } else {
            omitted += 1;
        }
    }
    let outcome = match file_system {
        FileSystem::Xfs => xfs_outcome(exit, &text),
        FileSystem::Btrfs => btrfs_outcome(exit, &text),
        FileSystem::Ext4 => ext4_outcome(exit),
    };
    let outcome = if outcome == CheckOutcome::Clean && has_error { CheckOutcome::Damaged } else { outcome };
    CheckReport { outcome, findings, omitted }
}

/// Outcome of a repair, from its own output. What is damaged after it, a check finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairOutcome {
    /// It ran to its end.
    Ended,
    /// The log has changes that only a mount replays: nothing was repaired.
    LogNotReplayed,
    /// It did not run to its end.
    Failed,
}

/// Returns the outcome of a repair: of `xfs_repair`, `btrfs check --repair` or `e2fsck -fy`.
#[must_use]
pub fn repair_outcome(file_system: FileSystem, exit: i32, printed: &str) -> RepairOutcome {
    let has_log =
        |line: &str| line.starts_with("ERROR: The filesystem has valuable metadata changes in a log");
    match (file_system, exit) {
        (_, 0) => RepairOutcome::Ended,
        // From phase 3 on it prints names of files.
        (FileSystem::Xfs, 2) if printed.lines().take_while(|line| !is_late(line)).any(has_log) => {
            RepairOutcome::LogNotReplayed
        }
        (FileSystem::Btrfs, 1) if printed.lines().any(is_count_of_errors) => RepairOutcome::Ended,
        // Bits: 1 and 2 corrected, 4 left uncorrected.
        (FileSystem::Ext4, bits) if bits & !7 == 0 => RepairOutcome::Ended,
        (FileSystem::Xfs | FileSystem::Btrfs | FileSystem::Ext4, _) => RepairOutcome::Failed,
    }
}

/// Returns whether a line of `xfs_repair` begins a phase that prints names of files, or one after it.
fn is_late(line: &str) -> bool {
    matches!(line.as_bytes(), [b'P', b'h', b'a', b's', b'e', b' ', b'3'..=b'7', ..])
}

/// Returns whether a line of `btrfs check` is the last one of a check that ran to its end.
fn is_count_of_errors(line: &str) -> bool {
    line.starts_with("found ") && line.ends_with("error(s) found")
}

fn finding(severity: Severity, text: &str) -> CheckFinding {
    let text: String = text.chars().take(FINDING_CHARS_MAX).collect();
    let inode = inode_in(&text);
    CheckFinding { severity, text, inode, path: None }
}

/// The number behind the first word `inode` outside quotes.
fn inode_in(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let outside: String = lower.split(['"', '\'']).step_by(2).collect::<Vec<_>>().join(" ");
    let mut words = outside.split([' ', ',', '(', ')', ':']).filter(|word| !word.is_empty()).peekable();
    while let Some(word) = words.next() {
        if matches!(word, "inode" | "ino") {
            let number = words.peek().map(|next| next.trim_start_matches('#').trim_end_matches('.'));
            if let Some(Ok(inode)) = number.map(str::parse) {
                return Some(inode);
            }
        }
    }
    None
}

/// Beginnings of lines of `xfs_repair` that tell how far it is.
const XFS_PROGRESS: [&str; 8] = [
    "Phase ",
    "        - ",
    "No modify flag set, ",
    "Cannot get host filesystem geometry.",
    "Repair may fail if there is a sector size mismatch between",
    "the image and the host filesystem.",
    "attempting to find secondary superblock",
    "Exiting now.",
];
/// Parts of lines of `xfs_repair` that name damage.
const XFS_ERRORS: [&str; 12] = [
    "would ",
    "corrupt",
    "CRC",
    "bad ",
    "free inode",
    "disconnected",
    "duplicate",
    "mismatch",
    "unknown block state",
    "out-of-range",
    "invalid",
    "no valid",
];

fn xfs_line(line: &str) -> Option<CheckFinding> {
    let is_progress = XFS_PROGRESS.iter().any(|begin| line.starts_with(begin));
    if is_progress || line.trim_matches(['.', ' ']).is_empty() {
        return None;
    }
    let severity = if XFS_ERRORS.iter().any(|part| line.contains(part)) {
        Severity::Error
    } else if line.starts_with("ALERT: ") {
        Severity::Warning
    } else {
        Severity::Unknown
    };
    Some(finding(severity, line))
}

/// `xfs_repair -n` answers 1 for damage, for a log that was not replayed, and where it cannot go on. Only what it prints before
/// phase 3 tells them apart: from there on it prints names of files.
fn xfs_outcome(exit: Option<i32>, text: &str) -> CheckOutcome {
    // Of much output the begin and the end are there.
    let lines = || text.lines().take_while(|line| !is_late(line));
    let reached_phase_3 = text.lines().any(is_late);
    let log = "ALERT: The filesystem has valuable metadata changes in a log";
    match exit {
        Some(0) => CheckOutcome::Clean,
        Some(1) if lines().any(|line| line.starts_with(log)) => CheckOutcome::LogNotReplayed,
        Some(1) if reached_phase_3 => CheckOutcome::Damaged,
        Some(_) | None => CheckOutcome::Failed,
    }
}

/// Beginnings of lines of `btrfs check` that tell how far it is, or count.
const BTRFS_PROGRESS: [&str; 11] = [
    "Opening filesystem to check...",
    "Checking filesystem on ",
    "UUID: ",
    "[",
    "checking ",
    "found ",
    "total ",
    "btree space waste bytes: ",
    "file data blocks allocated: ",
    " referenced ",
    "cache and super generation don't match",
];

fn btrfs_line(line: &str) -> Option<CheckFinding> {
    if line.trim().is_empty() || BTRFS_PROGRESS.iter().any(|begin| line.starts_with(begin)) {
        return None;
    }
    let is_error = [
        "root ",
        "\tunresolved ",
        "ERROR: ",
        "checksum verify failed",
        "Csum didn't match",
        "ref mismatch",
        "backpointer mismatch",
    ]
    .iter()
    .any(|begin| line.starts_with(begin));
    let severity = if is_error {
        Severity::Error
    } else if line.starts_with("WARNING: ") {
        Severity::Warning
    } else {
        Severity::Unknown
    };
    Some(finding(severity, line.trim()))
}

/// `btrfs check` answers 1 for damage and where it cannot begin; its last lines count what it found.
fn btrfs_outcome(exit: Option<i32>, text: &str) -> CheckOutcome {
    let counted = text.lines().any(is_count_of_errors);
    match exit {
        Some(0) => CheckOutcome::Clean,
        Some(1) if counted => CheckOutcome::Damaged,
        Some(_) | None => CheckOutcome::Failed,
    }
}

fn ext4_line(line: &str) -> Option<CheckFinding> {
    let line = line.trim_end();
    let is_progress = line.starts_with("Pass ")
        || line.starts_with("e2fsck 1.")
        || line == "IGNORED."
        || line.ends_with("WARNING: Filesystem still has errors **********")
        || line.ends_with(" blocks") && line.contains(" files (") && line.contains("non-contiguous), ");
    if is_progress || line.is_empty() {
        return None;
    }
    // A question that was answered with no stands behind its finding, or on a line of its own.
    let (text, is_question) = match line.strip_suffix("? no") {
        Some(question) => (question.rsplit_once(".  ").map_or("", |(text, _)| text), true),
        None => (line, false),
    };
    if text.is_empty() {
        return None;
    }
    let known = [
        "Inode ",
        "Entry '",
        "Unattached ",
        "Block bitmap differences",
        "Inode bitmap differences",
        "Free ",
        "Directories count",
    ];
    let severity = if is_question || known.iter().any(|begin| text.starts_with(begin)) {
        Severity::Error
    } else {
        Severity::Unknown
    };
    let path = entry_path(text);
    Some(CheckFinding { path, ..finding(severity, text) })
}

/// The path in `Entry 'NAME' in FOLDER (INODE) has …`.
fn entry_path(text: &str) -> Option<String> {
    let rest = text.strip_prefix("Entry '")?;
    let (name, rest) = rest.split_once("' in ")?;
    let (folder, rest) = rest.split_once(" (")?;
    let (inode, _) = rest.split_once(')')?;
    let is_path =
        folder.starts_with('/') && !inode.is_empty() && inode.bytes().all(|byte| byte.is_ascii_digit());
    is_path.then(|| format!("{}/{name}", folder.trim_end_matches('/')))
}

/// The bits of `e2fsck`: 1 and 2 corrected, 4 left uncorrected; all others mean that it did not check.
fn ext4_outcome(exit: Option<i32>) -> CheckOutcome {
    match exit {
        Some(0) => CheckOutcome::Clean,
        Some(bits) if bits & !7 == 0 => CheckOutcome::Damaged,
        Some(_) | None => CheckOutcome::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(file_system: FileSystem, exit: i32, text: &str) -> CheckReport {
        parse(file_system, Some(exit), text.as_bytes())
    }

    macro_rules! transcript {
        ($name:literal) => {
            include_str!(concat!("../tests/transcripts/", $name, ".txt"))
        };
    }

    #[test]
    fn a_clean_check_has_no_finding() {
        for (file_system, text) in [
            (FileSystem::Xfs, transcript!("xfs_repair-6.1.0-clean")),
            (FileSystem::Btrfs, transcript!("btrfs-6.2-clean")),
            (FileSystem::Ext4, transcript!("e2fsck-1.47.0-clean")),
        ] {
            let report = read(file_system, 0, text);
            assert_eq!(report, CheckReport { outcome: CheckOutcome::Clean, findings: vec![], omitted: 0 });
        }
    }

    #[test]
    fn damage_is_reported_with_inodes() {
        for (file_system, exit, text, inodes) in [
            (
                FileSystem::Xfs,
                1,
                transcript!("xfs_repair-6.1.0-directory-lost"),
                [262_272, 262_272, 128, 128, 262_273, 262_274, 262_275, 128].as_slice(),
            ),
            (FileSystem::Xfs, 1, transcript!("xfs_repair-6.1.0-counts"), &[131]),
            (FileSystem::Xfs, 1, transcript!("xfs_repair-6.1.0-headers"), &[]),
            (FileSystem::Btrfs, 1, transcript!("btrfs-6.2-inodes"), &[99, 10_036_329]),
            (FileSystem::Ext4, 4, transcript!("e2fsck-1.47.0-directory-lost"), &[12, 2, 13, 14, 15, 16, 17]),
            (FileSystem::Ext4, 4, transcript!("e2fsck-1.47.0-counts"), &[14, 18]),
            (FileSystem::Ext4, 4, transcript!("e2fsck-1.47.0-block"), &[15, 15, 13]),
        ] {
            let report = read(file_system, exit, text);
            assert_eq!(report.outcome, CheckOutcome::Damaged, "{text}");
            let found: Vec<_> = report.findings.iter().filter_map(|finding| finding.inode).collect();
            assert_eq!(found, inodes, "{:#?}", report.findings);
            let unknown: Vec<_> =
                report.findings.iter().filter(|f| f.severity == Severity::Unknown).collect();
            assert!(unknown.is_empty(), "{unknown:#?}");
        }
    }

    #[test]
    fn damage_whose_first_phases_are_left_out_has_a_result() {
        let text = "Phase 1 - find and verify superblock...\n…\nPhase 4 - check for duplicate blocks...\nbad nblocks 1\n";
        assert_eq!(read(FileSystem::Xfs, 1, text).outcome, CheckOutcome::Damaged);
        assert_eq!(read(FileSystem::Xfs, 1, "Phase 2 - using internal log\n").outcome, CheckOutcome::Failed);
    }

    #[test]
    fn paths_are_reported_where_the_tool_prints_them() {
        let report = read(FileSystem::Ext4, 4, transcript!("e2fsck-1.47.0-counts"));
        let paths: Vec<_> = report.findings.iter().filter_map(|finding| finding.path.as_deref()).collect();
        assert_eq!(paths, ["/dir/file2", "/dir/file2"]);
        let report = read(FileSystem::Ext4, 4, transcript!("e2fsck-1.47.0-directory-lost"));
        assert_eq!(report.findings[0].path.as_deref(), Some("/dir"));
        assert_eq!(report.findings[0].text, "Entry 'dir' in / (2) has deleted/unused inode 12");
    }

    #[test]
    fn a_check_without_a_result_is_neither_clean_nor_damaged() {
        for (file_system, exit, text) in [
            (FileSystem::Xfs, Some(1), transcript!("xfs_repair-6.1.0-no-file-system")),
            (FileSystem::Btrfs, Some(1), transcript!("btrfs-6.2-no-file-system")),
            (FileSystem::Btrfs, Some(1), transcript!("btrfs-6.2-checksum")),
            (FileSystem::Ext4, Some(8), transcript!("e2fsck-1.47.0-no-file-system")),
            (FileSystem::Xfs, None, transcript!("xfs_repair-6.1.0-clean")),
            (FileSystem::Ext4, Some(12), transcript!("e2fsck-1.47.0-counts")),
            (FileSystem::Xfs, Some(127), ""),
        ] {
            let report = parse(file_system, exit, text.as_bytes());
            assert_eq!(report.outcome, CheckOutcome::Failed, "{text}");
        }
        let report = read(FileSystem::Xfs, 1, transcript!("xfs_repair-6.1.0-log-not-replayed"));
        assert_eq!(report.outcome, CheckOutcome::LogNotReplayed);
    }

    /// A folder is named like the line of a log that was not replayed: the damage stays damage.
    #[test]
    fn the_name_of_a_file_does_not_change_the_outcome() {
        let alert = "ALERT: The filesystem has valuable metadata changes in a log which is being";
        let text = format!("{}\n{alert}\n", transcript!("xfs_repair-6.1.0-counts"));
        assert_eq!(read(FileSystem::Xfs, 1, &text).outcome, CheckOutcome::Damaged);
        let report =
            read(FileSystem::Ext4, 4, "Entry 'inode 5' in / (2) has deleted/unused inode 12.  Clear? no");
        assert_eq!(report.findings[0].inode, Some(12));
    }

    #[test]
    fn a_line_of_the_kernel_about_a_scrub_names_its_file() {
        let line = "BTRFS warning (device loop3): scrub: checksum error at logical 298844160 on dev /dev/loop3, physical 298844160 \
                    root 5 inode 257 offset 0 length 4096 links 1 (path: docs/a (b).txt)";
        let found = scrub_finding(line);
        assert_eq!((found.severity, found.inode), (Severity::Error, Some(257)));
        assert_eq!(found.path.as_deref(), Some("/docs/a (b).txt"));
        let other =
            scrub_finding("BTRFS error (device loop3): unable to fixup (regular) error at logical 298844160");
        assert_eq!((other.path, other.inode), (None, None));
    }

    #[test]
    fn a_repair_that_ended_differs_from_one_that_repaired_nothing() {
        let log = transcript!("xfs_repair-6.1.0-repair-log-not-replayed");
        let named = format!("Phase 3 - for each AG...\n{log}");
        for (file_system, exit, text, expected) in [
            (FileSystem::Xfs, 0, "", RepairOutcome::Ended),
            (FileSystem::Xfs, 2, log, RepairOutcome::LogNotReplayed),
            (FileSystem::Xfs, 2, &named, RepairOutcome::Failed),
            (FileSystem::Xfs, 1, log, RepairOutcome::Failed),
            (FileSystem::Btrfs, 0, "", RepairOutcome::Ended),
            (FileSystem::Btrfs, 1, transcript!("btrfs-6.2-inodes"), RepairOutcome::Ended),
            (FileSystem::Btrfs, 1, transcript!("btrfs-6.2-no-file-system"), RepairOutcome::Failed),
            (FileSystem::Ext4, 1, "", RepairOutcome::Ended),
            (FileSystem::Ext4, 4, "", RepairOutcome::Ended),
            (FileSystem::Ext4, 8, "", RepairOutcome::Failed),
        ] {
            assert_eq!(repair_outcome(file_system, exit, text), expected, "{file_system} {exit}");
        }
    }

    #[test]
    fn an_error_in_the_output_outweighs_a_clean_exit() {
        let report = read(FileSystem::Btrfs, 0, "root 5 inode 257 errors 2000, link count wrong");
        assert_eq!(report.outcome, CheckOutcome::Damaged);
    }

    #[test]
    fn findings_are_bounded_and_the_rest_is_counted() {
        let text = "disconnected inode 5, would move to lost+found\n".repeat(FINDINGS_MAX + 7);
        let report = read(FileSystem::Xfs, 1, &format!("Phase 3\n{text}"));
        assert_eq!((report.findings.len(), report.omitted), (FINDINGS_MAX, 7));
        let report = read(FileSystem::Xfs, 1, &"ä".repeat(10_000));
        assert_eq!(report.findings[0].text.chars().count(), FINDING_CHARS_MAX);
    }

    proptest! {
        #[test]
        fn unknown_lines_are_kept_as_they_are(text in "[A-Z][a-z]{3,9} [a-z]{3,9}~") {
            for file_system in FileSystem::ALL {
                let report = read(file_system, 0, &text);
                prop_assert_eq!(report.findings.len(), 1);
                prop_assert_eq!(&report.findings[0].text, &text);
            }
        }

        #[test]
        fn no_output_stops_the_parser_and_none_is_clean_after_a_failure(
            bytes in proptest::collection::vec(any::<u8>(), 0..300), text in "(?s)(Phase 3|found |error\\(s\\) found|Entry '|' in /| \\(2\\)|\n|.){0,20}",
            exit in proptest::option::of(1..200_i32),
        ) {
            for file_system in FileSystem::ALL {
                for printed in [bytes.as_slice(), text.as_bytes()] {
                    prop_assert_ne!(parse(file_system, exit, printed).outcome, CheckOutcome::Clean);
                }
            }
        }
    }
}

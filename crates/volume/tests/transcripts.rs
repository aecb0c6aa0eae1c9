//! Output of foreign tools, recorded from Debian 12, 13 and testing by `scripts/transcripts.py`: every transcript has a parser, which reads
//! each version of a tool alike.
#![allow(clippy::unwrap_used, clippy::panic)]

use dolmen_volume::check_output::{self, CheckOutcome, CheckReport, RepairOutcome, Severity};
use dolmen_volume::file_system::FileSystem;
use dolmen_volume::nfs::parse_exportfs;
use dolmen_volume::samba::{Configuration, listed_shares, server_faults};
use dolmen_volume::tool_versions::{self, Tool};
use dolmen_volume::version::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Distributions: each tool has a transcript of one version or more of them.
const DISTRIBUTIONS: usize = 3;

/// A transcript: the name of its file is `TOOL-VERSION-CASE.txt`.
struct Transcript {
    tool: String,
    version: Version,
    case: String,
    text: String,
}

fn transcripts() -> Vec<Transcript> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().strip_suffix(".txt").unwrap().to_owned();
        let at = name
            .match_indices('-')
            .map(|(at, _)| at + 1)
            .find(|at| name[*at..].starts_with(|c: char| c.is_ascii_digit()));
        let (tool, rest) = name.split_at(at.unwrap_or_else(|| panic!("{name} has no version")));
        let (version, case) = rest.split_once('-').unwrap_or((rest, ""));
        Transcript {
            tool: tool.trim_end_matches('-').to_owned(),
            version: version.parse().unwrap_or_else(|_| panic!("{name}: {version}")),
            case: case.to_owned(),
            text: fs::read_to_string(&path).unwrap(),
        }
    };
    let found: Vec<Transcript> = fs::read_dir(folder).unwrap().map(read).collect();
    assert!(found.len() > 50, "{} transcripts", found.len());
    found
}

fn tool_of_version(tool: &str) -> Option<Tool> {
    Tool::ALL.into_iter().find(|known| known.command()[0] == tool)
}

/// Scenario: all transcripts. One without a parser would be data that no test reads.
#[test]
fn every_transcript_is_understood_by_a_parser() {
    for transcript in transcripts() {
        let Transcript { tool, version, case, text } = &transcript;
        let name = format!("{tool} {version} {case}");
        match (tool.as_str(), case.as_str()) {
            (_, "version") => {
                let known = tool_of_version(tool).unwrap_or_else(|| panic!("{name}: no such tool"));
                assert_eq!(tool_versions::parse(known, text), Ok(*version), "{name}");
            }
            ("xfs_repair", _) => check(FileSystem::Xfs, &transcript, &name),
            ("btrfs", _) => check(FileSystem::Btrfs, &transcript, &name),
            ("e2fsck", _) => check(FileSystem::Ext4, &transcript, &name),
            ("exportfs", "") => {
                let exports = parse_exportfs(text).unwrap();
                let found: BTreeSet<_> =
                    exports.iter().map(|export| (export.path.as_str(), export.client.as_str())).collect();
                let wanted = [
                    ("/srv/a b#(c)", "10.0.0.0/8"),
                    ("/srv/a b#(c)", "2001:db8::1"),
                    ("/srv/docs", "192.0.2.7"),
                ];
                assert_eq!(found, BTreeSet::from(wanted), "{name}");
            }
            ("net-conf-list" | "testparm", "") => {
                let configuration = Configuration::parse(text).unwrap();
                let docs = configuration.section("docs").unwrap();
                assert_eq!(docs.value("server smb encrypt"), Some("required"), "{name}");
                assert!(docs.value("valid users").is_some(), "{name}");
                let faults = server_faults(&configuration);
                assert!(tool == "net-conf-list" || faults.is_empty(), "{name}: {faults:?}");
            }
            ("smbclient", "list") => {
                let found: BTreeSet<_> = listed_shares(text).into_iter().collect();
                assert_eq!(found, BTreeSet::from(["by hand", "docs", "photos"]), "{name}");
            }
            _ => panic!("{name} has no parser"),
        }
    }
}

/// Checks what is read of a check of a file system.
fn check(file_system: FileSystem, transcript: &Transcript, name: &str) {
    let read = |exit| check_output::parse(file_system, Some(exit), transcript.text.as_bytes());
    let damage = if file_system == FileSystem::Ext4 { 4 } else { 1 };
    let outcome =
        |report: &CheckReport, wanted| assert_eq!(report.outcome, wanted, "{name}: {:#?}", report.findings);
    match transcript.case.as_str() {
        "clean" => {
            let report = read(0);
            outcome(&report, CheckOutcome::Clean);
            assert_eq!(report.findings, [], "{name}");
        }
        "log-not-replayed" => outcome(&read(1), CheckOutcome::LogNotReplayed),
        "repair-log-not-replayed" => {
            let read = check_output::repair_outcome(file_system, 2, &transcript.text);
            assert_eq!(read, RepairOutcome::LogNotReplayed, "{name}");
        }
        "no-file-system" => {
            outcome(&read(if file_system == FileSystem::Ext4 { 8 } else { 1 }), CheckOutcome::Failed)
        }
        // What cannot be opened is not counted.
        "checksum" => outcome(&read(1), CheckOutcome::Failed),
        "directory-lost" | "counts" | "headers" | "inodes" | "block" => {
            let report = read(damage);
            outcome(&report, CheckOutcome::Damaged);
            let has_inode = report.findings.iter().any(|finding| finding.inode.is_some());
            assert_eq!(has_inode, transcript.case != "headers", "{name}: {:#?}", report.findings);
            let unknown: Vec<_> =
                report.findings.iter().filter(|finding| finding.severity == Severity::Unknown).collect();
            assert!(unknown.is_empty(), "{name}: {unknown:#?}");
            let paths: Vec<_> =
                report.findings.iter().filter_map(|finding| finding.path.as_deref()).collect();
            match (file_system, transcript.case.as_str()) {
                (FileSystem::Ext4, "directory-lost") => {
                    assert_eq!(paths.first().copied(), Some("/dir"), "{name}")
                }
                (FileSystem::Ext4, "counts") => {
                    assert_eq!(paths.first().copied(), Some("/dir/file2"), "{name}")
                }
                _ => {}
            }
        }
        case => panic!("{name}: no case {case:?} is known"),
    }
}

/// Scenario: a tool whose transcripts are of one distribution alone would change its words unseen.
#[test]
fn each_case_is_recorded_from_three_distributions() {
    let mut versions: BTreeMap<(String, String), BTreeSet<Version>> = BTreeMap::new();
    for transcript in transcripts() {
        versions.entry((transcript.tool, transcript.case)).or_default().insert(transcript.version);
    }
    for (case, versions) in versions {
        assert_eq!(versions.len(), DISTRIBUTIONS, "{case:?} is recorded of {versions:?}");
    }
}

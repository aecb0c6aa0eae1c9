//! The command on files as disks: what it says, what it leaves with, what it writes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::{CommandFactory, Parser};
use dolmen_block_io::{BlockDevice, Durability};
use dolmen_block_linux::{LinuxDevice, OpenOptions, Runtime, RuntimeConfig};
use dolmen_pool::{CreateOptions, MemoryArbiter, create};
use dolmen_space::{Resiliency, SpaceSpec, Spaces};
use dolmen_units::{Bytes, HostId};
use serde_json::Value;
use tempfile::TempDir;

use crate::args::Arguments;
use crate::error::ToolError;
use crate::run::{Outcome, run};

const DISK_BYTES: u64 = 64 << 20;
const SPACE: Bytes = Bytes::mib(2);
const WRITTEN: usize = 300 * 1024;

/// What the space holds: bytes that tell their place, then zeros.
fn content() -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(SPACE.0).unwrap()];
    for (at, word) in bytes[..WRITTEN].chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(at as u64 ^ 0x5dee_ce66_d1ce_4e5b).to_le_bytes());
    }
    bytes
}

/// A pool of files with a mirror in it.
fn make(disks: usize) -> (TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = (0..disks).map(|number| folder.path().join(format!("disk{number}"))).collect();
    for path in &paths {
        File::create(path).unwrap().set_len(DISK_BYTES).unwrap();
    }
    let runtime = Runtime::new(RuntimeConfig::MODEST).unwrap();
    let open = |path: &PathBuf| {
        LinuxDevice::open(&runtime.handle(), path, OpenOptions::default()).unwrap() as Rc<dyn BlockDevice>
    };
    let (seams, devices) = (runtime.seams(), paths.iter().map(open).collect::<Vec<_>>());
    runtime.run(async move {
        let name = "tank".parse().unwrap();
        let options = CreateOptions { name, overwrite: Vec::new(), fault_domains: Vec::new() };
        let opened = create(&seams, MemoryArbiter::new(HostId([1; 16])), &devices, &options).await.unwrap();
        let spaces = Spaces::start(opened).await.unwrap();
        let mut spec = SpaceSpec::usual("data".parse().unwrap(), SPACE, Resiliency::Mirror { copies: 2 });
        spec.row = Some(Bytes::mib(1));
        let space = spaces.create(spec).await.unwrap();
        let mut buffer = seams.data.take(WRITTEN).await;
        buffer.copy_in(&content()[..WRITTEN]);
        space.write(0, &buffer.freeze(), Durability::Cached).await.unwrap();
        spaces.flush().await.unwrap();
        spaces.pool().checkpoint().await.unwrap();
        spaces.close().await.unwrap();
    });
    (folder, paths)
}

/// Runs the command: what it leaves with, prints, and says.
fn run_command(words: &[&str], disks: &[PathBuf]) -> (u8, String, String) {
    let mut line: Vec<String> = vec!["dolmen-rescue".to_owned()];
    line.extend(words.iter().map(|word| (*word).to_owned()));
    line.extend(disks.iter().map(|disk| disk.display().to_string()));
    let arguments = Arguments::try_parse_from(line).unwrap();
    let (mut out, mut messages) = (Vec::new(), Vec::new());
    let code = match run(&arguments, &mut out, &mut messages) {
        Ok(outcome) => outcome.number(),
        Err(error) => {
            messages.extend(dolmen_causes::in_one_line(&error).into_bytes());
            error.number()
        }
    };
    (code, String::from_utf8(out).unwrap(), String::from_utf8(messages).unwrap())
}

fn zero(path: &Path, at: u64, length: usize) {
    use std::os::unix::fs::FileExt;
    File::options().write(true).open(path).unwrap().write_all_at(&vec![0; length], at).unwrap();
}

#[test]
fn the_help_is_what_the_file_says() {
    let mut text = String::new();
    let mut of = Arguments::command().term_width(100);
    of.build();
    text.push_str(&of.render_long_help().to_string());
    for command in of.get_subcommands_mut() {
        let name = command.get_name().to_owned();
        text.push_str(&format!("\n== {name} ==\n{}", command.render_long_help()));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/help.txt");
    if std::env::var_os("DOLMEN_UPDATE_GOLDEN").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == golden,
        "the help has changed; look at it, then run again with DOLMEN_UPDATE_GOLDEN=1:\n{text}"
    );
}

#[test]
fn a_sound_pool_comes_out_as_it_is_and_no_file_is_written_over() {
    let (folder, disks) = make(2);
    let to = folder.path().join("out");
    let (code, out, messages) = run_command(&["export", "data", "--to", to.to_str().unwrap()], &disks);
    assert_eq!(
        (code, out.as_str()),
        (0, format!("2 MiB written to {}: all of it\n", to.display()).as_str()),
        "{messages}"
    );
    assert!(messages.starts_with("pool tank, as of the present"), "{messages}");
    assert!(fs::read(&to).unwrap() == content());
    let list = fs::read_to_string(folder.path().join("out.bad")).unwrap();
    assert!(list.ends_with("# nothing is bad\n"), "{list}");
    let (code, _, messages) = run_command(&["export", "data", "--to", to.to_str().unwrap()], &disks);
    assert_eq!(code, 73, "{messages}");
    let disk = disks[0].to_str().unwrap().to_owned();
    let (code, _, messages) = run_command(&["export", "data", "--to", &disk], &disks);
    assert!(code == 73 && messages.contains("one of the disks"), "{messages}");
    let stream = ["export", "data", "--to", "-", "--bad-ranges", "/nowhere/at/all", "-n"];
    assert_eq!(run_command(&stream, &disks).0, 0, "a dry run writes nothing");
    assert_eq!(run_command(&["export", "other", "--to", "/tmp/never"], &disks).0, 2);
}

#[test]
fn losses_are_named_in_every_form() {
    let (folder, disks) = make(2);
    // One block of both copies, wherever they are.
    for disk in &disks {
        let bytes = fs::read(disk).unwrap();
        let block = &content()[8192..12288];
        let places = (0..bytes.len() / 4096).filter(|block_at| &bytes[block_at * 4096..][..4096] == block);
        places.for_each(|place| zero(disk, place as u64 * 4096 + 100, 8));
    }
    let (to, list) = (folder.path().join("out"), folder.path().join("bad.json"));
    let words = [
        "export",
        "data",
        "-o",
        "json",
        "--to",
        to.to_str().unwrap(),
        "--bad-ranges",
        list.to_str().unwrap(),
    ];
    let (code, out, messages) = run_command(&words, &disks);
    assert_eq!(code, 1, "{messages}");
    for document in [out, fs::read_to_string(&list).unwrap()] {
        let document: Value = serde_json::from_str(&document).unwrap();
        assert_eq!(document["bad_ranges"][0]["at"], 8192);
        assert_eq!(document["bad_ranges"][0]["bytes"], 4096);
        assert_eq!(document["bad_ranges"][0]["kind"], "no_good_copy");
        assert_eq!(document["bad_ranges"].as_array().unwrap().len(), 1);
    }
    let mut expected = content();
    expected[8192..12288].fill(0);
    assert!(fs::read(&to).unwrap() == expected, "all but the block is there");
}

#[test]
fn without_any_metadata_slabs_give_what_they_hold() {
    let (folder, disks) = make(2);
    for disk in &disks {
        zero(disk, 0, 9 << 20);
        zero(disk, DISK_BYTES - (2 << 20), 2 << 20);
    }
    let (code, out, _) = run_command(&["scan"], &disks);
    assert!(code == 1 && out.contains("--from-slabs"), "{out}");
    let (code, _, messages) = run_command(&["list"], &disks);
    assert!(code == 74 && messages.contains("--from-slabs"), "{messages}");
    let (code, out, messages) = run_command(&["list", "--from-slabs"], &disks);
    assert!(code == 0 && out.contains("space-1 (1): 1 MiB, mirror"), "{out} {messages}");
    let (code, out, _) = run_command(&["scan", "--whole", "-o", "json"], &disks);
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &document["devices"][0]["slabs"][0]["count"]), (1, &Value::from(1)));
    let to = folder.path().join("out");
    let (code, _, messages) =
        run_command(&["export", "space-1", "--from-slabs", "--to", to.to_str().unwrap()], &disks);
    assert_eq!(code, 0, "{messages}");
    assert!(fs::read(&to).unwrap() == content()[..1 << 20]);
}

#[test]
fn every_structure_is_printed_as_text_and_as_a_document() {
    let (_folder, disks) = make(2);
    for what in ["label", "epoch", "checkpoint", "log", "cache", "map", "space", "row", "slab"] {
        let (code, text, messages) = run_command(&["dump", what], &disks);
        assert!(code == 0 && text.lines().count() > 3, "{what}: {text} {messages}");
        let (_, document, _) = run_command(&["dump", what, "-o", "json"], &disks);
        assert!(serde_json::from_str::<Value>(&document).is_ok(), "{what}: {document}");
    }
    for (at, is) in [(65536, "label"), (1 << 20, "checkpoint"), (0, "zeros")] {
        let words = ["dump", "block", "-o", "json", "--address", &at.to_string()];
        let document: Value = serde_json::from_str(&run_command(&words, &disks[..1]).1).unwrap();
        assert_eq!(document[0]["holds"]["is"], is, "{at}: {document}");
    }
    let (_, rows, _) = run_command(&["dump", "row", "-o", "json"], &disks);
    let rows: Value = serde_json::from_str(&rows).unwrap();
    assert_eq!(rows[0]["value"]["formatted"], true, "{rows}");
}

#[test]
fn bad_input_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let (noise, empty) = (folder.path().join("noise"), folder.path().join("empty"));
    let bytes: Vec<u8> =
        (0..3_000_000u32).map(|at| u8::try_from(at.wrapping_mul(2_654_435_761) >> 24).unwrap()).collect();
    fs::write(&noise, bytes).unwrap();
    File::create(&empty).unwrap();
    let devices = [noise.clone(), empty];
    for words in
        [&["scan"][..], &["scan", "--whole"], &["dump", "label"], &["dump", "slab"], &["dump", "log"]]
    {
        let (code, out, messages) = run_command(words, &devices);
        assert!(code < 2 && !out.is_empty(), "{words:?}: {out} {messages}");
    }
    for words in [&["list"][..], &["list", "--from-slabs"], &["list", "--at", "3"], &["dump", "map"]] {
        let (code, _, messages) = run_command(words, &devices);
        assert!(code == 74 && messages.contains("none of the 2 devices"), "{words:?}: {code} {messages}");
    }
    assert_eq!(run_command(&["scan"], &[folder.path().join("nothing")]).0, 2);
}

#[test]
fn the_codes_are_those_of_the_help() {
    assert_eq!((Outcome::All.number(), Outcome::Partial.number(), Outcome::USAGE), (0, 1, 2));
    assert_eq!(ToolError::NoList.number(), 2);
}

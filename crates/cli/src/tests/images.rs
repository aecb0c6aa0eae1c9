//! `dolmen image` on folders in the place of volumes.

use std::fs::{self, File};
use std::io::Cursor;
use std::path::Path;
use std::time::Duration;

use dolmen_api::ExitCode;
use dolmen_files::images::Library;
use serde_json::{Value, json};

use super::fake::{Fake, NOBODY, Person, answer, somebody};
use crate::arguments::Command;
use crate::commands::image::carry_out;
use crate::http::Peer;
use crate::session::change::Session;
use crate::session::client::Client;
use crate::session::poll_interval::PollInterval;
use crate::terminal::out::Out;
use crate::terminal::paint::Paint;

/// Runs a command of images on a folder. Returns its code, its results and its messages.
fn run(folder: &Path, line: &str, person: &Person) -> (ExitCode, String, String) {
    let words = ["dolmen"].into_iter().chain(line.split_whitespace());
    let arguments = crate::arguments::parse::parse(words).unwrap();
    let Some(Command::Image(command)) = arguments.command else { panic!("{line}") };
    let (mut results, mut messages) = (Vec::new(), Vec::new());
    let mut out = Out {
        results: &mut results,
        results_kind: person.kind,
        messages: &mut messages,
        messages_kind: person.kind,
        answers: &mut Cursor::new(person.types.as_bytes()),
        answers_kind: person.kind,
        paint_results: Paint::Never,
        columns: None,
        is_unread: false,
        unwritten: None,
    };
    let peer = Peer { socket: folder.join("no-daemon"), limit: Duration::from_secs(1) };
    let poll_interval = PollInterval { pause: Duration::from_millis(1) };
    let mut session =
        Session { client: Client::new(peer), out: &mut out, format: arguments.common.output, poll_interval };
    let ended = carry_out(&mut session, &Library::of_folder(folder).unwrap(), command);
    let code = ended.map_or_else(
        |error| {
            out.print(format_args!("{}: {}", error.in_one_line(), error.hint().unwrap_or_default()));
            error.exit()
        },
        |()| ExitCode::Ok,
    );
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (code, text(results), text(messages))
}

/// Makes a file of 1 MiB with data at its beginning.
fn file(folder: &Path, name: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, [7; 5000]).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
    path.display().to_string()
}

fn entries(folder: &Path, name: &str) -> usize {
    fs::read_dir(folder.join(name)).map_or(0, Iterator::count)
}

#[test]
fn images_are_added_listed_cloned_and_deleted() {
    // Scenario: each command with its dry run first, which changes nothing.
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let source = file(at, "debian-12.RAW");
    let ok = |line: &str| {
        let (code, results, messages) = run(at, line, &NOBODY);
        assert_eq!(code, ExitCode::Ok, "{line}: {results}{messages}");
        results
    };
    let planned = ok(&format!("image add tank/vms {source} -n"));
    assert!(
        planned.contains("would be shared or copied to image tank/vms/debian-12: 1 MiB with"),
        "{planned}"
    );
    assert_eq!(ok("image list tank/vms"), "tank/vms has no images\n");
    assert_eq!(fs::read_dir(at).unwrap().count(), 1);
    let added = ok(&format!("image add tank/vms {source}"));
    assert!(added.contains("is image tank/vms/debian-12: 1 MiB, "), "{added}");
    let listed = ok("image list tank/vms");
    assert!(listed.contains("tank/vms/debian-12  1 MiB"), "{listed}");
    let planned = ok("image clone tank/vms/debian-12 a b -n --size 2M");
    assert_eq!(planned.matches("would be a clone of tank/vms/debian-12: 2 MiB").count(), 2, "{planned}");
    assert_eq!(entries(at, "machines"), 0);
    let made = ok("-o json image clone tank/vms/debian-12 a b --size 2M --or-copy");
    let document: Value = serde_json::from_str(&made).unwrap();
    assert_eq!((&document["is_changed"], &document["size_bytes"]), (&json!(true), &json!(2 << 20)));
    assert_eq!(document["clones"].as_array().unwrap().len(), 2);
    ok("image delete tank/vms/debian-12 -n");
    assert_eq!(entries(at, "images"), 1);
    ok("image delete tank/vms/debian-12 --destroy tank/vms/debian-12");
    assert_eq!((entries(at, "images"), entries(at, "machines")), (0, 2));
}

#[test]
fn an_image_is_deleted_when_its_name_was_typed() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let source = file(at, "a.img");
    assert_eq!(run(at, &format!("image add tank/vms {source}"), &NOBODY).0, ExitCode::Ok);
    for (line, person) in [
        ("image delete tank/vms/a", NOBODY),
        ("image delete tank/vms/a --yes", NOBODY),
        ("image delete tank/vms/a --destroy b", NOBODY),
        ("image delete tank/vms/a -n --destroy b", NOBODY),
        ("image delete tank/vms/a", somebody("b\n")),
    ] {
        let (code, _, messages) = run(at, line, &person);
        assert_eq!(code, ExitCode::Refused, "{line}: {messages}");
        assert_eq!(entries(at, "images"), 1, "{line}");
    }
    assert_eq!(run(at, "image delete tank/vms/a", &somebody("a\n")).0, ExitCode::Ok);
    assert_eq!(entries(at, "images"), 0);
}

#[test]
fn refused_commands_say_why_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let source = file(at, "a.img");
    assert_eq!(run(at, &format!("image add tank/vms {source}"), &NOBODY).0, ExitCode::Ok);
    let archive = at.join("b.gz").display().to_string();
    fs::write(&archive, b"\x1f\x8b\x08 and more").unwrap();
    for (line, code, part) in [
        (format!("image add tank/vms {source}"), ExitCode::Refused, "images/a exists"),
        (format!("image add tank/vms {archive}"), ExitCode::Refused, "is compressed by gzip"),
        (
            format!("image add tank/vms {} --name b", at.display()),
            ExitCode::Usage,
            "is a folder, expected a file",
        ),
        (format!("image add tank/vms {}/absent", at.display()), ExitCode::Usage, "is not there"),
        ("image add tank/vms /.hidden".to_owned(), ExitCode::Usage, "--name gives it another one"),
        ("image clone tank/vms/absent x".to_owned(), ExitCode::Usage, "images/absent is not there"),
        ("image clone tank/vms/a x --size 4K".to_owned(), ExitCode::Usage, "has 1 MiB at least"),
        ("image clone tank/vms/a x --size 4K -n".to_owned(), ExitCode::Usage, "has 1 MiB at least"),
        ("image clone tank/vms/a x x -n".to_owned(), ExitCode::Usage, "is named twice"),
        ("image clone tank/vms/a /x".to_owned(), ExitCode::Usage, "is not on the volume"),
        ("image delete tank/vms/absent --destroy absent".to_owned(), ExitCode::Usage, "is not there"),
    ] {
        let (found, results, messages) = run(at, &line, &NOBODY);
        assert_eq!(found, code, "{line}: {results}{messages}");
        assert!(messages.contains(part), "{line}: {messages}");
        assert_eq!((entries(at, "images"), entries(at, "machines")), (1, 0), "{line}");
    }
    // An archive is an image where that is asked for.
    let (code, _, messages) = run(at, &format!("image add tank/vms {archive} --raw"), &NOBODY);
    assert_eq!((code, entries(at, "images")), (ExitCode::Ok, 2), "{messages}");
}

#[test]
fn a_library_is_that_of_a_mounted_volume() {
    // Scenario: the daemon says that the volume is not mounted; then it names a folder that no file system begins at.
    let folder = tempfile::tempdir().unwrap();
    let volume = |mounted_at: Value| {
        json!({"schema": 1, "volume": {"pool": "tank", "name": "vms", "health": "healthy", "why": [],
               "state": "ready", "size_bytes": 1 << 30, "claimed_bytes": 0, "mounted_at": mounted_at}})
    };
    for (mounted_at, part) in [
        (Value::Null, "volume tank/vms is not mounted"),
        (json!(folder.path()), "belongs to another file system"),
    ] {
        let document = volume(mounted_at);
        let fake = Fake::play(move |_, _| answer(200, &document));
        let ended = fake.run("image list tank/vms", &NOBODY);
        assert_eq!(ended.code, ExitCode::Busy, "{}", ended.messages);
        assert!(ended.messages.contains(part), "{}", ended.messages);
        assert_eq!(fake.asked().len(), 1);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

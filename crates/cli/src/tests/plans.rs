//! `dolmen plan`: no daemon is asked, and every mistake is named with its place.

use dolmen_api::ExitCode;
use serde_json::Value;

use super::fake::{Ended, NOBODY, run};

fn plan(words: &str) -> Ended {
    let line = ["dolmen", "plan"].into_iter().chain(words.split_whitespace());
    run(&line.collect::<Vec<_>>(), &NOBODY)
}

#[test]
fn a_plan_says_what_fits_what_survives_and_what_more_disks_bring() {
    let ended = plan("3x1TB -r mirror -r parity --add 1TB");
    assert_eq!((ended.code, ended.messages.as_str()), (ExitCode::Ok, ""));
    let head = "\
3 disks in 3 fault domains, 3 TB (2.72 TiB) raw

RESILIENCY     USABLE  OF RAW  HEALS A DISK  STRANDED  COLUMNS  AT LEAST  SURVIVES
mirror of 2  1.35 TiB    49 %       926 GiB   151 MiB        1  2 disks   1 disk
parity       1.80 TiB    65 %       too few  85.7 MiB        2  3 disks   1 disk
";
    assert!(ended.results.starts_with(head), "{}", ended.results);
    for needle in [
        "\nWHERE BYTES ARE ",
        "\nmirror of 2                               none  all  all  disk1, disk2 together\n",
        "\nADDED ONE AFTER ANOTHER            SIZE  FOR          ",
        "\nparity                            1.50  1.33  1.25  1.20  1.17  1.13  1.13  1.13\n",
    ] {
        assert!(ended.results.contains(needle), "{needle}:\n{}", ended.results);
    }
}

/// Without a kind and without --all, a plan fits on a screen and has no layout that cannot be made of these disks by this
/// version; --all has those, too.
#[test]
fn a_plan_fits_on_one_screen_unless_all_is_asked_for() {
    for disks in ["4x8TB", "3x1TB", "2x8TB 4TB"] {
        let short = plan(disks).results;
        assert!(short.lines().count() <= 24, "{short}");
        for needle in [" *", "FOOTPRINT", "LOSE DATA", "mixed"] {
            assert!(!short.contains(needle), "{needle}:\n{short}");
        }
        assert!(short.contains("ONE MORE DISK WOULD BRING") && short.contains("`--all`"), "{short}");
        let all = plan(&format!("{disks} --all")).results;
        for needle in [" *", "FOOTPRINT", "LOSE DATA", "mixed"] {
            assert!(all.contains(needle), "{needle}:\n{all}");
        }
        // The loss of one disk is the loss of that disk alone.
        assert!(!all.contains("disk1 together"), "{all}");
    }
}

#[test]
fn the_document_has_a_schema_and_exact_figures() {
    let ended = plan("4x1TB@a 4x1TB@b -r mirror -o json");
    let document: Value = serde_json::from_str(&ended.results).unwrap();
    assert_eq!(document["schema"], 1);
    assert_eq!(document["raw_bytes"], 8_000_000_000_000u64);
    assert_eq!(document["disks"][5]["domain"], "b");
    let answer = &document["answers"][0];
    assert_eq!((&answer["layout"], &answer["in_this_version"]), (&"mirror:2".into(), &true.into()));
    let disks = &answer["losses"][0];
    assert_eq!((&disks["unit"], &disks["basis"]), (&"disks".into(), &"rule".into()));
    assert_eq!((&disks["rows"][1]["sets"], &disks["rows"][1]["losing"]), (&28.into(), &16.into()));
    assert_eq!(document["footprint"]["lines"][0]["cells"][0]["bytes"], 2_000_000_000_000u64);
}

/// Each mistake ends as a mistake of use, before anything is written.
#[test]
fn what_cannot_be_planned_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let list = file("bays.txt", b"# shelf 1\n2x8TB\n\n8XB@s # odd\n");
    let binary = file("image", &[0xff; 64]);
    let long = file("long", &vec![b' '; 2 << 20]);
    for (words, needle) in [
        (String::new(), "dolmen: no disks to plan for; write some, such as `dolmen plan 4x8TB`".to_owned()),
        ("8Q".into(), "dolmen: disk \"8Q\": \"8Q\" is not a size".into()),
        ("8TB 10MB".into(), "dolmen: disk \"10MB\": it has 9.53 MiB; a disk of a pool has at least 64 MiB".into()),
        ("8TB --size 5P".into(), "dolmen: --size 5 PiB: a space has at most 4 PiB; plan for a part of it".into()),
        ("8TB --add 0x8TB".into(), "dolmen: disk \"0x8TB\": \"0\" is no number of disks".into()),
        (format!("--file {list}"), format!("dolmen: {list}:4: disk \"8XB@s\": \"8XB\" is not a size")),
        ("--file nothing.txt".into(), "dolmen: reading the list of disks in nothing.txt failed: No such file".into()),
        (format!("--file {}", folder.path().display()), "failed: Is a directory".into()),
        (format!("--file {binary}"), "failed: stream did not contain valid UTF-8".into()),
        (format!("--file {long}"), "has more than 1048576 bytes".into()),
        (
            "2x8TB -r mirror:3".into(),
            "dolmen: mirror:3 cannot be made of 2 disks: it needs 3 fault domains, and there are 2; add disks".into(),
        ),
        (
            "6x8TB -r mirror/parity".into(),
            "it needs 2 fault domains of at least 3 disks each, and 0 are so; say with @DOMAIN".into(),
        ),
    ] {
        let ended = plan(&words);
        assert_eq!((ended.code, ended.results.as_str()), (ExitCode::Usage, ""), "{words}");
        assert!(ended.messages.contains(&needle), "{words}: {}", ended.messages);
    }
    for (words, needle) in [
        ("-r raid5", "no resiliency is called \"raid5\""),
        ("-r mirror:9", "asks for 9 copies; a mirror has 2 to 4"),
        ("-r mixed:100", "asks for 100 % in mirror rows"),
        ("--size 0", "a size of 0 holds nothing"),
        ("--colour", "unexpected argument '--colour'"),
    ] {
        let line = ["dolmen", "plan", "8TB"].into_iter().chain(words.split_whitespace());
        let error = crate::arguments::parse::parse(line).unwrap_err().to_string();
        assert!(error.contains(needle), "{words}: {error}");
    }
}

/// A page holds all it needs, and names from outside stay text.
#[test]
fn a_page_is_written_and_needs_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.html");
    let ended = plan(&format!("<i>=8TB 2x4TB --html {}", path.display()));
    assert_eq!(ended.code, ExitCode::Ok);
    assert!(ended.messages.starts_with("the page is in "), "{}", ended.messages);
    let page = std::fs::read_to_string(&path).unwrap();
    assert_eq!(page.matches("<svg").count(), 5);
    for foreign in ["<i>", "<script", "src=", "href=", "url(", "@import"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert!(page.contains("&lt;i&gt;") && page.ends_with("</html>\n"));
    let nowhere = folder.path().join("no/plan.html");
    assert_eq!(plan(&format!("8TB --html {}", nowhere.display())).code, ExitCode::Io);
}

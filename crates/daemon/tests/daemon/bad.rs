//! Bad input gets a clear error and loses nothing.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::client::{World, pattern};

#[test]
fn pools_that_cannot_be_are_refused_before_anything_is_written() {
    let world = World::new(2);
    let good = world.disk("d0");
    let small = world.make_disk("small", 1 << 20);
    let foreign = world.make_disk("foreign", 256 << 20);
    let mut bytes = vec![0; 0x440];
    bytes[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
    let file = fs::OpenOptions::new().write(true).open(&foreign).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
    let link = world.disk("link");
    std::os::unix::fs::symlink(&good, &link).unwrap();
    let long = "x".repeat(64);
    let cases: [(Value, &str); 12] = [
        (json!({"name": "", "disks": [good]}), "bad_name"),
        (json!({"name": "-n", "disks": [good]}), "bad_name"),
        (json!({"name": long, "disks": [good]}), "bad_name"),
        (json!({"name": "a/b", "disks": [good]}), "bad_name"),
        (json!({"name": "x", "disks": []}), "bad_request"),
        (json!({"name": "x", "disks": ["relative"]}), "bad_request"),
        (json!({"name": "x", "disks": [good, good]}), "unfit_device"),
        (json!({"name": "x", "disks": [good, link]}), "unfit_device"),
        (json!({"name": "x", "disks": [good, small]}), "unfit_device"),
        (json!({"name": "x", "disks": [good, "/nowhere/at/all"]}), "no_such_device"),
        (json!({"name": "x", "disks": [good, foreign]}), "foreign_data"),
        (json!({"name": "x", "disks": [good], "destroy": [foreign]}), "bad_request"),
    ];
    for (body, code) in cases {
        let error = world.refused("/v1/pools", &body);
        assert_eq!(error["code"], code, "{body}: {error}");
    }
    assert_eq!(
        world.refused("/v1/pools", &json!({"name": "x", "disks": [world.disk("d1"), foreign]}))["object"],
        json!(foreign)
    );
    assert_eq!(world.get("/v1/pools")["pools"], json!([]));
    world.post("/v1/pools", &json!({"name": "x", "disks": [good, foreign], "destroy": [foreign]}));
    assert_eq!(
        world.refused("/v1/pools", &json!({"name": "x", "disks": [world.disk("d1")]}))["code"],
        "name_taken"
    );
    assert_eq!(world.refused("/v1/pools", &json!({"name": "y", "disks": [good]}))["code"], "device_in_use");
}

#[test]
fn spaces_that_cannot_be_are_refused() {
    let world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let huge = 1u64 << 60;
    let cases: [(Value, &str); 11] = [
        (json!({"name": "m", "size_bytes": 1 << 20, "resiliency": "mirror"}), "name_taken"),
        (json!({"name": "..", "size_bytes": 1 << 20, "resiliency": "mirror"}), "bad_name"),
        (json!({"name": "x", "size_bytes": 0, "resiliency": "mirror"}), "bad_size"),
        (json!({"name": "x", "size_bytes": -1, "resiliency": "mirror"}), "bad_request"),
        (json!({"name": "x", "size_bytes": 4097, "resiliency": "mirror"}), "bad_size"),
        (json!({"name": "x", "size_bytes": huge, "resiliency": "mirror"}), "bad_size"),
        (
            json!({"name": "x", "size_bytes": 1u64 << 40, "resiliency": "simple", "provisioning": "fixed"}),
            "bad_size",
        ),
        (json!({"name": "x", "size_bytes": 1 << 20, "resiliency": "mirror", "copies": 3}), "too_few_disks"),
        (json!({"name": "x", "size_bytes": 1 << 20, "resiliency": "mirror", "copies": 5}), "bad_request"),
        (json!({"name": "x", "size_bytes": 1 << 20, "resiliency": "simple", "copies": 2}), "bad_request"),
        (json!({"name": "x", "size_bytes": 1 << 20, "resiliency": "raid9"}), "bad_request"),
    ];
    for (body, code) in cases {
        let error = world.refused("/v1/pools/tank/spaces", &body);
        assert_eq!(error["code"], code, "{body}: {error}");
    }
    world.nbd().write(16 << 20, &pattern(1, 1 << 20));
    let shrink = world.refused("/v1/pools/tank/spaces/m/resize", &json!({"size_bytes": 8 << 20}));
    assert!(shrink["code"] == "not_empty" || shrink["code"] == "busy", "{shrink}");
    assert_eq!(
        world.refused("/v1/pools/tank/spaces/none/delete", &json!({"purge": true, "destroy": "none"}))["code"],
        "no_such_space"
    );
    assert_eq!(
        world.refused(
            "/v1/pools/none/spaces",
            &json!({"name": "x", "size_bytes": 4096, "resiliency": "simple"})
        )["code"],
        "no_such_pool"
    );
    let error = world.refused("/v1/pools/tank/disks/disk%20f00d/replace", &json!({"with": world.disk("d1")}));
    assert_eq!(
        (&error["code"], &error["message"]),
        (&json!("no_such_disk"), &json!("disk f00d is no disk of pool tank"))
    );
    let odd =
        json!({"name": "x", "size_bytes": 1 << 20, "resiliency": "simple", "interleave_bytes": 48 << 10});
    let error = world.refused("/v1/pools/tank/spaces", &odd);
    assert!(
        error["code"] == "bad_size" && error["message"].to_string().contains("it is 16K, 32K, 64K"),
        "{error}"
    );
}

#[test]
fn requests_that_make_no_sense_get_an_error_document() {
    let world = World::new(0);
    let long = vec![b' '; 300 * 1024];
    let cases: [(&str, &str, &[u8], u16, &str); 10] = [
        ("GET", "/v2/status", b"", 404, "no_such_route"),
        ("GET", "/", b"", 404, "no_such_route"),
        ("DELETE", "/v1/status", b"", 405, "bad_request"),
        ("POST", "/v1/pools", b"", 400, "bad_request"),
        ("POST", "/v1/pools", b"{", 400, "bad_request"),
        ("POST", "/v1/pools", b"\xff\xfe", 400, "bad_request"),
        ("POST", "/v1/shutdown", br#"{"hand_over":true,"now":true}"#, 400, "bad_request"),
        ("POST", "/v1/shutdown", b"[true, false]", 400, "bad_request"),
        ("POST", "/v1/pools", &long, 413, "bad_request"),
        ("GET", "/v1/jobs/x", b"", 400, "bad_request"),
    ];
    for (method, path, body, status, code) in cases {
        let (found, answer) = world.try_ask(method, path, body).unwrap();
        assert_eq!((found, &answer["error"]["code"]), (status, &json!(code)), "{method} {path}: {answer}");
    }
    assert_eq!(world.try_ask("GET", "/v1/jobs/7", b"").unwrap().1["error"]["code"], "no_such_job");
    world.get("/v1/status");
}

#[test]
fn a_disk_that_is_named_twice_is_reported_by_both_names() {
    let world = World::new(1);
    let (disk, link) = (world.disk("d0"), world.disk("also"));
    fs::hard_link(&disk, &link).unwrap();
    let error = world.refused("/v1/pools", &json!({"name": "x", "disks": [disk, link]}));
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with(&link) && message.contains(&format!("as {disk};")), "{error}");
}

#[test]
fn an_immutable_file_is_reported_as_immutable() {
    // Scenario: a file that not even root may write to. It needs root, and a file system that knows of it.
    let world = World::new(2);
    let file = fs::File::open(world.disk("d1")).unwrap();
    if let Err(error) = rustix::fs::ioctl_setflags(&file, rustix::fs::IFlags::IMMUTABLE) {
        println!("skipped: {error}");
        return;
    }
    let error =
        world.refused("/v1/pools", &json!({"name": "x", "disks": [world.disk("d0"), world.disk("d1")]}));
    rustix::fs::ioctl_setflags(&file, rustix::fs::IFlags::empty()).unwrap();
    let message = error["message"].as_str().unwrap();
    assert!(error["code"] == "unfit_device" && message.contains("it is immutable"), "{error}");
    assert!(error["hint"].to_string().contains("chattr -i"), "{error}");
    world.post("/v1/pools", &json!({"name": "x", "disks": [world.disk("d0"), world.disk("d1")]}));
}

#[test]
fn a_socket_whose_path_is_too_long_is_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let deep = folder.path().join("d".repeat(100));
    for (option, value) in [("--socket", deep.join("api")), ("--run", deep)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dolmend"));
        command.arg("--state").arg(&state).arg("--named-only").arg(option).arg(value);
        let output = command.output().unwrap();
        let stated = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(78), "{stated}");
        assert!(stated.contains("107 at most are possible"), "{stated}");
        assert!(stated.contains(&format!("choose a shorter {option}")), "{stated}");
        assert!(!state.exists(), "the state was made although nothing can be served");
    }
}

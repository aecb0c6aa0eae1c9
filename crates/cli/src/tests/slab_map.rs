//! The slab map, as it is asked for and shown.

use dolmen_api::ExitCode;
use serde_json::{Value, json};

use super::fake::{Fake, NOBODY, answer};

fn fake() -> Fake {
    let map = json!({"schema": 1, "pool": "tank", "age_s": 2, "unit_bytes": 4096,
    "owners": [
        {"purpose": "space", "space": "home", "name": "home", "used_bytes": 150 << 12, "stale_bytes": 0},
        {"purpose": "write_cache", "name": "write cache", "used_bytes": 200 << 12, "stale_bytes": 5 << 12},
    ],
    "disks": [
        {"slot": 0, "name": "/dev/sda", "is_absent": false, "units": 400, "free_units": 250, "stale_units": 0, "cells": [
            {"units": 100, "free_units": 0, "owners": [{"owner": 0, "units": 100}]},
            {"units": 100, "free_units": 60, "owners": [{"owner": 0, "units": 30}], "other_units": 10},
            {"units": 100, "free_units": 90, "other_units": 10},
            {"units": 100, "free_units": 100},
        ]},
        {"slot": 12, "name": "/dev/sdb", "is_absent": true, "units": 400, "free_units": 200, "stale_units": 5, "cells": [
            {"units": 100, "free_units": 0, "owners": [{"owner": 1, "units": 100}]},
            {"units": 100, "free_units": 0, "stale_units": 5, "owners": [{"owner": 1, "units": 100}]},
            {"units": 100, "free_units": 100},
            {"units": 100, "free_units": 100},
        ]},
    ]});
    Fake::play(move |_, _| answer(200, &map))
}

const SHOWN: &str = "\
pool tank
    0  Bbz.
   12  A*..

  CELL  WHAT                                                      USED   STALE
  A     write cache                                            800 KiB  20 KiB
  B     home                                                   600 KiB
  Z     several small ones
  .     free
  *     has slabs that are being filled, or wait for a resync
  a small letter: less than half of the cell is used

  DISK   A CELL      DATA      FREE   USE   STALE  PATH
     0  400 KiB  1.56 MiB  1000 KiB  37 %          /dev/sda
    12  400 KiB  1.56 MiB   800 KiB  50 %  20 KiB  /dev/sdb (absent)
";

/// Scenario: two disks, of which one is absent and has a stale slab. Cells are letters, and a program gets the document.
#[test]
fn a_slab_map_is_a_line_for_each_disk_and_a_document_for_programs() {
    let fake = fake();
    let ended = fake.run("pool map tank", &NOBODY);
    assert_eq!((ended.code, ended.messages.as_str()), (ExitCode::Ok, ""));
    assert_eq!(ended.results, SHOWN);
    let ended = fake.run("-o json pool map tank --cells 4", &NOBODY);
    let document: Value = serde_json::from_str(&ended.results).unwrap();
    assert_eq!(document["disks"][1]["cells"][1]["stale_units"], 5);
    let asked: Vec<String> = fake.asked().into_iter().map(|asked| asked.line).collect();
    assert_eq!(asked, ["GET /v1/pools/tank/slabs?cells=64", "GET /v1/pools/tank/slabs?cells=4"]);
}

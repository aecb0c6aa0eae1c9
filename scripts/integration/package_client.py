#!/usr/bin/env python3
"""package_client.py bom FILE TIME: the bill of materials of a package has what CycloneDX 1.5 asks for, and what we do.

It names each crate once, with version, licence and, if it is a crate of others, the checksum that Cargo.lock has and a package URL;
each reference leads to a component; and it has the time of the commit.
"""

import datetime
import json
import re
import sys
import tomllib


def fail(message):
    sys.exit(f"package_client.py: {message}")


def expect(holds, message):
    if not holds:
        fail(message)


def bom(path, time):
    with open(path, encoding="utf-8") as file:
        bill = json.load(file)
    with open("Cargo.lock", "rb") as file:
        locked = {(one["name"], one["version"]): one.get("checksum") for one in tomllib.load(file)["package"]}
    expect(bill["bomFormat"] == "CycloneDX" and bill["specVersion"] == "1.5" and bill["version"] == 1, "no CycloneDX 1.5")
    expect(re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"]), "no serial number")
    stamp = datetime.datetime.fromisoformat(bill["metadata"]["timestamp"])
    expect(int(stamp.timestamp()) == int(time), f"the time is {stamp}, expected that of the commit, {time}")
    whole = bill["metadata"]["component"]
    expect(whole["type"] == "application" and whole["name"] == "dolmen" and whole["version"], "no component for the whole")
    references = {whole["bom-ref"]}
    for one in bill["components"]:
        key = (one["name"], one["version"])
        expect(one["type"] == "library" and one["scope"] in ("required", "excluded"), f"{key}: type or scope")
        expect(one["licenses"] and one["licenses"][0]["expression"].strip(), f"{key} has no licence")
        expect(key in locked, f"{key} is not in Cargo.lock")
        if locked[key]:
            expect(one["hashes"] == [{"alg": "SHA-256", "content": locked[key]}], f"{key} has another checksum than Cargo.lock")
            expect(one["purl"] == f"pkg:cargo/{key[0]}@{key[1]}", f"{key} has the package URL {one.get('purl')}")
        expect(one["bom-ref"] not in references, f"{one['bom-ref']} stands there twice")
        references.add(one["bom-ref"])
    for one in bill["dependencies"]:
        strays = [need for need in [one["ref"], *one["dependsOn"]] if need not in references]
        expect(not strays, f"{one['ref']} depends on {strays}, which no component is")
    linked = {one["name"] for one in bill["components"] if one["scope"] == "required"}
    for name in ("dolmen-cli", "dolmen-daemon", "dolmen-worker", "dolmen-rescue-io", "tokio", "rustls"):
        expect(name in linked, f"{name} is in the programs, and not in the bill")
    for name in ("proptest", "loom", "shuttle"):
        expect(name not in linked, f"{name} is for tests alone, and in the bill")
    print(f"   | {len(bill['components'])} crates, {len(linked)} of them in the programs")


if len(sys.argv) != 4 or sys.argv[1] != "bom":
    fail("expected bom FILE TIME")
bom(sys.argv[2], sys.argv[3])

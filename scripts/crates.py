#!/usr/bin/env python3
"""What is built into the programs of a package: crates.py bom | notices [OPTION]...

bom      a bill of materials, CycloneDX 1.5 as JSON: each crate with version, licence, checksum, and what it depends on
notices  the licences of the crates of others, with the texts that they carry

Both read the JSON of `cargo metadata` on standard input. Crates that only the build runs (build scripts, macros, and what those
need) are in the bill with the scope `excluded`, and not in the notices. The same input gives the same bytes.

  --package NAME   a package whose programs are shipped; may be given several times
  --version V      version of the whole
  --time SECONDS   time of the whole, since 1970
  --lock FILE      Cargo.lock, for the checksums
"""

import argparse
import datetime
import json
import pathlib
import re
import sys
import tomllib
import uuid

NOTICE_NAMES = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)
# Crates of the workspace stand under this licence, as its Cargo.toml says.
HOUSE = "Apache-2.0"


class Graph:
    """The crates that the shipped packages need, by their ids in the metadata."""

    def __init__(self, metadata, shipped):
        self.crates = {crate["id"]: crate for crate in metadata["packages"]}
        self.members = set(metadata["workspace_members"])
        self.nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
        by_name = {self.crates[member]["name"]: member for member in self.members}
        absent = [name for name in shipped if name not in by_name]
        if absent:
            sys.exit(f"crates.py: the workspace has no package {', '.join(absent)}")
        self.shipped = [by_name[name] for name in shipped]
        self.linked = self.reach({None}, through_macros=False)
        self.all = self.reach({None, "build"}, through_macros=True)

    def is_macro(self, crate):
        return any("proc-macro" in target["kind"] for target in self.crates[crate]["targets"])

    def needs(self, crate, kinds):
        """Crates that a crate depends on by dependencies of these kinds."""
        found = {dep["pkg"] for dep in self.nodes[crate]["deps"] if kinds & {kind["kind"] for kind in dep["dep_kinds"]}}
        return sorted(found)

    def reach(self, kinds, through_macros):
        reached, waiting = set(), list(self.shipped)
        while waiting:
            crate = waiting.pop()
            if crate in reached or (not through_macros and self.is_macro(crate)):
                continue
            reached.add(crate)
            waiting += self.needs(crate, kinds)
        return reached

    def order(self, crates):
        return sorted(crates, key=lambda crate: (self.crates[crate]["name"], self.crates[crate]["version"]))


def reference(crate):
    return f"{crate['name']}@{crate['version']}"


def licence(crate):
    """The SPDX expression; crates of the past divide choices by a slash."""
    if not crate["license"]:
        sys.exit(f"crates.py: {reference(crate)} names no licence; look at its files, and leave it out if it has none")
    return re.sub(r"\s*/\s*", " OR ", crate["license"])


def checksums(lock):
    with open(lock, "rb") as file:
        packages = tomllib.load(file)["package"]
    return {(one["name"], one["version"]): one["checksum"] for one in packages if "checksum" in one}


def component(graph, crate_id, sums):
    crate = graph.crates[crate_id]
    found = {
        "type": "library",
        "bom-ref": reference(crate),
        "name": crate["name"],
        "version": crate["version"],
        "scope": "required" if crate_id in graph.linked else "excluded",
        "licenses": [{"expression": HOUSE if crate_id in graph.members else licence(crate)}],
    }
    if crate_id not in graph.members:
        found["purl"] = f"pkg:cargo/{crate['name']}@{crate['version']}"
        checksum = sums.get((crate["name"], crate["version"]))
        if checksum is None:
            sys.exit(f"crates.py: Cargo.lock has no checksum of {reference(crate)}")
        found["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return found


def bom(graph, arguments):
    sums = checksums(arguments.lock)
    order = graph.order(graph.all)
    components = [component(graph, crate, sums) for crate in order]
    whole = f"dolmen@{arguments.version}"
    depends = [{"ref": whole, "dependsOn": [reference(graph.crates[crate]) for crate in graph.order(graph.shipped)]}]
    for crate in order:
        needs = graph.order(need for need in graph.needs(crate, {None, "build"}) if need in graph.all)
        depends.append({"ref": reference(graph.crates[crate]), "dependsOn": [reference(graph.crates[need]) for need in needs]})
    time = datetime.datetime.fromtimestamp(arguments.time, datetime.timezone.utc)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": whole,
                "name": "dolmen",
                "version": arguments.version,
                "licenses": [{"expression": HOUSE}],
            },
        },
        "components": components,
        "dependencies": depends,
    }
    # A name that follows from the content: another bill has another one.
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(document, sort_keys=True)).urn
    json.dump(document, sys.stdout, indent=1, sort_keys=True)
    print()


def texts_of(crate):
    """The notices that a crate carries, tidied so that equal ones are equal."""
    folder = pathlib.Path(crate["manifest_path"]).parent
    files = sorted(path for path in folder.iterdir() if NOTICE_NAMES.match(path.name) and path.is_file())
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in files]
    return ["\n".join(line.rstrip() for line in text.strip().splitlines()) for text in texts]


def notices(graph, _):
    numbers, lines = {}, []
    for crate_id in graph.order(graph.linked - graph.members):
        crate = graph.crates[crate_id]
        own = [numbers.setdefault(text, len(numbers) + 1) for text in texts_of(crate)]
        by = f" by {', '.join(crate['authors'])}" if crate["authors"] else ""
        shown = f"texts {', '.join(map(str, own))}" if own else "no text of its own"
        lines.append(f"{crate['name']} {crate['version']}{by}: {licence(crate)}; {shown}")
    print("Crates of others in the programs of Dolmen, with their licences and the numbers of the texts below.\n")
    print("\n".join(lines))
    for text, number in numbers.items():
        print(f"\n{'-' * 40} text {number}\n{text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["bom", "notices"])
    parser.add_argument("--package", action="append", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--time", type=int, required=True)
    parser.add_argument("--lock", required=True)
    arguments = parser.parse_args()
    graph = Graph(json.load(sys.stdin), arguments.package)
    {"bom": bom, "notices": notices}[arguments.what](graph, arguments)


main()

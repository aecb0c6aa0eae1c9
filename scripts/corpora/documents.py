#!/usr/bin/env python3
"""Makes a corpus of real office documents: fetches them from Debian packages, and writes them as many people own them.

    documents.py fetch STORE               fetches and unpacks; asks the network, needs apt
    documents.py fill STORE TARGET [--size 7630M] [--seed 1] [--law 1:30,2:25,4:25,8:20] [--users 40] [--without KIND]...

STORE holds each distinct document once, named by its SHA-256. TARGET gets folders of people. A document has 1, 2, 4 or 8 owners,
with the percentages of --law; owners, folders and the order of writing are drawn from --seed. The same store, law and seed give
the same corpus. `fill` ends with one line of JSON: files, bytes, distinct bytes, and the duplicate share in per cent, which is what
deduplication can save at most. How often people own the same document is an assumption: state the law beside each result.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile

KINDS = {"doc", "docx", "docm", "dot", "xls", "xlsx", "xlsm", "xlsb", "ppt", "pptx", "pps", "odt", "ods", "odp", "odg", "ott", "rtf",
         "pdf", "vsd", "vsdx", "pub", "mpp", "wpd", "abw", "gnumeric", "csv"}
SOURCES = ["libapache-poi-java", "libreoffice", "calligra", "gnumeric", "abiword", "xlsxwriter", "libxlsxwriter", "openpyxl",
           "python-docx", "pdf.js", "libpdfbox2-java"]
BINARIES = ["texlive-latex-extra-doc", "texlive-pstricks-doc", "texlive-pictures-doc", "texlive-publishers-doc",
            "texlive-fonts-extra-doc", "texlive-latex-base-doc", "texlive-science-doc", "texlive-latex-recommended-doc",
            "texlive-metapost-doc", "texlive-humanities-doc", "debian-handbook", "installation-guide-amd64"]
SMALLEST = 512


def refuse(text):
    """Ends the program with an error."""
    print(f"documents: {text}", file=sys.stderr)
    sys.exit(2)


def bytes_of(text):
    """Returns the bytes that 8G, 512M or a number says."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    if not number.isdigit():
        refuse(f"--size {text} is not a size such as 8G")
    return int(number) * unit


def law_of(text):
    """Returns the owners of a document with their weights."""
    try:
        law = [tuple(int(part) for part in pair.split(":")) for pair in text.split(",")]
        if any(len(pair) != 2 or min(pair) < 1 for pair in law):
            raise ValueError
    except ValueError:
        refuse(f"--law {text} is not a list of OWNERS:PER CENT such as 1:70,2:20,4:10")
    return law


class Store:
    """Distinct documents in a folder."""

    def __init__(self, folder):
        self.folder = os.path.join(folder, "documents")
        os.makedirs(self.folder, exist_ok=True)

    def add(self, name, content):
        """Keeps a document unless it is there already."""
        kind = name.rsplit(".", 1)[-1].lower()
        if kind not in KINDS or len(content) < SMALLEST:
            return
        digest = hashlib.sha256(content).hexdigest()
        path = os.path.join(self.folder, digest[:2], f"{digest}.{kind}")
        if os.path.exists(path):
            return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(path), prefix=".new-", delete=False) as part:
            part.write(content)
        os.rename(part.name, path)

    def add_archive(self, stream):
        """Keeps the documents of a tar archive."""
        with tarfile.open(fileobj=stream, mode="r|*") as archive:
            for member in archive:
                if member.isfile():
                    self.add(member.name, archive.extractfile(member).read())

    def documents(self):
        """Returns path and size of each document, in a fixed order."""
        found = []
        for folder, folders, names in os.walk(self.folder):
            folders.sort()
            found += [os.path.join(folder, name) for name in sorted(names) if not name.startswith(".")]
        return [(path, os.path.getsize(path)) for path in found]


def apt_options(work):
    """Returns options of apt that let it see source packages, without a change of the host's own lists."""
    parts, lists = os.path.join(work, "parts"), os.path.join(work, "lists")
    os.makedirs(parts)
    os.makedirs(os.path.join(lists, "partial"))
    entries = []
    for folder in ["/etc/apt/sources.list.d"]:
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            if name.endswith(".sources"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    entries.append((name, file.read().replace("Types: deb\n", "Types: deb-src\n")))
    if os.path.exists("/etc/apt/sources.list"):
        with open("/etc/apt/sources.list", encoding="utf-8") as file:
            lines = [line.replace("deb ", "deb-src ", 1) for line in file if line.startswith("deb ")]
            entries.append(("host.list", "".join(lines)))
    for name, text in entries:
        with open(os.path.join(parts, name), "w", encoding="utf-8") as file:
            file.write(text)
    empty = os.path.join(work, "none")
    open(empty, "w", encoding="utf-8").close()
    return ["-q", "-q", "-o", f"Dir::Etc::sourcelist={empty}", "-o", f"Dir::Etc::sourceparts={parts}",
            "-o", f"Dir::State::lists={lists}", "-o", "APT::Sandbox::User=root"]


def fetch(arguments):
    """Fetches the packages one after another; a package that was unpacked is not fetched again."""
    store = Store(arguments.store)
    done = os.path.join(arguments.store, "packages")
    os.makedirs(done, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.store, prefix="fetch-") as work:
        options = apt_options(work)
        subprocess.run(["apt-get", *options, "update"], check=True)
        for name, of_source in [(name, True) for name in SOURCES] + [(name, False) for name in BINARIES]:
            mark = os.path.join(done, name)
            if os.path.exists(mark):
                continue
            here = os.path.join(work, name)
            os.makedirs(here)
            command = ["apt-get", *options, "source", "--download-only", name] if of_source else [
                "apt-get", "-q", "-q", "-o", "APT::Sandbox::User=root", "download", name]
            if subprocess.run(command, cwd=here, check=False).returncode != 0:
                print(f"documents: {name} cannot be had; the corpus goes on without it", file=sys.stderr)
                continue
            for file in sorted(os.listdir(here)):
                path = os.path.join(here, file)
                if file.endswith(".deb"):
                    unpacking = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", path], stdout=subprocess.PIPE)
                    store.add_archive(unpacking.stdout)
                    unpacking.wait()
                elif ".tar." in file and not file.endswith(".asc"):
                    with open(path, "rb") as stream:
                        store.add_archive(stream)
            shutil.rmtree(here)
            open(mark, "w", encoding="utf-8").close()
            documents = store.documents()
            print(f"{name}: {len(documents)} documents, {sum(size for _, size in documents) >> 20} MiB")


def fill(arguments):
    """Writes the corpus."""
    size, law = bytes_of(arguments.size), law_of(arguments.law)
    if os.path.exists(arguments.target) and os.listdir(arguments.target) not in ([], ["lost+found"]):
        refuse(f"{arguments.target} is not empty")
    draw = random.Random(arguments.seed)
    documents = [(path, length) for path, length in Store(arguments.store).documents() if path.rsplit(".", 1)[-1] not in arguments.without]
    draw.shuffle(documents)
    copies, distinct, total = [], 0, 0
    for path, length in documents:
        if total >= size:
            break
        owners = draw.choices([owners for owners, _ in law], [weight for _, weight in law])[0]
        for user in draw.sample(range(arguments.users), min(owners, arguments.users)):
            copies.append((path, user))
            total += length
        distinct += length
    if total < size:
        refuse(f"the store has documents for {total} bytes under this law; {size} were asked for")
    draw.shuffle(copies)
    for number, (path, user) in enumerate(copies):
        folder = os.path.join(arguments.target, f"user-{user:02}", f"folder-{draw.randrange(20):02}")
        os.makedirs(folder, exist_ok=True)
        with open(path, "rb") as source, open(os.path.join(folder, f"{number:06}-{os.path.basename(path)[-24:]}"), "wb") as target:
            target.write(source.read())
    share = 100 * (total - distinct) / total
    print(json.dumps({"files": len(copies), "bytes": total, "distinct_documents": len({path for path, _ in copies}),
                      "distinct_bytes": distinct, "duplicate_share_percent": round(share, 2), "law": arguments.law,
                      "seed": arguments.seed}))


def main():
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("fetch")
    one.add_argument("store")
    one.set_defaults(run=fetch)
    two = commands.add_parser("fill")
    two.add_argument("store")
    two.add_argument("target")
    two.add_argument("--size", default="7630M")
    two.add_argument("--seed", type=int, default=1)
    two.add_argument("--law", default="1:30,2:25,4:25,8:20")
    two.add_argument("--users", type=int, default=40)
    two.add_argument("--without", action="append", default=[], help="a kind of documents that is left out, such as pdf")
    two.set_defaults(run=fill)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()

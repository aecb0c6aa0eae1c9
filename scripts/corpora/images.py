#!/usr/bin/env python3
"""Makes a corpus of system images: one Debian installation, copied, each copy changed as a first boot and real package runs change it.

    images.py base STORE [--suite bookworm] [--size 640M]    installs Debian into STORE/base.img; asks the network, needs debootstrap, root
    images.py copy STORE TARGET FIRST COUNT [--seed 1]       writes TARGET/vm-NNN.img for COUNT images from number FIRST on
    images.py ceiling TARGET                                 prints what deduplication in blocks of 64 KiB can save at most

Every image gets its own host name, machine id, host keys, random seed and a journal of 1 to 8 MiB, through debugfs. Of every eleven
images one (numbers 0, 11, 22 and so on: ten of 110) is mounted through a loop device, and apt installs a package in it that differs
from image to image. `copy` may be called in batches, where the volume has no room for all images before deduplication.
"""

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile

PACKAGES = ["less", "nano", "file", "bc", "tree", "rsync", "curl", "wget", "vim-tiny", "tcpdump", "mtr-tiny", "strace"]
BASE_PACKAGES = "systemd,systemd-sysv,udev,openssh-server,python3-minimal,iproute2,ca-certificates"
BLOCK = 64 << 10


def run(*command, **options):
    """Runs a command, and ends the program with what it said if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options)
    if done.returncode != 0:
        print(f"images: {' '.join(command)} failed: {done.stdout.decode(errors='replace')[-2000:]}", file=sys.stderr)
        sys.exit(1)
    return done.stdout


def base(arguments):
    """Installs the base and makes one image of it."""
    image = os.path.join(arguments.store, "base.img")
    if os.path.exists(image):
        return
    os.makedirs(arguments.store, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.store, prefix="base-") as tree:
        run("debootstrap", "--variant=minbase", f"--include={BASE_PACKAGES}", arguments.suite, tree)
        content = int(run("du", "-sm", tree).split()[0])
        run("mke2fs", "-q", "-t", "ext4", "-d", tree, image + ".new", arguments.size)
        os.rename(image + ".new", image)
    print(json.dumps({"base": image, "content_mib": content}))


def boot_files(draw, work, number):
    """Writes what a first boot writes, and returns debugfs's commands that put it into an image."""
    name = f"vm-{number:03}"
    journal = "".join(f"Nov 30 {hour:02}:{minute:02}:07 {name} systemd[1]: Started unit {draw.getrandbits(64):x} after {draw.random():.6f} s.\n"
                      for hour in range(24) for minute in range(60))
    files = {
        "/etc/hostname": f"{name}\n".encode(),
        "/etc/machine-id": f"{draw.getrandbits(128):032x}\n".encode(),
        "/etc/ssh/ssh_host_ed25519_key": draw.randbytes(411),
        "/etc/ssh/ssh_host_rsa_key": draw.randbytes(2602),
        "/var/lib/systemd/random-seed": draw.randbytes(512),
        "/var/log/syslog": journal.encode() * draw.randrange(1, 4),
        "/var/log/journal.bin": draw.randbytes(draw.randrange(1 << 20, 8 << 20)),
    }
    lines = []
    for place, content in files.items():
        path = os.path.join(work, place.strip("/").replace("/", "_"))
        with open(path, "wb") as file:
            file.write(content)
        lines += [f"rm {place}", f"write {path} {place}"]
    return "\n".join(lines) + "\n"


def install(image, package):
    """Runs apt in a mounted image."""
    with tempfile.TemporaryDirectory(prefix="dolmen-image-") as there:
        # `mount -o loop` asks every loop device of the machine for its state, and waits for one that does not answer.
        device = run("losetup", "--show", "--find", image).decode().strip()
        try:
            run("mount", device, there)
            run("cp", "/etc/resolv.conf", os.path.join(there, "etc/resolv.conf"))
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
            run("chroot", there, "apt-get", "-q", "update", env=environment)
            run("chroot", there, "apt-get", "-q", "-y", "--no-install-recommends", "install", package, env=environment)
        finally:
            if os.path.ismount(there):
                run("umount", there)
            run("losetup", "--detach", device)


def copy(arguments):
    """Writes images."""
    source = os.path.join(arguments.store, "base.img")
    if not os.path.exists(source):
        print(f"images: {source} is not there; make it by `images.py base {arguments.store}`", file=sys.stderr)
        sys.exit(2)
    os.makedirs(arguments.target, exist_ok=True)
    for number in range(arguments.first, arguments.first + arguments.count):
        draw = random.Random(f"{arguments.seed} {number}")
        image = os.path.join(arguments.target, f"vm-{number:03}.img")
        run("cp", "--sparse=always", "--reflink=never", source, image)
        with tempfile.TemporaryDirectory(prefix="dolmen-image-") as work:
            run("debugfs", "-w", "-f", "/dev/stdin", image, input=boot_files(draw, work, number).encode())
        if number % 11 == 0:
            install(image, PACKAGES[number // 11 % len(PACKAGES)])
        descriptor = os.open(image, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def ceiling(arguments):
    """Prints the share of blocks that an earlier block repeats; holes and blocks of zeros count for nothing."""
    seen, total, kept = set(), 0, 0
    for name in sorted(os.listdir(arguments.target)):
        if not name.endswith(".img"):
            continue
        with open(os.path.join(arguments.target, name), "rb") as file:
            while block := file.read(BLOCK):
                if not block.strip(b"\0"):
                    continue
                total += len(block)
                digest = hashlib.blake2b(block, digest_size=16).digest()
                if digest not in seen:
                    seen.add(digest)
                    kept += len(block)
    print(json.dumps({"bytes": total, "distinct_bytes": kept, "ceiling_percent": round(100 * (total - kept) / total, 3) if total else 0}))


def main():
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("base")
    one.add_argument("store")
    one.add_argument("--suite", default="bookworm")
    one.add_argument("--size", default="640M")
    one.set_defaults(run=base)
    two = commands.add_parser("copy")
    two.add_argument("store")
    two.add_argument("target")
    two.add_argument("first", type=int)
    two.add_argument("count", type=int)
    two.add_argument("--seed", type=int, default=1)
    two.set_defaults(run=copy)
    three = commands.add_parser("ceiling")
    three.add_argument("target")
    three.set_defaults(run=ceiling)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Records what the tools of a Debian root print, for the parsers of crates `volume` and `worker`.

transcripts.py ROOT CRATES [PART...]: ROOT is a folder with the tools of one distribution, as debootstrap makes it, or `/` for this host. A
file CRATES/CRATE/tests/transcripts/TOOL-VERSION-CASE.txt is written for each case, of the crate that has its parser. PART is `xfs`, `btrfs`,
`ext4`, `samba` or `nfs` (default: all). Needs root and loop devices, runs in a mount namespace and a network of its own, and
leaves nothing in ROOT. Packages: xfsprogs btrfs-progs e2fsprogs util-linux samba smbclient nfs-kernel-server nfs-ganesha.

    debootstrap --variant=minbase trixie ROOT && chroot ROOT apt-get install --no-install-recommends PACKAGES
    unshare -m -n --propagation private scripts/transcripts.py ROOT crates
"""

import os
import re
import shutil
import struct
import subprocess
import sys
import time

ROOT, CRATES = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
# Beginnings of the names of what the worker reads by itself.
OF_WORKER = ("blkid-", "xfs_growfs-", "resize2fs-", "smbstatus-")
MIB = 1 << 20
# Within ROOT: a file system of its own, so that nothing is left there.
AT = "/mnt"
ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
USER, PASSWORD = "games", "a-Secret.7"
SMB_FOLDERS = ("private dir", "lock directory", "state directory", "cache directory", "pid directory", "ncalrpc dir")


def there(name=""):
    """Returns a path of the root, as this host sees it."""
    return os.path.join(ROOT, AT.lstrip("/"), name)


def enter():
    os.chroot(ROOT)
    os.chdir(AT)


def run(*words, text=None):
    """Runs a tool of the root, and returns its code, its output and its errors after that, as the worker reads them."""
    words = [str(word) for word in words]
    stdin = {"input": text.encode()} if text is not None else {"stdin": subprocess.DEVNULL}
    ended = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=ENV, preexec_fn=enter, check=False, **stdin)
    return ended.returncode, ended.stdout.decode(errors="replace")


def output(*words):
    """As `run`, without the errors."""
    ended = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV, preexec_fn=enter,
                           check=False)
    return ended.returncode, ended.stdout.decode(errors="replace")


def must(*words, **options):
    code, text = run(*words, **options)
    if code != 0:
        sys.exit(f"{words} ended with {code}: {text}")
    return text


def version(*words):
    """Returns the version that a tool prints."""
    return re.search(r"\d+\.\d+(\.\d+)?", run(*words)[1])[0]


def keep(tool, of, case, text):
    """Writes a transcript."""
    name = f"{tool}-{of}-{case}.txt" if case else f"{tool}-{of}.txt"
    crate = "worker" if name.startswith(OF_WORKER) or case.startswith("resize") or case == "build" else "volume"
    folder = os.path.join(CRATES, crate, "tests", "transcripts")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)


def recorded(tool, of, case, wanted, *words):
    """Writes what a tool prints, which has to end with a code."""
    code, text = run(*words)
    if code != wanted:
        sys.exit(f"{case}: {words} ended with {code}, not {wanted}: {text}")
    keep(tool, of, case, text)


def image(name, mib):
    with open(there(name), "wb") as file:
        file.truncate(mib * MIB)
    return name


def copy(name, to):
    shutil.copyfile(there(name), there(to))
    return to


class Mounted:
    """An image, mounted at `m` by the kernel of this host."""

    def __init__(self, name):
        self.device = subprocess.run(["losetup", "-f", "--show", there(name)], stdout=subprocess.PIPE, check=True).stdout.decode().strip()
        os.makedirs(there("m"), exist_ok=True)
        subprocess.run(["mount", self.device, there("m")], check=True)

    def __enter__(self):
        return there("m")

    def __exit__(self, *_):
        subprocess.run(["umount", there("m")], check=True)
        subprocess.run(["losetup", "-d", self.device], check=True)


def fill(folder):
    """Returns the inodes of a folder and of four files in it."""
    os.makedirs(os.path.join(folder, "dir"))
    found = {}
    for name in ("file1", "file2", "file3", "file4"):
        with open(os.path.join(folder, "dir", name), "wb") as file:
            file.write(name.encode() * 5000)
        found[name] = os.stat(file.name).st_ino
    found["dir"] = os.stat(os.path.join(folder, "dir")).st_ino
    return found


# --- file systems ------------------------------------------------------------------------------------------------------


def xfs():
    of = version("mkfs.xfs", "-V")
    keep("mkfs.xfs", of, "version", run("mkfs.xfs", "-V")[1])
    check = ("xfs_repair", "-n")
    # As the profiles of Dolmen make it: older kernels mount it too.
    must("mkfs.xfs", "-q", "-m", "rmapbt=1,reflink=1", image("x.img", 320))
    with Mounted("x.img") as folder:
        inodes = fill(folder)
        # Not by `sync` of all file systems: one of them may lie on a device that does not answer.
        subprocess.run(["sync", "-f", folder], check=True)
        copy("x.img", "dirty.img")
    recorded("xfs_repair", of, "clean", 0, *check, "x.img")
    recorded("xfs_repair", of, "log-not-replayed", 1, *check, "dirty.img")
    recorded("xfs_repair", of, "repair-log-not-replayed", 2, "xfs_repair", "dirty.img")
    must("xfs_db", "-x", "-c", f"inode {inodes['dir']}", "-c", "write -d core.mode 0", copy("x.img", "lost.img"))
    recorded("xfs_repair", of, "directory-lost", 1, *check, "lost.img")
    must("xfs_db", "-x", "-c", f"inode {inodes['file2']}", "-c", "write core.nlinkv2 9", copy("x.img", "counts.img"))
    recorded("xfs_repair", of, "counts", 1, *check, "counts.img")
    copy("x.img", "headers.img")
    with open(there("headers.img"), "r+b") as file:
        # The free list of the first group.
        file.seek(3 * 512 + 40)
        file.write(b"\xff" * 24)
    recorded("xfs_repair", of, "headers", 1, *check, "headers.img")
    recorded("xfs_repair", of, "no-file-system", 1, *check, image("small.img", 16))
    recorded("blkid", version("blkid", "-V"), "xfs", 0, "blkid", "-p", "-o", "export", "x.img")
    recorded("xfs_growfs", of, "not-mounted", 1, "xfs_growfs", "-d", "small.img")
    with Mounted("x.img"):
        recorded("xfs_growfs", of, "whole", 0, "xfs_growfs", "-d", "m")


TABLE = [0] * 256
for _byte in range(256):
    _value = _byte
    for _ in range(8):
        _value = _value >> 1 ^ (0x82F63B78 if _value & 1 else 0)
    TABLE[_byte] = _value


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


NODE, HEADER, INODE_ITEM = 16384, 101, 1


def leaves_of_files(data):
    """Returns the places of the newest leaves of tree 5 of a btrfs: more than one if a transaction has written it twice."""
    identity = data[0x10020:0x10030]
    found = [at for at in range(0, len(data), NODE) if data[at + 32:at + 48] == identity and data[at + 100] == 0
             and struct.unpack_from("<Q", data, at + 88)[0] == 5]
    newest = max(struct.unpack_from("<Q", data, at + 80)[0] for at in found)
    return [at for at in found if struct.unpack_from("<Q", data, at + 80)[0] == newest]


def btrfs():
    of = version("mkfs.btrfs", "--version")
    keep("mkfs.btrfs", of, "version", run("mkfs.btrfs", "--version")[1])
    check = ("btrfs", "check", "--readonly")
    must("mkfs.btrfs", "-q", "-m", "single", "-d", "single", image("b.img", 256))
    with Mounted("b.img") as folder:
        inodes = fill(folder)
    recorded("btrfs", of, "clean", 0, *check, "b.img")
    with open(there("b.img"), "rb") as file:
        data = file.read()
    for case in ("checksum", "inodes"):
        copy("b.img", f"{case}.img")
        for at in leaves_of_files(data):
            leaf = bytearray(data[at:at + NODE])
            for item in range(struct.unpack_from("<I", leaf, 96)[0]):
                key = HEADER + item * 25
                if struct.unpack_from("<QB", leaf, key) == (inodes["file3"], INODE_ITEM):
                    # The count of links, behind five numbers of the inode.
                    struct.pack_into("<I", leaf, HEADER + struct.unpack_from("<I", leaf, key + 17)[0] + 40, 7)
            if case == "inodes":
                struct.pack_into("<I", leaf, 0, crc32c(leaf[32:]))
            with open(there(f"{case}.img"), "r+b") as file:
                file.seek(at)
                file.write(leaf)
        recorded("btrfs", of, case, 1, *check, f"{case}.img")
    recorded("btrfs", of, "no-file-system", 1, *check, image("small.img", 16))
    recorded("blkid", version("blkid", "-V"), "btrfs", 0, "blkid", "-p", "-o", "export", "b.img")
    recorded("btrfs", of, "resize-not-mounted", 1, "btrfs", "filesystem", "resize", "max", ".")
    with Mounted("b.img"):
        recorded("btrfs", of, "resize-whole", 0, "btrfs", "filesystem", "resize", "max", "m")


def ext4():
    of = version("mke2fs", "-V")
    keep("mke2fs", of, "version", run("mke2fs", "-V")[1])
    check = ("e2fsck", "-fn")
    must("mke2fs", "-q", "-t", "ext4", image("e.img", 32))
    with Mounted("e.img") as folder:
        inodes = fill(folder)
    recorded("e2fsck", of, "clean", 0, *check, "e.img")
    must("debugfs", "-w", "-R", f"clri <{inodes['dir']}>", copy("e.img", "lost.img"))
    recorded("e2fsck", of, "directory-lost", 4, *check, "lost.img")
    copy("e.img", "counts.img")
    must("debugfs", "-w", "-R", f"clri <{inodes['file2']}>", "counts.img")
    must("debugfs", "-w", "-R", f"sif <{inodes['file4']}> links_count 9", "counts.img")
    recorded("e2fsck", of, "counts", 4, *check, "counts.img")
    # The magic of the tree of extents.
    must("debugfs", "-w", "-R", f"sif <{inodes['file3']}> block[0] 0", copy("e.img", "block.img"))
    recorded("e2fsck", of, "block", 4, *check, "block.img")
    recorded("e2fsck", of, "no-file-system", 8, *check, image("small.img", 16))
    recorded("blkid", version("blkid", "-V"), "ext4", 0, "blkid", "-p", "-o", "export", "e.img")
    recorded("blkid", version("blkid", "-V"), "nothing", 2, "blkid", "-p", "-o", "export", "small.img")
    recorded("resize2fs", of, "no-file-system", 1, "resize2fs", "small.img")


# --- servers -----------------------------------------------------------------------------------------------------------


def samba():
    of = version("smbd", "-V")
    keep("smbd", of, "version", run("smbd", "-V")[1])
    keep("net", of, "version", run("net", "--version")[1])
    build = [line for line in run("smbd", "-b")[1].splitlines() if "MODULESDIR" in line or "acl_xattr" in line]
    keep("smbd", of, "build", "".join(f"{line}\n" for line in build))
    text = ["[global]", "map to guest = Never", "interfaces = lo", "bind interfaces only = yes", "load printers = no", "disable spoolss = yes"]
    for number, folder in enumerate(SMB_FOLDERS):
        os.makedirs(there(f"samba/{number}"))
        text.append(f"{folder} = {AT}/samba/{number}")
    text += [f"log file = {AT}/samba/log", "include = registry", "[by hand]", f"path = {AT}"]
    with open(there("smb.conf"), "w", encoding="utf-8") as file:
        file.write("\n".join(text) + "\n")
    conf = ("-s", f"{AT}/smb.conf")
    for name, value in (("comment", "Our docs [dolmen:9a]"), ("available", "yes"), ("path", AT), ("guest ok", "no"), ("read only", "yes"),
                        ("server smb encrypt", "required"), ("wide links", "no"), ("valid users", f'"{USER}", "@staff"'),
                        ("write list", f'"{USER}"'), ("vfs objects", "fruit streams_xattr acl_xattr btrfs"), ("fruit:metadata", "stream"),
                        ("fruit:time machine", "yes"), ("fruit:time machine max size", "1099511627776")):
        must("net", *conf, "conf", "setparm", "--", "docs", name, value)
    must("net", *conf, "conf", "setparm", "--", "photos", "path", AT)
    keep("net-conf-list", of, "", output("net", *conf, "conf", "list")[1])
    keep("testparm", of, "", output("testparm", *conf[:1], conf[1])[1])
    must("smbpasswd", "-c", conf[1], "-s", "-a", USER, text=f"{PASSWORD}\n{PASSWORD}\n")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    # A group of its own: smbd ends all processes of its group with itself.
    server = subprocess.Popen(["smbd", *conf, "-F", "--no-process-group"], env=ENV, preexec_fn=enter, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        listing = ("smbclient", *conf, "-m", "SMB3", "-g", "-L", "localhost", "-N")
        for _ in range(100):
            if run(*listing)[0] == 0:
                break
            time.sleep(0.1)
        recorded("smbclient", of, "list", 0, *listing)
        client = subprocess.Popen(["smbclient", *conf, "//127.0.0.1/docs", "-U", f"{USER}%{PASSWORD}"], env=ENV, preexec_fn=enter,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        client.stdin.write(b"ls\n")
        client.stdin.flush()
        time.sleep(1.5)
        code, text = output("smbstatus", *conf, "--json")
        if code != 0 or "SMB3" not in text:
            sys.exit(f"smbstatus ended with {code}: {text}")
        client.communicate(b"exit\n")
        keep("smbstatus", of, "", text)
    finally:
        server.terminate()
        server.wait()


def nfs():
    of = version("mount.nfs", "-V")
    keep("mount.nfs", of, "version", run("mount.nfs", "-V")[1])
    # Its table alone: a server of the kernel is not started.
    os.makedirs(os.path.join(ROOT, "var/lib/nfs"), exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", os.path.join(ROOT, "var/lib/nfs")], check=True)
    for name in ("etab", "rmtab"):
        with open(os.path.join(ROOT, "var/lib/nfs", name), "wb"):
            pass
    subprocess.run(["mount", "-t", "tmpfs", "none", os.path.join(ROOT, "srv")], check=True)
    for folder in ("a b#(c)", "docs"):
        os.makedirs(os.path.join(ROOT, "srv", folder))
    for options, client in (("ro", "2001:db8::1:/srv/a b#(c)"), ("rw", "10.0.0.0/8:/srv/a b#(c)"), ("ro", "192.0.2.7:/srv/docs")):
        client = client.replace("2001:db8::1", "[2001:db8::1]")
        run("exportfs", "-o", f"{options},no_subtree_check", client)
    keep("exportfs", of, "", output("exportfs", "-v")[1])
    if shutil.which("ganesha.nfsd", path=os.pathsep.join(ROOT + folder for folder in ("/usr/bin", "/usr/sbin"))):
        text = run("ganesha.nfsd", "-v")[1]
        keep("ganesha.nfsd", version("ganesha.nfsd", "-v"), "version", text)


def main():
    for kind, at in (("proc", "proc"), ("sysfs", "sys")):
        if ROOT != "/":
            subprocess.run(["mount", "-t", kind, "none", os.path.join(ROOT, at)], check=True)
    if ROOT != "/":
        subprocess.run(["mount", "--rbind", "/dev", os.path.join(ROOT, "dev")], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", there()], check=True)
    wanted = sys.argv[3:] or ["xfs", "btrfs", "ext4", "samba", "nfs"]
    for part in wanted:
        {"xfs": xfs, "btrfs": btrfs, "ext4": ext4, "samba": samba, "nfs": nfs}[part]()


main()

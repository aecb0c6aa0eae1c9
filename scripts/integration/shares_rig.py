"""Servers of shares with configurations of their own, and their clients, for programs about shares.

PROGRAM FOLDER LOG PART...: words of each program that imports this module. It runs in namespaces of its own, as root.
"""

import os
import socket
import subprocess
import sys
import threading
import time

PROGRAM, FOLDER, LOG = sys.argv[1:4]
PARTS = sys.argv[4:]
USER = "games"
PASSWORD = "a-Secret.7"
MIB = 1 << 20
log = open(LOG, "ab", buffering=0)
started = time.monotonic()
children = []
# Called before a failed check ends the program.
at_failure = []


def must(what, holds, shown="", is_shown=True):
    if not holds:
        print(f"FAILED: {what}: {shown}", file=sys.stderr, flush=True)
        for undo in at_failure:
            undo()
        for child in children:
            child.kill()
        sys.exit(1)
    if is_shown:
        print(f"   ok: {what} ({time.monotonic() - started:.1f} s)", flush=True)


def release_mounts_of_others():
    """Takes the mounts of other scripts out of this namespace, whose servers would keep their devices in use.

    Does nothing unless this is the first process of a namespace of its own.
    """
    if os.getpid() != 1:
        return
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as mounts:
        for source, target, kind in [line.split(" ")[:3] for line in mounts][::-1]:
            target = target.encode("utf-8", "surrogateescape").decode("unicode_escape").encode("latin-1")
            is_of_a_script = source.startswith("/dev/loop") or kind.startswith("fuse")
            if is_of_a_script and not target.startswith(os.fsencode(FOLDER) + b"/"):
                subprocess.run(["umount", "-l", target], check=False, capture_output=True)


release_mounts_of_others()


def path(*names):
    return os.path.join(FOLDER, *names)


def run(*words, **options):
    ended = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=40, **options)
    log.write(f"\n$ {' '.join(words)}\n".encode() + ended.stdout + ended.stderr)
    return ended.returncode, (ended.stdout + ended.stderr).decode(errors="replace")


def spawn(*words):
    # A group of its own: smbd ends all processes of its group with itself.
    child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    children.append(child)
    return child


def end(child):
    child.terminate()
    try:
        child.wait(10)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def eventually(holds, seconds=10):
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if holds():
            return True
        time.sleep(0.1)
    return False


def is_open(port):
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


# --- Samba ---------------------------------------------------------------------------------------------------------

SMB_FOLDERS = ("private", "lock", "state", "cache", "pid", "ncalrpc", "log")
SMB_PARAMETERS = ("private dir", "lock directory", "state directory", "cache directory", "pid directory", "ncalrpc dir")


class Samba:
    """Samba with one configuration and one registry. `name` tells several apart."""

    def __init__(self, name):
        self.conf = path(f"{name}.conf")
        self.folder = path(f"{name}-samba")

    def make_folders(self):
        os.makedirs(self.folder)
        # Each parameter is a transaction that waits for its disk.
        run("mount", "-t", "tmpfs", "none", self.folder)
        for folder in SMB_FOLDERS:
            os.makedirs(os.path.join(self.folder, folder))

    def write_conf(self, *lines, registry=True):
        text = ["[global]", "server role = standalone server", "interfaces = lo", "bind interfaces only = yes"]
        text += ["load printers = no", "disable spoolss = yes", "map to guest = Never", "usershare max shares = 0"]
        for kind, parameter in zip(SMB_FOLDERS, SMB_PARAMETERS):
            text.append(f"{parameter} = {os.path.join(self.folder, kind)}")
        text.append(f"log file = {os.path.join(self.folder, 'log', 'smbd.log')}")
        text += lines
        if registry:
            text.append("include = registry")
        text += ["[in the file]", f"path = {path('other')}", "comment = by hand"]
        with open(self.conf, "w") as file:
            file.write("\n".join(text) + "\n")

    def add_password(self, user=USER):
        ended = subprocess.run(["smbpasswd", "-c", self.conf, "-s", "-a", user], capture_output=True,
                               input=f"{PASSWORD}\n{PASSWORD}\n".encode(), timeout=20)
        must(f"account {user} has a password", ended.returncode == 0, ended.stderr)

    def start(self):
        server = spawn("smbd", "-s", self.conf, "-F", "--no-process-group")
        must("smbd answers", eventually(lambda: is_open(445)))
        return server

    def net(self, *words):
        return run("net", "-s", self.conf, "conf", *words)

    def client(self, name, commands, *options, user=f"{USER}%{PASSWORD}"):
        words = ["smbclient", "-s", self.conf, f"//127.0.0.1/{name}", "-c", commands]
        return run(*words, *(["-U", user] if user else []), *options)


class Capture(threading.Thread):
    """Bytes that pass over the loopback interface."""

    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * MIB)
        self.socket.bind(("lo", 0))
        self.socket.settimeout(0.3)
        self.is_ended = False
        self.bytes = bytearray()
        self.start()

    def run(self):
        while True:
            try:
                self.bytes += self.socket.recv(1 << 17)
            except TimeoutError:
                if self.is_ended:
                    return

    def end(self):
        self.is_ended = True
        self.join()
        self.socket.close()
        return bytes(self.bytes)


class Connected:
    """A client that stays connected."""

    def __init__(self, samba, name, user=f"{USER}%{PASSWORD}"):
        words = ["smbclient", "-s", samba.conf, f"//127.0.0.1/{name}", "-U", user]
        self.child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        children.append(self.child)

    def say(self, text):
        self.child.stdin.write(text.encode() + b"\n")
        self.child.stdin.flush()

    def end(self):
        self.say("exit")
        return self.child.communicate(timeout=10)[0].decode(errors="replace")


# --- Ganesha -------------------------------------------------------------------------------------------------------


class Ganesha:
    """Ganesha with one configuration, and an export of others in it."""

    def __init__(self):
        self.conf, self.blocks, self.pid_file = path("ganesha.conf"), path("blocks"), path("ganesha.pid")
        for folder in (self.blocks, path("recovery"), path("other-export")):
            os.makedirs(folder, exist_ok=True)
        self.settings = {"by": "ganesha", "ganesha_conf": self.conf, "blocks_dir": self.blocks, "pid_file": self.pid_file}

    def write_conf(self, *lines):
        text = f"""NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = 2049; Enable_NLM = false; Enable_RQUOTA = false; }}
NFSv4 {{ RecoveryRoot = {path('recovery')}; Graceless = true; }}
EXPORT {{ Export_Id = 1; Path = {path('other-export')}; Pseudo = /other; Protocols = 4; Access_Type = RO; SecType = sys;
    FSAL {{ Name = VFS; }} }}
""" + "".join(f"{line}\n" for line in lines)
        with open(self.conf, "w") as file:
            file.write(text)
        return text

    def start(self):
        server = spawn("ganesha.nfsd", "-F", "-f", self.conf, "-L", os.path.join(os.path.dirname(LOG), "ganesha.log"), "-p", self.pid_file, "-N", "NIV_EVENT")
        must("Ganesha answers", eventually(lambda: is_open(2049)))
        return server

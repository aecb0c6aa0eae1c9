"""Orders of `dolmen share` to a daemon, and what clients of Samba and Ganesha then see.

shares_daemon_client.py DOLMEN FOLDER LOG PART...: runs in namespaces of its own, as root. PART is a server (`ganesha`; Samba is
always there), a file system (`btrfs`), or a part of the test: `serve`, `files`, `copy`, `torture`, `names`,
`quota`, `kills`, `refusals` and `move`. Each
check says what holds; the first that does not ends the program with 1.
"""

import json
import os
import re
import signal
import subprocess
import threading
import time
import xml.etree.ElementTree

from shares_orders import SOCKET, do, document, dolmen, start_daemon
from shares_rig import FOLDER, MIB, PARTS, PASSWORD, PROGRAM as DOLMEN, USER
from shares_rig import SMB_PARAMETERS, Capture, Connected, Ganesha, Samba, at_failure, children, end, eventually, log, must, path, run, spawn

OTHER = "news"
# Seconds from a command to the client that sees it.
SEEN_MAX = 3.0
# An import opens the pool, mounts its volumes and puts their shares.
IMPORT_MAX = 20.0
QUOTA = 64 * MIB
# Bytes of a file that the client copies too.
THROUGH_MAX = 1024 * MIB
# Bytes of the file that the bars are for.
FULL_COPY = 75_000 * MIB
SHARE = ("tank/home", "docs")
HERE = "127.0.0.1"
has_nfs = "ganesha" in PARTS
samba = Samba("one")
ganesha = Ganesha() if has_nfs else None


# --- the daemon ----------------------------------------------------------------------------------------------------


class Daemon:
    """A daemon with a state folder and a Samba of its own. `name` tells several apart."""

    def __init__(self, name, served_by):
        self.state = path(f"state-{name}")
        os.makedirs(self.state)
        self.servers = path(f"servers-{name}.json")
        servers = {"lock": path(f"servers-{name}.lock"), "smb_conf": served_by.conf}
        if ganesha:
            servers["nfs"] = ganesha.settings
        with open(self.servers, "w") as file:
            json.dump(servers, file)
        self.process = None

    def start(self):
        self.process = start_daemon(self.state, self.servers)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.terminate()
        try:
            return self.process.wait(60) == 0
        except subprocess.TimeoutExpired:
            return False


def is_refused(answer, *words):
    code, text = answer
    flat = " ".join(text.split())
    return code not in (0, 101) and all(word in flat for word in words)


def shares(volume="tank/home"):
    return {each["name"]: each for each in document("share", "list", volume)["shares"]}


def is_up(name, volume="tank/home"):
    found = shares(volume).get(name)
    return found is not None and all(each["state"] == "up" for each in found["protocols"])


def clear():
    """Leaves no device behind: the end of the namespaces detaches none."""
    for line in reversed(open("/proc/self/mountinfo").read().splitlines()):
        mount = line.split()[4].encode().decode("unicode_escape")
        if mount.startswith(FOLDER + "/") and " - fuse" not in line:
            run("umount", "-l", mount)
    # Not by `losetup -a`, which waits for the file system below each device of this machine.
    for device in os.listdir("/sys/block"):
        try:
            with open(f"/sys/block/{device}/loop/backing_file") as file:
                is_own = file.read().startswith(FOLDER + "/")
        except OSError:
            continue
        if is_own:
            run("losetup", "-d", f"/dev/{device}")


# --- clients -------------------------------------------------------------------------------------------------------


def as_other(name, commands):
    return samba.client(name, commands, user=f"{OTHER}%{PASSWORD}")


def nfs_lists(folder):
    return run("nfs-ls", f"nfs://127.0.0.1{folder}?version=4")[0] == 0


def seen_within(what, words, is_seen):
    """Runs a command while a client looks, and checks how long after its end the client sees what it did."""
    begun = time.monotonic()
    answers = []

    def ask():
        answers.append((*dolmen(*words), time.monotonic()))

    asking = threading.Thread(target=ask)
    asking.start()
    first = None
    while asking.is_alive() and first is None:
        first = time.monotonic() if is_seen() else None
    asking.join()
    code, text, ended = answers[0]
    must(f"dolmen {' '.join(words)}", code == 0, text)
    # It stays so.
    seen = eventually(is_seen, SEEN_MAX + 5)
    took = (first or time.monotonic()) - begun
    must(f"{what}: {took * 1000:.0f} ms after the start of the command, whose end came after {(ended - begun) * 1000:.0f} ms",
         seen and begun + took - ended <= SEEN_MAX, f"{took:.2f} s")
    return text


def sections():
    """Sections of the registry by name, each as its lines."""
    found = {}
    for line in samba.net("list")[1].splitlines():
        if line.startswith("["):
            found[line[1:-1]] = []
        elif line.strip():
            found[list(found)[-1]].append(line.strip())
    return found


def blocks():
    found = {}
    for name in sorted(os.listdir(ganesha.blocks)) if ganesha else []:
        with open(os.path.join(ganesha.blocks, name)) as file:
            found[name] = file.read()
    return found


def configuration():
    """All that servers are configured with."""
    return sections(), blocks()


def foreign():
    """All that Dolmen has not made."""
    found = [sections().get("Photos"), {name: text for name, text in blocks().items() if not name.startswith("dolmen-")}]
    for file in [samba.conf] + ([ganesha.conf] if ganesha else []):
        with open(file) as opened:
            found.append(opened.read())
    return found


# --- parts ---------------------------------------------------------------------------------------------------------


def make_pool(daemon):
    for disk in ("d0", "d1"):
        with open(path(disk), "wb") as file:
            file.truncate(3072 * MIB)
    daemon.start()
    do("pool", "create", "tank", path("d0"), path("d1"))
    do("volume", "create", "tank/home", "--for", "files", "--fs", "xfs", "--size", "512M", "--mount", path("mnt", "home"))
    os.makedirs(path("mnt", "home", "docs"))
    os.chmod(path("mnt", "home", "docs"), 0o777)


def serve():
    before = foreign()
    done = seen_within("a client of SMB lists and reads", ("share", "create", *SHARE[:1], "--path", "docs", "--smb", "docs",
                       "--grant", f"{USER}:rw"), lambda: "docs" in run("smbclient", "-s", samba.conf, "-L", HERE, "-U",
                       f"{USER}%{PASSWORD}")[1] and samba.client("docs", "ls")[0] == 0)
    must("the answer warns of nothing", "warning" not in done.lower(), done)
    must("the share is up", is_up("docs"), shares())
    with open(path("sent"), "wb") as file:
        file.write(os.urandom(3_000))
    done = samba.client("docs", f"put {path('sent')} a; get a {path('got')}")
    must("a client writes and reads", done[0] == 0, done)
    with open(path("sent"), "rb") as sent, open(path("got"), "rb") as got:
        must("the bytes come back", sent.read() == got.read())
    must("the file is in the volume", os.path.getsize(path("mnt", "home", "docs", "a")) == 3_000)
    refuse_clients()
    capture_nothing()
    change_grants()
    if ganesha:
        serve_nfs()
    must("what others configured is untouched", foreign() == before, (before, foreign()))


def refuse_clients():
    for what, options, user in (
        ("SMB 1", ["-m", "NT1", "--option=client min protocol=NT1"], f"{USER}%{PASSWORD}"),
        ("a guest", ["-N"], None),
        ("an unknown user", [], "nosuch%wrong"),
        ("a wrong password", [], f"{USER}%wrong"),
        ("a user without a grant", [], f"{OTHER}%{PASSWORD}"),
        ("a client without encryption", ["-m", "SMB2_10"], f"{USER}%{PASSWORD}"),
    ):
        done = samba.client("docs", "ls", *options, user=user)
        must(f"{what} is refused", done[0] != 0, done)


def seen_on_the_wire(name):
    plain = b"the quick brown fox jumps over the lazy dog " * 200
    with open(path("plain"), "wb") as file:
        file.write(plain)
    capture = Capture()
    options = ["-m", "SMB2_10"] if name == "open" else []
    done = samba.client(name, f"put {path('plain')} plain; get plain {path('got')}; rm plain", *options)
    found = capture.end()
    must(f"a file passes by share {name}", done[0] == 0, done)
    return plain[:44] in found, b"\xfdSMB" in found


def capture_nothing():
    must("no plaintext is on the wire", seen_on_the_wire("docs") == (False, True))
    do("share", "create", "tank/home", "--path", "docs", "--smb", "open", "--unencrypted", "--grant", f"{USER}:rw")
    must("the capture sees plaintext where the share allows it", seen_on_the_wire("open")[0])
    do("share", "delete", "tank/home", "open")


def change_grants():
    reads, writes = lambda: as_other("docs", "ls")[0] == 0, lambda: as_other("docs", f"put {path('sent')} b")[0] == 0
    seen_within("another user reads", ("share", "grant", *SHARE, f"{OTHER}:ro"), reads)
    must("and does not write", not writes())
    must("the first one still writes", samba.client("docs", f"put {path('sent')} c")[0] == 0)
    seen_within("another user writes", ("share", "grant", *SHARE, f"{OTHER}:rw"), writes)
    client = Connected(samba, "docs", f"{OTHER}%{PASSWORD}")
    client.say("ls")
    must("the session is listed", eventually(lambda: OTHER in dolmen("share", "sessions", *SHARE)[1]))
    seen_within("revoked, the other user is refused", ("share", "revoke", *SHARE, OTHER), lambda: not reads())
    client.say(f"put {path('sent')} late")
    client.end()
    must("and its connection writes no more", not os.path.exists(path("mnt", "home", "docs", "late")))
    must("the first one still reads", samba.client("docs", "ls")[0] == 0)


def serve_nfs():
    folder = path("mnt", "home", "docs")
    url = f"nfs://127.0.0.1{folder}"
    seen_within("a client of NFS lists", ("share", "create", "tank/home", "--path", "docs", "--name", "pub", "--nfs", f"{HERE}:rw"),
                lambda: nfs_lists(folder))
    must("the share is up", is_up("pub"), shares())
    # libnfs 4.0 sends no write of 4,096 bytes or more over NFS 4.
    must("a client writes", run("nfs-cp", path("sent"), f"{url}/n?version=4")[0] == 0)
    os.chmod(path("mnt", "home", "docs", "n"), 0o644)
    must("and reads", run("nfs-cp", f"{url}/n?version=4", path("nfs-got"))[0] == 0)
    with open(path("sent"), "rb") as sent, open(path("nfs-got"), "rb") as got:
        must("the bytes come back", sent.read() == got.read())
    seen_within("a client that may read does not write", ("share", "grant", "tank/home", "pub", "--nfs", f"{HERE}:ro"),
                lambda: run("nfs-cp", path("sent"), f"{url}/m?version=4")[0] != 0 and nfs_lists(folder))
    do("share", "grant", "tank/home", "pub", "--nfs", "10.0.0.0/8:rw")
    seen_within("revoked, a client is refused", ("share", "revoke", "tank/home", "pub", "--nfs", HERE), lambda: not nfs_lists(folder))
    do("share", "grant", "tank/home", "pub", "--nfs", f"{HERE}:ro")
    must("granted again, it lists", eventually(lambda: nfs_lists(folder), SEEN_MAX))
    seen_within("deleted, a client is refused", ("share", "delete", "tank/home", "pub"), lambda: not nfs_lists(folder))
    must("the export of others is there", nfs_lists("/other"))


def files():
    """Files for a domain and for discovery: testparm reads the lines, and the service file names the share for Time Machine."""
    name, folder = "it's & Backups", path("files")
    do("share", "create", "tank/home", "--path", "docs", "--smb", name, "--grant", f"{USER}:rw", "--time-machine", "1T")
    done = samba.client(name, f"put {path('sent')} b; rm b")
    must("a client writes to the share for Time Machine", done[0] == 0 and is_up(name), (done, shares()))
    must("it is shown", "1 TiB at most" in do("share", "show", "tank/home", name))
    asked = ("share", "files", folder, "--realm", "ad.example.com", "--discovery")
    do(*asked)
    with open(path("domain.conf"), "w") as file:
        file.write(f"[global]\ninclude = {folder}/dolmen-domain.conf\ninclude = {folder}/dolmen-discovery.conf\n")
    code, text = run("testparm", "-s", path("domain.conf"))
    wanted = ("security = ADS", "realm = AD.EXAMPLE.COM", "workgroup = AD\n", "idmap config ad : backend = rid",
              "multicast dns register = No", "ROLE_DOMAIN_MEMBER")
    missing = [line for line in wanted if line not in text]
    must("testparm reads the lines for a domain", code == 0 and not missing and "Unknown parameter" not in text, (missing, text))
    records = [record.text for record in xml.etree.ElementTree.parse(f"{folder}/dolmen-shares.service").iter("txt-record")]
    must("the service file names the share for Time Machine alone",
         [record for record in records if record.startswith("dk")] == [f"dk0=adVN={name},adVF=0x82"], records)
    with open(f"{folder}/dolmen-wsdd.service") as file:
        must("the unit of wsdd names the domain", "wsdd --shortlog --domain AD\n" in file.read())
    must("no file is written over", is_refused(dolmen(*asked), "exists already"))
    answer = dolmen("share", "files", path("bad"), "--realm", "a.b\nforce user = root")
    must("a realm that is none is refused", is_refused(answer, "no realm") and not os.path.exists(path("bad")), answer)
    do("share", "delete", "tank/home", name)


# Each is a name of a share, of a folder and of a mount point.
NASTY = ("a b", "it's", 'q"x', "50%", "%U", "ü-Größe-日本", "br[a]c", "{x}", "] x", "a;b", "#x", "a=b", "$(id)", "`id`", "-x", "~",
         "a\\b", "x\nforce user = root", "x]\n[global]", "\x7f", "a,b", "tab\tx", "(rw,no_root_squash)", "global", "*", " x", "x" * 200)


def is_exact(section, before, folder):
    """Whether one section has come, with the folder, and gives no more than reading."""
    now = sections()
    lines = dict(line.split(" = ", 1) for line in now.pop(section, []) if " = " in line)
    given = [lines.get(key, "") for key in ("admin users", "force user", "force group")]
    is_narrow = not any(given) and USER not in lines.get("write list", "") and lines.get("guest ok", "no") == "no"
    return now == before[0] and lines.get("path") == folder and is_narrow


def quiet(what, holds, shown=""):
    must(what, holds, shown, is_shown=False)


def names():
    before = configuration()
    kept = []
    for name in NASTY:
        answer = dolmen("share", "create", "--path", "docs", "--grant", f"{USER}:ro", f"--smb={name}", "tank/home")
        if answer[0] == 0:
            quiet(f"share {name!r} is on record as it is", name in shares(), shares())
            quiet(f"share {name!r} is one section", is_exact(name, before, path("mnt", "home", "docs")), sections())
            code, text = samba.client(name, "ls")
            quiet(f"a client connects to {name!r}", code == 0, text)
            code, text = dolmen("share", "delete", "--", "tank/home", name)
            quiet(f"{name!r} is deleted", code == 0, text)
            kept.append(name)
        else:
            quiet(f"share {name!r} is refused with a reason", has_reason(answer), answer)
        quiet("no other line has changed", configuration() == before, configuration())
    must(f"names of shares are kept or refused, {len(kept)} of {len(NASTY)} kept", {"a b", "it's", "{x}", "#x", "-x"} <= set(kept), kept)
    for grant in (f'{USER}"\nadmin users = root:rw', f"{USER}, root:rw", "+root:rw", "&x:rw", "@\n:ro", "%U:rw"):
        answer = dolmen("share", "create", "tank/home", "--path", "docs", "--smb", "g", f"--grant={grant}")
        must(f"the grant {grant!r} is refused", has_reason(answer) and configuration() == before, answer)
    for network in (f"{HERE}(rw,no_root_squash):rw", "*:rw", f"{HERE}; Access_Type = RW:ro", f"{HERE}\n/ *:rw", "0.0.0.0:rw x:rw"):
        answer = dolmen("share", "create", "tank/home", "--path", "docs", "--name", "g", f"--nfs={network}")
        must(f"the network {network!r} is refused", has_reason(answer) and configuration() == before, answer)
    name_folders(before)
    name_mount_points()
    must("all is as it was", configuration() == before, configuration())


def has_reason(answer):
    """Whether a command was refused, with a sentence."""
    return is_refused(answer) and len(answer[1]) > 40 and "panicked" not in answer[1]


def name_folders(before):
    networks = ("--nfs", f"{HERE}:ro") if ganesha else ()
    kept = []
    for folder in NASTY:
        place = path("mnt", "home", folder)
        os.makedirs(place, exist_ok=True)
        answer = dolmen("share", "create", "tank/home", f"--path={folder}", "--smb", "odd", "--grant", f"{USER}:ro", *networks)
        if answer[0] == 0:
            quiet(f"folder {folder!r} is on record as it is", shares()["odd"]["folder"] == folder, shares())
            quiet(f"folder {folder!r} is one section", is_exact("odd", before, place), sections())
            quiet(f"folder {folder!r} is up", eventually(lambda: is_up("odd"), SEEN_MAX), shares())
            new = [text for name, text in blocks().items() if name not in before[1]]
            quiet("one block is for it", len(new) == len(networks) // 2 and all(text.count("EXPORT") == 1 for text in new), new)
            do("share", "delete", "tank/home", "odd")
            kept.append(folder)
        else:
            quiet(f"folder {folder!r} is refused with a reason", has_reason(answer), answer)
        quiet("no other line has changed", configuration() == before, configuration())
        os.rmdir(place)
    must(f"folders are kept or refused, {len(kept)} of {len(NASTY)} kept", {"a b", "ü-Größe-日本", "{x}"} <= set(kept), kept)


def mount_points():
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        fields = [line.split()[4] for line in file]
    return {re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), field) for field in fields}


def name_mount_points():
    kept = []
    tried = ("a b", "it's", 'q"x', "50%", "ü日", "br[a]c", "#x;y", "a\\b", "x\ny")
    for name in tried:
        place = path("mnt", name)
        answer = dolmen("volume", "create", "tank/odd", "--for", "files", "--fs", "xfs", "--size", "320M", f"--mount={place}")
        if answer[0] != 0:
            quiet(f"mount point {name!r} is refused with a reason", has_reason(answer), answer)
            continue
        quiet(f"the volume is mounted on {name!r}", place in mount_points(), mount_points())
        shared = dolmen("share", "create", "tank/odd", "--smb", "odd", "--grant", f"{USER}:ro")
        if shared[0] == 0:
            found = dict(line.split(" = ", 1) for line in sections()["odd"] if " = " in line)
            quiet(f"a share of {name!r} has the path", found["path"] == place, found)
            quiet("a client connects to it", samba.client("odd", "ls")[0] == 0)
            kept.append(name)
        else:
            quiet(f"a share of {name!r} is refused with a reason", has_reason(shared), shared)
            quiet("nothing is left of it", not shares("tank/odd") and "odd" not in sections(), sections())
        do("volume", "delete", "tank/odd")
        quiet("its section is gone", "odd" not in sections(), sections())
        do("trash", "purge", "--all", "tank", "--destroy", "tank")
    must(f"mount points are kept or refused, shares of {len(kept)} of {len(tried)} offered", {"a b", "ü日"} <= set(kept), kept)


def quota():
    """A folder of btrfs that is bounded, and a client of SMB that writes past the bound."""
    if "btrfs" not in PARTS:
        return
    place = path("mnt", "bounded")
    do("volume", "create", "tank/bounded", "--for", "files", "--fs", "btrfs", "--size", "512M", "--mount", place)
    do("volume", "quota", "set", "tank/bounded", "box", str(QUOTA))
    os.chmod(os.path.join(place, "box"), 0o777)
    do("share", "create", "tank/bounded", "--path", "box", "--smb", "box", "--grant", f"{USER}:rw")
    with open(path("much"), "wb") as file:
        for _ in range(96):
            file.write(os.urandom(MIB))
    done = samba.client("box", f"put {path('much')} much")
    must("a write past the bound is refused", "NT_STATUS_DISK_FULL" in done[1] or "QUOTA" in done[1], done)
    run("sync", "-f", place)
    held = os.stat(os.path.join(place, "box", "much")).st_blocks * 512
    must(f"the folder holds its bound within 1 MiB: {held / MIB:.2f} MiB", abs(held - QUOTA) <= MIB, held)
    found = [each for each in document("volume", "quota", "list", "tank/bounded")["quotas"] if each["folder"] == "box"]
    must(f"the quota says so: {found[0]['used_bytes'] / MIB:.2f} MiB of {found[0]['limit_bytes'] / MIB:.0f} MiB",
         found[0]["limit_bytes"] == QUOTA and abs(found[0]["used_bytes"] - held) <= MIB and not found[0]["why"], found)
    do("volume", "quota", "set", "tank/bounded", "box", str(3 * QUOTA))
    done = samba.client("box", f"put {path('much')} much")
    must("with a wider bound the file passes", done[0] == 0 and os.path.getsize(os.path.join(place, "box", "much")) == 96 * MIB, done)
    do("share", "delete", "tank/bounded", "box")
    do("volume", "delete", "tank/bounded")


def settled(name="killed"):
    """What record and servers say of a share, once they agree."""
    found = None

    def agree():
        nonlocal found
        code, text = dolmen("-o", "json", "share", "list", "tank/home")
        if code:
            return False
        recorded = {each["name"]: each for each in json.loads(text)["shares"]}.get(name)
        section = sections().get(name)
        found = (recorded, section)
        if recorded is None:
            return section is None
        accounts = [each["name"] for each in recorded["accounts"]]
        users = [line for line in section or [] if line.startswith("valid users")]
        is_open = "available = yes" in (section or [])
        return is_open and all(each["state"] == "up" for each in recorded["protocols"]) and len(users) == 1 \
            and sorted(re.findall(r'"([^"]*)"', users[0])) == sorted(accounts)

    must("record and servers agree", eventually(agree, 20), found)
    return found


def kills(daemon):
    create = ("share", "create", "tank/home", "--path", "docs", "--smb", "killed", "--grant", f"{USER}:rw")
    grant = ("share", "grant", "tank/home", "killed", f"{OTHER}:ro")
    delete = ("share", "delete", "tank/home", "killed")
    before = configuration()
    took, wanted = {}, {}
    for verb in (create, grant, delete):
        begun = time.monotonic()
        do(*verb)
        took[verb], wanted[verb] = time.monotonic() - begun, strip_mark(sections().get("killed"))
    cut = 0
    for verb in (create, grant, delete):
        for part in (0.1, 0.3, 0.5, 0.7, 0.9):
            if "killed" not in shares() and verb != create:
                do(*create)
                do(*grant) if verb == delete else None
            asked = subprocess.Popen([DOLMEN, *verb], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                     env={**os.environ, "DOLMEN_SOCKET": SOCKET})
            time.sleep(part * took[verb])
            daemon.kill()
            code = (asked.communicate(timeout=60), asked.returncode)[1]
            cut += code != 0
            daemon.start()
            recorded, _ = settled()
            answer = dolmen(*verb)
            is_there = is_refused(answer, "has a share of this name") if verb == create else is_refused(answer, "no share")
            must(f"{verb[1]} that was killed after {part * took[verb]:.1f} s ({'a share' if recorded else 'no share'} on record) ends "
                 "when it is asked for again", answer[0] == 0 or is_there, answer)
            settled()
            must("the end is that of one that was not killed", strip_mark(sections().get("killed")) == wanted[verb], sections())
            if verb != delete:
                do(*delete)
    must(f"{cut} of 15 commands were cut short, and nothing is left", cut >= 8 and configuration() == before, configuration())


def strip_mark(lines):
    return lines and [re.sub(r"/[0-9]+\]", "/N]", line) for line in lines]


def refusals():
    before = configuration()
    create = ("share", "create", "tank/home", "--path", "docs", "--smb", "no", "--grant", f"{USER}:rw")
    run("mount", "--bind", "/dev/null", "/usr/sbin/smbd")
    answer = dolmen(*create)
    run("umount", "/usr/sbin/smbd")
    must("without smbd a share is refused, with the package", is_refused(answer, "not installed", "install samba"), answer)
    must("nothing is left of it", "no" not in shares() and configuration() == before, shares())
    answer = dolmen("share", "create", "tank/home", "--path", "absent", "--smb", "no")
    must("a folder that is absent is refused", is_refused(answer, "absent") and "no" not in shares(), answer)
    os.symlink("/etc", path("mnt", "home", "link"))
    answer = dolmen("share", "create", "tank/home", "--path", "link", "--smb", "no")
    must("a folder behind a link is refused", is_refused(answer, "symbolic link") and "no" not in shares(), answer)
    answer = dolmen("share", "create", "tank/home", "--path", "docs", "--smb", "photos")
    must("a section of others is refused", is_refused(answer, "Photos") or is_refused(answer, "photos"), answer)
    must("and untouched", configuration() == before, configuration())
    do("volume", "unmount", "tank/home")
    must("unmounted, no server has a section of the volume", not [name for name in sections() if name != "Photos"], sections())
    text = do(*create)
    must("a share of an unmounted volume waits for its mount", "once it is mounted" in text and "no" not in sections(), text)
    do("share", "delete", "tank/home", "no")
    do("serve", "tank/home")
    answer = dolmen(*create)
    must("a space that is served raw is not shared", is_refused(answer, "served over NBD", "dolmen unserve"), answer)
    do("unserve", "tank/home")
    do("volume", "mount", "tank/home")
    must("mounted again, its shares are back", eventually(lambda: samba.client("docs", "ls")[0] == 0, 10), shares())
    answer = dolmen("serve", "tank/home")
    must("a volume that is shared is not served raw", is_refused(answer, "mounted"), answer)


def move(daemon, server):
    client = Connected(samba, "docs")
    client.say("ls")
    do("pool", "export", "tank")
    client.end()
    must("exported, no server has a share of the pool", list(sections()) == ["Photos"]
         and not [name for name in blocks() if name.startswith("dolmen-")], configuration())
    must("nothing is mounted", not [place for place in mount_points() if place.startswith(path("mnt") + "/")], mount_points())
    must("the daemon ends", daemon.stop())
    end(server)
    other = Samba("two")
    prepare(other)
    server = other.start()
    second = Daemon("two", other)
    second.start()
    begun = time.monotonic()
    do("pool", "import", "--accept", path("d0"), path("d1"))
    folder = path("mnt", "home", "docs")
    seen = eventually(lambda: other.client("docs", "ls")[0] == 0 and (not ganesha or nfs_lists(folder)), IMPORT_MAX)
    must(f"one import brings the shares back: {time.monotonic() - begun:.1f} s", seen, shares())
    with open(path("sent"), "rb") as sent:
        other.client("docs", f"get a {path('got')}")
        with open(path("got"), "rb") as got:
            must("with their files", sent.read() == got.read())
    must("another user is refused there too", other.client("docs", "ls", user=f"{OTHER}%{PASSWORD}")[0] != 0)
    must("the shares are up", eventually(lambda: is_up("docs") and (not ganesha or is_up("moved")), 10), shares())
    return second, server


# --- copies and other suites ---------------------------------------------------------------------------------------


class Link:
    """A client in a network of its own, behind a link of 1 Gbit/s; also the server, if it is not in that of this program."""

    HERE, THERE = "10.11.12.1", "10.11.12.2"

    def __init__(self, is_server_apart=False):
        self.children = []
        self.server = self.network() if is_server_apart else ()
        self.enter = self.network()
        pid = str(self.children[-1].pid)
        run(*self.server, "ip", "link", "add", "shaped", "type", "veth", "peer", "name", "other", "netns", pid)
        for words, name, address in ((self.server, "shaped", self.HERE), (self.enter, "other", self.THERE)):
            run(*words, "ip", "address", "add", f"{address}/24", "dev", name)
            run(*words, "ip", "link", "set", name, "up")
            code, text = run(*words, "tc", "qdisc", "add", "dev", name, "root", "tbf", "rate", "1gbit", "burst", "256k", "latency", "50ms")
            must(f"end {name} of the link is shaped", code == 0, text)

    def network(self):
        """Returns the words in front of a command in a network of its own."""
        child = subprocess.Popen(["unshare", "-n", "sleep", "3600"], start_new_session=True)
        children.append(child)
        self.children.append(child)
        must("it has a network of its own", eventually(
            lambda: os.readlink(f"/proc/{child.pid}/ns/net") != os.readlink("/proc/self/ns/net"), 5), is_shown=False)
        words = ("nsenter", "-t", str(child.pid), "-n")
        run(*words, "ip", "link", "set", "lo", "up")
        return words

    def bytes(self):
        lines = run(*self.server, "cat", "/proc/net/dev")[1].splitlines()
        words = [line.split(":")[1].split() for line in lines if line.strip().startswith("shaped:")][0]
        return int(words[0]) + int(words[8])

    def measured(self, commands):
        """Seconds, and bytes on the wire, of commands of smbclient."""
        return self.run("smbclient", "-s", samba.conf, f"//{self.HERE}/copies", "-U", f"{USER}%{PASSWORD}", "-c", commands)

    def run(self, *words):
        """Seconds, and bytes on the wire, of a client."""
        before, begun = self.bytes(), time.monotonic()
        ended = subprocess.run([*self.enter, *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=3600)
        log.write(ended.stdout + ended.stderr)
        must(f"'{words[-1]}' ends", ended.returncode == 0, ended.stdout + ended.stderr)
        return time.monotonic() - begun, self.bytes() - before

    def end(self):
        for child in self.children:
            child.kill()
            child.wait()


def data_of(file):
    """Parts of a file that are no holes."""
    at = 0
    while True:
        try:
            start = os.lseek(file, at, os.SEEK_DATA)
        except OSError:
            return
        at = os.lseek(file, start, os.SEEK_HOLE)
        yield start, at


def are_equal(first, second):
    """Whether two files are equal; what is a hole in both is not read."""
    files = [os.open(name, os.O_RDONLY) for name in (first, second)]
    is_equal = os.fstat(files[0]).st_size == os.fstat(files[1]).st_size
    for file, other in (files, reversed(files)):
        for start, end in data_of(file):
            for at in range(start, end, MIB):
                length = min(MIB, end - at)
                is_equal = is_equal and os.pread(file, length, at) == os.pread(other, length, at)
    for file in files:
        os.close(file)
    return is_equal


def print_bar(what, is_full, is_met):
    """Says whether a bar is met. A smaller file has none."""
    if is_full:
        print(f"   bar: {what}: {'yes' if is_met else 'NO'}", flush=True)


def clone_call(place, size):
    """A client asks Samba of another root for a clone: the server shares extents, by the modules of a section on XFS."""
    root = os.environ.get("DOLMEN_SAMBA_ROOT", "")
    if not os.path.exists(os.path.join(root, "usr/sbin/smbd")) or not root:
        print("skipped: a copy by a clone call (DOLMEN_SAMBA_ROOT names no root with Samba 4.22 or later)", flush=True)
        return
    code, text = run("chroot", root, "python3", "-c", "import samba.samba3.libsmb_samba_internal as module; module.Conn.fsctl")
    if code != 0:
        print("skipped: a copy by a clone call (python3-samba in DOLMEN_SAMBA_ROOT has no fsctl)", flush=True)
        return
    run("mount", "--bind", place, os.path.join(root, "srv"))
    run("mount", "-t", "tmpfs", "none", os.path.join(root, "mnt"))
    lines = ["[global]", "map to guest = Never", "load printers = no", "disable spoolss = yes", "log file = /mnt/log"]
    for number, parameter in enumerate(SMB_PARAMETERS):
        os.makedirs(os.path.join(root, "mnt", str(number)))
        lines.append(f"{parameter} = /mnt/{number}")
    # As crate `volume` writes a section for XFS and this version.
    lines += ["[copies]", "path = /srv", "read only = no", "server smb encrypt = required", f"valid users = {USER}", "vfs objects = acl_xattr btrfs"]
    with open(os.path.join(root, "mnt", "smb.conf"), "w") as file:
        file.write("\n".join(lines) + "\n")
    with open(os.path.join(root, "mnt", "clone.py"), "wb") as file, open(os.path.join(os.path.dirname(__file__), "shares_clone.py"), "rb") as own:
        file.write(own.read())
    ended = subprocess.run(["chroot", root, "smbpasswd", "-c", "/mnt/smb.conf", "-s", "-a", USER], capture_output=True,
                           input=f"{PASSWORD}\n{PASSWORD}\n".encode(), timeout=20)
    must("its account has a password", ended.returncode == 0, ended.stderr, is_shown=False)
    link = Link(is_server_apart=True)
    server = spawn(*link.server, "chroot", root, "smbd", "-s", "/mnt/smb.conf", "-F", "--no-process-group")
    client = ("smbclient", "-s", "/mnt/smb.conf", f"//{Link.HERE}/copies", "-U", f"{USER}%{PASSWORD}", "-c", "ls")
    must("Samba of the other root answers", eventually(lambda: run(*link.enter, "chroot", root, *client)[0] == 0, 20))
    before = os.statvfs(place).f_bfree * os.statvfs(place).f_frsize
    seconds, wire = link.run("chroot", root, "python3", "/mnt/clone.py", "/mnt/smb.conf", Link.HERE, "copies", f"{USER}%{PASSWORD}",
                             "sparse", "cloned")
    run("sync", "-f", place)
    taken = before - os.statvfs(place).f_bfree * os.statvfs(place).f_frsize
    version = run("chroot", root, "smbd", "-V")[1].strip()
    must(f"{version} clones {size / MIB:.0f} MiB in {seconds:.2f} s with {wire / 1000:.0f} kB on the wire; the clone takes {taken / MIB:.1f} MiB",
         wire < 1_000_000 and taken <= 16 * MIB, (wire, taken))
    must("the clone is equal", are_equal(os.path.join(place, "sparse"), os.path.join(place, "cloned")))
    print_bar("clone call", size >= FULL_COPY, seconds <= 2)
    end(server)
    link.end()
    for folder in ("srv", "mnt"):
        must("the other root is left as it was", eventually(lambda: run("umount", os.path.join(root, folder))[0] == 0, 10), is_shown=False)


def copy():
    """A sparse file is copied by its server, against the same file over the link and back."""
    size, data = (int(each) * MIB for each in os.environ.get("DOLMEN_COPY_MIB", "1024,64").split(","))
    place = path("mnt", "copies")
    room = f"{(size + 3 * data) // MIB + 512}M"
    do("volume", "create", "tank/copies", "--for", "files", "--fs", "xfs", "--size", room, "--mount", place)
    os.chmod(place, 0o777)
    do("share", "create", "tank/copies", "--smb", "copies", "--grant", f"{USER}:rw")
    link = Link()
    source = os.path.join(place, "sparse")
    with open(source, "wb") as file:
        file.truncate(size)
        for part in range(data // MIB):
            file.seek(part * (size // (data // MIB)) // 4096 * 4096)
            file.write(os.urandom(MIB))
    os.chmod(source, 0o666)
    run("sync", "-f", place)
    held = os.stat(source).st_blocks * 512
    before = os.statvfs(place).f_bfree * os.statvfs(place).f_frsize
    seconds, wire = link.measured("scopy sparse copied")
    run("sync", "-f", place)
    taken = before - os.statvfs(place).f_bfree * os.statvfs(place).f_frsize
    must(f"the server copies {size / MIB:.0f} MiB, of them {held / MIB:.0f} MiB data, in {seconds:.2f} s with {wire / MIB:.2f} MiB on the "
         f"wire; the copy takes {taken / MIB:.1f} MiB more", wire < size // 4096, wire)
    must("the copy is equal", are_equal(source, os.path.join(place, "copied")))
    bars = size >= FULL_COPY
    print_bar("copy chunk", bars, seconds <= 60 and wire <= 5_000_000)
    if size <= THROUGH_MAX:
        by_client, over = link.measured(f"get sparse {path('through')}; put {path('through')} through")
        must(f"by the client it takes {by_client:.2f} s and {over / MIB:.0f} MiB on the wire, {by_client / seconds:.0f} times as long",
             over >= 2 * size and by_client > seconds, (over, by_client))
        must("and is equal too", are_equal(source, os.path.join(place, "through")))
        os.remove(os.path.join(place, "through"))
        os.remove(path("through"))
    else:
        # Its holes come as zeros, which need no room there. The way back would need room in the volume.
        by_client, over = link.measured("get sparse /dev/null")
        must(f"to the client alone it takes {by_client:.2f} s and {over / MIB:.0f} MiB on the wire, {by_client / seconds:.0f} times as long",
             over >= size and by_client > seconds, (over, by_client))
    print_bar("get and put", bars, by_client >= 12 * seconds)
    clone_call(place, size)
    link.end()
    do("share", "delete", "tank/copies", "copies")
    do("volume", "delete", "tank/copies")


SUITES = ("smb2.ioctl", "smb2.read", "smb2.rw", "smb2.lock", "smb2.lease", "smb2.durable-open", "smb2.multichannel")


def torture():
    """smbtorture on a share of a volume and on one with the same parameters on a plain disk: the results are equal."""
    with open(path("plain"), "wb") as file:
        file.truncate(400 * MIB)
    code, text = run("mkfs.xfs", "-q", "-f", path("plain"))
    must("a plain disk", code == 0, text)
    device = run("losetup", "-f", "--show", path("plain"))[1].strip()
    os.makedirs(path("mnt", "plain"))
    run("mount", "-o", "noatime", device, path("mnt", "plain"))
    os.makedirs(path("mnt", "plain", "docs"))
    os.chmod(path("mnt", "plain", "docs"), 0o777)
    for line in sections()["docs"]:
        key, _, value = line.partition(" = ")
        samba.net("setparm", "--", "plain", key, {"path": path("mnt", "plain", "docs"), "comment": "plain"}.get(key, value))
    run("smbcontrol", "-s", samba.conf, "smbd", "reload-config")
    must("a client connects to the plain one", samba.client("plain", "ls")[0] == 0)

    def results(share, suite):
        words = ["timeout", "-k", "5", os.environ.get("DOLMEN_TORTURE_SECONDS", "120"), "smbtorture", f"//{HERE}/{share}", "-U",
                 f"{USER}%{PASSWORD}", "--option=client min protocol=SMB3", "--client-protection=encrypt", suite]
        ended = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True)
        log.write(ended.stdout + ended.stderr)
        lines = ended.stdout.decode(errors="replace").splitlines()
        return [line.split(" [")[0] for line in lines if re.match(r"(success|failure|error|skip): ", line)], ended.returncode == 124

    for suite in os.environ.get("DOLMEN_TORTURE", ",".join(SUITES)).split(","):
        (volume, cut), (plain, plain_cut) = results("docs", suite), results("plain", suite)
        if cut or plain_cut:
            # What both reached is compared.
            both = min(len(volume), len(plain))
            print(f"skipped: {suite} behind its first {both} tests (it takes longer than its time)", flush=True)
            volume, plain = volume[:both], plain[:both]
        good = sum(line.startswith("success") for line in volume)
        must(f"{suite}: {good} of {len(volume)} succeed, as on a plain disk", volume == plain and volume,
             [pair for pair in zip(volume, plain) if pair[0] != pair[1]] or (volume, plain))
    samba.net("delshare", "plain")
    run("smbcontrol", "-s", samba.conf, "smbd", "close-share", "plain")
    must("the plain disk is dropped", eventually(lambda: run("umount", path("mnt", "plain"))[0] == 0, 20))
    run("losetup", "-d", device)


def prepare(one):
    one.make_folders()
    one.write_conf(f"interfaces = lo {Link.HERE}/24", "server multi channel support = no", "bind interfaces only = no")
    for user in (USER, OTHER):
        one.add_password(user)


def main():
    at_failure.append(clear)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    os.makedirs(path("other"))
    prepare(samba)
    samba.net("setparm", "--", "Photos", "path", path("other"))
    samba.net("setparm", "--", "Photos", "comment", "[dolmen 01020304-0506-0708-090a-0b0c0d0e0f10/2/1] by hand")
    server = samba.start()
    if ganesha:
        with open(os.path.join(ganesha.blocks, "by-hand.conf"), "w") as file:
            file.write("# A file of others.\n")
        ganesha.write_conf(f'%dir "{ganesha.blocks}"')
        nfs_server = ganesha.start()
    daemon = Daemon("one", samba)
    make_pool(daemon)
    if "serve" in PARTS:
        serve()
    else:
        do("share", "create", "tank/home", "--path", "docs", "--smb", "docs", "--grant", f"{USER}:rw")
        with open(path("sent"), "wb") as file:
            file.write(os.urandom(3_000))
        samba.client("docs", f"put {path('sent')} a")
    before = foreign()
    for name, part in (("files", files), ("copy", copy), ("torture", torture), ("names", names), ("quota", quota), ("kills", lambda: kills(daemon)), ("refusals", refusals)):
        if name in PARTS:
            print(f"\n== {name}", flush=True)
            part()
            must("what others configured is untouched", foreign() == before, (before, foreign()))
    if "move" in PARTS:
        print("\n== move", flush=True)
        if ganesha:
            do("share", "create", "tank/home", "--path", "docs", "--name", "moved", "--nfs", f"{HERE}:ro")
        daemon, server = move(daemon, server)
    must("the daemon ends", daemon.stop())
    code, text = dolmen("check", path("d0"), path("d1"))
    must("the offline check finds the pool clean", code == 0, text)
    end(server)
    if ganesha:
        end(nfs_server)


try:
    main()
except Exception:
    clear()
    raise

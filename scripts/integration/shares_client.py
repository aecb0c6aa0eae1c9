"""Orders to dolmen-worker about shares, and what clients of Samba and NFS then see.

shares_client.py WORKER FOLDER LOG PART...: runs in namespaces of its own, as root. PART is `volume`, `smb`, `ganesha` or
`kernel`. Each check says what holds; the first that does not ends the program with 1.
"""

import grp
import json
import os
import pwd
import random
import subprocess
import time

from shares_rig import FOLDER, MIB, PARTS, PASSWORD, PROGRAM as WORKER, USER
from shares_rig import Capture, Connected, Ganesha, Samba, end, eventually, log, must, path, run, started

POOL = "01020304-0506-0708-090a-0b0c0d0e0f10"
UUID = "6f8e2c1a-0b7d-4a55-9a1e-52d0a3c4b5%02x" % (os.getpid() % 256)
samba = Samba("smb")
write_smb_conf, net, smbclient = samba.write_conf, samba.net, samba.client


# --- orders --------------------------------------------------------------------------------------------------------


def order(operation, **fields):
    line = json.dumps({"lock": path("volume.lock"), "operation": {"do": operation, **fields}}) + "\n"
    ended = subprocess.run([WORKER], input=line.encode(), capture_output=True, timeout=120)
    log.write(b"\n> " + line.encode() + ended.stdout + ended.stderr)
    message = json.loads(ended.stdout)
    return message.get("outcome"), message.get("failure")


def record(name="docs", folder="", protocols=("smb",), desired="served", users=None, networks=None, groups=None, **more):
    grants = {USER: "read-write"} if users is None else users
    return {
        "version": 1,
        "name": name,
        "folder": folder,
        "protocols": list(protocols),
        "desired": desired,
        "accounts": [{"to": "user", "name": user, "access": access} for user, access in grants.items()]
        + [{"to": "group", "name": group, "access": access} for group, access in (groups or {}).items()],
        "networks": [{"client": client, "access": access} for client, access in (networks or {}).items()],
        **more,
    }


servers = {"lock": path("servers.lock"), "smb_conf": samba.conf}
volume = {"name": "tank/home", "mount_point": path("volume"), "file_system": "xfs"}


def mark(number):
    return f"{POOL}/2/{number}"


def share(do, number=1, **fields):
    if do == "share_remove":
        return order(do, mark=mark(number), servers=servers)
    return order(do, volume=volume, mark=mark(number), record=record(**fields), servers=servers)


def is_put(answer):
    return answer[0] is not None and answer[0]["is"] == "shared"


def is_refused(answer, code, *words):
    failure = answer[1] or {}
    text = failure.get("message", "") + " " + failure.get("hint", "")
    return failure.get("code") == code and all(word in text for word in words)


def state_of(answer, protocol="smb"):
    found = [each for each in answer[0]["protocols"] if each["protocol"] == protocol]
    return found[0]


def listed():
    return order("share_list", servers=servers)[0]["shares"]


# --- the volume ----------------------------------------------------------------------------------------------------


def make_volume():
    with open(path("image"), "wb") as image:
        image.truncate(400 * MIB)
    code, device = run("losetup", "-f", "--show", path("image"))
    must("a device is there", code == 0, device)
    device = device.strip()
    description = {
        "version": 1,
        "state": "making",
        "desired": "mounted",
        "file_system": "xfs",
        "uuid": UUID,
        "mkfs_options": ["-q", "-m", f"uuid={UUID}", "-K"],
        "mount_options": ["noatime"],
        "mount_point": path("volume"),
    }
    # The kernel has given the number of the device to others before, and the order says which one is meant.
    with open(f"/sys/block/{os.path.basename(device)}/diskseq", encoding="ascii") as sequence:
        incarnation = f"disk {sequence.read().strip()}"
    meant = {"device": device, "incarnation": incarnation, "record": description}
    made = order("make", volume=meant)
    must("the worker makes an XFS", made[0] is not None, made)
    unmounted = {**volume, "device": device}
    refused = order("share_put", volume=unmounted, mark=mark(1), record=record(), servers=servers)
    must("no share of a volume that is not mounted", is_refused(refused, "in_use"), refused)
    description["state"] = "ready"
    mounted = order("mount", volume=meant)
    must("the worker mounts it", mounted[0] is not None, mounted)
    # The device goes with its last mount, however this ends.
    run("losetup", "-d", device)
    volume["device"] = device


# --- SMB -----------------------------------------------------------------------------------------------------------

def refuse_settings():
    write_smb_conf(registry=False)
    refused = share("share_put")
    must("no share without the registry", is_refused(refused, "server_settings", "include = registry"), refused)
    for line, advice in (
        ("map to guest = Bad User", "map to guest = Never"),
        ("server min protocol = NT1", "server min protocol = SMB3"),
        ("force user = root", "move the line"),
        ("server smb encrypt = off", "no client can encrypt"),
    ):
        write_smb_conf(line)
        refused = share("share_put")
        must(f"no share with '{line}'", is_refused(refused, "server_settings", advice), refused)
    write_smb_conf()


def refuse_foreign():
    net("setparm", "--", "Photos", "path", path("other"))
    net("setparm", "--", "Photos", "comment", f"[dolmen {mark(1)}] by hand")
    before = net("showshare", "Photos")
    for name in ("photos", "IN THE FILE"):
        refused = share("share_put", name=name)
        must(f"a section [{name}] of others stays", is_refused(refused, "foreign_data"), refused)
    must("the section of others is untouched", net("showshare", "Photos") == before)
    return before


def serve_and_use():
    answer = share("share_put")
    must("the share is put", is_put(answer) and answer[0]["is_changed"] and answer[0]["notes"] == [], answer)
    answer = share("share_put")
    must("a second order changes nothing", is_put(answer) and not answer[0]["is_changed"], answer)
    probed = state_of(share("share_probe"))
    must("the probe says up", probed["state"] == "up", probed)
    own = {each["name"]: each["mark"] for each in listed() if each["protocol"] == "smb"}
    must("the list tells own sections from others", own == {"docs": mark(1), "Photos": None, "in the file": None}, own)
    with open(path("sent"), "wb") as file:
        file.write(random.randbytes(300_000))
    done = smbclient("docs", f"put {path('sent')} a; mkdir d; ls; get a {path('got')}")
    must("a client writes, lists and reads", done[0] == 0 and " a " in done[1], done)
    with open(path("sent"), "rb") as sent, open(path("got"), "rb") as got:
        must("the bytes come back", sent.read() == got.read())
    must("the file is in the volume", os.path.getsize(path("volume", "a")) == 300_000)
    entry = "ACL:Everyone:DENIED/0x0/W"
    words = ["smbcacls", "-s", samba.conf, "//127.0.0.1/docs", "a", "-U", f"{USER}%{PASSWORD}"]
    if run("which", "smbcacls")[0] == 0:
        run(*words, "-a", entry)
        must("rights of Windows are kept", "Everyone:DENIED" in run(*words)[1])


def refuse_clients():
    for what, options, user in (
        ("SMB 1", ["-m", "NT1", "--option=client min protocol=NT1"], f"{USER}%{PASSWORD}"),
        ("a guest", ["-N"], None),
        ("a wrong password", [], f"{USER}%wrong"),
        ("an unknown user", [], "nosuch%wrong"),
        ("a user without a grant", [], f"root%{PASSWORD}"),
        ("a client without encryption", ["-m", "SMB2_10"], f"{USER}%{PASSWORD}"),
    ):
        done = smbclient("docs", "ls", *options, user=user)
        must(f"{what} is refused", done[0] != 0, done)


def capture_nothing():
    plain = b"the quick brown fox jumps over the lazy dog " * 200
    with open(path("plain"), "wb") as file:
        file.write(plain)

    def seen(*options):
        capture = Capture()
        done = smbclient("docs", f"put {path('plain')} plain; get plain {path('got')}; rm plain", *options)
        found = capture.end()
        must("the file passes", done[0] == 0, done)
        return plain[:44] in found, b"\xfdSMB" in found

    must("no plaintext is on the wire", seen() == (False, True))
    share("share_put", encryption="desired")
    found = seen("-m", "SMB2_10")
    must("the capture sees plaintext where a record allows it", found[0], found)
    share("share_put")


def refuse_or_keep_names():
    names = ["-x", "Größe #1 '(alt) {b}", "$x`y", "a/b", "a%U", 'a"b', "a\nb", "[x]", "global", "x" * 81, " x", "ü" * 41]
    kept = []
    for name in names:
        answer = share("share_put", number=9, name=name)
        if is_put(answer):
            found = [each["name"] for each in listed() if each["mark"] == mark(9)]
            must(f"{name!r} is kept as it is", found == [name], found)
            kept.append(name)
        else:
            must(f"{name!r} is refused", answer[1]["code"] in ("bad_order", "bad_path"), answer)
    must("names of letters and signs are kept", "Größe #1 '(alt) {b}" in kept and "-x" in kept, kept)
    probed = state_of(share("share_probe", number=9, name=kept[-1]))
    must("the last of them is up", probed["state"] == "up", probed)
    code, text = smbclient(kept[-1], "ls")
    must("and a client connects to it", code == 0, text)
    share("share_remove", number=9)
    for folder in ("ä #;=[b] $HOME", "x%U", 'q"', "b\\c", "outer ", "-n"):
        os.makedirs(path("volume", folder), exist_ok=True)
        answer = share("share_put", number=9, name="odd", folder=folder)
        if is_put(answer):
            found = [each["path"] for each in listed() if each["mark"] == mark(9)]
            must(f"folder {folder!r} is kept as it is", found == [path("volume", folder)], found)
        else:
            must(f"folder {folder!r} is refused", answer[1]["code"] in ("bad_order", "bad_path"), answer)
    share("share_remove", number=9)
    os.symlink("/etc", path("volume", "link"))
    refused = share("share_put", number=9, name="odd", folder="link")
    must("a folder behind a link is refused", is_refused(refused, "bad_path"), refused)
    refused = share("share_put", number=9, name="odd", users={"no-such-user": "read-only"})
    must("an unknown account is refused", is_refused(refused, "no_account", "no-such-user"), refused)


def serve_time_machine():
    """A share for Time Machine: testparm reads its modules and its bound, and a client of ours uses it. No Mac is here."""
    fields = {"number": 6, "name": "Backups", "folder": "backups"}
    os.makedirs(path("volume", "backups"))
    os.chmod(path("volume", "backups"), 0o777)
    answer = share("share_put", time_machine_bytes=1 << 40, **fields)
    must("a share for Time Machine is put", is_put(answer) and answer[0]["is_changed"], answer)
    code, text = run("testparm", "-s", samba.conf)
    section = text.split("[Backups]")[1].split("\n[")[0]
    wanted = ("vfs objects = fruit streams_xattr acl_xattr", "fruit:time machine = yes", "fruit:time machine max size = 1099511627776",
              "server smb encrypt = required")
    must("testparm reads its modules and its bound", code == 0 and "Unknown parameter" not in text
         and all(line in section for line in wanted), text)
    done = smbclient("Backups", f"put {path('sent')} a; mkdir d; get a {path('got')}; rm a; rmdir d")
    must("a client writes and reads there", done[0] == 0, done)
    answer = share("share_put", time_machine_bytes=1 << 40, **fields)
    must("a second order changes nothing", is_put(answer) and not answer[0]["is_changed"], answer)
    share("share_put", **fields)
    must("without Time Machine its parameters are gone", "fruit" not in net("showshare", "Backups")[1], net("showshare", "Backups"))
    share("share_remove", number=6)


def is_closed(name):
    code, text = net("showshare", "--", name)
    return code != 0 or "available = no" in text or "available" not in text


def die_in_the_midst():
    line = json.dumps({"lock": path("volume.lock"), "operation": {
        "do": "share_put", "volume": volume, "mark": mark(8), "record": record(name="killed"), "servers": servers}})
    closed = 0
    for pause in (0.3, 0.5, 0.8):
        # A group of its own: the program that it runs dies with it.
        child = subprocess.Popen([WORKER], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
        child.stdin.write(line.encode() + b"\n")
        child.stdin.close()
        time.sleep(pause)
        child.kill()
        child.wait()
        time.sleep(0.3)
        text = net("showshare", "killed")[1]
        is_whole = "valid users" in text and "server smb encrypt = required" in text
        closed += is_closed("killed")
        must(f"killed after {pause} s: closed or whole", is_closed("killed") or is_whole, text)
        share("share_remove", number=8)
    answer = share("share_put", number=8, name="killed")
    must(f"an order behind the deaths is carried out ({closed} of 3 died before the end)", is_put(answer), answer)
    answer = share("share_put", number=8, name="renamed")
    names = [each["name"] for each in listed() if each["mark"] == mark(8)]
    must("another name replaces the section", is_put(answer) and names == ["renamed"], names)
    share("share_put", number=8, name="renamed", desired="off")
    must("a share that is off has no section", not [each for each in listed() if each["mark"] == mark(8)])


def grant_a_group():
    group = grp.getgrgid(pwd.getpwnam(USER).pw_gid).gr_name
    answer = share("share_put", number=8, name="group", users={}, groups={group: "read-only"})
    must(f"group {group} is granted", is_put(answer), answer)
    must("a member reads", smbclient("group", "ls")[0] == 0)
    must("and does not write", smbclient("group", f"put {path('sent')} b")[0] != 0)
    share("share_put", number=8, name="group", users={"root": "read-only"})
    must("without the group the member is refused", smbclient("group", "ls")[0] != 0)
    answer = share("share_put", number=8, name="group", users={})
    must("without a grant the share is closed", is_put(answer) and is_closed("group"), answer)
    share("share_remove", number=8)


def change_and_remove(foreign):
    client = Connected(samba, "docs")
    client.say("ls")
    found = None

    def is_listed():
        nonlocal found
        found = share("share_sessions")[0]["sessions"]
        return len(found) == 1

    must("the client is listed", eventually(is_listed), found)
    session = found[0]
    is_it = session["user"] == USER and session["client"] == "127.0.0.1" and session["dialect"].startswith("SMB3")
    must("with its account, version and cipher", is_it and session["cipher"], session)
    answer = share("share_put", users={USER: "read-only"})
    must("a grant is narrowed", is_put(answer) and answer[0]["is_changed"], answer)
    client.say(f"put {path('sent')} late")
    time.sleep(0.5)
    client.end()
    must("a client that was connected before writes no more", not os.path.exists(path("volume", "late")))
    must("a new one reads and does not write", smbclient("docs", "ls")[0] == 0
         and smbclient("docs", f"put {path('sent')} late")[0] != 0)
    client = Connected(samba, "docs")
    client.say("ls")
    must("a client is connected", eventually(is_listed), found)
    answer = share("share_remove", number=7)
    must("another mark removes nothing", is_put(answer) and not answer[0]["is_changed"] and not is_closed("docs"), answer)
    before = time.monotonic()
    answer = share("share_remove")
    must("the share is removed", is_put(answer) and answer[0]["is_changed"], answer)
    must("a client is refused within 3 s", eventually(lambda: smbclient("docs", "ls")[0] != 0, 3)
         and time.monotonic() - before < 3, time.monotonic() - before)
    client.say("ls")
    text = client.end()
    must("one that was connected has lost it", "NETWORK_NAME_DELETED" in text or "CONNECTION" in text, text)
    probed = state_of(share("share_probe"))
    must("the probe says down, and why", (probed["state"], probed["step"]) == ("down", "configuration"), probed)
    must("the section of others is untouched", net("showshare", "Photos") == foreign)
    answer = share("share_remove")
    must("a second removal changes nothing", is_put(answer) and not answer[0]["is_changed"], answer)


def smb():
    samba.make_folders()
    os.makedirs(path("other"))
    write_smb_conf()
    samba.add_password()
    os.chmod(path("volume"), 0o777)
    refuse_settings()
    foreign = refuse_foreign()
    server = samba.start()
    serve_and_use()
    serve_time_machine()
    refuse_clients()
    capture_nothing()
    refuse_or_keep_names()
    grant_a_group()
    die_in_the_midst()
    change_and_remove(foreign)
    end(server)
    probed = share("share_put") and state_of(share("share_probe"))
    must("without a server the probe names the connection", probed.get("step") == "connection", probed)
    share("share_remove")


# --- NFS -----------------------------------------------------------------------------------------------------------


def nfs(program, *words):
    return run(program, *words)


def url(*names):
    return f"nfs://127.0.0.1{path('volume', 'nfs', *names)}?version=4"


def ganesha():
    service = Ganesha()
    blocks = service.blocks
    os.makedirs(path("volume", "nfs"), exist_ok=True)
    os.chmod(path("volume", "nfs"), 0o777)
    service.write_conf()
    servers["nfs"] = service.settings
    here = {"127.0.0.1": "read-write"}
    fields = {"folder": "nfs", "protocols": ["nfs"]}
    refused = share("share_put", networks=here, **fields)
    line = f'%dir "{blocks}"'
    must("no export where the folder is not read", is_refused(refused, "server_settings", line), refused)
    written = service.write_conf(line)
    server = service.start()
    answer = share("share_put", networks=here, **fields)
    must("the export is put", is_put(answer) and answer[0]["is_changed"] and not answer[0]["notes"], answer)
    must("a client lists it", eventually(lambda: nfs("nfs-ls", url())[0] == 0, 3))
    probed = state_of(share("share_probe", networks=here, **fields), "nfs")
    must("the probe says up", probed["state"] == "up", probed)
    answer = share("share_put", networks=here, **fields)
    must("a second order changes nothing", is_put(answer) and not answer[0]["is_changed"], answer)
    # libnfs 4.0 sends no write of 4,096 bytes or more over NFS 4; it reads more.
    for name, count, folder in (("f", 3_000, FOLDER), ("large", 200_000, path("volume", "nfs"))):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(random.randbytes(count))
    must("a client writes", nfs("nfs-cp", path("f"), url("f"))[0] == 0)
    for name, folder in (("f", FOLDER), ("large", path("volume", "nfs"))):
        os.chmod(path("volume", "nfs", name), 0o644)
        must("a client reads", nfs("nfs-cp", url(name), path(f"{name}-got"))[0] == 0)
        with open(os.path.join(folder, name), "rb") as sent, open(path(f"{name}-got"), "rb") as got:
            must("the bytes are the same", sent.read() == got.read())
    must("what was written is in the volume", os.path.getsize(path("volume", "nfs", "f")) == 3_000)
    own = {each["path"]: each["mark"] for each in listed() if each["protocol"] == "nfs"}
    must("the list tells own exports from others", own == {path("volume", "nfs"): mark(1), path("other-export"): None}, own)
    share("share_put", networks={"127.0.0.1": "read-only"}, **fields)
    must("a grant to read lets nobody write", eventually(lambda: nfs("nfs-cp", path("f"), url("g"))[0] != 0, 3)
         and nfs("nfs-ls", url())[0] == 0)
    share("share_put", networks={"10.0.0.0/8": "read-write"}, **fields)
    must("a host without a grant sees nothing", eventually(lambda: nfs("nfs-ls", url())[0] != 0, 3))
    probed = state_of(share("share_probe", networks={"10.0.0.0/8": "read-write"}, **fields), "nfs")
    must("the probe says that this host was not granted it", probed["state"] == "answers", probed)
    answer = share("share_put", networks={}, **fields)
    must("without a grant there is no export", is_put(answer) and os.listdir(blocks) == [], answer)
    share("share_put", networks=here, **fields)
    must("a client lists it again", eventually(lambda: nfs("nfs-ls", url())[0] == 0, 3))
    answer = share("share_remove")
    must("the export is removed", is_put(answer) and answer[0]["is_changed"], answer)
    must("a client is refused within 3 s", eventually(lambda: nfs("nfs-ls", url())[0] != 0, 3))
    must("the export of others is there", nfs("nfs-ls", "nfs://127.0.0.1/other?version=4")[0] == 0)
    with open(service.conf) as file:
        must("the configuration of others is untouched", file.read() == written)
    exported = []

    def nfs_call_sees(folder):
        return nfs("nfs-ls", f"nfs://127.0.0.1{path('volume', folder)}?version=4")[0] == 0

    for folder in ("plain", "ä b#;{}=", "it's", 'it"s', "a\\b", "'\""):
        os.makedirs(path("volume", folder), exist_ok=True)
        answer = share("share_put", number=3, networks=here, folder=folder, protocols=["nfs"])
        if is_put(answer):
            seen = None

            def is_up():
                nonlocal seen
                seen = state_of(share("share_probe", number=3, networks=here, folder=folder, protocols=["nfs"]), "nfs")
                return seen["state"] == "up"

            must(f"folder {folder!r} is exported as it is", eventually(is_up, 3), seen)
            left = [name for name in exported if nfs_call_sees(name)]
            must("the folder of before is exported no more", left == [], left)
            must("a client lists it", nfs_call_sees(folder)) if folder == "plain" else None
            exported.append(folder)
        else:
            must(f"folder {folder!r} is refused", is_refused(answer, "bad_path"), answer)
    share("share_remove", number=3)
    end(server)
    share("share_put", networks=here, **fields)
    probed = state_of(share("share_probe", networks=here, **fields), "nfs")
    must("without a server the probe names the connection", probed.get("step") == "connection", probed)
    share("share_remove")
    servers.pop("nfs")


def kernel():
    """Files and table of exports alone: a server of the kernel is not started."""
    os.makedirs(path("volume", "nfs"), exist_ok=True)
    for folder in ("/etc/exports.d", "/var/lib/nfs"):
        if not os.path.isdir(folder):
            print(f"skipped: exports of the kernel (no {folder}, and none is made)", flush=True)
            return
        run("mount", "-t", "tmpfs", "none", folder)
    for name in ("etab", "rmtab"):
        open(f"/var/lib/nfs/{name}", "w").close()
    os.makedirs(path("other-kernel"))
    code, text = run("exportfs", "-o", "ro,no_subtree_check", f"192.0.2.7:{path('other-kernel')}")
    must("another export is there, by hand", code == 0, text)
    servers["nfs"] = {"by": "kernel", "exports_dir": "/etc/exports.d"}
    fields = {"folder": "nfs", "protocols": ["nfs"]}

    def exports():
        return sorted((each["path"], each["name"], each["mark"]) for each in listed() if each["protocol"] == "nfs")

    other = (path("other-kernel"), "192.0.2.7", None)
    own = lambda client: (path("volume", "nfs"), client, mark(1))
    answer = share("share_put", networks={"10.0.0.0/8": "read-write", "2001:db8::/32": "read-only"}, **fields)
    must("the export is put", is_put(answer) and answer[0]["is_changed"], answer)
    must("exportfs lists it beside the other", exports() == sorted([other, own("10.0.0.0/8"), own("2001:db8::/32")]), exports())
    answer = share("share_put", networks={"2001:db8::/32": "read-only"}, **fields)
    must("a client is taken away", is_put(answer) and exports() == sorted([other, own("2001:db8::/32")]), exports())
    answer = share("share_put", networks={"2001:db8::/32": "read-only"}, **fields)
    must("a second order changes nothing", is_put(answer) and not answer[0]["is_changed"], answer)
    answer = share("share_put", networks={"2001:db8::/32": "read-only"}, protocols=["nfs"])
    moved = (path("volume"), "2001:db8::/32", mark(1))
    must("another folder takes the place of the old one", is_put(answer) and exports() == sorted([other, moved]), exports())
    share("share_put", networks={"2001:db8::/32": "read-only"}, **fields)
    with open("/etc/exports.d/" + os.listdir("/etc/exports.d")[0]) as file:
        must("the file has what a start of the server exports", "2001:db8::/32(ro," in file.read())
    run("exportfs", "-o", "ro,no_subtree_check", f"192.0.2.8:{path('other')}")
    refused = share("share_put", number=3, name="x", networks={"10.0.0.0/8": "read-only"}, **fields)
    must("a folder that another share exports is refused", is_refused(refused, "foreign_data"), refused)
    answer = share("share_remove")
    must("the export is removed", is_put(answer) and os.listdir("/etc/exports.d") == [], answer)
    must("the others are there", other in exports() and not [each for each in exports() if each[2]], exports())
    servers.pop("nfs")


def main():
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    random.seed(7)
    if "volume" in PARTS:
        make_volume()
    else:
        os.makedirs(path("volume"))
    os.makedirs(path("other"), exist_ok=True) if "smb" not in PARTS else None
    for name, part in (("smb", smb), ("ganesha", ganesha), ("kernel", kernel)):
        if name in PARTS:
            print(f"\n== {name} ({time.monotonic() - started:.0f} s)", flush=True)
            part()
    run("umount", path("volume"))


main()

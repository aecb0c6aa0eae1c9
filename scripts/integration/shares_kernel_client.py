"""Shares of a daemon that nfsd serves and that clients of the kernel mount; quotas of XFS; the cost of the way on slow disks.

shares_kernel_client.py DOLMEN FOLDER LOG PART...: as root, on a machine that nothing else is done on. PART is `clone`, `quota`, `fio` or
`postgres`, and `smb` where Samba is there. Each check says what holds; the first that does not ends the program with 1.
"""

import ctypes
import glob
import json
import os
import pwd
import subprocess

from shares_orders import do, document, dolmen, start_daemon
from shares_rig import MIB, PARTS, PASSWORD, USER
from shares_rig import Samba, at_failure, end, eventually, log, must, path, run

QUOTA = 64 * MIB
DELAY = int(os.environ.get("DOLMEN_KERNEL_DELAY", "40"))
SECONDS = int(os.environ.get("DOLMEN_KERNEL_SECONDS", "30"))
HERE = "127.0.0.1"
# The root that mountd sees, and the folder of volumes, which both roots have.
ROOT, VOLUMES = "/nfsroot", "/volumes"
libc = ctypes.CDLL(None, use_errno=True)
samba = Samba("one")
has_smb = "smb" in PARTS


def write_servers():
    servers = {"nfs": {"by": "kernel", "exports_dir": "/etc/exports.d"}}
    if has_smb:
        servers["smb_conf"] = samba.conf
    with open(path("servers.json"), "w") as file:
        json.dump(servers, file)
    return path("servers.json")


def make_root():
    """A file system that nfsd can export from its root on: the one of this machine may be a layer in memory, which it cannot."""
    with open(path("root.image"), "wb") as file:
        file.truncate(64 * MIB)
    must("the root of NFS is made", run("mkfs.ext4", "-q", path("root.image"))[0] == 0)
    for folder in (ROOT, VOLUMES):
        os.makedirs(folder, exist_ok=True)
    run("mount", "--make-rshared", "/")
    must("it is mounted", run("mount", "-o", "loop", path("root.image"), ROOT)[0] == 0)
    os.makedirs(ROOT + VOLUMES)
    run("mount", "--bind", ROOT + VOLUMES, VOLUMES)
    for folder in ("bin", "sbin", "lib", "lib64", "usr", "etc", "var", "proc", "sys", "dev", "run"):
        if os.path.exists(f"/{folder}"):
            os.makedirs(f"{ROOT}/{folder}")
            run("mount", "--rbind", os.path.realpath(f"/{folder}"), f"{ROOT}/{folder}")


def start_nfsd():
    make_root()
    os.makedirs("/etc/exports.d", exist_ok=True)
    os.makedirs("/var/lib/nfs/v4recovery", exist_ok=True)
    if not os.path.exists("/proc/fs/nfsd/threads"):
        run("mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
    for folder in ("sm", "sm.bak", "rpc_pipefs"):
        os.makedirs(f"/var/lib/nfs/{folder}", exist_ok=True)
    run("rpcbind", "-w")
    done = run("rpc.nfsd", "4")
    must("nfsd runs", done[0] == 0, done)
    done = run("chroot", ROOT, "/usr/sbin/rpc.mountd")
    must("mountd runs", done[0] == 0, done)


def mount(source, target, kind, options):
    os.makedirs(target, exist_ok=True)
    if kind == "nfs":
        return run("mount", "-t", "nfs", "-o", options, source, target)[0] == 0
    done = libc.mount(source.encode(), target.encode(), kind.encode(), 0, options.encode())
    log.write(f"\nmount {source} {target} {kind} {options.replace(PASSWORD, '...')}: {ctypes.get_errno() if done else 'ok'}\n".encode())
    return done == 0


def mount_nfs(source, target, version):
    options = f"vers={version},soft,timeo=600,retrans=2" + (",nolock" if version == "3" else "")
    must(f"a client mounts by NFS {version}", eventually(lambda: mount(f"{HERE}:{source}", target, "nfs", options), 60))


def mount_smb(name, target):
    options = f"ip={HERE},unc=\\\\{HERE}\\{name},user={USER},pass={PASSWORD},vers=3.1.1,seal,uid=0,gid=0"
    must("a client of the kernel mounts by SMB, encrypted", eventually(lambda: mount(f"//{HERE}/{name}", target, "cifs", options), 60))


def unmount(target):
    must(f"{os.path.basename(target)} is unmounted", eventually(lambda: run("umount", target)[0] == 0, 60), is_shown=False)


def make_volume(name="home"):
    for disk in ("d0", "d1"):
        with open(path(disk), "wb") as file:
            file.truncate(1536 * MIB)
    do("pool", "create", "tank", path("d0"), path("d1"))
    do("volume", "create", f"tank/{name}", "--for", "files", "--fs", "xfs", "--size", "640M", "--mount", f"{VOLUMES}/{name}")


def claimed():
    os.sync()
    return document("space", "show", "tank/home")["space"]["claimed_bytes"]


# --- parts ---------------------------------------------------------------------------------------------------------


def clone():
    folder = f"{VOLUMES}/home/images"
    os.makedirs(folder)
    os.chmod(folder, 0o777)
    do("share", "create", "tank/home", "--path", "images", "--name", "images", "--nfs", f"{HERE}:rw")
    at = path("nfs", "four")
    mount_nfs(folder, at, "4.2")
    content = os.urandom(24 * MIB)
    with open(f"{at}/golden", "wb") as file:
        file.write(content)
        os.fsync(file.fileno())
    before = claimed()
    for number in range(5):
        done = run("cp", "--reflink=always", f"{at}/golden", f"{at}/clone{number}")
        must(f"clone {number} over NFS 4.2 succeeds", done[0] == 0, done, is_shown=number == 4)
    after = claimed()
    must(f"five clones of 24 MiB claim no row: {before} bytes before, {after} after", after <= before, is_shown=True)
    with open(f"{folder}/clone3", "rb") as file:
        must("a clone has the content", file.read() == content)
    with open(f"{at}/clone1", "r+b") as file:
        file.write(b"changed")
    with open(f"{folder}/golden", "rb") as file:
        must("a change of a clone leaves its source", file.read(7) == content[:7])
    unmount(at)
    at = path("nfs", "three")
    mount_nfs(folder, at, "3")
    must("NFS 3 lists", sorted(os.listdir(at))[-1] == "golden")
    with open(f"{at}/by-three", "wb") as file:
        file.write(content[:MIB])
    with open(f"{folder}/by-three", "rb") as file:
        must("NFS 3 writes", file.read() == content[:MIB])
    unmount(at)
    do("share", "delete", "tank/home", "images")
    must("deleted, a client is refused", not mount(f"{HERE}:{folder}", at, "nfs", "vers=4.2,soft,retry=0"))


def fill(target, chunk=256 * 1024):
    """Writes a file until it is refused; bytes that it holds then."""
    block = os.urandom(chunk)
    file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        while os.fstat(file).st_size < 2 * QUOTA:
            os.write(file, block)
            os.fsync(file)
    except OSError:
        pass
    finally:
        try:
            os.close(file)
        except OSError:
            pass
    return os.stat(target).st_size


def quota():
    folder = f"{VOLUMES}/home/docs"
    do("volume", "quota", "set", "tank/home", "docs", f"{QUOTA // MIB}M")
    os.chmod(folder, 0o777)
    stat = os.statvfs(folder)
    must(f"the folder shows its bound as its size: {stat.f_blocks * stat.f_frsize} bytes", stat.f_blocks * stat.f_frsize == QUOTA)
    held = fill(f"{folder}/local")
    must(f"written here, the bound refuses at {held / MIB:.2f} MiB", abs(held - QUOTA) <= MIB)
    os.unlink(f"{folder}/local")
    do("share", "create", "tank/home", "--path", "docs", "--smb", "docs", "--grant", f"{USER}:rw")
    at = path("smb", "docs")
    mount_smb("docs", at)
    stat = os.statvfs(at)
    must(f"over SMB the share has that size: {stat.f_blocks * stat.f_frsize} bytes", abs(stat.f_blocks * stat.f_frsize - QUOTA) <= MIB)
    fill(f"{at}/remote")
    os.sync()
    held = os.stat(f"{folder}/remote").st_size
    must(f"written over SMB, the bound refuses at {held / MIB:.2f} MiB", held <= QUOTA + MIB and held >= QUOTA - MIB, held)
    os.unlink(f"{at}/remote")
    with open(f"{at}/again", "wb") as file:
        file.write(b"x" * MIB)
    must("behind that, there is room again", os.path.getsize(f"{folder}/again") == MIB)
    code, text = dolmen("volume", "quota", "set", "tank/home", "docs", "512K")
    must("a bound below what is held is taken or refused with both figures", code == 0 or "MiB" in text, text)
    unmount(at)
    do("share", "delete", "tank/home", "docs")


def slow_disks():
    """Disks of the kernel's memory behind a delay of each command."""
    names = []
    run("modprobe", "-r", "brd")
    must("disks in memory", run("modprobe", "brd", "rd_nr=2", f"rd_size={640 * 1024}")[0] == 0)
    for number in range(2):
        sectors = 640 * 2048
        name = f"dolmen-slow{number}"
        done = run("dmsetup", "create", name, "--table", f"0 {sectors} delay /dev/ram{number} 0 {DELAY}")
        must(f"disk {number} takes {DELAY} ms for a command", done[0] == 0, done, is_shown=number == 0)
        run("dmsetup", "mknodes")
        names.append(f"/dev/mapper/{name}")
    return names


def busy():
    with open("/proc/stat") as file:
        numbers = [int(word) for word in file.readline().split()[1:9]]
    return sum(numbers), numbers[3] + numbers[4]


def fio(folder):
    """IO/s of 8K requests, 67 % reads, and the share of the processors that was busy."""
    all_before, idle_before = busy()
    done = subprocess.run(["fio", "--name=x", f"--directory={folder}", "--rw=randrw", "--rwmixread=67", "--bs=8k", "--size=32m",
                           "--direct=1", "--ioengine=psync", "--fallocate=none", "--time_based", f"--runtime={SECONDS}",
                           "--numjobs=2", "--group_reporting", "--output-format=json"], capture_output=True, timeout=20 * SECONDS + 600)
    log.write(done.stdout + done.stderr)
    must(f"fio ends well in {os.path.basename(folder)}", done.returncode == 0, done.stderr, is_shown=False)
    job = json.loads(done.stdout[done.stdout.index(b"{"):])["jobs"][0]
    all_after, idle_after = busy()
    return job["read"]["iops"] + job["write"]["iops"], 1 - (idle_after - idle_before) / (all_after - all_before)


def pool_on_slow_disks():
    do("pool", "create", "slow", *slow_disks())
    do("volume", "create", "slow/home", "--for", "files", "--fs", "xfs", "--size", "400M", "--mount", f"{VOLUMES}/slow")
    folder = f"{VOLUMES}/slow/load"
    os.makedirs(folder)
    os.chmod(folder, 0o777)
    return folder


def compare(what, local, remote):
    (here, here_busy), (there, there_busy) = local, remote
    print(f"   | {what}: {here:.1f} a second here, {there:.1f} there, ratio {there / here:.3f}; processors "
          f"{here_busy:.0%} and {there_busy:.0%} busy", flush=True)


def load_on_shares(folder):
    do("share", "create", "slow/home", "--path", "load", "--name", "load", "--nfs", f"{HERE}:rw")
    at = path("nfs", "slow")
    mount_nfs(folder, at, "4.2")
    fio(folder)
    rounds = [(fio(folder), fio(at)) for _ in range(2)]
    for number, (local, remote) in enumerate(rounds):
        compare(f"fio 8K 67/33 over NFS, round {number}", local, remote)
    unmount(at)
    if has_smb:
        do("share", "create", "slow/home", "--path", "load", "--smb", "fast", "--grant", f"{USER}:rw")
        at = path("smb", "slow")
        mount_smb("fast", at)
        for number, (local, remote) in enumerate([(fio(folder), fio(at)) for _ in range(2)]):
            compare(f"fio 8K 67/33 over SMB, round {number}", local, remote)
        unmount(at)


def as_postgres(*words):
    user = pwd.getpwnam("postgres")
    ended = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=1200, user=user.pw_uid, group=user.pw_gid,
                           extra_groups=[], cwd="/", env={"PATH": os.environ["PATH"], "HOME": "/tmp", "LC_ALL": "C"})
    log.write(f"\n$ {words}\n".encode() + ended.stdout + ended.stderr)
    return ended.returncode, ended.stdout.decode(errors="replace")


def transactions(programs, data):
    """Transactions a second of pgbench on the database in a folder."""
    options = f"-k {path('pg')} -c listen_addresses= -c fsync=on -c max_wal_size=256MB"
    started = as_postgres(f"{programs}/pg_ctl", "-w", "-t", "300", "-D", data, "-l", path("pg", "log"), "-o", options, "start")
    must("PostgreSQL starts", started[0] == 0, started, is_shown=False)
    all_before, idle_before = busy()
    code, text = as_postgres("pgbench", "-h", path("pg"), "-n", "-c", "2", "-T", str(SECONDS), "postgres")
    all_after, idle_after = busy()
    must("pgbench ends well", code == 0, text, is_shown=False)
    stopped = as_postgres(f"{programs}/pg_ctl", "-w", "-t", "300", "-D", data, "stop")
    must("PostgreSQL stops", stopped[0] == 0, stopped, is_shown=False)
    lines = [line for line in text.splitlines() if line.startswith("tps = ")]
    return float(lines[-1].split()[2]), 1 - (idle_after - idle_before) / (all_after - all_before)


def postgres(folder):
    programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
    user = pwd.getpwnam("postgres")
    os.makedirs(path("pg"))
    os.chown(path("pg"), user.pw_uid, user.pw_gid)
    for above in (path(), os.path.dirname(path())):
        os.chmod(above, os.stat(above).st_mode | 0o111)
    data = f"{folder}/db"
    done = as_postgres(f"{programs}/initdb", "-D", data, "--no-sync", "-A", "trust", "-U", "postgres")
    must("a database is made on the volume", done[0] == 0, done)
    options = f"-k {path('pg')} -c listen_addresses="
    as_postgres(f"{programs}/pg_ctl", "-w", "-t", "300", "-D", data, "-l", path("pg", "log"), "-o", options, "start")
    done = as_postgres("pgbench", "-h", path("pg"), "-i", "-s", "1", "postgres")
    must("it is filled", done[0] == 0, done)
    as_postgres(f"{programs}/pg_ctl", "-w", "-t", "300", "-D", data, "stop")
    at = path("nfs", "db")
    mount_nfs(folder, at, "4.2")
    for number, (local, remote) in enumerate([(transactions(programs, data), transactions(programs, f"{at}/db")) for _ in range(2)]):
        compare(f"PostgreSQL over NFS, round {number}", local, remote)
    unmount(at)


def main():
    if has_smb:
        samba.make_folders()
        samba.write_conf()
        samba.add_password()
        server = samba.start()
    start_nfsd()
    os.makedirs(path("state"))
    daemon = start_daemon(path("state"), write_servers(), 60)
    at_failure.append(lambda: log.write(dolmen("events")[1].encode()))
    if {"clone", "quota"} & set(PARTS):
        make_volume()
    if "clone" in PARTS:
        clone()
    if "quota" in PARTS:
        quota()
    if {"fio", "postgres"} & set(PARTS):
        folder = pool_on_slow_disks()
        if "fio" in PARTS:
            load_on_shares(folder)
        if "postgres" in PARTS:
            if "fio" not in PARTS:
                do("share", "create", "slow/home", "--path", "load", "--name", "load", "--nfs", f"{HERE}:rw")
            postgres(folder)
    daemon.terminate()
    must("the daemon ends", daemon.wait(120) == 0)
    if has_smb:
        end(server)
        run("umount", "-l", samba.folder)
    run("rpc.nfsd", "0")
    run("exportfs", "-f")
    for folder in (VOLUMES, ROOT):
        run("umount", "-R", "-l", folder)


main()

"""One and eight instances of PostgreSQL, each on a volume of its own in one pool, on disks of a fixed service time.

The same comes first on eight file systems of one such disk without a pool: what the disks, the machine and PostgreSQL themselves allow.
Where that reaches the ratio, busy processors excuse no pool.
"""

import glob
import os
import pwd
import re
import signal
import subprocess
import time

import delay
import processors
import rig

INSTANCES = 8
CLIENTS = 2
SCALE = 2
SIZE_GIB = 2
RATIO = 7.6
BUSY_PERCENT = 90.0
WARM_UP_S = 5
SERVER = ("listen_addresses=", "fsync=on", "shared_buffers=32MB", "max_wal_size=512MB", "checkpoint_timeout=30min")


class Instance:
    """A server on a mounted file system, and pgbench as its client."""

    def __init__(self, programs, user, mount):
        self.programs, self.user, self.mount = programs, user, mount
        self.socket = os.path.join(rig.RUN, "pg", os.path.basename(mount))
        self.data = os.path.join(mount, "db")
        for folder in (self.data, self.socket):
            os.makedirs(folder)
            os.chown(folder, user.pw_uid, user.pw_gid)
        self.run("initdb", "-D", self.data, "--no-sync", "-A", "trust", "-U", "postgres")
        settings = [word for setting in SERVER for word in ("-c", setting)]
        with open(f"{self.socket}.log", "wb") as log:
            self.server = self.begin("postgres", "-D", self.data, "-k", self.socket, *settings, stdout=log, stderr=log)
        self.wait_ready()
        self.run("pgbench", "-h", self.socket, "-i", "-q", "-s", str(SCALE), "postgres")

    def begin(self, program, *words, **options):
        """Starts a program of PostgreSQL as its user."""
        return subprocess.Popen([os.path.join(self.programs, program), *words], stdin=subprocess.DEVNULL, user=self.user.pw_uid,
                                group=self.user.pw_gid, extra_groups=[], cwd="/", env={"LC_ALL": "C", "PATH": os.environ["PATH"]},
                                **options)

    def run(self, program, *words):
        """Runs a program of PostgreSQL as its user; returns its output."""
        process = self.begin(program, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return self.output(process)

    def output(self, process):
        """Waits for a program; returns its output."""
        out, errors = process.communicate()
        if process.returncode != 0:
            rig.fail(f"{' '.join(process.args)} ended with {process.returncode}: {(out + errors).decode(errors='replace')[-2000:]}")
        return out.decode()

    def wait_ready(self):
        """Waits until the server answers."""
        for _ in range(600):
            ready = self.begin("pg_isready", "-q", "-h", self.socket)
            if ready.wait() == 0:
                return
            if self.server.poll() is not None:
                break
            time.sleep(0.1)
        with open(f"{self.socket}.log", encoding="utf-8", errors="replace") as log:
            rig.fail(f"the server on {self.mount} does not answer: {log.read()[-2000:]}")

    def sql(self, text):
        """Runs a statement; returns its output."""
        return self.run("psql", "-h", self.socket, "-Atqc", text, "postgres").strip()

    def begin_load(self, seconds):
        """Starts the client."""
        return self.begin("pgbench", "-h", self.socket, "-n", "-c", str(CLIENTS), "-T", str(seconds), "postgres",
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def end_load(self, client):
        """Waits for the client; returns transactions a second and their mean latency in ms."""
        text = self.output(client)
        rate, latency = re.search(r"^tps = ([0-9.]+)", text, re.M), re.search(r"^latency average = ([0-9.]+) ms", text, re.M)
        failed = re.search(r"^number of failed transactions: ([0-9]+)", text, re.M)
        if not rate or not latency or (failed and int(failed.group(1))):
            rig.fail(f"pgbench on {self.mount} says: {text}")
        return float(rate.group(1)), float(latency.group(1))

    def end(self):
        """Ends the server; its database has to be as whole as pgbench leaves it."""
        sums = self.sql("SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)")
        if sums != "t":
            rig.fail(f"the balances on {self.mount} are not those of its history")
        self.server.send_signal(signal.SIGINT)
        if self.server.wait(300) != 0:
            rig.fail(f"the server on {self.mount} ended with {self.server.returncode}")


def measure(instances, disks, seconds):
    """Loads some instances at one time; returns transactions a second in all, mean latency, and what processors and disks did."""
    for instance in instances:
        instance.sql("CHECKPOINT")
        rig.run("sync", "-f", instance.mount)
    disks.wait_idle()
    disks.set(rig.setting("delay"))
    watch = processors.Watch(daemon=[int(os.environ["BARS_DAEMON"])], servers=[instance.server.pid for instance in instances],
                             disks=disks.pids())
    clients = [instance.begin_load(seconds) for instance in instances]
    seen = [instance.end_load(client) for instance, client in zip(instances, clients)]
    busy, used = watch.result()
    return sum(rate for rate, _ in seen), sum(latency for _, latency in seen) / len(seen), busy, used, disks.set(0)


def show(label, figures):
    """Prints the figures of a load."""
    rate, latency, busy, used, disks = figures
    rig.bar(f"{label}: transactions a second, mean latency", f"{rate:.1f}, {latency:.1f} ms", "-", None)
    rig.bar(f"{label}: processors busy", ", ".join(f"{share:.0f} %" for share in busy), "-", None)
    rig.bar(f"{label}: of one processor", f"daemon {100 * used['daemon']:.0f} %, PostgreSQL {100 * used['servers']:.0f} %, processes of "
            f"the disks {100 * used['disks']:.0f} %", "-", None)
    rig.bar(f"{label}: requests of the disks", f"{disks['count']}, {disks['mean_ms']:.1f} ms in the mean, {disks['longest_ms']:.0f} ms the "
            f"longest, {disks['most']} at one time on a disk", "-", None)


def compare(instances, disks, label):
    """Measures one and all of them; prints the figures, and returns the ratio, and what is said of processors that bound it."""
    measure(instances, disks, WARM_UP_S)
    one, all_of_them = (measure(some, disks, rig.setting("seconds")) for some in (instances[:1], instances))
    show(f"{label}, 1 instance", one)
    show(f"{label}, {len(instances)} instances", all_of_them)
    for instance in instances:
        instance.end()
    busy, used = all_of_them[2:4]
    bound = f"; all processors are > {BUSY_PERCENT:.0f} % busy, {100 * sum(used.values()):.0f} % of one by the processes above"
    return all_of_them[0] / one[0], bound if min(busy) > BUSY_PERCENT else ""


def on_volumes(programs, user, reached):
    """Measures on volumes of one pool, after the ratio that was reached without one."""
    disks = delay.Disks()
    pool = rig.Pool(disk_gib=INSTANCES * SIZE_GIB + 8, over_loop=True, make_loop=disks.loop_over)
    mounts = [os.path.join(rig.RUN, "mnt", f"v{number}") for number in range(INSTANCES)]
    volumes = [pool.volume(os.path.basename(mount), "database", f"{SIZE_GIB}G", resiliency="mirror", mount=mount) for mount in mounts]
    ratio, bound = compare([Instance(programs, user, mount) for mount in mounts], disks, "volumes")
    met = True if ratio >= RATIO else None if bound and reached < RATIO else False
    rig.bar(f"volumes, {INSTANCES} instances against 1", f"{ratio:.2f} x{bound}",
            f">= {RATIO} x unless all processors are > {BUSY_PERCENT:.0f} % busy", met)
    for volume in volumes:
        rig.dolmen("volume", "unmount", volume)
    pool.end()
    disks.end()


def on_one_disk(programs, user):
    """Measures on file systems of one disk, without a pool; returns the ratio."""
    disks = delay.Disks()
    file = os.path.join(rig.DISKS, "c")
    with open(file, "wb") as opened:
        opened.truncate(INSTANCES * SIZE_GIB * rig.GIB)
    loops, mounts = [], [os.path.join(rig.RUN, "mnt", f"c{number}") for number in range(INSTANCES)]
    for number, mount in enumerate(mounts):
        loops.append(disks.loop_over(file, f"--offset={number * SIZE_GIB * rig.GIB}", f"--sizelimit={SIZE_GIB * rig.GIB}"))
        rig.run("mkfs.xfs", "-q", loops[-1])
        os.makedirs(mount)
        rig.run("mount", loops[-1], mount)
    ratio, bound = compare([Instance(programs, user, mount) for mount in mounts], disks, "no pool")
    rig.bar(f"no pool, {INSTANCES} instances against 1", f"{ratio:.2f} x{bound}", "-", None)
    for loop, mount in zip(loops, mounts):
        rig.run("umount", mount)
        rig.run("losetup", "-d", loop)
    disks.end()
    os.unlink(file)
    return ratio


def main():
    """Measures both."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/pgbench"))
    if not found:
        rig.skip("missing: PostgreSQL with pgbench")
    rig.need("mkfs.xfs", "losetup")
    rig.need_room(8 * rig.GIB)
    programs, user = os.path.dirname(found[-1]), pwd.getpwnam("postgres")
    for folder in (rig.RUN, os.path.join(rig.RUN, "mnt"), os.path.join(rig.RUN, "pg")):
        os.makedirs(folder, exist_ok=True)
        os.chmod(folder, 0o755)
    version = rig.run(os.path.join(programs, "postgres"), "--version").decode().strip()
    rig.say(f"{version}, pgbench -c {CLIENTS} at scale {SCALE}, disks of {rig.setting('delay')} ms a request, without a write cache")
    on_volumes(programs, user, on_one_disk(programs, user))


main()

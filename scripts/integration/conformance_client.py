"""What one file system does with calls that programs depend on: one line for each, so that two runs can be compared.

conformance_client.py FOLDER FILL: works in FOLDER, which is on the file system and empty, as root. FILL is `fill` to write until
the file system is full. Results name errors, sizes and content, and nothing that differs between two devices (times, numbers of
inodes, places on the disk).
"""

import ctypes
import errno
import fcntl
import hashlib
import mmap
import os
import random
import stat
import subprocess
import sys

FOLDER, FILL = sys.argv[1:3]
MIB = 1 << 20
KEEP_SIZE, PUNCH, ZERO = 1, 2, 16
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
libc = ctypes.CDLL(None, use_errno=True)


def path(name):
    return os.path.join(FOLDER, name)


def tried(call, *arguments, **options):
    """What a call gave: its value, or the name of its error."""
    try:
        value = call(*arguments, **options)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
    return "ok" if value is None else value


def show(what, *found):
    print(what + ":", *(str(each) for each in found), flush=True)


def write(name, content=b"x", mode=0o644):
    with open(path(name), "wb") as file:
        file.write(content)
    os.chmod(path(name), mode)
    return path(name)


def digest(name):
    with open(path(name), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:16]


def random_bytes(seed, count):
    return random.Random(seed).randbytes(count)


def c_call(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)


def rename2(first, second, flags):
    c_call("renameat2", -100, path(first).encode(), -100, path(second).encode(), flags)


def fallocate(fd, mode, offset, length):
    c_call("fallocate", fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length))


def names(folder="."):
    return sorted(os.listdir(path(folder)))


# --- names ---------------------------------------------------------------------------------------------------------


def renames():
    os.mkdir(path("r"))
    for name in ("r/a", "r/b"):
        write(name, name.encode())
    os.mkdir(path("r/empty"))
    os.mkdir(path("r/full"))
    write("r/full/x")
    show("rename over a file", tried(os.rename, path("r/a"), path("r/b")), names("r"), open(path("r/b")).read())
    show("rename a file over a folder", tried(os.rename, path("r/b"), path("r/empty")))
    show("rename a folder over a file", tried(os.rename, path("r/empty"), path("r/b")))
    show("rename a folder over a full one", tried(os.rename, path("r/empty"), path("r/full")))
    show("rename a full folder over an empty one", tried(os.rename, path("r/full"), path("r/empty")), names("r/empty"))
    show("rename a folder into itself", tried(os.rename, path("r"), path("r/inner")))
    show("rename what is absent", tried(os.rename, path("r/no"), path("r/b")))
    write("r/c", b"c")
    show("rename without replacing", tried(rename2, "r/b", "r/c", RENAME_NOREPLACE), tried(rename2, "r/b", "r/d", RENAME_NOREPLACE))
    show("exchange", tried(rename2, "r/c", "r/d", RENAME_EXCHANGE), open(path("r/c")).read(), open(path("r/d")).read())
    show("exchange a file and a folder", tried(rename2, "r/c", "r/empty", RENAME_EXCHANGE), os.path.isdir(path("r/c")))
    fd = os.open(path("r/d"), os.O_RDWR)
    os.unlink(path("r/d"))
    os.write(fd, b"still")
    show("a deleted file that is open", os.pread(fd, 9, 0), os.fstat(fd).st_nlink)
    os.close(fd)
    show("a name of 255 bytes", tried(write, "r/" + "n" * 255) != "ENAMETOOLONG", "of 256", tried(write, "r/" + "n" * 256))
    for name in (b"a b", b"\xff\xfe", b"new\nline", "ü".encode(), "u\u0308".encode(), b"."):
        done = tried(os.mkdir, path("r").encode() + b"/" + name)
        show(f"name {name!r}", done, name in os.listdir(path("r").encode()))
    many = path("many")
    os.mkdir(many)
    for number in range(3000):
        os.close(os.open(os.path.join(many, f"file-{number:05}"), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    for number in range(0, 3000, 3):
        os.unlink(os.path.join(many, f"file-{number:05}"))
    show("a folder of many", len(os.listdir(many)), tried(os.rmdir, many))


def links():
    os.mkdir(path("l"))
    write("l/a", b"one")
    show("link", tried(os.link, path("l/a"), path("l/b")), os.stat(path("l/a")).st_nlink)
    show("link over a file", tried(os.link, path("l/a"), path("l/b")))
    show("link of a folder", tried(os.link, path("l"), path("l/d")))
    os.unlink(path("l/a"))
    show("the other name", open(path("l/b")).read(), os.stat(path("l/b")).st_nlink)
    show("symbolic link", tried(os.symlink, "b", path("l/s")), os.readlink(path("l/s")), open(path("l/s")).read())
    os.symlink("loop", path("l/loop"))
    show("loop", tried(open, path("l/loop")))
    show("no following", tried(os.open, path("l/s"), os.O_NOFOLLOW))
    for length in (1023, 4095, 4096):
        show(f"symbolic link of {length} bytes", tried(os.symlink, "x" * length, path(f"l/s{length}")))
    show("links of a folder", os.stat(path("l")).st_nlink if os.path.isdir(path("l")) else "")
    for kind, mode in (("fifo", stat.S_IFIFO), ("socket", stat.S_IFSOCK)):
        show(kind, tried(os.mknod, path("l/" + kind), 0o600 | mode), oct(stat.S_IFMT(os.stat(path("l/" + kind)).st_mode)))
    fd = os.open(path("l"), os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(fd, b"nameless")
    show("a file without a name gets one", tried(c_call, "linkat", -100, b"/proc/self/fd/%d" % fd, -100, path("l/named").encode(), 0x400),
         names("l").count("named"))
    os.close(fd)
    for _ in range(500):
        os.link(path("l/b"), path(f"l/more-{_}"))
    show("many links", os.stat(path("l/b")).st_nlink)


# --- content -------------------------------------------------------------------------------------------------------


def map_of(fd):
    """Data and holes, each with its length."""
    size, at, found = os.fstat(fd).st_size, 0, []
    while at < size:
        try:
            data = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            data = size
        if data > at:
            found.append(f"hole {data - at}")
        if data < size:
            hole = os.lseek(fd, data, os.SEEK_HOLE)
            found.append(f"data {hole - data}")
            at = hole
        else:
            at = size
    return ", ".join(found)


def holes():
    fd = os.open(write("h", random_bytes(1, MIB)), os.O_RDWR)
    os.fsync(fd)
    show("punch", tried(fallocate, fd, KEEP_SIZE | PUNCH, 65536, 131072), map_of(fd), digest("h"))
    show("punch of odd bytes", tried(fallocate, fd, KEEP_SIZE | PUNCH, 300_001, 10_007), digest("h"))
    show("punch behind the end", tried(fallocate, fd, KEEP_SIZE | PUNCH, 2 * MIB, 4096), os.fstat(fd).st_size)
    show("punch without keeping the size", tried(fallocate, fd, PUNCH, 0, 4096))
    show("zero", tried(fallocate, fd, ZERO, 500_000, 100_000), digest("h"), os.fstat(fd).st_size)
    show("zero past the end", tried(fallocate, fd, ZERO, MIB - 4096, 8192), os.fstat(fd).st_size, digest("h"))
    show("claimed behind the end", tried(fallocate, fd, KEEP_SIZE, 0, 4 * MIB), os.fstat(fd).st_size)
    show("claimed room reads", tried(fallocate, fd, 0, 4 * MIB, MIB), os.fstat(fd).st_size, digest("h"))
    os.ftruncate(fd, 777_777)
    os.ftruncate(fd, MIB)
    show("truncated and extended", digest("h"), os.pread(fd, 8, 777_777))
    os.close(fd)
    fd = os.open(path("sparse"), os.O_CREAT | os.O_RDWR, 0o600)
    os.pwrite(fd, b"end", (1 << 40) - 3)
    os.fsync(fd)
    show("a byte at 1 TiB", os.fstat(fd).st_size, os.fstat(fd).st_blocks * 512 < MIB, os.pread(fd, 3, (1 << 40) - 3), os.pread(fd, 3, 7))
    os.close(fd)
    show("past the largest offset", tried(os.truncate, path("sparse"), (1 << 63) - 1))
    os.unlink(path("sparse"))


def maps():
    fd = os.open(write("m", bytes(MIB)), os.O_RDWR)
    with mmap.mmap(fd, MIB) as area:
        area[4000:4200] = b"m" * 200
        area[MIB - 5:] = b"tail!"
        show("mapped writes are read", os.pread(fd, 200, 4000) == b"m" * 200, os.pread(fd, 9, MIB - 5))
        os.pwrite(fd, b"call", 70_000)
        show("written bytes are mapped", area[70_000:70_004])
        area.flush()
        show("flushed", digest("m"))
    with mmap.mmap(fd, MIB, mmap.MAP_PRIVATE) as area:
        area[0:4] = b"mine"
        show("a private map writes nothing", os.pread(fd, 4, 0))
    os.close(fd)
    fd = os.open(write("m2", b"z" * 100), os.O_RDWR)
    with mmap.mmap(fd, 100) as area:
        os.ftruncate(fd, 5000)
        show("the rest of a page that was mapped", os.pread(fd, 8, 96), os.fstat(fd).st_size, area[99])
    os.close(fd)


def direct():
    content = random_bytes(2, MIB)
    fd = os.open(path("d"), os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600)
    page = mmap.mmap(-1, MIB)
    page.write(content)
    view = memoryview(page)
    show("direct write", tried(os.pwritev, fd, [view], 0), digest("d"))
    show("direct read", tried(os.preadv, fd, [view[:65536]], 131072), bytes(view[:65536]) == content[131072:196608])
    for offset, length in ((0, 512), (512, 512), (4096, 4096)):
        show(f"direct write of {length} at {offset}", tried(os.pwritev, fd, [view[:length]], offset), digest("d"))
    for what, at, length, offset in (("offset", 0, 4096, 100), ("length", 0, 100, 0), ("memory", 1, 4096, 0)):
        show(f"direct write of a crooked {what}", tried(os.pwritev, fd, [view[at:at + length]], offset))
    show("direct read past the end", tried(os.preadv, fd, [view[:4096]], MIB), tried(os.preadv, fd, [view[:8192]], MIB - 4096))
    buffered = os.open(path("d"), os.O_RDWR)
    os.pwrite(buffered, b"buffered", 8192)
    show("direct sees what was buffered", tried(os.preadv, fd, [view[:4096]], 8192), bytes(view[:8]))
    view[:4096] = b"d" * 4096
    os.pwritev(fd, [view[:4096]], 8192)
    show("buffered sees what was direct", os.pread(buffered, 8, 8192))
    for flag, name in ((os.O_SYNC, "O_SYNC"), (os.O_DSYNC, "O_DSYNC"), (os.O_APPEND, "O_APPEND")):
        synced = os.open(path("d"), os.O_RDWR | flag)
        show(name, tried(os.write, synced, b"12345"), os.fstat(synced).st_size)
        os.close(synced)
    os.close(fd)
    os.close(buffered)


def syncs():
    """A file that takes the place of another, as editors and databases do it."""
    folder = os.open(FOLDER, os.O_RDONLY)
    for number in range(5):
        write("s.new", b"version %d" % number)
        fd = os.open(path("s.new"), os.O_RDWR)
        show("fsync, rename, fsync of the folder", tried(os.fsync, fd), tried(os.rename, path("s.new"), path("s")), tried(os.fsync, folder))
        os.close(fd)
    show("the last version", open(path("s")).read())
    fd = os.open(path("log"), os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
    for number in range(50):
        os.write(fd, b"%06d\n" % number)
        os.fdatasync(fd)
    show("a log", digest("log"), tried(os.posix_fadvise, fd, 0, 0, os.POSIX_FADV_DONTNEED), digest("log"))
    show("sync of the file system", tried(c_call, "syncfs", fd))
    os.close(fd)
    os.close(folder)


def random_calls():
    """A thousand calls on one file, compared with a copy in memory."""
    draw = random.Random(3)
    limit = 2 * MIB
    copy = bytearray()
    fd = os.open(path("random"), os.O_CREAT | os.O_RDWR, 0o600)
    wrong = 0
    for _ in range(1000):
        offset, length = draw.randrange(limit), draw.randrange(1, 100_000)
        kind = draw.choice(("write", "write", "write", "read", "truncate", "punch", "map"))
        if kind == "write":
            content = draw.randbytes(length)
            os.pwrite(fd, content, offset)
            copy.extend(bytes(max(0, offset + length - len(copy))))
            copy[offset:offset + length] = content
        elif kind == "truncate":
            os.ftruncate(fd, offset)
            copy = copy[:offset] + bytes(max(0, offset - len(copy)))
        elif kind == "punch":
            tried(fallocate, fd, KEEP_SIZE | PUNCH, offset, length)
            end = min(len(copy), offset + length)
            copy[offset:end] = bytes(max(0, end - offset))
        elif kind == "map" and len(copy) > offset:
            with mmap.mmap(fd, len(copy)) as area:
                end = min(len(copy), offset + length)
                area[offset:end] = copy[offset:end] = draw.randbytes(end - offset)
        else:
            wrong += os.pread(fd, length, offset) != bytes(copy[offset:offset + length])
    os.fsync(fd)
    show("a thousand calls", wrong, "wrong;", digest("random"), hashlib.sha256(copy).hexdigest()[:16])
    os.close(fd)


def clones():
    write("c", random_bytes(4, 3 * MIB))
    source, target = os.open(path("c"), os.O_RDONLY), os.open(path("c2"), os.O_CREAT | os.O_RDWR, 0o600)
    show("clone", tried(fcntl.ioctl, target, 0x40049409, source))
    show("copy of a range", tried(os.copy_file_range, source, target, MIB, 4096, 8192))
    show("their content", digest("c"), digest("c2"))
    os.pwrite(target, b"changed", 0)
    show("a change of one", digest("c"), os.pread(source, 4, 0) == random_bytes(4, 4))
    os.close(source)
    os.close(target)


# --- rights --------------------------------------------------------------------------------------------------------


def as_other(call, *arguments):
    """What a call gives a user without rights."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(12345, 12345, 12345)
        os.setresuid(12345, 12345, 12345)
        os.write(writing, str(tried(call, *arguments)).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    found = os.read(reading, 200).decode()
    os.close(reading)
    return found if not found.isdigit() else "ok"


def run(*words):
    ended = subprocess.run(words, capture_output=True, text=True)
    return ended.returncode, ended.stdout.replace(FOLDER, "")


def rights():
    write("p", b"secret", 0o640)
    show("another user", as_other(os.open, path("p"), os.O_RDONLY), as_other(os.chmod, path("p"), 0o666), as_other(os.unlink, path("p")))
    if subprocess.run(["which", "setfacl"], capture_output=True).returncode == 0:
        show("acl of a user", run("setfacl", "-m", "u:12345:r", path("p"))[0], as_other(os.open, path("p"), os.O_RDONLY),
             as_other(os.open, path("p"), os.O_WRONLY))
        show("acl listed", run("getfacl", "-n", "-c", path("p")))
        os.chmod(path("p"), 0o600)
        show("the mask", as_other(os.open, path("p"), os.O_RDONLY), oct(os.stat(path("p")).st_mode))
        os.mkdir(path("acl"))
        show("acl of what comes", run("setfacl", "-d", "-m", "u:12345:rwx,g::r,o::-", path("acl"))[0])
        write("acl/in", b"", 0o666)
        show("inherited", run("getfacl", "-n", "-c", path("acl/in")))
    os.chown(path("p"), 12345, 12345)
    os.chmod(path("p"), 0o6755)
    os.chown(path("p"), 0, 0)
    show("a change of the owner ends setuid", oct(os.stat(path("p")).st_mode))
    os.mkdir(path("sticky"))
    os.chmod(path("sticky"), 0o1777)
    write("sticky/f")
    show("a sticky folder", as_other(os.unlink, path("sticky/f")), as_other(os.mkdir, path("sticky/own")))
    os.mkdir(path("sgid"))
    os.chown(path("sgid"), 0, 12345)
    os.chmod(path("sgid"), 0o2775)
    os.mkdir(path("sgid/in"))
    show("the group of a folder", os.stat(path("sgid/in")).st_gid, oct(os.stat(path("sgid/in")).st_mode))
    os.utime(path("p"), ns=(1_000_000_001, 4_000_000_000_000_000_003))
    show("times", os.stat(path("p")).st_mtime_ns, os.stat(path("p")).st_atime_ns)


def attributes():
    write("x")
    for name in ("user.a", "trusted.t", "security.s", "system.no", "bad"):
        show(f"attribute {name}", tried(os.setxattr, path("x"), name, b"value"))
    show("listed", sorted(name for name in os.listxattr(path("x")) if not name.startswith("security.selinux")))
    show("create what is there", tried(os.setxattr, path("x"), "user.a", b"2", os.XATTR_CREATE))
    show("replace what is absent", tried(os.setxattr, path("x"), "user.b", b"2", os.XATTR_REPLACE))
    for size in (0, 255, 4000, 65536, 65537):
        show(f"attribute of {size} bytes", tried(os.setxattr, path("x"), "user.size", b"v" * size),
             len(os.getxattr(path("x"), "user.size")) if "user.size" in os.listxattr(path("x")) else "absent")
    show("attribute of a long name", tried(os.setxattr, path("x"), "user." + "n" * 250, b"1"),
         tried(os.setxattr, path("x"), "user." + "n" * 251, b"1"))
    show("removed", tried(os.removexattr, path("x"), "user.a"), tried(os.getxattr, path("x"), "user.a"))
    show("a hundred attributes", sorted({tried(os.setxattr, path("x"), f"user.many-{number}", b"v" * 20) for number in range(100)}),
         len(os.listxattr(path("x"))))


def locks():
    fd = os.open(write("k"), os.O_RDWR)
    fcntl.lockf(fd, fcntl.LOCK_EX, 10, 0)

    def take(start):
        other = os.open(path("k"), os.O_RDWR)
        fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, start)

    os.chmod(path("k"), 0o666)
    show("locks of a range", as_other(take, 5), as_other(take, 10))
    os.close(fd)


def fill():
    """Until the file system is full, and what works then."""
    written, stopped = 0, "ok"
    fd = os.open(path("full"), os.O_CREAT | os.O_WRONLY, 0o600)
    block = random_bytes(5, MIB)
    while stopped == "ok" and written < 4096:
        stopped = tried(lambda: os.write(fd, block) and None)
        written += stopped == "ok"
    show("the end of a full file system", stopped, tried(os.fsync, fd) in ("ok", "ENOSPC"))
    os.close(fd)
    with open(path("full"), "rb") as file:
        show("what was written is there", all(file.read(MIB) == block for _ in range(min(written, 64))))
    show("an overwrite of a full file system", tried(overwrite))
    show("a claim", tried(lambda: fallocate(os.open(path("k"), os.O_RDWR), 0, 0, 64 * MIB)))
    show("deleted", tried(os.unlink, path("full")))
    tried(c_call, "syncfs", os.open(FOLDER, os.O_RDONLY))
    show("room again", tried(write, "after", random_bytes(6, MIB)) == path("after"), tried(digest, "after"))


def overwrite():
    fd = os.open(path("random"), os.O_RDWR)
    os.pwrite(fd, b"over", 0)
    os.fsync(fd)
    os.close(fd)


for part in (renames, links, holes, maps, direct, syncs, random_calls, clones, rights, attributes, locks):
    part()
if FILL == "fill":
    fill()

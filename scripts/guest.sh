#!/bin/sh
# guest.sh [--kernel PATTERN] [FOLDER] [SCRIPT]...: integration scripts on a kernel of Debian that has every driver.
#
# The kernel and its modules are taken from Debian's package, and started in an emulated machine whose root is this machine's,
# read-only, below a layer in memory: so whatever is installed here is there, the built program and this checkout among it. In
# it each SCRIPT of scripts/integration runs as root; kernel.sh if none is named: ublk, NBD by the kernel, and a SCSI disk that
# is torn out. shares_kernel has nfsd, SMB by the kernel, and quotas of XFS; vdo compares deduplication with the kernel's. Needs apt,
# qemu-system-x86 (which may take the place of the qemu-utils that ./test wants), busybox-static, cpio, kmod, xz-utils, binutils, and
# the network for the kernel; builds into FOLDER (default: .demo/guest), which is kept, and is not part of ./test.
#
# Two more have machines whose first process is systemd, started again and again on the same disks: boot (reboots.sh) has volumes and
# a share, and needs samba and smbclient; installed (installed.sh) has the package, which is made of the programs beside the program,
# and needs what package.sh needs.
#
#   --kernel PATTERN   the name of the package, as apt-cache searches for it (default: the newest of Linux 6.12)
#
# DOLMEN_BIN             the program, not below /tmp (default: target/release/dolmen, or that of target/debug)
# DOLMEN_GUEST_MIB       memory of the machine (default: 4096)
# DOLMEN_GUEST_PROCESSORS  how many it has (default: 2). The clock of a machine with 1 counts its instructions, and rests while it does:
#                        on a busy machine it is slow, and nothing in it is late
# DOLMEN_GUEST_SECONDS   how long one script may run (default: 2400)
# DOLMEN_KERNEL_..., DOLMEN_MEMORY_...   are handed to the scripts
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
pattern='^linux-image-6\.12\..*[0-9]-amd64-unsigned$'
folder=$root/.demo/guest
mib=${DOLMEN_GUEST_MIB:-4096}
seconds=${DOLMEN_GUEST_SECONDS:-2400}
processors=${DOLMEN_GUEST_PROCESSORS:-2}

die() {
    printf 'guest.sh: %s\n' "$*" >&2
    exit 1
}

case ${1-} in
-h | --help)
    sed -n '2,/^root=/s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
--kernel)
    [ -n "${2-}" ] || die '--kernel takes a pattern'
    pattern=$2
    shift 2
    ;;
-*) die "no option $1; see $0 --help" ;;
esac
case ${1-} in
*/*)
    folder=$1
    shift
    ;;
esac
[ $# -gt 0 ] || set -- kernel
for script; do
    case $script in boot | installed) continue ;; esac
    [ -f "scripts/integration/${script%.sh}.sh" ] || die "there is no scripts/integration/${script%.sh}.sh"
done
for word in apt-get apt-cache dpkg-deb qemu-system-x86_64 busybox cpio depmod modprobe xz readelf timeout; do
    command -v "$word" >/dev/null ||
        die "$word is missing; apt-get install qemu-system-x86 busybox-static cpio kmod xz-utils binutils"
done
program=${DOLMEN_BIN:-}
for built in target/release/dolmen target/debug/dolmen; do
    [ -n "$program" ] || [ ! -x "$built" ] || program=$root/$built
done
[ -x "$program" ] || die 'no program; cargo build --release'
for path in "$program" "$root"; do
    case $path in /tmp/* | /run/* | /dev/*) die "$path is not in the machine, which has its own /tmp, /run and /dev" ;; esac
done

# --- the kernel ----------------------------------------------------------------------------------------------------

tree=$folder/tree
initial=$folder/initial

# unpack_kernel IMAGE: the packaged kernel unpacks itself, which takes long where each step of it is emulated.
unpack_kernel() {
    mark=$(printf '\3757zXZ')
    for at in $(LC_ALL=C grep -abo "$mark" "$1" | cut -d: -f1); do
        tail -c "+$((at + 1))" "$1" | xz -dcq >"$folder/vmlinux" 2>/dev/null
        readelf -h "$folder/vmlinux" >/dev/null 2>&1 && return 0
    done
    cp "$1" "$folder/vmlinux"
}

# What the kernel starts first: it puts this machine's files below a layer in memory, and goes there.
first_program() {
    cat <<'END'
#!/bin/sh
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for module in virtio_pci 9pnet_virtio 9p overlay; do modprobe $module; done
ip link set lo up
options=trans=virtio,version=9p2000.L,msize=524288
mount -t 9p -o $options,cache=loose,ro host /host
mount -t tmpfs -o size=70% memory /memory
mkdir -p /memory/upper /memory/work
mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work all /new
mkdir -p /new/guest /new/modules
for folder in proc sys dev; do mount --bind /$folder /new/$folder; done
mkdir -p /new/dev/pts /new/dev/shm
mount -t devpts pts /new/dev/pts
for folder in dev/shm run tmp; do mount -t tmpfs memory /new/$folder; done
mount -t 9p -o $options out /new/guest
mount -t 9p -o $options,ro modules /new/modules
rm -rf /new/lib/modules
ln -s /modules /new/lib/modules
exec switch_root -c /dev/console /new /bin/sh /guest/start
END
}

build() {
    mkdir -p "$folder/packages" "$tree" || exit 1
    package=$(apt-cache search --names-only "$pattern" | cut -d' ' -f1 | sort -V | tail -n 1)
    [ -n "$package" ] || die "no package is called $pattern; apt-get update, or another --kernel"
    (cd "$folder/packages" && apt-get download -q "$package") >"$folder/apt.log" 2>&1 || die "see $folder/apt.log"
    dpkg-deb -x "$folder/packages/$package"_*.deb "$tree" || exit 1
    # Debian 13 and later keep everything below /usr.
    modules=$tree/lib/modules
    [ -d "$modules" ] || modules=$tree/usr/lib/modules
    for of_release in "$modules"/*; do release=${of_release##*/}; done
    mkdir -p "$tree/lib" && [ -d "$tree/lib/modules" ] || ln -s ../usr/lib/modules "$tree/lib/modules" || exit 1
    depmod -b "$tree" "$release" || exit 1
    unpack_kernel "$tree/boot/vmlinuz-$release"

    for inside in bin proc sys dev host memory new "lib/modules/$release"; do mkdir -p "$initial/$inside"; done
    cp "$(command -v busybox)" "$initial/bin/busybox" || exit 1
    for tool in sh mount modprobe mkdir rm ln ip switch_root; do ln -sf busybox "$initial/bin/$tool"; done
    for module in virtio_pci 9pnet_virtio 9p overlay; do
        modprobe -d "$tree" -S "$release" --show-depends "$module" | sed -n 's/^insmod //p'
    done | sort -u | while read -r file; do
        inside=lib/modules/${file#*/lib/modules/}
        mkdir -p "$initial/${inside%/*}" && cp "$file" "$initial/$inside" || exit 1
    done || exit 1
    for list in modules.order modules.builtin modules.builtin.modinfo; do
        cp "$modules/$release/$list" "$initial/lib/modules/$release/" || exit 1
    done
    depmod -b "$initial" "$release" || exit 1
    first_program >"$initial/init" && chmod +x "$initial/init"
    (cd "$initial" && find . | cpio -o -H newc --quiet | gzip -1) >"$folder/initial.gz.new" || exit 1
    printf '%s\n' "$release" >"$folder/release" && printf '%s\n' "$pattern" >"$folder/pattern" || exit 1
    mv "$folder/initial.gz.new" "$folder/initial.gz"
}

# --- the machine ---------------------------------------------------------------------------------------------------

# handed_over: settings of the scripts that this machine's environment has, as words of a shell.
handed_over() { env | sed -n "s/^\(DOLMEN_\(KERNEL\|MEMORY\)_[A-Z_]*=\)\([A-Za-z0-9,._-]*\)\$/\1\3/p" | tr '\n' ' '; }

# machine OUT WORD...: starts a machine that shows this folder as /guest, with words for qemu, and prints its log. Leaves with the
# status that the machine wrote there.
machine() {
    out=$1
    shift
    case $processors in
    1) set -- -accel tcg,thread=single,tb-size=512 -icount shift=2,align=off,sleep=on "$@" ;;
    *) set -- -accel tcg,thread=multi,tb-size=512 "$@" ;;
    esac
    timeout "$seconds" qemu-system-x86_64 -M q35 -cpu max -smp "$processors" -m "$mib" -nodefaults \
        -no-reboot -display none -serial "file:$out/console" -kernel "$folder/vmlinux" -initrd "$folder/initial.gz" \
        -append 'console=ttyS0 quiet loglevel=3 mitigations=off nokaslr tsc=reliable no_timer_check random.trust_cpu=on panic=-1' \
        -fsdev local,id=host,path=/,security_model=none,readonly=on,multidevs=remap -device virtio-9p-pci,fsdev=host,mount_tag=host \
        -fsdev "local,id=modules,path=$(cd "$tree/lib/modules" && pwd -P),security_model=none,readonly=on" \
        -device virtio-9p-pci,fsdev=modules,mount_tag=modules \
        -fsdev "local,id=out,path=$out,security_model=none" -device virtio-9p-pci,fsdev=out,mount_tag=out "$@"
    cat "$out/log" 2>/dev/null
    if [ ! -s "$out/status" ]; then
        tail -n 5 "$out/console" >&2
        die "the machine with $script did not come to its end in $seconds s; its console is $out/console"
    fi
    return "$(cat "$out/status")"
}

# run SCRIPT: in a machine of its own. Prints what it printed; leaves with what it left with.
run() {
    out=$folder/out-$1
    rm -rf "$out" && mkdir -p "$out" || exit 1
    cat >"$out/start" <<END
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DM_DISABLE_UDEV=1
cd $root && DOLMEN_BIN=$program DOLMEN_STATE=/tmp/state DOLMEN_KERNEL_MACHINE=yes $(handed_over)sh scripts/integration/$1.sh >/guest/log 2>&1
echo \$? >/guest/status
echo o >/proc/sysrq-trigger
sleep 9
END
    machine "$out"
}

# units_of STOP COMMAND END: text of a shell that puts two units in place. One runs STOP when the daemon and Samba have ended. The other
# runs COMMAND when the boot is complete, notes what it left with, and runs END.
units_of() {
    cat <<END
cat >guest-keep.service <<'UNIT'
[Unit]
RequiresMountsFor=/guest
Before=dolmend.service smbd.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
ExecStop=/bin/sh -c '$1'
UNIT
cat >guest-boot.service <<'UNIT'
[Unit]
RequiresMountsFor=/guest
After=multi-user.target guest-keep.service
Requires=guest-keep.service
[Service]
Type=oneshot
Environment=HOME=/root
ExecStart=/bin/sh -c '$2 >/guest/log 2>&1; echo \$\$? >/guest/status; $3'
UNIT
ln -sf ../guest-boot.service multi-user.target.wants/guest-boot.service
END
}

# first_of_boot STEP: what the machine of a step starts first. Its units, its accounts, Samba and the state of the daemon are those of
# the machine before, which kept them when its daemon had ended, or before its power cut.
first_of_boot() {
    kept='etc/systemd/system etc/passwd etc/group etc/shadow etc/gshadow etc/samba var/lib/samba sbin/mount.dolmen var/lib/dolmen'
    keeps="journalctl --no-pager -b >/guest/journal-$1; cd / && tar -cf /guest/kept.tar --exclude=guest-* $kept"
    case $1 in
    degraded) ends="$keeps; sync -f /guest; echo o >/proc/sysrq-trigger" ;;
    *) ends='systemctl --no-block poweroff' ;;
    esac
    cat <<END
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
modprobe virtio_blk
cd /etc/systemd/system && rm -rf ./*.wants && ln -sf /dev/null getty.target
[ ! -e /guest/kept.tar ] || tar -C / -xf /guest/kept.tar
mkdir -p multi-user.target.wants
$(units_of "$keeps" "DOLMEN_BIN=$program sh $root/scripts/reboots.sh $1" "$ends")
exec /lib/systemd/systemd --unit=multi-user.target
END
}

# boots: machines that follow each other on two disks, of which some are torn out.
boots() {
    out=$folder/out-boot
    rm -rf "$out" && mkdir -p "$out" && truncate -s 1G "$out/one" "$out/two" || exit 1
    for step in first healthy degraded absent; do
        rm -f "$out/status" "$out/log"
        first_of_boot "$step" >"$out/start"
        disks=
        [ "$step" = absent ] || disks="-drive file=$out/one,format=raw,if=virtio"
        case $step in first | healthy) disks="$disks -drive file=$out/two,format=raw,if=virtio" ;; esac
        # shellcheck disable=SC2086 # words of qemu
        machine "$out" $disks || return 1
    done
}

# first_of_installed STEP: what the machine of a step starts first. All it changes in this system is in a layer on a disk of its own,
# which the machine before has left there: so it boots with what dpkg has installed.
first_of_installed() {
    cat <<END
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
modprobe virtio_blk && modprobe ext4
mkdir -p /layer /new && mount -t ext4 /dev/vda /layer && mkdir -p /layer/upper /layer/work || exit 1
mount -t overlay -o lowerdir=/,upperdir=/layer/upper,workdir=/layer/work layer /new || exit 1
mkdir -p /new/old
for folder in proc sys dev run tmp guest modules layer; do mount --move /\$folder /new/\$folder || exit 1; done
cd /new && pivot_root . old && cd / && umount -l /old || exit 1
cd /etc/systemd/system
[ -e /var/lib/guest ] || rm -rf ./*.wants
mkdir -p multi-user.target.wants sysinit.target.wants && ln -sf /dev/null getty.target
ln -sf /lib/systemd/system/apparmor.service sysinit.target.wants/apparmor.service
$(units_of "journalctl --no-pager -b >/guest/journal-$1" "sh $root/scripts/installed.sh $1" 'systemctl --no-block poweroff')
exec /lib/systemd/systemd --unit=multi-user.target
END
}

# installs: the package, in machines that follow each other on two disks. No purge may change those.
installs() {
    out=$folder/out-installed
    rm -rf "$out" && mkdir -p "$out" && truncate -s 1G "$out/one" "$out/two" && truncate -s 4G "$out/layer" || exit 1
    for version in 1.0 1.1; do
        DOLMEN_PACKAGE_LEVEL=0 sh scripts/package.sh --binaries "$(dirname "$program")" --out "$out" --version "$version" \
            >"$out/build.log" 2>&1 || die "the package was not made: $(tail -n 1 "$out/build.log")"
    done
    mkfs.ext4 -q "$out/layer" || die 'no disk for the layer; apt-get install e2fsprogs'
    for step in install reboot purge; do
        rm -f "$out/status" "$out/log"
        first_of_installed "$step" >"$out/start"
        [ "$step" != purge ] || content=$(cat "$out/one" "$out/two" | sha256sum)
        # shellcheck disable=SC2046 # words of qemu
        machine "$out" $(printf -- "-drive file=$out/%s,format=raw,if=virtio " layer one two) || return 1
    done
    [ "$(cat "$out/one" "$out/two" | sha256sum)" = "$content" ] || die 'the machine that purged the package has changed a disk'
    "$program" check "$out/one" "$out/two" || die 'the pool is damaged'
    echo ' ok | the purge has changed no disk, and the pool on them is well'
}

[ -s "$folder/initial.gz" ] && [ "$(cat "$folder/pattern" 2>/dev/null)" = "$pattern" ] || build
printf 'Linux %s\n' "$(cat "$folder/release")"
failed=
for script; do
    script=${script%.sh}
    printf '== %s\n' "$script"
    case $script in
    boot) boots ;;
    installed) installs ;;
    *) run "$script" ;;
    esac || failed="$failed $script"
done
[ -z "$failed" ] || die "failed:$failed"

#!/bin/sh
# Images of virtual machines on a volume, by the command line: added, converted, cloned, deleted; killed and full in the midst.
#
# The bar: 20 clones of an image of 10 GiB in 2 s at most, which take 1 % of its size in the pool at most.
#
# DOLMEN_IMAGES_MIB   MiB of data in the image (default: 1024)
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='images'
mib=${DOLMEN_IMAGES_MIB:-1024}
image_mib=10240
clones=20
clones_ms_max=2000
taken_mib_max=$((image_mib / 100))

# make_volume NAME [OPTION]...: mounted at $run/mnt/NAME.
make_volume() {
    make_name=$1
    shift
    note mount "$run/mnt/$make_name"
    dolmen volume create "$pool/$make_name" --mount "$run/mnt/$make_name" --resiliency simple "$@" >>"$logs/volumes.log" 2>&1
}

claimed_mib() { echo $(($(dolmen -o json volume show "$pool/$1" | number_of claimed_bytes) / 1048576)); }

used_mib() { df -Pm "$run/mnt/$1" | awk 'NR == 2 { print $3 }'; }

# uses_at_most MIB: of the volume of images.
uses_at_most() { [ "$(used_mib vms)" -le "$1" ]; }

# milliseconds COMMAND...: sets $ms to the time that it took.
milliseconds() {
    ms_begun=$(date +%s%N)
    "$@" || return 1
    ms=$((($(date +%s%N) - ms_begun) / 1000000))
}

# has_data FILE: it begins with the data of the image.
has_data() { privileged head -c "$((mib * 1048576))" "$1" | cmp -s - "$run/data"; }

all_have_data() {
    for all_file in "$@"; do has_data "$all_file" || return 1; done
}

# has_entries FOLDER NUMBER
has_entries() { is "$(privileged ls -A "$1" | wc -l)" -eq "$2"; }

clone_all() {
    # shellcheck disable=SC2046 # a list of words
    dolmen image clone "$pool/vms/golden" $(seq -f 'm%g' 1 "$clones") >>"$logs/images.log"
}

# killed_after SECONDS: an image is added, and the command is killed then. The library has all of the image or nothing.
killed_after() {
    # shellcheck disable=SC2046 # a list of words
    begin -- $(rights) env DOLMEN_SOCKET="$socket" "$bin" image add "$pool/vms" "$run/image.raw" --name killed \
        >>"$logs/images.log" 2>&1
    killed_pid=$!
    killed_started=$(start_time "$killed_pid")
    sleep "$1"
    # shellcheck disable=SC2046 # a list of numbers
    send KILL $(members "$killed_pid" "$killed_started") || :
    wait "$killed_pid" || :
    if privileged test -e "$run/mnt/vms/images/killed"; then
        has_data "$run/mnt/vms/images/killed" || return 1
        is "$(privileged stat -c %s "$run/mnt/vms/images/killed")" -eq $((image_mib * 1048576)) || return 1
        dolmen image delete "$pool/vms/killed" --destroy killed >>"$logs/images.log" || return 1
    fi
    has_entries "$run/mnt/vms/images" 2
}

open_script 8192 mkfs.xfs mkfs.ext4 qemu-img
if ! knows_filesystem xfs; then
    skip "$script (the kernel does not know xfs)"
    exit 0
fi
: >"$logs/volumes.log"
: >"$logs/images.log"

step 'a volume, and an image elsewhere'
must 'two disks' make_disks 16384 a b
must 'the daemon answers' daemon_start
must 'the pool is made' dolmen pool create "$pool" "$disks/a" "$disks/b"
must 'the volume is made' make_volume vms --for vms --size 24G
head -c "$((mib * 1048576))" /dev/urandom >"$run/data"
cp "$run/data" "$run/image.raw"
truncate -s "${image_mib}M" "$run/image.raw"
must 'a dry run tells' dolmen image add "$pool/vms" "$run/image.raw" --name golden -n
must 'nothing was made' is "$(privileged ls -A "$run/mnt/vms" | wc -l)" -eq 0

step 'an image is added'
must 'added' milliseconds dolmen image add "$pool/vms" "$run/image.raw" --name golden
say "   | $mib MiB of data: $ms ms"
must 'it has its data' has_data "$run/mnt/vms/images/golden"
must 'its holes take no room' is "$(used_mib vms)" -lt $((mib + 1024))
must 'a second one of the name is refused' refused 73 'exists' dolmen image add "$pool/vms" "$run/image.raw" --name golden

step 'images of another system'
must 'qcow2 is made' qemu-img convert -q -f raw -O qcow2 "$run/image.raw" "$run/small.qcow2"
must 'it is added' dolmen image add "$pool/vms" "$run/small.qcow2"
must 'it has its data' has_data "$run/mnt/vms/images/small"
must 'one with a backing file is made' qemu-img create -q -f qcow2 -b "$run/small.qcow2" -F qcow2 "$run/child.qcow2"
must 'it is refused' refused 73 'another file.*small.qcow2' dolmen image add "$pool/vms" "$run/child.qcow2"
must 'the list has both' is "$(dolmen image list "$pool/vms" | grep -c "^$pool/vms/")" -eq 2
rm "$run/small.qcow2" "$run/child.qcow2"

step "$clones clones"
claimed_before=$(claimed_mib vms)
must 'cloned' milliseconds clone_all
taken=$(($(claimed_mib vms) - claimed_before))
say "   | $clones clones of $image_mib MiB: $ms ms, $taken MiB taken in the pool"
must "at most $clones_ms_max ms" is "$ms" -le "$clones_ms_max"
must 'at most 1 % in the pool' is "$taken" -le "$taken_mib_max"
must 'all are there' has_entries "$run/mnt/vms/machines" "$clones"
must 'their user alone reads them' is "$(privileged stat -c %a "$run/mnt/vms/machines/m1")" -eq 600
must 'a clone is written' privileged dd if=/dev/zero of="$run/mnt/vms/machines/m1" bs=1M count=1 conv=notrunc status=none
must 'its image and another clone keep their data' all_have_data "$run/mnt/vms/images/golden" "$run/mnt/vms/machines/m2"
must 'a larger one' dolmen image clone "$pool/vms/golden" large --size 20G
must 'it has its size' is "$(privileged stat -c %s "$run/mnt/vms/machines/large")" -eq 21474836480
must 'a smaller one is refused' refused 2 'at least' dolmen image clone "$pool/vms/golden" less --size 1G
must 'a path elsewhere is refused' refused 2 'is not on the volume' dolmen image clone "$pool/vms/golden" "$run/elsewhere"
must 'a taken name is refused' refused 73 'exists' dolmen image clone "$pool/vms/golden" other m2

step 'killed in the midst'
used_before=$(used_mib vms)
for pause in 0.05 0.1 0.2 0.4 0.8; do must "killed after $pause s, no half image is left" killed_after "$pause"; done
must 'no room is taken' eventually 10 uses_at_most $((used_before + 16))

step 'a full volume, which shares nothing'
must 'a small volume is made' make_volume plain --for files --fs ext4 --size 64M
yes dolmen | head -c 134217728 >"$run/large.img"
must 'an image has no room' refused 74 'full.*MiB more are needed' dolmen image add "$pool/plain" "$run/large.img"
must 'nothing of it is left' has_entries "$run/mnt/plain/images" 0
head -c 8388608 "$run/data" >"$run/tiny.img"
must 'an image is added' dolmen image add "$pool/plain" "$run/tiny.img"
must 'a clone is refused' refused 73 'cannot be cloned.*ext4.*--or-copy' dolmen image clone "$pool/plain/tiny" x
must 'a copy is made' dolmen image clone "$pool/plain/tiny" x --or-copy
must 'it has the bytes' privileged cmp "$run/tiny.img" "$run/mnt/plain/machines/x"

step 'a clone that is a space'
must 'made' dolmen image clone "$pool/plain/tiny" --space "$pool/web" --size 64M
must 'attached' attach_space web
must 'it has the bytes' privileged cmp -n 8388608 "$run/tiny.img" "$device"
must 'it has its size' is "$(privileged blockdev --getsize64 "$device")" -eq 67108864
must 'detached' dolmen space detach "$pool/web"
must 'a taken name is refused' refused 2 'has a space named web' dolmen image clone "$pool/plain/tiny" --space "$pool/web"

step 'the end of an image'
must 'it is not deleted without its name' refused 73 'no terminal' dolmen image delete "$pool/vms/golden"
must 'deleted' dolmen image delete "$pool/vms/golden" --destroy golden
must 'its clones stay' has_data "$run/mnt/vms/machines/m2"
must 'unmounted' dolmen volume unmount "$pool/vms"
must 'an unmounted library is refused' refused 75 'is not mounted' dolmen image list "$pool/vms"
must 'the daemon ends' daemon_stop
must 'the offline check finds the pool clean' cli_check "$disks/a" "$disks/b"
close_script

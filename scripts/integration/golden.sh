#!/bin/sh
# The golden images of the format: the independent reader, written from docs/format alone, lists each of them and extracts every
# space of it. No root.
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='the golden images'
images=$root/crates/space/tests/golden/images

client() { attend -- python3 "$root/scripts/integration/golden_client.py" "$@"; }
reader() { attend -- python3 "$root/scripts/read_pool.py" "$@"; }

unpacked() { client unpack "$images/1.images" "$run/images" >"$run/names" && is "$(wc -l <"$run/names")" -eq 3; }
listed() { reader list "$run/images/$1"/* >"$logs/list.log" && grep -q 'parity 2, thin' "$logs/list.log"; }
extracted() {
    reader extract-all "$run/out-$1" "$run/images/$1"/* >"$logs/extract.log" 2>&1 || { head -n 20 "$logs/extract.log" >&2; return 1; }
    client compare "$images/1-$1.content" "$run/out-$1"
}

open_script 512 python3
step 'the images'
must 'are unpacked' unpacked
for image in closed killed cut; do
    step "$image"
    must 'the reader lists it' listed "$image"
    must 'the reader extracts what was written' extracted "$image"
done
close_script

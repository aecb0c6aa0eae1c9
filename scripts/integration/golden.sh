#!/bin/sh
# The golden images of the format, which the engine makes in this run: the independent reader, written from docs/format alone, lists each of them and extracts every
# space of it; and it does so with bits turned, one at a time: it says what is wrong, or gives what is right. No root.
#
# DOLMEN_GOLDEN_FLIPS   bits that turn on each image, beside one in each kind of structure (default: 2)
# DOLMEN_GOLDEN_SEED    draws others (default: 1)
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='the golden images'
images=$run/golden

# The engine of the day makes the images; the tests of crate space say how.
make_images() {
    DOLMEN_GOLDEN_FOLDER=$images attend -- cargo test --workspace --locked --test spaces -- --exact golden_images::images_are_made_only_where_there_are_none >"$logs/images.log" 2>&1 ||
        { tail -n 20 "$logs/images.log" >&2; return 1; }
}

client() { attend -- python3 "$root/scripts/integration/golden_client.py" "$@"; }
reader() { attend -- python3 "$root/scripts/read_pool.py" "$@"; }

unpacked() { client unpack "$images/$1.images" "$run/images-$1" >"$run/names" && is "$(wc -l <"$run/names")" -eq 3; }
# A space that is in the set and in no other.
listed() { reader list "$run/images-$1/$2"/* >"$logs/list.log" && grep -q "$3" "$logs/list.log" && [ "$(grep -cx '    attributes: 2' "$logs/list.log")" -eq "$(grep -c '^    rows: ' "$logs/list.log")" ]; }
extracted() {
    reader extract-all "$run/out-$1-$2" "$run/images-$1/$2"/* >"$logs/extract.log" 2>&1 || { head -n 20 "$logs/extract.log" >&2; return 1; }
    client compare "$images/$1-$2.content" "$run/out-$1-$2"
}

# bears SET IMAGE: the reader, whichever of some bits has turned.
bears() {
    client flips "$images/$1-$2.content" "$run/images-$1/$2" "${DOLMEN_GOLDEN_FLIPS:-2}" "${DOLMEN_GOLDEN_SEED:-1}" >"$logs/flips.log" 2>&1
    bears_status=$?
    sed 's/^/   | /' "$logs/flips.log"
    return "$bears_status"
}

open_script 512 python3
must 'the images are made' make_images
for set in 3 3-strict 3-stream 3-slots; do
    if is "$set" = 3-strict; then special='strict'; else special='parity 2, thin'; fi
    step "the images $set"
    must 'are unpacked' unpacked "$set"
    for image in closed killed cut; do
        step "$set: $image"
        must 'the reader lists it' listed "$set" "$image" "$special"
        must 'the reader extracts what was written' extracted "$set" "$image"
        must 'whichever bit turns, it believes nothing wrong' bears "$set" "$image"
    done
done
close_script

#!/bin/sh
# Builds dolmen-rescue as one static program, which runs on a system whose libraries are damaged or others, and shows that it
# is static. Prints where it is.
#
# CARGO_TARGET_DIR   where cargo puts what it builds (default: target)
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
target=$(rustc -vV | sed -n 's/^host: //p')
[ -n "$target" ] || { echo 'static.sh: there is no rustc; install Rust (https://rustup.rs)' >&2; exit 69; }
# A target that is named keeps the flags from build scripts and macros, which cannot be static.
RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static" \
    cargo build --release --locked --target "$target" --package dolmen-rescue-io || exit 1
program=${CARGO_TARGET_DIR:-$root/target}/$target/release/dolmen-rescue

# is_static FILE: no interpreter and no library is asked for.
is_static() {
    if command -v readelf >/dev/null 2>&1; then
        readelf -l "$1" | grep -q INTERP && { echo "static.sh: $1 asks for an interpreter" >&2; return 1; }
        readelf -d "$1" | grep -q NEEDED && { echo "static.sh: $1 asks for libraries" >&2; return 1; }
        return 0
    fi
    # ldd leaves with an error where there is nothing to load, but for programs that can lie anywhere.
    ldd "$1" 2>&1 | grep -q -e 'not a dynamic executable' -e 'statically linked' ||
        { echo "static.sh: $1 is not static" >&2; return 1; }
}
is_static "$program" || exit 1
"$program" --version >/dev/null || { echo "static.sh: $program does not run" >&2; exit 1; }
echo "$program"

#!/bin/sh
# fuzz.sh TARGET [--seconds N] [--merge] [-- OPTION...]: fuzzes one target of crate `fuzz`, led by coverage, with libFuzzer.
#
# It begins with the corpus that is kept, and with what runs before this one have found (tools/fuzz/corpus and .demo/fuzz). An
# input that breaks something is left in .demo/fuzz/TARGET.broken, and told. --merge adds the smallest inputs that reach
# something new to the corpus that is kept, and fuzzes nothing. Options behind -- are libFuzzer's.
#
# Stable Rust is enough, and a C++ compiler: the compiler's own pass counts what is reached. Nothing of this is in any other build.
#
# DOLMEN_STATE   where builds, logs and what is found are kept (default: .demo in the checkout)
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
target=${1:-}
[ -d "$root/tools/fuzz/corpus/$target" ] && [ -n "$target" ] || die 2 "fuzz.sh TARGET, one of $(cd "$root/tools/fuzz/corpus" && echo *)"
shift
seconds=60
merge=no
while [ $# -gt 0 ]; do
    case $1 in
        --seconds) seconds=${2:?--seconds takes a number}; shift 2 ;;
        --merge) merge=yes; shift ;;
        --) shift; break ;;
        *) die 2 "fuzz.sh knows no $1" ;;
    esac
done
take_state
need_rust
have c++ || need g++ || die 1 'libFuzzer needs a C++ compiler'

kept=$root/tools/fuzz/corpus/$target
found=$state/fuzz/$target
mkdir -p "$found" "$found.broken"

# One unit of code generation, so that the pass sees whole crates; frames, so that a failure tells where it was.
flags='-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4'
flags="$flags -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
flags="$flags -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cforce-frame-pointers=yes --cfg fuzzing"
built=$state/fuzz/target
# The versions of the project's own lock, and what libFuzzer needs beside them.
cp Cargo.lock scripts/fuzz/Cargo.lock
# A target is named, so that build scripts and macros are built without the pass.
host=$(rustc -vV | sed -n 's/^host: //p')
attend -- env RUSTFLAGS="$flags" CARGO_TARGET_DIR="$built" \
    cargo build --release --manifest-path scripts/fuzz/Cargo.toml --target "$host" ||
    die 1 'the targets do not build for libFuzzer'
fuzzer=$built/$host/release/dolmen-fuzz-coverage

export DOLMEN_FUZZ_TARGET="$target"
if [ "$merge" = yes ]; then
    attend -- "$fuzzer" -merge=1 -rss_limit_mb=2048 "$kept" "$found"
    exit
fi
attend -- "$fuzzer" -max_total_time="$seconds" -max_len=4096 -timeout=120 -rss_limit_mb=2048 -malloc_limit_mb=1024 \
    -artifact_prefix="$found.broken/" -print_final_stats=1 "$@" "$found" "$kept"

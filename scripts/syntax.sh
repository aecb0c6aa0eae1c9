#!/bin/sh
# Lets each shell of this system that knows nothing but POSIX read every script, without running it.
cd "$(dirname "$0")/.." || exit 1
for shell in sh dash 'busybox sh'; do
    command -v "${shell%% *}" >/dev/null || continue
    for file in test demo .ci/run scripts/*.sh scripts/integration/*.sh packaging/postinst packaging/prerm packaging/postrm \
        packaging/dolmen-member packaging/mount.dolmen; do
        # shellcheck disable=SC2086 # two words
        [ ! -e "$file" ] || $shell -n "$file" || exit 1
    done
done

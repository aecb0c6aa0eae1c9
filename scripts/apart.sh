#!/bin/sh
# apart.sh COMMAND...: becomes COMMAND in a namespace of mounts that was just made, without the mounts of other runs: each would keep a
# device of theirs busy for as long as the namespace lives.
#
# These are mounts by FUSE, and those of devices that spaces have here. COMMAND makes its own afterwards.
awk '{
    for (at = 7; $at != "-"; at++);
    if ($(at + 1) ~ /^fuse/ || $(at + 2) ~ /^\/dev\/(loop|ublkb|nbd)/) print $5
}' /proc/self/mountinfo | tac | while IFS= read -r place; do
    # The kernel writes a space as \040.
    umount -l "$(printf '%b' "$(printf '%s' "$place" | sed 's/\\\([0-7]\{3\}\)/\\0\1/g')")"
done
exec "$@"

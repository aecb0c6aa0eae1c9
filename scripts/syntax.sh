#!/bin/sh
# Lets the shell read every script without running it.
cd "$(dirname "$0")/.." || exit 1
for file in test demo scripts/*.sh scripts/integration/*.sh; do
    [ ! -e "$file" ] || sh -n "$file" || exit 1
done

# Shared by the scripts that try what lib.sh and state.sh promise, which source it behind lib.sh: a folder for all that they
# make, a state directory in it, what is left of runs in that, counting, and a system with next to nothing to run in.

proof=$(mktemp -d)
export DOLMEN_STATE="$proof/state of it"
passed=0
failed=0

# check WHAT FOUND EXPECTED
check() {
    if [ "$2" = "$3" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        say "FAILED $1: found '$2', expected '$3'"
    fi
}

# The processes of runs, which carry a mark.
marked() { grep -lsxzF "DOLMEN_MARK=$proof" /proc/[0-9]*/environ | cut -d/ -f3; }

# What of the runs is on the system.
remains() {
    marked | sed 's/^/process /'
    grep -F "$proof" /proc/self/mountinfo | sed 's/^/mount /'
    grep -lF "$proof" /sys/block/loop*/loop/backing_file 2>/dev/null
    [ "$(cat "$proof/setting" 2>/dev/null || echo N)" = N ] || say 'setting'
    for remains_folder in files rust; do
        [ ! -e "$DOLMEN_STATE/$remains_folder" ] || say "folder $DOLMEN_STATE/$remains_folder"
    done
    [ ! -s "$DOLMEN_STATE/record" ] || say 'record'
    [ ! -e "$DOLMEN_STATE/owner" ] || say 'owner'
}

# close_proof: the line that ./test counts.
close_proof() {
    say "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
}

# --- a system with next to nothing ---------------------------------------------------------------------------------
#
# $proof/bin is its PATH, $proof/home its home. What it has beside the smallest Debian are commands made here, which write how
# they were called to $proof/asked; a call that a line of $proof/slow fits, a basic regular expression, does not come to its
# end. It has no network. A Rust in /usr/bin, where the scripts look too, is hidden.

# bare_apart WHAT: sets $apart, the words before a command without a network and with mounts of its own; or says that WHAT is
# skipped, and why, and fails.
bare_apart() {
    apart='unshare -n -m'
    $apart true 2>/dev/null || apart='unshare -r -n -m'
    if ! $apart true 2>/dev/null; then
        say "skipped: $1: needs namespaces of networks and mounts (unshare -n -m)"
    elif [ /usr/sbin -ef /usr/bin ]; then
        say "skipped: $1: the commands of /usr/bin are in /usr/sbin too"
    elif ! $apart sh -c "$hide_rust"; then
        say "skipped: $1: the Rust in /usr/bin cannot be hidden"
    else
        return 0
    fi
    return 1
}

# shellcheck disable=SC2016 # an inner shell expands it
hide_rust='for tool in cargo rustc; do [ ! -e "/usr/bin/$tool" ] || mount --bind /dev/null "/usr/bin/$tool" || exit 1; done'

# bare_system: again, with the commands of the smallest system, without a shell's own.
bare_system() {
    rm -rf "$proof/bin" "$proof/home" "$proof/tmp" "$DOLMEN_STATE"
    mkdir "$proof/bin" "$proof/home" "$proof/tmp"
    rm -f "$proof/fetched"
    : >"$proof/slow"
    : >"$proof/asked"
    for tool in awk b2sum basename cat chmod cp cut date df dirname env expr find flock grep head id install ln ls mkdir mktemp \
        mv nproc od printf readlink rm rmdir sed seq setsid sh sleep sort stat tac tail tee touch tr truncate uname unshare wc \
        xargs; do
        ! have "$tool" || ln -s "$(command -v "$tool")" "$proof/bin/$tool" 2>/dev/null || :
    done
}

# bare_command FILE: makes a command of the lines on standard input.
bare_command() {
    mkdir -p "$(dirname "$1")"
    # In its place at once, and not in that of what a link there leads to.
    rm -f "$1"
    {
        # shellcheck disable=SC2016 # the command expands it
        printf '#!/bin/sh\nproof=%s\nasked="${0#$proof/} $*"\n' "$proof"
        # shellcheck disable=SC2016 # the command expands it
        printf 'printf "%%s\\n" "$asked" >>$proof/asked\n! printf "%%s\\n" "$asked" | grep -qsf $proof/slow || sleep 600\n'
        cat
    } >"$1"
    chmod +x "$1"
}

# bare_rust FOLDER [VERSION]: what says that it is Rust, new enough or of that version, has to fetch crates once, and passes
# every test.
bare_rust() {
    for tool in cargo rustc; do
        bare_command "$1/$tool" <<END
case \$* in
--version) echo "$tool ${2:-$(rust_wanted).0} (0 2000-01-01)" ;;
'fetch --locked --offline') [ -e "\$proof/fetched" ] ;;
'fetch --locked') touch "\$proof/fetched" ;;
test\ *) echo 'test result: ok. 1 passed; 0 failed; 0 ignored' ;;
esac
END
    done
}

# bare_installer: a curl that fetches the official installer of Rust, which brings it.
bare_installer() {
    bare_rust "$proof/brought"
    bare_command "$proof/installer" <<'END'
mkdir -p "$HOME/.cargo/bin" && cp "$proof/brought/cargo" "$proof/brought/rustc" "$HOME/.cargo/bin"
END
    bare_command "$proof/bin/curl" <<'END'
while [ "$1" != -o ]; do shift; done
cp "$proof/installer" "$2"
END
}

# bare_begin COMMAND WORD...: starts one of the two commands in that system; its pid is in $!, what it says in $proof/said.
bare_begin() {
    bare_script=$1
    shift
    # shellcheck disable=SC2086,SC2016 # a list of words; the inner shell expands it
    $apart sh -c "$hide_rust"'
        proof=$1
        shift
        exec env -i PATH="$proof/bin" HOME="$proof/home" TMPDIR="$proof/tmp" DOLMEN_STATE="$proof/state of it" DOLMEN_MARK="$proof" sh "$@"' \
        sh "$proof" "$root/$bare_script" "$@" >"$proof/said" 2>&1 </dev/null &
}

# bare COMMAND WORD...: the same to its end; its status is in $status.
bare() {
    bare_begin "$@"
    status=0
    wait $! || status=$?
}

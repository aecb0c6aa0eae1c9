#!/bin/sh
# Spaces served over a network: TLS with certificates of clients, to a client of its own that speaks extended headers and
# misbehaves, and to those of libnbd (nbdinfo, nbdcopy), of QEMU (qemu-img, qemu-io) and to nbd-client, each where it is
# installed. Certificates that are wrong, files that are, limits, a space that grows, certificates exchanged under an open
# listener. On loopback; no root, but for the kernel's own client, which has its part where the script runs as root on a kernel
# with NBD devices (scripts/guest.sh nbd_tls).
#
# DOLMEN_NBD_MIB   the size of the image that goes through (default: 128)
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. "$root/scripts/lib.sh"
. "$root/scripts/rig.sh"
script='NBD over TLS'
way=nbd
mib=${DOLMEN_NBD_MIB:-128}
address=127.0.0.1

# --- certificates --------------------------------------------------------------------------------------------------

# authority NAME
authority() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj "/CN=$1" \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign \
        -keyout "$pki/$1-key.pem" -out "$pki/$1-cert.pem" 2>>"$logs/openssl.log"
}

# certificate AUTHORITY NAME PURPOSE DAYS
certificate() {
    printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\nkeyUsage=digitalSignature\nextendedKeyUsage=%s\n' "$3" >"$pki/$2.ext"
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$2" \
        -keyout "$pki/$2-key.pem" -out "$pki/$2.csr" 2>>"$logs/openssl.log" &&
        openssl x509 -req -in "$pki/$2.csr" -CA "$pki/$1-cert.pem" -CAkey "$pki/$1-key.pem" -CAcreateserial \
            -days "$4" -extfile "$pki/$2.ext" -out "$pki/$2-cert.pem" 2>>"$logs/openssl.log"
}

# client_folder NAME AUTHORITY: what clients of NBD take, with a certificate as an authority for the server's.
client_folder() {
    mkdir -p "$pki/$1" && cp "$pki/$2-cert.pem" "$pki/$1/ca-cert.pem" &&
        cp "$pki/$1-cert.pem" "$pki/$1/client-cert.pem" && cp "$pki/$1-key.pem" "$pki/$1/client-key.pem"
}

make_certificates() {
    pki=$run/pki
    mkdir -p "$pki" && (umask 077 && authority ca && authority other && authority new &&
        certificate ca server serverAuth 60 && certificate ca old-server serverAuth -1 &&
        certificate new new-server serverAuth 60 && certificate new renewed clientAuth 60 &&
        certificate ca alpha clientAuth 60 && certificate ca beta clientAuth 60 && certificate ca expired clientAuth -1 &&
        certificate ca impostor serverAuth 60 && certificate other stranger clientAuth 60 && client_folder renewed new) || return 1
    for made in alpha beta expired impostor stranger; do
        client_folder "$made" ca || return 1
    done
    mkdir -p "$pki/none" && cp "$pki/ca-cert.pem" "$pki/none/"
}

# --- serving -------------------------------------------------------------------------------------------------------

# serve NAME PORT CERTIFICATE [OPTION]...: with TLS; sets $uri, the address for libnbd without its certificates.
serve() {
    serve_name=$1 serve_port=$2 serve_as=$3
    shift 3
    uri=$(dolmen serve "$pool/$serve_name" --listen "$address:$serve_port" --tls-cert "$pki/$serve_as-cert.pem" \
        --tls-key "$pki/$serve_as-key.pem" --client-ca "$pki/${serve_ca:-ca}-cert.pem" "$@" | tail -n 1) && [ -n "$uri" ]
}

# A port where nobody listens becomes the listener's.
serve_somewhere() {
    port=$((20000 + $$ % 20000))
    for _ in $(seq 1 50); do
        serve big "$port" server 2>>"$logs/serve.log" && return 0
        port=$((port + 1))
    done
    tail -n 5 "$logs/serve.log" >&2
    return 1
}

serve_plain() {
    plain=$((port + 1))
    for _ in $(seq 1 50); do
        uri=$(dolmen serve "$pool/small" --listen "$address:$plain" 2>>"$logs/serve.log" | tail -n 1)
        [ -z "$uri" ] || return 0
        plain=$((plain + 1))
    done
    return 1
}

# at NAME WHO: the address of a space for a client with these certificates.
at() { printf 'nbds://localhost:%s/%s/%s?tls-certificates=%s' "$port" "$pool" "$1" "$pki/$2"; }

# qemu WHO: sets $object and $image for QEMU's tools.
qemu_as() {
    object="tls-creds-x509,id=tls,endpoint=client,dir=$pki/$1${2:+,priority=$2}"
    image="driver=nbd,host=localhost,port=$port,export=$pool/big,tls-creds=tls"
}

bad_command() { refused 2 "$1" serve_badly "$2" "$3" "$4"; }
serve_badly() {
    dolmen serve "$pool/one" --listen "$address:$((port + 200))" --tls-cert "$1" --tls-key "$2" --client-ca "$3"
}

no_tls_elsewhere() { refused 2 'with TLS and certificates of clients alone' dolmen serve "$pool/one" --listen 0.0.0.0:10809; }
half_of_the_files() { refused 2 'tls-key' dolmen serve "$pool/one" --listen "$address:10809" --tls-cert "$pki/server-cert.pem"; }
bad_files() {
    cp "$pki/server-key.pem" "$pki/open-key.pem" && chmod 644 "$pki/open-key.pem" &&
        bad_command 'has expired' "$pki/old-server-cert.pem" "$pki/old-server-key.pem" "$pki/ca-cert.pem" &&
        bad_command 'does not belong to the certificate' "$pki/server-cert.pem" "$pki/alpha-key.pem" "$pki/ca-cert.pem" &&
        bad_command 'others can read it; chmod o=' "$pki/server-cert.pem" "$pki/open-key.pem" "$pki/ca-cert.pem" &&
        bad_command 'No such file' "$pki/server-cert.pem" "$pki/server-key.pem" "$pki/nowhere.pem" &&
        bad_command 'holds no certificate' "$pki/server-key.pem" "$pki/server-key.pem" "$pki/ca-cert.pem"
}

# --- clients -------------------------------------------------------------------------------------------------------

information() {
    nbdinfo --json "$(at big alpha)" >"$logs/nbdinfo.log" && grep -q '"TLS": true' "$logs/nbdinfo.log" &&
        grep -q '"export-size": 8589934592' "$logs/nbdinfo.log"
}
copies() { nbdcopy --flush "$run/image" "$(at big alpha)" && nbdcopy "$(at big alpha)" - | head -c "$((mib * 1048576))" | cmp - "$run/image"; }
qemu_converts() {
    qemu_as alpha
    qemu-img convert -n -f raw --target-image-opts --object "$object" "$run/image" "$image" &&
        qemu-img compare -q --object "$object" --image-opts "$image" "driver=raw,file.driver=file,file.filename=$run/image"
}
qemu_patterns() {
    qemu_as alpha
    qemu-io --object "$object" --image-opts "$image" -c 'write -P 0x11 0 8M' -c 'write -z 1M 1M' -c 'discard 4M 1M' \
        -c 'write -f -P 0x33 6M 64k' -c 'flush' -c 'read -P 0x11 0 1M' -c 'read -P 0 1M 1M' -c 'read -P 0x33 6M 64k' \
        >"$logs/qemu-io.log" 2>&1 && ! grep -qi 'fail\|error\|invalid' "$logs/qemu-io.log"
}

# wire COMMAND WORD...: the client of its own.
wire() { attend -- "$python" "$root/scripts/integration/nbd_tls_client.py" "$@"; }

# size_as WHO NAME: what a client with these certificates is told that the space has.
size_as() {
    if [ -n "$libnbd" ]; then
        nbdinfo --size "$(at "$2" "$1")"
    else
        wire size "$address" "$port" "$pool/$2" "$pki/$1"
    fi
}

# shut WHO WHY: a client is not let in, and the daemon says why.
shut() {
    shut_lines=$(grep -c 'a connection was not let in' "$logs/daemon.log")
    refused 1 '' size_as "$1" big || return 1
    eventually 5 later_than "$shut_lines" "$2"
}
later_than() { grep 'a connection was not let in' "$logs/daemon.log" | tail -n "+$(($1 + 1))" | grep -q "$2"; }
older_tls() { qemu_as alpha 'NORMAL:-VERS-TLS1.3' && refused 1 '' qemu-img info --object "$object" --image-opts "$image"; }
plaintext() { refused 1 'TLS' nbdinfo --size "nbd://localhost:$port/$pool/big"; }
qemu_is_told() { refused 1 'begin with STARTTLS' qemu-img info "nbd://localhost:$port/$pool/big"; }
names() {
    nbdinfo --size "$(at one beta)" >/dev/null && refused 1 'not allowed\|policy' nbdinfo --size "$(at one alpha)" &&
        ! nbdinfo --list --json "$(at big alpha)" | grep -q "\"$pool/one\""
}

# --- nbd-client ----------------------------------------------------------------------------------------------------

# Whether the kernel can be a client here; else why not, in $blocked_by.
has_kernel_client() {
    can_root || { blocked_by='no root and no sudo without a password'; return 1; }
    [ -e /sys/block/nbd0 ] || as_root modprobe nbd 2>/dev/null || :
    [ -e /sys/block/nbd0 ] || { blocked_by='this kernel has no NBD devices'; return 1; }
    need nbd-client || { blocked_by="missing:$missing"; return 1; }
    # It names the versions that it offers to GnuTLS; 3.24 names one, and the server wants the next.
    if grep -qa 'VERS-TLS1\.2' "$(command -v nbd-client)" && ! grep -qa 'VERS-TLS1\.3' "$(command -v nbd-client)"; then
        blocked_by='this nbd-client offers TLS 1.2 alone, and 1.3 is asked for'
        return 1
    fi
    for kernel_folder in /sys/block/nbd*; do
        [ ! -e "$kernel_folder/pid" ] && [ "$(cat "$kernel_folder/size" 2>/dev/null)" = 0 ] || continue
        return 0
    done
    blocked_by='all NBD devices are in use'
    return 1
}

kernel_is_connected() { [ -e "$kernel_folder/pid" ] && [ "$(cat "$kernel_folder/size")" -eq $((64 * 2048)) ]; }
kernel_is_free() { [ ! -e "$kernel_folder/pid" ]; }

# The client stays, so that it is in the record: the device is connected as long as its client lives. A child of it carries the
# cipher.
kernel_connects() {
    kernel_device=/dev/${kernel_folder##*/}
    # shellcheck disable=SC2046 # a list of words
    begin -- $(root_words) nbd-client localhost "$port" "$kernel_device" -name "$pool/kernel" -block-size 4096 -nonetlink \
        -nofork -enable-tls -certfile "$pki/alpha/client-cert.pem" -keyfile "$pki/alpha/client-key.pem" \
        -cacertfile "$pki/alpha/ca-cert.pem" -tlshostname localhost >>"$logs/nbd-client.log" 2>&1
    eventually 20 kernel_is_connected || { tail -n 5 "$logs/nbd-client.log" >&2; return 1; }
}
kernel_disconnects() { as_root nbd-client -d "$kernel_device" >>"$logs/nbd-client.log" 2>&1 && eventually 20 kernel_is_free; }
kernel_writes() {
    head -c 32M "$run/image" >"$run/part" && as_root dd if="$run/part" of="$kernel_device" bs=1M oflag=direct conv=fsync status=none &&
        as_root dd if="$kernel_device" bs=1M count=32 iflag=direct status=none | cmp - "$run/part"
}
kernel_serves() {
    dolmen space create "$pool/kernel" --size 64M --resiliency mirror >>"$logs/make.log" && serve kernel "$port" server
}

find_python() {
    for python in python3 /usr/bin/python3; do
        "$python" -c 'import ssl' >/dev/null 2>&1 && return 0
    done
    return 1
}

# --- changes -------------------------------------------------------------------------------------------------------

has_size() { is "$(size_as "$1" big)" -eq "$2"; }
grows() { dolmen space resize "$pool/big" 9G >/dev/null && has_size alpha 9663676416; }
exchanged() {
    cp "$pki/new-server-key.pem" "$pki/server-key.pem" && cp "$pki/new-server-cert.pem" "$pki/server-cert.pem" &&
        cp "$pki/new-cert.pem" "$pki/ca-cert.pem" && eventually 20 quietly has_size renewed 9663676416
}
quietly() { "$@" >/dev/null 2>&1; }
no_more() { ! quietly size_as alpha big; }
# The lines of every key that was in use, in anything that was logged.
no_secrets() {
    grep -hv -- '-----' "$pki"/*-key.pem | sort -u >"$run/secrets" && [ -s "$run/secrets" ] && ! grep -qFf "$run/secrets" "$logs/daemon.log"
}

open_script $((mib * 6 + 512)) openssl
libnbd=
need nbdinfo nbdcopy && libnbd=yes
qemu=
need qemu-img qemu-io && qemu=yes
find_python || python=
if [ -z "$libnbd$python" ]; then
    skip "$script (neither libnbd's clients nor a Python with ssl)"
    exit 0
fi
# Whatever is ever logged, keys are not in it.
export DOLMEN_LOG=trace

step 'spaces and certificates'
must 'disks' make_disks $((mib * 3)) a b c
must 'the daemon answers' daemon_start
must 'the pool is made' dolmen pool create "$pool" "$disks"/*
must 'a large thin space' dolmen space create "$pool/big" --size 8G --resiliency mirror
must 'and smaller ones' dolmen space create "$pool/one" --size 64M --resiliency mirror
must 'and smaller ones' dolmen space create "$pool/small" --size 64M --resiliency simple
must 'an image' dd if=/dev/urandom of="$run/image" bs=1M count="$mib" status=none
must 'certificates of three authorities' make_certificates

step 'what is refused before anything listens'
must 'a network without TLS' no_tls_elsewhere
must 'half of the files' half_of_the_files

step 'served'
must 'on an address, with TLS' serve_somewhere
must 'files that cannot be used are named' bad_files
must 'a second space on the same listener, for one name' serve one "$port" server --allow beta
must 'another one on loopback without TLS' serve_plain

step 'clients with a certificate'
if [ -n "$libnbd" ]; then
    must 'nbdinfo says what is offered, over TLS' information
    must 'nbdcopy: in and back' copies
    must 'names open what they are allowed' names
else
    skip "libnbd's clients (nbdinfo or nbdcopy is missing)"
fi
if [ -n "$qemu" ]; then
    must 'qemu-img: convert and compare' qemu_converts
    must 'qemu-io: patterns, zeros, discard, FUA' qemu_patterns
else
    skip "QEMU's clients (qemu-img or qemu-io is missing)"
fi
if has_kernel_client; then
    must 'nbd-client: a space for the kernel' kernel_serves
    must 'it is connected, with TLS' kernel_connects
    must 'what the kernel writes, it reads' kernel_writes
    must 'disconnected' kernel_disconnects
    must 'it is served no more' dolmen unserve "$pool/kernel"
else
    skip "nbd-client with TLS, and the kernel behind it ($blocked_by)"
fi

step 'clients without a good one'
must 'none' shut none 'peer sent no certificates'
must 'of another authority' shut stranger 'no certificate\|UnknownIssuer'
must 'expired' shut expired 'xpired\|no certificate\|nvalidCert\|before TLS'
must 'of a server' shut impostor 'extended key usage\|no certificate\|before TLS'
[ -z "$qemu" ] || must 'older TLS' older_tls
[ -z "$libnbd" ] || must 'plaintext' plaintext
[ -z "$qemu" ] || must 'qemu is told to begin with STARTTLS' qemu_is_told
must 'who has one still gets in' has_size alpha 8589934592

step 'a client of our own'
if [ -n "$python" ]; then
    must 'all checks' wire checks "$address" "$port" "$pool/big" "$pki/alpha" "$plain" "$pool/small"
else
    skip "the wire client (no Python with ssl)"
fi

step 'a space that grows'
must 'is seen by new connections' grows

step 'the daemon is restarted, and opens its listeners again'
[ -z "$libnbd" ] || must 'the image goes in' copies
must 'the daemon ends' daemon_stop
must 'the daemon answers' daemon_start
must 'clients come in' eventually 20 quietly has_size alpha 9663676416
must 'served as before' serve big "$port" server

step 'certificates are exchanged under an open listener'
must 'the new ones count' exchanged
must 'the old ones do not' no_more
must 'no key was ever logged' no_secrets
show_status
must 'exported' dolmen pool export "$pool"
must 'the daemon ends' daemon_stop
must 'the check finds the pool clean' cli_check "$disks"/*
close_script

"""Orders to a daemon of its own, for programs about shares."""

import json
import os
import subprocess

from shares_rig import LOG, PROGRAM, children, eventually, log, must, path

SOCKET = path("api")


def dolmen(*words, timeout=120):
    ended = subprocess.run([PROGRAM, *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout,
                           env={**os.environ, "DOLMEN_SOCKET": SOCKET})
    if words:
        log.write(f"\n> dolmen {words}\n".encode() + ended.stdout + ended.stderr)
    return ended.returncode, (ended.stdout + ended.stderr).decode(errors="replace")


def document(*words):
    code, text = dolmen("-o", "json", *words)
    must(f"'dolmen {' '.join(words)}' answers", code == 0, text) if code else None
    return json.loads(text)


def do(*words, **options):
    code, text = dolmen(*words, **options)
    must(f"dolmen {' '.join(words)}", code == 0, text, is_shown=False)
    return text


def start_daemon(state, servers, seconds=30):
    """Starts a daemon with a state folder and a file that describes its servers, and waits until it answers."""
    words = [PROGRAM, "daemon", "--state", state, "--socket", SOCKET, "--links", path("links"), "--named-only"]
    # A group of its own, so that a kill of the daemon reaches the daemon alone.
    with open(os.path.join(os.path.dirname(LOG), "daemon.log"), "ab") as file:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
                                   env={**os.environ, "DOLMEN_SERVERS": servers})
    children.append(process)
    must("the daemon answers", eventually(lambda: dolmen()[0] in (0, 1), seconds))
    return process

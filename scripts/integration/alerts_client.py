#!/usr/bin/env python3
"""Mail servers on loopback for alerts.sh, and looks at the mails that arrived.

alerts_client.py serve FOLDER PORT [CERTIFICATE KEY]: prints the port, and saves each mail as a file of FOLDER until it is ended. With a
certificate, STARTTLS is demanded. Port 0 is one that the system chooses.
alerts_client.py subjects FOLDER: the subjects, oldest first, without those of tests.
alerts_client.py follows FOLDER: whether the last mail answers to the first.
alerts_client.py body FOLDER NUMBER: the text of a mail, from 1 on.
alerts_client.py jump FILE SECONDS: a saved state whose clock was SECONDS ahead of where it is.
"""

import asyncio
import email
import email.policy
import json
import os
import ssl
import sys
from pathlib import Path


class Folder:
    """Saves mails under numbers, whole or not at all."""

    def __init__(self, path):
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)

    async def handle_DATA(self, server, session, envelope):
        number = len(list(self.path.glob("*.mail"))) + 1
        fresh = self.path / "new"
        fresh.write_bytes(envelope.content)
        os.replace(fresh, self.path / f"{number:04}.mail")
        return "250 taken"


async def serve(folder, port, certificate=None, key=None):
    from aiosmtpd.smtp import SMTP

    context = None
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
    handler = Folder(folder)
    loop = asyncio.get_running_loop()

    def connection():
        return SMTP(handler, tls_context=context, require_starttls=context is not None, loop=loop)

    server = await loop.create_server(connection, "127.0.0.1", int(port))
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def mails(folder):
    found = sorted(Path(folder).glob("*.mail"))
    read = [email.message_from_bytes(path.read_bytes(), policy=email.policy.default) for path in found]
    return [one for one in read if not one["Subject"].startswith("test of ")]


def main(what, *words):
    if what == "serve":
        asyncio.run(serve(*words))
    elif what == "subjects":
        for one in mails(words[0]):
            print(one["Subject"])
    elif what == "follows":
        all_mails = mails(words[0])
        sys.exit(all_mails[-1]["In-Reply-To"] != all_mails[0]["Message-ID"])
    elif what == "body":
        print(mails(words[0])[int(words[1]) - 1].get_content())
    elif what == "jump":
        path = Path(words[0])
        saved = json.loads(path.read_text())
        saved["state"]["clock"]["wall_s"] += int(words[1])
        path.write_text(json.dumps(saved))
    else:
        sys.exit(f"{what} is not known; see the head of this file")


if __name__ == "__main__":
    main(*sys.argv[1:])

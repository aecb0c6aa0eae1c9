"""A server on a Unix socket, or over TLS, that answers as its test orders and keeps the requests."""

from __future__ import annotations

import hashlib
import http.server
import os
import shutil
import socket
import socketserver
import ssl
import subprocess
import tempfile
import threading
from typing import Any, Callable, Dict, List, Optional

Handle = Callable[["Handler"], None]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def address_string(self) -> str:
        return "client"

    def log_message(self, *words: Any) -> None:
        """Logs nothing."""

    def handle_one(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append(self)
        self.server.handle(self)

    do_GET = do_POST = handle_one

    def answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    requests: List[Handler]
    handle: Handle

    def handle_error(self, request: Any, address: Any) -> None:
        """A client that leaves early is part of the tests."""


class _UnixServer(_Server):
    address_family = socket.AF_UNIX


class Fake:
    """Server of one test. `handle` answers each request."""

    def __init__(self, handle: Handle, certificate: Optional["Certificate"] = None) -> None:
        self.folder = tempfile.mkdtemp(prefix="dolmen-client-")
        self.path = os.path.join(self.folder, "api")
        if certificate is None:
            path: Any = self.path
            self.server: _Server = _UnixServer(path, Handler)
        else:
            self.server = _Server(("127.0.0.1", 0), Handler)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate.certificate, certificate.key)
            # The handshake belongs to the thread of the connection.
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.begin(handle)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def begin(self, handle: Handle) -> None:
        """Answers otherwise from here on, and forgets the requests so far."""
        self.server.handle = handle
        self.server.requests = []

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    @property
    def requests(self) -> List[Handler]:
        return self.server.requests

    def __enter__(self) -> "Fake":
        return self

    def __exit__(self, *_: Any) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
        shutil.rmtree(self.folder)


class Certificate:
    """Certificate of its own for localhost, made by openssl."""

    def __init__(self, folder: str) -> None:
        self.certificate, self.key = os.path.join(folder, "certificate.pem"), os.path.join(folder, "key.pem")
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        words += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        words += ["-keyout", self.key, "-out", self.certificate]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL, capture_output=True)

    def fingerprint(self) -> str:
        with open(self.certificate, encoding="ascii") as file:
            return hashlib.sha256(ssl.PEM_cert_to_DER_cert(file.read())).hexdigest()


def error(code: str, **fields: Any) -> Dict[str, Any]:
    return {"schema": 1, "error": {"code": code, "message": "m", **fields}}

"""Transports to the daemon: its Unix socket, and HTTPS.

Each request has a connection of its own. A kept one that the server closes in between would leave open whether a change was made.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import os
import re
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Dict, Iterator, Optional
from urllib.parse import urlsplit

from .errors import BadAnswer, BadArgument, NoAnswer, TimedOut

SOCKET = "/run/dolmen/dolmen.sock"
SOCKET_VARIABLE = "DOLMEN_SOCKET"
# Longest answer, and longest line of a stream, in bytes.
ANSWER_MAX = 256 << 20
LINE_MAX = 64 << 20
CHUNK = 1 << 16
JSON = "application/json"
# One and the same since Python 3.10.
TIMEOUTS = (socket.timeout, TimeoutError)


@dataclass(frozen=True)
class Request:
    """Request of one verb, or for the stream."""

    method: str
    path: str
    """Path and query as on the Unix socket, percent-encoded."""
    body: Optional[bytes]
    accept: str = JSON


class Response:
    """Answer whose body is not read yet. `limit` is an instant of the monotonic clock; None waits without end."""

    def __init__(self, connection: http.client.HTTPConnection, limit: Optional[float]) -> None:
        self._connection, self._limit = connection, limit
        # The answer takes the socket from the connection where it is the last one.
        self._socket = connection.sock
        answer = connection.getresponse()
        self._answer = answer
        self.status: int = answer.status
        self.content_type: str = (answer.getheader("Content-Type") or "").split(";")[0].strip().lower()

    def read(self) -> bytes:
        """Returns the whole body, and closes the connection."""
        found = bytearray()
        try:
            while chunk := self._read_some():
                found += chunk
                if len(found) > ANSWER_MAX:
                    raise BadAnswer(f"the answer is longer than {ANSWER_MAX} bytes")
            if self._answer.length:
                raise NoAnswer(f"the connection was lost {self._answer.length} bytes before the end of the answer", is_sent=True)
        finally:
            self.close()
        return bytes(found)

    def lines(self, silence: Optional[float]) -> Iterator[str]:
        """Returns lines as they arrive. `silence` is how long none may arrive, in seconds."""
        left = bytearray()
        try:
            while True:
                self._limit = None if silence is None else time.monotonic() + silence
                chunk = self._read_some()
                if not chunk:
                    return
                left += chunk
                *whole, rest = left.split(b"\n")
                left = bytearray(rest)
                if len(left) > LINE_MAX:
                    raise BadAnswer(f"a line of the stream is longer than {LINE_MAX} bytes")
                for line in whole:
                    yield line.rstrip(b"\r").decode("utf-8", errors="replace")
        finally:
            self.close()

    def close(self) -> None:
        self._answer.close()
        self._connection.close()

    def _read_some(self) -> bytes:
        try:
            # A socket that is closed has its last bytes in the buffer of the answer.
            if self._socket.fileno() >= 0:
                self._socket.settimeout(left_until(self._limit))
            return self._answer.read1(CHUNK)
        except TIMEOUTS as error:
            raise TimedOut("the rest of the answer was not there in time", is_sent=True) from error
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(f"the connection was lost within the answer: {error!r}", is_sent=True) from error


def left_until(limit: Optional[float]) -> Optional[float]:
    """Returns the seconds until an instant."""
    if limit is None:
        return None
    left = limit - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


class Transport:
    """Transport to a daemon."""

    prefix = ""

    def send(self, request: Request, timeout: Optional[float]) -> Response:
        """Sends a request, and returns the answer when its head is there. `timeout` is in seconds, for its body as well."""
        limit = None if timeout is None else time.monotonic() + timeout
        is_sent = False
        connection = self._connection(timeout)
        try:
            connection.connect()
            self._verify(connection)
            connection.sock.settimeout(left_until(limit))
            is_sent = True
            connection.request(request.method, self.prefix + request.path, request.body, self._headers(request))
            connection.sock.settimeout(left_until(limit))
            return Response(connection, limit)
        except TIMEOUTS as error:
            connection.close()
            raise TimedOut(f"{self}: no answer within {timeout} s", is_sent) from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            did = "no answer came" if is_sent else "the connection failed"
            raise NoAnswer(f"{self}: {did}: {error}", is_sent) from error
        except BaseException:
            connection.close()
            raise

    def _connection(self, timeout: Optional[float]) -> http.client.HTTPConnection:
        raise NotImplementedError

    def _verify(self, connection: http.client.HTTPConnection) -> None:
        """Checks the server before anything is sent to it."""

    def _headers(self, request: Request) -> Dict[str, str]:
        headers = {"Accept": request.accept, "Connection": "close"}
        if request.body is not None:
            headers["Content-Type"] = JSON
        return headers


# --- the Unix socket -----------------------------------------------------------------------------------------------


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: Optional[float]) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class UnixTransport(Transport):
    """Unix socket of the daemon of this host. Without a path it is that of DOLMEN_SOCKET, or else /run/dolmen/dolmen.sock."""

    def __init__(self, path: Optional[str] = None) -> None:
        self.path: str = path or os.environ.get(SOCKET_VARIABLE) or SOCKET

    def __repr__(self) -> str:
        return f"unix:{self.path}"

    def _connection(self, timeout: Optional[float]) -> http.client.HTTPConnection:
        return _UnixConnection(self.path, timeout)


# --- HTTPS ---------------------------------------------------------------------------------------------------------


def fingerprint_bytes(text: str) -> bytes:
    """Returns the 32 bytes of a SHA-256 in hexadecimal digits, with or without colons."""
    digits = re.sub(r"^sha-?256[:=]", "", text.strip().lower()).replace(":", "")
    if not re.fullmatch(r"[0-9a-f]{64}", digits):
        raise BadArgument("fingerprint", "it is no SHA-256: 64 hexadecimal digits, with or without colons")
    return bytes.fromhex(digits)


class HttpsTransport(Transport):
    """HTTPS server of the API, with a token.

    The server is trusted by one of three: the authorities of the system; `certificate`, a PEM file with the only authority, or with
    the certificate of the server itself; `fingerprint`, the SHA-256 of the certificate of the server.
    """

    prefix = "/api"

    def __init__(
        self, address: str, token: str, *, certificate: Optional[str] = None, fingerprint: Optional[str] = None
    ) -> None:
        parts = urlsplit(address if "//" in address else f"https://{address}")
        try:
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise BadArgument("address", f"{address!r}: {error}") from error
        if parts.scheme != "https" or not host or parts.path.strip("/") or parts.query or parts.username is not None:
            raise BadArgument("address", f"{address!r} is no https://HOST or https://HOST:PORT")
        if not re.fullmatch(r"[\x21-\x7e]+", token):
            raise BadArgument("token", "it is empty, or has characters that no token has")
        if certificate is not None and fingerprint is not None:
            raise BadArgument("fingerprint", "the server is trusted by its certificate or by its fingerprint, not by both")
        self.host: str = host
        self.port: int = port or 443
        self._token = token
        self._fingerprint = None if fingerprint is None else fingerprint_bytes(fingerprint)
        try:
            self._context = ssl.create_default_context(cafile=certificate)
        except OSError as error:
            raise BadArgument("certificate", f"{certificate} cannot be read as PEM: {error}") from error
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._fingerprint is not None:
            # `_verify` compares the certificate instead, before the token is sent.
            self._context.check_hostname = False
            self._context.verify_mode = ssl.CERT_NONE

    def __repr__(self) -> str:
        return f"https://{self.host}:{self.port}"

    def _connection(self, timeout: Optional[float]) -> http.client.HTTPConnection:
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=self._context)

    def _verify(self, connection: http.client.HTTPConnection) -> None:
        if self._fingerprint is None:
            return
        shown = connection.sock.getpeercert(binary_form=True) if isinstance(connection.sock, ssl.SSLSocket) else None
        found = hashlib.sha256(shown or b"").digest()
        if not hmac.compare_digest(found, self._fingerprint):
            raise NoAnswer(f"{self}: its certificate has the fingerprint {found.hex()}, expected {self._fingerprint.hex()}", False)

    def _headers(self, request: Request) -> Dict[str, str]:
        headers = {**super()._headers(request), "Authorization": f"Bearer {self._token}"}
        if request.method != "GET":
            headers["Dolmen-Request"] = "1"
        return headers

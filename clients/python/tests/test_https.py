"""HTTPS: paths, headers, trust, and the stream, against a server with a certificate of its own."""

from __future__ import annotations

import json
import shutil
import tempfile
import unittest
from typing import Any, Dict

import dolmen

from .examples import OPERATIONS, answer_schema, example
from .fake import Certificate, Fake, Handler, error

TOKEN = "dt_a-secret.7"


def document_of(verb: str) -> Dict[str, Any]:
    found: Dict[str, Any] = example(answer_schema(OPERATIONS[verb]), is_full=True)
    return found


@unittest.skipUnless(shutil.which("openssl"), "no openssl")
class Https(unittest.TestCase):
    folder: str
    certificate: Certificate

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.mkdtemp(prefix="dolmen-client-")
        cls.certificate = Certificate(cls.folder)

    @classmethod
    def tearDownClass(cls) -> None:
        shutil.rmtree(cls.folder)

    def setUp(self) -> None:
        self.fake = Fake(self.handle, self.certificate)
        self.addCleanup(self.fake.__exit__)
        self.address = f"https://localhost:{self.fake.port}"

    def handle(self, request: Handler) -> None:
        verb = "ScrubPool" if request.command == "POST" else "ListPools"
        request.answer(200, json.dumps(document_of(verb)).encode())

    def client(self, **trust: Any) -> dolmen.Client:
        return dolmen.Client.https(self.address, TOKEN, retries=0, **trust)

    def test_requests_have_the_prefix_the_token_and_the_header_of_changes(self) -> None:
        """Scenario: a question and a change. Expected: /api/v1, the token in both, Dolmen-Request in the change alone."""
        client = self.client(certificate=self.certificate.certificate)
        client.list_pools()
        client.scrub_pool("tank", dry_run=True)
        question, change = self.fake.requests
        self.assertEqual((question.path, change.path), ("/api/v1/pools", "/api/v1/pools/tank/scrub"))
        for each in (question, change):
            self.assertEqual(each.headers["Authorization"], f"Bearer {TOKEN}")
        self.assertEqual((question.headers["Dolmen-Request"], change.headers["Dolmen-Request"]), (None, "1"))
        self.assertEqual(change.headers["Content-Type"], "application/json")

    def test_the_fingerprint_of_the_server_is_enough(self) -> None:
        """Scenario: the right fingerprint in three notations. Expected: an answer each time."""
        digits = self.certificate.fingerprint()
        pairs = ":".join(digits[at : at + 2] for at in range(0, 64, 2)).upper()
        for fingerprint in (digits, pairs, f"sha256:{digits}"):
            self.client(fingerprint=fingerprint).list_pools()
        self.assertEqual(len(self.fake.requests), 3)

    def test_a_server_that_is_not_trusted_gets_no_token(self) -> None:
        """Scenario: no authority knows it, another fingerprint, another name. Expected: NoAnswer, and no request at all."""
        wrong = {"fingerprint": "00" * 32}
        other = dolmen.Client.https(self.address.replace("localhost", "127.0.0.2"), TOKEN, certificate=self.certificate.certificate, retries=0)
        for client in (self.client(), self.client(**wrong), other):
            with self.assertRaises(dolmen.NoAnswer) as caught:
                client.list_pools()
            self.assertFalse(caught.exception.is_sent)
        self.assertEqual(self.fake.requests, [])

    def test_addresses_tokens_and_trust_that_cannot_be_are_named(self) -> None:
        """Scenario: wrong addresses, tokens, files and fingerprints. Expected: BadArgument that names the argument, not the token."""
        for address in ("http://host", "https://", "https://host/api", "https://a:b@host", "https://host:99999"):
            with self.subTest(address), self.assertRaisesRegex(dolmen.BadArgument, "^address: "):
                dolmen.Client.https(address, TOKEN)
        for token in ("", "a b", "a\r\nX: 1", "ü"):
            with self.subTest(token), self.assertRaisesRegex(dolmen.BadArgument, "^token: it is empty") as caught:
                dolmen.Client.https("host", token)
            self.assertNotIn("X: 1", str(caught.exception))
        with self.assertRaisesRegex(dolmen.BadArgument, "^certificate: /nowhere"):
            dolmen.Client.https("host", TOKEN, certificate="/nowhere")
        with self.assertRaisesRegex(dolmen.BadArgument, "^fingerprint: "):
            dolmen.Client.https("host", TOKEN, fingerprint="12:34")
        with self.assertRaisesRegex(dolmen.BadArgument, "not by both"):
            dolmen.Client.https("host", TOKEN, fingerprint="00" * 32, certificate=self.certificate.certificate)

    def test_the_token_is_not_shown(self) -> None:
        """Scenario: client and transport as text. Expected: the address, and no token."""
        client = self.client()
        self.assertIn(str(self.fake.port), repr(client))
        self.assertNotIn(TOKEN, repr(client) + repr(client.transport))

    # --- the stream ------------------------------------------------------------------------------------------------

    def stream(self, text: str) -> dolmen.Client:
        def handle(request: Handler) -> None:
            request.send_response(200)
            request.send_header("Content-Type", "text/event-stream; charset=utf-8")
            request.send_header("Connection", "close")
            request.end_headers()
            for at in range(0, len(text), 1000):
                request.wfile.write(text[at : at + 1000].encode())
            request.close_connection = True

        self.fake.begin(handle)
        return self.client(certificate=self.certificate.certificate)

    def test_the_stream_has_typed_events(self) -> None:
        """Scenario: each kind, a comment, several lines of data, an unknown kind, half an event. Expected: all but the last, typed."""
        jobs = json.dumps(document_of("ListJobs"), indent=1)
        text = f"event: status\ndata: {json.dumps(document_of('ShowStatus'))}\n\n: alive\n\n"
        text += "event: jobs\r\nid: 5\r\n" + "".join(f"data:{line}\r\n" for line in jobs.split("\n")) + "\r\n"
        text += f"event: events\ndata: {json.dumps(document_of('ListEvents'))}\n\n"
        text += f"event: figures\ndata: {json.dumps(document_of('ShowFigures'))}\n\n"
        text += 'event: weather\ndata: {"sun": true}\n\nevent: status\ndata: {'
        found = list(self.stream(text).stream(silence=10))
        self.assertEqual([each.kind for each in found], ["status", "jobs", "events", "figures", "weather"])
        kinds = [dolmen.types.Status, dolmen.types.Jobs, dolmen.types.Events, dolmen.types.Figures, type(None)]
        self.assertEqual([type(each.value) for each in found], kinds)
        self.assertEqual((found[1].id, found[4].data), ("5", {"sun": True}))
        (request,) = self.fake.requests
        self.assertEqual((request.path, request.headers["Accept"]), ("/api/v1/stream", "text/event-stream"))

    def test_a_stream_that_is_refused_or_broken_is_named(self) -> None:
        """Scenario: a refusal, a page, data that is no JSON. Expected: Error, BadAnswer and BadAnswer."""
        refused = json.dumps(error("permission")).encode()
        client = self.client(certificate=self.certificate.certificate)
        self.fake.begin(lambda request: request.answer(403, refused))
        with self.assertRaises(dolmen.Error) as caught:
            client.stream()
        self.assertEqual(caught.exception.code, "permission")
        self.fake.begin(lambda request: request.answer(200, b"<html>", "text/html"))
        with self.assertRaises(dolmen.BadAnswer):
            client.stream()
        with self.assertRaisesRegex(dolmen.BadAnswer, "'status' holds no JSON"):
            list(self.stream("event: status\ndata: {\n\n").stream())

    def test_an_unresponsive_stream_is_timed_out(self) -> None:
        """Scenario: one event, then nothing. Expected: the event, then TimedOut."""
        import threading

        ended = threading.Event()
        self.addCleanup(ended.set)

        def handle(request: Handler) -> None:
            request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: x\ndata: 1\n\n")
            ended.wait(20)

        self.fake.begin(handle)
        events = self.client(certificate=self.certificate.certificate).stream(silence=0.5)
        self.assertEqual(next(events).data, 1)
        with self.assertRaises(dolmen.TimedOut):
            next(events)


if __name__ == "__main__":
    unittest.main()

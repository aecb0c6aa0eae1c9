"""What goes wrong, what is repeated, and what is waited for, against a server of the test."""

from __future__ import annotations

import json
import socket
import threading
import time
import unittest
from typing import Any, Dict, List

import dolmen
from dolmen import types

from .examples import OPERATIONS, answer_schema, example
from .fake import Fake, Handle, Handler, error


def document_of(verb: str, **fields: Any) -> Dict[str, Any]:
    return {**example(answer_schema(OPERATIONS[verb]), is_full=False), **fields}


def answers(document: Any, status: int = 200) -> Handle:
    return lambda request: request.answer(status, json.dumps(document).encode())


def loses(request: Handler) -> None:
    """Ends the connection without an answer."""
    request.close_connection = True
    request.connection.shutdown(socket.SHUT_RDWR)


class ClientCase(unittest.TestCase):
    def fake(self, handle: Handle, **options: Any) -> dolmen.Client:
        fake = Fake(handle)
        self.addCleanup(fake.__exit__)
        self.requests = fake.requests
        return dolmen.Client.unix(fake.path, **options)


class Refusals(ClientCase):
    def test_a_refusal_has_all_that_the_api_says(self) -> None:
        """Scenario: an ErrorDocument with all fields. Expected: an Error with each of them, the status and the verb."""
        refused = error("no_such_pool", causes=["c1", "c2"], hint="look", object="tank", of_a_later_daemon=1)
        client = self.fake(answers(refused, 404))
        with self.assertRaises(dolmen.Error) as caught:
            client.show_pool("tank")
        found = caught.exception
        self.assertEqual((found.code, found.message, found.hint, found.object), ("no_such_pool", "m", "look", "tank"))
        self.assertEqual((found.causes, found.status, found.verb), (["c1", "c2"], 404, "ShowPool"))
        self.assertEqual(str(found), "ShowPool: m: c1: c2 (no_such_pool); look")

    def test_a_code_of_a_later_daemon_is_kept(self) -> None:
        """Scenario: a code that the document does not have. Expected: an Error with that code."""
        client = self.fake(answers(error("too_many_moons"), 400))
        with self.assertRaises(dolmen.Error) as caught:
            client.list_pools()
        self.assertEqual(caught.exception.code, "too_many_moons")

    def test_an_answer_that_is_none_of_the_api_is_named(self) -> None:
        """Scenario: a page, a redirect, a wrong type, a missing field. Expected: a BadAnswer that names the place, each time."""
        wrong = document_of("ListPools", pools=[example({"$ref": "#/components/schemas/Pool"}, is_full=True)])
        wrong["pools"][0]["disks"][0]["slot"] = "seven"
        missing = document_of("ListPools")
        del missing["schema"]
        cases: List[Any] = [
            (lambda request: request.answer(200, b"<html>", "text/html"), "no JSON.*<html>"),
            (lambda request: request.answer(302, b"{}"), "status 302"),
            (lambda request: request.answer(500, b"oops"), "status 500"),
            (lambda request: request.answer(200, b"[" * 100000), "no JSON"),
            (answers(wrong), r"Pools.pools\[0\].disks\[0\].slot: found 'seven', expected int"),
            (answers(missing), "Pools: field schema is missing"),
            (answers([1]), "Pools: found .1., expected dict"),
        ]
        for handle, words in cases:
            with self.subTest(words):
                client = self.fake(handle)
                with self.assertRaisesRegex(dolmen.BadAnswer, words):
                    client.list_pools()

    def test_a_word_of_a_later_daemon_is_kept(self) -> None:
        """Scenario: an enumeration has a value that the document does not have. Expected: it is there, as a text."""
        client = self.fake(answers(document_of("ShowStatus", health="sunny")))
        self.assertEqual(client.show_status().health, "sunny")


class Connections(ClientCase):
    def test_a_lost_question_is_asked_again(self) -> None:
        """Scenario: two connections are lost, the third answers. Expected: the answer, after three requests."""
        rest = [loses, loses, answers(document_of("ListPools"))]
        client = self.fake(lambda request: rest.pop(0)(request))
        self.assertEqual(client.list_pools().schema, 7)
        self.assertEqual(len(self.requests), 3)

    def test_a_change_that_may_not_be_repeated_is_sent_once(self) -> None:
        """Scenario: each change loses its connection. Expected: one request, or three where the document calls it idempotent."""
        client = self.fake(loses)
        for name, verb in dolmen.VERBS.items():
            if name not in ("create_space", "set_reserve", "pause_job", "destroy_pool"):
                continue
            self.requests.clear()
            requests: Dict[str, Dict[str, Any]] = {
                "create_space": {"pool": "p", "name": "s", "resiliency": "simple", "size_bytes": 4096},
                "set_reserve": {"pool": "p", "space": "s", "bytes": 0},
                "pause_job": {"job": 1},
                "destroy_pool": {"pool": "p"},
            }
            with self.subTest(name), self.assertRaises(dolmen.NoAnswer) as caught:
                getattr(client, name)(**requests[name])
            self.assertTrue(caught.exception.is_sent)
            self.assertEqual(len(self.requests), 3 if verb.is_idempotent else 1)

    def test_a_refusal_is_not_repeated(self) -> None:
        """Scenario: a question is refused. Expected: one request."""
        client = self.fake(answers(error("busy"), 409))
        with self.assertRaises(dolmen.Error):
            client.list_pools()
        self.assertEqual(len(self.requests), 1)

    def test_no_daemon_is_no_answer_and_nothing_was_sent(self) -> None:
        """Scenario: no socket is there. Expected: NoAnswer that names it, with nothing sent."""
        client = dolmen.Client.unix("/nowhere/api", retries=0)
        with self.assertRaisesRegex(dolmen.NoAnswer, "unix:/nowhere/api") as caught:
            client.list_pools()
        self.assertFalse(caught.exception.is_sent)

    def test_an_unresponsive_server_is_timed_out_at_each_part_of_the_answer(self) -> None:
        """Scenario: no head, no body, a body by drops. Expected: TimedOut, once, about when the caller asked for it."""
        ended = threading.Event()
        self.addCleanup(ended.set)

        def head(request: Handler) -> None:
            ended.wait(20)

        def body(request: Handler) -> None:
            request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{")
            ended.wait(20)

        def drops(request: Handler) -> None:
            request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n")
            while not ended.wait(0.05):
                request.wfile.write(b" ")

        for handle in (head, body, drops):
            with self.subTest(handle.__name__):
                client = self.fake(handle)
                begun = time.monotonic()
                with self.assertRaises(dolmen.TimedOut) as caught:
                    client.list_pools(timeout=0.4)
                self.assertTrue(caught.exception.is_sent)
                # Far below the 20 s of the server.
                self.assertLess(time.monotonic() - begun, 10)
                self.assertEqual(len(self.requests), 1)

    def test_an_answer_that_is_cut_off_is_no_answer(self) -> None:
        """Scenario: the connection ends within the body. Expected: NoAnswer, not a document that is cut off."""

        def cut(request: Handler) -> None:
            request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{}")
            loses(request)

        client = self.fake(cut, retries=0)
        with self.assertRaisesRegex(dolmen.NoAnswer, "before the end|lost"):
            client.list_pools()

    def test_one_client_serves_several_threads(self) -> None:
        """Scenario: eight threads ask for pools by names of their own. Expected: each gets the pool of its name."""

        def named(request: Handler) -> None:
            pool = example({"$ref": "#/components/schemas/Pool"}, is_full=False)
            answers({"schema": 1, "pool": {**pool, "name": request.path.rsplit("/", 1)[1]}})(request)

        client = self.fake(named)
        found: Dict[str, str] = {}

        def ask(name: str) -> None:
            found[name] = client.show_pool(name).pool.name

        threads = [threading.Thread(target=ask, args=(f"p{number}",)) for number in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(found, {f"p{number}": f"p{number}" for number in range(8)})


class Arguments(ClientCase):
    def test_a_wrong_argument_is_named_and_nothing_is_sent(self) -> None:
        """Scenario: arguments of other types, out of range, that lead elsewhere. Expected: BadArgument with verb and argument."""
        client = self.fake(answers({}))
        grant: Any = types.ShareAccountGrant(access="read", name="ann", to="user")  # type: ignore[arg-type]
        space: Dict[str, Any] = {"name": "s", "resiliency": "mirror", "size_bytes": 4096}
        share: Dict[str, Any] = {"name": "d", "protocols": ["smb"]}
        nothing: Any = [{}]
        wrong: List[Any] = [
            (lambda: client.create_space("p", **{**space, "size_bytes": -1}), "CreateSpace.size_bytes: -1 is less than 0"),
            (lambda: client.create_space("p", **{**space, "size_bytes": 1.5}), "CreateSpace.size_bytes: 1.5 is no whole"),
            (lambda: client.create_space("p", **{**space, "size_bytes": True}), "CreateSpace.size_bytes: True"),
            (lambda: client.create_space("p", **{**space, "name": None}), "CreateSpace.name: None is no text"),
            (lambda: client.create_space("p", **{**space, "resiliency": "raid"}), "CreateSpace.resiliency: 'raid' is none of simple"),
            (lambda: client.create_pool(name="p", disks="/dev/sda"), "CreatePool.disks: '/dev/sda' is no list"),
            (lambda: client.create_pool(name="p", disks=["/a", 7]), r"CreatePool.disks\[1\]: 7 is no text"),  # type: ignore[list-item]
            (lambda: client.create_pool(name="p", disks=[], dry_run="no"), "CreatePool.dry_run"),  # type: ignore[arg-type]
            (lambda: client.create_share("p", "v", **share, accounts=[grant]), r"CreateShare.accounts\[0\].access: 'read'"),
            (lambda: client.create_share("p", "v", **share, accounts=nothing), r"CreateShare.accounts\[0\]: {} is no types."),
            (lambda: client.show_pool(""), "ShowPool.pool: '' is no name"),
            (lambda: client.export_pool(".."), "ExportPool.pool: '..' is no name"),
            (lambda: client.show_job("1"), "ShowJob.job: '1' is no whole number"),  # type: ignore[arg-type]
            (lambda: client.list_events(since=-1), "ListEventsQuery.since|ListEvents.since"),
            (lambda: client.list_pools(timeout=0), "timeout"),
            (lambda: dolmen.Client(retries=-1), "retries"),
        ]
        for call, words in wrong:
            with self.subTest(words), self.assertRaisesRegex(dolmen.BadArgument, words):
                call()
        self.assertEqual(self.requests, [])

    def test_a_dry_run_is_sent_where_it_is_asked_for_alone(self) -> None:
        """Scenario: one change with dry_run and one without. Expected: the field is there, and is not."""
        client = self.fake(answers(document_of("ScrubPool")))
        client.scrub_pool("p", dry_run=True)
        client.scrub_pool("p")
        self.assertEqual([json.loads(each.body) for each in self.requests], [{"dry_run": True}, {}])


class Jobs(ClientCase):
    def job(self, state: str, **fields: Any) -> Dict[str, Any]:
        return {**example({"$ref": "#/components/schemas/Job"}, is_full=False), "id": 7, "state": state, **fields}

    def client_of(self, *states: str) -> dolmen.Client:
        rest = list(states)

        def handle(request: Handler) -> None:
            state = rest.pop(0) if len(rest) > 1 else rest[0]
            answers({"schema": 1, "job": self.job(state, result="because", waits_for="a disk")})(request)

        return self.fake(handle)

    def test_a_job_is_waited_for_until_it_is_done(self) -> None:
        """Scenario: waiting, running, paused, done. Expected: the job, and each look at it reported."""
        client = self.client_of("waiting", "running", "paused", "done")
        looks: List[str] = []
        self.assertEqual(client.wait_for_job(7, on_progress=lambda job: looks.append(job.state)).state, "done")
        self.assertEqual(looks, ["waiting", "running", "paused", "done"])

    def test_a_job_that_fails_is_an_exception(self) -> None:
        """Scenario: a job fails, another is called off. Expected: JobFailed with the job and its result."""
        for state in ("failed", "called_off"):
            client = self.client_of("running", state)
            with self.assertRaisesRegex(dolmen.JobFailed, f"job 7 .* {state}: because") as caught:
                client.wait_for_job(7)
            self.assertEqual(caught.exception.job.state, state)

    def test_waiting_ends_at_the_limit_of_the_caller(self) -> None:
        """Scenario: a job runs on. Expected: TimedOut, which names the job and what it waits for."""
        with self.assertRaisesRegex(dolmen.TimedOut, "job 7 .* running after 0.2 s, and waits for a disk"):
            self.client_of("running").wait_for_job(7, timeout=0.2)

    def test_all_jobs_of_a_change_are_waited_for(self) -> None:
        """Scenario: a change with one job and two more. Expected: three jobs; none where the change started none."""
        change = document_of("ScrubPool", job=self.job("running"), further_jobs=[self.job("running")] * 2)
        client = self.fake(lambda request: answers(change if request.command == "POST" else {"schema": 1, "job": self.job("done")})(request))
        self.assertEqual([job.state for job in client.wait_for_jobs(client.scrub_pool("p"))], ["done"] * 3)
        change.update(job=None, further_jobs=[])
        self.assertEqual(client.wait_for_jobs(client.scrub_pool("p")), [])


if __name__ == "__main__":
    unittest.main()

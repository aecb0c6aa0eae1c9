"""A client of a real daemon that compares each answer with the document, and keeps which verbs answered."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Mapping, Optional, Set, TypeVar

import dolmen
from dolmen import types
from dolmen._wire import Verb
from dolmen.transports import Request, Response, UnixTransport

from .examples import OPERATIONS, SCHEMAS, answer_schema, problems

SOCKET = os.environ.get("DOLMEN_TEST_SOCKET", "")
FOLDER = os.environ.get("DOLMEN_TEST_FOLDER", "")
MIB = 1 << 20
# Seconds for one job.
JOB_MAX = 60.0

A = TypeVar("A")


class Watched(UnixTransport):
    """Transport that keeps the body of the last answer."""

    body = b""

    def send(self, request: Request, timeout: Optional[float]) -> Response:
        response = super().send(request, timeout)
        read = response.read

        def kept() -> bytes:
            self.body = read()
            return self.body

        setattr(response, "read", kept)
        return response


class Compared(dolmen.Client):
    """Client whose answers are compared with the schemas and the error codes of the document."""

    def __init__(self, socket: str) -> None:
        self.watched = Watched(socket)
        super().__init__(self.watched, timeout=JOB_MAX)
        self.answered: Set[str] = set()
        self.refused: Dict[str, Set[str]] = {}
        self.faults: List[str] = []

    def _call(self, verb: Verb[A], path: Mapping[str, object], fields: Mapping[str, object], timeout: Optional[float]) -> A:
        try:
            answer = super()._call(verb, path, fields, timeout)
        except dolmen.Error as error:
            self.refused.setdefault(verb.name, set()).add(error.code)
            self.faults += problems(SCHEMAS["ErrorDocument"], json.loads(self.watched.body), verb.name)
            if error.code not in verb.error_codes:
                self.faults.append(f"{verb.name}: the document does not list {error.code}: {error}")
            raise
        self.answered.add(verb.name)
        self.faults += problems(answer_schema(OPERATIONS[verb.name]), json.loads(self.watched.body), verb.name)
        return answer

    # --- steps -----------------------------------------------------------------------------------------------------

    def plan(self, method: str, *path: Any, **fields: Any) -> types.Change:
        """Calls a change with dry_run, which changes nothing."""
        found: types.Change = getattr(self, method)(*path, **fields, dry_run=True)
        if found.is_changed:
            raise AssertionError(f"{method} with dry_run says that it changed something: {found.message}")
        return found

    def begin(self, method: str, *path: Any, **fields: Any) -> types.Change:
        """Calls a change with dry_run, then without."""
        self.plan(method, *path, **fields)
        done: types.Change = getattr(self, method)(*path, **fields)
        return done

    def do(self, method: str, *path: Any, **fields: Any) -> types.Change:
        """The same, and waits for its jobs."""
        done = self.begin(method, *path, **fields)
        self.wait_for_jobs(done, timeout=JOB_MAX)
        return done

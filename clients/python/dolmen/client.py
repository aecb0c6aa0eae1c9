"""Client of the API: a method for each verb, and what goes on for longer than one answer."""

from __future__ import annotations

import json
import time
from typing import Any, Callable, Iterator, List, Mapping, Optional, TypeVar, Union
from urllib.parse import quote, urlencode

from . import types
from ._verbs import Verbs
from ._wire import Verb, decode, encode, encode_fields
from .errors import BadAnswer, BadArgument, Error, JobFailed, NoAnswer, TimedOut
from .stream import StreamEvent, read_stream
from .transports import HttpsTransport, Request, Response, Transport, UnixTransport

A = TypeVar("A")
# Seconds that a call may take.
TIMEOUT = 60.0
# Further tries of a verb that may be repeated, and seconds before the first of them; each pause is twice as long.
RETRIES = 2
PAUSE = 0.1
# Seconds between two looks at a job.
LOOK_MIN = 0.1
LOOK_MAX = 2.0
ENDED = ("done", "called_off", "failed")
STREAM_PATH = "/v1/stream"
EVENT_STREAM = "text/event-stream"


class Client(Verbs):
    """Client of one daemon. It may be used by several threads.

    `timeout` is how long a call may take, in seconds, with all its tries. A call whose connection failed is tried again only where
    the document says that a second time changes nothing, at most `retries` times.
    """

    def __init__(self, transport: Optional[Transport] = None, *, timeout: float = TIMEOUT, retries: int = RETRIES) -> None:
        if retries < 0:
            raise BadArgument("retries", f"{retries} is less than 0")
        self.transport: Transport = transport or UnixTransport()
        self.timeout = seconds("timeout", timeout)
        self.retries = retries

    @classmethod
    def unix(cls, path: Optional[str] = None, *, timeout: float = TIMEOUT, retries: int = RETRIES) -> "Client":
        """Returns a client over a Unix socket: that of DOLMEN_SOCKET, or else /run/dolmen/dolmen.sock, unless it is named."""
        return cls(UnixTransport(path), timeout=timeout, retries=retries)

    @classmethod
    def https(
        cls,
        address: str,
        token: str,
        *,
        certificate: Optional[str] = None,
        fingerprint: Optional[str] = None,
        timeout: float = TIMEOUT,
        retries: int = RETRIES,
    ) -> "Client":
        """Returns a client over HTTPS with a token. HttpsTransport says how the server is trusted."""
        transport = HttpsTransport(address, token, certificate=certificate, fingerprint=fingerprint)
        return cls(transport, timeout=timeout, retries=retries)

    def __repr__(self) -> str:
        return f"Client({self.transport!r})"

    # --- one call --------------------------------------------------------------------------------------------------

    def _call(self, verb: Verb[A], path: Mapping[str, object], fields: Mapping[str, object], timeout: Optional[float]) -> A:
        request = request_of(verb, path, fields)
        limit = time.monotonic() + (self.timeout if timeout is None else seconds("timeout", timeout))
        tries = self.retries if verb.is_idempotent else 0
        pause = PAUSE
        while True:
            try:
                response = self.transport.send(request, max(limit - time.monotonic(), 0.001))
                return answer_of(verb, response)
            except TimedOut:
                raise
            except NoAnswer:
                if tries == 0 or time.monotonic() + pause >= limit:
                    raise
            time.sleep(pause)
            tries -= 1
            pause *= 2

    # --- jobs ------------------------------------------------------------------------------------------------------

    def wait_for_job(
        self,
        job: Union[types.Job, int],
        *,
        timeout: Optional[float] = None,
        on_progress: Optional[Callable[[types.Job], object]] = None,
    ) -> types.Job:
        """Waits until a job is done, and returns it; raises JobFailed where it failed or was called off.

        job: The job of an answer, or its number.
        timeout: Seconds to wait; without end where it is left out. The job goes on after a TimedOut.
        on_progress: Called with the job after each look at it.
        """
        number = job.id if isinstance(job, types.Job) else job
        limit = None if timeout is None else time.monotonic() + seconds("timeout", timeout)
        pause = LOOK_MIN
        while True:
            now = self.show_job(number).job
            if on_progress is not None:
                on_progress(now)
            if now.state == "done":
                return now
            if now.state in ENDED:
                raise JobFailed(now)
            if limit is not None and time.monotonic() + pause > limit:
                waits = f", and waits for {now.waits_for}" if now.waits_for else ""
                raise TimedOut(f"job {now.id} ({now.kind} of {now.pool}) is {now.state} after {timeout} s{waits}", is_sent=True)
            time.sleep(pause)
            pause = min(pause * 1.5, LOOK_MAX)

    def wait_for_jobs(self, change: types.Change, *, timeout: Optional[float] = None) -> List[types.Job]:
        """Waits until all jobs of an answer are done, and returns them; none where the change started none."""
        limit = None if timeout is None else time.monotonic() + seconds("timeout", timeout)
        jobs = ([change.job] if change.job else []) + change.further_jobs
        left: Callable[[], Optional[float]] = lambda: None if limit is None else max(limit - time.monotonic(), 0.001)
        return [self.wait_for_job(each, timeout=left()) for each in jobs]

    # --- the stream ------------------------------------------------------------------------------------------------

    def stream(self, *, silence: Optional[float] = None) -> Iterator[StreamEvent]:
        """Returns what happens, as it happens, until the server ends the stream. It is served over HTTPS alone.

        silence: Seconds without a word after which the connection counts as lost; without end where it is left out.
        """
        limit = None if silence is None else seconds("silence", silence)
        response = self.transport.send(Request("GET", STREAM_PATH, None, EVENT_STREAM), self.timeout)
        if response.status != 200 or response.content_type != EVENT_STREAM:
            raise refusal("stream", response, response.read())
        return read_stream(response.lines(limit))


# --- requests and answers ------------------------------------------------------------------------------------------


def seconds(argument: str, value: float) -> float:
    if not value > 0:
        raise BadArgument(argument, f"{value!r} is no number of seconds above 0")
    return value


def request_of(verb: Verb[Any], path: Mapping[str, object], fields: Mapping[str, object]) -> Request:
    segments = {name: segment(verb, name, hint, path[name]) for name, hint in verb.parameters.items()}
    target = verb.path.format(**segments)
    document = {} if verb.request is None else encode_fields(verb.request, fields, verb.name)
    if verb.is_change:
        return Request(verb.method, target, json.dumps(document).encode())
    query = urlencode(document, quote_via=quote)
    return Request(verb.method, target + (f"?{query}" if query else ""), None)


def segment(verb: Verb[Any], name: str, hint: object, value: object) -> str:
    place = f"{verb.name}.{name}"
    text = str(encode(hint, value, place))
    # Those three would name another path.
    if text in ("", ".", ".."):
        raise BadArgument(place, f"{text!r} is no name")
    return quote(text, safe="")


def answer_of(verb: Verb[A], response: Response) -> A:
    body = response.read()
    if not 200 <= response.status < 300:
        raise refusal(verb.name, response, body)
    answer: A = decode(verb.answer, read_json(verb.name, response, body), verb.answer.__name__)
    return answer


def read_json(verb: str, response: Response, body: bytes) -> object:
    try:
        found: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        head = body[:120].decode("utf-8", errors="replace")
        raise BadAnswer(f"{verb}: status {response.status} with an answer that is no JSON: {head!r}") from error
    return found


def refusal(verb: str, response: Response, body: bytes) -> Union[Error, BadAnswer]:
    try:
        document: types.ErrorDocument = decode(types.ErrorDocument, read_json(verb, response, body), "ErrorDocument")
    except BadAnswer as error:
        return BadAnswer(f"{verb}: status {response.status} without an error of the API: {error}")
    return Error(document.error, response.status, verb)

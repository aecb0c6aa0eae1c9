"""Exceptions of this package. All of them are `Failure`s."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional

if TYPE_CHECKING:
    from .types import ErrorBody, Job


class Failure(Exception):
    """A call did not succeed."""


class Error(Failure):
    """A refusal, as the API words it. Programs decide by `code`; its words are stable."""

    def __init__(self, body: "ErrorBody", status: int, verb: str) -> None:
        self.code: str = body.code
        """Word such as `no_such_pool`. `types.ErrorCode` lists those of this version; a later daemon may have others."""
        self.message: str = body.message
        self.hint: Optional[str] = body.hint
        """What to do about it."""
        self.causes: List[str] = body.causes
        """Why, from the nearest cause to the first."""
        self.object: Optional[str] = body.object
        """Name of the pool, space, disk or path that it is about."""
        self.status: int = status
        """HTTP status."""
        self.verb: str = verb
        text = ": ".join([f"{verb}: {body.message}", *body.causes])
        super().__init__(f"{text} ({body.code})" + (f"; {body.hint}" if body.hint else ""))


class NoAnswer(Failure):
    """The connection failed, or was lost before the whole answer was there."""

    def __init__(self, message: str, is_sent: bool) -> None:
        self.is_sent: bool = is_sent
        """Whether the request may have arrived. A change may then have been made: look before it is repeated."""
        super().__init__(message)


class TimedOut(NoAnswer):
    """The answer was not there in time."""


class BadAnswer(Failure):
    """The answer is none of the API: another server is at this address, or a field has another type."""


class BadArgument(Failure, ValueError):
    """An argument cannot be: nothing was sent."""

    def __init__(self, argument: str, problem: str) -> None:
        self.argument: str = argument
        super().__init__(f"{argument}: {problem}")


class JobFailed(Failure):
    """A job that was waited for has failed, or was called off."""

    def __init__(self, job: "Job") -> None:
        self.job: Job = job
        super().__init__(f"job {job.id} ({job.kind} of {job.pool}) ended as {job.state}: {job.result or 'it says nothing'}")

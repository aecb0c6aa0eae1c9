"""Server-sent events: what happens on a host, as it happens."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Union

from . import types
from ._wire import decode
from .errors import BadAnswer

# Types of the events of this version.
KINDS: Dict[str, Any] = {"status": types.Status, "jobs": types.Jobs, "events": types.Events, "figures": types.Figures}


@dataclass
class StreamEvent:
    """Message of the stream."""

    kind: str
    """`status`, `jobs`, `events` or `figures`; a later server may have others."""
    value: Union[types.Status, types.Jobs, types.Events, types.Figures, None]
    """The document; None for a kind that this version does not know."""
    data: object
    """The same as it came, read from JSON."""
    id: Optional[str] = None
    """Its identifier, where the server gives one."""


def read_stream(lines: Iterator[str]) -> Iterator[StreamEvent]:
    """Returns the events in the lines. The last one is left out where the stream ended within it."""
    kind, last_id = "", None
    data: List[str] = []
    for line in lines:
        if line == "":
            if data:
                yield event_of(kind or "message", "\n".join(data), last_id)
            kind, data = "", []
            continue
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        # A line without a name is a comment, which keeps the connection open.
        if name == "event":
            kind = value
        elif name == "data":
            data.append(value)
        elif name == "id":
            last_id = value


def event_of(kind: str, text: str, last_id: Optional[str]) -> StreamEvent:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"stream: the event {kind!r} holds no JSON: {text[:120]!r}") from error
    value = decode(KINDS[kind], data, kind) if kind in KINDS else None
    return StreamEvent(kind, value, data, last_id)

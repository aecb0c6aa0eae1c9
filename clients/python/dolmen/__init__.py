"""Client of the API of Dolmen.

    import dolmen

    client = dolmen.Client.unix()
    for pool in client.list_pools().pools:
        print(pool.name, pool.health)
"""

from . import types
from ._verbs import VERBS
from .client import Client
from .errors import BadAnswer, BadArgument, Error, Failure, JobFailed, NoAnswer, TimedOut
from .stream import StreamEvent
from .transports import HttpsTransport, Transport, UnixTransport

__all__ = [
    "VERBS",
    "BadAnswer",
    "BadArgument",
    "Client",
    "Error",
    "Failure",
    "HttpsTransport",
    "JobFailed",
    "NoAnswer",
    "StreamEvent",
    "TimedOut",
    "Transport",
    "UnixTransport",
    "types",
]

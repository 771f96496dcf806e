"""Problem documents for what is no HTTP request, written by the server itself: no application comes into play."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from hyperslab.api.metrics import Metrics
from hyperslab.api.problems import problem
from hyperslab.errors import HyperslabError

STATE: Final = "hyperslab.refusal"
"""Where a server finds the `Refusal`: a member of the ASGI lifespan's state."""

REASON: Final = "hyperslab.reason"
"""Where a server that can put a sentence into the status line gives what takes it: a member of the scope."""

Pairs = Iterable[tuple[bytes, bytes]]
"""Headers, their names in lower case."""


class Refused(NamedTuple):
    """``head``: the lines of all headers but those that every answer of the server has."""

    status: int
    head: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Refusal:
    """Makes and counts problem documents; ``patience``: seconds after which a server may let an idle client go."""

    metrics: Metrics
    cors: Callable[[Pairs], Sequence[tuple[bytes, bytes]]]
    patience: float

    def __call__(self, error: HyperslabError, target: bytes, headers: Pairs) -> Refused:
        """The problem that stands for a broken request; ``headers``: as many as were read."""
        found = problem(error, path=target.partition(b"?")[0].decode("latin-1"))
        length = (b"content-length", str(len(found.body)).encode())
        self.metrics.count(("other", "GET", found.status), seconds=0.0, nbytes=len(found.body))
        return Refused(found.status, header_lines((*found.headers, length, *self.cors(headers))), found.body)


def header_lines(headers: Pairs) -> bytes:
    """Headers as they go over the wire; what comes from untrusted documents was encoded where they were made."""
    return b"".join([b"%s: %s\r\n" % pair for pair in headers])

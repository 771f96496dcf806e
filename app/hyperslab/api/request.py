"""One HTTP request, as little of it parsed as its handler asks for."""

from __future__ import annotations

from collections.abc import Set
from functools import cached_property
from typing import Any, Final

from starlette.types import Receive, Scope

from hyperslab.api import params
from hyperslab.api.conditional import CONDITIONAL, UNCONDITIONAL, Conditions

_MOST_TRIES: Final = 8
_PARTIAL: Final = CONDITIONAL | {b"range"}


class Request:
    """A request to the endpoint mounted at ``prefix``; ``tail`` is the decoded path after it, without outer slashes.

    ``tries_left``: how often it may be answered anew, because somebody has written what was being read; none any more
    once an answer has begun.
    """

    def __init__(self, scope: Scope, receive: Receive, prefix: str) -> None:
        self.scope: dict[str, Any] = scope  # type: ignore[assignment]
        self.receive = receive
        self.method: str = scope["method"]
        self.tries_left = _MOST_TRIES
        self.raw_tail = params.raw_path(scope)[len(prefix) :]

    @cached_property
    def tail(self) -> str:
        """Raises `BadPath`."""
        return params.decode_path(self.raw_tail)

    @property
    def is_directory(self) -> bool:
        """Whether the path was written with a slash at its end, as directory-listing clients do."""
        return self.raw_tail.endswith(b"/") or not self.raw_tail

    @cached_property
    def query(self) -> params.Query:
        return params.Query.parse(self.scope["query_string"])

    @cached_property
    def _headers(self) -> dict[bytes, str]:
        found: dict[bytes, str] = {}
        for name, value in self.scope["headers"]:
            text = value.decode("latin-1")
            found[name] = f"{found[name]}, {text}" if name in found else text
        return found

    def header(self, name: bytes) -> str | None:
        """The value of a header (``name`` in lower case); several are one list, as RFC 9110 §5.3 has it."""
        return self._headers.get(name)

    def has_any(self, names: Set[bytes]) -> bool:
        """Whether any of these headers was sent."""
        return not names.isdisjoint(self._headers)

    @property
    def wants_all(self) -> bool:
        """Whether the answer is sure to be the whole of what was asked for: a GET without conditions and ranges."""
        return self.method == "GET" and not self.has_any(_PARTIAL)

    @property
    def conditions(self) -> Conditions:
        """Raises `BadParameter`."""
        return Conditions.parse(self.header) if self.has_any(CONDITIONAL) else UNCONDITIONAL

    @property
    def root_path(self) -> str:
        """What a proxy has cut off the front of the path; belongs before every link."""
        return str(self.scope.get("root_path", ""))

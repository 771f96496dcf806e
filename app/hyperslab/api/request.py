"""HTTP request, as little of it parsed as its handler asks for."""

from __future__ import annotations

from collections.abc import Set
from contextlib import AsyncExitStack
from functools import cached_property
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from starlette.types import Receive, Scope

from hyperslab.api import params
from hyperslab.api.admission import SMALL, Admission
from hyperslab.api.conditional import CONDITIONAL, UNCONDITIONAL, Conditions
from hyperslab.api.threads import cancelled_when_gone
from hyperslab.arrays.cost import Cancel

_PARTIAL: Final = CONDITIONAL | {b"range"}
_NOT_REPLAYED: Final = _PARTIAL - {b"if-none-match"}


class CacheKey(NamedTuple):
    """The target of a GET as it was sent, path and query, and its Accept header."""

    target: bytes
    accept: str | None


class Request:
    """A request to the endpoint mounted at ``prefix``; ``tail`` is the decoded path after it, without outer slashes.

    ``path``: the whole path as `params.raw_path` gives it, where that was parsed before. Entered as a context, it gives
    back what it holds at its end. ``is_last_try``: the response is not made anew where somebody writes what is being
    read.
    """

    def __init__(self, scope: Scope, receive: Receive, prefix: str, path: bytes | None = None) -> None:
        self.scope: dict[str, Any] = scope  # type: ignore[assignment]
        self.receive = receive
        self.method: str = scope["method"]
        self._path = params.raw_path(scope) if path is None else path
        self.raw_tail = self._path[len(prefix) :]
        self.is_last_try = False
        self._held = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._held.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._held.__aexit__(kind, error, traceback)

    async def hold(self, admission: Admission, nbytes: int) -> Cancel:
        """Hold memory until the response has been sent; the `Cancel` is set when the client leaves. Raises
        `Overloaded`."""
        cancel = await self._held.enter_async_context(cancelled_when_gone(self.receive))
        if nbytes > SMALL:
            await self._held.enter_async_context(admission.hold(nbytes))
        return cancel

    async def release(self) -> None:
        """Give back what is held: the response is made anew."""
        await self._held.aclose()

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

    @cached_property
    def cache_key(self) -> CacheKey | None:
        """Under what the response may be cached and replayed; None where more decides about it."""
        if self.method != "GET" or self.has_any(_NOT_REPLAYED):
            return None
        query = self.scope["query_string"]
        return CacheKey(self._path + b"?" + query if query else self._path, self.header(b"accept"))

    @cached_property
    def conditions(self) -> Conditions:
        """Raises `BadParameter`."""
        return Conditions.parse(self.header) if self.has_any(CONDITIONAL) else UNCONDITIONAL

    @property
    def root_path(self) -> str:
        """What a proxy has cut off the front of the path; belongs before every link."""
        return str(self.scope.get("root_path", ""))

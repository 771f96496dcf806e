"""HTTP request, parsed lazily. Each path and parameter is decoded once, and refused with a reason."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from starlette.types import Receive, Scope

from hyperslab.api.admission import SMALL, Admission
from hyperslab.api.auth import Guard
from hyperslab.api.conditional import CONDITIONAL, UNCONDITIONAL, Conditions
from hyperslab.api.metrics import Metrics
from hyperslab.api.options import ApiOptions
from hyperslab.api.replay import ResponseCache
from hyperslab.api.threads import Threads, WriteThreads, cancelled_when_gone
from hyperslab.arrays.cancel import Cancel
from hyperslab.arrays.keys import KeyReader
from hyperslab.arrays.nodes import ArrayNode, GroupNode, MountedStore
from hyperslab.arrays.service import Service
from hyperslab.errors import BadParameter, BadPath, WrongKind
from hyperslab.storage.keys import normalise_path
from hyperslab.streams.service import Streams
from hyperslab.tiles.service import Tiles
from hyperslab.wire import SelectionItem, parse_selection


def raw_path(scope: Any) -> bytes:
    """The percent-encoded path as sent, without the ``root_path`` that a proxy has prepended.

    Repeated slashes are merged, and letters of the route's name are decoded: ``/%7A%61rr/x`` is ``/zarr/x`` (RFC 3986
    §6.2.2.2). The tail is left to `decode_path`: it is decoded once.
    """
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    raw = raw.removeprefix(scope.get("root_path", "").encode())
    raw = re.sub(rb"//+", b"/", raw) if b"//" in raw else raw
    if b"%" not in raw:
        return raw
    # unreserved: letters, digits and -._~
    unreserved = rb"%(2[DEde]|3[0-9]|[46][1-9A-Fa-f]|[57][0-9Aa]|5[Ff]|7[Ee])"
    for _ in range(2):  # two segments for v1
        front, tail = split_front(raw)
        raw = re.sub(unreserved, lambda found: unquote_to_bytes(found[0]), front) + tail
    return raw


def split_front(path: bytes) -> tuple[bytes, bytes]:
    """The route's part of a path (``/v1/slice``, ``/zarr``), and the rest with its slash."""
    parts = path.split(b"/", 3)
    count = 3 if len(parts) > 2 and parts[1] == b"v1" else 2
    front = b"/".join(parts[:count])
    return front, path[len(front) :]


def decode_path(raw: bytes) -> str:
    """Percent-decode a path exactly once and normalise it; raises `BadPath`.

    An encoded slash is refused instead of being part of a name: proxies and frameworks treat it differently, and one
    URL would lead to different nodes.
    """
    if b"%" in raw and b"%2f" in raw.lower():
        raise BadPath(raw.decode("latin-1"), "an encoded slash (%2F) is never part of a name")
    try:
        text = (unquote_to_bytes(raw) if b"%" in raw else raw).decode()
    except UnicodeDecodeError as error:
        raise BadPath(raw.decode("latin-1"), "not UTF-8 after percent-decoding") from error
    return normalise_path(text)


def query_pairs(query: bytes, max_pairs: int) -> list[tuple[str, str]]:
    """Names and values of a query; raises `BadParameter` for invalid UTF-8, and for more than ``max_pairs``."""
    text = query.decode("latin-1")
    try:
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=max_pairs)
    except ValueError as error:  # UnicodeDecodeError is one
        raise BadParameter("query", text[:200], f"at most {max_pairs} parameters in percent-encoded UTF-8") from error


@dataclass(frozen=True, slots=True)
class Query:
    """Query parameters, each at most once."""

    values: dict[str, str]

    @classmethod
    def parse(cls, query: bytes) -> Query:
        """Raises `BadParameter` for invalid UTF-8 and for duplicates."""
        pairs = query_pairs(query, 100) if query else []
        values = dict(pairs)
        if len(values) < len(pairs):
            twice = next(name for name, _ in pairs if sum(n == name for n, _ in pairs) > 1)
            raise BadParameter(twice, [value for name, value in pairs if name == twice], "the parameter once")
        return cls(values)

    def only(self, known: Collection[str]) -> None:
        """Refuse unknown parameters: a misspelt ``select`` must not return the whole array."""
        for name, value in self.values.items():
            if name not in known:
                raise BadParameter(name, value, f"one of the parameters {', '.join(sorted(known))}")

    def text(self, name: str) -> str | None:
        """A value as text; None if absent or empty."""
        return self.values.get(name) or None

    def integer(self, name: str, default: int, *, low: int, high: int) -> int:
        """A decimal integer in ``[low, high]``."""
        text = self.values.get(name)
        if text is None:
            return default
        expected = f"an integer from {low} to {high}"
        if not (text.isascii() and text.removeprefix("-").isdecimal() and len(text) < 20):
            raise BadParameter(name, text, expected)
        if not low <= int(text) <= high:
            raise BadParameter(name, text, expected)
        return int(text)

    def flag(self, name: str, *, bare: bool = True) -> bool:
        """``true`` or ``false``; a name without a value means true, or is refused unless ``bare``: destructive options
        need the full form."""
        text = self.values.get(name)
        if text is None:
            return False
        meant = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": bare or None}
        found = meant.get(text.lower())
        if found is None:
            raise BadParameter(name, text, "true or false")
        return found

    def choice(self, name: str, choices: Collection[str]) -> str | None:
        """One of ``choices``; None if absent."""
        text = self.values.get(name)
        if text is not None and text not in choices:
            raise BadParameter(name, text, f"one of {', '.join(choices)}")
        return text

    def selection(self) -> tuple[SelectionItem, ...]:
        """``select=``; everything if absent. Raises `BadSelection`."""
        return parse_selection(self.values.get("select", ""))


@dataclass(frozen=True, slots=True)
class Context:
    """The use cases, and shared state of the HTTP layer; ``keys``: key readers by route prefix."""

    service: Service
    streams: Streams
    tiles: Tiles
    keys: Mapping[str, KeyReader]
    options: ApiOptions
    threads: Threads
    writes: WriteThreads
    admission: Admission
    metrics: Metrics
    responses: ResponseCache
    guard: Guard


def runs_on_loop(mount: MountedStore, chunks: int = 1, nbytes: int = 0) -> bool:
    """Whether the look-up of this number of chunks, and the assembly of these bytes from the cache, takes a fraction of
    a millisecond, and runs on the event loop instead of a thread."""
    return not mount.is_remote and chunks <= 64 and nbytes <= 1 << 20


class Request(AsyncExitStack):
    """A request to the endpoint at ``prefix``; ``tail`` is the decoded path after it, without outer slashes.

    ``path``: the whole path as from `raw_path`. ``headers`` by lower-case names; repeated ones are joined to one list,
    as in RFC 9110 §5.3. As a context it releases its resources. ``is_last_try``: the response is not retried after
    concurrent writes.
    """

    def __init__(self, context: Context, scope: Scope, receive: Receive, prefix: str, path: bytes) -> None:
        super().__init__()
        self.context = context
        self.service = context.service
        self.run = context.threads.run
        self.write = context.writes.run
        self.scope: dict[str, Any] = scope  # type: ignore[assignment]
        self.receive = receive
        self.prefix = prefix
        self.method: str = scope["method"]
        self.raw_tail = path[len(prefix) :]
        self.is_last_try = False
        self.headers: dict[bytes, str] = {}
        for name, value in scope["headers"]:
            text = value.decode("latin-1")
            self.headers[name] = f"{self.headers[name]}, {text}" if name in self.headers else text
        self.header = self.headers.get

    async def hold(self, nbytes: int) -> Cancel:
        """Reserve memory until the response has been sent; the `Cancel` is set when the client leaves. Raises
        `Overloaded`."""
        cancel = await self.enter_async_context(cancelled_when_gone(self.receive))
        if nbytes > SMALL:
            await self.enter_async_context(self.context.admission.hold(nbytes))
        return cancel

    async def open_node(self, path: str) -> ArrayNode | GroupNode:
        """`Catalog.open_node`, on the event loop if the node is cached and its versions can be checked in
        microseconds."""
        catalog = self.service.catalog
        node = catalog.open_known(path)
        return node if node is not None else await self.run(catalog.open_node, path)

    async def open_array(self, path: str) -> ArrayNode:
        """Also raises `WrongKind`."""
        node = await self.open_node(path)
        if isinstance(node, ArrayNode):
            return node
        raise WrongKind(node.path, "group", "array")

    @cached_property
    def tail(self) -> str:
        """Raises `BadPath`."""
        return decode_path(self.raw_tail)

    @property
    def is_directory(self) -> bool:
        """Whether the path ends in a slash, as from directory-listing clients."""
        return self.raw_tail.endswith(b"/") or not self.raw_tail

    @cached_property
    def query(self) -> Query:
        return Query.parse(self.scope["query_string"])

    @cached_property
    def conditions(self) -> Conditions:
        """Raises `BadParameter`."""
        return UNCONDITIONAL if CONDITIONAL.isdisjoint(self.headers) else Conditions.parse(self.header)

    @property
    def root_path(self) -> str:
        """The path prefix removed by a proxy; belongs before every link."""
        return str(self.scope.get("root_path", ""))

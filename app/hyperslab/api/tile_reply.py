"""What the routes of tiles have in common: the query, and answers whose tags are known before anything is drawn."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from secrets import token_bytes
from time import perf_counter
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, quote

from hyperslab.api.conditional import Validators, etag_of
from hyperslab.api.context import Context
from hyperslab.api.replay import Sources
from hyperslab.api.representation import Content, DeferredContent, Representation
from hyperslab.api.request import Request
from hyperslab.api.response import Headers, Reply, Response, array_headers, caching, cost_headers, immutable_for
from hyperslab.api.threads import cancelled_when_gone
from hyperslab.arrays.cancel import Cancel
from hyperslab.arrays.chunks import ReadCost
from hyperslab.engine.jsontext import dump_json
from hyperslab.errors import BadParameter, ChangedWhileRead, TileNotFound
from hyperslab.tiles.encode import MEDIA_TYPES
from hyperslab.tiles.query import TileQuery, parse_query
from hyperslab.tiles.service import Encoded, Rendering, Tiles
from hyperslab.wire import JSON

T = TypeVar("T")

_PINNED_SECONDS: Final = 31_536_000
"""For URLs with ``v=``: whoever puts a version into a URL changes it when the data changes."""


@dataclass(frozen=True, slots=True)
class TileRoutes:
    """What every route of tiles can reach."""

    context: Context
    tiles: Tiles
    prefix: str

    async def run_while_there(self, request: Request, fn: Callable[[Cancel], T]) -> T:
        """Call what may take long, in a thread; it ends when the client leaves."""
        async with cancelled_when_gone(request.receive) as cancel:
            return await self.context.threads.run(fn, cancel)

    def query(self, request: Request) -> TileQuery:
        """The query; raises `BadParameter`."""
        text = request.scope["query_string"].decode("latin-1")
        try:
            pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=200)
        except ValueError as error:  # UnicodeDecodeError is one
            raise BadParameter("query", text[:200], "at most 200 parameters in percent-encoded UTF-8") from error
        return parse_query(pairs)

    def url(self, request: Request, tail: str) -> str:
        """The absolute URL of what lies below the prefix, as viewers on other pages need it."""
        scope = request.scope
        host = request.header(b"host") or ":".join(map(str, scope.get("server") or ("localhost",)))
        return f"{scope['scheme']}://{host}{request.root_path}{self.prefix}/{quote(tail)}"

    def query_suffix(self, request: Request) -> str:
        """The query as it was sent, with its question mark; empty where there is none."""
        text = request.scope["query_string"].decode("latin-1")
        return f"?{text}" if text else ""


async def rendering_reply(routes: TileRoutes, request: Request, query: TileQuery, rendering: Rendering) -> Reply:
    """A picture or numbers; what is in the cache goes out at once, and 304 draws nothing."""
    etag = f'"{rendering.tag}"'
    options, found = routes.context.options, rendering.sources
    # the cost of a replayed tile is told as that of what comes from the cache
    sources = Sources(rendering.mount, (*found,), [*found.values()], 0, until=rendering.until) if found else None
    picture = Representation(
        routes.context,
        etag,
        rendering.media_type,
        DeferredContent(partial(_draw, rendering, request), rendering.memory),
        always=caching(rendering.mount, options) if query.v is None else immutable_for(_PINNED_SECONDS, options),
        sources=sources,
    )
    cached = rendering.cached()
    if cached is None and request.method == "HEAD" and request.conditions.check(Validators(etag)):
        drawn = await routes.run_while_there(request, lambda cancel: rendering.draw(cancel, ReadCost()))
        cached = None if drawn.moved else drawn
    if cached is None:
        return picture
    return picture.with_content(Content(cached.body, _described(cached), cost_headers(0, 0, None, {})))


def _draw(rendering: Rendering, request: Request, cancel: Cancel) -> Content:
    cost = ReadCost()
    began = perf_counter()
    encoded = rendering.draw(cancel, cost)
    spent = cost_headers(cost.touched, cost.cached, cost, {"draw": perf_counter() - began})
    if encoded.moved and not request.is_last_try:
        raise ChangedWhileRead(f"{request.tail!r} was written while it was read")
    # all of it at once is a good answer still, with a tag that no other one ever has
    etag = etag_of(token_bytes()) if encoded.moved else None
    return Content(encoded.body, _described(encoded), spent, etag)


def _described(encoded: Encoded) -> Headers:
    if encoded.shape is None or encoded.dtype is None:
        return ()
    return array_headers(encoded.shape, encoded.dtype)


def format_of(match: re.Match[str]) -> str:
    """The format that the end of a path names."""
    return "jpg" if match["fmt"] == "jpeg" else match["fmt"]


def document_reply(
    routes: TileRoutes, path: str, document: bytes | dict[str, Any], *, media_type: str = JSON
) -> Representation:
    """What is small and made at once, with a tag of its bytes."""
    data = document if isinstance(document, bytes) else dump_json(document)
    mount = routes.context.service.catalog.mounts.get(path.partition("/")[0])
    always = caching(mount, routes.context.options)
    return Representation(routes.context, etag_of(data), media_type, data, always=always)


def nothing_reply(routes: TileRoutes, query: TileQuery, fmt: str, error: TileNotFound) -> Reply:
    """What ``empty=`` wants for a tile that is not there; raises the error where it wants that."""
    if query.empty == "204":
        return Response(204, ((b"cache-control", b"no-cache"),))
    if query.empty == "404" or fmt in ("npy", "raw"):
        raise error
    data = routes.tiles.empty(query, fmt)
    return Representation(routes.context, etag_of(data), MEDIA_TYPES[fmt], data)

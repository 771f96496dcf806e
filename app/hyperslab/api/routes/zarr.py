"""``/zarr/{path}/{key}``: keys of stores for any Zarr client; ``GET /zarr2/…`` and ``GET /zarr3/…``: keys of all
nodes in one Zarr format.

Each rule is needed by some client: 404 and only 404 for a missing key, HEAD, Content-Length, Range, no
Content-Encoding, strong tags, no redirects, no ``zarr.json`` of a v2 node, a ``.zmetadata`` at every v2 group, and an
"Index of" page for clients that list directories.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from functools import partial
from urllib.parse import quote

from fastapi import Request

from hyperslab import errors
from hyperslab.access import Action
from hyperslab.api import docs
from hyperslab.api.conditional import CONDITIONAL
from hyperslab.api.exchange import Exchange
from hyperslab.api.middleware.access import asks_for_page
from hyperslab.api.middleware.replay import Sources
from hyperslab.api.params import KeyPath
from hyperslab.api.ranges import ByteRange, place_of
from hyperslab.api.representation import Body, Reply, Representation, respond
from hyperslab.api.response import Buffer, Response, caching, etag_of, strong_etag
from hyperslab.api.routes import propfind
from hyperslab.api.routing import Route, Router
from hyperslab.api.upload import received_body
from hyperslab.api.values_out import accepts
from hyperslab.api.writing import document_check, key_check
from hyperslab.arrays.catalog import looks_like_chunk
from hyperslab.arrays.keys import NAMES, KeyReader, MadeKey, StoredKey
from hyperslab.arrays.workers import Cancel
from hyperslab.errors import FormNotFound, KeyNotFound, NodeNotFound, ReadForbidden
from hyperslab.wire import HTML, JSON, RAW

router = Router(prefix="/zarr", default_response_class=Response, route_class=Route)
router_of_v2 = Router(prefix="/zarr2", default_response_class=Response, route_class=Route)
router_of_v3 = Router(prefix="/zarr3", default_response_class=Response, route_class=Route)

KEY = docs.problems(
    errors.KeyNotFound, errors.FormNotFound, errors.BadMetadata, errors.PreconditionFailed
) | docs.found(docs.STORED)
WRITTEN = docs.problems(
    errors.ReadOnly,
    errors.WriteForbidden,
    errors.ForeignOrigin,
    errors.BadBody,
    errors.BadDefinition,
    errors.KeyNotFound,
    errors.PreconditionFailed,
    errors.WriteConflict,
)
READING = docs.headers(*docs.READING)


@router.get(
    "/{path:node}",
    name="zarr",
    tags=["zarr"],
    summary="Read a key of a store",
    responses=KEY,
    openapi_extra=READING,
)
async def get_key(request: Request, path: KeyPath) -> Response:
    """Byte for byte as it is stored. Documents that Zarr clients want and the store lacks (`.zmetadata`, `.zgroup`) are
    made on the fly; the path of a node answers with an HTML index where that is accepted. The query is not looked
    at."""
    return await _key(Exchange(request), "zarr", path)


@router_of_v2.get(
    "/{path:node}",
    name="zarr2",
    tags=["zarr"],
    summary="Read a key of any node as Zarr v2 has it",
    responses=KEY,
    openapi_extra=READING,
)
async def get_key_of_v2(request: Request, path: KeyPath) -> Response:
    """Documents of nodes of Zarr v3 are made; chunks are the stored bytes, those in shards as well. `404` with the code
    `form-not-found` where Zarr v2 has no such array."""
    return await _key(Exchange(request), "zarr2", path)


@router_of_v3.get(
    "/{path:node}",
    name="zarr3",
    tags=["zarr"],
    summary="Read a key of any node as Zarr v3 has it",
    responses=KEY,
    openapi_extra=READING,
)
async def get_key_of_v3(request: Request, path: KeyPath) -> Response:
    """`zarr.json` of nodes of Zarr v2 are made; chunks are the stored bytes. `404` with the code `form-not-found` where
    Zarr v3 has no such array."""
    return await _key(Exchange(request), "zarr3", path)


@router.put(
    "/{path:inner}",
    name="zarr",
    tags=["writing"],
    summary="Write a metadata document or an encoded chunk",
    status_code=201,
    responses=WRITTEN
    | {
        201: docs.answer("The key is new.", headers=docs.TAG),
        204: docs.answer("What was there is replaced.", headers=docs.TAG),
    },
    openapi_extra=docs.body(docs.content(RAW, JSON), *docs.WRITING),
)
async def put_key(request: Request, path: KeyPath) -> Response:
    """The body is stored unchanged, under the same locks and checks as all writes."""
    asked = Exchange(request)
    asked.service.catalog.locate(path)[0].check_writable()
    await _require(asked, "write", path)
    is_document = path.rpartition("/")[2] in NAMES
    check, writer = document_check(asked, path) if is_document else key_check(asked), asked.service.key_writer
    if (extra_bytes := writer.known_memory(path)) is None:
        extra_bytes = await asked.run(writer.memory, path)
    async with received_body(asked, extra_bytes=extra_bytes) as body:
        put = await asked.write(_node_of(path), writer.put, path, body, check)
    return Response(201 if put.created else 204, ((b"etag", strong_etag(put.version).encode("latin-1")),))


@router.delete(
    "/{path:inner}",
    name="zarr",
    tags=["writing"],
    summary="Remove a key",
    status_code=204,
    responses=WRITTEN | {204: docs.answer("It is gone.")},
    openapi_extra=docs.headers(*docs.CONDITIONAL),
)
async def delete_key(request: Request, path: KeyPath) -> Response:
    """404 if the key was absent."""
    asked = Exchange(request)
    await _require(asked, "delete", path)
    check, delete = key_check(asked), asked.service.key_writer.delete
    if not await asked.write(_node_of(path), delete, path, check):
        raise KeyNotFound(path)
    return Response(204, ())


@router.get("", name="zarr", include_in_schema=False)
@router_of_v2.get("", name="zarr2", include_in_schema=False)
@router_of_v3.get("", name="zarr3", include_in_schema=False)
async def get_stores(request: Request) -> Response:
    """The index of all stores."""
    return await _key(Exchange(request), request.scope["route"].name, "")


for place, endpoint in (("/{path:node}", propfind.list_keys), ("", propfind.list_stores)):
    router.add_api_route(place, endpoint, name="zarr", methods=["PROPFIND"], include_in_schema=False)


async def _require(request: Exchange, action: Action, path: str) -> None:
    """Raise `WriteForbidden` for a chunk of an array at which an action is not allowed, though it is at the key, which
    a ``*`` of a rule may stand for."""
    store, _, key = path.partition("/")
    if path.rpartition("/")[2] in NAMES or request.may(action, store):
        return
    catalog = request.service.catalog
    array = await request.run(catalog.array_above, catalog.locate(path)[0], key)
    request.require(action, path.rpartition("/")[0] if array is None else array.path)


def _node_of(key: str) -> str:
    """The node of a key, or for a chunk whose key has slashes a part of it."""
    return key.rpartition("/")[0]


async def _key(request: Exchange, route: str, path: str) -> Response:
    async def reply() -> Reply:
        try:
            return stored_reply(request, await find_key(request, route, path))
        except ReadForbidden as error:
            if not asks_for_page(request.scope, path + "/" * request.is_directory):
                raise
            raise KeyNotFound(path) from error
        except KeyNotFound as error:
            may_be_listed = path.rpartition("/")[2] not in NAMES and accepts(request.header(b"accept"), HTML)
            if isinstance(error, FormNotFound) or not may_be_listed:
                raise
        return await _index_reply(request, route, path)

    return await respond(request, reply)


async def _index_reply(request: Exchange, route: str, path: str) -> Reply:
    """A directory listing. A missing chunk, far more frequent than a listing, ends early if its array is cached."""
    keys = request.context.keys[route]
    may_be_chunk = looks_like_chunk(path.rpartition("/")[2]) and not request.is_directory
    if may_be_chunk and keys.is_known_chunk(path):
        raise KeyNotFound(path)
    root = f"{request.root_path}/{route}"
    base = None if request.is_directory else f"{root}/{quote(path)}/"
    try:
        page = await request.run(lambda: _page(f"{root}/{path}", keys.index(path, may_be_chunk=may_be_chunk), base))
    except NodeNotFound as error:
        raise KeyNotFound(path) from error
    always = caching(None, request.context.options, negotiated=True)
    return Representation(etag_of(page), f"{HTML}; charset=utf-8", page, always=always)


def _page(path: str, names: Sequence[str], base: str | None) -> bytes:
    """Links relative to a URL that ends in a slash; ``base`` is that URL if the request's has none.

    GDAL requires the title "Index of" with the whole path of the URL for a listing. In links only that is encoded which
    would end them or change their meaning, as fsspec takes them for the names.
    """
    title = f"Index of {html.escape(path)}"
    anchored = "" if base is None else f'<base href="{html.escape(base)}">'
    hrefs = (re.sub(r"""^ |[%?#:&<>"'\\]""", lambda found: quote(found[0]), name) for name in names)
    links = "\n".join(
        f'<li><a href="{href}">{html.escape(name)}</a></li>' for href, name in zip(hrefs, names, strict=True)
    )
    parts = ["<!DOCTYPE html>", f'<html lang="en"><head><meta charset="utf-8">{anchored}<title>{title}</title></head>']
    note = "<p>Chunks are not listed here. PROPFIND (WebDAV) below /zarr lists all that is stored.</p>"
    return "\n".join([*parts, f"<body><h1>{title}</h1>", "<ul>", links, f"</ul>{note}</body></html>", ""]).encode()


async def find_key(request: Exchange, route: str, path: str) -> StoredKey | MadeKey:
    """The key at ``path``. Known wanted bytes are read in the same request as size and version; else the key is looked
    up. For a chunk of a local store both are done on the event loop if nothing there blocks: a thread takes longer."""
    keys, wanted = request.context.keys[route], wanted_bytes(request)
    known = request.context.threads.at_once(partial(keys.find_known, path, wanted)) if route == "zarr" else None
    return known if known is not None else await request.run(keys.find, path, wanted)


def wanted_bytes(request: Exchange) -> tuple[int, int] | None:
    """Start and stop of the bytes to read at once; None to look up the key first."""
    if request.method != "GET" or not CONDITIONAL.intersection(request.headers) <= {b"if-range"}:
        return None
    text = request.header(b"range")
    place = (0, None) if text is None else place_of(text)
    if place is None:
        return None
    start, stop = place
    end = start + (1 << 20)  # maximum size of the first read
    return start, end if stop is None else min(stop, end)


def stored_reply(request: Exchange, found: StoredKey | MadeKey) -> Representation:
    """The response for a key, tagged with its version in the store."""
    media_type = JSON if found.key.rpartition("/")[2] in NAMES else RAW
    always = (*caching(found.mount, request.context.options), (b"x-content-type-options", b"nosniff"))
    if isinstance(found, MadeKey):
        return Representation(strong_etag(found.version), media_type, found.data, always=always)
    etag, sources = strong_etag(found.version), None
    if not found.is_whole:  # the tag of a range includes its place
        etag = f'{etag[:-1]}-{found.offset}-{found.size}"'
    if found.documents is not None:
        keys, versions = (found.key, *found.documents), [found.version, *found.documents.values()]
        sources = Sources(found.mount, keys, versions, None)
    prefetched = found.prefetched(0, found.size)
    body: Buffer | Body = prefetched
    if len(prefetched) < found.size:
        pieces = partial(_stored_pieces, request.context.keys["zarr"], found)
        body = Body(found.size, min(found.size, 16 << 20), pieces)  # two pieces: one being sent, one being read
    return Representation(etag, media_type, body, always=always, modified=found.modified, sources=sources)


def _stored_pieces(keys: KeyReader, found: StoredKey, part: ByteRange, cancel: Cancel) -> Iterator[Buffer]:
    """The bytes read with the version, then the rest by ranges of the same version."""
    prefetched = found.prefetched(part.start, part.stop)
    if prefetched:
        yield prefetched
    piece = 8 << 20
    for start in range(part.start + len(prefetched), part.stop, piece):
        cancel.check()
        yield keys.read_range(found, start, min(start + piece, part.stop))

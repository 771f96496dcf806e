"""``GET /zarr/{path}/{key}``: keys of stores for any Zarr client; ``GET /zarr2/…`` and ``GET /zarr3/…``: keys of all
nodes in one Zarr format.

Each rule is needed by some client: 404 and only 404 for a missing key, HEAD, Content-Length, Range, no
Content-Encoding, strong tags, no redirects, no ``zarr.json`` of a v2 node, a ``.zmetadata`` at every v2 group, and an
"Index of" page for clients that list directories.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from functools import partial
from urllib.parse import quote

from hyperslab.api.conditional import CONDITIONAL
from hyperslab.api.ranges import ByteRange, place_of
from hyperslab.api.replay import Sources
from hyperslab.api.representation import Body, Reply, Representation
from hyperslab.api.request import Request, runs_on_loop
from hyperslab.api.response import Buffer, caching, etag_of, strong_etag
from hyperslab.api.values_out import accepts
from hyperslab.arrays.cancel import Cancel
from hyperslab.arrays.keys import NAMES, KeyReader, MadeKey, StoredKey, looks_like_chunk
from hyperslab.errors import FormNotFound, KeyNotFound, NodeNotFound
from hyperslab.wire import HTML, JSON, RAW


async def get_key(request: Request) -> Reply:
    """Answer GET and HEAD."""
    path, keys = request.tail, request.context.keys[request.prefix]
    try:
        return stored_reply(request, await find_key(request, keys, path))
    except KeyNotFound as error:
        may_be_listed = path.rpartition("/")[2] not in NAMES and accepts(request.header(b"accept"), HTML)
        if isinstance(error, FormNotFound) or not may_be_listed:
            raise
    return await _index_reply(keys, request, path)


async def _index_reply(keys: KeyReader, request: Request, path: str) -> Reply:
    """A directory listing. A missing chunk, far more frequent than a listing, ends early if its array is cached."""
    may_be_chunk = looks_like_chunk(path.rpartition("/")[2]) and not request.is_directory
    if may_be_chunk and keys.is_known_chunk(path):
        raise KeyNotFound(path)
    root = f"{request.root_path}{request.prefix}"
    base = None if request.is_directory else f"{root}/{quote(path)}/"
    try:
        page = await request.run(lambda: _page(f"{root}/{path}", keys.index(path, may_be_chunk=may_be_chunk), base))
    except NodeNotFound as error:
        raise KeyNotFound(path) from error
    always = caching(None, request.context.options, negotiated=True)
    return Representation(etag_of(page), f"{HTML}; charset=utf-8", page, always=always)


def _page(path: str, names: Sequence[str], base: str | None) -> bytes:
    """Links relative to a URL that ends in a slash; ``base`` is that URL if the request's has none.

    GDAL requires the title "Index of" with the whole path of the URL for a listing.
    """
    title = f"Index of {html.escape(path)}"
    anchored = "" if base is None else f'<base href="{html.escape(base)}">'
    links = "\n".join(f'<li><a href="{html.escape(quote(name))}">{html.escape(name)}</a></li>' for name in names)
    parts = ["<!DOCTYPE html>", f'<html lang="en"><head><meta charset="utf-8">{anchored}<title>{title}</title></head>']
    return "\n".join([*parts, f"<body><h1>{title}</h1>", "<ul>", links, "</ul></body></html>", ""]).encode()


async def find_key(request: Request, keys: KeyReader, path: str) -> StoredKey | MadeKey:
    """The key at ``path``. Known wanted bytes are read in the same request as size and version; else the key is looked
    up, for a chunk of a local store on the event loop. Generated documents block."""
    wanted, mount = wanted_bytes(request), request.service.catalog.mounts.get(path.partition("/")[0])
    is_chunk = keys is request.context.keys["/zarr"] and path.rpartition("/")[2] not in NAMES
    if is_chunk and wanted is None and mount is not None and runs_on_loop(mount):
        return keys.find(path)
    return await request.run(keys.find, path, wanted)


def wanted_bytes(request: Request) -> tuple[int, int] | None:
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


def stored_reply(request: Request, found: StoredKey | MadeKey) -> Representation:
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
        pieces = partial(_stored_pieces, request.context.keys["/zarr"], found)
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

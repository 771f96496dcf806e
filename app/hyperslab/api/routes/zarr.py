"""``GET /zarr/{path}/{key}``: the store's own keys, so that any Zarr client opens what is served; ``GET /zarr2/…`` and
``GET /zarr3/…``: the keys of all nodes as one Zarr format has them.

The rules each have a client that breaks without them: 404 and only 404 for a missing key, HEAD, Content-Length, Range,
no Content-Encoding, strong tags, no redirects, no ``zarr.json`` of a v2 node, a ``.zmetadata`` at every v2 group, and
an "Index of" page for clients that list directories.
"""

from __future__ import annotations

import html
from functools import partial
from typing import Final
from urllib.parse import quote

from hyperslab.api.conditional import etag_of
from hyperslab.api.context import Context
from hyperslab.api.middleware import Handlers
from hyperslab.api.representation import Reply, Representation
from hyperslab.api.request import Request
from hyperslab.api.response import caching
from hyperslab.api.stored_reply import find_key, stored_reply, wanted_bytes
from hyperslab.api.values_out import accepts
from hyperslab.arrays.faces import FORMATS, FaceReader
from hyperslab.arrays.keys import NAMES, Index, KeyReader, looks_like_chunk
from hyperslab.errors import FormNotFound, KeyNotFound, NodeNotFound
from hyperslab.wire import HTML

PREFIX: Final = "/zarr"


def handlers(context: Context) -> Handlers:
    """The routes."""
    service = context.service
    faces = {f"{PREFIX}{number}": FaceReader(service.catalog, service.reader, number) for number in FORMATS}
    return {
        ("GET", prefix): partial(get_key, context, keys) for prefix, keys in {PREFIX: context.keys, **faces}.items()
    }


async def get_key(context: Context, keys: KeyReader, request: Request) -> Reply:
    """Answer GET and HEAD."""
    path = request.tail
    mount = context.service.catalog.mounts.get(path.partition("/")[0])
    try:
        if mount is None or keys is not context.keys:
            found = await context.threads.run(keys.find, path, wanted_bytes(request))
        else:
            found = await find_key(context, request, mount, path)
        return stored_reply(context, found)
    except KeyNotFound as error:
        may_be_listed = path.rpartition("/")[2] not in NAMES and accepts(request.header(b"accept"), HTML)
        if isinstance(error, FormNotFound) or not may_be_listed:
            raise
    return await _index_reply(context, keys, request, path)


async def _index_reply(context: Context, keys: KeyReader, request: Request, path: str) -> Reply:
    """A missing chunk, which is asked for far more often than a listing, ends early where its array is known."""
    beside_chunks = looks_like_chunk(path.rpartition("/")[2]) and not request.is_directory
    if beside_chunks and keys.is_known_chunk(path):
        raise KeyNotFound(path)
    try:
        index = await context.threads.run(keys.index, path, beside_chunks=beside_chunks)
    except NodeNotFound as error:
        raise KeyNotFound(path) from error
    page = _page(index, None if request.is_directory else f"{request.root_path}{request.prefix}/{quote(path)}/")
    always = caching(None, context.options, negotiated=True)
    return Representation(context, etag_of(page), f"{HTML}; charset=utf-8", page, always=always)


def _page(index: Index, base: str | None) -> bytes:
    """Links relative to a URL that ends in a slash; ``base`` is that URL where the request's had none.

    GDAL takes nothing for a listing that has no "Index of" title.
    """
    title = f"Index of /{html.escape(index.path)}"
    anchored = "" if base is None else f'<base href="{html.escape(base)}">'
    links = "\n".join(f'<li><a href="{html.escape(quote(name))}">{html.escape(name)}</a></li>' for name in index.names)
    parts = ["<!DOCTYPE html>", f'<html lang="en"><head><meta charset="utf-8">{anchored}<title>{title}</title></head>']
    return "\n".join([*parts, f"<body><h1>{title}</h1>", "<ul>", links, "</ul></body></html>", ""]).encode()

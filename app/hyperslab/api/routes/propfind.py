"""``PROPFIND /zarr/{path}``: listings of stored keys as WebDAV, which obstore's HTTP store asks for. [RFC 4918 §9.1]"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final
from urllib.parse import quote

from fastapi import Request

from hyperslab.api.exchange import Exchange
from hyperslab.api.params import KeyPath
from hyperslab.api.response import Response, http_date
from hyperslab.arrays.keys import KeyReader, ListedKey
from hyperslab.errors import BadParameter

DEPTHS: Final = {"0": 0, "1": 1, "infinity": None}
MOST: Final = 50_000
"""Maximum number of resources in a response."""

_HEAD: Final = '<?xml version="1.0" encoding="utf-8"?>\n'
_TOO_MANY: Final = f'{_HEAD}<D:error xmlns:D="DAV:"><D:propfind-finite-depth/></D:error>'


async def list_keys(request: Request, path: KeyPath) -> Response:
    """Length and time of each key, and the collections."""
    return await _list(Exchange(request), path)


async def list_stores(request: Request) -> Response:
    """All stores as collections."""
    return await _list(Exchange(request), "")


async def _list(request: Exchange, path: str) -> Response:
    depth = (request.header(b"depth") or "infinity").lower()
    if depth not in DEPTHS:
        raise BadParameter("Depth", depth, "0, 1 or infinity")
    url = f"{request.root_path}/zarr/{quote(path)}".rstrip("/")
    keys: KeyReader = request.context.keys["zarr"]
    body = await request.run(lambda: multistatus(url, keys.listing(path, DEPTHS[depth])))
    status = 403 if body is None else 207
    headers = ((b"content-type", b"application/xml; charset=utf-8"), (b"cache-control", b"no-cache"))
    return Response(status, headers, _TOO_MANY.encode() if body is None else body)


def multistatus(url: str, resources: Iterator[ListedKey]) -> bytes | None:
    """The document of resources whose paths are relative to ``url``; None for more than `MOST`."""
    entries = list(islice(resources, MOST + 1))
    return None if len(entries) > MOST else "".join(_elements(url, entries)).encode()


def _elements(url: str, resources: Iterable[ListedKey]) -> Iterator[str]:
    yield f'{_HEAD}<D:multistatus xmlns:D="DAV:">'
    for resource in resources:
        href = f"{url}/{quote(resource.path)}".rstrip("/") if resource.path else url
        is_key = resource.size is not None
        length = f"<D:getcontentlength>{resource.size}</D:getcontentlength>" if is_key else ""
        yield (
            f"<D:response><D:href>{href}{'' if is_key else '/'}</D:href><D:propstat><D:prop>"
            f"<D:getlastmodified>{http_date(resource.modified)}</D:getlastmodified>{length}"
            f"<D:resourcetype>{'' if is_key else '<D:collection/>'}</D:resourcetype>"
            "</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
        )
    yield "</D:multistatus>"

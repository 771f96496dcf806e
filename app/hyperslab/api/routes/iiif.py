"""IIIF Image API 3.0: ``iiif/{path}/info.json`` and the images below ``iiif/{path}/``."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from hyperslab.api.request import Request
from hyperslab.api.response import Reply, Response
from hyperslab.api.tile_reply import TileRoutes, document_reply, rendering_reply
from hyperslab.tiles.iiif import info_document, parse_request

LINKED_JSON: Final = 'application/ld+json;profile="http://iiif.io/api/image/3/context.json"'


async def get_base(routes: TileRoutes, request: Request, match: re.Match[str]) -> Reply:
    """The URI of the image itself leads to its description (Image API 3.0 §2)."""
    await routes.run(routes.tiles.frame, match["path"], routes.query(request))
    target = routes.url(request, f"iiif/{match['path']}/info.json") + routes.query_suffix(request)
    return Response(303, ((b"location", target.encode("latin-1")), (b"cache-control", b"no-cache")))


async def get_info(routes: TileRoutes, request: Request, match: re.Match[str]) -> Reply:
    """The description of the image service."""
    query = routes.query(request)
    frame = await routes.run(routes.tiles.frame, match["path"], query)
    identifier = routes.url(request, f"iiif/{match['path']}")
    document = info_document(frame.grid, identifier, partial(routes.tiles.reader.allows, frame))
    return document_reply(routes, match["path"], document, media_type=LINKED_JSON)


async def get_image(routes: TileRoutes, request: Request, match: re.Match[str]) -> Reply:
    """A part of the image in any size that is not larger than it is."""
    query = routes.query(request)
    wanted = parse_request(match["region"], match["size"], match["rotation"], match["file"])
    draw = partial(routes.tiles.region, after=wanted.finished, label=wanted.finish)
    rendering = await routes.run_while_there(
        request,
        lambda cancel: draw(match["path"], query, wanted.fmt, lambda frame: wanted.region(frame.grid), cancel),
    )
    return await rendering_reply(routes, request, query, rendering)

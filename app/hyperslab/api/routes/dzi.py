"""Deep Zoom: ``{path}.dzi`` and its tiles below ``{path}_files/``."""

from __future__ import annotations

import re

from hyperslab.api.request import Request
from hyperslab.api.response import Reply
from hyperslab.api.tile_reply import TileRoutes, document_reply, format_of, nothing_reply, rendering_reply
from hyperslab.errors import TileNotFound
from hyperslab.tiles.dzi import descriptor, tile_region
from hyperslab.tiles.frame import Frame
from hyperslab.tiles.pyramid import Region


async def get_descriptor(routes: TileRoutes, request: Request, match: re.Match[str]) -> Reply:
    """The ``.dzi`` document; viewers send its query with every tile."""
    query = routes.query(request)
    frame = await routes.run(routes.tiles.frame, match["path"], query)
    text = descriptor(frame.grid, overlap=query.overlap, fmt=query.format)
    return document_reply(routes, match["path"], text.encode(), media_type="application/xml")


async def get_tile(routes: TileRoutes, request: Request, match: re.Match[str]) -> Reply:
    """One tile, cut at the edges."""
    query = routes.query(request)
    fmt = format_of(match)
    place = int(match["level"]), int(match["x"]), int(match["y"])

    def choose(frame: Frame) -> Region:
        region = tile_region(frame.grid, *place, overlap=query.overlap)
        if region is None:
            raise TileNotFound(match["path"], "{}/{}_{}".format(*place), "the image has no such tile")
        return region

    try:
        rendering = await routes.run_while_there(
            request, lambda cancel: routes.tiles.region(match["path"], query, fmt, choose, cancel)
        )
    except TileNotFound as error:
        return nothing_reply(routes, query, fmt, error)
    return await rendering_reply(routes, request, query, rendering)

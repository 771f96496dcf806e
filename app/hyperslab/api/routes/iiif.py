"""IIIF Image API 3.0: ``iiif/{path}/info.json`` and the images below ``iiif/{path}/``."""

from __future__ import annotations

import re

from hyperslab.api.reply import Reply
from hyperslab.api.request import Request
from hyperslab.api.tile_reply import TileRoutes, document_reply, rendering_reply
from hyperslab.tiles.asked import Asked
from hyperslab.tiles.iiif import info_document, parse_request
from hyperslab.tiles.raster import Raster, greyscale, mirror, rotate
from hyperslab.tiles.service import Rendering

_MEDIA_TYPE = 'application/ld+json;profile="http://iiif.io/api/image/3/context.json"'


async def get_info(routes: TileRoutes, request: Request, match: re.Match[str]) -> Reply:
    """The description of the image service."""
    asked = routes.asked(request)
    frame = await routes.run(routes.tiles.frame, match["path"], asked)
    identifier = routes.url(request, f"iiif/{match['path']}")
    return document_reply(routes, match["path"], info_document(frame.grid, identifier), media_type=_MEDIA_TYPE)


async def get_image(routes: TileRoutes, request: Request, match: re.Match[str]) -> Reply:
    """A part of the image in any size that is not larger than it is."""
    asked = routes.asked(request)
    segments = match["region"], match["size"], match["rotation"], match["file"]
    rendering = await routes.run(_image, routes, match["path"], asked, segments)
    return await rendering_reply(routes, request, asked, rendering)


def _image(routes: TileRoutes, path: str, asked: Asked, segments: tuple[str, str, str, str]) -> Rendering:
    frame = routes.tiles.frame(path, asked)
    wanted = parse_request(frame.grid, *segments)

    def after(raster: Raster) -> Raster:
        raster = mirror(raster) if wanted.mirrored else raster
        raster = rotate(raster, wanted.quarters) if wanted.quarters else raster
        return greyscale(raster) if wanted.gray else raster

    label = f"{wanted.mirrored}|{wanted.quarters}|{wanted.gray}"
    return routes.tiles.picture(frame, wanted.region, asked, wanted.fmt, after=after, label=label)

"""Documents for viewers: ``info.json``, histograms and Deep Zoom's ``.dzi``."""

from __future__ import annotations

import hashlib
from typing import Any
from xml.sax.saxutils import quoteattr

from hyperslab.arrays.workers import Cancel
from hyperslab.errors import ChunkCorrupt
from hyperslab.tiles.colour import COLORMAPS
from hyperslab.tiles.encode import NUMBER_FORMATS, PICTURE_FORMATS
from hyperslab.tiles.frame import Frame
from hyperslab.tiles.image import Image
from hyperslab.tiles.ome import Cell
from hyperslab.tiles.orientation import find_orientation
from hyperslab.tiles.pyramid import TileGrid
from hyperslab.tiles.query import TileQuery
from hyperslab.tiles.service import Tiles
from hyperslab.tiles.statistics import (
    PERCENTILES,
    Sample,
    Window,
    channel_facts,
    histogram,
    natural_range,
    subject_of,
)
from hyperslab.tiles.style import default_colour
from hyperslab.wire import dtype_to_json

Json = dict[str, Any]


def info_document(
    tiles: Tiles, image: Image, query: TileQuery, base: str, suffix: str, *, cancel: Cancel | None = None
) -> Json:
    """The ``info.json`` of an image. Tile URLs start with ``base`` and end with ``suffix``.

    Raises the errors of `Tiles.frame` and `Statistics.sample`, except `ChunkCorrupt`, which is a problem.
    """
    frame = tiles.frame(image, query, cancel)
    ((labels, label_problems), natural), (sample, damage, channels) = image.mount.both(
        lambda: (tiles.images.labels(image), find_orientation(frame, tiles.images.catalog, tiles.arrays)),
        lambda: _brightness(tiles, frame, query, cancel),
        cancel,
    )
    grid = frame.grid
    array = image.levels[0].array
    misplaced = [problem for level in image.levels for problem in tiles.images.catalog.complete(level.array).problems]
    state = f"{image.version}|{'damaged' if sample is None else sample.tag}|{natural}"
    return {
        "tilejson": "3.0.0",
        "path": image.path,
        "kind": image.kind,
        "name": image.name,
        "axes": [
            {name: getattr(axis, name) for name in ("name", "type", "unit", "size", "scale", "translation")}
            for axis in image.axes
        ],
        "dtype": dtype_to_json(frame.dtype),
        "plane": [image.axes[axis].name for axis in frame.plane],
        "width": grid.width,
        "height": grid.height,
        "flip": [image.axes[axis].name for axis, flipped in zip(frame.plane, frame.flip, strict=True) if flipped],
        "pixels_per_cell": list(frame.scale),
        "natural": {"flip": natural.flip, "aspect": natural.aspect, "steps": natural.steps},
        "tile_size": grid.size,
        "minzoom": tiles.reader.minzoom(frame),
        "sampled_below": tiles.reader.minzoom(frame, sampled=False),
        "maxzoom": grid.maxzoom,
        "levels": [
            {
                "path": level.array.path,
                "shape": list(level.array.metadata.shape),
                "factor": [level.factors[axis] for axis in frame.plane],
                "offset": [level.offsets[axis] for axis in frame.plane],
            }
            for level in image.levels
        ],
        "selection": {
            axis.name: index for axis, index in zip(image.axes, frame.indices, strict=True) if index is not None
        },
        "channel_axis": None if frame.channel_axis is None else image.axes[frame.channel_axis].name,
        "omero": image.omero is not None,
        "rgb": image.is_rgb,
        "channels": channels,
        "rescale_auto": None if sample is None else list(sample.auto),
        "labels": [{"name": name, "path": label_path} for name, label_path in labels],
        **_mosaic(frame),
        "field": image.field_name,
        "fields": list(image.fields) or None,
        "colormaps": list(COLORMAPS),
        "format": [*PICTURE_FORMATS, *NUMBER_FORMATS],
        "decoded": None if frame.decoder is None else frame.decoder.document(array.attributes),
        "problems": [*image.problems, *misplaced, *label_problems, *natural.problems, *damage, *array.decoder.problems],
        "tiles": [f"{base}/{{z}}/{{x}}/{{y}}.png{suffix}"],
        "etag": hashlib.blake2b(state.encode(), digest_size=12).hexdigest(),
    }


def histogram_document(tiles: Tiles, image: Image, query: TileQuery, cancel: Cancel | None = None) -> Json:
    """Histogram of a sample of the query's first channel, from the coarsest level."""
    frame = tiles.frame(image, query, cancel)
    channel = frame.channels[0]
    sample = tiles.statistics.sample(subject_of(frame, channel, query), cancel)
    counts, edges = histogram(sample, query.bins)
    return {
        "path": image.path,
        "channel": channel,
        "level": sample.level,
        "exact": sample.exact,
        "count": int(counts.sum()),
        "min": sample.low,
        "max": sample.high,
        "percentiles": {f"{p:g}": value for p, value in zip(PERCENTILES, sample.percentiles, strict=True)},
        "counts": counts.tolist(),
        "edges": edges.tolist(),
        "etag": sample.tag,
    }


def dzi_document(grid: TileGrid, *, overlap: int, fmt: str) -> str:
    """The ``.dzi`` of a plane."""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<Image xmlns="http://schemas.microsoft.com/deepzoom/2008" '
        f'TileSize="{grid.size}" Overlap="{overlap}" Format={quoteattr(fmt)}>'
        f'<Size Width="{grid.width}" Height="{grid.height}"/></Image>\n'
    )


def _brightness(
    tiles: Tiles, frame: Frame, query: TileQuery, cancel: Cancel | None
) -> tuple[Sample | None, list[str], list[Json]]:
    """The sample of the first displayed channel (None if no chunk can be decoded), problems with damaged chunks, and
    the first 256 channels with their windows."""
    count = 1 if frame.channel_axis is None else frame.image.axes[frame.channel_axis].size
    indices = range(min(count, 256))
    windows: list[Window | ChunkCorrupt] = [(0.0, 1.0) for _ in indices]
    if not frame.image.is_empty:
        windows, _ = tiles.statistics.windows(frame, query, cancel, [(index, None) for index in indices])
    sample, damage = None, []
    try:
        sample = tiles.statistics.sample(subject_of(frame, frame.channels[0], query), cancel)
    except ChunkCorrupt as error:
        damage = [f"no window from the data: {error}"]
    if sample is not None and sample.damage is not None:
        damage = [f"the window from the data leaves out damaged chunks: {sample.damage}"]
    channels = []
    named = dict(enumerate(("Red", "Green", "Blue", "Alpha"))) if frame.image.is_rgb else {}
    for index, window in zip(indices, windows, strict=True):
        facts = channel_facts(frame, index)
        low, high = natural_range(frame.dtype, query.component)
        start, end = (low, high) if isinstance(window, ChunkCorrupt) else window
        if facts is not None and facts.window is not None:
            low, high = facts.window.min, facts.window.max
        elif frame.dtype.kind not in "bu":
            low, high = start, end
        channels.append(
            {
                "index": index,
                "label": facts.label if facts is not None and facts.label else named.get(index, f"Channel {index}"),
                "color": bytes(default_colour(frame, index, single=count == 1) or (255, 255, 255)).hex().upper(),
                "active": index in frame.channels,
                "inverted": facts is not None and facts.inverted,
                "window": {"min": low, "max": high, "start": start, "end": end},
            }
        )
    return sample, damage, channels


def _mosaic(frame: Frame) -> Json:
    """The ``images`` of a plate or a well and the ``rows`` and ``columns`` of a plate, in cells of the finest level;
    None for other images."""
    document: Json = dict.fromkeys(("images", "rows", "columns"))
    mosaic = frame.image.mosaic
    if mosaic is None or frame.cell_pitch is None:
        return document
    (pitch_y, pitch_x), (height, width) = frame.cell_pitch, frame.cell_shape

    def size(cell: Cell) -> Json:
        shape = frame.image.shapes.get(cell.path)
        rows, columns = (height, width) if shape is None else (shape[frame.plane[0]], shape[frame.plane[1]])
        return {"width": columns, "height": rows}

    document["images"] = [
        {"path": c.path, "x": c.column * pitch_x, "y": c.row * pitch_y, **size(c)} for c in mosaic.cells
    ]
    if mosaic.names is not None:
        rows, columns = mosaic.names
        document["rows"] = [{"name": name, "y": i * pitch_y} for i, name in enumerate(rows)]
        document["columns"] = [{"name": name, "x": i * pitch_x} for i, name in enumerate(columns)]
    return document

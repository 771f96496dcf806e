"""What a viewer has to know of a picture before it asks for tiles, as JSON-ready documents."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from hyperslab.arrays.cost import Cancel
from hyperslab.errors import ChunkCorrupt
from hyperslab.tiles.asked import Asked
from hyperslab.tiles.colour import COLORMAPS
from hyperslab.tiles.encode import NUMBER_FORMATS, PICTURE_FORMATS
from hyperslab.tiles.frame import Frame
from hyperslab.tiles.orientation import Orientation
from hyperslab.tiles.picture import Level
from hyperslab.tiles.service import Tiles
from hyperslab.tiles.statistics import PERCENTILES, Sample, histogram
from hyperslab.tiles.style import channel_facts, default_colour, natural_range
from hyperslab.wire import dtype_to_json

_MOST_LISTED: Final = 256

Json = dict[str, Any]


def info_document(
    tiles: Tiles, path: str, asked: Asked, base: str, query: str, *, cancel: Cancel | None = None
) -> Json:
    """The ``info.json`` of a path. ``base`` is the URL that tiles lie below, ``query`` is appended to theirs.

    Raises what opening a picture and reading a sample of it raise, `Cancelled` too, but for damaged chunks: the picture
    may be drawn without them.
    """
    frame, ((labels, label_problems), natural), (sample, damage, channels) = tiles.look(
        path,
        asked,
        lambda frame: (tiles.pictures.labels(frame.picture), tiles.orientations.of(frame)),
        lambda frame: _brightness(tiles, frame, asked, cancel),
        cancel,
    )
    picture, grid = frame.picture, frame.grid
    array = picture.levels[0].array
    return {
        "tilejson": "3.0.0",
        "path": picture.path,
        "kind": picture.kind,
        "name": picture.name,
        "axes": [
            {name: getattr(axis, name) for name in ("name", "type", "unit", "size", "scale", "translation")}
            for axis in picture.axes
        ],
        "dtype": dtype_to_json(frame.dtype),
        "plane": [picture.axes[axis].name for axis in frame.plane],
        "width": grid.width,
        "height": grid.height,
        "flip": [picture.axes[axis].name for axis, flipped in zip(frame.plane, frame.flip, strict=True) if flipped],
        "pixels_per_cell": list(frame.scale),
        "natural": {"flip": natural.flip, "aspect": natural.aspect, "steps": natural.steps},
        "tile_size": grid.size,
        "minzoom": tiles.source.minzoom(frame),
        "maxzoom": grid.maxzoom,
        "levels": [_level(frame, level) for level in picture.levels],
        "selection": {
            axis.name: index for axis, index in zip(picture.axes, frame.indices, strict=True) if index is not None
        },
        "channel_axis": None if frame.channel_axis is None else picture.axes[frame.channel_axis].name,
        "omero": picture.omero is not None,
        "channels": channels,
        "rescale_auto": None if sample is None else list(sample.auto),
        "labels": [{"name": name, "path": label_path} for name, label_path in labels],
        **_mosaic(frame),
        "field": None if picture.field is None else picture.field.name,
        "fields": list(picture.fields) or None,
        "colormaps": list(COLORMAPS),
        "format": [*PICTURE_FORMATS, *NUMBER_FORMATS],
        "decoded": None if frame.decoder is None else frame.decoder.document(array.attributes),
        "problems": [*picture.problems, *label_problems, *natural.problems, *damage, *array.decoder.problems],
        "tiles": [f"{base}/{{z}}/{{x}}/{{y}}.png{query}"],
        "etag": _tag(frame, sample, natural),
    }


def histogram_document(tiles: Tiles, path: str, asked: Asked, cancel: Cancel | None = None) -> Json:
    """Counts of values in equal bins, from a sample of the coarsest level, for the first channel asked for."""

    def sampled(frame: Frame) -> Sample:
        return tiles.statistics.sample(tiles.stylist.subject(frame, frame.channels[0], asked), cancel)

    frame, sample, _ = tiles.look(path, asked, sampled, lambda _: None, cancel)
    channel = frame.channels[0]
    counts, edges = histogram(sample, asked.bins)
    return {
        "path": frame.picture.path,
        "channel": channel,
        "level": frame.picture.levels[-1 - sample.finer].array.path,
        "exact": sample.exact,
        "count": int(counts.sum()),
        "min": sample.low,
        "max": sample.high,
        "percentiles": {f"{p:g}": value for p, value in zip(PERCENTILES, sample.percentiles, strict=True)},
        "counts": counts.tolist(),
        "edges": edges.tolist(),
        "etag": sample.tag,
    }


def _brightness(
    tiles: Tiles, frame: Frame, asked: Asked, cancel: Cancel | None
) -> tuple[Sample | None, list[str], list[Json]]:
    """What `_sample` says, and the channels with their windows."""
    listed = range(min(_channel_count(frame), _MOST_LISTED))
    if 0 not in [axis.size for axis in frame.picture.axes]:
        tiles.stylist.prepare(frame, asked, dict.fromkeys(listed), cancel)
    sample, damage = _sample(tiles, frame, asked, cancel)
    return sample, damage, [_channel(tiles, frame, asked, index, cancel) for index in listed]


def _channel_count(frame: Frame) -> int:
    return 1 if frame.channel_axis is None else frame.picture.axes[frame.channel_axis].size


def _channel(tiles: Tiles, frame: Frame, asked: Asked, index: int, cancel: Cancel | None) -> Json:
    facts = channel_facts(frame, index)
    colour = default_colour(frame, index, alone=_channel_count(frame) == 1) or (255, 255, 255)
    start, end = _default_window(tiles, frame, asked, index, cancel)
    low, high = natural_range(frame.dtype, asked.component)
    if facts is not None and facts.window is not None:
        low, high = facts.window.min, facts.window.max
    elif frame.dtype.kind not in "bu":
        low, high = start, end
    return {
        "index": index,
        "label": facts.label if facts is not None and facts.label else f"Channel {index}",
        "color": bytes(colour).hex().upper(),
        "active": index in frame.channels,
        "inverted": facts is not None and facts.inverted,
        "window": {"min": low, "max": high, "start": start, "end": end},
    }


def _default_window(tiles: Tiles, frame: Frame, asked: Asked, index: int, cancel: Cancel | None) -> tuple[float, float]:
    if 0 in [axis.size for axis in frame.picture.axes]:
        return 0.0, 1.0
    try:
        return tiles.stylist.window(frame, index, asked, None, cancel)
    except ChunkCorrupt:
        return natural_range(frame.dtype, asked.component)


def _sample(tiles: Tiles, frame: Frame, asked: Asked, cancel: Cancel | None) -> tuple[Sample | None, list[str]]:
    """The sample of the first channel that is shown, and what was in its way; None where nothing can be decoded."""
    try:
        sample = tiles.statistics.sample(tiles.stylist.subject(frame, frame.channels[0], asked), cancel)
    except ChunkCorrupt as error:
        return None, [f"no window from the data: {error}"]
    return sample, [] if sample.damage is None else [
        f"the window from the data leaves out damaged chunks: {sample.damage}"
    ]


def _level(frame: Frame, level: Level) -> Json:
    return {
        "path": level.array.path,
        "shape": list(level.array.metadata.shape),
        "factor": [level.factors[axis] for axis in frame.plane],
    }


def _mosaic(frame: Frame) -> Json:
    """Where the images of a plate or a well lie, and the rows and columns of a plate, in cells of the finest level;
    None for all other pictures."""
    found: Json = dict.fromkeys(("images", "rows", "columns"))
    mosaic = frame.picture.mosaic
    if mosaic is None or frame.cell_pitch is None:
        return found
    (pitch_y, pitch_x), (height, width) = frame.cell_pitch, frame.cell_shape
    found["images"] = [
        {"path": c.path, "x": c.column * pitch_x, "y": c.row * pitch_y, "width": width, "height": height}
        for c in mosaic.cells
    ]
    if mosaic.names is not None:
        rows, columns = mosaic.names
        found["rows"] = [{"name": name, "y": i * pitch_y} for i, name in enumerate(rows)]
        found["columns"] = [{"name": name, "x": i * pitch_x} for i, name in enumerate(columns)]
    return found


def _tag(frame: Frame, sample: Sample | None, natural: Orientation) -> str:
    """Changes with the metadata, with the values that the windows come from, and with the coordinates."""
    tag = "damaged" if sample is None else sample.tag
    return hashlib.blake2b(f"{frame.picture.version}|{tag}|{natural}".encode(), digest_size=12).hexdigest()

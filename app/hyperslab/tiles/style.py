"""How the numbers of a frame become colours: windows, colour maps, tints; and the picture made with them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hyperslab.errors import BadParameter, ChunkCorrupt, NotRepresentable
from hyperslab.tiles.colour import (
    DEFAULT_COLOURS,
    GREY,
    RGB,
    RGBA,
    Table,
    blended,
    label_colours,
    named_lut,
    parse_colour,
    spread,
    tint,
)
from hyperslab.tiles.frame import Frame
from hyperslab.tiles.query import Rescale, TileQuery
from hyperslab.tiles.read import one_component
from hyperslab.tiles.render import (
    Indexed,
    Planes,
    Raster,
    Scale,
    composite,
    dense,
    fade,
    painted,
    to_steps,
)
from hyperslab.tiles.resample import Mask, NDArray
from hyperslab.tiles.statistics import Window, at, channel_facts


@dataclass(frozen=True, slots=True)
class Style:
    """How numbers become a picture: ``draw`` makes it of ``(channels, height, width)`` values, some of which are
    hidden; the background is behind it still.

    ``identity``: all that tells two styles of one image apart. ``as_labels``: values stand for things and have no mean.
    ``sampled``: whether a window was taken from data.
    """

    draw: Callable[[NDArray, Mask | None], Raster]
    identity: str
    as_labels: bool = False
    sampled: bool = False


def make_style(
    frame: Frame,
    query: TileQuery,
    windows: Callable[[Sequence[tuple[int, Rescale | None]]], tuple[list[Window | ChunkCorrupt], bool]],
) -> Style:
    """The style that a query wants; ``windows`` is `Statistics.windows`, and only called if they are needed.

    Raises `BadParameter` for what does not go together, and what ``windows`` gives in place of a window or raises.
    """
    rest = f"{query.component}|{query.nodata}|{query.opacity}|{query.bg}"
    labels = _labels_wanted(frame, query)
    if labels is not None:
        chosen, only_chosen = labels

        def draw_labels(values: NDArray, hidden: Mask | None) -> Raster:
            found, index = dense(one_component(values, query.component)[0])
            colours = label_colours(found, chosen, only_chosen=only_chosen)
            return fade(painted(index, colours, None if hidden is None else hidden[0]), query.opacity)

        return Style(draw_labels, f"{chosen if only_chosen else 'labels'}|{rest}", as_labels=True)
    tints = _channel_colours(frame, query)
    found, sampled = windows([(channel, at(query.rescale, i)) for i, channel in enumerate(frame.channels)])
    scales: list[Scale] = []
    for i, window in enumerate(found):
        if isinstance(window, ChunkCorrupt):
            raise window
        scales.append(_scale(*window, frame, query, i))
    if len(scales) == 1:
        lut = _single_lut(query, tints[0])

        def draw_one(values: NDArray, hidden: Mask | None) -> Raster:
            plane, missing = one_component(values, query.component)[0], None if hidden is None else hidden[0]
            return fade(Indexed(to_steps(plane, scales[0], missing), lut, missing), query.opacity)

        digest = hashlib.blake2b(lut.tobytes(), digest_size=12).hexdigest()
        return Style(draw_one, f"{scales}|{digest}|{rest}", sampled=sampled)
    if query.colormap_name is not None or query.colormap is not None:
        raise BadParameter("colormap_name", query.colormap_name or "(colormap)", "a single channel (c=) to colour")
    colours = [colour or (255, 255, 255) for colour in tints]

    def draw_several(values: NDArray, hidden: Mask | None) -> Raster:
        return fade(composite(one_component(values, query.component), scales, colours, hidden), query.opacity)

    return Style(draw_several, f"{scales}|{colours}|{rest}", sampled=sampled)


def legend(frame: Frame, query: TileQuery) -> Raster:
    """The colours from the lower end of the window on the left to the upper on the right: ``size`` pixels across, with
    a bar for each channel; chosen classes get an equal part each.

    Raises `NotRepresentable` for labels that have a colour of their own each, and `BadParameter` for what does not go
    together.
    """
    index = np.broadcast_to(np.arange(query.size) * 256 // query.size, (16, query.size)).astype(np.uint8)
    labels = _labels_wanted(frame, query)
    if labels is not None:
        chosen, _ = labels
        if not chosen:
            raise NotRepresentable(frame.image.dtype.str, "a legend", "every label has a colour of its own")
        return Indexed(index, spread(np.array([chosen[value] for value in sorted(chosen)], np.uint8)))
    tints = _channel_colours(frame, query)
    # the steps stand for themselves, whatever the window is: looking for it in the data would tell nothing more
    steps = [to_steps(index, _scale(0, 255, frame, query, place)) for place in range(len(tints))]
    if len(tints) == 1:
        return Indexed(steps[0], _single_lut(query, tints[0]))
    tables = [tint(colour or (255, 255, 255)) for colour in tints]
    return Planes(np.concatenate([table.T[:3, step] for table, step in zip(tables, steps, strict=True)], axis=1))


def _scale(low: float, high: float, frame: Frame, query: TileQuery, place: int) -> Scale:
    """How the channel at ``place`` of the frame's channels runs from ``low`` to ``high``."""
    facts, invert = channel_facts(frame, frame.channels[place]), at(query.invert, place)
    inverted = invert if invert is not None else facts is not None and facts.inverted
    return Scale(float(low), float(high), float(query.gamma), inverted)


def _channel_colours(frame: Frame, query: TileQuery) -> tuple[RGB | None, ...]:
    """The colour of each channel of a frame; None for grey."""
    return tuple(
        at(query.color, i) or default_colour(frame, channel, alone=len(frame.channels) == 1)
        for i, channel in enumerate(frame.channels)
    )


def default_colour(frame: Frame, channel: int, *, alone: bool) -> RGB | None:
    """The colour of a channel without a chosen one: omero's, red, green and blue of photographs, or one in turn."""
    facts, omero = channel_facts(frame, channel), frame.image.omero
    if omero is not None and omero.greyscale and alone:
        return None
    if facts is not None and facts.color is not None:
        return parse_colour(facts.color)
    if alone:
        return None
    if frame.image.is_rgb and channel < 3:
        return ((255, 0, 0), (0, 255, 0), (0, 0, 255))[channel]
    return parse_colour(DEFAULT_COLOURS[channel % len(DEFAULT_COLOURS)])


def _labels_wanted(frame: Frame, query: TileQuery) -> tuple[Mapping[float, RGBA], bool] | None:
    """The chosen colours of values that stand for things, and whether nothing is shown of all others; None if values
    are brightness.

    Raises `BadParameter`, also for more colours, windows or inversions than there are channels to have them.
    """
    for name in ("color", "rescale", "invert"):
        number, most = len(getattr(query, name)), len(frame.channels)
        if number > most:
            raise BadParameter(name, number, f"at most one for each of {most} channels")
    if isinstance(query.colormap, Mapping):
        return query.colormap, True
    known = frame.image.image_label
    brightness = bool(query.colormap_name or query.colormap or query.color or query.rescale)
    if not (query.labels if query.labels is not None else known is not None and not brightness):
        return None
    if frame.dtype.kind not in "biu":
        raise BadParameter("labels", True, f"an array of integers, this one has {frame.dtype}")
    return known or {}, False


def _single_lut(query: TileQuery, colour: RGB | None) -> Table:
    """The colour map of one channel; raises `BadParameter` for an unknown name."""
    if query.colormap_name is not None:
        try:
            return named_lut(query.colormap_name)
        except ValueError as error:
            raise BadParameter("colormap_name", query.colormap_name, str(error)) from error
    if isinstance(query.colormap, tuple):
        return blended(query.colormap)
    return GREY if colour is None else tint(colour)

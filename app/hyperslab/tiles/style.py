"""Styles: rendering of a frame's values by windows, colour maps, tints and label colours, and legends."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from hyperslab.arrays.workers import Cancel
from hyperslab.errors import BadParameter, ChunkCorrupt, NotRepresentable
from hyperslab.tiles.colour import (
    DEFAULT_COLOURS,
    GREY,
    RGB,
    RGBA,
    Table,
    gradient_lut,
    label_colours,
    named_lut,
    parse_colour,
    step_lut,
    tint,
)
from hyperslab.tiles.frame import Frame
from hyperslab.tiles.query import TileQuery
from hyperslab.tiles.read import one_component
from hyperslab.tiles.render import (
    PaletteImage,
    Planes,
    Raster,
    Scale,
    composite,
    fade,
    indexed,
    to_steps,
    unique_inverse,
)
from hyperslab.tiles.resample import Mask, NDArray
from hyperslab.tiles.statistics import Statistics, channel_facts, of_channel


@dataclass(frozen=True, slots=True)
class Style:
    """Style of a picture: ``draw`` renders ``(channels, height, width)`` values and their mask, without background.

    ``identity`` distinguishes styles of one image. ``as_labels``: values are identifiers and have no mean. ``sampled``:
    a window was taken from a sample.
    """

    draw: Callable[[NDArray, Mask | None], Raster]
    identity: str
    as_labels: bool = False
    sampled: bool = False


def make_style(frame: Frame, query: TileQuery, statistics: Statistics, cancel: Cancel | None) -> Style:
    """The style of a query, with windows from its image's statistics if it has none.

    Raises `BadParameter` for conflicting parameters, and the errors of `Statistics.windows`, returned ones too.
    """
    rest = f"{query.component}|{query.nodata}|{query.opacity}|{query.bg}"
    labels = _label_colours(frame, query)
    if labels is not None:
        chosen, only_chosen = labels

        def draw_labels(values: NDArray, hidden: Mask | None) -> Raster:
            distinct, index = unique_inverse(one_component(values, query.component)[0])
            colours = label_colours(distinct, chosen, only_chosen=only_chosen)
            return fade(indexed(index, colours, None if hidden is None else hidden[0]), query.opacity)

        return Style(draw_labels, f"{chosen if only_chosen else 'labels'}|{rest}", as_labels=True)
    tints = _channel_colours(frame, query)
    wanted = [(channel, of_channel(query.rescale, i)) for i, channel in enumerate(frame.channels)]
    windows, sampled = statistics.windows(frame, query, cancel, wanted)
    scales: list[Scale] = []
    for i, window in enumerate(windows):
        if isinstance(window, ChunkCorrupt):
            raise window
        scales.append(_scale(*window, frame, query, i))
    if len(scales) == 1:
        lut = _single_lut(query, tints[0])

        def draw_one(values: NDArray, hidden: Mask | None) -> Raster:
            plane, missing = one_component(values, query.component)[0], None if hidden is None else hidden[0]
            return fade(PaletteImage(to_steps(plane, scales[0], missing), lut, missing), query.opacity)

        digest = hashlib.blake2b(lut.tobytes(), digest_size=12).hexdigest()
        return Style(draw_one, f"{scales}|{digest}|{rest}", sampled=sampled)
    if query.colormap_name is not None or query.colormap is not None:
        raise BadParameter("colormap_name", query.colormap_name or "(colormap)", "a single channel (c=) to colour")
    colours = [colour or (255, 255, 255) for colour in tints]

    def draw_several(values: NDArray, hidden: Mask | None) -> Raster:
        return fade(composite(one_component(values, query.component), scales, colours, hidden), query.opacity)

    return Style(draw_several, f"{scales}|{colours}|{rest}", sampled=sampled)


def legend(frame: Frame, query: TileQuery) -> Raster:
    """Colour bars of ``size`` by 16 pixels, one below the other for each channel, from the window's lower end on the
    left to its upper; for label colours an equal part each.

    Raises `NotRepresentable` for labels without listed colours, and `BadParameter` for conflicting parameters.
    """
    index = np.broadcast_to(np.arange(query.size) * 256 // query.size, (16, query.size)).astype(np.uint8)
    labels = _label_colours(frame, query)
    if labels is not None:
        chosen, _ = labels
        if not chosen:
            raise NotRepresentable(frame.image.dtype.str, "a legend", "every label has a colour of its own")
        return PaletteImage(index, step_lut(np.array([chosen[value] for value in sorted(chosen)], np.uint8)))
    tints = _channel_colours(frame, query)
    # the bar does not depend on the window, so no sample is read
    steps = [to_steps(index, _scale(0, 255, frame, query, place)) for place in range(len(tints))]
    if len(tints) == 1:
        return PaletteImage(steps[0], _single_lut(query, tints[0]))
    tables = [tint(colour or (255, 255, 255)) for colour in tints]
    return Planes(np.concatenate([table.T[:3, step] for table, step in zip(tables, steps, strict=True)], axis=1))


def _scale(low: float, high: float, frame: Frame, query: TileQuery, place: int) -> Scale:
    """The scale of the channel at ``place`` in the frame's channels."""
    facts, invert = channel_facts(frame, frame.channels[place]), of_channel(query.invert, place)
    inverted = invert if invert is not None else facts is not None and facts.inverted
    return Scale(float(low), float(high), float(query.gamma), inverted)


def _channel_colours(frame: Frame, query: TileQuery) -> tuple[RGB | None, ...]:
    """The colour of each channel of a frame; None for grey."""
    return tuple(
        of_channel(query.color, i) or default_colour(frame, channel, single=len(frame.channels) == 1)
        for i, channel in enumerate(frame.channels)
    )


def default_colour(frame: Frame, channel: int, *, single: bool) -> RGB | None:
    """The colour of a channel by default: omero's, red, green or blue of photographs, or one of `DEFAULT_COLOURS`."""
    facts, omero = channel_facts(frame, channel), frame.image.omero
    if omero is not None and omero.greyscale and single:
        return None
    if facts is not None and facts.color is not None:
        return parse_colour(facts.color)
    if single:
        return None
    if frame.image.is_rgb and channel < 3:
        return ((255, 0, 0), (0, 255, 0), (0, 0, 255))[channel]
    return parse_colour(DEFAULT_COLOURS[channel % len(DEFAULT_COLOURS)])


def _label_colours(frame: Frame, query: TileQuery) -> tuple[Mapping[float, RGBA], bool] | None:
    """Colours by value, and whether other values are transparent; None if the frame is not drawn as labels.

    Raises `BadParameter`, also if there are more colours, windows or inversions than channels.
    """
    for name in ("color", "rescale", "invert"):
        number, channels = len(getattr(query, name)), len(frame.channels)
        if number > channels:
            raise BadParameter(name, number, f"at most one for each of {channels} channels")
    if isinstance(query.colormap, Mapping):
        return query.colormap, True
    listed = frame.image.image_label
    brightness = bool(query.colormap_name or query.colormap or query.color or query.rescale)
    if not (query.labels if query.labels is not None else listed is not None and not brightness):
        return None
    if frame.dtype.kind not in "biu":
        raise BadParameter("labels", True, f"an array of integers, this one has {frame.dtype}")
    return listed or {}, False


def _single_lut(query: TileQuery, colour: RGB | None) -> Table:
    """The colour map of one channel; raises `BadParameter` for an unknown name."""
    if query.colormap_name is not None:
        try:
            return named_lut(query.colormap_name)
        except ValueError as error:
            raise BadParameter("colormap_name", query.colormap_name, str(error)) from error
    if isinstance(query.colormap, tuple):
        return gradient_lut(query.colormap)
    return GREY if colour is None else tint(colour)

"""How the numbers of a frame become colours: windows, colour maps, tints; and the picture made with them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from hyperslab.arrays.cost import Cancel
from hyperslab.errors import BadParameter
from hyperslab.tiles.asked import Asked, Classes, Component, Rescale, Stops
from hyperslab.tiles.colour import (
    DEFAULT_COLOURS,
    GREY,
    RGB,
    Chosen,
    Table,
    blended,
    choose,
    label_colours,
    named_lut,
    parse_colour,
    tint,
)
from hyperslab.tiles.frame import Frame
from hyperslab.tiles.ome import OmeroChannel
from hyperslab.tiles.raster import Raster, fade, flatten
from hyperslab.tiles.render import Scale, composite, dense, mapped, painted
from hyperslab.tiles.resample import Mask, NDArray
from hyperslab.tiles.statistics import Statistics, Subject, one_component

T = TypeVar("T")

_MOST_SAMPLED = 16
"""Of more channels than this, all share one window: else a first look at a spectrum would read it all."""
_RGB_COLOURS: tuple[RGB, ...] = ((255, 0, 0), (0, 255, 0), (0, 0, 255))


@dataclass(frozen=True, slots=True)
class Labels:
    """Each value has a colour: a chosen one, or one of its own, or none where ``only_chosen``."""

    chosen: Chosen
    only_chosen: bool


@dataclass(frozen=True, slots=True)
class Lookup:
    """One channel through a colour map; ``lut`` is ``(256, 4)`` RGBA."""

    scale: Scale
    lut: Table


@dataclass(frozen=True, slots=True)
class Additive:
    """Channels, each of its own colour, laid over each other as light."""

    scales: tuple[Scale, ...]
    colours: tuple[RGB, ...]


@dataclass(frozen=True, slots=True)
class Style:
    """How to colour, and what is done to the picture afterwards."""

    colouring: Labels | Lookup | Additive
    component: Component | None
    nodata: float | None
    opacity: float
    background: RGB | None

    @property
    def as_labels(self) -> bool:
        """Whether values stand for things and have no mean."""
        return isinstance(self.colouring, Labels)

    @property
    def identity(self) -> str:
        """All that tells two styles apart."""
        colouring: object = self.colouring
        if isinstance(self.colouring, Lookup):
            colouring = self.colouring.scale, hashlib.blake2b(self.colouring.lut.tobytes(), digest_size=12).hexdigest()
        elif isinstance(self.colouring, Labels):
            colouring = self.colouring.chosen.digest, self.colouring.only_chosen
        return f"{colouring}|{self.component}|{self.nodata}|{self.opacity}|{self.background}"


def draw(values: NDArray, hidden: Mask | None, style: Style) -> Raster:
    """The picture of ``(channels, height, width)`` values, some of which are ``hidden``."""
    values = one_component(values, style.component)
    raster = _coloured(values, hidden, style.colouring)
    raster = fade(raster, style.opacity)
    return raster if style.background is None else flatten(raster, style.background)


def _coloured(values: NDArray, hidden: Mask | None, colouring: Labels | Lookup | Additive) -> Raster:
    if isinstance(colouring, Additive):
        return composite(values, colouring.scales, colouring.colours, hidden)
    plane, gone = values[0], None if hidden is None else hidden[0]
    if isinstance(colouring, Lookup):
        return mapped(plane, colouring.scale, colouring.lut, gone)
    found, index = dense(plane)
    colours = label_colours(found, colouring.chosen, only_chosen=colouring.only_chosen)
    return painted(index, colours, gone)


# --- from what was asked for -----------------------------------------------------------------------------------


class Stylist:
    """Works out styles; asks `Statistics` only for windows that nothing else tells."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics

    def style(self, frame: Frame, asked: Asked, cancel: Cancel | None = None) -> Style:
        """Raises `BadParameter` for what does not go together, and what reading a sample raises."""
        check_repeated(frame, asked)
        return Style(self._colouring(frame, asked, cancel), asked.component, asked.nodata, asked.opacity, asked.bg)

    def scale(self, frame: Frame, asked: Asked, place: int, cancel: Cancel | None = None) -> Scale:
        """The window of the channel at ``place`` of the frame's channels."""
        low, high = self.window(frame, frame.channels[place], asked, _at(asked.rescale, place), cancel)
        return scale_over(low, high, frame, asked, place)

    def window(
        self, frame: Frame, channel: int, asked: Asked, wanted: Rescale | None, cancel: Cancel | None = None
    ) -> tuple[float, float]:
        """The two ends of what is shown of a channel."""
        given = _given_window(frame, channel, asked, wanted)
        if given is not None:
            return given
        sample = self._statistics.sample(self.subject(frame, channel, asked), cancel)
        return sample.minmax if wanted == "minmax" else sample.auto

    def prepare(self, frame: Frame, asked: Asked, wanted: Mapping[int, Rescale | None], cancel: Cancel | None) -> None:
        """Take the samples that `window` will need for these channels; raises what taking one raises."""
        sampled = [c for c, window in wanted.items() if _given_window(frame, c, asked, window) is None]
        self._statistics.prepare([self.subject(frame, channel, asked) for channel in sampled], cancel)

    def subject(self, frame: Frame, channel: int, asked: Asked) -> Subject:
        """What the statistics of a channel are taken from."""
        axis = frame.channel_axis
        alone = axis is not None and frame.picture.axes[axis].size <= _MOST_SAMPLED
        place = (axis, channel) if alone and axis is not None else None
        return Subject(frame.picture, place, asked.component, asked.nodata, frame.decoder)

    def _colouring(self, frame: Frame, asked: Asked, cancel: Cancel | None) -> Labels | Lookup | Additive:
        labels = labels_wanted(frame, asked)
        if labels is not None:
            return labels
        colours = channel_colours(frame, asked)
        wanted = {channel: _at(asked.rescale, i) for i, channel in enumerate(frame.channels)}
        self.prepare(frame, asked, wanted, cancel)
        scales = tuple(self.scale(frame, asked, i, cancel) for i in range(len(frame.channels)))
        if len(scales) == 1:
            return Lookup(scales[0], single_lut(asked, colours[0]))
        if asked.colormap_name is not None or asked.colormap is not None:
            raise BadParameter("colormap_name", asked.colormap_name or "(colormap)", "a single channel (c=) to colour")
        return Additive(scales, tuple(colour or (255, 255, 255) for colour in colours))


def _given_window(frame: Frame, channel: int, asked: Asked, wanted: Rescale | None) -> tuple[float, float] | None:
    """The window of a channel where the query, the metadata or the dtype says it; None where the data does."""
    if isinstance(wanted, tuple):
        return wanted
    facts = channel_facts(frame, channel)
    if wanted is None and facts is not None and facts.window is not None:
        return facts.window.start, facts.window.end
    dtype = frame.dtype
    if wanted == "dtype" or (wanted is None and dtype.itemsize == 1 and dtype.kind in "bu"):
        return natural_range(dtype, asked.component)
    return None


def scale_over(low: float, high: float, frame: Frame, asked: Asked, place: int) -> Scale:
    """How the channel at ``place`` of the frame's channels runs from ``low`` to ``high``."""
    facts, invert = channel_facts(frame, frame.channels[place]), _at(asked.invert, place)
    inverted = invert if invert is not None else facts is not None and facts.inverted
    return Scale(float(low), float(high), float(asked.gamma), inverted)


def natural_range(dtype: np.dtype[Any], component: Component | None) -> tuple[float, float]:
    """What the dtype can hold; for floats 0 to 1, for angles a full turn."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return float(info.min), float(info.max)
    if dtype.kind == "c" and component == "phase":
        return -math.pi, math.pi
    if dtype.kind in "mM":
        info = np.iinfo(np.int64)
        return float(info.min), float(info.max)
    return 0.0, 1.0


def channel_facts(frame: Frame, channel: int) -> OmeroChannel | None:
    """What ``omero`` says of a channel."""
    omero = frame.picture.omero
    return omero.channels[channel] if omero is not None and channel < len(omero.channels) else None


def check_repeated(frame: Frame, asked: Asked) -> None:
    """Raise `BadParameter` for more colours, windows or inversions than there are channels to have them."""
    for name in ("color", "rescale", "invert"):
        given, most = len(getattr(asked, name)), len(frame.channels)
        if given > most:
            raise BadParameter(name, given, f"at most one for each of {most} channels")


def channel_colours(frame: Frame, asked: Asked) -> tuple[RGB | None, ...]:
    """The colour of each channel of a frame; None for grey."""
    return tuple(
        _at(asked.color, i) or default_colour(frame, channel, alone=len(frame.channels) == 1)
        for i, channel in enumerate(frame.channels)
    )


def default_colour(frame: Frame, channel: int, *, alone: bool) -> RGB | None:
    """The colour of a channel that none was asked for: omero's, red, green and blue of photographs, or one in turn."""
    facts = channel_facts(frame, channel)
    omero = frame.picture.omero
    if omero is not None and omero.greyscale and alone:
        return None
    if facts is not None and facts.color is not None:
        return parse_colour(facts.color)
    if alone:
        return None
    if frame.picture.is_rgb and channel < 3:
        return _RGB_COLOURS[channel]
    return parse_colour(DEFAULT_COLOURS[channel % len(DEFAULT_COLOURS)])


def labels_wanted(frame: Frame, asked: Asked) -> Labels | None:
    """How to colour values that stand for things; None where they are brightness."""
    if isinstance(asked.colormap, Classes):
        return Labels(choose(asked.colormap.colours), only_chosen=True)
    known = frame.picture.image_label
    wanted = asked.labels if asked.labels is not None else known is not None and not _asks_for_brightness(asked)
    if not wanted:
        return None
    if frame.dtype.kind not in "biu":
        raise BadParameter("labels", True, f"an array of integers, this one has {frame.dtype}")
    return Labels(choose(known.colors.items() if known is not None else ()), only_chosen=False)


def _asks_for_brightness(asked: Asked) -> bool:
    return bool(asked.colormap_name or asked.colormap or asked.color or asked.rescale)


def single_lut(asked: Asked, colour: RGB | None) -> Table:
    """The colour map of one channel; raises `BadParameter` for an unknown name."""
    if asked.colormap_name is not None:
        try:
            return named_lut(asked.colormap_name)
        except ValueError as error:
            raise BadParameter("colormap_name", asked.colormap_name, str(error)) from error
    if isinstance(asked.colormap, Stops):
        return blended(asked.colormap.colours)
    return GREY if colour is None else tint(colour)


def _at(values: Sequence[T], place: int) -> T | None:
    """The value for one of several channels: its own, or the only one for all."""
    if len(values) == 1:
        return values[0]
    return values[place] if place < len(values) else None

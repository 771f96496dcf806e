"""The colours of a picture as a bar, from the lower end of the window on the left to the upper on the right."""

from __future__ import annotations

import numpy as np

from hyperslab.errors import NotRepresentable
from hyperslab.tiles.asked import Asked
from hyperslab.tiles.colour import Table, spread, tint
from hyperslab.tiles.encode import encode_picture
from hyperslab.tiles.frame import Frame
from hyperslab.tiles.raster import Indexed, Planes, Raster, flatten
from hyperslab.tiles.style import channel_colours, labels_wanted, single_lut

_HEIGHT = 16


def legend_png(frame: Frame, asked: Asked) -> bytes:
    """A PNG of ``size`` pixels across, with a bar for each channel; chosen classes get an equal part each.

    Raises `NotRepresentable` for labels that have a colour of their own each.
    """
    raster = _bars(_tables(frame, asked), asked)
    return encode_picture(raster if asked.bg is None else flatten(raster, asked.bg), "png", quality=asked.quality)


def _tables(frame: Frame, asked: Asked) -> list[Table]:
    labels = labels_wanted(frame, asked)
    if labels is not None:
        if not labels.chosen:
            raise NotRepresentable(frame.picture.dtype.str, "a legend", "every label has a colour of its own")
        return [spread(np.array([rgba for _, rgba in sorted(labels.chosen)], np.uint8))]
    colours = channel_colours(frame, asked)
    return [single_lut(asked, colours[0])] if len(colours) == 1 else [tint(c or (255, 255, 255)) for c in colours]


def _bars(tables: list[Table], asked: Asked) -> Raster:
    index = np.broadcast_to(np.arange(asked.size) * 256 // asked.size, (_HEIGHT, asked.size)).astype(np.uint8)
    tables = [table[::-1] if i < len(asked.invert) and asked.invert[i] else table for i, table in enumerate(tables)]
    if len(tables) == 1:
        return Indexed(index, tables[0])
    return Planes(np.concatenate([table.T[:3, index] for table in tables], axis=1))

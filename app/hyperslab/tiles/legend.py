"""The colours of a picture as a bar, from the lower end of the window on the left to the upper on the right."""

from __future__ import annotations

import numpy as np

from hyperslab.errors import NotRepresentable
from hyperslab.tiles.asked import Asked
from hyperslab.tiles.colour import spread, tint
from hyperslab.tiles.encode import encode_picture
from hyperslab.tiles.frame import Frame
from hyperslab.tiles.raster import Indexed, Planes, Raster, flatten
from hyperslab.tiles.render import to_steps
from hyperslab.tiles.style import channel_colours, check_repeated, labels_wanted, scale_over, single_lut

_HEIGHT = 16


def legend_png(frame: Frame, asked: Asked) -> bytes:
    """A PNG of ``size`` pixels across, with a bar for each channel; chosen classes get an equal part each.

    Raises `NotRepresentable` for labels that have a colour of their own each, and `BadParameter` for what does not go
    together.
    """
    raster = _bars(frame, asked)
    return encode_picture(raster if asked.bg is None else flatten(raster, asked.bg), "png", quality=asked.quality)


def _bars(frame: Frame, asked: Asked) -> Raster:
    index = np.broadcast_to(np.arange(asked.size) * 256 // asked.size, (_HEIGHT, asked.size)).astype(np.uint8)
    check_repeated(frame, asked)
    labels = labels_wanted(frame, asked)
    if labels is not None:
        _, colours = labels.chosen.floats
        if not len(colours):
            raise NotRepresentable(frame.picture.dtype.str, "a legend", "every label has a colour of its own")
        return Indexed(index, spread(colours))
    tints = channel_colours(frame, asked)
    # the steps stand for themselves, whatever the window is: looking for it in the data would tell nothing more
    steps = [to_steps(index, scale_over(0, 255, frame, asked, place)) for place in range(len(tints))]
    if len(tints) == 1:
        return Indexed(steps[0], single_lut(asked, tints[0]))
    tables = [tint(colour or (255, 255, 255)) for colour in tints]
    return Planes(np.concatenate([table.T[:3, step] for table, step in zip(tables, steps, strict=True)], axis=1))

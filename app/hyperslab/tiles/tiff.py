"""TIFF files of values: OME-TIFF, written by tifffile, which is imported late.

A file has a plane for each index of the axes other than rows and columns, uncompressed, in little endian. It has no
date and no identifier, so that equal values of an equal image are equal bytes.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hyperslab import __version__
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.engine.dtypes import Field
from hyperslab.engine.selection import IndexAxis, Selection, SliceAxis
from hyperslab.errors import BadPath, BrokenData, Impossible, NodeNotFound, NotRepresentable, TooLarge, WrongKind
from hyperslab.tiles.frame import default_plane
from hyperslab.tiles.image import Axis, Image, plain_axes
from hyperslab.tiles.images import Images
from hyperslab.wire import dtype_to_json, numbers_dtype

TIFF: Final = "image/tiff"
MAX_PLANES: Final = 1 << 16
"""Planes of a file: each costs a directory of 180 bytes, and time that no request may cut short."""

_LETTERS: Final = {"space": "Z", "channel": "C", "time": "T"}
_UNITS: Final = {
    **{"angstrom": "Å", "nanometer": "nm", "micrometer": "µm", "micron": "µm", "millimeter": "mm", "centimeter": "cm"},
    **{"decimeter": "dm", "meter": "m", "kilometer": "km", "picometer": "pm", "inch": "in", "foot": "ft", "mile": "mi"},
    **dict.fromkeys(("um", "μm"), "µm"),
    **{unit: unit for unit in ("nm", "µm", "mm", "cm", "dm", "m", "km", "pm")},
}
_TIMES: Final = {
    **{"second": "s", "millisecond": "ms", "microsecond": "µs", "nanosecond": "ns", "minute": "min", "hour": "h"},
    **{"day": "d", "s": "s", "ms": "ms", "min": "min", "h": "h"},
}


@dataclass(frozen=True, slots=True)
class TiffLayout:
    """How values lie in a file. ``shape`` has two axes or more; the axes of the file are those at ``order``, with OME's
    ``letters``. ``dtype`` is that of the file. ``facts`` are members of OME's Image, Pixels and Channel.

    ``identity`` distinguishes files of equal values.
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    letters: str
    dtype: np.dtype[Any]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        import tifffile

        text = f"{__version__} {tifffile.__version__} {self.order} {self.letters} {self.facts}"
        return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=12).hexdigest()

    @property
    def planes(self) -> int:
        """The number of planes."""
        pixels = prod(
            self.shape[axis] for axis, letter in zip(self.order, self.letters, strict=True) if letter in "YXS"
        )
        return prod(self.shape) // pixels


def tiff_layout(
    images: Images, array: ArrayNode, chosen: Field | None, selection: Selection, dtype: np.dtype[Any]
) -> TiffLayout:
    """The layout of a selection of an array, or of one of its fields, as values of ``dtype``.

    Rows, columns, channels, times and depths are found by the names and types of the axes, those of the OME-Zarr image
    that the array is a level of, or its own; other axes take what OME has left. Three or four uint8 channels behind the
    columns are red, green, blue. Raises `NotRepresentable`, and `TooLarge` for more than `MAX_PLANES`.
    """
    stored = pixel_dtype(dtype)
    image, axes = _image_axes(images, array)
    kept = list[Axis]()
    inner = [] if chosen is None else [Axis(f"d{i}", None, None, size) for i, size in enumerate(chosen.shape)]
    for array_axis in selection.output_axes:
        step = selection.axes[array_axis]
        scale, size = axes[array_axis].scale, selection.shape[len(kept)]
        scale = abs(scale * step.step) if scale and isinstance(step, SliceAxis) else None
        kept.append(replace(axes[array_axis], scale=scale, size=size))
    kept += inner
    kept = [Axis("", None, None, 1)] * (2 - len(kept)) + kept
    shape = tuple(axis.size for axis in kept)
    if 0 in shape:
        raise NotRepresentable(dtype_to_json(dtype), "tiff", "a picture has one pixel or more")
    rows, columns = default_plane(kept)
    is_rgb = image is not None and image.is_rgb and kept[-1].type == "channel" and shape[-1] == image.axes[-1].size
    samples = [len(kept) - 1] if is_rgb and stored == np.uint8 and len(kept) - 1 not in (rows, columns) else []
    others = [i for i in range(len(kept)) if i not in (rows, columns, *samples)]
    if len(others) > 3:
        reason = "a file has planes along three axes at most: choose an index along the others"
        raise NotRepresentable(dtype_to_json(dtype), "tiff", reason)
    letters = letters_of([kept[i] for i in others])
    layout = TiffLayout(shape, (*others, rows, columns, *samples), letters + "YX" + "S" * len(samples), stored)
    if layout.planes > MAX_PLANES:
        raise TooLarge("a TIFF file", layout.planes, MAX_PLANES, "planes", advice="choose fewer in each request")
    facts = _facts(image, array, selection, dict(zip(layout.letters, (kept[i] for i in layout.order), strict=True)))
    return replace(layout, facts=facts)


def encode_tiff(values: NDArray[Any], layout: TiffLayout) -> memoryview:
    """The file of values in the dtype and shape of a layout, with or without its first axes of one."""
    import tifffile

    values = values.reshape(layout.shape).transpose(layout.order)
    values = np.ascontiguousarray(values, layout.dtype.newbyteorder("<"))
    out, with_samples = io.BytesIO(), layout.letters.endswith("S")
    colours: dict[str, Any] = {"photometric": "rgb" if with_samples else "minisblack"}
    if with_samples:
        colours["planarconfig"] = "contig"
        colours["extrasamples"] = ["unassalpha"] * (values.shape[-1] - 3)
    described: dict[str, Any] = {"metadata": {"axes": layout.letters}}
    if layout.dtype not in (np.int64, np.uint64):  # OME has no such pixels
        height, width, samples = values.shape[-3:] if with_samples else (*values.shape[-2:], 1)
        xml = tifffile.OmeXml(UUID="", Creator=f"hyperslab {__version__}")
        stored = (layout.planes, 1, 1, height, width, samples)
        xml.addimage(layout.dtype, values.shape, stored, axes=layout.letters, **layout.facts)
        text = xml.tostring().replace(' UUID="urn:uuid:"', "", 1)
        described = {"metadata": None, "description": text.encode()}
    tifffile.imwrite(out, values, byteorder="<", software=False, **colours, **described)
    return out.getbuffer()


def pixel_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Booleans as bytes and short floats as float32; raises `NotRepresentable` for what is no number."""
    plain = numbers_dtype(dtype).newbyteorder("=")
    if plain.kind not in "biufc" or plain.char in "gG":
        raise NotRepresentable(dtype_to_json(dtype), "tiff", "the pixels of a TIFF file are numbers")
    return np.dtype({"b": np.uint8, "e": np.float32}.get("b" if plain.kind == "b" else plain.char, plain))


def _image_axes(images: Images, array: ArrayNode) -> tuple[Image | None, Sequence[Axis]]:
    """The image of which an array is a level, or that it is, None without any; and the axes of the array."""
    group, depth = array.path, 0
    while depth < 2 and "/" in group:
        group, depth = group.rpartition("/")[0], depth + 1
        try:
            image = images.open(group)
        except (NodeNotFound, WrongKind, BadPath, BrokenData, Impossible):
            continue
        level = next((level for level in image.levels if level.array.path == array.path), None)
        if level is not None and not image.mosaic:
            sizes = zip(image.axes, level.factors, strict=True)
            return image, [replace(a, scale=a.scale * factor if a.scale else None) for a, factor in sizes]
    try:
        image = images.open(array.path)
    except Impossible:
        return None, plain_axes(array.attributes, array.axis_names or (), array.metadata.shape)
    return image, image.axes


def letters_of(axes: Sequence[Axis]) -> str:
    """T, C or Z for each axis beside rows and columns: by its type, else one of those left, Z for the last."""
    letters: dict[int, str] = {}
    for i, axis in enumerate(axes):
        letter = _LETTERS.get(axis.type or "")
        if letter and letter not in letters.values():
            letters[i] = letter
    left = [letter for letter in "ZTC" if letter not in letters.values()]
    for i in reversed(range(len(axes))):
        letters[i] = letters.get(i) or left.pop(0)
    return "".join(letters[i] for i in range(len(axes)))


def _facts(image: Image | None, array: ArrayNode, selection: Selection, axes: dict[str, Axis]) -> dict[str, Any]:
    """Name, sizes of cells in units that OME has, and names and colours of channels."""
    facts: dict[str, Any] = {"Name": _xml_text(array.path)}
    for letter, axis in axes.items():
        units = _TIMES if letter == "T" else _UNITS
        named = (axis.unit or "").replace("metre", "meter")
        unit = units.get(named) or units.get(named.lower().removesuffix("s"))
        if axis.scale and unit and letter in "TZYX":
            name = "TimeIncrement" if letter == "T" else f"PhysicalSize{letter}"
            facts |= {name: axis.scale, f"{name}Unit": unit}
    of_image = () if image is None else image.axes
    channel_axis = next((i for i, axis in enumerate(of_image) if axis.type == "channel"), len(selection.axes))
    if image is None or image.omero is None or channel_axis >= len(selection.axes) or "S" in axes:
        return facts
    match selection.axes[channel_axis]:
        case IndexAxis(index):
            indices = [index]
        case SliceAxis(start, step, count):
            indices = [start + step * i for i in range(count)]
        case chosen:
            indices = chosen.indices.tolist()
    if len(indices) == (axes["C"].size if "C" in axes else 1):
        channels = dict(enumerate(image.omero.channels))
        described: dict[int, dict[str, Any]] = {
            index: {"Name": _xml_text(channels[index].label) or None} for index in channels
        }
        for index, own in described.items():
            if (colour := channels[index].color) is not None:
                own["Color"] = int.from_bytes(bytes.fromhex(f"{colour}FF"), "big", signed=True)
        facts["Channel"] = [described.get(index, {}) for index in indices]
    return facts


def _xml_text(text: str) -> str:
    """Text without the characters that XML 1.0 does not have."""
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)

"""TIFF, OME-TIFF and ImageJ files as images; a folder of files whose names say axes is one image.

[TIFF 6.0; OME-XML 2016-06; the tags of ImageJ as tifffile reads them]
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
import re
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import numpy as np
from tifffile import TiffFile, TiffFileError, TiffPage

from hyperslab.conversion.model import (
    Array,
    Axis,
    Box,
    CannotConvert,
    Channel,
    Image,
    OpenFiles,
    StackedValues,
    Undetermined,
    as_image,
    readable,
)
from hyperslab.conversion.names import positions
from hyperslab.storage import is_companion

UNITS: Final = {
    **{"µm": "micrometer", "um": "micrometer", "micron": "micrometer", "microns": "micrometer"},
    **{"nm": "nanometer", "pm": "picometer", "mm": "millimeter", "cm": "centimeter", "dm": "decimeter", "m": "meter"},
    **{"km": "kilometer", "Å": "angstrom", "in": "inch", "inch": "inch", "ft": "foot", "yd": "yard", "mi": "mile"},
    **{"s": "second", "sec": "second", "ms": "millisecond", "µs": "microsecond", "ns": "nanosecond"},
    **{"min": "minute", "h": "hour", "d": "day"},
}
"""Units of OME-XML and ImageJ as OME-Zarr writes them. [OME-Zarr 0.5: axes metadata]"""
SYMBOLS: Final = {name: symbol for symbol, name in reversed(UNITS.items())}
"""Units of OME-Zarr as OME-XML writes them: the first of each in `UNITS`."""
SAMPLES: Final = (Channel("Red", "FF0000"), Channel("Green", "00FF00"), Channel("Blue", "0000FF"))
LOCK: Final = threading.Lock()
LOGGER: Final = logging.getLogger("tifffile")
LOGGER.addHandler(logging.NullHandler())  # what it complains of is said in one sentence
OME_TEXTS: Final = ("Description", "AcquisitionDate")
IMAGEJ: Final = frozenset(
    [
        "ImageJ",
        "axes",
        "images",
        "hyperstack",
        "channels",
        "slices",
        "frames",
        "unit",
        "spacing",
        "finterval",
        "tunit",
        "mode",
        "loop",
        "LUTs",
        "Ranges",
        "min",
        "max",
    ]
)
"""Members of ImageJ's metadata that are read; others are kept as attributes if they are text or numbers."""
MASTER: Final = re.compile(r"""BinaryOnly[^>]*MetadataFile=["']([^"']*)""")
"""The file with the OME-XML of a TIFF that has none. [OME-TIFF: BinaryOnly]"""
STORAGE: Final = {
    *(*range(254, 260), 262, 266, 273, 274, *range(277, 285), 292, 293, 296, 297, 317, 320, *range(322, 326), 330),
    *(338, 339, 347, *range(512, 515), *range(530, 533), 32997, 32998, 50838, 50839),
}
"""Tags of how pixels are stored, or that are read elsewhere. [TIFF 6.0; those of ImageJ are 50838 and 50839]"""
LETTERS: Final = str.maketrans("TCZYXS", "tczyxc")


@dataclass(frozen=True, slots=True)
class TiffValues:
    """Values of an image of a file: of its ``series``, whose axes are as tifffile has them."""

    path: str
    series: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self, box: Box) -> np.ndarray:
        with readable(self.path, "TIFF", UNREADABLE):
            file = FILES.get(self.path)
            series = file.series[self.series]
            if series.dataoffset is not None:
                own = series.keyframe.parent  # which of several files it is
                stored = self.dtype.newbyteorder(">" if own.byteorder == ">" else "<")
                return read_raw(own.filehandle.path, series.dataoffset, stored, self.shape, box)
            out = np.zeros([part.stop - part.start for part in box], self.dtype)
            with LOCK:  # tifffile reads directories of pages when they are first asked for
                keyframe, pages = series.keyframe, series.pages
                count = len(pages)
            trailing = len(self.shape)
            while trailing and math.prod(self.shape[trailing:]) < math.prod(keyframe.shape):
                trailing -= 1
            leading = self.shape[:trailing]
            if math.prod(leading) != count:
                raise CannotConvert(f"{self.path} has {count} pages, and its image {math.prod(leading)}")
            for place in np.ndindex(*out.shape[:trailing]):
                index = [part.start + offset for part, offset in zip(box, place, strict=False)]
                with LOCK:
                    file.filehandle.open()
                    page = pages[int(np.ravel_multi_index(index, leading)) if leading else 0]
                if page is not None:
                    _read_page(page, keyframe, self.shape[trailing:], box[trailing:], out[place])
            return out


UNREADABLE: Final = (
    *(TiffFileError, ValueError, TypeError, IndexError, KeyError, struct.error, EOFError, RuntimeError),
    ElementTree.ParseError,
)


class _Complaints(logging.Handler):
    """Warning by tifffile of a file that it reads in part."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())

    def __enter__(self) -> list[str]:
        LOGGER.addHandler(self)
        return self.texts

    def __exit__(self, *_: object) -> None:
        LOGGER.removeHandler(self)


def _open_tiff(path: str) -> TiffFile:
    """A TIFF with its images; OME-XML may lie in a companion file, which is named beside the pixels, or is the
    ``path``. [OME-TIFF: BinaryOnly, companion files]"""
    folder = Path(path).parent
    if is_companion(Path(path)):
        text = Path(path).read_text("utf-8")
        names = [uuid.get("FileName") for uuid in ElementTree.fromstring(text).iterfind(".//{*}TiffData/{*}UUID")]
        first = next((folder / Path(name).name for name in names if name), None)
        if first is None or not first.is_file():
            raise CannotConvert(f"{path} names {first.name if first else 'no TIFF'}: its TIFFs must lie beside it")
        file = TiffFile(first, omexml=text)
    else:
        file = TiffFile(path)
        named = MASTER.search(file.ome_metadata or "")
        master = folder / Path(named[1] if named else "").name
        if master.is_file():
            file.close()
            with _open_tiff(str(master)) if is_companion(master) else TiffFile(master) as other:
                text = other.ome_metadata or ""
            file = TiffFile(path, omexml=text)
    _ = [series.dataoffset for series in file.series]  # which reads the directories of pages, for one thread alone
    return file


FILES: Final = OpenFiles(_open_tiff, TiffFile.close)


def read_raw(path: str, offset: int, dtype: np.dtype[Any], shape: Sequence[int], box: Box) -> np.ndarray:
    """Read a box of an array that lies in a file in C order: runs along the last axes, whole rows of the last. Raises
    `CannotConvert` for a file that ends before."""
    out = np.empty([part.stop - part.start for part in box], dtype.newbyteorder("="))
    if not out.size:
        return out
    with Path(path).open("rb", buffering=0) as file:
        # axes behind `split` are whole, so that a run along the axis before them is one piece
        split = len(shape)
        while split and box[split - 1] == slice(0, shape[split - 1]):
            split -= 1
        run = max(split - 1, 0)
        if split == len(shape) and split > 1 and out.shape[-1] * 4 >= shape[-1]:
            run = split - 2  # rows of which most is wanted are read whole
        below = math.prod(shape[run + 1 :])
        for place in np.ndindex(*out.shape[:run]):
            index = [part.start + o for part, o in zip(box, place, strict=False)]
            first = 0
            for position, size in zip(index, shape, strict=False):
                first = first * size + position
            start, count = (box[run].start, out.shape[run]) if shape else (0, 1)
            first = (first * shape[run] + start) * below if shape else 0
            values = np.empty((count, *shape[run + 1 :]) if shape else (), dtype)
            view, done = memoryview(values.reshape(-1).view(np.uint8)), 0
            while done < len(view):
                got = os.preadv(file.fileno(), [view[done : done + (1 << 30)]], offset + first * dtype.itemsize + done)
                if not got:
                    stop = offset + first * dtype.itemsize + len(view)
                    raise CannotConvert(f"{path} is cut short: it ends before byte {stop}")
                done += got
            out[place] = values[(slice(None), *box[run + 1 :])] if shape else values
    return out


def _read_page(page: Any, keyframe: TiffPage, shape: Sequence[int], box: Box, out: np.ndarray) -> None:
    """Read a box of a page, whose shape is that of the image's last axes, into ``out``: only the strips and tiles that
    it touches."""
    separate, depth, length, width, samples = keyframe.shaped
    parts = {"S": slice(0, separate * samples), "Y": slice(0, length), "X": slice(0, width)}
    axes = [axis for axis, size in zip(keyframe.axes, keyframe.shape, strict=True) if size != 1]
    sized = [(part, size) for part, size in zip(box, shape, strict=True) if size != 1]
    if (
        depth != 1
        or not set(axes) <= parts.keys()
        or [size for _, size in sized] != [n for n in keyframe.shape if n != 1]
    ):
        out[...] = page.asarray().reshape(shape)[box]
        return
    parts |= dict(zip(axes, [part for part, _ in sized], strict=True))
    first = parts["S"] if separate > 1 else slice(0, 1)
    rows = keyframe.tilelength if keyframe.is_tiled else min(keyframe.rowsperstrip, length)
    columns = keyframe.tilewidth if keyframe.is_tiled else width
    grid = (separate, -(-length // rows), -(-width // columns))
    pixels = np.full(
        (first.stop - first.start, _size(parts["Y"]), _size(parts["X"]), samples), keyframe.nodata, out.dtype
    )
    touched = itertools.product(
        range(first.start, first.stop),
        range(parts["Y"].start // rows, -(-parts["Y"].stop // rows)),
        range(parts["X"].start // columns, -(-parts["X"].stop // columns)),
    )
    tables = {"jpegtables": keyframe.jpegtables} if keyframe.jpegtables is not None else {}
    if keyframe.jpegheader is not None:
        tables["jpegheader"] = keyframe.jpegheader
    handle = page.parent.filehandle
    for number in touched:
        index = int(np.ravel_multi_index(number, grid))
        offset, count = page.dataoffsets[index], page.databytecounts[index]
        if not count:
            continue  # a tile that was not stored, of missing values
        with LOCK:
            handle.open()
            handle.seek(offset)
            data = handle.read(count)
        if len(data) < count:
            raise CannotConvert(f"{handle.name} is cut short: it ends before byte {offset + count}")
        segment = keyframe.decode(data, index, **tables)[0]
        if segment is None:
            continue
        top, left = number[1] * rows, number[2] * columns
        y, x = _shared(parts["Y"], top, top + segment.shape[1]), _shared(parts["X"], left, left + segment.shape[2])
        target = pixels[number[0] - first.start, _moved(y, parts["Y"].start), _moved(x, parts["X"].start)]
        target[...] = segment[0, _moved(y, top), _moved(x, left), :samples]
    if separate == 1:
        pixels = pixels[..., parts["S"]]
    out[...] = pixels.reshape(out.shape)


def _size(part: slice) -> int:
    return int(part.stop - part.start)


def _shared(part: slice, start: int, stop: int) -> slice:
    return slice(max(part.start, start), min(part.stop, stop))


def _moved(part: slice, origin: int) -> slice:
    return slice(part.start - origin, part.stop - origin)


# --- images of files -------------------------------------------------------------------------------------------------


def open_files(paths: Sequence[Path], *, axes: str | None, pattern: str | None) -> tuple[str, list[Image], list[str]]:
    """What files are, their images, and notes of what is left out. Several files are one image, or the files of one
    OME-TIFF. Raises `Undetermined` for axes that neither files nor names say."""
    companion = next((path for path in paths if is_companion(path)), None)
    what, images, notes, own = _images(companion or paths[0], axes, several=len(paths) > 1)
    if len(paths) == 1:
        return what, images, notes
    if {path.resolve() for path in paths} <= own and pattern is None:
        return what, images, notes  # the files of one OME-TIFF
    if companion is not None:
        raise CannotConvert(f"{companion} does not name all files beside it: convert it by itself")
    if len(images) > 1:
        raise CannotConvert(f"{paths[0]} holds several images: convert each file by itself")
    labels, order = positions([path.name for path in paths], pattern)
    inner = images[0]
    letters = "".join(axis.name for axis in inner.axes)
    if both := set(labels) & set(letters):
        raise Undetermined(f"{paths[0].name} has an axis {min(both)!r}, and the names too", "axes", "zyx")
    parts, shared, differing = [inner.array.values], inner.attributes, set[str]()
    for path in paths[1:]:
        _, (other, *rest), _, _ = _images(path, axes, several=True)
        if rest or (other.array.shape, other.array.dtype) != (inner.array.shape, inner.array.dtype):
            described = f"{other.array.dtype} {list(other.array.shape)}"
            raise CannotConvert(f"{path} is {described}, and {paths[0]} {inner.array.dtype} {list(inner.array.shape)}")
        parts.append(other.array.values)
        shared = _common(shared, other.attributes, differing)
    if differing:
        notes.append(f"left out what differs from file to file: {', '.join(sorted(differing))}")
    leading = tuple([len(files_of_label) for files_of_label in labels.values()])
    array = Array(
        StackedValues(tuple([parts[index] for index in order]), leading),
        (*leading, *inner.array.shape),
        inner.array.dtype,
        (*[1] * len(leading), *inner.array.reads),
    )
    channels = inner.channels
    if "c" in labels:
        channels = tuple([Channel(None if label.isdecimal() else label) for label in labels["c"]])
    found_axes = {axis.name: axis for axis in inner.axes}
    members = {"name": inner.name, "channels": channels, "attributes": shared}
    image = as_image(array, "".join(labels) + letters, found_axes, **members)
    return f"{len(paths)} files of {what}", [image], notes


def _common(one: Mapping[str, Any], other: Mapping[str, Any], differing: set[str]) -> dict[str, Any]:
    """The attributes that two files have in common; names of others are added to ``differing``."""
    common: dict[str, Any] = {}
    for name in one.keys() | other.keys():
        values = one.get(name), other.get(name)
        if values[0] == values[1] or all(isinstance(value, Mapping | None) for value in values):
            common[name] = values[0] if values[0] == values[1] else _common(values[0] or {}, values[1] or {}, differing)
        else:
            differing.add(name)
    return {name: value for name, value in common.items() if value != {}}


def _images(path: Path, axes: str | None, *, several: bool) -> tuple[str, list[Image], list[str], set[Path]]:
    """What a file is, its images, notes, and the files that belong to it."""
    with _Complaints() as complaints, readable(str(path), "TIFF", UNREADABLE), _open_tiff(str(path)) as file:
        if not file.series:
            raise CannotConvert(f"{path} holds no image")
        for text in complaints:
            if "invalid page offset" in text:
                raise CannotConvert(f"{path} is cut short: {text}")
            if missing := re.search("OME series failed to read '(.*?)'", text):
                raise CannotConvert(f"{path} has values in {missing[1]}, which is not beside it")
        kinds = {"ome": "OME-TIFF", "imagej": "ImageJ TIFF", "mmstack": "Micro-Manager TIFF"}
        what = kinds.get(file.series[0].kind, "TIFF")
        is_ome = file.series[0].kind == "ome"
        wanted = len(file.series) if is_ome else 1
        left = [s for s in file.series[wanted:] if s.kind != "uniform" or s.shape != file.series[0].shape]
        notes = [f"left out {series.name or 'a further image'} {list(series.shape)}" for series in left]
        notes += [text.partition("> ")[2] for text in complaints if "OME series" in text]
        if file.ome_metadata and not is_ome:
            master = MASTER.search(file.ome_metadata)
            said = f"is in {master[1]}, which is not beside it" if master else "cannot be read"
            if axes is None:
                example = "tczyx"[-len(file.series[0].shape) :]
                raise Undetermined(f"the OME-XML of {path} {said}", "axes", example)
            notes.append(f"left out the OME-XML, which {said}")
        described, of_no_use = _ome(file.ome_metadata) if is_ome and file.ome_metadata else ([], [])
        if of_no_use:
            notes.append(f"left out of the OME-XML: {', '.join(of_no_use)}")
        notes += _remarks(file.series[0].keyframe)
        own = {Path(page.parent.filehandle.path).resolve() for s in file.series for page in s.pages if page is not None}
        images = []
        for number in range(wanted):
            description = described[number] if len(described) == wanted else {}
            image, others = _image(path, file, number, description, axes, several=several)
            images.append(image)
            notes += [f"left out {', '.join(others)}"] if others else []
        return what, images, [*dict.fromkeys(notes)], own | {path.resolve()} if is_ome else {path.resolve()}


def _remarks(page: Any) -> Iterator[str]:
    """Sentences on what a page says of its values that an image of OME-Zarr does not hold."""
    if page.photometric == 3 and not page.is_imagej:  # [TIFF 6.0: PhotometricInterpretation, Orientation]
        yield "left out the colour map: the values are numbers of its colours"
    if page.photometric == 0:
        yield "the file shows 0 as white; the values are kept"
    orientation = page.tags.get("Orientation")
    if orientation is not None and orientation.value != 1:
        yield f"the file turns or mirrors its rows (orientation {orientation.value}); they are kept as stored"
    nodata = page.tags.get("GDAL_NODATA")
    if nodata is not None:
        yield f"the file's missing values are {nodata.value}, which an attribute says"


def _tags(page: Any) -> tuple[dict[str, Any], list[str]]:
    """Tags that say more than how pixels are stored, and names of those whose values JSON does not hold."""
    kept, left = {}, list[str]()
    for tag in page.tags.values():
        value = tag.value
        if tag.code in STORAGE or value == "tifffile.py":
            continue
        if tag.code == 270 and (page.is_ome or page.is_imagej or str(value).startswith(('{"shape": ', "shape=("))):
            continue  # which tifffile reads itself
        items = value if isinstance(value, tuple) else (value,)
        if len(items) > 1000 or not all(isinstance(item, str | int | float) for item in items):
            left.append(tag.name)
        else:
            kept[tag.name] = json.loads(json.dumps(value))
    return kept, left


def _image(  # noqa: PLR0912
    path: Path, file: TiffFile, number: int, found: Mapping[str, Any], axes: str | None, *, several: bool
) -> tuple[Image, list[str]]:
    """An image of a file, and names of tags and members that are left out."""
    series = file.series[number]
    shape, dtype = tuple(series.shape), np.dtype(series.dtype).newbyteorder("=")
    letters = series.axes.translate(LETTERS)
    name = path.name.partition(".")[0] if not found.get("name") else found["name"]
    sizes: dict[str, Axis] = dict(found.get("axes", {}))
    channels: tuple[Channel, ...] = found.get("channels", ())
    left: list[str] = []
    attributes: dict[str, Any] = dict(found.get("attributes", {}))
    if file.is_imagej and series.kind == "imagej":
        sizes, channels, attributes, left = _imagej(file)
    elif not found:
        tag = series.keyframe.tags.get("ResolutionUnit")  # [TIFF 6.0: ResolutionUnit]
        micrometers = {2: 25_400.0, 3: 10_000.0}.get(0 if tag is None else int(tag.value))
        lengths = {name: _resolved(series.keyframe, f"{name.upper()}Resolution") for name in "yx"}
        if micrometers is not None:
            sizes = {name: Axis(name, "micrometer", micrometers * size) for name, size in lengths.items() if size}
        shaped = file.shaped_metadata[0] if file.shaped_metadata else {}
        attributes = {key: value for key, value in shaped.items() if key not in ("shape", "axes", "truncated")}
    tags, others = _tags(series.keyframe)
    attributes |= {"tiff": tags} if tags else {}
    if "S" in series.axes and series.keyframe.photometric in (2, 6) and letters.count("c") == 1:
        channels = (*SAMPLES, *[Channel("Alpha")] * 4)[: shape[series.axes.index("S")]]
    if axes is not None:
        letters = axes.lower()
        if several and len(letters) > len(shape):
            letters = letters[-len(shape) :]
    elif letters.count("c") > 1:
        raise CannotConvert(f"{path} has colour samples in each channel, which OME-Zarr cannot hold as one image")
    elif unknown := [letter for letter in letters if letter.isupper()]:
        said = f"{path} does not say what its axis of {shape[letters.index(unknown[0])]} images is"
        raise Undetermined(said, "axes", "tczyx"[-len(shape) :] if len(shape) != 3 else "zyx")
    keyframe = series.keyframe
    reads = [1] * len(shape)
    rows = keyframe.tilelength if keyframe.is_tiled else keyframe.rowsperstrip
    for axis, letter in enumerate(series.axes):
        if letter in "YX" and series.dataoffset is None:
            own = rows if letter == "Y" else keyframe.tilewidth if keyframe.is_tiled else shape[axis]
            reads[axis] = min(own, shape[axis])
        elif letter in "XS":
            reads[axis] = shape[axis]
    if "c" not in letters and channels:
        letters, shape, reads = f"c{letters}", (1, *shape), [1, *reads]
    if "c" in letters and len(channels) != shape[letters.index("c")]:
        channels = ()
    array = Array(TiffValues(str(path.absolute()), number, shape, dtype), shape, dtype, tuple(reads))
    return as_image(array, letters, sizes, name=name, channels=channels, attributes=attributes), [*left, *others]


# --- metadata --------------------------------------------------------------------------------------------------------


def _ome(text: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Name, axes, channels and attributes of each image in OME-XML, and names of elements that are left out."""
    images, root = [], ElementTree.fromstring(text)
    inside = [*root, *root.iterfind("{*}Image/*"), *root.iterfind("{*}Image/{*}Pixels/*")]
    names = {element.tag.rpartition("}")[2] for element in inside}
    left = {name for name in names if not name.endswith("Ref")} - {"Image", "Pixels", "Channel", "TiffData", *OME_TEXTS}
    for image in root.iterfind("{*}Image"):
        pixels = image.find("{*}Pixels")
        if pixels is None:
            continue
        axes = {}
        for name, member in (
            ("x", "PhysicalSizeX"),
            ("y", "PhysicalSizeY"),
            ("z", "PhysicalSizeZ"),
            ("t", "TimeIncrement"),
        ):
            size = _number(pixels.get(member))
            if size:
                axes[name] = Axis(name, _unit(pixels.get(f"{member}Unit", "s" if name == "t" else "µm")), size)
        channels = []
        for channel in pixels.iterfind("{*}Channel"):
            color = channel.get("Color")
            rgb = None if color is None else f"{int(color) >> 8 & 0xFFFFFF:06X}"
            channels += [Channel(channel.get("Name") or None, rgb)] * int(channel.get("SamplesPerPixel") or 1)
        if not any(channel.label or channel.color for channel in channels):
            channels = []
        texts = {name: content for name in OME_TEXTS if (content := image.findtext(f"{{*}}{name}"))}
        attributes = {"ome_xml": texts} if texts else {}
        members = {"axes": axes, "channels": tuple(channels), "attributes": attributes}
        images.append({"name": image.get("Name"), **members})
    return images, sorted(left)


def _imagej(file: TiffFile) -> tuple[dict[str, Axis], tuple[Channel, ...], dict[str, Any], list[str]]:
    """Axes, channels and attributes of an image of ImageJ, and names of what is left out."""
    metadata: dict[str, Any] = file.imagej_metadata or {}
    unit = _unit(str(metadata.get("unit")).replace("\\u00B5", "µ"))
    axes = {}
    for name, tag in (("x", "XResolution"), ("y", "YResolution")):
        size = _resolved(file.pages.first, tag)
        if size and unit:
            axes[name] = Axis(name, unit, size)
    spacing, interval = _number(metadata.get("spacing")), _number(metadata.get("finterval"))
    if spacing:
        axes["z"] = Axis("z", unit, abs(spacing))
    if interval:
        axes["t"] = Axis("t", _unit(metadata.get("tunit", "s")) or "second", interval)
    count = int(metadata.get("channels", 1))
    map_of_one = file.pages.first.colormap if count == 1 else None  # of 8 bits, which is the colour of a channel
    tables = np.asarray(metadata.get("LUTs", () if map_of_one is None else map_of_one >> 8)).reshape(-1, 3, 256)
    ranges = [*(metadata.get("Ranges") or ())]
    if not ranges and "min" in metadata and "max" in metadata:
        ranges = [metadata["min"], metadata["max"]] * count
    channels = []
    for number in range(count if len(tables) or ranges else 0):
        color = None
        if number < len(tables) and (metadata.get("mode") != "grayscale" or map_of_one is not None):
            color = "".join(f"{int(value):02X}" for value in tables[number][:, -1])
        window = tuple([float(value) for value in ranges[2 * number : 2 * number + 2]])
        channels.append(Channel(None, color, (window[0], window[1]) if len(window) == 2 else None))
    others = {key: value for key, value in metadata.items() if key not in IMAGEJ}
    kept = {key: value for key, value in others.items() if not isinstance(value, bytes | list) or key == "Labels"}
    left = sorted(others.keys() - kept.keys())
    return axes, tuple(channels), {"imagej": json.loads(json.dumps(kept))} if kept else {}, left


def _resolved(page: Any, tag: str) -> float | None:
    value = page.tags.get(tag)
    if value is None:
        return None
    numerator, denominator = value.value
    return denominator / numerator if numerator and denominator else None


def _unit(text: Any) -> str | None:
    return UNITS.get(str(text).replace("\u03bc", "µ"), str(text) if str(text) in UNITS.values() else None)


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None

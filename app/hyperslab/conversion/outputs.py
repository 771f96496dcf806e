"""Writes sources as files again: NetCDF, OME-TIFF and npy. A file has its name when all of it is written."""

from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from hyperslab.client.text import Progress, report, size_text
from hyperslab.conversion.making import (
    TILE,
    Advance,
    ArrayDesign,
    Made,
    block_shape,
    boxes,
    execute,
    size_of,
    threads_for,
)
from hyperslab.conversion.model import (
    KINDS,
    Array,
    Axis,
    Box,
    CannotConvert,
    Channel,
    Image,
    Source,
    Undetermined,
    Values,
    as_image,
)
from hyperslab.conversion.places import is_service
from hyperslab.conversion.sources import check_unchanged
from hyperslab.conversion.tiff import OME_TEXTS, SYMBOLS
from hyperslab.engine.cf import parse_fill
from hyperslab.engine.other_format import MISSING
from hyperslab.errors import HyperslabError
from hyperslab.storage import CONVERTIBLE
from hyperslab.storage.config import is_local, local_path

WRITTEN: Final = (".nc", ".nc4", ".npy", ".tif", ".tiff")


@dataclass(frozen=True, slots=True)
class _Npy:
    """Values of an npy file that exists in its full size."""

    path: str

    def read(self, box: Box) -> np.ndarray:
        return np.array(np.load(self.path, mmap_mode="r")[box])

    def write(self, box: Box, values: np.ndarray) -> None:
        mapped = np.load(self.path, mmap_mode="r+")
        mapped[box] = values
        mapped.flush()


class _HdfFile(io.FileIO):
    """A file that HDF5 writes: it takes errors for its own end, so they are kept until `check` raises them."""

    failed: OSError | None = None

    def check(self) -> None:
        if self.failed is not None:
            raise self.failed

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            self.failed = error
            return len(data)

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self.failed = error
            return size or 0


@dataclass(frozen=True, slots=True)
class _Lazy:
    """Values as an array that dask takes."""

    values: Values
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    advance: Advance

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, key: Any) -> np.ndarray:
        box = [slice(*part.indices(size)) for part, size in zip(key, self.shape, strict=True)]
        block = self.values.read(tuple(box))
        self.advance(block.nbytes)
        return block


def is_file(dst: str) -> bool:
    """Whether a destination is a file of this machine, by its suffix. Raises `CannotConvert` for files of kinds that
    are not written, and for those in buckets."""
    suffix = Path(dst).suffix.lower()
    kinds = {*WRITTEN, *CONVERTIBLE, ".zip", ".tar", ".ozx"}
    if dst.endswith("/") or is_service(dst) or suffix not in kinds:
        return False
    if suffix not in WRITTEN:
        raise CannotConvert(f"{dst}: of files, .nc, .ome.tif and .npy are written, and Zarr as a folder")
    if not is_local(dst):
        raise CannotConvert(f"{dst}: files are written to folders of this machine; a bucket takes Zarr")
    return True


def write_file(source: Source, dst: str, memory: int, *, replace: bool, dry_run: bool, progress: Progress) -> Made:
    """Write a source as the file that the suffix says. Raises `CannotConvert` for one that cannot hold it."""
    path, notes = Path(local_path(dst)), [*source.notes]
    if path.exists() and (not replace or not path.is_file()):
        raise CannotConvert(f"{path} exists" + ("" if replace else ": see --replace"))
    write: Callable[[Path, Advance], None]
    match path.suffix.lower():
        case ".npy":
            arrays = [main_array(source)]
            write = partial(_write_npy, arrays[0], memory)
        case ".tif" | ".tiff":
            image, *levels = _levels(source)
            arrays = [image.array]
            for level in levels:
                if level.array.shape[:-2] != image.array.shape[:-2]:
                    notes.append(f"left out levels below {len(arrays) - 1}: they have fewer planes, a TIFF as many")
                    break
                arrays.append(level.array)
            if others := image.attributes.keys() - {"ome_xml"}:
                notes.append(f"left out attributes, which OME-TIFF does not have: {', '.join(sorted(others))}")
            write = partial(_write_tiff, image, arrays)
        case _:
            nodes = _variables(source)
            arrays = [*nodes.values()]
            write = partial(_write_netcdf, source, nodes, notes, memory)
    nbytes = sum(array.nbytes for array in arrays)
    if dry_run:
        return Made(dst, (source.what, *notes, f"{len(arrays)} arrays, {size_text(nbytes)}"), nbytes)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    try:
        with _writable(path), report(progress, nbytes, "convert") as advance:
            write(part, advance)
        check_unchanged(source)
        part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink()
    return Made(dst, (source.what, *notes), nbytes)


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    """Raise `CannotConvert` for what libraries raise of values that a file cannot hold, and of a full disk."""
    try:
        yield
    except HyperslabError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise CannotConvert(f"{path} cannot be written: {os.strerror(error.errno)}") from error
        raise
    except (ValueError, TypeError, RuntimeError, NotImplementedError, LookupError) as error:
        raise CannotConvert(f"{path} cannot hold it: {str(error).partition(chr(10))[0]}") from error


def _levels(source: Source) -> list[Image]:
    """The levels of the image of a source, the finest first; raises `CannotConvert` for what is no image."""
    node = source.nodes.get("")
    if isinstance(node, Image):
        return [node]
    block: Mapping[str, Any] = source.groups.get("", {})
    block = block.get("ome", block)
    scales: Mapping[str, Any] = next(iter(block.get("multiscales") or ()), {})
    levels = [source.nodes.get(str(entry["path"])) for entry in scales.get("datasets", ())] or [node]
    arrays = [level for level in levels if isinstance(level, Array)]
    if len(arrays) < len(levels):
        several = f"the source is not one image, but {len(source.nodes)} arrays"
        raise CannotConvert(f"{several}: in a group of Zarr name one, such as GROUP/{next(iter(source.nodes))}")
    others = {
        key: value for key, value in source.groups.get("", {}).items() if key not in ("ome", "multiscales", "omero")
    }
    axes = [str(name) for name in arrays[0].dimension_names or ()]
    sizes: dict[str, Axis] = {}
    if scales:
        axes = [axis["name"] for axis in scales["axes"]]
        placed = scales["datasets"][0].get("coordinateTransformations", ())
        scale = next((entry["scale"] for entry in placed if entry["type"] == "scale"), [1.0] * len(axes))
        units = [axis.get("unit") for axis in scales["axes"]]
        sizes = {name: Axis(name, unit, size) for name, unit, size in zip(axes, units, scale, strict=True)}
    shown = (block.get("omero") or {}).get("channels", ())
    channels = tuple([Channel(entry.get("label"), entry.get("color")) for entry in shown])
    if any("window" in entry for entry in shown):
        others["window"] = [entry.get("window") for entry in shown]
    if not set(axes) <= KINDS.keys() or len(axes) != len(arrays[0].shape):
        axes = ["y", "x"] if len(arrays[0].shape) == 2 else axes
    name = str(scales.get("name", ""))
    members: dict[str, Any] = {"name": name, "channels": channels, "attributes": {**others, **arrays[0].attributes}}
    return [as_image(array, "".join(axes), sizes, **members) for array in arrays]


def main_array(source: Source) -> Array:
    """The only array of a source, or that of its image; raises `CannotConvert` for several."""
    node = source.nodes.get("")
    if len(source.nodes) == 1:
        node = next(iter(source.nodes.values()))
    return node if isinstance(node, Array) else _levels(source)[0].array


def _write_npy(array: Array, memory: int, path: Path, advance: Advance) -> None:
    if array.dtype.hasobject or np.lib.format.descr_to_dtype(np.lib.format.dtype_to_descr(array.dtype)) != array.dtype:
        raise CannotConvert(f"an npy file holds no values of {array.dtype}")
    np.lib.format.open_memmap(path, mode="w+", dtype=array.dtype, shape=array.shape).flush()
    if hasattr(os, "posix_fallocate"):  # a full disk is said here; later it ends a process that writes by a mapping
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    part = ArrayDesign("", {}, array.shape, array.reads, array.dtype.itemsize, array.reads)
    todo = [*boxes(array.shape, block_shape(part, memory))]

    def on_done(number: int) -> None:
        advance(size_of(todo[number]) * array.dtype.itemsize)

    execute(None, (array.values, _Npy(str(path)), (), (), ""), todo, threads_for(part, memory), on_done)


def _write_tiff(image: Image, levels: Sequence[Array], path: Path, advance: Advance) -> None:
    """Write pages in tiles; at most a row of tiles of one page is in memory. Levels are SubIFDs of each page.
    [OME-TIFF: sub-resolutions]"""
    from tifffile import TiffWriter

    metadata: dict[str, Any] = {"axes": "".join(axis.name for axis in image.axes).upper(), "Name": image.name}
    texts = image.attributes.get("ome_xml")
    metadata |= {name: str(texts[name]) for name in texts if name in OME_TEXTS} if isinstance(texts, dict) else {}
    for axis in image.axes:
        member = "TimeIncrement" if axis.name == "t" else f"PhysicalSize{axis.name.upper()}"
        if axis.name != "c" and (axis.unit in SYMBOLS or axis.scale != 1):
            metadata[member] = axis.scale
            metadata[f"{member}Unit"] = SYMBOLS.get(axis.unit or "", "pixel" if axis.name != "t" else "s")
    if image.channels:
        metadata["Channel"] = {}
        if any(channel.label for channel in image.channels):
            metadata["Channel"]["Name"] = [channel.label or "" for channel in image.channels]
        if any(channel.color for channel in image.channels):
            colors = [int(f"{channel.color or 'FFFFFF'}FF", 16) for channel in image.channels]  # white is OME's default
            metadata["Channel"]["Color"] = [color - (1 << 32) if color >> 31 else color for color in colors]

    def tiles(array: Array) -> Iterator[np.ndarray]:
        height, width = array.shape[-2:]
        for plane in np.ndindex(*array.shape[:-2]):
            page = tuple([slice(index, index + 1) for index in plane])
            for top in range(0, height, TILE):
                rows = slice(top, min(top + TILE, height))
                band = array.values.read((*page, rows, slice(0, width))).reshape(rows.stop - top, width)
                yield from [np.ascontiguousarray(band[:, left : left + TILE]) for left in range(0, width, TILE)]
                advance(band.nbytes)

    options: dict[str, Any] = {"tile": (TILE, TILE), "photometric": "minisblack", "compression": "zlib"}
    with TiffWriter(path, ome=True, bigtiff=sum(each.nbytes for each in levels) > (1 << 32) - (1 << 25)) as writer:
        for number, level in enumerate(levels):
            place: dict[str, Any] = {"subfiletype": 1} if number else {"subifds": len(levels) - 1, "metadata": metadata}
            writer.write(tiles(level), shape=level.shape, dtype=level.dtype, **options, **place)


def _is_image(source: Source) -> bool:
    attributes = source.groups.get("", {})
    return isinstance(source.nodes.get(""), Image) or "multiscales" in attributes.get("ome", attributes)


def _variables(source: Source) -> dict[str, Array]:
    """The arrays of a source by path, with names of axes; an image has one, its finest level."""
    if _is_image(source):
        image = _levels(source)[0]
        return {image.name or "image": image.array}
    nodes: dict[str, Array] = {}
    for path, node in source.nodes.items():
        names = getattr(node, "dimension_names", None)
        if not isinstance(node, Array) or names is None or None in names:
            if len(source.nodes) == 1 and isinstance(node, Array) and 2 <= len(node.shape) <= len(KINDS):
                raise Undetermined("its axes have no names, which NetCDF needs", "axes", "tczyx"[-len(node.shape) :])
            what = "is an image of several" if isinstance(node, Image) else "has axes without names, which NetCDF needs"
            raise CannotConvert(f"{path} {what}: in a group of Zarr name one array, such as GROUP/{path}")
        nodes[path or source.name] = node
    return nodes


def _write_netcdf(  # noqa: PLR0917
    source: Source, nodes: Mapping[str, Array], notes: list[str], memory: int, path: Path, advance: Advance
) -> None:
    import dask
    import dask.array
    import xarray

    def on_read(count: int) -> None:
        file.check()
        advance(count)

    groups: dict[str, dict[str, Any]] = {"": {}}
    attributes = source.groups
    if _is_image(source):
        image = _levels(source)[0]
        groups, attributes = {"": _coordinates(image)}, {"": image.attributes}
    for node, array in nodes.items():
        group, _, name = node.rpartition("/")
        own = _netcdf_attributes(array.attributes, node, notes)
        if MISSING in own:
            own[MISSING] = np.array(parse_fill(own[MISSING], array.dtype), array.dtype)[()]
        dims = array.dimension_names or ()
        encoding: dict[str, Any] = {} if MISSING in own else {MISSING: None}  # of which xarray would make one
        if array.dtype.hasobject or not array.shape:
            values: Any = array.values.read(tuple([slice(0, size) for size in array.shape]))
        else:
            part = ArrayDesign("", {}, array.shape, array.reads, array.dtype.itemsize, array.reads)
            chunks = [min(a, max(b, 1)) for a, b in zip(block_shape(part, memory), array.shape, strict=True)]
            if array.dtype == "S1":
                chunks[-1] = array.shape[-1]
            lazy: Any = _Lazy(array.values, array.shape, array.dtype, on_read)
            values = dask.array.from_array(lazy, chunks=tuple(chunks), asarray=False)  # type: ignore[no-untyped-call]
        if array.dtype == "S1" and any(array.shape[-1:]):
            # characters, of which xarray would make texts of one; it writes texts as characters along their axis
            text, joined = f"S{array.shape[-1]}", (*values.chunks[:-1], (1,))
            values = values.map_blocks(np.ascontiguousarray)
            values = values.map_blocks(np.ndarray.view, text, dtype=text, chunks=joined)[..., 0]
            dims, encoding = dims[:-1], {**encoding, "char_dim_name": dims[-1]}
        groups.setdefault(group, {})[name] = xarray.Variable(dims, values, own, encoding)
    mode: Any = "w"
    with _HdfFile(str(path), "w+b") as file, dask.config.set(scheduler="threads"):
        for group in sorted({*groups, *attributes}):
            variables = groups.get(group, {})
            coordinates = {name: variables.pop(name) for name in [*variables] if variables[name].dims == (name,)}
            dataset = xarray.Dataset(
                variables,
                xarray.Coordinates(coordinates, indexes={}),  # an index would convert values
                _netcdf_attributes(attributes.get(group, {}), group, notes),
            )
            dataset.to_netcdf(file, mode=mode, group=group or None, engine="h5netcdf")
            file.check()
            mode = "a"


def _coordinates(image: Image) -> dict[str, Any]:
    """Positions along the axes of an image, and labels of its channels, as variables."""
    import xarray

    values: dict[str, Any] = {}
    for axis, size in zip(image.axes, image.array.shape, strict=True):
        if axis.name != "c":
            unit = {"units": axis.unit} if axis.unit else {}
            values[axis.name] = xarray.Variable((axis.name,), np.arange(size) * axis.scale, unit)
        elif image.channels and all(channel.label for channel in image.channels):
            labels = np.array([channel.label for channel in image.channels], object)
            values["c"] = xarray.Variable(("c",), labels)
    return values


def _netcdf_attributes(attributes: Mapping[str, Any], where: str, notes: list[str]) -> dict[str, Any]:
    """Attributes of which NetCDF has types; others become the text of their JSON, of which a note is made."""
    named = {}
    for name, value in attributes.items():
        items = value if isinstance(value, list) and value else [value]
        is_plain = all(isinstance(item, str) for item in items) or all(type(item) in {int, float} for item in items)
        named[name] = value if is_plain else json.dumps(value)
        if not is_plain:
            notes.append(f"the attribute {name!r} of {where or 'the file'} is JSON, and is written as its text")
    return named

"""Writes sources as files again: NetCDF, OME-TIFF and npy. A file has its name when all of it is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from hyperslab.conversion.making import TILE, Advance, Part, block_shape, boxes, execute, size_of, threads_for
from hyperslab.conversion.model import KINDS, Array, Axis, Box, CannotConvert, Channel, Image, Source, Values, as_image
from hyperslab.engine.cf import parse_fill
from hyperslab.engine.faces import MISSING

SUFFIXES: Final = (".ome.tif", ".ome.tiff", ".npy", ".nc")
SYMBOLS: Final = {"micrometer": "µm", "nanometer": "nm", "millimeter": "mm", "centimeter": "cm", "meter": "m"} | {
    **{"angstrom": "Å", "second": "s", "millisecond": "ms", "minute": "min", "hour": "h", "day": "d", "inch": "in"}
}
"""Units of OME-Zarr as OME-XML writes them."""


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


@dataclass(frozen=True, slots=True)
class _Lazy:
    """Values as an array that dask takes."""

    values: Values
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, key: Any) -> np.ndarray:
        box = [slice(*each.indices(size)) for each, size in zip(key, self.shape, strict=True)]
        return self.values.read(tuple(box))


def write_file(source: Source, dst: str, memory: int, *, replace: bool, advance: Advance) -> None:
    """Write a source as the file that the suffix says. Raises `CannotConvert` for one that cannot hold it."""
    path = Path(dst)
    if path.exists() and (not replace or not path.is_file()):
        raise CannotConvert(f"{path} exists" + ("" if replace else ": see --replace"))
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    try:
        if path.suffix == ".nc":
            _write_netcdf(source, part, memory)
        elif path.suffix == ".npy":
            _write_npy(main_array(source), part, memory, advance)
        else:
            _write_tiff(main_image(source), part, advance)
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def main_image(source: Source) -> Image:
    """The image of a source: its only one, or the finest level of an OME-Zarr. Raises `CannotConvert` for others."""
    node = source.nodes.get("")
    if isinstance(node, Image):
        return node
    block: Mapping[str, Any] = source.groups.get("", {})
    block = block.get("ome", block)
    scales = block.get("multiscales")
    array = node if scales is None else source.nodes.get(str(scales[0]["datasets"][0]["path"]))
    if not isinstance(array, Array):
        raise CannotConvert("the source is not one image, but a group of several arrays: name one of them")
    axes = [str(name) for name in array.dimension_names or ()]
    sizes: dict[str, Axis] = {}
    if scales is not None:
        axes = [axis["name"] for axis in scales[0]["axes"]]
        placed = scales[0]["datasets"][0].get("coordinateTransformations", ())
        scale = next((each["scale"] for each in placed if each["type"] == "scale"), [1.0] * len(axes))
        units = [axis.get("unit") for axis in scales[0]["axes"]]
        sizes = {name: Axis(name, unit, size) for name, unit, size in zip(axes, units, scale, strict=True)}
    omero = block.get("omero") or {}
    channels = tuple([Channel(each.get("label"), each.get("color")) for each in omero.get("channels", ())])
    if not set(axes) <= KINDS.keys() or len(axes) != len(array.shape):
        axes = ["y", "x"] if len(array.shape) == 2 else axes
    return as_image(array, "".join(axes), sizes, name=str((scales or [{}])[0].get("name", "")), channels=channels)


def main_array(source: Source) -> Array:
    """The only array of a source, or that of its image; raises `CannotConvert` for several."""
    node = source.nodes.get("")
    if len(source.nodes) == 1:
        node = next(iter(source.nodes.values()))
    return node if isinstance(node, Array) else main_image(source).array


def _write_npy(array: Array, path: Path, memory: int, advance: Advance) -> None:
    if array.dtype.hasobject:
        raise CannotConvert("an npy file holds no text of any length")
    np.lib.format.open_memmap(path, mode="w+", dtype=array.dtype, shape=array.shape).flush()
    part = Part("", {}, array.shape, array.reads, array.dtype.itemsize, array.reads)
    todo = [*boxes(array.shape, block_shape(part, memory))]
    work = array.values, _Npy(str(path)), (), (), ""
    execute(
        None,
        work,
        todo,
        threads_for(part, memory),
        lambda number: advance(size_of(todo[number]) * array.dtype.itemsize),
    )


def _write_tiff(image: Image, path: Path, advance: Advance) -> None:
    """Write pages in tiles; at most a row of tiles of one page is in memory."""
    from tifffile import TiffWriter

    array = image.array
    metadata: dict[str, Any] = {"axes": "".join(axis.name for axis in image.axes).upper(), "Name": image.name}
    for axis in image.axes:
        member = "TimeIncrement" if axis.name == "t" else f"PhysicalSize{axis.name.upper()}"
        if axis.name != "c" and (axis.unit in SYMBOLS or axis.scale != 1):
            metadata[member] = axis.scale
            metadata[f"{member}Unit"] = SYMBOLS.get(axis.unit or "", "pixel" if axis.name != "t" else "s")
    if image.channels:
        metadata["Channel"] = {}
        if all(channel.label for channel in image.channels):
            metadata["Channel"]["Name"] = [channel.label for channel in image.channels]
        if all(channel.color for channel in image.channels):
            colors = [int(f"{channel.color}FF", 16) for channel in image.channels]
            metadata["Channel"]["Color"] = [color - (1 << 32) if color >> 31 else color for color in colors]

    def tiles() -> Iterator[np.ndarray]:
        height, width = array.shape[-2:]
        for at in np.ndindex(*array.shape[:-2]):
            page = tuple([slice(index, index + 1) for index in at])
            for top in range(0, height, TILE):
                rows = slice(top, min(top + TILE, height))
                band = array.values.read((*page, rows, slice(0, width))).reshape(rows.stop - top, width)
                yield from [np.ascontiguousarray(band[:, left : left + TILE]) for left in range(0, width, TILE)]
                advance(band.nbytes)

    with TiffWriter(path, ome=True, bigtiff=array.nbytes > (1 << 32) - (1 << 25)) as writer:
        writer.write(
            tiles(),
            shape=array.shape,
            dtype=array.dtype,
            tile=(TILE, TILE),
            photometric="minisblack",
            compression="zlib",
            metadata=metadata,
        )


def _write_netcdf(source: Source, path: Path, memory: int) -> None:
    import dask
    import dask.array
    import xarray

    groups: dict[str, dict[str, Any]] = {}
    nodes = source.nodes
    if not any(isinstance(node, Array) and node.dimension_names for node in nodes.values()) or _is_image(source):
        image = main_image(source)
        nodes = {image.name or "image": image.array}
        for axis in image.axes:
            if axis.name != "c":
                values = np.arange(image.array.shape[[each.name for each in image.axes].index(axis.name)]) * axis.scale
                unit = {"units": axis.unit} if axis.unit else {}
                groups.setdefault("", {})[axis.name] = xarray.Variable((axis.name,), values, unit)
            elif all(channel.label for channel in image.channels) and image.channels:
                labels = np.array([channel.label for channel in image.channels], object)
                groups.setdefault("", {})["c"] = xarray.Variable(("c",), labels)
    for node, array in nodes.items():
        group, _, name = node.rpartition("/")
        if not isinstance(array, Array) or array.dimension_names is None or None in array.dimension_names:
            raise CannotConvert(f"{node or 'the array'} has axes without names, which NetCDF needs: say --axes")
        attributes: dict[str, Any] = dict(array.attributes)
        if MISSING in attributes:
            attributes[MISSING] = np.array(parse_fill(attributes[MISSING], array.dtype), array.dtype)[()]
        part = Part("", {}, array.shape, array.reads, array.dtype.itemsize, array.reads)
        chunks = [min(a, max(b, 1)) for a, b in zip(block_shape(part, memory), array.shape, strict=True)]
        lazy: Any = _Lazy(array.values, array.shape, array.dtype)
        values = dask.array.from_array(lazy, chunks=tuple(chunks), asarray=False)  # type: ignore[no-untyped-call]
        groups.setdefault(group, {})[name] = xarray.Variable(array.dimension_names, values, attributes)
    mode: Any = "w"
    for group in sorted({*groups, *({} if _is_image(source) else source.groups)}):
        own = {} if _is_image(source) else dict(source.groups.get(group, {}))
        dataset = xarray.Dataset(groups.get(group, {}), attrs=own)
        with dask.config.set(scheduler="threads"):
            dataset.to_netcdf(path, mode=mode, group=group or None, engine="h5netcdf")
        mode = "a"


def _is_image(source: Source) -> bool:
    attributes = source.groups.get("", {})
    return isinstance(source.nodes.get(""), Image) or "multiscales" in attributes.get("ome", attributes)

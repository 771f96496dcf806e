"""Opens a source: TIFF, npy, NetCDF, HDF5, or Zarr in a folder, a bucket, on a web server or a service."""

from __future__ import annotations

import dataclasses
import glob
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

import numpy as np

from hyperslab.arrays.nodes import ArrayNode
from hyperslab.client import RemoteArray, RemoteGroup
from hyperslab.client.address import Address
from hyperslab.client.session import Request
from hyperslab.conversion.model import (
    Array,
    Box,
    CannotConvert,
    Image,
    OpenFiles,
    Source,
    Values,
    as_image,
    packed,
    readable,
)
from hyperslab.conversion.names import natural
from hyperslab.conversion.places import (
    MARKER,
    MARKER_ATTRIBUTE,
    ServiceArray,
    StoredValues,
    is_service,
    service_of,
    stored_attributes,
    walk,
)
from hyperslab.engine.cf import format_fill
from hyperslab.engine.fill_value import format_fill_value
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.engine.other_format import DIMENSIONS, MISSING, v2_attributes, v2_missing, v3_attributes, v3_missing
from hyperslab.engine.v3 import from_document
from hyperslab.errors import NodeNotFound
from hyperslab.storage import CONVERTIBLE, kind_of_file
from hyperslab.storage.config import is_local, local_path


def open_source(
    src: str, *, axes: str | None = None, pattern: str | None = None, token: str | None = None, zarr_format: int = 3
) -> Source:
    """Contents of a source. ``zarr_format``: that of the documents that are to be made.

    Raises `CannotConvert`, `Undetermined` for what an option must say, and `OSError`.
    """
    files = None if is_service(src) else _files(src)
    if is_service(src):
        source = _of_service(src, token, zarr_format)
    elif files is None:
        source = _of_store(src, zarr_format)
    else:
        source = _of_files(files, axes, pattern, zarr_format)
        source = dataclasses.replace(source, identity=identity_of(files), files=tuple(files))
    node, name = source.nodes.get(""), src.rstrip("/").rpartition("/")[2].partition(".")[0]
    source = dataclasses.replace(source, name=name or "array")
    if axes is not None and isinstance(node, Array):
        source = dataclasses.replace(source, nodes={"": as_image(node, axes.lower(), {}, name=name)}, groups={})
    elif axes is not None and not isinstance(node, Image):
        raise CannotConvert(f"--axes names the axes of one array, and {src} holds several")
    return source


def identity_of(files: Iterable[Path]) -> list[Any]:
    """A digest that changes when files do."""
    return [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in files]


def check_unchanged(source: Source) -> None:
    """Raise `CannotConvert` if the files of a source changed since it was opened."""
    if identity_of(source.files) != (source.identity if source.files else []):
        raise CannotConvert(f"{source.files[0]} changed while it was read: convert it again, with --replace")


def is_classic(path: Path) -> bool:
    """Whether a file is of NetCDF 3."""
    with path.open("rb") as file:
        return file.read(3) == b"CDF"


def _files(src: str) -> list[Path] | None:
    """The files of a source, in natural order; None for a folder of Zarr, a bucket or a URL."""
    if not is_local(src):
        return None
    path = Path(local_path(src))
    if path.is_file():
        return [path] if kind_of_file(path) or path.suffix.lower() in {*CONVERTIBLE, ".npz"} else None
    if path.is_dir():
        files = [file for file in path.iterdir() if file.is_file() and file.suffix.lower() in CONVERTIBLE]
        inside = [file for file in files if CONVERTIBLE[file.suffix.lower()] == "TIFF"] or files
        documents = any((path / name).exists() for name in ("zarr.json", ".zarray", ".zgroup", ".zmetadata"))
        return sorted(inside, key=lambda file: natural(file.name)) if inside and not documents else None
    matches = [Path(file) for file in glob.glob(str(path))] if glob.has_magic(str(path)) else []  # noqa: PTH207
    if not matches:
        raise FileNotFoundError(f"{src}: nothing is there")
    return sorted(matches, key=lambda file: natural(file.name))


def _of_files(files: Sequence[Path], axes: str | None, pattern: str | None, zarr_format: int) -> Source:
    kinds = {kind_of_file(path) for path in files}
    if len(kinds) > 1:
        raise CannotConvert(f"{files[0]} and {files[-1]} are files of several kinds: convert each by itself")
    kind = kinds.pop()
    if kind == "TIFF":
        from hyperslab.conversion.tiff import open_files

        what, images, notes = open_files(files, axes=axes, pattern=pattern)
        if len(images) == 1:
            return Source(what, None, {"": images[0]}, {}, tuple(notes))
        # one group for each image, as bioformats2raw lays them out [OME-Zarr 0.5: bioformats2raw.layout]
        names = [str(number) for number in range(len(images))]
        version = {"version": "0.5"} if zarr_format == 3 else {}
        groups: dict[str, dict[str, Any]] = {"": {"bioformats2raw.layout": 3}, "OME": {"series": names}}
        if zarr_format == 3:
            groups = {path: {"ome": {**version, **attributes}} for path, attributes in groups.items()}
        return Source(what, None, dict(zip(names, images, strict=True)), groups, tuple(notes))
    if len(files) > 1:
        raise CannotConvert(
            f"{len(files)} files of {kind or 'no known kind'} are not one array: convert each by itself"
        )
    if kind == "npy":
        return _npy(files[0])
    if kind is None:
        files[0].open("rb").close()  # raises the error of one that may not be read
        if files[0].suffix.lower() == ".npz":
            raise CannotConvert(f"{files[0]} is an archive of several arrays: save one of them as npy")
        raise CannotConvert(f"{files[0]} is none of TIFF, NetCDF, HDF5, npy and Zarr, or is damaged at its beginning")
    return _dataset(files[0], zarr_format)


# --- npy -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _NpyValues:
    """Values of an npy file; in Fortran's order the axes of the file are reversed."""

    path: str
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    reverses: bool

    def read(self, box: Box) -> np.ndarray:
        from hyperslab.conversion.tiff import read_raw

        stored, part = (self.shape[::-1], box[::-1]) if self.reverses else (self.shape, box)
        out = read_raw(self.path, self.offset, self.dtype, stored, part)
        return (out.transpose() if self.reverses else out).astype(packed(self.dtype), copy=False)


def _npy(path: Path) -> Source:
    try:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise CannotConvert(f"{path} cannot be read as npy: {error}") from error
    reverses = bool(mapped.flags.f_contiguous and not mapped.flags.c_contiguous)
    values = _NpyValues(str(path.absolute()), mapped.offset, mapped.shape, mapped.dtype, reverses)
    reads = [1] * mapped.ndim
    if mapped.ndim:
        reads[0 if reverses else -1] = mapped.shape[0 if reverses else -1]
    array = Array(values, mapped.shape, packed(mapped.dtype), tuple(reads))
    return Source("npy", None, {"": array})


# --- NetCDF and HDF5 -------------------------------------------------------------------------------------------------

RAW: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("mask_and_scale", "decode_times", "concat_characters", "decode_coords"), False),
    **{"decode_timedelta": False, "use_cftime": None, "cache": False},
}


def _open_groups(path: str) -> dict[str, Any]:
    """The datasets of a file by group, with values as they are stored."""
    import xarray

    if is_classic(Path(path)):
        with Path(path).open("rb") as file:
            if file.read(4) == b"CDF\5":
                raise CannotConvert(f"{path} is CDF-5, which scipy does not read: nccopy -k nc4 makes NetCDF 4 of it")
        return {"/": xarray.open_dataset(path, engine="scipy", **RAW)}
    return dict(xarray.open_groups(path, engine="h5netcdf", phony_dims="access", **RAW))


def _close_groups(groups: Mapping[str, Any]) -> None:
    for dataset in groups.values():
        dataset.close()


GROUPS: Final = OpenFiles(_open_groups, _close_groups)


UNREADABLE: Final = (OSError, ValueError, TypeError, KeyError, RuntimeError, IndexError, AttributeError)


@dataclass(frozen=True, slots=True)
class _VariableValues:
    """Values of a variable as they are stored, neither unpacked nor masked."""

    path: str
    group: str
    name: str

    def read(self, box: Box) -> np.ndarray:
        with readable(self.path, "NetCDF or HDF5", UNREADABLE):
            return self.stored(box)

    def stored(self, box: Box) -> np.ndarray:
        """As `read`, with the errors of libraries."""
        values = np.asarray(GROUPS.get(self.path)[self.group].variables[self.name][box].values)
        if values.dtype.hasobject and any(isinstance(item, bytes) for item in values.flat):
            try:
                texts = [item.decode() if isinstance(item, bytes) else item for item in values.flat]
            except UnicodeDecodeError as error:
                raise CannotConvert(f"{self.path}: {self.name} holds text that is not UTF-8") from error
            values = np.array([*texts, None], object)[:-1].reshape(values.shape)
        return values if values.dtype.names is None else values.astype(packed(values.dtype), copy=False)


def _dataset(path: Path, zarr_format: int) -> Source:
    nodes: dict[str, Array | Image] = {}
    attributes: dict[str, Mapping[str, Any]] = {}
    notes: list[str] = []
    with readable(str(path), "NetCDF or HDF5", UNREADABLE):
        groups = GROUPS.get(str(path.absolute()))
        for group, dataset in groups.items():
            below = group.strip("/")
            attributes[below] = _json_attributes(dataset.attrs, group, notes)
            for name, variable in dataset.variables.items():
                node = f"{below}/{name}".lstrip("/")
                values = _VariableValues(str(path.absolute()), group, str(name))
                converted = _variable(values, variable, zarr_format, notes)
                nodes |= {} if converted is None else {node: converted}
    if notes and not nodes:
        raise CannotConvert(f"{path}: {', '.join(notes)}")
    classic = is_classic(path)
    return Source("NetCDF 3" if classic else "NetCDF 4 or HDF5", None, nodes, attributes, tuple(notes))


def _variable(values: _VariableValues, variable: Any, zarr_format: int, notes: list[str]) -> Array | None:
    """An array of a file, None with a note for one of which there is no array of Zarr."""
    dtype, where, definition = variable.dtype, f"{values.group.rstrip('/')}/{values.name}", dict[str, Any]()
    try:
        first = values.stored(tuple([slice(0, 1)] * variable.ndim))
        is_text = first.dtype.names is None and all(isinstance(item, str) for item in first.flat)
        fits = first.shape == tuple([min(n, 1) for n in variable.shape]) and (is_text or not dtype.hasobject)
        fits = fits and (zarr_format == 2 or not any(dtype[name].subdtype for name in dtype.names or ()))
    except (ValueError, TypeError, AttributeError):
        fits = False
    if not fits:
        notes.append(f"left out {where}: it holds references, lists or nothing, of which Zarr has no arrays")
        return None
    if dtype.kind in "iu" and "enum" in (dtype.metadata or {}):
        notes.append(f"left out the names of the values of {where}: {dict(dtype.metadata['enum'])}")
    attributes = _json_attributes(variable.attrs, where, notes)
    if dtype.hasobject:
        dtype = np.dtype(object)
        definition["filters"] = [{"id": "vlen-utf8"}]
    else:
        dtype = packed(np.dtype(dtype.str) if dtype.names is None else dtype)
        definition |= _fill_members(variable.attrs, attributes, dtype, zarr_format)
        if MISSING in variable.attrs and definition.get("fill_value") is None:
            notes.append(f"left out the attribute {MISSING!r} of {where}, which is no value of it")
    stored = variable.encoding.get("chunksizes") or variable.encoding.get("preferred_chunks")
    if isinstance(stored, Mapping):
        stored = [stored.get(dim, size) for dim, size in zip(variable.dims, variable.shape, strict=True)]
    if stored and not dtype.hasobject and (1 << 16) <= math.prod(stored) * dtype.itemsize <= (16 << 20):
        definition["chunks"] = [min(int(n), max(size, 1)) for n, size in zip(stored, variable.shape, strict=True)]
    reads = tuple(map(int, stored)) if stored else (*[1] * (variable.ndim - 1), *variable.shape[-1:])
    names = tuple(map(str, variable.dims))
    return Array(values, tuple(variable.shape), dtype, reads, names, attributes, definition)


def _fill_members(
    stored: Mapping[Any, Any], attributes: dict[str, Any], dtype: np.dtype[Any], zarr_format: int
) -> dict[str, Any]:
    """The fill value of an array for the missing value in the attributes of a variable, which becomes xarray's in
    ``attributes``; none if it is no value of the dtype."""
    attributes.pop(MISSING, None)
    try:
        item, wanted = (np.asarray(stored[MISSING], kind).reshape(()) for kind in (dtype, None))
        fits = dtype.kind not in "iuf" or "_Unsigned" in stored or np.array_equal(item, wanted, equal_nan=True)
    except (LookupError, ValueError, TypeError, OverflowError):
        fits = False
    if not fits:
        # with v2 xarray takes any other fill value for that of missing values
        return {"fill_value": None} if zarr_format == 2 else {}
    written = format_fill(item.item(), dtype)
    if zarr_format == 3 and written is not None:
        attributes[MISSING] = written
    return {"fill_value": format_fill_value(item)}


def _json_attributes(attributes: Mapping[Any, Any], where: str, notes: list[str]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, stored in attributes.items():
        value = stored.tolist() if isinstance(stored, np.ndarray | np.generic) else stored
        try:
            plain[str(name)] = json.loads(json.dumps(value, default=_text_of_bytes))
        except (TypeError, ValueError):
            notes.append(f"left out the attribute {name!r} of {where}: JSON has no {type(stored).__name__} like it")
    return plain


def _text_of_bytes(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    raise TypeError


# --- Zarr ------------------------------------------------------------------------------------------------------------


def _of_store(src: str, zarr_format: int) -> Source:
    job = uuid4().hex
    service = service_of(src, False, job)
    store = service.catalog.mounts["at"].store
    try:
        if store.stat(MARKER) is not None:
            raise CannotConvert(f"{src} is half-made: run the conversion that makes it again")
        listed = list(walk(service, "at"))
    except NodeNotFound as error:
        raise CannotConvert(
            f"{src} holds no array and no group of Zarr, and is no file of TIFF, NetCDF, HDF5 or npy"
        ) from error
    groups = {
        _below(node.path): _as_format(
            node.attributes, node.zarr_format, zarr_format, _below(node.path) or src.rstrip("/")
        )
        for node in listed
        if not isinstance(node, ArrayNode)
    }
    axes = _image_axes(groups)
    nodes: dict[str, Array | Image] = {}
    for node in listed:
        if isinstance(node, ArrayNode):
            path = _below(node.path)
            values = StoredValues(src, path, job)
            stored = node.metadata, node.attributes, node.axis_names
            nodes[path] = _stored_array(values, *stored, zarr_format=zarr_format, axes=axes.get(path))
    if not nodes:
        raise CannotConvert(f"{src} holds no arrays")
    identity = [src, sorted(node.version for node in listed)]
    return Source("Zarr", identity, nodes, groups, zarr_format=listed[0].zarr_format)


def _below(path: str) -> str:
    return path.removeprefix("at").lstrip("/")


def _stored_array(
    values: Values,
    metadata: ArrayMetadata,
    attributes: Mapping[str, Any],
    names: Sequence[str | None] | None,
    *,
    zarr_format: int,
    axes: tuple[str, ...] | None,
) -> Array:
    """An array of Zarr for documents of ``zarr_format``, in which xarray finds the same missing values. ``axes``: names
    that the image has of which it is a level."""
    kept = {name: value for name, value in attributes.items() if name != DIMENSIONS}
    fill, names = metadata.fill_value, names if metadata.rank else ()
    if metadata.zarr_format != zarr_format and names is not None and axes is None:
        if zarr_format == 3:
            kept = v3_missing(attributes, metadata)
        else:
            fill = v2_missing(attributes, metadata)[0]
            kept.pop(MISSING, None)
    chunks = [min(n, max(size, 1)) for n, size in zip(metadata.chunks, metadata.shape, strict=True)]
    definition: dict[str, Any] = {"chunks": chunks}
    if metadata.zarr_format == zarr_format == 3:
        definition |= {name: metadata.document[name] for name in ("data_type", "fill_value")}
    else:
        definition["dtype"] = metadata.dtype.json
        if metadata.dtype.numpy.hasobject:
            definition["filters"] = [dict(metadata.codecs[0])]
        if fill is not None or zarr_format == 2:
            definition["fill_value"] = None if fill is None else format_fill_value(fill)
    own = tuple(names) if names is not None else axes if axes is not None and len(axes) == metadata.rank else None
    reads = tuple(metadata.stored_grid.chunks)
    return Array(values, metadata.shape, metadata.dtype.numpy, reads, own, kept, definition)


def _of_service(src: str, token: str | None, zarr_format: int) -> Source:
    address = Address.parse(src)
    root = RemoteGroup(f"{address.base}/v1/metadata", token=token)
    remote = root[address.path] if address.path else root
    arrays: dict[str, RemoteArray] = {}
    groups: dict[str, Mapping[str, Any]] = {}
    versions: list[Any] = []
    for path, node in _remote_nodes("", remote):
        if MARKER_ATTRIBUTE in node.attrs:
            raise CannotConvert(f"{node.url} is half-made: run the conversion that makes it again")
        versions.append([path, dict(node.info)])
        if isinstance(node, RemoteArray):
            arrays[path] = node
        else:
            own = int(node.info.get("zarr_format") or 2)
            groups[path] = _as_format(stored_attributes(node), own, zarr_format, path or address.name)
    if not arrays:
        raise CannotConvert(f"{src} holds no arrays")
    axes = _image_axes(groups)
    nodes: dict[str, Array | Image] = {}
    for path, array in arrays.items():
        of_v3 = array.info.get("zarr_format") == 3
        url = f"{address.base}/zarr/{quote(array.path)}/{'zarr.json' if of_v3 else '.zarray'}"
        document, _ = root._session.read_json(Request("GET", url))
        metadata = from_document(document, url).array if of_v3 else ArrayMetadata.from_document(document, url)
        assert metadata is not None  # it is the document of an array
        stored = metadata, stored_attributes(array), array.dimension_names
        values = ServiceArray(array.url, token)
        nodes[path] = _stored_array(values, *stored, zarr_format=zarr_format, axes=axes.get(path))
    own = int(remote.info.get("zarr_format") or 2)
    return Source("Zarr of a service", [src, versions], nodes, groups, zarr_format=own)


def _remote_nodes(path: str, node: RemoteArray | RemoteGroup) -> Iterable[tuple[str, RemoteArray | RemoteGroup]]:
    yield path, node
    if isinstance(node, RemoteGroup):
        for name, _ in node.children():
            yield from _remote_nodes(f"{path}/{name}".lstrip("/"), node[name])


def _as_format(attributes: Mapping[str, Any], found: int, wanted: int, name: str) -> Mapping[str, Any]:
    if found == wanted:
        return attributes
    return v3_attributes(attributes, name.rpartition("/")[2]) if wanted == 3 else v2_attributes(attributes, None)


def _image_axes(groups: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Names of the axes of levels that have none of their own, which OME-Zarr 0.5 requires, by path."""
    axes = {}
    for path, attributes in groups.items():
        block = attributes.get("ome", attributes)
        for scales in block.get("multiscales", []) if isinstance(block, Mapping) else []:
            names = tuple(
                [str(axis.get("name") if isinstance(axis, Mapping) else axis) for axis in scales.get("axes", [])]
            )
            for level in scales.get("datasets", []):
                axes[f"{path}/{level.get('path')}".lstrip("/")] = names
    return axes

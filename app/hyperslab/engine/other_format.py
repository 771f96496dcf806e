"""Conversion of documents and attributes between Zarr v2 and v3, for unchanged chunks. Pure.

[Zarr v2 specification; Zarr v3 core specification; OME-Zarr 0.4 and 0.5]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from hyperslab.engine.cf import format_fill, parse_fill
from hyperslab.engine.codec_config import TO_ITEMS
from hyperslab.engine.fill_value import OBJECT_CODECS, format_fill_value
from hyperslab.engine.grid import ChunkGrid, Coords, Separator
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.errors import BrokenData
from hyperslab.wire import kind_of
from hyperslab.wire.data_types import named_configuration
from hyperslab.wire.items import Item

DIMENSIONS: Final = "_ARRAY_DIMENSIONS"
"""xarray's attribute in Zarr v2 for the ``dimension_names`` of v3."""
MISSING: Final = "_FillValue"
"""xarray's attribute for missing values, which in Zarr v2 are those of the fill value."""
_V3_ALONE: Final = {
    "transpose": "a 'transpose' that does not reverse all axes",
    "byteswap": "big-endian bytes of this data type",
    "bits": "'packbits' as Zarr v3 has it",
    **{name: repr(name) for name in ("reshape", "scale_offset", "cast_value", "crc32c")},
}
"""Codecs without an equivalent in Zarr v2, and their description in error messages."""


def v2_document(metadata: ArrayMetadata) -> dict[str, Any]:
    """The ``.zarray`` of an array of Zarr v3, for a sharded one of its inner chunks; raises `ValueError` if v2 cannot
    represent it.

    Texts and bytes of any length are objects, whose filter stores what the codec of the same name does.
    """
    if len(metadata.levels) > 1:
        raise ValueError("its shards hold further shards")
    if metadata.levels and metadata.levels[0].after:
        raise ValueError("its shards are encoded as a whole, so that no range of them is a chunk")
    if named_configuration(metadata.document["chunk_grid"], "a chunk grid")[0] != "regular":
        raise ValueError("its chunks are not all of one shape")
    dtype = metadata.dtype
    fill = format_fill_value(metadata.fill_value)
    parts = fill if isinstance(fill, list) else [fill]
    if kind_of(dtype.numpy) in "fc" and any(isinstance(part, str) and part.startswith("0x") for part in parts):
        raise ValueError("Zarr v2 has one NaN, and the fill value is another")
    codecs: list[dict[str, Any]] = []
    for config in metadata.codecs:
        name = config["id"]
        if name in _V3_ALONE:
            raise ValueError(f"Zarr v2 has no codec for {_V3_ALONE[name]}")
        if "transpose" in config:  # of a codec of objects
            raise ValueError("Zarr v2 has no 'transpose' of objects")
        # parameters of the encoder that some readers of v2 refuse
        omitted = {"blosc": "typesize", "zstd": "checksum"}.get(name)
        codecs.append({member: value for member, value in config.items() if member != omitted})
    compressor = codecs.pop() if codecs and codecs[-1]["id"] not in (*TO_ITEMS, *OBJECT_CODECS) else None
    document = {
        "zarr_format": 2,
        "shape": list(metadata.shape),
        "chunks": list(metadata.chunks),
        "dtype": dtype.json,
        "order": metadata.order,
        "fill_value": fill,
        "compressor": compressor,
        "filters": codecs or None,
        "dimension_separator": ".",  # see `v2_separator`
    }
    try:
        ArrayMetadata.from_document(document, ".zarray")
    except BrokenData as error:
        raise ValueError(f"Zarr v2 has no such array: {error}") from error
    return document


def v2_separator(metadata: ArrayMetadata, *, of_image: bool) -> Separator:
    """The separator of `v2_document`: slashes below images, as OME-Zarr has demanded since version 0.2; else that of
    v3's keys if these have no prefix, or dots, which all readers know."""
    return "/" if of_image else "." if metadata.grid.prefix else metadata.dimension_separator


def v2_coords(metadata: ArrayMetadata, key: str) -> Coords | None:
    """The coordinates of a chunk of `v2_document` by its key, with either separator; None if it is no key."""
    separators: tuple[Separator, ...] = ("/", ".")
    grids = (ChunkGrid(metadata.shape, metadata.chunks, separator) for separator in separators)
    return next((coords for grid in grids if (coords := grid.parse_key(key)) is not None), None)


# --- attributes ------------------------------------------------------------------------------------------------------


def v2_attributes(attributes: Mapping[str, Any], dimension_names: Sequence[str | None] | None) -> dict[str, Any]:
    """Attributes of Zarr v3 for v2: OME-Zarr 0.5 becomes 0.4, and complete dimension names become an attribute."""
    converted = dict(attributes)
    if dimension_names is not None and None not in dimension_names:
        converted[DIMENSIONS] = list(dimension_names)
    ome = converted.get("ome")
    if not isinstance(ome, Mapping) or not str(ome.get("version", "0.5")).startswith("0.5"):
        return converted
    del converted["ome"]
    return converted | {name: _versioned(name, value) for name, value in ome.items() if name != "version"}


def v3_attributes(attributes: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Attributes of a Zarr v2 group called ``name`` for v3: OME-Zarr 0.4 becomes 0.5; other versions are unchanged."""
    block = {member: value for member, value in attributes.items() if _is_ome(member, value, name)}
    versions = [part.get("version", "0.4") for value in block.values() for part in _parts(value)]
    if not block or "ome" in attributes or any(version != "0.4" for version in versions):
        return dict(attributes)
    if "multiscales" in block and isinstance(attributes.get("omero"), Mapping):
        block["omero"] = attributes["omero"]
    rest = {member: value for member, value in attributes.items() if member not in block}
    return {**rest, "ome": {"version": "0.5", **{member: _unversioned(value) for member, value in block.items()}}}


def v2_missing(attributes: Mapping[str, Any], metadata: ArrayMetadata) -> tuple[Item | None, bool]:
    """The missing value that xarray reads from an array of Zarr v3, if any; and whether its fill value means just that
    to xarray in v2."""
    dtype, fill = metadata.dtype.numpy, metadata.fill
    given = parse_fill(attributes.get(MISSING), dtype)
    try:
        with np.errstate(over="ignore"):
            missing = None if given is None else np.array(given, dtype)
    except OverflowError:  # no value is missing
        missing = None
    if missing is not None:
        return missing, bool(np.array_equal(missing, fill, equal_nan=dtype.kind in "fc"))
    is_hidden = dtype.kind in "biufcSUO" and not (dtype.kind in "fc" and bool(np.isnan(fill)))
    return None, not is_hidden


def v3_missing(attributes: Mapping[str, Any], metadata: ArrayMetadata) -> dict[str, Any]:
    """Attributes of an array of Zarr v2 with dimension names, for v3: what xarray takes for missing, the fill value or
    ``_FillValue`` where that is null, is ``_FillValue`` in the form of v3. Dtypes of which xarray reads none have none.
    """
    dtype, fill = metadata.dtype.numpy, metadata.fill_value
    missing = parse_fill(attributes.get(MISSING), dtype) if fill is None else fill.item()
    written = None if missing is None else format_fill(missing, dtype)
    rest = {name: value for name, value in attributes.items() if name not in (DIMENSIONS, MISSING)}
    return rest if written is None else {**rest, MISSING: written}


def dimensions_in(attributes: Mapping[str, Any], path: str) -> tuple[str, ...] | None:
    """Names of axes of the image with a level at ``path``, from the attributes of its group, if any. OME-Zarr 0.5
    requires them as the array's ``dimension_names``."""
    nested = attributes.get("ome")
    block = nested if isinstance(nested, Mapping) else attributes
    for entry in _parts(block.get("multiscales")):
        axes, datasets = _parts(entry.get("axes")), _parts(entry.get("datasets"))
        names = [name for axis in axes if isinstance(name := axis.get("name"), str)]
        if any(dataset.get("path") == path for dataset in datasets) and len(names) == len(axes):
            return tuple(names)
    return None


def _is_ome(member: str, value: Any, group: str) -> bool:
    """Whether an attribute of a group belongs to OME-Zarr 0.4."""
    match member:
        case "multiscales":
            axes = [entry.get("axes") for entry in _parts(value)]  # version 0.3 has only names, older ones no axes
            return bool(axes) and all(isinstance(axis, list) and len(_parts(axis)) == len(axis) for axis in axes)
        case "plate" | "image-label":
            return isinstance(value, Mapping)
        case "well":
            return isinstance(value, Mapping) and isinstance(value.get("images"), list)
        case "bioformats2raw.layout":
            return True
        case "labels" | "series":
            return group == ("OME" if member == "series" else member) and isinstance(value, list)
    return False


def _parts(value: Any) -> list[Mapping[str, Any]]:
    """The JSON objects in a list, or the value itself."""
    values = value if isinstance(value, list) else [value]
    return [part for part in values if isinstance(part, Mapping)]


def _unversioned(value: Any) -> Any:
    if isinstance(value, list):
        return [_unversioned(part) for part in value]
    return {name: part for name, part in value.items() if name != "version"} if isinstance(value, Mapping) else value


def _versioned(member: str, value: Any) -> Any:
    """A member of OME-Zarr with the version, which 0.4 has in each."""
    if member == "multiscales" and isinstance(value, list):
        return [_versioned("", entry) for entry in value]
    is_versioned = member in ("", "omero", "plate", "well", "image-label") and isinstance(value, Mapping)
    return {**value, "version": "0.4"} if is_versioned else value

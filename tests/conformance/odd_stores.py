"""Stores that nobody would write on purpose: documents and chunks that were good once, and then changed by somebody."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import struct
import zlib
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import numcodecs
import numpy as np

from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.errors import HyperslabError
from tests.engine.arrays import BYTE_FILTERS, COMPRESSORS, values_of

MIB = 1 << 20
DTYPES: list[Any] = [
    *["|u1", "<i2", ">u4", "<f4", ">f8", "<c8", "|b1", "|S3", "<U2", "<M8[s]", "<m8[ns]", "|V5", "<f2", "|i1"],
    *[[["a", "<i4"], ["b", "|S2"]], [["a", "<f4", [2]], ["b", [["c", "|u1"]]]], "|O", "|O"],
]
FILTERS: list[dict[str, Any]] = [
    *map(dict, BYTE_FILTERS),
    {"id": "delta", "dtype": "<i4"},
    {"id": "fixedscaleoffset", "dtype": "<f4", "astype": "|u1", "scale": 10, "offset": 0},
    {"id": "quantize", "dtype": "<f4", "digits": 2},
    {"id": "packbits"},
    {"id": "bitround", "keepbits": 3},
    {"id": "astype", "encode_dtype": "<f4", "decode_dtype": "<f8"},
    {"id": "categorize", "labels": ["a"], "dtype": "<U1"},
]
OBJECT_FILTERS = [
    *[{"id": name} for name in ("vlen-utf8", "vlen-bytes", "json2", "msgpack2")],
    {"id": "vlen-array", "dtype": "<i4"},
]
OBJECTS: dict[str, list[Any]] = {
    "vlen-utf8": ["a", ""],
    "vlen-bytes": [b"a", b""],
    "json2": [1, {"a": None}],
    "msgpack2": ["a", [1]],
}
DEEP: Any = json.loads("[" * 90 + "]" * 90)
NUMBERS = [0, -1, 1, 1.5, -0.0, 2**31, 2**62 - 1, 2**63, 2**64, 2**70, 10**400, 1e300, float("nan"), float("inf")]
TEXTS = ["", "x", "0", "NaN", "é\0", "\ud800", "9" * 5000, "AAAA", "/", ".", "F"]
TYPES = ["<i4", "|O", "<U1000000", "<M8[01s]", "<M8[s/2]"]
LISTS: list[Any] = [[], [0], [-1], [1], [1, 2, 3, 4], [2**40, 2**40], [2**63], [1] * 100, ["a"], [None], [[]], DEEP]
CONFIGURATIONS: list[Any] = [
    *[{}, {"": {}}, {"id": None}, {"id": "pickle"}, {"id": "blosc", "shuffle": 9}, {"id": "zlib"}, {"id": "vlen-utf8"}],
    [["a", "<i4"]],
]
VALUES: list[Any] = [None, True, False, *NUMBERS, *TEXTS, *TYPES, *LISTS, *CONFIGURATIONS]
AXES = [{"name": name, "type": kind} for name, kind in (("c", "channel"), ("y", "space"), ("x", "space"))]
SCALE = [{"type": "scale", "scale": [1, 0.5, 0.5]}]
DATASETS = [{"path": path, "coordinateTransformations": SCALE} for path in ("a", "b")]
WINDOW = {"start": 0, "end": 9, "min": 0, "max": 9}
ATTRIBUTES: list[dict[str, Any]] = [
    {"_ARRAY_DIMENSIONS": ["y", "x"], "units": "m", "flag": float("nan")},
    {
        "multiscales": [{"version": "0.4", "name": "image", "axes": AXES, "datasets": DATASETS}],
        "omero": {
            "channels": [{"color": "FF0000", "active": True, "label": "a", "window": WINDOW}],
            "rdefs": {"defaultZ": 0, "defaultT": 0, "model": "color"},
        },
        "image-label": {"colors": [{"label-value": 1, "rgba": [1, 2, 3, 4]}], "source": {"image": "../../"}},
    },
    {
        "plate": {
            "rows": [{"name": "A"}],
            "columns": [{"name": "1"}],
            "field_count": 1,
            "wells": [{"path": "A/1", "rowIndex": 0, "columnIndex": 0}],
        }
    },
    {"well": {"images": [{"path": "a", "acquisition": 0}], "version": "0.4"}},
    {"labels": ["a", "b"]},
]
BOMBS: list[Callable[[bytes], bytes]] = [
    zlib.compress,
    gzip.compress,
    bz2.compress,
    lambda data: lzma.compress(data, preset=0),
    lambda data: bytes(numcodecs.Zstd().encode(data)),
    lambda data: bytes(numcodecs.LZ4().encode(data)),
    lambda data: bytes(numcodecs.Blosc().encode(data)),
]


def lay(folder: Path, random: Random) -> None:
    """Write a group with the arrays ``a`` and ``b`` below it, of which a few things are wrong."""
    group: dict[str, Any] = {"zarr_format": 2}
    attributes = random.choice(ATTRIBUTES)
    documents = {".zgroup": group, ".zattrs": attributes}
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).mkdir()
        document = array_document(random)
        documents[f"{name}/.zarray"] = document
        if random.random() < 0.3:
            documents[f"{name}/.zattrs"] = random.choice(ATTRIBUTES)
        for key, data in chunks(random, document).items():
            (folder / name / key).write_bytes(spoilt(random, data) if random.random() < 0.6 else data)
    if random.random() < 0.3:
        documents[".zmetadata"] = {"zarr_consolidated_format": 1, "metadata": dict(documents)}
    for key, document in documents.items():
        if random.random() < 0.95:
            (folder / key).write_bytes(document_text(random, document))


def array_document(random: Random) -> dict[str, Any]:
    """One that is good, but for codecs that may not go together with the dtype."""
    rank = random.choice((0, 1, 2, 2, 3, 3))
    shape = [random.choice((0, 1, 5, 30)) for _ in range(rank)]
    dtype = random.choice(DTYPES)
    filters: list[dict[str, Any]] = [random.choice(FILTERS)] if random.random() < 0.25 else []
    if dtype == "|O":
        filters = [random.choice(OBJECT_FILTERS)]
    append = {"key": "k", "axis": 0, "offset": 0, "length": 1}
    own = {"hyperslab": {"extent": [size + 20 for size in shape], "appends": [append]}} if random.random() < 0.3 else {}
    return {
        **own,
        "zarr_format": 2,
        "shape": shape,
        "chunks": [random.choice((1, max(1, size // 2), max(1, size))) for size in shape],
        "dtype": dtype,
        "order": random.choice("CF"),
        "fill_value": None,
        "compressor": random.choice(COMPRESSORS),
        "filters": filters or None,
        "dimension_separator": ".",
    }


def chunks(random: Random, document: Mapping[str, Any]) -> dict[str, bytes]:
    """The first chunks, as the codecs make them; nothing where they do not go together."""
    try:
        metadata = ArrayMetadata.from_document(document, ".zarray")
        dtype = metadata.dtype.numpy
        if dtype.hasobject:
            items = OBJECTS.get(document["filters"][0]["id"], [np.arange(2, dtype="<i4"), np.arange(0, dtype="<i4")])
            values = np.empty(metadata.chunks, object)
            values.reshape(-1)[:] = [random.choice(items) for _ in range(values.size)]
        else:
            values = values_of(metadata.chunks, dtype, metadata.order)
        data = metadata.codec.encode(values)
    except (HyperslabError, ValueError, TypeError, KeyError):
        return {}
    corners = [0] * len(metadata.chunks), [n - 1 for n in metadata.grid.counts]
    return {metadata.grid.key(tuple(corner)): bytes(data) for corner in corners}


def document_text(random: Random, document: Any) -> bytes:
    """As JSON, mostly with a few changes in the document, seldom with some in the text."""
    changed = json.loads(json.dumps(document))
    for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
        changed = _changed(random, changed)
    text = json.dumps(changed).encode()
    return spoilt(random, text) if random.random() < 0.07 else text


def _changed(random: Random, value: Any) -> Any:
    """With one value, somewhere inside, that is another one or gone."""
    if not isinstance(value, dict | list) or not value or random.random() < 0.04:
        return deepcopy(random.choice(VALUES))
    keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = random.choice(keys)
    if random.random() < 0.1:
        del value[key]
    else:
        value[key] = _changed(random, value[key])
    return value


def spoilt(random: Random, data: bytes) -> bytes:
    """Cut, lengthened, changed in places, with a number in its head that lies, or something else altogether."""
    return random.choice((_cut, _lengthened, _replaced, _lying, _lying, _changed_bytes, _changed_bytes))(random, data)


def _cut(random: Random, data: bytes) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _lengthened(random: Random, data: bytes) -> bytes:
    return random.choice((b"", b"\xef\xbb\xbf", b"\xff\xfe", b"\0", b" ")) + data + random.choice((b"", b"\0", data))


def _replaced(random: Random, _: bytes) -> bytes:
    if random.random() < 0.5:
        return random.choice(BOMBS)(bytes(16 * MIB))
    return random.randbytes(random.choice((0, 1, 16, 100)))


def _lying(random: Random, data: bytes) -> bytes:
    changed = bytearray(data.ljust(8, b"\0"))
    number = random.choice((0, 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1))
    struct.pack_into(random.choice(("<I", ">I")), changed, random.randrange(min(24, len(changed)) - 3), number)
    return bytes(changed)


def _changed_bytes(random: Random, data: bytes) -> bytes:
    changed = bytearray(data or b"\0")
    for _ in range(random.randrange(1, 6)):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)

"""Arrays of the matrix: what each is, and the values that it holds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hyperslab import wire
from tests.interop.tables import COMPRESSORS, DTYPES, ORDERS, SEPARATORS, CodecRow, Config, DtypeRow

Array = NDArray[Any]

EVERY: Final = 1 if int(os.environ.get("TEST_EXAMPLES", "20")) >= 1000 else 4
SHAPE: Final = (3, 5)
CHUNKS: Final = (2, 3)
"""Two by two chunks, three of which lie at an edge."""


@dataclass(frozen=True, slots=True)
class Job:
    """One array; ``name`` is unique among those of a test."""

    name: str
    dtype: Any
    compressor: Config | None
    filters: tuple[Config, ...]
    order: str
    separator: str

    @property
    def document(self) -> dict[str, Any]:
        """The members of a new array, without shape and chunks."""
        return {
            "dtype": self.dtype,
            "compressor": self.compressor,
            "filters": list(self.filters) or None,
            "order": self.order,
            "dimension_separator": self.separator,
        }

    @property
    def values(self) -> Array:
        return values_of(self.dtype, self.filters[0]["id"] if self.dtype == "|O" else None)


def jobs_of(row: DtypeRow, compressors: tuple[CodecRow, ...] = COMPRESSORS) -> list[Job]:
    """Every example of a dtype with every fourth compressor, or from ``TEST_EXAMPLES=1000`` on with each, in the four
    kinds of order and separator by turns: over all dtypes, every compressor meets each kind."""
    filters = () if row.object_codec is None else (row.object_codec,)
    configs = [config for codec in compressors for config in codec.configs]
    layouts, turn = list(product(ORDERS, SEPARATORS)), DTYPES.index(row)
    return [
        Job(f"n{number}-{i}", dtype, config, filters, *layouts[(turn + number + i) // EVERY % len(layouts)])
        for number, dtype in enumerate(row.examples)
        for i, config in enumerate(configs)
        if (turn + number + i) % EVERY == 0
    ]


def filter_jobs(row: CodecRow) -> list[Job]:
    """Every configuration of a filter with every dtype that it takes, without and with a compressor behind it."""
    compressors: tuple[Config | None, ...] = (None, {"id": "zlib", "level": 1})
    cells = product(row.dtypes, row.configs, compressors, row.orders)
    return [
        Job(f"n{i}", dtype, compressor, (config,) if config else (), order, ".")
        for i, (dtype, config, compressor, order) in enumerate(cells)
    ]


def values_of(dtype: Any, object_codec: str | None = None) -> Array:
    """Values (3, 5) that tell apart order, byte order and place; some are the fill value, none is NaN by chance."""
    if object_codec is not None:
        return _objects(object_codec)
    native = wire.dtype_from_json(dtype)
    out: Array = np.zeros(SHAPE, native)
    _fill(out, start=0)
    return out


def _fill(out: Array, start: int) -> None:
    if out.dtype.names is not None:
        for number, name in enumerate(out.dtype.names):
            _fill(out[name], start + number)
        return
    count = np.arange(start, start + out.size).reshape(out.shape)
    if out.dtype.name in ("int4", "int2", "float4_e2m1fn", "float8_e8m0fnu"):
        out[...] = (count % 3 - (out.dtype.name != "float8_e8m0fnu")).astype(np.float32).astype(out.dtype)
    elif out.dtype.kind in "SU":
        letters = np.array(["", "a", "é中", "xyz"] if out.dtype.kind == "U" else [b"", b"a", b"\xff\0b", b"xyz"])
        out[...] = letters[count % 4].astype(out.dtype)
    elif out.dtype.kind == "V" and out.dtype.isbuiltin != 2:
        out[...] = np.frombuffer(np.resize(count, out.size * out.itemsize).astype("u1").tobytes(), out.dtype).reshape(
            out.shape
        )
    elif out.dtype.kind in "mM":
        out[...] = (count * 1001).astype("<i8").astype(out.dtype)
        out.reshape(-1)[2] = "NaT"
    elif out.dtype.kind == "b":
        out[...] = count % 3 == 1
    elif out.dtype.kind == "c":
        out[...] = count - 1j * count / 2
    else:
        out[...] = (count - 4 if out.dtype.kind != "u" else count).astype(np.float64).astype(out.dtype)


def _objects(codec: str) -> Array:
    items: dict[str, list[Any]] = {
        "vlen-utf8": ["", "a", "é中", "long text " * 9],
        "vlen-bytes": [b"", b"a\0", b"\xff\xfe", b"x" * 90],
        "vlen-array": [np.arange(n, dtype="<i4") - 1 for n in (0, 1, 3, 2)],
        "json2": ["", None, {"k": [1, 2.5, True]}, [[], "é"]],
        "msgpack2": ["", None, {"k": [1, 2.5, True]}, b"\xff"],
        "categorize": ["", "x", "yy", "x"],
    }
    out = np.empty(SHAPE, object)
    flat = out.reshape(-1)
    for i in range(flat.size):
        flat[i] = items[codec][i % 4]
    return out


def assert_equal(found: Any, expected: Array, where: str) -> None:
    """Bit for bit, but for padding and for the upper bits of narrow integers; objects by type and value."""
    values = np.asarray(found)
    assert values.shape == expected.shape, where
    if expected.dtype.hasobject:
        assert [_plain(item) for item in values.flat] == [_plain(item) for item in expected.flat], where
        return
    for path, ours, theirs in _columns(values, expected):
        assert ours.tobytes() == theirs.tobytes() or (ours == theirs).all(), f"{where} {path}"


def _plain(item: Any) -> Any:
    if isinstance(item, np.ndarray):
        return ("array", item.dtype.str, item.tolist())
    if isinstance(item, bytes | bytearray):
        return ("bytes", bytes(item))
    return str(item) if isinstance(item, str) else item


def _columns(found: Array, expected: Array, path: str = "") -> Iterator[tuple[str, Array, Array]]:
    """Pairs of plain arrays, in the expected byte order."""
    if expected.dtype.names is not None:
        for name in expected.dtype.names:
            yield from _columns(found[name], expected[name], f"{path}.{name}")
    elif found.dtype == expected.dtype:
        yield path, np.ascontiguousarray(found), np.ascontiguousarray(expected)
    else:
        yield path, np.ascontiguousarray(found.astype(expected.dtype)), np.ascontiguousarray(expected)

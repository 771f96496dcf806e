"""Fields of structured arrays: views of the chunk, through the projections that whole items use."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hyperslab.engine.grid import ChunkGrid
from hyperslab.engine.indexing import normalise, project
from hyperslab.wire import SelectionItem, dtype_from_json
from tests.conformance import vectors
from tests.engine.arrays import Array, array_of, values_of

GRID = ChunkGrid((4,), (2,))


def records(dtype: Any) -> Array:
    """Field k of record i holds 10 * i + k, as in the vectors."""
    items = np.zeros(4, dtype_from_json(dtype))
    for i in range(4):
        for k, name in enumerate(items.dtype.names or ()):
            items[name][i] = 10 * i + k
    return items


def chunk_of(items: Array, coords: tuple[int, ...], dtype: Any) -> Array:
    """A chunk as it comes out of the store."""
    codec = array_of([2], dtype, {"id": "blosc"}).codec
    return codec.decode(codec.encode(items[GRID.bounds(coords)]), GRID.key(coords))


@pytest.mark.parametrize("case", vectors.cases("fields_zarr"), ids=vectors.case_id)
def test_fields_read_and_write_as_in_zarr_python(case: vectors.Case) -> None:
    reference = case["refs"]["zarr2"]
    if not reference["ok"]:
        with pytest.raises(KeyError):
            array_of([2], case["dtype"]).dtype.field(case["sel"][0]["field"])
    elif "set" in case:
        assert _written(case) == reference["chunks"]
    else:
        found = _read(case)
        assert list(found.shape) == reference["shape"]
        assert found.dtype == dtype_from_json(reference["dtype"])
        assert _plain(found) == reference["values"]


def test_fields_with_subarrays_read_in_f_order_as_numpy_has_them() -> None:
    dtype = [["a", "<i2"], ["b", ">f4", [2, 3]]]
    array = array_of([4, 5], dtype, {"id": "zlib"}, order="F")
    chunk = values_of((4, 5), array.dtype.numpy, "F")
    decoded = array.codec.decode(array.codec.encode(chunk), "0.0")
    selection = normalise((slice(None, None, -2), [4, 0]), (4, 5))
    out = np.zeros((*selection.shape, 2, 3), ">f4")

    for projection in project(selection, array.grid):
        projection.copy_out(decoded["b"], out)

    assert out.tobytes() == np.ascontiguousarray(chunk["b"][::-2][:, [4, 0]]).tobytes()


def _read(case: vectors.Case) -> Array:
    """Fields first, as a view of each chunk; then the cells."""
    names = [item["field"] for item in case["sel"] if isinstance(item, dict) and "field" in item]
    selection = normalise([_item(i) for i in case["sel"] if not (isinstance(i, dict) and "field" in i)], GRID.shape)
    probe = _fields(records(case["dtype"]), names)
    out = np.zeros((*selection.shape, *probe.shape[1:]), probe.dtype)
    for projection in project(selection, GRID):
        chunk = chunk_of(records(case["dtype"]), projection.coords, case["dtype"])
        projection.copy_out(_fields(chunk, names), out)
    return out


def _written(case: vectors.Case) -> dict[str, str]:
    stored = {}
    values = np.broadcast_to(np.asarray(case["value"]), (4,))
    for projection in project(normalise((), GRID.shape), GRID):
        chunk = chunk_of(records(case["dtype"]), projection.coords, case["dtype"]).copy()
        projection.copy_in(values, chunk[case["set"]])
        stored[GRID.key(projection.coords)] = array_of([2], case["dtype"]).codec.encode(chunk).hex()
    return stored


def _fields(items: Array, names: list[str]) -> Array:
    if not names:
        return items
    part: Array = items[names[0]] if len(names) == 1 else items[names]
    return part


def _item(item: Any) -> SelectionItem:
    return slice(*item["slice"]) if isinstance(item, dict) else item


def _plain(items: Array) -> Any:
    """Records as lists."""
    if items.dtype.names is None:
        return items.tolist()
    rows = [list(record) for record in items.reshape(math.prod(items.shape)).tolist()]
    return rows if items.shape else rows[0]

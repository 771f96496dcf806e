"""All data types of zarr-python, as Zarr v2 and v3: what either side makes and writes, the other reads and changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import zarr
from zarr.core.dtype import VariableLengthBytes, data_type_registry

from hyperslab import RemoteArray, RemoteGroup
from tests.api.support import Served, serving

pytestmark = pytest.mark.filterwarnings("ignore:(The (data type|codec)|Numcodecs codecs|Object arrays)")

TEXTS: Final = np.array(["a", "", "é", "three", "4"], object)
RECORD: Final = np.dtype([("a", "<i4"), ("b", "<f8")])
VALUES: Final[dict[str, Any]] = {
    "bool": np.array([True, False, True, True, False]),
    **{name: np.array([1, 0, 3, 100, 5], name) for name in ("int8", "int16", "int32", "int64")},
    **{name: np.array([1, 0, 3, 200, 5], name) for name in ("uint8", "uint16", "uint32", "uint64")},
    **{name: np.array([1.5, 0, np.inf, -2, np.nan], name) for name in ("float16", "float32", "float64")},
    **{name: np.array([1 + 2j, 0, np.inf, -2j, 5], name) for name in ("complex64", "complex128")},
    "fixed_length_utf32": TEXTS.astype("<U5"),
    "string": TEXTS,
    "raw_bytes": np.array([b"a", b"", b"\xff\x00c", b"three", b"4"], "V5"),
    "null_terminated_bytes": np.array([b"a", b"", b"\xffc", b"three", b"4"], "S5"),
    "variable_length_bytes": np.array([b"a", b"", b"\xff\x00c", b"three", b"4"], object),
    "structured": np.array([(1, 1.5), (0, 0), (3, -1), (4, 9), (5, 2)], RECORD),
    "numpy.datetime64": np.array(["2020-01-01", "NaT", "1970-01-01", "1900-01-01", "2100-01-01"], "<M8[10us]"),
    "numpy.timedelta64": np.array([1, 0, -3, 4, 5], "<m8[s]"),
}
OBJECTS: Final = {"string": "vlen-utf8", "variable_length_bytes": "vlen-bytes"}
NAMES: Final[dict[str, Any]] = dict.fromkeys(OBJECTS, "|O")
DATA_TYPE: Final[dict[str, Any]] = {"string": str, "variable_length_bytes": VariableLengthBytes()}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    folder = tmp_path_factory.mktemp("dtypes")
    with serving(folder) as found:
        yield found, folder


def test_the_table_has_every_data_type() -> None:
    data_type_registry._lazy_load()

    known = {"structured" if name == "struct" else name for name in data_type_registry.contents}  # since version 3.2
    assert VALUES.keys() == known


def same(found: Any, expected: Any) -> None:
    """Equal item by item; zarr-python has a string type of its own."""
    if expected.dtype == object:
        assert np.asarray(found, object).tolist() == expected.tolist()
    else:
        assert np.asarray(found).astype(expected.dtype).tobytes() == expected.tobytes()


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", VALUES)
def test_what_one_makes_and_writes_the_other_reads_and_changes(
    data: tuple[Served, Path], name: str, zarr_format: Any
) -> None:
    served, folder = data
    values = VALUES[name]
    url = f"{served.http.base_url}/v1/metadata/data"

    theirs: Any = zarr.create_array(
        str(folder / f"theirs-{zarr_format}-{name}"),
        shape=5,
        chunks=(2,),
        dtype=DATA_TYPE.get(name, values.dtype),
        zarr_format=zarr_format,
    )
    theirs[:] = values
    remote = RemoteArray(f"{url}/theirs-{zarr_format}-{name}")
    same(remote[:], values)
    remote[1:4] = values[:3]
    same(zarr.open_array(theirs.store, mode="r")[:], np.concatenate([values[:1], values[:3], values[4:]]))

    with RemoteGroup(url.removesuffix("/v1/metadata/data")) as group:
        codecs: Any = {"filters": [{"id": OBJECTS[name]}]} if name in OBJECTS else {}
        kind = NAMES.get(name, values.dtype)
        ours = group.create_array(
            f"data/ours-{zarr_format}-{name}", 5, kind, chunks=2, zarr_format=zarr_format, **codecs
        )
        ours[:] = values
    read: Any = zarr.open_array(str(folder / f"ours-{zarr_format}-{name}"), mode="r+")
    same(read[:], values)
    read[1:4] = values[:3]
    same(RemoteArray(ours.url)[:], np.concatenate([values[:1], values[:3], values[4:]]))

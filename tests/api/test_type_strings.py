"""Dtypes in requests: whatever numpy and zarr-python take for one, wherever one is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import zarr
import zarr.dtype

from tests.api.support import npy, problem, writable
from tests.streams.support import dimension

# fmt: off
NUMPYS = [
    "i4", "f8", "=i4", "int", "float", "?", "b1", "u1", "U10", "S12", "V6", "M8[ns]", "m8[s]", "c16",
    "half", "double", "|S5", ">U4", "=m8[D]", "datetime64[10s]", "M8[us]", "single", "complex", "byte",
    "ushort", "intc", "longlong", "uint", "intp", "bool_", "e", "D", "Q", "<l", ">h", "i4,f4",
    "u1,(2,3)<f4,U3",
]
# fmt: on
FIELDS: list[Any] = [
    [["x", "i4"], ["y", "U3"]],
    [["x", "half", [2]], ["t", "M8[ns]"]],
    [["x", "(2,)i4"], ["y", "f8", 3], ["n", [["a", ">i2"], ["b", "?"]]]],
]
OBJECTS: list[Any] = ["str", "string", "T", "bytes", {"name": "string"}, {"name": "|O", "object_codec_id": "vlen-utf8"}]
# fmt: off
UNKNOWN: list[Any] = [
    "longdouble", "g", "f16", "float128", "S", "U", "V0", "a5", "b2", "i3", "M8", "M8[parsec]", "(2,)i4", "4i4", "str_",
    "unicode", "<", "(", ",", "i4,str", "f8[s]", "|i4", [["x", "(2,"]], {}, {"name": "nothing"}, {"name": 5},
    {"name": [1], "object_codec_id": None}, {"name": "|O", "object_codec_id": [1]}, 5, [[["x"], "i4"]],
    "i4" + ",i4" * 5000, "(" * 100_000, "1" * 100_000 + "i4",
]
# fmt: on


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with writable(tmp_path_factory.mktemp("lab")) as client:
        yield client


def stored(client: httpx.Client, path: str) -> np.dtype[Any]:
    answer = client.get(f"/v1/slice/data/{path}", params={"format": "npy"})
    assert answer.status_code == 200
    return npy(answer.content).dtype


def numpys(dtype: Any) -> np.dtype[Any]:
    if isinstance(dtype, list):
        dtype = [(name, numpys(base), *shape) for name, base, *shape in dtype]
    found: np.dtype[Any] = np.dtype(dtype)
    return found


@pytest.mark.parametrize("dtype", [*NUMPYS, *FIELDS], ids=str)
def test_a_dtype_is_what_numpy_says_wherever_it_is_taken(lab: httpx.Client, dtype: Any) -> None:
    expected = numpys(dtype)
    made = lab.put("/v1/metadata/data/a", params={"mode": "replace"}, json={"shape": [2], "dtype": dtype})
    assert made.status_code == 201, made.text
    opened = lab.put("/v1/metadata/data/a", params={"mode": "open"}, json={"dtype": dtype})
    assert opened.status_code == 200, opened.text
    assert stored(lab, "a") == expected

    dimensions = [dimension("y", 8), dimension("x", 8)]
    body = {"arrays": [{"dtype": dtype, "dimensions": dimensions}]}
    stream = lab.put("/v1/stream/data/s", params={"dry_run": "true"}, json=body)
    assert stream.status_code == 200, stream.text
    assert stream.json()["arrays"][""]["frame"]["dtype"] == made.json()["dtype"]
    if expected.names is None or all(expected[name].subdtype is None for name in expected.names):
        v3 = {"shape": [2], "dtype": dtype, "zarr_format": 3}
        made = lab.put("/v1/metadata/data/b", params={"mode": "replace"}, json=v3)
        assert made.status_code == 201, made.text
        assert stored(lab, "b").newbyteorder("<") == expected.newbyteorder("<")
        of_v3 = {"shape": [2], "data_type": dtype if isinstance(dtype, str) else made.json()["data_type"]}
        again = lab.put("/v1/metadata/data/b", params={"mode": "open"}, json={**of_v3, "zarr_format": 3})
        assert again.status_code == 200, again.text


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", OBJECTS, ids=str)
def test_names_of_objects_imply_their_filter(tmp_path: Path, dtype: Any, zarr_format: int) -> None:
    with writable(tmp_path) as client:
        members = {"shape": [2], "dtype": dtype, "zarr_format": zarr_format}
        made = client.put("/v1/metadata/data/a", json=members)
        assert made.status_code == 201, made.text
        assert client.put("/v1/metadata/data/a", params={"mode": "open"}, json=members).status_code == 200
        assert client.put("/v1/metadata/data/a", params={"mode": "open"}, json={"dtype": dtype}).status_code == 200
        other = "string" if "bytes" in str(dtype) else "bytes"
        differs = client.put("/v1/metadata/data/a", params={"mode": "open"}, json={"dtype": other})
        assert differs.status_code == 409

    found = zarr.open_array(tmp_path / "a", mode="r")
    text = zarr.dtype.VariableLengthUTF8
    assert isinstance(found.metadata.dtype, text) == ("bytes" not in str(dtype))


@pytest.mark.parametrize("dtype", UNKNOWN, ids=lambda dtype: str(dtype)[:20])
def test_no_dtype_is_refused_by_name(lab: httpx.Client, dtype: Any) -> None:
    definitions: list[dict[str, Any]] = [{"dtype": dtype}]
    definitions += [{"dtype": [["x", dtype]]}] if dtype not in ("(2,)i4", "4i4") else []
    definitions += [{"dtype": dtype, "zarr_format": 3}] if dtype != "M8" else []
    for definition in definitions:
        answer = lab.put("/v1/metadata/data/no", json={"shape": [2], **definition})
        status, code = problem(answer)
        assert (status, code) == (422, "bad-definition"), answer.text
        assert answer.json()["member"] in ("dtype", "data_type", "filters"), answer.text


@pytest.mark.parametrize("text", ["i4", "=f8", "half", "int", "?", "M8[s]", "double"])
def test_values_are_converted_to_numpys_types_and_named_by_them(lab: httpx.Client, text: str) -> None:
    dtype = np.dtype(text)
    values = np.ones(3, "|b1" if text == "?" else "<M8[s]" if dtype.kind == "M" else "|i1")
    lab.put("/v1/metadata/data/n", params={"mode": "replace"}, json={"shape": [3], "dtype": values.dtype.str})
    lab.put("/v1/slice/data/n", content=values.tobytes())
    read = lab.get("/v1/slice/data/n", params={"dtype": text, "format": "raw"})
    assert read.status_code == 200, read.text
    assert np.array_equal(np.frombuffer(read.content, dtype), values.astype(dtype))

    lab.put("/v1/metadata/data/n", params={"mode": "replace"}, json={"shape": [3], "dtype": text})
    body, first = values.astype(dtype).tobytes(), {"select": ":3"}
    for header in (text, f'"{text}"', f'"{dtype.str}"'):
        headers = {"Array-Dtype": header}
        written = lab.put("/v1/slice/data/n", params=first, content=body, headers=headers)
        assert written.status_code == 204, written.text
        appended = lab.post("/v1/append/data/n", content=body, headers=headers)
        assert appended.status_code == 201, appended.text
    other = lab.put("/v1/slice/data/n", params=first, content=body, headers={"Array-Dtype": "u8"})
    assert problem(other) == (400, "bad-body")

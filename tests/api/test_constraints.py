"""Constraints on arrays: what TensorStore's schema says, on opening and on creation, and documents that come back."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tensorstore
import zarr
from zarr.codecs import GzipCodec

from hyperslab.engine import creation
from hyperslab.engine.comparison import checked_document
from tests.api.support import problem, running, writable
from tests.documents import named

ARRAYS: dict[str, dict[str, Any]] = {
    "plain": {"shape": [100, 200], "dtype": "<u2", "chunks": [10, 20], "fill_value": 7},
    "fortran": {"shape": [10, 20, 30], "dtype": ">f4", "chunks": [5, 5, 5], "order": "F", "compressor": {"id": "zlib"}},
    "scalar": {"shape": [], "dtype": "|b1"},
    "bytes": {"shape": [3], "dtype": "|S5"},
    "raw": {"shape": [3, 4], "dtype": "|V6", "fill_value": None},
    "times": {"shape": [9], "dtype": "<M8[ns]", "attributes": {"a": [1]}, "dimension_names": ["t"]},
    "text": {"shape": [9], "dtype": "<U4", "dimension_separator": "/"},
    "strings": {"shape": [9], "dtype": "string"},
    "fields": {
        "shape": [10, 20, 30],
        "dtype": [["x", "<u2", [2, 3]], ["y", "<f4", [5]], ["z", "|S3"]],
        "chunks": [5, 5, 5],
    },
    "one field": {"shape": [10], "dtype": [["x", "<i4", [2]]]},
    "v3": {"zarr_format": 3, "shape": [100, 200], "dtype": ">i4", "chunks": [10, 20], "dimension_names": ["y", None]},
    "shards": {"zarr_format": 3, "shape": [100, 200], "dtype": "f8", "chunks": [10, 20], "shards": [50, 100]},
    "v3 fields": {"zarr_format": 3, "shape": [5], "dtype": [["x", "<i4"], ["y", "<U2"]]},
    "v3 strings": {"zarr_format": 3, "shape": [5], "dtype": "string", "compressor": {"id": "zlib"}},
    "v3 times": {"zarr_format": 3, "shape": [5], "dtype": "m8[10s]", "order": "F", "fill_value": "NaT"},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    with writable(folder) as client:
        for name, members in ARRAYS.items():
            answer = client.put(f"/v1/metadata/data/{name}", json=members)
            assert answer.status_code == 201, answer.text
        client.put("/v1/metadata/data/group", json={"attributes": {"a": 1}})
    return folder


@pytest.fixture(params=["writable", "read-only"])
def client(made: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    before = state(tmp_path)
    if request.param == "writable":
        with writable(tmp_path) as client:
            yield client
    else:
        with running(tmp_path) as found, httpx.Client(base_url=found.url) as client:
            yield client
    assert state(tmp_path) == before  # nothing was stored


def state(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and ".hyperslab" not in str(path)]
    return {str(path): path.read_bytes() for path in files}


def checked(client: httpx.Client, name: str, **members: Any) -> httpx.Response:
    return client.put(f"/v1/metadata/data/{name}", params={"mode": "open"}, json=members)


def views(members: dict[str, Any]) -> list[str | None]:
    dtype = members["dtype"]
    return [None, *(field[0] for field in dtype)] if isinstance(dtype, list) else [None]


@pytest.mark.parametrize("name", ARRAYS)
def test_what_is_printed_is_taken_when_it_comes_back(client: httpx.Client, name: str) -> None:
    for field in views(ARRAYS[name]):
        parameters = {} if field is None else {"field": field}
        document = client.get(f"/v1/metadata/data/{name}", params=parameters).json()
        schema = document["schema"]
        constraints = [{"schema": schema}, {"rank": schema["rank"]}, {"domain": schema["domain"]}]
        constraints += [{"codec": schema["codec"]}, {"kind": "array", "chunk_layout": schema.get("chunk_layout")}]
        for members in [document, *constraints]:
            answer = checked(client, name, **members)
            assert answer.status_code == 200, (members, answer.text)
            assert answer.json() == client.get(f"/v1/metadata/data/{name}").json()


@pytest.mark.parametrize("name", ARRAYS)
def test_a_node_document_makes_an_equal_array(made: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(made / name, tmp_path / "a")
    with writable(tmp_path) as client:
        document = client.get("/v1/metadata/data/a").json()
        stored = json.loads(
            client.get(f"/zarr/data/a/{'zarr.json' if 'v3' in name or name == 'shards' else '.zarray'}").content
        )
        for made_of, node in ((document, "b"), (stored, "c")):
            answer = client.put(f"/v1/metadata/data/{node}", json=made_of)
            assert answer.status_code == 201, answer.text
        assert checked(client, "a", **stored).status_code == 200
    for key in (".zarray", "zarr.json"):
        if (tmp_path / "a" / key).exists():
            documents = [(tmp_path / node / key).read_text().split() for node in "abc"]
            a, b, c = ("".join(document).replace(',"configuration":{}', "") for document in documents)
            assert json.loads(a) == json.loads(b) == json.loads(c)


def test_a_group_is_checked_by_its_document_and_by_nothing(client: httpx.Client) -> None:
    for path in ("group", ""):
        document = client.get(f"/v1/metadata/data/{path}").json()
        for members in ({}, {"kind": "group"}, {"zarr_format": 2}, document):
            answer = checked(client, path, **members)
            assert answer.status_code == 200, answer.text
    assert problem(checked(client, "group", attributes={"a": 2})) == (409, "node-exists")


@pytest.mark.parametrize("members", [{}, {"zarr_format": 2}, {"attributes": {"a": [1]}}, {"attributes": {}}])
def test_without_a_kind_it_is_that_of_what_is_there(client: httpx.Client, members: dict[str, Any]) -> None:
    assert checked(client, "times", **members).json()["kind"] == "array"
    assert problem(checked(client, "v3", zarr_format=2)) == (409, "node-exists")
    assert problem(checked(client, "times", attributes={"a": 2})) == (409, "node-exists")


def test_what_is_not_there_is_made_only_where_that_is_allowed(made: Path) -> None:
    with running(made) as found, httpx.Client(base_url=found.url) as client:
        for members in ({}, {"shape": [2]}, {"shape": [2], "dtype": "u1"}, {"kind": "group"}):
            assert problem(checked(client, "missing", **members)) == (403, "read-only")
        for mode in ("create", "replace"):
            answer = client.put("/v1/metadata/data/plain", params={"mode": mode}, json=ARRAYS["plain"])
            assert problem(answer) == (403, "read-only")


SCHEMAS: list[dict[str, Any]] = [
    *({"rank": 2}, {"rank": 3}, {"dtype": "uint16"}, {"dtype": "int16"}, {"domain": {"shape": [100, 200]}}),
    *({"domain": {"shape": [100, 201]}}, {"domain": {"inclusive_min": [0, 0], "exclusive_max": [100, 200]}}),
    {"domain": {"inclusive_min": [0, 0], "exclusive_max": [[100], [200]]}},
    {"domain": {"inclusive_min": [0, 0], "exclusive_max": [[100], [300]]}},
    {"domain": {"inclusive_min": [1, 0], "exclusive_max": [100, 200]}},
    *({"domain": {"rank": 2}}, {"domain": {"labels": ["y", "x"]}}, {"domain": {"inclusive_max": [99, 199]}}),
    {"domain": {"inclusive_min": ["-inf", 0], "exclusive_max": ["+inf", 200]}},
    {"domain": {"inclusive_min": [["-inf"], 0], "exclusive_max": [["+inf"], 200]}},
    *({"domain": {"exclusive_max": [100]}}, {"domain": {"exclusive_max": [150, 200]}}, {"domain": {"shape": [1]}}),
    *({"codec": {"driver": "zarr"}}, {"codec": {"driver": "zarr", "compressor": None}}, {"codec": {"driver": "zarr3"}}),
    *({"codec": {"driver": "zarr2", "compressor": {"id": "zlib", "level": 1}}}, {"codec": {"compressor": None}}),
    *(
        {"codec": {"driver": "zarr", "filters": None}},
        {"codec": {"driver": "n5"}},
        {"codec": {"driver": "zarr", "a": 1}},
    ),
    *({"fill_value": 7}, {"fill_value": 8}, {"dimension_units": [None, "nm"]}, {"nothing": 1}, {}),
    *({"chunk_layout": {"chunk": {"shape": [None, 20]}}}, {"chunk_layout": {"chunk": {"shape": [10, 21]}}}),
    {"chunk_layout": {"chunk": {"aspect_ratio": [None, 2]}, "inner_order": [0, 1]}},
    {"rank": 2, "dtype": "uint16", "domain": {"shape": [100, 200]}, "codec": {"driver": "zarr"}, "fill_value": 7},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_a_schema_is_a_constraint_as_in_tensorstore(made: Path, schema: dict[str, Any]) -> None:
    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": str(made / "plain")}, "schema": schema}
    try:
        tensorstore.open(spec, open=True).result()
        fits = True
    except ValueError:
        fits = False
    with running(made) as found, httpx.Client(base_url=found.url) as client:
        whole = checked(client, "plain", schema=schema)
        assert (whole.status_code == 200) == fits, whole.text
        assert fits or problem(whole)[0] in (409, 422)
        if len(schema) == 1 and next(iter(schema)) in ("rank", "domain", "codec"):
            assert (checked(client, "plain", **schema).status_code == 200) == fits


CREATED: list[dict[str, Any]] = [
    {"schema": {"dtype": "uint16", "domain": {"shape": [100, 200]}}},
    {"schema": {"dtype": "float32", "domain": {"inclusive_min": [0, 0], "exclusive_max": [[9], [8]]}, "fill_value": 7}},
    {"schema": {"dtype": "int8", "domain": {"shape": [9]}, "codec": {"driver": "zarr", "compressor": {"id": "zlib"}}}},
    {"schema": {"dtype": "int8", "domain": {"shape": [9]}, "codec": {"driver": "zarr", "compressor": None}}},
    {"schema": {"dtype": "bool", "domain": {"shape": [9, 9]}, "chunk_layout": {"chunk": {"shape": [None, 2]}}}},
    {"schema": {"dtype": "uint16", "domain": {"shape": [99, 88]}, "chunk_layout": {"chunk": {"elements": 100}}}},
    {"schema": {"dtype": "bfloat16", "domain": {"shape": [2, 3], "labels": ["y", "x"]}}},
    {"metadata": {"dtype": "<u2", "shape": [3]}, "schema": {"rank": 1, "domain": {"shape": [3]}, "dtype": "uint16"}},
    {"metadata": {"dtype": [["x", "<u2", [2, 3]]], "shape": [4]}, "schema": {"domain": {"shape": [4, 2, 3]}}},
    {"metadata": {"dtype": [["x", "<u2", [2]]]}, "schema": {"domain": {"shape": [4, 2]}}},
    # which differ
    {"schema": {"dtype": "uint16", "domain": {"inclusive_min": [1], "exclusive_max": [3]}}},
    {"schema": {"dtype": "char", "domain": {"shape": [3]}}},
    {"schema": {"dtype": "uint16", "domain": {"rank": 2}}},
    {"metadata": {"dtype": "<u2", "shape": [3]}, "schema": {"domain": {"shape": [4]}}},
    {"metadata": {"dtype": "<u2", "shape": [3]}, "schema": {"dtype": "int16"}},
    {"metadata": {"dtype": "<u2", "shape": [3]}, "schema": {"rank": 2}},
    {"metadata": {"dtype": "<u2", "shape": [3], "fill_value": 1}, "schema": {"fill_value": 2}},
    {
        "metadata": {"dtype": "<u2", "shape": [3], "compressor": None},
        "schema": {"codec": {"driver": "zarr", "compressor": {"id": "zlib"}}},
    },
    {"metadata": {"dtype": "<u2", "shape": [3], "chunks": [2]}, "schema": {"chunk_layout": {"chunk": {"shape": [3]}}}},
]


@pytest.mark.parametrize("spec", CREATED, ids=json.dumps)
def test_a_schema_makes_the_array_that_tensorstore_makes(tmp_path: Path, spec: dict[str, Any]) -> None:
    store = {"driver": "zarr", "kvstore": {"driver": "file", "path": str(tmp_path / "theirs")}}
    try:
        theirs = tensorstore.open({**store, **spec}, create=True).result()
    except ValueError:
        theirs = None
    with writable(tmp_path) as client:
        answer = client.put("/v1/metadata/data/ours", json={**spec.get("metadata", {}), "schema": spec["schema"]})
    if theirs is None:
        assert problem(answer) == (422, "bad-definition")
        assert not (tmp_path / "ours").exists()
        return
    assert answer.status_code == 201, answer.text
    plain = "bfloat16" not in str(spec) and "'x'" not in str(spec)
    made = zarr.open_array(tmp_path / "ours", mode="r", zarr_format=2) if plain else None
    ours = json.loads((tmp_path / "ours" / ".zarray").read_bytes())
    expected = json.loads((tmp_path / "theirs" / ".zarray").read_bytes())
    for name in ("shape", "chunks", "dtype", "order"):
        assert ours[name] == expected[name]
    assert (ours["compressor"] or {}).get("id") == (expected["compressor"] or {}).get("id")
    assert expected["fill_value"] is None or ours["fill_value"] == expected["fill_value"]
    assert made is None or made.shape == tuple(ours["shape"])


CODECS: list[list[Any]] = [
    *([], [named("gzip", level=3)], [named("gzip", level=4)], ["gzip"], [named("zstd", level=1), "crc32c"], ["crc32c"]),
    *(["bytes"], [named("bytes", endian="big")], [named("blosc", cname="zstd")], [named("transpose", order=[1, 0])]),
    *([named("transpose", order="F"), "zstd"], [named("bytes", endian="little"), named("gzip", level=3)]),
    [named("sharding_indexed", chunk_shape=[5, 10])],
    [named("sharding_indexed", chunk_shape=[5, 10], codecs=["gzip"], index_location="start")],
]


@pytest.mark.parametrize("codecs", CODECS, ids=json.dumps)
def test_codecs_of_zarr_v3_are_constraints_as_in_tensorstore(tmp_path: Path, codecs: list[Any]) -> None:
    schema = {"dtype": "uint16", "domain": {"shape": [10, 20]}, "codec": {"driver": "zarr3", "codecs": codecs}}
    spec: dict[str, Any] = {"driver": "zarr3"}
    paths = {name: {"driver": "file", "path": str(tmp_path / name)} for name in ("theirs", "gzip", "shards")}
    tensorstore.open({**spec, "kvstore": paths["theirs"], "schema": schema}, create=True).result()
    options: dict[str, Any] = {"shape": (10, 20), "dtype": "u2", "chunks": (5, 10), "compressors": GzipCodec(level=3)}
    zarr.create_array(tmp_path / "gzip", **options)
    zarr.create_array(tmp_path / "shards", shards=(10, 20), **options)
    fits = {}
    for name in ("gzip", "shards"):
        try:
            tensorstore.open({**spec, "kvstore": paths[name], "schema": {"codec": schema["codec"]}}).result()
            fits[name] = 200
        except ValueError:
            fits[name] = 409
    if codecs in CODECS[-2:]:
        fits["gzip"] = 409  # TensorStore takes whatever it says for an array without shards
    with writable(tmp_path) as client:
        made = client.put("/v1/metadata/data/ours", json={"zarr_format": 3, "schema": schema})
        found = {name: checked(client, name, schema={"codec": schema["codec"]}).status_code for name in fits}

    assert made.status_code == 201, made.text
    ours, theirs = (json.loads((tmp_path / name / "zarr.json").read_bytes()) for name in ("ours", "theirs"))
    assert (ours["chunk_grid"], ours["data_type"]) == (theirs["chunk_grid"], theirs["data_type"])
    assert [codec["name"] for codec in ours["codecs"]] == [codec["name"] for codec in theirs["codecs"]]
    assert zarr.open_array(tmp_path / "ours", mode="r").dtype.newbyteorder("=") == np.dtype("u2")
    assert found == fits


@pytest.mark.parametrize("part", ["chunk", "read_chunk", "write_chunk"])
@pytest.mark.parametrize("shape", [[10, 20], [50, 100], [0, 20], [0, 100]])
def test_a_chunk_of_a_layout_is_for_reads_and_writes_as_in_tensorstore(made: Path, part: str, shape: list[int]) -> None:
    schema = {"chunk_layout": {part: {"shape": shape}}}
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(made / "shards")}, "schema": schema}
    try:
        tensorstore.open(spec, open=True).result()
        expected = 200
    except ValueError:
        expected = 409
    with running(made) as found, httpx.Client(base_url=found.url) as client:
        assert checked(client, "shards", schema=schema).status_code == expected


def test_the_schema_of_shards_makes_such_shards(made: Path, tmp_path: Path) -> None:
    with running(made) as found:
        schema = httpx.get(f"{found.url}/v1/metadata/data/shards").json()["schema"]
    with writable(tmp_path) as client:
        answer = client.put("/v1/metadata/data/a", json={"zarr_format": 3, "schema": schema})
        refused = client.put("/v1/metadata/data/b", json={"schema": schema})

    assert (answer.status_code, answer.json()["schema"]) == (201, schema)
    assert 'add "zarr_format": 3' in refused.json()["detail"]


def test_units_of_axes_are_constraints_of_zarr_v3_as_in_tensorstore(tmp_path: Path) -> None:
    base: dict[str, Any] = {"dtype": "uint16", "domain": {"shape": [3, 4]}}
    units: list[Any] = [["4 nm", None], [[4, "nm"], "s"], ["4e0nm", ""], ["5nm", None], [None, None], ["4nm"], [4, "m"]]
    with writable(tmp_path) as client:
        for number, made in enumerate(units):
            spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(tmp_path / f"their{number}")}}
            schema = {**base, "dimension_units": made}
            answer = client.put(f"/v1/metadata/data/{number}", json={"zarr_format": 3, "schema": schema})
            assert (answer.status_code == 201) == (len(made) == 2), answer.text
            if len(made) != 2:
                continue
            theirs = tensorstore.open({**spec, "schema": schema}, create=True).result()
            shown = theirs.schema.to_json().get("dimension_units")
            documents = [json.loads((tmp_path / f"{of}{number}/zarr.json").read_bytes()) for of in ("", "their")]
            assert documents[0]["attributes"] == documents[1].get("attributes", {})
            assert answer.json()["schema"].get("dimension_units") == shown
            for wanted in units:
                try:
                    fits = bool(tensorstore.open({**spec, "schema": {"dimension_units": wanted}}).result())
                except ValueError:
                    fits = False
                found = checked(client, f"{number}", schema={"dimension_units": wanted})
                assert (found.status_code == 200) == fits, (made, wanted, found.text)
        v2 = client.put("/v1/metadata/data/v2", json={"schema": {**base, "dimension_units": ["nm", None]}})
    assert problem(v2) == (422, "bad-definition")


@pytest.mark.parametrize(
    ("read", "write", "chunks", "shards"),
    [
        ({"elements": 100}, {"elements": 1600}, [10, 10], [40, 40]),
        ({"elements": 100, "aspect_ratio": [1, 4]}, {"elements": 1600}, [5, 20], [40, 40]),
        ({"shape": [10, 10]}, {"elements": 1700}, [10, 10], [40, 40]),
        ({"elements": 100}, {"shape": [50, 100]}, [10, 10], [50, 100]),
        ({"elements_soft_constraint": 5000}, {"shape": [50, 100]}, [50, 100], None),
    ],
)
def test_what_is_read_may_be_smaller_than_what_is_written_by_elements_too(
    read: Any, write: Any, chunks: list[int], shards: list[int] | None
) -> None:
    layout = {"read_chunk": read, "write_chunk": write}
    request = {"zarr_format": 3, "shape": [100, 200], "dtype": "u2", "chunk_layout": layout}

    array = creation.checked(checked_document(request))

    assert ([*array.chunks], [*array.stored_grid.chunks]) == (chunks, shards or chunks)


def test_layouts_name_axes_within_items_as_in_tensorstore(tmp_path: Path) -> None:
    members = {"shape": [10, 20, 30], "dtype": [["x", "<u2", [2, 3]], ["y", "<f4", [5]], ["z", "|S4"]]}
    shapes: list[tuple[list[Any], bool]] = [
        *(([5, 5, 5, 2, 3], True), ([5, 5, 5, None, 0], True), ([5, 5, 5, 5], True), ([5, 5, 5, 4], True)),
        *(([5, 5, 5], True), ([5, 5, 5, 2, 4], False), ([5, 5, 5, 6], False), ([5, 5], False), ([5] * 6, False)),
        ([5, 5, 5, -1, -1], True),
    ]
    with writable(tmp_path) as client:
        for number, (shape, fits) in enumerate(shapes):
            layout = {"chunk": {"shape": shape}, "grid_origin": [0] * len(shape)}
            answer = client.put(f"/v1/metadata/data/{number}", json={**members, "chunk_layout": layout})
            assert (answer.status_code == 201) == fits, answer.text
            assert fits is False or answer.json()["chunks"] == [5, 5, 5]
            assert fits or answer.json()["member"] == "chunk_layout"
        layout = {"inner_order": [2, 1, 0, 3, 4], "chunk": {"shape": [5, 5, 5, 2, 3]}}
        fortran = client.put("/v1/metadata/data/f", json={**members, "chunk_layout": layout})
        assert fortran.json()["order"] == "F"
        layout["inner_order"] = [0, 1, 3, 2, 4]
        assert problem(client.put("/v1/metadata/data/g", json={**members, "chunk_layout": layout}))[0] == 422


@pytest.mark.parametrize("nothing", [None, 0])
def test_no_size_in_a_layout_is_no_constraint_and_in_chunks_the_whole_axis(tmp_path: Path, nothing: Any) -> None:
    shape = [1000, 2000, 3000]
    spec = {"driver": "zarr", "kvstore": "memory://", "create": True, "dtype": "uint8"}
    layout = {"chunk": {"shape": [nothing, nothing, 100]}}
    theirs = tensorstore.open({**spec, "schema": {"chunk_layout": layout}}, shape=shape).result()
    with writable(tmp_path) as client:
        ours = client.put("/v1/metadata/data/a", json={"shape": shape, "dtype": "u1", "chunk_layout": layout})
        whole = client.put("/v1/metadata/data/b", json={"shape": shape, "dtype": "u1", "chunks": [None, 10, 10]})
        ratio = {"chunk": {"elements": 1000, "aspect_ratio": [None, 1, 2]}}
        taken = client.put("/v1/metadata/data/c", json={"shape": shape, "dtype": "u1", "chunk_layout": ratio})
    assert ours.json()["chunks"] == [*(theirs.chunk_layout.read_chunk.shape or ())]
    assert whole.json()["chunks"] == [1000, 10, 10]
    assert np.prod(taken.json()["chunks"]) <= 1000


RECORD = [["x", "<i2"], ["y", ">f4", [2]], ["s", "|S3"], ["n", [["a", "|u1"], ["t", "<M8[s]"]]], ["c", "<c8", [3]]]
VALUES = {"x": 7, "y": [1.5, "NaN"], "s": "YWI=", "n": {"a": 3, "t": 9}, "c": [1, 2]}


def test_a_fill_value_of_a_record_is_an_object_of_its_fields(tmp_path: Path) -> None:
    with writable(tmp_path) as client:
        made = client.put("/v1/metadata/data/a", json={"shape": [2], "dtype": RECORD, "fill_value": VALUES})
        assert made.status_code == 201, made.text
        read = client.get("/v1/slice/data/a", params={"format": "json"}).json()
        expected = {**VALUES, "s": "ab", "n": {"a": 3, "t": "1970-01-01T00:00:09"}, "c": [[1, 2]] * 3}
        shown = read["values"][0] if isinstance(read, dict) else read[0]
        assert shown["x"] == 7
        assert shown["s"] == expected["s"]
        assert checked(client, "a", fill_value=VALUES).status_code == 200
        assert problem(checked(client, "a", fill_value={**VALUES, "x": 8})) == (409, "node-exists")
        one = client.put("/v1/metadata/data/b", json={"shape": [2], "dtype": RECORD, "fill_value": {**VALUES, "y": 2}})
        assert one.status_code == 201
        v3 = {"zarr_format": 3, "shape": [2], "dtype": [["x", "i4"], ["y", "f8"]], "fill_value": {"x": 7, "y": 1.5}}
        assert client.put("/v1/metadata/data/c", json=v3).status_code == 201
        wrong: list[Any] = [{"x": 7}, {**VALUES, "z": 1}, {**VALUES, "x": 70_000}, {**VALUES, "y": [1, 2, 3]}]
        wrong += [{**VALUES, "x": None}, {**VALUES, "n": {"a": 3}}, {**VALUES, "n": 5}, {**VALUES, "y": 1e39}, {}]
        for fill in wrong:
            answer = client.put("/v1/metadata/data/d", json={"shape": [2], "dtype": RECORD, "fill_value": fill})
            assert problem(answer) == (422, "bad-definition"), fill
            assert answer.json()["member"] == "fill_value"
        plain = client.put("/v1/metadata/data/d", json={"shape": [2], "dtype": "i4", "fill_value": {"x": 1}})
        assert problem(plain) == (422, "bad-definition")
    found = np.zeros(
        1, [("x", "<i2"), ("y", ">f4", 2), ("s", "S3"), ("n", [("a", "u1"), ("t", "<M8[s]")]), ("c", "<c8", 3)]
    )
    found["x"], found["y"], found["s"], found["c"] = 7, [1.5, np.nan], b"ab", 1 + 2j
    found["n"]["a"], found["n"]["t"] = 3, 9
    stored = json.loads((tmp_path / "a" / ".zarray").read_bytes())["fill_value"]
    assert base64.b64decode(stored) == found.tobytes()


@pytest.mark.parametrize("more", [{"x": 1}, {"attributes": {}}, {"_nczarr_group": None}])
def test_a_zgroup_has_no_other_members(tmp_path: Path, more: dict[str, Any]) -> None:
    """[Zarr v2 specification, "Groups": other keys MUST NOT be present]; those of other writers are read."""
    with writable(tmp_path) as client:
        answer = client.put("/zarr/data/g/.zgroup", content=json.dumps({"zarr_format": 2, **more}))
        assert (problem(answer), answer.json()["member"]) == ((422, "bad-definition"), next(iter(more)))
        assert client.put("/zarr/data/g/.zgroup", content='{"zarr_format": 2}').status_code in (200, 201, 204)
        array = {"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "|u1", "compressor": None, "fill_value": 0}
        document = {**array, "order": "C", "filters": None, **more}  # of these they SHOULD be ignored
        assert client.put("/zarr/data/g/a/.zarray", content=json.dumps(document)).status_code in (200, 201, 204)
        (tmp_path / "old").mkdir()
        (tmp_path / "old" / ".zgroup").write_text(json.dumps({"zarr_format": 2, **more}))
        assert client.get("/v1/metadata/data/old").json()["kind"] == "group"

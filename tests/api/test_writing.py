"""Writing over HTTP: what is stored, what is answered, and that a refused or cut request changes no byte."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import socket
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import google_crc32c
import httpx
import numpy as np
import pytest
import tensorstore as ts
import zarr
from numpy.typing import NDArray

from hyperslab import RemoteArray
from hyperslab.api.options import ApiOptions
from hyperslab.arrays.chunks import ReadCost
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.plan import ReadPlan
from hyperslab.arrays.service import build
from hyperslab.engine.selection import normalise
from hyperslab.storage import StoreConfig, open_store
from hyperslab.wire import pack_objects
from tests.api.support import running, saved, writable
from tests.arrays.support import snapshot
from tests.documents import zarray

JSON = {"Content-Type": "application/json"}
NPY = {"Content-Type": "application/x-npy"}
A = "/v1/metadata/data/a"
SLICE = "/v1/slice/data/a"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    """A writable service on an empty folder, with uploads capped at one megabyte."""
    with writable(tmp_path, ApiOptions(max_upload_bytes=1 << 20)) as found:
        yield found


def make(client: httpx.Client, **members: Any) -> httpx.Response:
    definition = {"shape": [6, 8], "chunks": [4, 4], "dtype": "<i4", **members}
    answer = client.put(A, json=definition)
    assert answer.status_code == 201, answer.text
    return answer


def npy_of(descr: str, shape: str = "(6, 8)") -> bytes:
    """An npy file whose header says ``descr`` and ``shape``."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(1024)


def stored_document(**members: Any) -> bytes:
    return json.dumps(zarray([6, 8], [4, 4], **members)).encode()


def read(client: httpx.Client, select: str = "", path: str = SLICE) -> NDArray[Any]:
    answer = client.get(path, params={"select": select, "format": "npy"})
    assert answer.status_code == 200, answer.text
    values: NDArray[Any] = np.load(io.BytesIO(answer.content), allow_pickle=False)
    return values


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    document: dict[str, Any] = answer.json()
    assert document["code"] == code
    return document


def test_a_new_array_answers_with_its_document_and_all_libraries_open_it(client: httpx.Client, tmp_path: Path) -> None:
    members = {"fill_value": 7, "attributes": {"unit": "m"}, "dimension_names": ["y", "x"]}
    answer = make(client, **members)

    document = answer.json()
    assert answer.headers["location"] == A
    assert answer.headers["etag"] == client.get(A).headers["etag"]
    assert (document["shape"], document["fill_value"], document["dimension_names"]) == ([6, 8], 7, ["y", "x"])
    assert document["compressor"]["cname"] == "lz4"
    path = str(tmp_path / "a")
    assert zarr.open_array(path, mode="r", zarr_format=2)[0, 0] == 7
    opened = ts.open({"driver": "zarr", "kvstore": {"driver": "file", "path": path}}, read=True).result()
    assert opened[0, 0].read().result() == 7


@pytest.mark.parametrize(
    ("asked", "member"),
    [
        ({"chunk_layout": {"chunk": {"shape": [4, 8]}}}, "chunk_layout"),
        ({"chunk_layout": {"read_chunk": {"shape": [2, 4]}}}, "chunk_layout"),
        ({"chunk_layout": {"inner_order": [1, 0]}}, "chunk_layout"),
        ({"kind": "array", "attributes": {"unit": "s"}}, "attributes.unit"),
        ({"kind": "array", "attributes": {"offset": None}}, "attributes.offset"),
        ({"dimension_names": ["x", "y"]}, "dimension_names"),
        ({"kind": "group", "attributes": {"unit": "s"}}, "kind"),
        ({"dtype": "<i4"}, None),
        ({"fill_value": 0}, None),
        ({"chunk_layout": {"chunk": {"shape": [-1, 4], "shape_soft_constraint": [9, 9]}, "inner_order": [0, 1]}}, None),
        ({"chunk_layout": {"inner_order_soft_constraint": [1, 0]}, "chunk_elements": 3}, None),
        ({"attributes": {"unit": "m", "limit": "NaN"}, "dimension_names": ["y", "x"]}, None),
    ],
)
def test_what_is_opened_has_all_that_is_asked_for(
    client: httpx.Client, tmp_path: Path, asked: dict[str, Any], member: str | None
) -> None:
    make(client, dimension_names=["y", "x"])
    (tmp_path / "a" / ".zattrs").write_text('{"unit": "m", "limit": NaN, "_ARRAY_DIMENSIONS": ["y", "x"]}')

    answer = client.put(A, json=asked, params={"mode": "open"})

    if member is None:
        assert (answer.status_code, answer.json()["shape"]) == (200, [6, 8])
    else:
        assert problem(answer, 409, "node-exists")["member"] == member


def test_a_dtype_may_be_named(client: httpx.Client) -> None:
    fields = [["x", "float32"], ["y", "uint8", [2]]], [["x", "<f4"], ["y", "|u1", [2]]]
    known = {"uint16": "<u2", "int8": "|i1", "bool": "|b1", "complex64": "<c8", "datetime64[ns]": "<M8[ns]"}
    for named, stored in (*known.items(), fields):
        made = client.put(A, json={"shape": [4], "dtype": named}, params={"mode": "replace"})
        assert (made.status_code, made.json()["dtype"]) == (201, stored)
        assert client.put(A, json={"shape": [4], "dtype": named}, params={"mode": "open"}).status_code == 200
    for name in ("float128", "int7", "uint16 ", "datetime64"):
        refused = client.put(A, json={"shape": [4], "dtype": name}, params={"mode": "replace"})
        assert problem(refused, 422, "bad-definition")["member"] == "dtype"


def test_a_nan_in_attributes_stays_as_it_was_written(client: httpx.Client, tmp_path: Path) -> None:
    make(client)
    stored = tmp_path / "a" / ".zattrs"
    stored.write_text('{"missing": NaN, "range": [0, Infinity], "word": "NaN"}')
    shown = client.get(A).json()["attributes"]
    assert shown == {"missing": "NaN", "range": [0, "Infinity"], "word": "NaN"}

    problem(client.patch(A, content=b'{"attributes": {"x": NaN}}', headers=JSON), 400, "bad-body")
    problem(client.patch(A, content=b'{"attributes": {"x": [-Infinity]}}', headers=JSON), 400, "bad-body")
    assert client.patch(A, json={"attributes": {**shown, "runs": 1}}).status_code == 200

    assert stored.read_text() == '{"missing":NaN,"range":[0,Infinity],"word":"NaN","runs":1}'


def test_a_group_is_opened_with_the_attributes_that_it_has(client: httpx.Client) -> None:
    client.put("/v1/metadata/data/g", json={"attributes": {"run": 1, "by": "me"}})

    opened = client.put("/v1/metadata/data/g", json={"attributes": {"run": 1}}, params={"mode": "open"})
    differs = client.put("/v1/metadata/data/g", json={"attributes": {"run": 2}}, params={"mode": "open"})

    assert opened.status_code == 200
    assert problem(differs, 409, "node-exists")["member"] == "attributes.run"


@pytest.mark.parametrize(
    ("select", "index"),
    [
        ("3,:,1", np.s_[3, :, 1]),
        ("...,0", np.s_[..., 0]),
        (":,::-1,2:0:-1", np.s_[:, ::-1, 2:0:-1]),
        ("1:5:2,1", np.s_[1:5:2, 1]),
        ("2", np.s_[2]),
        ("0,0,0", np.s_[0, 0, 0]),
        ("[5,0],:,[2,0]", (np.ix_([5, 0], [0, 1], [2, 0]))),
        ("1,[1,0],-1", np.s_[1, [1, 0], -1]),
    ],
)
def test_parts_of_a_subarray_are_read_and_written(client: httpx.Client, select: str, index: Any) -> None:
    values = np.zeros(6, [("x", "<i4", (2, 3)), ("y", "<f8")])
    values["x"] = np.arange(36).reshape(6, 2, 3)
    client.put(A, json={"shape": [6], "chunks": [4], "dtype": [["x", "<i4", [2, 3]], ["y", "<f8"]]})
    client.put(SLICE, content=saved(values), headers=NPY)
    query = {"field": "x", "select": select}
    expected = values["x"][index]

    plan = client.get("/v1/plan/data/a", params=query).json()
    read_back = client.get(SLICE, params={**query, "format": "npy"})
    assert (plan["shape"], plan["nbytes"]) == ([*expected.shape], expected.nbytes)
    np.testing.assert_array_equal(np.load(io.BytesIO(read_back.content)), expected)
    raw = client.get(SLICE, params={**query, "format": "raw"}, headers={"Range": "bytes=4-"})
    assert raw.content in (expected.astype("<i4").tobytes()[4:], raw.content if expected.nbytes == 4 else None)
    assert plan["etag"] == client.head(SLICE, params={**query, "format": "raw"}).headers["etag"]

    changed = np.asarray(-expected - 1, "<i4")
    tag = {"If-Match": plan["etag"]}
    written = client.put(SLICE, params=query, content=saved(changed), headers={**NPY, **tag})
    assert written.status_code == 204, written.text
    problem(client.put(SLICE, params=query, content=saved(changed), headers={**NPY, **tag}), 412, "precondition-failed")
    values["x"][index] = changed
    stored = client.get(SLICE, params={"format": "npy"})
    np.testing.assert_array_equal(np.load(io.BytesIO(stored.content)), values)
    remote = RemoteArray(f"{client.base_url}{A}", field="x")
    basic = index if not isinstance(index[0] if isinstance(index, tuple) else 0, np.ndarray) else np.s_[2:4, 1, ::2]
    np.testing.assert_array_equal(remote[basic], values["x"][basic])
    remote[basic] = 7
    values["x"][basic] = 7
    np.testing.assert_array_equal(remote[...], values["x"])
    assert client.get(SLICE, params={"field": "x", "select": "0,2,0"}).json()["code"] == "index-out-of-range"
    assert client.get(SLICE, params={"field": "x", "select": "0,0,0,0"}).json()["code"] == "too-many-indices"


def test_maps_that_could_not_be_read_back_are_refused(client: httpx.Client, tmp_path: Path) -> None:
    """One of them would make its whole chunk unreadable."""
    make(client, shape=[4], chunks=[2], dtype="|O", filters=[{"id": "msgpack2"}], fill_value=None)
    assert client.put(SLICE, content=pack_objects([{"a": 1}, {b"b": 2}, [{"c": {}}], 4])).status_code == 204
    before = snapshot(tmp_path)
    for item in ({1: 2}, [[{"a": {None: 1}}]]):
        answer = client.put(SLICE, content=pack_objects([0, 0, 0, item]))
        assert "neither text nor bytes" in problem(answer, 400, "bad-body")["detail"]

    assert snapshot(tmp_path) == before
    assert client.get(SLICE, params={"select": "3", "format": "json"}).json() == 4


def test_chunks_are_written_decoded_or_as_they_are_stored(client: httpx.Client, tmp_path: Path) -> None:
    make(client, compressor={"id": "zlib", "level": 1})
    edge = np.arange(8, dtype="<i4").reshape(2, 4)
    assert client.put("/v1/chunk/data/a/1.1", content=edge.tobytes()).status_code == 204
    stored = (tmp_path / "a" / "1.1").read_bytes()
    answer = client.put("/v1/chunk/data/a/0.0", params={"format": "stored"}, content=stored)

    assert answer.status_code == 204
    assert (tmp_path / "a" / "0.0").read_bytes() == stored
    assert answer.headers["etag"] == client.get("/v1/chunk/data/a/0.0", params={"format": "stored"}).headers["etag"]
    np.testing.assert_array_equal(read(client, "4:,4:"), edge)
    assert client.delete("/v1/chunk/data/a/1.1").status_code == 204
    problem(client.delete("/v1/chunk/data/a/1.1"), 404, "chunk-not-found")
    assert not read(client, "4:,4:").any()


def test_conditions_hold_for_boxes_chunks_keys_and_nodes(client: httpx.Client) -> None:
    """The tag that a read gave lets one write through; the tag that the write gave lets the next one through."""
    make(client)
    for url in (SLICE, "/v1/chunk/data/a/0.0"):
        tag = client.get(url).headers["etag"]
        first = client.put(url, content="1", headers={**JSON, "If-Match": tag})
        assert first.status_code == 204
        stale = client.put(url, content="2", headers={**JSON, "If-Match": tag})
        assert problem(stale, 412, "precondition-failed")["current"] == stale.headers["etag"] == first.headers["etag"]
        assert first.headers["etag"] == client.get(url).headers["etag"]
        assert client.put(url, content="3", headers={**JSON, "If-Match": first.headers["etag"]}).status_code == 204
    node = client.get(A).headers["etag"]
    patched = client.patch(A, json={"attributes": {"k": 1}}, headers={"If-Match": node})
    assert patched.status_code == 200
    problem(client.patch(A, json={"shape": [1, 1]}, headers={"If-Match": node}), 412, "precondition-failed")
    problem(client.delete(A, headers={"If-Match": node}), 412, "precondition-failed")
    assert client.delete(A, headers={"If-Match": patched.headers["etag"]}).status_code == 204


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
@pytest.mark.parametrize("key", ["a/.zarray", "a/.zattrs", "a/0.0"])
def test_a_key_that_was_written_since_stays_as_it_is(
    client: httpx.Client, tmp_path: Path, method: str, key: str
) -> None:
    make(client, attributes={"k": 1}, compressor=None)
    client.put(SLICE, content="1", headers=JSON)
    url = f"/zarr/data/{key}"
    body = client.get(url).content if method == "PUT" else b""
    written = 1_700_000_000
    os.utime(tmp_path / key, (written + 0.5, written + 0.5))
    before = client.get(url).headers
    snap = snapshot(tmp_path)

    def ask(date: str, **more: str) -> httpx.Response:
        return client.request(method, url, content=body, headers={"If-Unmodified-Since": date, **more})

    refused = problem(ask(formatdate(written - 1, usegmt=True)), 412, "precondition-failed")
    assert (refused["header"], refused["current"]) == ("If-Unmodified-Since", before["etag"])
    problem(ask(before["last-modified"], **{"If-Match": '"another"'}), 412, "precondition-failed")
    assert snapshot(tmp_path) == snap
    assert client.get(url).headers["last-modified"] == before["last-modified"]
    assert ask(before["last-modified"]).status_code == 204
    if method == "PUT":  # it is newer by now: a tag, and a date that is none, win over that
        tag = client.get(url).headers["etag"]
        assert ask(before["last-modified"], **{"If-Match": tag}).status_code == 204
        assert ask("yesterday").status_code == 204


def test_a_chunk_as_it_is_stored_has_a_time_too(client: httpx.Client, tmp_path: Path) -> None:
    make(client, compressor=None)
    client.put(SLICE, content="1", headers=JSON)
    os.utime(tmp_path / "a" / "0.0", (1_700_000_000, 1_700_000_000))
    url, since = "/v1/chunk/data/a/0.0?format=stored", {"If-Unmodified-Since": formatdate(1_600_000_000, usegmt=True)}
    body = client.get(url).content

    problem(client.put(url, content=body, headers=since), 412, "precondition-failed")
    problem(client.delete("/v1/chunk/data/a/0.0", headers=since), 412, "precondition-failed")
    assert client.get(url, headers=since).status_code == 412
    assert read(client).all()


def test_whoever_has_read_the_document_of_a_field_may_change_the_node(client: httpx.Client) -> None:
    make(client, dtype=[["x", "<f4"], ["y", "<i2"]])
    tag = client.get(A, params={"field": "y"}).headers["etag"]

    assert client.patch(A, json={"attributes": {"k": 1}}, headers={"If-Match": tag}).status_code == 200
    problem(client.patch(A, json={"attributes": {"k": 2}}, headers={"If-Match": tag}), 412, "precondition-failed")


def test_resize_and_attributes_are_patched_together(client: httpx.Client) -> None:
    make(client, attributes={"a": 1, "b": {"c": 2}})
    client.put(SLICE, content="5", headers=JSON)
    answer = client.patch(A, json={"shape": [3, None], "attributes": {"a": None, "b": {"d": 3}}})

    assert answer.json()["shape"] == [3, 8]
    assert answer.json()["attributes"] == {"b": {"c": 2, "d": 3}}
    client.patch(A, json={"shape": [6, 8]}, params={"expand_only": "true"})
    assert (read(client)[:3] == 5).all()
    assert not read(client)[3:].any()


def test_append_reports_where_and_repeats_nothing(client: httpx.Client) -> None:
    make(client)
    rows = np.full((2, 8), 9, "<i4")
    url = "/v1/append/data/a"
    first = client.post(url, content=rows.tobytes(), headers={"Idempotency-Key": "k"})
    again = client.post(url, content=rows.tobytes(), headers={"Idempotency-Key": "k"})
    other = client.post(url, content=rows[:1].tobytes(), headers={"Idempotency-Key": "k"})
    changed = client.post(url, content=(rows + 1).tobytes(), headers={"Idempotency-Key": "k"})
    for refused in (other, changed):
        assert problem(refused, 400, "bad-parameter")["name"] == "Idempotency-Key"

    assert first.json() == {"path": "data/a", "axis": 0, "offset": 6, "length": 2, "shape": [8, 8], "repeated": False}
    assert (first.status_code, again.status_code, again.json()["repeated"]) == (201, 200, True)
    assert (
        client.post(url, params={"axis": 1}, content=saved(np.ones((8, 3), "<i4")), headers=NPY).json()["offset"] == 8
    )
    conflict = problem(client.post(url, params={"at": 6}, content=b"\0" * 44), 409, "append-conflict")
    assert conflict["length"] == 8
    assert client.get(A).json()["shape"] == [8, 11]


def test_an_append_on_condition_is_repeated_like_any_other(client: httpx.Client) -> None:
    make(client)
    url, rows = "/v1/append/data/a", bytes(32)
    headers = {"Idempotency-Key": "k", "If-Match": client.get(A).headers["etag"]}

    first = client.post(url, content=rows, headers=headers)
    again = client.post(url, content=rows, headers=headers)

    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == {**first.json(), "repeated": True}
    assert again.headers["etag"] == first.headers["etag"]
    problem(client.post(url, content=rows, headers={**headers, "Idempotency-Key": "l"}), 412, "precondition-failed")
    assert client.get(A).json()["shape"] == [7, 8]


def test_a_note_of_an_append_that_is_not_ours_is_not_believed(client: httpx.Client, tmp_path: Path) -> None:
    stored = tmp_path / "a" / ".zarray"
    make(client)
    document = json.loads(stored.read_text())
    note: dict[str, Any] = {"key": "k", "axis": 0, "offset": 6, "length": 2}
    wrong: list[dict[str, Any]] = [{"axis": "0"}, {"axis": 2}, {"offset": -1}, {"length": None}, {"digest": 1}]
    for entry in ({"key": "k"}, ["k"], *({**note, **change} for change in wrong)):
        stored.write_text(json.dumps({**document, "hyperslab": {"appends": [entry]}}))

        answer = client.post("/v1/append/data/a", content=bytes(64), headers={"Idempotency-Key": "k"})

        assert (answer.status_code, answer.json()["offset"], answer.json()["repeated"]) == (201, 6, False), entry


def test_what_is_said_of_an_append_has_to_be_true(client: httpx.Client) -> None:
    """A client that knows the array as it was must not have its bytes taken for something else."""
    make(client)
    url, rows = "/v1/append/data/a", bytes(64)
    for headers in ({"Array-Dtype": '"<f4"'}, {"Array-Shape": "[2,9]"}, {"Array-Shape": "[3,8]"}, {"Array-Shape": "2"}):
        problem(client.post(url, content=rows, headers=headers), 400, "bad-body")
    assert client.get(A).json()["shape"] == [6, 8]

    spelt = problem(client.post(url, content=rows, headers={"Array-Dtype": "<i4x"}), 400, "bad-body")
    assert (spelt["expected"], spelt["found"]) == ('"<i4"', "<i4x")
    said = client.post(url, content=rows, headers={"Array-Dtype": '"<i4"', "Array-Shape": "[2,8]"})
    assert said.json()["shape"] == [8, 8]


@pytest.mark.parametrize("dtype", ["<i4", "|O"])
def test_rows_that_hold_nothing_are_counted_by_their_shape(client: httpx.Client, dtype: str) -> None:
    definition = {"shape": [2, 0], "chunks": [2, 2], "dtype": dtype}
    objects = {"filters": [{"id": "vlen-utf8"}]} if dtype == "|O" else {}
    assert client.put("/v1/metadata/data/e", json={**definition, **objects}).status_code == 201
    url, body = "/v1/append/data/e", pack_objects([]) if objects else b""

    unsaid = problem(client.post(url, content=body), 400, "bad-body")
    assert "Array-Shape" in unsaid["detail"]
    for shape in ("[3,1]", "[3]", "[-1,0]", "[true,0]", "3", "x"):
        problem(client.post(url, content=body, headers={"Array-Shape": shape}), 400, "bad-body")
    if not objects:
        problem(client.post(url, content=bytes(4), headers={"Array-Shape": "[3,0]"}), 400, "bad-body")

    said = client.post(url, content=body, headers={"Array-Shape": "[3,0]"})
    assert (said.status_code, said.json()["offset"], said.json()["shape"]) == (201, 2, [5, 0])


def test_the_tag_of_one_append_lets_the_next_one_through(client: httpx.Client) -> None:
    """Node tags chain: whoever appends knows what the array is now, and so whether somebody else has changed it."""
    tag = make(client).headers["etag"]
    for _ in range(3):
        answer = client.post("/v1/append/data/a", content=bytes(32), headers={"If-Match": tag})
        assert answer.status_code == 201
        stale, tag = tag, answer.headers["etag"]

    refused = client.post("/v1/append/data/a", content=bytes(32), headers={"If-Match": stale})
    assert problem(refused, 412, "precondition-failed")["current"] == tag == client.get(A).headers["etag"]
    assert client.get(A).json()["shape"] == [9, 8]


def test_a_refused_patch_changes_neither_shape_nor_attributes(client: httpx.Client, tmp_path: Path) -> None:
    make(client, attributes={"large": "y" * (9 << 20)})
    client.put(SLICE, content="7", headers=JSON)
    before = snapshot(tmp_path)
    too_large = {"another": "y" * (9 << 20)}

    problem(client.patch(A, json={"shape": [2, 2], "attributes": too_large}), 422, "bad-definition")
    problem(client.patch(A, json={"shape": [2], "attributes": {"x": 1}}), 422, "bad-definition")
    problem(client.patch(A, json={"shape": [2, 2], "attributes": [1]}), 422, "bad-definition")

    assert snapshot(tmp_path) == before


def _half_way(client: httpx.Client, request: str, body: bytes, meanwhile: Callable[[], object], *headers: str) -> int:
    """Send the head of a write, let something happen when the service asks for the body, then send that; the status."""
    address = urlsplit(str(client.base_url))
    head = (
        f"{request} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\nConnection: close\r\n"
    )
    head += "".join(f"{line}\r\n" for line in (*headers, ""))
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        connection.sendall(head.encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 100 ")
        meanwhile()
        connection.sendall(body)
        return int(connection.makefile("rb").readline().split()[1])


@pytest.mark.parametrize(
    ("select", "body", "status"),
    [
        (":", b"[[7,7]]", 409),
        (":", b"7", 409),
        ("-1", b"[7,7]", 409),
        ("[-1]", b"[[7,7]]", 409),
        ("0", b"[7,7]", 204),
        ("[0]", b"7", 204),
    ],
)
def test_a_write_goes_into_the_cells_that_its_client_saw(
    client: httpx.Client, select: str, body: bytes, status: int
) -> None:
    """Not over the frames that were appended while it was sent."""
    make(client, shape=[1, 2], chunks=[1, 2])

    def append() -> None:
        answer = client.post("/v1/append/data/a", content=np.arange(10, 16, dtype="<i4").tobytes())
        assert answer.status_code == 201

    assert _half_way(client, f"PUT {SLICE}?select={select}", body, append) == status

    first = [7, 7] if status == 204 else [0, 0]
    assert read(client).tolist() == [first, [10, 11], [12, 13], [14, 15]]


SMALL = {"shape": [1, 2], "chunks": [1, 2], "compressor": None}
BYTES = ("PUT", f"{A}?mode=replace", {"shape": [1, 2], "chunks": [1, 2], "dtype": "|u1"})


@pytest.mark.parametrize(
    ("made", "change", "request_", "body", "status"),
    [
        ({**SMALL, "shape": [3, 2]}, ("PATCH", A, {"shape": [2, 2]}), f"PUT {SLICE}?select=:", b"7", 409),
        (
            {**SMALL, "shape": [2, 2]},
            ("PATCH", A, {"shape": [1, 2]}),
            "PUT /v1/chunk/data/a/1.0?format=stored",
            b"\7" * 8,
            409,
        ),
        (
            {**SMALL, "chunks": [2, 2]},
            ("PATCH", A, {"shape": [2, 2]}),
            "PUT /v1/chunk/data/a/0.0?format=stored",
            b"\7" * 16,
            412,
        ),
        (SMALL, BYTES, f"PUT {SLICE}?select=0", b"[300,300]", 409),  # 300 must not become 44
        (SMALL, BYTES, "PUT /v1/chunk/data/a/0.0", b"[[300,300]]", 409),
        (SMALL, BYTES, "POST /v1/append/data/a", b"[[300,300]]", 409),
        (SMALL, BYTES, "POST /v1/points/data/a?values=true", b'{"coordinates": [[0, 0]], "values": [300]}', 409),
    ],
    ids=["cut", "chunk cut off", "edge of the chunk", "slice", "chunk", "append", "points"],
)
def test_what_was_meant_for_another_array_is_not_stored(
    client: httpx.Client, made: dict[str, Any], change: tuple[str, str, Any], request_: str, body: bytes, status: int
) -> None:
    """The array was cut, grown or replaced while the body was sent; nothing shows in it, however it grows again."""
    make(client, **made)
    tag = [f"If-Match: {client.get('/v1/chunk/data/a/0.0').headers['etag']}"] if status == 412 else []
    method, url, document = change

    def meanwhile() -> None:
        client.request(method, url, json=document).raise_for_status()

    assert _half_way(client, request_, body, meanwhile, *tag) == status
    client.patch(A, json={"shape": [4, 2]}).raise_for_status()
    assert not read(client).any()


@pytest.mark.parametrize("url", ["", "memory://tags"], ids=["folder", "memory"])
@pytest.mark.parametrize("value", [7, 0], ids=["other values", "fill values"])
@pytest.mark.parametrize("chunk", [2, 1 << 18], ids=["small chunks", "large chunks"])
def test_a_read_tells_that_it_was_written_since_its_tag_was_made(
    tmp_path: Path, url: str, value: int, chunk: int
) -> None:
    store = open_store(StoreConfig(name="data", url=url or str(tmp_path), writable=True, durability="rename"))
    service = build([MountedStore("data", store, writable=True)])
    definition = {"shape": [2 * chunk], "chunks": [chunk], "dtype": "<i4"}
    service.creator.create_array("data/a", definition, mode="replace")
    service.writer.write("data/a", (), np.full(2 * chunk, 1, "<i4"))
    array = service.catalog.open_array("data/a")

    def planned() -> ReadPlan:
        selection = normalise((slice(chunk - 2, chunk + 2),), array.metadata.shape)
        return service.reader.look_up(service.reader.plan(array, selection))

    def read(plan: ReadPlan) -> tuple[list[int], bool, bool]:
        cost = ReadCost()
        values, found = service.reader.read(plan, cost=cost)
        return values.tolist(), cost.changed, found.tag == plan.tag

    late, in_time = planned(), planned()
    assert read(in_time) == ([1] * 4, False, True)
    service.writer.write("data/a", (slice(chunk, None),), np.full(chunk, value, "<i4"))

    assert read(late) == ([1, 1, value, value], True, False)
    assert read(planned()) == ([1, 1, value, value], False, True)
    service.close()


def test_what_means_nothing_in_the_dtype_is_refused_however_it_is_cast(client: httpx.Client) -> None:
    """Times that do not fit, and words."""
    times = ("<M8[as]", "<M8[s]"), ("<m8[as]", "<m8[Y]")
    words = ((dtype, words) for dtype in ("<M8[s]", "<f4", "|u1") for words in ("<U4", "|S4"))
    for dtype, sent in (*times, *words):
        client.put(A, params={"mode": "replace"}, json={"shape": [6, 8], "dtype": dtype}).raise_for_status()
        body = saved(np.full((6, 8), "word").astype(sent) if sent[1] in "US" else np.full((6, 8), 10, "<i8").view(sent))
        for casting in ("safe", "same_kind", "unsafe"):
            problem(client.put(SLICE, params={"casting": casting}, content=body, headers=NPY), 400, "bad-body")
    client.put(A, params={"mode": "replace"}, json={"shape": [2], "dtype": "<M8[as]"}).raise_for_status()
    problem(client.put(SLICE, content=b'"-0001-01-01"', headers=JSON), 400, "bad-body")


def test_a_digest_is_checked_before_anything_is_stored(client: httpx.Client, tmp_path: Path) -> None:
    make(client)
    body = np.ones((6, 8), "<i4").tobytes()
    before = snapshot(tmp_path)
    for name, digest in (
        ("sha-256", hashlib.sha256(body).digest()),
        ("crc32c", google_crc32c.value(body).to_bytes(4, "big")),
    ):
        good, bad = (base64.b64encode(value).decode() for value in (digest, digest[::-1]))
        refused = client.put(SLICE, content=body, headers={"Content-Digest": f"{name}=:{bad}:"})
        told = problem(refused, 400, "digest-mismatch")
        assert (told["algorithm"], told["expected"]) == (name, bad)
        assert snapshot(tmp_path) == before
        for header in (f"{name}=:{good}:", f"unixsum=:AAAA:, {name}=:{good}:", "sha=:AAAA:"):
            assert client.put(SLICE, content=body, headers={"Content-Digest": header}).status_code == 204
        client.put(SLICE, content="0", headers=JSON)


NO_DIGESTS = ("sha-256", "sha-256=abc", "sha-256=:?:", "sha-256=:A:", "=:AAAA:", "sha-256=:AAAA: x")
BAD: list[tuple[str, str, bytes, dict[str, str], int, str]] = [
    ("PUT", SLICE, b"\0" * 191, {}, 400, "bad-body"),
    ("PUT", SLICE, b"\0" * 193, {}, 400, "bad-body"),
    ("PUT", SLICE, saved(np.zeros((6, 7), "<i4")), NPY, 400, "bad-body"),
    ("PUT", SLICE, saved(np.zeros((6, 8), "<i4")) + bytes(160), NPY, 400, "bad-body"),
    ("PUT", SLICE, saved(np.zeros((6, 8), "<f8")), NPY, 400, "bad-body"),
    ("PUT", SLICE, npy_of("'<M8[01s]'"), NPY, 400, "bad-body"),
    ("PUT", SLICE, npy_of("'<M8\\x5bs/2]'"), NPY, 400, "bad-body"),
    ("PUT", SLICE, npy_of("[('a', ('<M8[s/2]', (2,)))]"), NPY, 400, "bad-body"),
    ("PUT", SLICE, npy_of("{'names': ['a'], 'formats': ['<M8[s/2]']}"), NPY, 400, "bad-body"),
    ("PUT", SLICE, npy_of("5"), NPY, 400, "bad-body"),
    ("PUT", SLICE, npy_of("'<i4'", f"(1{'0' * 30},)"), NPY, 400, "bad-body"),
    ("PUT", SLICE + "?casting=unsafe", saved(np.full((6, 8), "x")), NPY, 400, "bad-body"),
    ("PUT", SLICE + "?casting=unsafe", saved(np.full((6, 8), b"x")), NPY, 400, "bad-body"),
    ("PUT", SLICE, b"PK\x03\x04" + bytes(400), NPY, 400, "bad-body"),
    ("PUT", SLICE, bytes(192), {"Array-Dtype": '"<M8[s/2]"'}, 400, "bad-body"),
    ("PUT", SLICE + "?casting=unsafe", saved(np.full((6, 8), np.nan)), NPY, 400, "bad-body"),
    ("PUT", SLICE, b"1.5", JSON, 400, "bad-body"),
    ("PUT", SLICE, b'"NaN"', JSON, 400, "bad-body"),
    ("PUT", SLICE, b"[[1]]", JSON, 400, "bad-body"),
    ("PUT", SLICE, b"{", JSON, 400, "bad-body"),
    ("PUT", SLICE, b"1", {"Content-Type": "image/png"}, 415, "unsupported-media-type"),
    ("PUT", SLICE, b"\0" * 192, {"Array-Shape": "[8,6]"}, 400, "bad-body"),
    ("PUT", SLICE, b"\0" * 192, {"Array-Dtype": '"<u4"'}, 400, "bad-body"),
    ("PUT", SLICE, b"\0" * 192, {"Content-Encoding": "gzip"}, 415, "unsupported-media-type"),
    *(("PUT", SLICE, b"\0" * 192, {"Content-Digest": text}, 400, "bad-parameter") for text in NO_DIGESTS),
    ("PUT", SLICE, b"\0" * 192, {"Content-Range": "bytes 0-191/1000"}, 400, "bad-parameter"),
    ("PUT", "/zarr/data/a/.zattrs", b"{}", {"Content-Encoding": "gzip"}, 415, "unsupported-media-type"),
    ("PUT", SLICE + "?select=6", b"1", JSON, 422, "index-out-of-range"),
    ("PUT", SLICE + "?select=a", b"1", JSON, 400, "bad-selection"),
    ("PUT", SLICE + "?field=x", b"1", JSON, 422, "field-unknown"),
    ("PUT", SLICE, b"\0" * (1 << 21), {}, 413, "too-large"),
    ("PUT", "/v1/chunk/data/a/2.0", b"1", JSON, 422, "index-out-of-range"),
    ("PUT", "/v1/chunk/data/a/0.0?format=stored", b"junk", {}, 400, "bad-body"),
    ("PUT", "/v1/slice/data/nothing", b"1", JSON, 404, "node-not-found"),
    ("PATCH", A, b'{"shape": [-1, 8]}', JSON, 422, "bad-definition"),
    ("PATCH", A, b'{"shape": [6]}', JSON, 422, "bad-definition"),
    ("PATCH", A, b'{"shape": [6.5, 8]}', JSON, 422, "bad-definition"),
    ("PATCH", A, b'{"chunks": [1, 1]}', JSON, 422, "bad-definition"),
    ("PATCH", A + "?expand_only=1", b'{"shape": [5, 8]}', JSON, 422, "bad-definition"),
    ("PATCH", A + "?shrink_only=1", b'{"shape": [5, 9]}', JSON, 422, "bad-definition"),
    ("POST", "/v1/append/data/a", b"\0" * 33, {}, 400, "bad-body"),
    ("POST", "/v1/append/data/a?axis=2", b"\0" * 32, {}, 400, "bad-parameter"),
    ("POST", "/v1/append/data/a", saved(np.zeros((1, 8), "<i4")) + b"!", NPY, 400, "bad-body"),
    ("POST", "/v1/append/data/a", saved(np.zeros((1, 7), "<i4")), NPY, 400, "bad-body"),
    ("PUT", "/v1/metadata/data/a/b", b'{"kind": "group"}', JSON, 422, "wrong-kind"),
    ("PUT", "/v1/metadata/data/b", b'{"shape": [2]}', JSON, 422, "bad-definition"),
    ("PUT", "/v1/metadata/data/b", b'{"shape": [2], "dtype": "<i3"}', JSON, 422, "bad-definition"),
    ("PUT", "/v1/metadata/data/b", b'{"shape": [2], "dtype": "<i4", "typo": 1}', JSON, 422, "bad-definition"),
    ("PUT", "/v1/metadata/data/b", b'{"shape": [2], "dtype": "<i4", "compressor": {"id": "pickle"}}', JSON, 422,
     "bad-definition"),
    ("PUT", "/zarr/data/a/9.9", b"", {}, 400, "bad-path"),
    ("PUT", "/zarr/data/a/0.0", b"junk", {}, 400, "bad-body"),
    ("PUT", "/zarr/data/a/.zarray", b"{}", {}, 422, "bad-definition"),
    ("PUT", "/zarr/data/a/.zarray", b"{", {}, 400, "bad-body"),
    ("PUT", "/zarr/data/a/.zarray", stored_document(dtype="|O", filters=[{"id": "pickle"}]), {}, 422, "bad-definition"),
    ("PUT", "/zarr/data/a/.zattrs", b"[1]", {}, 400, "bad-body"),
    ("PUT", "/zarr/data/.zgroup", b"{}", {}, 422, "bad-definition"),
    ("PUT", "/zarr/data/.zmetadata", b"{}", {}, 422, "bad-definition"),
    ("PUT", "/zarr/data/c/zarr.json", b"{}", {}, 422, "bad-definition"),
    ("PUT", "/zarr/data/a/readme.txt", b"hello", {}, 400, "bad-path"),
    ("PUT", "/zarr/data/readme.txt", b"hello", {}, 400, "bad-path"),
    ("PUT", "/zarr/data/none/0.0", b"hello", {}, 400, "bad-path"),
    ("PUT", "/zarr/nostore/0.0", b"hello", {}, 404, "node-not-found"),
    ("DELETE", "/zarr/data/none/0.0", b"", {}, 404, "key-not-found"),
    ("DELETE", "/zarr/data/none/zarr.json", b"", {}, 404, "key-not-found"),
    ("PUT", "/zarr/data/a/0.0/.zattrs", b"{}", {}, 422, "wrong-kind"),
    ("PUT", "/zarr/data/a/b/.zmetadata", b'{"zarr_consolidated_format": 1, "metadata": {}}', {}, 422, "wrong-kind"),
    ("PUT", "/zarr/data/a/b/.zgroup", b'{"zarr_format": 2}', {}, 422, "wrong-kind"),
    ("PUT", "/zarr/data/a/.zgroup", b'{"zarr_format": 2}', {}, 409, "node-exists"),
    ("PUT", "/zarr/data/.zarray", stored_document(), {}, 409, "node-exists"),
]  # fmt: skip


def test_bad_input_is_refused_and_changes_no_byte(client: httpx.Client, tmp_path: Path) -> None:
    make(client, compressor={"id": "zlib", "level": 1})
    client.put(SLICE, content="3", headers=JSON)
    before = snapshot(tmp_path)
    for method, url, body, headers, status, code in BAD:
        answer = client.request(method, url, content=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (status, code), (method, url, body[:200], answer.text)
        assert snapshot(tmp_path) == before


def test_a_shape_that_nobody_can_count_is_refused(client: httpx.Client) -> None:
    make(client, shape=[2**61, 2**61], chunks=[100, 100])

    for select in ("0:0", ":,0:0", ""):
        for form in ("raw", "json", "csv"):
            problem(client.get(SLICE, params={"select": select, "format": form}), 413, "too-large")
        problem(client.put(SLICE, params={"select": select}, content=b""), 413, "too-large")
        problem(client.put(SLICE, params={"select": select}, content=b"1", headers=JSON), 413, "too-large")


@pytest.mark.parametrize("route", ["slice", "plan"])
def test_what_63_bits_do_not_count_is_refused_with_a_split(client: httpx.Client, route: str) -> None:
    make(client, shape=[2**40, 2**20], chunks=[2**10, 2**10], dtype="<f8")

    refused = problem(client.get(f"/v1/{route}/data/a"), 413, "too-large")

    half = (2**63 - 1) // 2**23 // 2**10 * 2**10  # whole rows of chunks
    assert refused["requested"] == 2**63
    assert refused["boxes"] == [f"0:{half},0:{2**20}", f"{half}:{2**40},0:{2**20}"]
    written = problem(client.put(SLICE, content=b"1", headers=JSON), 413, "too-large")
    assert written["boxes"][0].startswith("0:")


def test_finite_numbers_in_json_never_become_infinite(client: httpx.Client) -> None:
    make(client, dtype="<f4", shape=[2], chunks=[2], fill_value="Infinity")
    b, record = "/v1/metadata/data/b", [["x", "<f4"], ["y", "<f4", [2]]]

    for body in ([1e300, 0], -1e300, "1e39", 10**60):
        problem(client.put(SLICE, json=body), 400, "bad-body")
    problem(client.put(b, json={"shape": [2], "dtype": "<f4", "fill_value": 1e300}), 422, "bad-definition")
    assert read(client).tolist() == [np.inf, np.inf]
    assert client.put(SLICE, json=["-Infinity", 1e38]).status_code == 204
    assert read(client).tolist() == [-np.inf, np.float32(1e38)]

    assert client.put(b, json={"shape": [1], "dtype": record}).status_code == 201
    problem(client.put("/v1/slice/data/b", json=[{"x": 0, "y": [0, 1e300]}]), 400, "bad-body")
    stored = stored_document(dtype="<f4", fill_value=1e300)  # is read as other libraries read it
    assert client.put("/zarr/data/c/.zarray", content=stored).status_code == 201
    assert read(client, "0,0:1", "/v1/slice/data/c").tolist() == [np.inf]


def test_a_body_over_the_limit_is_refused_with_boxes_that_fit(client: httpx.Client) -> None:
    make(client, shape=[1000, 1000], chunks=[100, 1000])

    refused = problem(client.put(SLICE, content=bytes(4_000_000)), 413, "too-large")
    assert (refused["requested"], refused["limit"]) == (4_000_000, 1 << 20)
    assert refused["boxes"] == ["0:200,0:1000", "200:400,0:1000", "400:600,0:1000", "600:800,0:1000", "800:1000,0:1000"]


def test_one_value_for_more_chunks_than_memory_holds_is_refused_with_a_split(client: httpx.Client) -> None:
    make(client, shape=[2**40], chunks=[1])

    refused = problem(client.put(SLICE, content="1", headers=JSON), 413, "too-large")
    assert (refused["unit"], refused["requested"]) == ("chunks", 2**40)
    assert refused["boxes"][0] == f"0:{refused['limit']}"
    appended = client.put("/v1/metadata/data/b", json={"shape": [0], "chunks": [1], "dtype": "|u1"})
    assert appended.status_code == 201
    problem(client.post("/v1/append/data/b", content=bytes(70_000)), 413, "too-large")


def test_an_upload_that_is_cut_changes_nothing(client: httpx.Client, tmp_path: Path) -> None:
    make(client)
    before = snapshot(tmp_path)
    parts = urlsplit(str(client.base_url))
    with socket.create_connection((parts.hostname or "", parts.port or 80)) as connection:
        connection.sendall(f"PUT {SLICE} HTTP/1.1\r\nHost: x\r\nContent-Length: 192\r\n\r\n".encode() + b"\1" * 100)

    assert not read(client).any()
    assert snapshot(tmp_path) == before


def test_a_read_only_store_refuses_every_write(tmp_path: Path) -> None:
    zarr.create_array(str(tmp_path / "a"), shape=(6, 8), chunks=(4, 4), dtype="<i4", zarr_format=2)[...] = 1
    before = snapshot(tmp_path)
    with running(tmp_path) as server, httpx.Client(base_url=server.url) as client:
        for answer in (
            client.put(SLICE, content="3", headers=JSON),
            client.put("/v1/chunk/data/a/0.0", content="3", headers=JSON),
            client.delete("/v1/chunk/data/a/0.0"),
            client.patch(A, json={"shape": [1, 1]}),
            client.put("/v1/metadata/data/b", json={"kind": "group"}),
            client.delete(A),
            client.post("/v1/append/data/a", content=b"\0" * 32),
            client.put("/zarr/data/a/0.0", content=b""),
            client.delete("/zarr/data/a/0.0"),
        ):
            problem(answer, 403, "read-only")

    assert snapshot(tmp_path) == before


def test_a_list_that_is_too_short_for_a_gigantic_selection_costs_nothing(client: httpx.Client) -> None:
    make(client, shape=[2**40, 2**20], chunks=[2**10, 2**10])

    for body in (b"[1]", b"[]", b"[[[1]]]"):
        assert problem(client.put(SLICE, content=body, headers=JSON), 400, "bad-body")["expected"] == 2**40

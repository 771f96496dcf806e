"""Records with padding: numpy copies fields only, and what lies between them must never be what memory held before."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from hyperslab import RemoteArray
from hyperslab.api.app import create_app
from tests.arrays.support import service_on
from tests.documents import zarray
from tests.server import served

SLICE = "/v1/slice/data/a"
DTYPE = [["a", "|u1"], ["", "|V3"], ["inner", [["b", "<i2"], ["", "|V2"]]], ["", "|V4"]]
STORED = np.arange(6 * 40 * 12, dtype=np.uint32).astype(np.uint8).reshape(6, 40, 12)
"""Bytes of each item, of which some are padding."""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".zarray").write_text(json.dumps(zarray([6, 40], [3, 20], DTYPE, fill_value=None)))
    for i, j in np.ndindex(2, 2):
        chunk = STORED[3 * i : 3 * i + 3, 20 * j : 20 * j + 20]
        (tmp_path / "a" / f"{i}.{j}").write_bytes(chunk.tobytes())
    with service_on(tmp_path) as service, served(create_app(service)) as url, httpx.Client(base_url=url) as http:
        yield http


def test_padding_is_read_as_it_is_stored(client: httpx.Client) -> None:
    parts: dict[str, Any] = {"": ..., "1": 1, "::2,::3": np.s_[::2, ::3], "::-1,::-1": np.s_[::-1, ::-1]}
    parts |= {"[0,5],[1,30]": np.ix_([0, 5], [1, 30]), "0,0": (0, 0)}
    for select, key in parts.items():
        for form in ("raw", "npy"):
            body = client.get(SLICE, params={"select": select, "format": form}).content
            assert body.endswith(STORED[key].tobytes()), (select, form)
    points = client.post("/v1/points/data/a", json={"coordinates": [[0, 0], [5, 39]]})
    chunk = client.get("/v1/chunk/data/a/1.1")
    inner = client.get(SLICE, params={"field": "inner"})

    assert points.content == STORED[[0, 5], [0, 39]].tobytes()
    assert chunk.content == STORED[3:, 20:].tobytes()
    assert inner.content == STORED[..., 4:8].tobytes()


def test_padding_is_no_field_in_any_form(client: httpx.Client) -> None:
    answer = client.get(SLICE, params={"select": "0,:1"})
    as_json = client.get(SLICE, params={"select": "0,:1", "format": "json"}).json()
    as_csv = client.get(SLICE, params={"select": "0,:1", "format": "csv"}).text
    as_npy = np.load(io.BytesIO(client.get(SLICE, params={"format": "npy"}).content))

    assert json.loads(answer.headers["array-dtype"]) == DTYPE
    assert as_json == [{"a": 0, "inner": {"b": int.from_bytes(bytes([4, 5]), "little")}}]
    assert as_csv.splitlines()[0] == "a,inner.b"
    assert as_npy.dtype.names == ("a", "inner")


@pytest.mark.parametrize("form", ["json", "npy"])
def test_padding_is_written_as_zeros(client: httpx.Client, form: str) -> None:
    record = np.dtype([("a", "u1"), ("inner", [("b", "<i2")])])
    out = io.BytesIO()
    values = np.zeros((6, 40), record)
    values["a"], values["inner"]["b"] = 7, 8
    np.save(out, values)
    value = json.dumps([[{"a": 7, "inner": {"b": 8}}] * 40] * 6).encode()
    kind, body = ("application/json", value) if form == "json" else ("application/x-npy", out.getvalue())

    written = client.put(SLICE, params={"casting": "unsafe"}, content=body, headers={"Content-Type": kind})

    assert written.status_code == 204, written.text
    assert client.get(SLICE).content == bytes([7, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]) * 240


def test_padding_of_a_body_is_stored_as_it_came(client: httpx.Client) -> None:
    body = bytes(STORED.reshape(-1)[::-1])

    assert client.put(SLICE, content=body).status_code == 204
    assert client.get(SLICE).content == body


def test_the_client_sends_zeros_where_it_copies_records(client: httpx.Client) -> None:
    array = RemoteArray(f"{client.base_url}/v1/metadata/data/a")
    record = np.frombuffer(b"\xab" * 12, array.dtype)

    array[...] = np.broadcast_to(record, (6, 40))

    item = bytes([171, 0, 0, 0, 171, 171, 0, 0, 0, 0, 0, 0])
    assert client.get(SLICE).content == item * 240


def test_no_field_can_have_the_name_that_padding_has(client: httpx.Client) -> None:
    answer = client.put("/v1/metadata/data/b", json={"shape": [1], "dtype": [["\0padding 0", "|V3"]]})

    assert (answer.status_code, answer.json()["code"]) == (422, "bad-definition")

"""Hostile metadata, chunks and requests, sent to a server of their own whose memory and time are counted.

All of it has to be answered with a problem of a stable code, or with values; never with a fault, and never at a price
that grows with what a lie claims.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import numcodecs
import numpy as np
import pytest

from hyperslab import wire
from tests.benchmarks import processes
from tests.conformance.service import DOCUMENT
from tests.server import Server, running_server

MIB: Final = 1 << 20
ARRAY: Final = {**DOCUMENT, "shape": [4], "chunks": [4], "dtype": "|u1"}
_ROUTES: Final = ("metadata/{}", "plan/{}", "slice/{}", "slice/{}?format=json", "chunk/{}/0", "tile/{}/info.json")


@dataclass(frozen=True, slots=True)
class Victim:
    """A server, a client, and the folder that it serves."""

    server: Server
    http: httpx.Client
    folder: Path

    def lay(self, name: str, document: bytes | dict[str, Any], chunk: bytes | None = None) -> None:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        text = document if isinstance(document, bytes) else json.dumps({**ARRAY, **document}).encode()
        (folder / ".zarray").write_bytes(text)
        if chunk is not None:
            (folder / "0").write_bytes(chunk)

    def ask(self, method: str, path: str, *, memory: int = 129 * MIB, **rest: Any) -> httpx.Response:
        """An answer that is no fault, and for which the server took at most so many bytes and seconds of its own."""
        pid = self.server.process.pid
        processes.forget_peak(pid)
        before, started = processes.memory(pid), processes.cpu_seconds(pid)
        with self.http.stream(method, f"{self.server.url}/{path}", **rest) as answer:
            if int(answer.headers.get("content-length", 0)) <= 64 * MIB:
                answer.read()
        growth, seconds = processes.peak_memory(pid) - before, processes.cpu_seconds(pid) - started
        assert answer.status_code != 500, path
        assert growth <= memory, f"{path}: {growth / MIB:.0f} MiB"
        assert seconds <= 30, f"{path}: {seconds:.1f} s"
        return answer


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    folder = tmp_path_factory.mktemp("hostile")
    stores = {"s": {"url": str(folder), "writable": True}}
    with running_server(stores, cache_bytes="32 MiB") as server, httpx.Client(timeout=120) as http:
        http.get(f"{server.url}/v1/metadata/s")  # imports what is imported late
        yield Victim(server, http, folder)


def code_of(answer: httpx.Response) -> str | None:
    is_problem = answer.headers.get("content-type") == wire.PROBLEM
    return str(json.loads(answer.content)["code"]) if is_problem else None


_DOCUMENTS: Final[dict[str, tuple[bytes | dict[str, Any], str | None]]] = {
    "lists without end": (b"[" * 4_000_000, None),
    "members nested without end": (b'{"zarr_format": 2, "x":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}", None),
    "a document of 5 MiB": (b'{"x": "' + b"a" * (5 * MIB) + b'"}', None),
    "a fill value of a million digits": (
        json.dumps({**ARRAY, "fill_value": "?"}).replace('"?"', "9" * 1_000_000).encode(),
        None,
    ),
    "sizes as text": ({"shape": ["10"], "chunks": ["5"]}, "shape"),
    "a hundred thousand axes": ({"shape": [1] * 100_000, "chunks": [1] * 100_000}, "shape"),
    "sizes beyond 64 bits": ({"shape": [2**70], "chunks": [1]}, "shape"),
    "chunks that no memory holds": ({"shape": [10**9] * 3, "chunks": [10**9] * 3, "dtype": "<f8"}, "chunks"),
    "a hundred thousand fields": ({"dtype": [[f"f{i}", "<i4"] for i in range(100_000)]}, "dtype"),
    "a subarray of 2**80 items": ({"dtype": [["a", "|V1", [2**40, 2**40]]]}, "dtype"),
    "items of 10 GB": ({"dtype": "|S10000000000"}, "dtype"),
    "a fill value of a hundred thousand letters": ({"fill_value": "A" * 100_000}, "fill_value"),
    "an order of lists": ({"order": [["C"] * 1000] * 100}, "order"),
    "a hundred thousand filters": ({"filters": [{"id": "base64"}] * 100_000}, "filters"),
    "a filter for records": ({"filters": [{"id": "delta", "dtype": [["a", "<i4"]]}]}, "filters[0]"),
    "a codec with a name without end": ({"compressor": {"id": "x" * 100_000}}, "compressor"),
    "ten thousand parameters": ({"compressor": {"id": "blosc", **{f"m{i}": i for i in range(10_000)}}}, "compressor"),
    "parameters of the wrong type": ({"compressor": {"id": "blosc", "clevel": [1] * 1000}}, "compressor"),
    "a dictionary of 4 GiB": (
        {"compressor": {"id": "lzma", "format": 3, "filters": [{"id": 33, "dict_size": 2**32 - 1}]}},
        "compressor",
    ),
}
"""Documents that have to be refused, and the member that is to blame."""


@pytest.mark.parametrize("name", _DOCUMENTS)
def test_a_hostile_document_is_refused_cheaply(victim: Victim, name: str) -> None:
    document, member = _DOCUMENTS[name]
    victim.lay("document", document)

    for route in _ROUTES:
        answer = victim.ask("GET", "v1/" + route.format("s/document"))
        assert code_of(answer) in ("bad-metadata", "codec-refused"), route
        assert len(answer.json().get("reason", "")) < 2000
        if member is not None:
            assert answer.json()["member"] == member


_HUGE: Final[dict[str, dict[str, Any]]] = {
    "2**62 by 2**62 cells": {"shape": [2**62, 2**62], "chunks": [2**20, 2**10], "dtype": "|u1"},
    "a chunk for each of 2**60 cells": {"shape": [2**60], "chunks": [1], "dtype": "|u1"},
    "text of a million letters with a thousand labels": {
        "shape": [2],
        "chunks": [2],
        "dtype": "<U1000000",
        "filters": [{"id": "categorize", "labels": ["x"] * 1000, "dtype": "<U1000000"}],
    },
    "items of 64 MiB": {"shape": [1000], "chunks": [10], "dtype": "|S67108864", "fill_value": ""},
}
"""Documents that are legal, and large beyond anything that can be read."""


@pytest.mark.parametrize("name", _HUGE)
def test_a_huge_array_can_be_described_and_looked_into(victim: Victim, name: str) -> None:
    victim.lay("huge", _HUGE[name])
    first = ",".join("0" for _ in _HUGE[name]["shape"])

    assert victim.ask("GET", "v1/metadata/s/huge").status_code == 200
    assert victim.ask("GET", f"v1/plan/s/huge?select={first}").status_code == 200
    assert victim.ask("GET", f"v1/slice/s/huge?select={first}", memory=512 * MIB).status_code == 200
    for route in ("slice/{}", "slice/{}?format=json", "slice/{}?format=npy", "plan/{}", "plan/{}?box_bytes=1"):
        answer = victim.ask("GET", "v1/" + route.format("s/huge"), memory=512 * MIB)
        assert (answer.status_code, code_of(answer)) in ((200, None), (413, "too-large"), (422, "not-representable"))


_ZEROS: Final = bytes(128 * MIB)


def _bomb(name: str) -> bytes:
    encode: dict[str, Any] = {
        "zlib": zlib.compress,
        "gzip": lambda data: gzip.compress(data, 1),
        "bz2": bz2.compress,
        "lzma": lambda data: lzma.compress(data, preset=0),
        "zstd": numcodecs.Zstd().encode,
        "blosc": numcodecs.Blosc().encode,
        "lz4": lambda _: struct.pack("<I", 2**31 - 1) + bytes(100),
    }
    return bytes(encode[name](_ZEROS))


@pytest.mark.parametrize("name", ["zlib", "gzip", "bz2", "lzma", "zstd", "blosc", "lz4"])
def test_a_bomb_costs_little_more_than_the_chunk(victim: Victim, name: str) -> None:
    """128 MiB of zeros where 100 bytes are expected."""
    victim.lay("bomb", {"shape": [100], "chunks": [100], "dtype": "|u1", "compressor": {"id": name}}, _bomb(name))

    for route in ("slice/{}", "slice/{}?select=5", "slice/{}?format=json", "chunk/{}/0"):
        assert code_of(victim.ask("GET", "v1/" + route.format("s/bomb"), memory=64 * MIB)) == "chunk-corrupt"


def test_more_objects_than_memory_holds_are_refused_before_they_are_read(victim: Victim) -> None:
    """40 million short texts: 30 kB of zstd, and gigabytes as Python's objects."""
    count = 40 * 10**6
    chunk = bytes(numcodecs.Zstd().encode(struct.pack("<I", count) + (struct.pack("<I", 2) + b"ab") * count))
    members = {"shape": [count], "chunks": [count], "dtype": "|O", "compressor": {"id": "zstd"}}
    victim.lay("many", {**members, "filters": [{"id": "vlen-utf8"}]}, chunk)

    for path in ("v1/slice/s/many?select=0", "v1/chunk/s/many/0", "v1/plan/s/many?select=0"):
        assert code_of(victim.ask("GET", path)) == "too-large"
    gathered = victim.ask("POST", "v1/points/s/many", json={"coordinates": [[5]]})
    assert code_of(gathered) == "too-large"


def npy_header(shape: tuple[int, ...], dtype: str) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": dtype, "fortran_order": False, "shape": shape})
    return out.getvalue()


_DEEP: Final = b"[" * 1_000_000 + b"]" * 1_000_000
_BODIES: Final = {
    "JSON nested without end": (wire.JSON, _DEEP),
    "three million items": (wire.JSON, b"[" + b"1," * 3_000_000 + b"1]"),
    "a number of a million digits": (wire.JSON, b"9" * 1_000_000),
    "npy that claims terabytes": (wire.NPY, npy_header((2**40,), "<f8")),
    "npy of objects": (wire.NPY, npy_header((100, 100), "|O") + bytes(800)),
    "npy with a header of 2 GiB": (wire.NPY, b"\x93NUMPY\x03\x00\xff\xff\xff\x7f" + b"{" * 1_000_000),
    "npy with brackets without end": (wire.NPY, b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 70_000),
    "objects that are none": (wire.OBJECTS, struct.pack("<I", 2**32 - 1)),
}


@pytest.mark.parametrize("name", _BODIES)
def test_a_hostile_body_is_refused_and_changes_nothing(victim: Victim, name: str) -> None:
    media_type, body = _BODIES[name]
    victim.lay("target", {"shape": [100, 100], "chunks": [10, 10], "dtype": "<i4"})

    for path in ("v1/slice/s/target", "v1/chunk/s/target/0.0", "v1/append/s/target"):
        method = "POST" if "append" in path else "PUT"
        answer = victim.ask(method, path, memory=256 * MIB, content=body, headers={"Content-Type": media_type})
        assert code_of(answer) in ("bad-body", "unsupported-media-type"), path
    assert [path.name for path in (victim.folder / "target").iterdir()] == [".zarray"]


_DEFINITIONS: Final[tuple[dict[str, Any], ...]] = (
    {"shape": [10**18], "dtype": "<f8", "chunks": [10**18]},
    {"shape": [10] * 1000, "dtype": "|u1"},
    {"shape": [10], "dtype": "|S60000000000"},
    {"shape": [10], "dtype": "<i4", "filters": [{"id": "delta", "dtype": "<i4"}] * 1000},
    {"shape": [10], "dtype": "|O", "filters": [{"id": "vlen-utf8"}], "fill_value": "x" * (5 * MIB)},
    {"shape": [2**62] * 60, "dtype": "|u1", "chunk_layout": {"chunk": {"aspect_ratio": [1e-300] * 60}}},
    {"shape": [5], "dtype": "<i4", "chunk_layout": {"chunk": {"aspect_ratio": [1e308], "elements": 2**70}}},
    {"shape": [10], "dtype": "<i4", "attributes": [1]},
)


@pytest.mark.parametrize("definition", _DEFINITIONS, ids=",".join)
def test_a_hostile_definition_is_refused_and_stores_nothing(victim: Victim, definition: dict[str, Any]) -> None:
    answer = victim.ask("PUT", "v1/metadata/s/new", json=definition)

    assert code_of(answer) == "bad-definition"
    assert not (victim.folder / "new").exists()


def test_attributes_never_grow_beyond_what_can_be_read_back(victim: Victim) -> None:
    victim.lay("attributes", {"shape": [1], "chunks": [1], "dtype": "|u1"})
    half = "x" * (10 * MIB)

    first = victim.ask("PATCH", "v1/metadata/s/attributes", json={"attributes": {"a": half}})
    second = victim.ask("PATCH", "v1/metadata/s/attributes", json={"attributes": {"b": half}})

    assert (first.status_code, code_of(second)) == (200, "bad-definition")
    assert victim.ask("GET", "v1/metadata/s/attributes").json()["attributes"].keys() == {"a"}


@pytest.mark.parametrize(
    "query",
    [
        "select=" + "0:1," * 10_000,
        "select=" + "[" * 10_000,
        "select=" + "9" * 40,
        "dtype=S1000000000",
        "dtype=(1000000,1000000)i4",
        "field=" + "x" * 10_000,
        "format=" + "x" * 10_000,
        "&".join(f"a{i}=1" for i in range(1000)),
    ],
    ids=lambda query: query[:16],
)
def test_a_hostile_query_is_refused(victim: Victim, query: str) -> None:
    victim.lay("target", {"shape": [100, 100], "chunks": [10, 10], "dtype": "<i4"})

    assert victim.ask("GET", f"v1/slice/s/target?{query}").status_code in (400, 422)


def test_one_value_for_more_chunks_than_anyone_can_write_is_refused(victim: Victim) -> None:
    victim.lay("endless", {"shape": [2**60], "chunks": [1], "dtype": "|u1"})

    answer = victim.ask("PUT", "v1/slice/s/endless", json=7)

    assert code_of(answer) == "too-large"
    assert answer.json()["unit"] == "chunks"
    assert [path.name for path in (victim.folder / "endless").iterdir()] == [".zarray"]


@pytest.mark.parametrize("size", [2**31 + 2**20, 2**40, 2**62])
@pytest.mark.parametrize("compressor", [None, {"id": "zstd", "level": 1}], ids=["plain", "zstd"])
def test_chunks_larger_than_memory_are_neither_read_nor_written(victim: Victim, size: int, compressor: Any) -> None:
    zeros = b"" if compressor is None else bytes(numcodecs.Zstd(1).encode(bytes(MIB)))
    victim.lay("large", {"shape": [3], "chunks": [size], "dtype": "|u1", "compressor": compressor}, zeros or bytes(3))
    points = {"coordinates": [[0]], "values": [1]}

    for answer in (
        victim.ask("GET", "v1/slice/s/large"),
        victim.ask("PUT", "v1/slice/s/large?select=0", content=b"1"),
        victim.ask("PUT", "v1/slice/s/large", content=b"123"),
        victim.ask("PUT", "v1/chunk/s/large/0", content=b"123"),
        victim.ask("PUT", "v1/chunk/s/large/0?format=stored", content=zeros),
        victim.ask("PUT", "zarr/s/large/0", content=zeros),
        victim.ask("POST", "v1/points/s/large?values=1", json=points),
        victim.ask("POST", "v1/append/s/large", content=b"1"),
        victim.ask("PATCH", "v1/metadata/s/large", json={"shape": [2]}),
    ):
        assert (answer.status_code, json.loads(answer.content)["requested"]) == (413, size), answer.content
        assert not json.loads(answer.content).get("boxes")
    assert json.loads((victim.folder / "large" / ".zarray").read_bytes())["shape"] == [3]

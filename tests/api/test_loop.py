"""The event loop: what grows with an array or a group runs in threads, so that others are answered meanwhile."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import httpx
import pytest

from hyperslab.api import docs
from hyperslab.asgi import create_app
from hyperslab.engine import jsontext
from hyperslab.settings import Settings, StoreSettings
from tests.api.support import running
from tests.arrays.support import service_on

FEW, MANY = 200, 3_000
"""Chunks of an array and items of its attributes; a fifth of them are the children of a group. A request executes some
5,000 lines."""

Layout = Callable[[int], dict[str, Any]]
LAYOUTS: Final[dict[str, Layout]] = {
    "plain": lambda n: {"shape": [n // 100, 1600], "chunks": [1, 16]},
    "shards": lambda n: {"shape": [n // 100, 1600], "chunks": [1, 16], "shards": [1, 800], "zarr_format": 3},
    "one shard": lambda n: {"shape": [1, 16 * n], "chunks": [1, 16], "shards": [1, 16 * n], "zarr_format": 3},
    "rectilinear": lambda n: {"shape": [1, 16 * n - 8], "chunks": [1, 16], "zarr_format": 3},
}
KINDS: Final[dict[str, tuple[str, str, dict[str, str]]]] = {
    "head": ("HEAD", "/v1/slice/data/a", {}),
    "not modified": ("GET", "/v1/slice/data/a", {"If-None-Match": "*"}),
    "slice": ("GET", "/v1/slice/data/a", {}),
    "first bytes": ("GET", "/v1/slice/data/a", {"Range": "bytes=0-9"}),
    "strided": ("GET", "/v1/slice/data/a?select=::-7", {}),
    "text": ("GET", "/v1/slice/data/a?format=json", {}),
    "minmax": ("GET", "/v1/slice/data/a?reduce=minmax&bins=8", {}),
    "plan": ("GET", "/v1/plan/data/a", {}),
    "metadata": ("GET", "/v1/metadata/data/a", {}),
    "info": ("GET", "/v1/tile/data/a/info.json", {}),
    "histogram": ("GET", "/v1/tile/data/a/histogram.json", {}),
    "thumbnail": ("GET", "/v1/tile/data/a/thumbnail.png", {}),
    "write": ("PUT", "/v1/slice/data/a?select=0", {"Content-Type": "application/json"}),
    "attributes": ("PATCH", "/v1/metadata/data/a", {"Content-Type": "application/json"}),
    "points": ("POST", "/v1/points/data/a", {"Content-Type": "application/json"}),
    "propfind": ("PROPFIND", "/zarr/data/g/", {"Depth": "1"}),
    "group": ("GET", "/v1/metadata/data/g", {}),
    "search": ("GET", "/v1/metadata/data/g?search=nothing", {}),
    "listing": ("GET", "/zarr/data/g/", {"Accept": "text/html"}),
    "consolidated": ("GET", "/zarr/data/g/.zmetadata", {}),
    "group's page": ("GET", "/view/data/g", {}),
}


def fill(folder: Path, layout: str, chunks: int) -> None:
    members = {"dtype": "<u2", "attributes": {"labels": [f"{i}" for i in range(chunks)]}}
    with service_on(folder) as service:
        service.creator.create_array("data/a", {**LAYOUTS[layout](chunks), **members})
        service.creator.create_group("data/g", {})
    for child in range(chunks // 5):
        (folder / "g" / f"{child}").mkdir()
        (folder / "g" / f"{child}" / ".zgroup").write_text('{"zarr_format": 2}')
    if layout == "rectilinear":
        document = json.loads((folder / "a" / "zarr.json").read_bytes())
        shapes = [1, [8, *[16] * (chunks - 1)]]
        document["chunk_grid"] = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": shapes}}
        (folder / "a" / "zarr.json").write_text(json.dumps(document))


def lines_on_loop(folder: Path, chunks: int) -> dict[str, int]:
    """Lines of Python that a request of each kind executes on the thread of the event loop, those of the client
    included. Bodies have as many items as the array has ``chunks``."""
    found = dict[str, int]()
    attributes, points = {"labels": [f"{i}" for i in range(chunks)]}, [[0, i % 1600] for i in range(chunks)]
    documents = {"PATCH": {"attributes": attributes}, "POST": {"coordinates": points}, "PUT": 1}
    bodies = {method: json.dumps(document).encode() for method, document in documents.items()}

    async def run() -> None:
        app = create_app(Settings(stores={"data": StoreSettings(url=str(folder), writable=True)}))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://host", timeout=300) as client:
            for kind, (method, url, headers) in KINDS.items():

                def count(_: FrameType, __: str, ___: object, kind: str = kind) -> Any:
                    found[kind] = found.get(kind, 0) + 1
                    return count

                sys.settrace(count)
                try:
                    answer = await client.request(method, url, headers=headers, content=bodies.get(method))
                finally:
                    sys.settrace(None)
                assert answer.status_code < 500, answer.text

    asyncio.run(run())
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_request_does_more_on_the_loop_for_a_larger_array_or_group(tmp_path: Path, layout: str) -> None:
    counts = []
    for chunks in (FEW, MANY):
        folder = tmp_path / str(chunks)
        fill(folder, layout, chunks)
        counts.append(lines_on_loop(folder, chunks))
    few, many = counts
    assert {kind: (few[kind], many[kind]) for kind in few if many[kind] > 2 * few[kind]} == {}


def test_an_array_with_many_lengths_of_chunks_is_opened_without_python_for_each(tmp_path: Path) -> None:
    """Four such requests at once would keep Python's lock from others for seconds."""
    counts = []
    for chunks in (FEW, MANY):
        fill(tmp_path / str(chunks), "rectilinear", chunks)
        lines = 0

        def count(_: FrameType, __: str, ___: object) -> Any:
            nonlocal lines
            lines += 1
            return count

        with service_on(tmp_path / str(chunks)) as service:
            sys.settrace(count)
            try:
                array = service.catalog.open_array("data/a")
            finally:
                sys.settrace(None)
        assert array.metadata.grid.counts == (1, chunks)
        counts.append(lines)
    few, many = counts
    assert many < 1.1 * few


def test_routes_are_described_in_a_thread_once_for_all_who_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    describe, threads = docs.describe, list[threading.Thread]()

    def describe_somewhere(*arguments: Any) -> docs.Json:
        threads.append(threading.current_thread())
        return describe(*arguments)

    async def run() -> list[int]:
        transport = httpx.ASGITransport(create_app(Settings(stores={"data": StoreSettings(url=str(tmp_path))})))
        async with httpx.AsyncClient(transport=transport, base_url="http://host") as client:
            return [each.status_code for each in await asyncio.gather(*map(client.get, ["/openapi.json", "/v1"] * 2))]

    monkeypatch.setattr(docs, "describe", describe_somewhere)
    assert asyncio.run(run()) == [200] * 4
    (thread,) = threads
    assert thread is not threading.current_thread()


@pytest.mark.parametrize("path", ["/zarr/data/g/.zmetadata", "/zarr3/data/g/zarr.json"])
def test_consolidated_metadata_is_written_node_by_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """A long call of the encoder holds Python's lock, and with it the loop."""
    dump, sizes = jsontext._dump, list[int]()

    def dump_counted(value: Any, **options: Any) -> bytes:
        text = dump(value, **options)
        sizes.append(len(text))
        return text

    async def run() -> bytes:
        app = create_app(Settings(stores={"data": StoreSettings(url=str(tmp_path))}))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://host") as client:
            return (await client.get(path)).content

    fill(tmp_path, "plain", FEW)
    monkeypatch.setattr(jsontext, "_dump", dump_counted)
    document = asyncio.run(run())
    assert json.dumps(json.loads(document), separators=(",", ":")).encode() == document.strip()
    assert len(document) > FEW // 5 * 30 > max(sizes)


def test_chunk_lengths_are_encoded_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call of the encoder keeps Python's lock from all others, for a tenth of a second at 1,000,000 lengths."""
    fill(tmp_path, "rectilinear", 25_000)
    encode, longest = jsontext._dump, 0

    def watched(value: Any, **options: Any) -> bytes:
        nonlocal longest
        longest = max(longest, len(value) if isinstance(value, list) else 0)
        return encode(value, **options)

    with running(tmp_path) as server:
        monkeypatch.setattr(jsontext, "_dump", watched)
        document = httpx.get(f"{server.url}/v1/metadata/data/a").raise_for_status().json()

    stored = json.loads((tmp_path / "a" / "zarr.json").read_bytes())
    assert (document["chunk_grid"], longest) == (stored["chunk_grid"], 10_000)

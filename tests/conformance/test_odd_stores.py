"""Stores that are untrusted: whatever they hold, each request has values or a problem for an answer, at bounded cost.

They are the same each time, unless more are asked for: ``FUZZ=3000 python -m pytest tests/conformance``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, Final

import httpx

from hyperslab import wire
from tests.benchmarks import processes
from tests.conformance.odd_stores import MIB, lay
from tests.conformance.service import DOCUMENT
from tests.server import running_server

HOW_MANY: Final = int(os.environ.get("FUZZ", "0"))
FIRST: Final = SystemRandom().getrandbits(48) if HOW_MANY else 0
NODES: Final = ("", "/a", "/b")
MOST: Final = 16 * MIB
BROKEN: Final = ("bad-metadata", "codec-refused", "chunk-corrupt", "partly-written")
PLAIN: Final = {**DOCUMENT, "chunks": [2, 2], "dtype": "|u1"}
POINTS: Final[list[list[list[int]]]] = [[[0]], [[0, 0]], [[0, 0, 0]], [[]]]
SHAPES: Final = ([3], [40, 40], [3, 3], [40, 3, 40], [2**61] * 2)


@dataclass(frozen=True, slots=True)
class Asked:
    """``target`` has a place for the node's path; ``json`` is the body, unless there is ``content``."""

    method: str
    target: str
    json: Any = None
    content: bytes | None = None
    key: str | None = None


READING: Final = [
    *[Asked("GET", f"v1/metadata/{{}}{query}") for query in ("", "?field=a")],
    *[Asked("GET", f"v1/plan/{{}}{query}") for query in ("", "?box_bytes=1&select=0")],
    *[Asked("GET", f"zarr/{{}}/{key}") for key in ("", ".zarray", ".zgroup", ".zattrs", ".zmetadata", "0.0", "0")],
    *[Asked("GET", f"v1/chunk/{{}}/{key}") for key in ("0.0", "0", "0.0.0?format=json", "0.0?format=stored")],
    *[Asked("GET", f"v1/slice/{{}}?format={form}") for form in ("raw", "npy", "json", "csv")],
    *[Asked("GET", f"v1/slice/{{}}?select={text}") for text in ("0", "::-1", "[0]")],
    *[Asked("GET", f"v1/slice/{{}}?{query}") for query in ("dtype=safe", "dtype=<f4", "field=a")],
    *[Asked("GET", f"v1/tile/{{}}/{name}") for name in ("info.json", "thumbnail.png", "histogram.json", "legend.png")],
    *[Asked("GET", f"v1/tile/{{}}/0/0/0.{end}") for end in ("png", "npy", "png?rescale=auto", "png?labels=true")],
    *[Asked("GET", f"v1/tile/{end}") for end in ("{}.dzi", "iiif/{}/info.json", "iiif/{}/full/max/0/default.jpg")],
    *[Asked("POST", "v1/points/{}", {"coordinates": point}) for point in POINTS],
    Asked("GET", "view/{}"),
]
WRITING: Final = [
    *[Asked("PUT", f"v1/slice/{{}}{query}", 0) for query in ("", "?select=0", "?select=...,0", "?field=a")],
    *[Asked("PUT", "v1/slice/{}", value) for value in ("x", [1, 2, 3])],
    *[Asked("PUT", f"v1/chunk/{{}}/{key}", 0) for key in ("0", "0.0", "0.0.0")],
    *[Asked("DELETE", f"v1/chunk/{{}}/{key}") for key in ("0", "0.0", "0.0.0")],
    *[Asked("POST", "v1/append/{}", json=rows, key=key) for rows in ([0], [[0]], []) for key in (None, "k")],
    *[Asked("POST", "v1/append/{}", content=bytes(240), key=key) for key in (None, "k")],
    *[Asked("PATCH", "v1/metadata/{}", {"shape": shape}) for shape in SHAPES],
    *[Asked("PATCH", "v1/metadata/{}", {"attributes": {"n": n, "omero": None}}) for n in (1, 2, 3)],
    *[Asked("PUT", "zarr/{}/.zarray", {**PLAIN, "shape": shape}) for shape in ([1, 1], [99, 9])],
    *[Asked("PUT", f"zarr/{{}}/{key}", content=bytes(30)) for key in ("0", "0.0", ".zattrs")],
    *[Asked("POST", "v1/points/{}?values=1", {"coordinates": point, "values": [0]}) for point in POINTS],
    *[Asked("PUT", f"v1/metadata/{{}}?mode={mode}", {"shape": [3], "dtype": "|u1"}) for mode in ("open", "replace")],
    *[Asked("DELETE", f"v1/metadata/{{}}{query}") for query in ("", "?recursive=true")],
]


def ask(http: httpx.Client, asked: Asked, path: str) -> None:
    """Demand an answer that is no fault; of a long one only the beginning is read, and it may be cut off."""
    content = asked.content if asked.json is None else json.dumps(asked.json).encode()
    headers = {} if asked.json is None else {"Content-Type": wire.JSON}
    if asked.key is not None:
        headers[wire.IDEMPOTENCY_KEY] = asked.key
    with http.stream(asked.method, asked.target.format(path), content=content, headers=headers) as answer:
        status, body = answer.status_code, b""
        try:
            for piece in answer.iter_raw():
                body += piece
                if len(body) > MOST:
                    return
        except httpx.RemoteProtocolError:
            assert status in (200, 206), asked
            return
    assert status < 500 or status == 502, (asked, body)
    if status >= 400:
        problem = json.loads(body)
        assert problem["status"] == status, asked
        assert (problem["code"] in BROKEN) == (status == 502), (asked, problem)


def check_stores(folder: Path, requests: Sequence[Asked], how_many: int, **store: Any) -> None:
    """Send some of the requests to each of so many stores, each time to one of their nodes."""
    with (
        running_server({"s": {"url": str(folder), **store}}, cache_bytes="32 MiB") as server,
        httpx.Client(base_url=server.url, timeout=60) as http,
    ):
        pid = server.process.pid
        for seed in range(FIRST, FIRST + how_many):
            print(f"seed {seed}")
            random = Random(seed)
            lay(folder / f"{seed}", random)
            processes.forget_peak(pid)
            before, started = processes.memory(pid), processes.cpu_seconds(pid)
            for asked in random.sample(requests, 12):
                ask(http, asked, f"s/{seed}{random.choice(NODES)}")
            assert processes.peak_memory(pid) - before <= 400 * MIB
            assert processes.cpu_seconds(pid) - started <= 60
        assert "Traceback" not in server.log


def test_any_store_has_an_answer_for_any_read(tmp_path: Path) -> None:
    check_stores(tmp_path, READING, HOW_MANY or 45)


def test_any_store_has_an_answer_for_any_write(tmp_path: Path) -> None:
    check_stores(tmp_path, WRITING, HOW_MANY or 24, writable=True, durability="rename")

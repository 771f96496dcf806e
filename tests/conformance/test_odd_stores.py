"""Stores that are untrusted: whatever they hold, each request has values or a problem for an answer, at bounded cost.

They are the same each time, unless more are asked for: ``FUZZ=3000 python -m pytest tests/conformance``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

import httpx

from tests.conformance.odd_stores import MIB, lay
from tests.conformance.resources import start_peak, usage
from tests.server import running_server

HOW_MANY: Final = int(os.environ.get("FUZZ", "0"))
FIRST: Final = SystemRandom().getrandbits(48) if HOW_MANY else 0
NODES: Final = ("", "/a", "/b")
TARGETS: Final = [
    "view/{}",
    *[f"v1/metadata/{{}}{query}" for query in ("", "?field=a")],
    *[f"v1/plan/{{}}{query}" for query in ("", "?box_bytes=1&select=0")],
    *[f"zarr/{{}}/{key}" for key in ("", ".zarray", ".zgroup", ".zattrs", ".zmetadata", "0.0", "0")],
    *[f"v1/chunk/{{}}/{key}" for key in ("0.0", "0", "0.0.0?format=json", "0.0?format=stored")],
    *[f"v1/slice/{{}}?format={form}" for form in ("raw", "npy", "json", "csv")],
    *[f"v1/slice/{{}}?select={text}" for text in ("0", "::-1", "[0]")],
    *[f"v1/slice/{{}}?{query}" for query in ("dtype=safe", "dtype=<f4", "field=a")],
    *[f"v1/tile/{{}}/{end}" for end in ("info.json", "thumbnail.png", "histogram.json", "legend.png")],
    *[f"v1/tile/{{}}/0/0/0.{end}" for end in ("png", "npy", "png?rescale=auto", "png?labels=true")],
    *["v1/tile/{}.dzi", "v1/tile/iiif/{}/info.json", "v1/tile/iiif/{}/full/max/0/default.jpg"],
]
MOST: Final = 16 * MIB


def ask(http: httpx.Client, target: str) -> None:
    """Demand an answer that is no fault; of a long one only the beginning is read, and it may be cut off."""
    with http.stream("GET", target) as answer:
        body = b""
        try:
            for piece in answer.iter_raw():
                body += piece
                if len(body) > MOST:
                    return
        except httpx.RemoteProtocolError:
            assert answer.status_code in (200, 206), target
            return
    assert answer.status_code < 500 or answer.status_code == 502, (target, body)
    if answer.status_code >= 400:
        problem = json.loads(body)
        assert problem["status"] == answer.status_code, target
        codes = ("bad-metadata", "codec-refused", "chunk-corrupt")
        assert (problem["code"] in codes) == (answer.status_code == 502), (target, problem)


def test_any_store_has_an_answer_for_any_request(tmp_path: Path) -> None:
    with (
        running_server({"s": tmp_path}, cache_bytes="32 MiB") as server,
        httpx.Client(base_url=server.url, timeout=60) as http,
    ):
        for seed in range(FIRST, FIRST + (HOW_MANY or 300)):
            print(f"seed {seed}")
            random = Random(seed)
            lay(tmp_path / f"{seed}", random)
            before, started = start_peak(server.process.pid), usage(server.process.pid).cpu
            for target in random.sample(TARGETS, 12):
                ask(http, target.format(f"s/{seed}{random.choice(NODES)}"))
            used = usage(server.process.pid)
            assert used.peak - before <= 400 * MIB
            assert used.cpu - started <= 10
        assert "Traceback" not in server.log

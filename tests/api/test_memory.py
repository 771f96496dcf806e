"""A server process holds what it was allowed to, however large the slices and however many the clients."""

from __future__ import annotations

import gc
import re
import resource
import tracemalloc
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numcodecs
import numpy as np
import pytest
import zarr

from tests.api.support import exchange, open_request, writable
from tests.server import Server, running_server, wait_until

MIB = 1 << 20
CACHE, SLAB, IN_FLIGHT = 8 * MIB, 8 * MIB, 48 * MIB
CLIENTS = 16
SLACK = 96 * MIB
"""What sockets, codecs and above all the allocator hold on to, which keeps some memory for each thread."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2 GiB each: ``planes`` and ``cubes``, of which some chunks are stored, and ``tall``, whose chunks of 32 MiB can
    only be decoded from their beginning. ``doubles`` is a single plane of 32 MiB."""
    found = tmp_path_factory.mktemp("memory")
    noise = np.random.default_rng(5).integers(0, 2**16, (16, 1024, 1024), dtype="<u2")
    planes = new(found, "planes", (1, 1024, 1024), compressors=None)
    for i in range(0, 1024, 128):
        planes[i] = noise[0]
    new(found, "cubes", (16, 256, 256), compressors=numcodecs.Blosc("lz4"))[256:272] = noise
    tall = new(found, "tall", (256, 256, 256), compressors=numcodecs.Zlib(1))
    tall[:256, :256, :256] = np.broadcast_to(noise[0, :256, :256], (256, 256, 256))
    doubles = zarr.create_array(
        str(found / "doubles"), shape=(2048, 2048), chunks=(256, 256), dtype="<f8", zarr_format=2
    )
    doubles[:] = 1.5
    return found


def new(folder: Path, name: str, chunks: tuple[int, ...], **options: Any) -> Any:
    shape = (1024, 1024, 1024)
    return zarr.create_array(str(folder / name), shape=shape, chunks=chunks, dtype="<u2", zarr_format=2, **options)


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    sizes: dict[str, Any] = {
        "cache_bytes": CACHE,
        "slab_bytes": SLAB,
        "bytes_in_flight": IN_FLIGHT,
        "tile_cache_bytes": 0,
    }
    few_heaps = {"MALLOC_ARENA_MAX": "2"}  # else glibc has one for each thread, and how full they are is chance
    with running_server({"data": folder}, environment=few_heaps, **sizes, queue_seconds=60) as found:
        yield found


def drain(server: Server, name: str, select: str) -> int:
    """Take in an answer and forget it; the number of its bytes."""
    with open_request(server.url, f"/v1/slice/data/{name}?select={select}") as connection:
        buffer = bytearray(MIB)
        head = connection.recv(4096)
        found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        assert head.startswith(b"HTTP/1.1 200")
        assert found is not None
        size = int(found[1])
        left = size - len(head.partition(b"\r\n\r\n")[2])
        while left:
            received = connection.recv_into(buffer)
            assert received, f"cut {left} bytes before the end"
            left -= received
    return size


def memory(server: Server, kind: str) -> int:
    """``VmHWM``: the most that was ever resident; ``VmData``: what may be written to. Both in bytes."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(kind + ":"))


@pytest.mark.parametrize(
    ("name", "small", "large"),
    [("planes", ":100", ":400"), ("cubes", ":100", ":400"), ("cubes", ":50,::-1", "::-1,:400,::-2")],
)
def test_the_peak_does_not_grow_with_the_slice(server: Server, name: str, small: str, large: str) -> None:
    """100 or 200 MiB first, then 800 or 400."""
    assert drain(server, name, small) >= 100 * MIB
    before = memory(server, "VmHWM")
    assert drain(server, name, large) >= 400 * MIB

    assert memory(server, "VmHWM") - before < SLACK


def test_a_slice_of_ten_times_the_memory_that_is_allowed_is_served(server: Server) -> None:
    drain(server, "cubes", ":1")
    allowed = memory(server, "VmData") + 100 * MIB
    resource.prlimit(server.process.pid, resource.RLIMIT_DATA, (allowed, allowed))

    assert drain(server, "cubes", ":500") >= 10 * 100 * MIB


def test_many_clients_together_stay_within_what_is_allowed(server: Server) -> None:
    drain(server, "planes", ":1")
    before = memory(server, "VmHWM")

    with ThreadPoolExecutor(CLIENTS) as pool:
        sizes = list(pool.map(lambda _: drain(server, "planes", ":32"), range(CLIENTS)))

    assert sizes == [64 * MIB] * CLIENTS
    assert memory(server, "VmHWM") - before < IN_FLIGHT + SLACK


def test_a_few_bytes_out_of_large_chunks_count_for_what_decoding_takes(server: Server) -> None:
    """Each takes 32 MiB and more for a moment: at once they would take half a gibibyte."""
    drain(server, "tall", ":1,0,0")
    before = memory(server, "VmHWM")

    with ThreadPoolExecutor(CLIENTS) as pool:
        sizes = list(pool.map(lambda i: drain(server, "tall", f"{i},{i},:4"), range(CLIENTS)))

    assert sizes == [8] * CLIENTS
    assert memory(server, "VmHWM") - before < IN_FLIGHT + SLACK


def get_at_once(server: Server, targets: Sequence[str]) -> list[int]:
    """The statuses of as many requests side by side."""
    with ThreadPoolExecutor(len(targets)) as pool:
        return list(pool.map(lambda target: httpx.get(server.url + target, timeout=60).status_code, targets))


def test_tiles_of_large_chunks_count_for_what_decoding_takes(server: Server) -> None:
    """That is more than is allowed at once, so that one after the other goes alone."""
    alone = 2 * 32 * MIB
    drain(server, "tall", ":1,0,0")
    before = memory(server, "VmHWM")

    statuses = get_at_once(server, [f"/v1/tile/data/tall/2/0/0.npy?d0={i}" for i in range(CLIENTS)])

    assert statuses == [200] * CLIENTS
    assert memory(server, "VmHWM") - before < alone + IN_FLIGHT + SLACK


def test_looks_at_the_data_of_many_pictures_wait_for_each_other(server: Server) -> None:
    """Each takes more than 64 MiB for a moment, and is another one for each value that is left out."""
    drain(server, "planes", ":1")
    before = memory(server, "VmHWM")

    statuses = get_at_once(server, [f"/v1/tile/data/doubles/histogram.json?nodata={i}" for i in range(CLIENTS)])

    assert statuses == [200] * CLIENTS
    assert memory(server, "VmHWM") - before < 8 * 64 * MIB + SLACK


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("PUT", "/v1/slice/data/a", 400),
        ("PUT", "/v1/chunk/data/packed/0?format=stored", 400),
        ("PUT", "/zarr/data/packed/0", 400),
        ("POST", "/v1/append/data/a", 201),
    ],
)
def test_a_body_is_released_with_its_request(tmp_path: Path, method: str, target: str, status: int) -> None:
    """Without the collector, which is told to come seldom."""
    sent = f"{method} {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {4 * MIB}\r\n\r\n".encode()
    sent += bytes(4 * MIB)
    with writable(tmp_path) as client:
        for name, compressor in (("a", None), ("packed", {"id": "zlib"})):
            definition = {"shape": [8 * MIB], "chunks": [8 * MIB], "dtype": "|u1", "compressor": compressor}
            client.put(f"/v1/metadata/data/{name}", json=definition)
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(3):
                assert exchange(str(client.base_url), sent).startswith(b"HTTP/1.1 %d" % status)
            wait_until(lambda: tracemalloc.get_traced_memory()[0] < 3 * MIB)  # less than one body
        finally:
            tracemalloc.stop()
            gc.enable()

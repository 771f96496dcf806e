"""Acquisition: frames a second next to acquire-zarr, which writes in its own process, and next to ``/v1/append``; and
how soon a frame that is stored is seen.

The targets compare equal durability: acquire-zarr does not wait for the disk. Waiting for it is shown apart.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import zarr

from hyperslab import RemoteStream
from tests.benchmarks.frames import LARGE, SMALL, frames, settings
from tests.benchmarks.processes import cpu_seconds, python
from tests.benchmarks.programs import Sample, quiet_server, summary, take_turns
from tests.benchmarks.report import duration, ratio, times
from tests.benchmarks.sockets import connected
from tests.benchmarks.suite import Bench, Measurement, Outcome, Suite, Table, Target
from tests.server import Server

OURS: Final = "RemoteStream"
SYNCED: Final = "RemoteStream, fsynced"
ACQUIRE: Final = "acquire-zarr"
APPEND: Final = "/v1/append"
SHARES: Final = {"uncompressed": 0.7, "Blosc LZ4": 0.9, "mean pyramid": 0.7}
"""The least share of acquire-zarr's rate, by case."""
SEEN: Final = {"visible in /v1/slice": 0.05, "visible in the coarsest tile": 1.0}
"""The most seconds from the 204 on."""


def measure(bench: Bench) -> Iterator[Measurement]:
    folder = bench.folder / "streams"
    stores = {
        "data": {"url": str(folder / "served"), "writable": True, "durability": "rename"},
        "synced": {"url": str(folder / "synced"), "writable": True},
    }
    with quiet_server(stores, workers=1) as server:
        streams = {OURS: f"{server.url}/v1/stream/data/ours", SYNCED: f"{server.url}/v1/stream/synced/ours"}
        for case in LARGE:
            bench.say(f"  {case}")
            count = 30 if bench.quick else 100
            programs = {name: partial(_sent, "stream", url, case, count, server) for name, url in streams.items()}
            programs[ACQUIRE] = partial(_sent, "acquire", str(folder / "acquire"), case, count, None)
            yield from summary(case, take_turns(programs, bench.effort))
        bench.say(f"  {SMALL}")
        programs = {name: partial(_sent, "stream", url, SMALL, 400, server) for name, url in streams.items()}
        programs[APPEND] = partial(_appended, folder / "served", server, 30 if bench.quick else 200)
        yield from summary(SMALL, take_turns(programs, bench.effort))
        for case, seconds in zip(SEEN, _latencies(server, 10 if bench.quick else 50), strict=True):
            found = {"wall": float(np.median(seconds)), "worst": max(seconds)}
            yield Measurement(case, OURS, found)
    shutil.rmtree(folder, ignore_errors=True)


def _sent(program: str, target: str, case: str, count: int, server: Server | None) -> Sample:
    """What a frame takes, with what it takes of the server's processor time."""
    began = 0.0 if server is None else cpu_seconds(server.process.pid)
    with python("-m", "tests.benchmarks.frames", program, target, case, str(count)) as process:
        output = process.communicate()[0]
    if process.returncode:
        raise RuntimeError(f"{program} of {case} failed")
    found: dict[str, float] = json.loads(output)
    served = 0.0 if server is None else cpu_seconds(server.process.pid) - began
    return Sample(found["wall"], found["cpu"] + served / count)


def _appended(folder: Path, server: Server, count: int) -> Sample:
    path = folder / "appended"
    shutil.rmtree(path, ignore_errors=True)
    zarr.create_array(str(path), shape=(0, 256, 256), chunks=(100, 256, 256), dtype="<u2", compressors=None)
    return _sent("append", server.url, SMALL, count, server)


def _latencies(server: Server, count: int) -> tuple[list[float], list[float]]:
    """Seconds from when a frame is known to be stored until a slice, and the coarsest tile, have it."""
    case, seen, drawn = "mean pyramid", list[float](), list[float]()
    some = frames(case)
    url = f"{server.url}/v1/stream/data/ours"
    with connected(server.url) as ask, RemoteStream(url, settings(case), if_exists="replace") as sending:

        def until(target: str) -> float:
            began = time.perf_counter()
            while (status := ask.status(target)) != 200:
                if time.perf_counter() - began > 10:
                    raise RuntimeError(f"{target} gave {status}")
            return time.perf_counter() - began

        for number in range(count):
            sending.append(some[number % len(some)])
            while sending.durable <= number:
                time.sleep(0.0005)
            seen.append(until(f"/v1/slice/data/ours/a/0?select={number},:8,:8"))
            drawn.append(until(f"/v1/tile/data/ours/a/0/0/0.png?t={number}&rescale=0,500"))
    return seen, drawn


def tables(outcome: Outcome) -> list[Table]:
    rows = []
    for case in (*SHARES, SMALL):
        for program in (OURS, SYNCED, ACQUIRE, APPEND):
            wall, cpu = outcome.value(case, program), outcome.value(case, program, "cpu")
            if wall is not None:
                share = None if program == OURS else ratio(wall, outcome.value(case, OURS))
                rows.append([case, program, f"{1 / wall:.1f}", duration(cpu), times(share)])
    head = ["case", "program", "frames a second", "processor time of a frame", f"{OURS} is faster by"]
    late = [[case, *(duration(outcome.value(case, OURS, name)) for name in ("wall", "worst"))] for case in SEEN]
    return [Table("Frames", head, rows), Table("Seen after", ["", "median", "worst"], late)]


def targets(outcome: Outcome) -> Iterator[Target]:
    for case, least in SHARES.items():
        share = ratio(outcome.value(case, ACQUIRE), outcome.value(case, OURS))
        yield Target(f"{case}: at least {least}× acquire-zarr's rate", times(share), (share or 0) >= least)
    share = ratio(outcome.value(SMALL, APPEND), outcome.value(SMALL, OURS))
    yield Target("10× /v1/append frame by frame, 100 frames in a chunk", times(share), (share or 0) >= 10)
    for case, most in SEEN.items():
        median = outcome.value(case, OURS)
        yield Target(f"{case} within {duration(most)}", duration(median), median is not None and median <= most)


SUITE: Final = Suite("streams", "Acquisition streams", measure, tables, targets)

"""The server under load: requests per second next to nginx, memory, and small requests beside huge ones."""

from __future__ import annotations

import json
import statistics
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

import numpy as np

from tests.benchmarks.data import HUGE, PLANE_BYTES, PLANES, SLIDE, SMALL, make, make_huge
from tests.benchmarks.nginx import Load, Missing, load, nginx, program
from tests.benchmarks.processes import forget_peak, memory, peak_memory, python
from tests.benchmarks.programs import quiet_server
from tests.benchmarks.report import amount, duration, ratio, times
from tests.benchmarks.sockets import connected, view
from tests.benchmarks.suite import Bench, Measurement, Outcome, Suite, Table, Target
from tests.server import Server

OURS: Final = "Hyperslab"
CLIENT: Final = "RemoteArray"
_MIB: Final = 1 << 20

# --- requests per second ---------------------------------------------------------------------------------------------

NGINX: Final = "nginx"
_CHUNK: Final = "/zarr/data/small/1.2"
_SLICE: Final = "/v1/slice/data/slide?select=256:512,512:768"
REQUESTS: Final = {
    "stored 32 KiB chunk": (_CHUNK, "chunk", 0.35),
    "decoded 32 KiB chunk": ("/v1/chunk/data/small/1.2", "chunk", None),
    "cached 64 KiB slice": (_SLICE, "slice", 0.2),
    "304 of a slice": (_SLICE, "slice", 0.2),
    "304 of a stored chunk": (_CHUNK, "chunk", 0.2),
    "cached 256² PNG tile": ("/v1/tile/data/slide/3/1/2.png", "tile.png", 0.2),
}
"""By case: the path of ours, the name of nginx's copy of the answer, and the least share of nginx's rate. A ``304`` is
the answer to a condition."""


def rps(bench: Bench) -> Iterator[Measurement]:
    """One worker, and nginx with one worker serving the same bytes from a file."""
    for spec in (SLIDE, SMALL):
        make(bench.arrays, spec)
    with ExitStack() as stack:
        server = stack.enter_context(quiet_server({"data": bench.arrays}, workers=1))
        copies = bench.folder / "copies"
        copies.mkdir(exist_ok=True)
        for path, file, _ in REQUESTS.values():
            (copies / file).write_bytes(_get(server.url + path)[0])
        try:
            program("wrk")
            files = stack.enter_context(nginx(copies))
        except Missing as missing:
            bench.note(str(missing))
            return
        pids = {OURS: [server.process.pid], NGINX: files.processes()}
        for case, (path, file, _) in REQUESTS.items():
            bench.say(f"  {case}")
            yield from _alternate(case, {OURS: server.url + path, NGINX: f"{files.url}/{file}"}, pids, bench)


def _alternate(
    case: str, urls: Mapping[str, str], pids: Mapping[str, Sequence[int]], bench: Bench
) -> Iterator[Measurement]:
    """Load both servers in turns, after a short while that warms them up."""
    headers = {name: {"If-None-Match": _get(url)[1]} if "304" in case else {} for name, url in urls.items()}
    rounds, seconds = (2, 1) if bench.quick else (5, 3)
    loads: dict[str, list[Load]] = {name: [] for name in urls}
    for turn in range(rounds + 1):
        for name, url in urls.items():
            found = load(url, seconds=seconds if turn else 1, headers=headers[name], pids=pids[name])
            loads[name] += [found] if turn else []
    for name, taken in loads.items():
        if failed := sum(found.failed for found in taken):
            bench.note(f"{case}: {failed} requests to {name} failed")
        values = {
            key: statistics.median(getattr(found, key) for found in taken) for key in ("rate", "median", "p99", "cpu")
        }
        yield Measurement(case, name, values)


def _get(url: str) -> tuple[bytes, str]:
    """Body and ETag."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read(), answer.headers["ETag"]


def rps_tables(outcome: Outcome) -> list[Table]:
    shares, cpu = outcome.ratios(OURS, NGINX, "rate"), outcome.ratios(NGINX, OURS, "cpu")
    rows = []
    for case in outcome.cases():
        rates = [f"{outcome.value(case, name, 'rate') or 0:,.0f}" for name in (OURS, NGINX)]
        seconds = [duration(outcome.value(case, OURS, name)) for name in ("median", "p99", "cpu")]
        rows.append([case, *rates, times(shares.get(case)), times(cpu.get(case)), *seconds])
    head = ["requests a second", OURS, NGINX, "÷ nginx", "by CPU", "median", "p99", "CPU of one"]
    return [Table("Requests a second, one worker, 16 connections", head, rows)]


def rps_targets(outcome: Outcome) -> Iterator[Target]:
    for case, share in outcome.ratios(OURS, NGINX, "rate").items():
        least = REQUESTS[case][2]
        if least is not None:
            yield Target(f"{case}: at least {least}× nginx", f"{share:.2f}×", share >= least)
    values = ((c, outcome.value(c, OURS, "p99"), outcome.value(c, OURS, "median")) for c in outcome.cases())
    tails = {case: ratio(p99, median) or 0 for case, p99, median in values}
    if tails:
        worst = max(tails, key=tails.__getitem__)
        yield Target("p99 under 5× the median", f"worst is {tails[worst]:.1f}× ({worst})", tails[worst] < 5)


RPS: Final = Suite("rps", "Requests per second", rps, rps_tables, rps_targets)

# --- memory ----------------------------------------------------------------------------------------------------------

ONE: Final = "one slice"
MANY: Final = "64 clients at once"
READ: Final = "1 GiB into memory"
_CACHE: Final = 64 * _MIB
_IN_FLIGHT: Final = 512 * _MIB
_CLIENTS: Final = 64
_CLIENT_PROGRAM: Final = """
import json, sys
from hyperslab import RemoteArray
from tests.benchmarks.processes import forget_peak, memory, peak_memory
array = RemoteArray(sys.argv[1])
array[(0,) * array.ndim]
forget_peak()
before = memory()
values = array[:512]
print(json.dumps({"result": values.nbytes, "above": peak_memory() - before - values.nbytes}))
"""
"""What a read costs the client beside its result, in a process of its own, whose memory nothing else has touched."""


def memory_of(bench: Bench) -> Iterator[Measurement]:
    """Of the server while it streams what does not fit, and of the client while it reads."""
    make_huge(bench.arrays)
    planes = 1024 if bench.quick else PLANES
    with quiet_server({"data": bench.arrays}, cache_bytes=_CACHE) as server:
        bench.say(f"  {ONE} of {amount(planes * PLANE_BYTES)}")
        yield Measurement(ONE, OURS, _served(server, [f"0:{planes}"]) | {"cache": _CACHE})
        bench.say(f"  {CLIENT}")
        with python("-c", _CLIENT_PROGRAM, f"{server.url}/v1/metadata/data/{HUGE}") as process:
            out, _ = process.communicate(timeout=300)
        if not out:
            raise subprocess.SubprocessError("the client did not finish")
        yield Measurement(READ, CLIENT, json.loads(out))
    with quiet_server({"data": bench.arrays}, cache_bytes=0, bytes_in_flight=_IN_FLIGHT, queue_seconds=600) as server:
        bench.say(f"  {MANY}")
        each = 16 if bench.quick else 128
        selections = [f"{i * each}:{(i + 1) * each}" for i in range(_CLIENTS)]
        yield Measurement(MANY, OURS, _served(server, selections) | {"limit": _IN_FLIGHT})


def _served(server: Server, selections: Sequence[str]) -> dict[str, float]:
    """Let as many clients as there are selections stream at once, and see how far the server's memory grows."""
    path, pid = f"/v1/slice/data/{HUGE}?select=", server.process.pid
    with connected(server.url) as connection:
        connection.body(path + "0,0,0")
    forget_peak(pid)
    idle = memory(pid)
    with python("-m", "tests.benchmarks.sockets", "600", *(server.url + path + s for s in selections)) as process:
        found: dict[str, float] = json.loads(process.communicate(timeout=900)[0])
    growth = peak_memory(pid) - idle
    return {**found, "idle": idle, "growth": growth, "rate": found["nbytes"] / found["seconds"]}


def memory_tables(outcome: Outcome) -> list[Table]:
    rows = []
    for case in (ONE, MANY):
        nbytes, rate, idle, growth = (
            amount(outcome.value(case, OURS, n)) for n in ("nbytes", "rate", "idle", "growth")
        )
        rows.append([case, nbytes, f"{rate}/s", idle, growth])
    result, above = (amount(outcome.value(READ, CLIENT, name)) for name in ("result", "above"))
    rows.append([f"{CLIENT}, beside its result", result, "", "", above])
    return [Table("Memory", ["", "bytes", "rate", "idle process", "growth"], rows)]


def memory_targets(outcome: Outcome) -> Iterator[Target]:
    if len(outcome.cases()) < 3:
        return
    one, many = (outcome.value(case, OURS, "growth") or 0 for case in (ONE, MANY))
    cache, limit = outcome.value(ONE, OURS, "cache") or 0, outcome.value(MANY, OURS, "limit") or 0
    client, streamed = outcome.value(READ, CLIENT, "above") or 0, amount(outcome.value(ONE, OURS, "nbytes"))
    yield Target(f"{streamed} served within 150 MiB above idle and cache", amount(one), one < 150 * _MIB + cache)
    yield Target(f"64 clients within {amount(limit)} in flight", amount(many), many <= limit)
    yield Target("the client holds its result and at most 64 MiB more", amount(client), client <= 64 * _MIB)


MEMORY: Final = Suite("memory", "Memory", memory_of, memory_tables, memory_targets)

# --- small requests beside huge ones ---------------------------------------------------------------------------------

STREAMS: Final = {"nothing else": 0, "one huge slice": 1, "four huge slices": 4}
_VIEWERS: Final = 6
_KINDS: Final = {
    "cached tiles": [f"/v1/tile/data/slide/4/{x}/{y}.png" for x in range(4) for y in range(4)],
    "cached 64 KiB slices": [f"/v1/slice/data/slide?select={y}:{y + 256},{y}:{y + 256}" for y in range(0, 4096, 256)],
}


def starvation(bench: Bench) -> Iterator[Measurement]:
    """Whether small requests still get their answers while others stream gigabytes."""
    make(bench.arrays, SLIDE)
    make_huge(bench.arrays)
    seconds = 3.0 if bench.quick else 15.0
    with quiet_server({"data": bench.arrays}, cache_bytes=256 << 20) as server:
        with connected(server.url) as connection:
            for path in [path for paths in _KINDS.values() for path in paths] * 2:
                connection.body(path)
        for beside, streams in STREAMS.items():
            for kind, paths in _KINDS.items():
                bench.say(f"  {kind}, {beside}")
                with _streaming(server.url, streams, seconds + 1) as streamed:
                    found = view(server.url, paths, viewers=_VIEWERS, seconds=seconds)
                median, p99, most = map(float, np.quantile(found, (0.5, 0.99, 1)))
                values = {"median": median, "p99": p99, "max": most}
                values |= {"rate": len(found) / seconds, "streamed": sum(streamed)}
                yield Measurement(f"{kind}, {beside}", OURS, values)


@contextmanager
def _streaming(url: str, streams: int, seconds: float) -> Iterator[list[float]]:
    """Clients that read as fast as they can; afterwards the list holds how many bytes per second they got."""
    rates: list[float] = []
    if not streams:
        yield rates
        return
    each = PLANES // streams
    urls = [f"{url}/v1/slice/data/{HUGE}?select={i * each}:{(i + 1) * each}" for i in range(streams)]
    with python("-m", "tests.benchmarks.sockets", str(seconds), *urls) as process:
        yield rates
        found = json.loads(process.communicate(timeout=seconds + 60)[0])
    rates.append(found["nbytes"] / found["seconds"])


def starvation_tables(outcome: Outcome) -> list[Table]:
    rows = []
    for case in outcome.cases():
        streamed, rate = (outcome.value(case, OURS, name) for name in ("streamed", "rate"))
        seconds = [duration(outcome.value(case, OURS, name)) for name in ("median", "p99", "max")]
        rows.append([case, f"{rate:.0f}", *seconds, f"{amount(streamed)}/s" if streamed else ""])
    head = [f"{_VIEWERS} viewers", "answers a second", "median", "p99", "slowest", "streamed beside it"]
    return [Table("Small requests beside huge ones", head, rows)]


def starvation_targets(outcome: Outcome) -> Iterator[Target]:
    p99 = outcome.value("cached tiles, one huge slice", OURS, "p99") or 9
    yield Target("cached tiles: p99 below 50 ms while a huge slice streams", duration(p99), p99 < 0.05)


STARVATION: Final = Suite(
    "starvation", "Small requests beside huge ones", starvation, starvation_tables, starvation_targets
)

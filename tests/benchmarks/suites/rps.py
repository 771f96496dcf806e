"""Requests per second on one worker, next to nginx with one worker serving the same bytes from a file."""

from __future__ import annotations

import statistics
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from tests.benchmarks.data import SLIDE, SMALL, make
from tests.benchmarks.nginx import Missing, nginx, program
from tests.benchmarks.programs import quiet_server
from tests.benchmarks.report import duration, ratio, times
from tests.benchmarks.results import Measurement, Outcome, Table, Target
from tests.benchmarks.suite import Bench, Suite
from tests.benchmarks.wrk import Load, load

OURS: Final = "Hyperslab"
NGINX: Final = "nginx"
_LEAST: Final = {
    "stored 32 KiB chunk": 0.3,
    "cached 64 KiB slice": 0.2,
    "304 of a slice": 0.4,
    "304 of a stored chunk": 0.4,
    "cached 256² PNG tile": 0.2,
}
_WORST_TAIL: Final = 5.0


@dataclass(frozen=True, slots=True)
class Request:
    """One thing that is asked for; ``path`` of ours, ``file`` is nginx's copy of the answer."""

    case: str
    path: str
    file: str
    conditional: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)


_SLICE: Final = "/v1/slice/data/slide?select=256:512,512:768"
_TILE: Final = "/v1/tile/data/slide/3/1/2.png"
_CHUNK: Final = "/zarr/data/small/1.2"
_DECODED: Final = "/v1/chunk/data/small/1.2"
REQUESTS: Final = (
    Request("stored 32 KiB chunk", _CHUNK, "chunk"),
    Request("decoded 32 KiB chunk", _DECODED, "chunk"),
    Request("cached 64 KiB slice", _SLICE, "slice"),
    Request("304 of a slice", _SLICE, "slice", conditional=True),
    Request("304 of a stored chunk", _CHUNK, "chunk", conditional=True),
    Request("cached 256² PNG tile", _TILE, "tile.png"),
)


def measure(bench: Bench) -> Iterator[Measurement]:
    for spec in (SLIDE, SMALL):
        make(bench.arrays, spec)
    with ExitStack() as stack:
        server = stack.enter_context(quiet_server({"data": bench.arrays}, workers=1))
        copies = bench.folder / "copies"
        copies.mkdir(exist_ok=True)
        for request in REQUESTS:
            (copies / request.file).write_bytes(_get(server.url + request.path)[0])
        try:
            program("wrk")
            files = stack.enter_context(nginx(copies))
        except Missing as missing:
            bench.note(str(missing))
            return
        for request in REQUESTS:
            bench.say(f"  {request.case}")
            urls = {OURS: server.url + request.path, NGINX: f"{files.url}/{request.file}"}
            pids = {OURS: [server.process.pid], NGINX: files.processes()}
            yield from _alternate(request, urls, pids, bench)


def _alternate(
    request: Request, urls: Mapping[str, str], pids: Mapping[str, Sequence[int]], bench: Bench
) -> Iterator[Measurement]:
    """Load both servers in turns, after a short while that warms them up."""
    headers = {name: {"If-None-Match": _get(url)[1]} if request.conditional else {} for name, url in urls.items()}
    rounds, seconds = (2, 1) if bench.quick else (5, 3)
    loads: dict[str, list[Load]] = {name: [] for name in urls}
    for turn in range(rounds + 1):
        for name, url in urls.items():
            found = load(url, seconds=seconds if turn else 1, headers=headers[name], pids=pids[name])
            loads[name] += [found] if turn else []
    for name, found_loads in loads.items():
        failed = sum(found.failed for found in found_loads)
        if failed:
            bench.note(f"{request.case}: {failed} requests to {name} failed")
        yield Measurement(request.case, name, _summary(found_loads))


def _summary(loads: Sequence[Load]) -> dict[str, float]:
    return {
        "rate": statistics.median(found.rate for found in loads),
        "rate_max": max(found.rate for found in loads),
        "median": statistics.median(found.median for found in loads),
        "p99": statistics.median(found.p99 for found in loads),
        "cpu": statistics.median(found.cpu for found in loads),
    }


def tables(outcome: Outcome) -> list[Table]:
    rows = []
    for case in outcome.cases():
        ours, theirs = (outcome.value(case, name, "rate") for name in (OURS, NGINX))
        row = [
            case,
            f"{ours or 0:,.0f}",
            f"{theirs or 0:,.0f}",
            times(ratio(ours, theirs)),
            times(_by_cpu(outcome, case)),
        ]
        rows.append([*row, *(duration(outcome.value(case, OURS, name)) for name in ("median", "p99", "cpu"))])
    head = ["requests a second", OURS, NGINX, "÷ nginx", "by CPU", "median", "p99", "CPU of one"]
    return [Table("Requests a second, one worker, 16 connections", head, rows)]


def targets(outcome: Outcome) -> Iterator[Target]:
    for case, least in _LEAST.items():
        share = ratio(outcome.value(case, OURS, "rate"), outcome.value(case, NGINX, "rate"))
        if share is not None:
            yield Target(f"{case}: at least {least}× nginx", f"{share:.2f}×", share >= least)
    tails = {c: ratio(outcome.value(c, OURS, "p99"), outcome.value(c, OURS, "median")) or 0 for c in outcome.cases()}
    if tails:
        worst = max(tails, key=tails.__getitem__)
        text = f"worst is {tails[worst]:.1f}× ({worst})"
        yield Target("p99 under 5× the median", text, tails[worst] < _WORST_TAIL)


def _by_cpu(outcome: Outcome, case: str) -> float | None:
    return ratio(outcome.value(case, NGINX, "cpu"), outcome.value(case, OURS, "cpu"))


def _get(url: str) -> tuple[bytes, str]:
    """Body and ETag."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read(), answer.headers["ETag"]


SUITE: Final = Suite("rps", "Requests per second", measure, tables, lambda outcome: list(targets(outcome)))

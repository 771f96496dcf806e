"""Whether small requests still get their answers while others stream gigabytes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from tests.benchmarks.data import SLIDE, make
from tests.benchmarks.huge import NAME, PLANES, make_huge
from tests.benchmarks.processes import module
from tests.benchmarks.programs import quiet_server
from tests.benchmarks.report import amount, duration
from tests.benchmarks.results import Measurement, Outcome, Table, Target
from tests.benchmarks.sockets import connected
from tests.benchmarks.suite import Bench, Suite
from tests.benchmarks.viewers import look

OURS: Final = "Hyperslab"
STREAMS: Final = {"nothing else": 0, "one huge slice": 1, "four huge slices": 4}
_VIEWERS: Final = 6
_MOST: Final = 0.05
_TILES: Final = [f"/v1/tile/data/slide/4/{x}/{y}.png" for x in range(4) for y in range(4)]
_SLICES: Final = [f"/v1/slice/data/slide?select={y}:{y + 256},{y}:{y + 256}" for y in range(0, 4096, 256)]
_KINDS: Final = {"cached tiles": _TILES, "cached 64 KiB slices": _SLICES}


def measure(bench: Bench) -> Iterator[Measurement]:
    make(bench.arrays, SLIDE)
    make_huge(bench.arrays)
    seconds = 3.0 if bench.quick else 15.0
    with quiet_server({"data": bench.arrays}, cache_bytes=256 << 20) as server:
        with connected(server.url) as connection:
            for path in (*_TILES, *_SLICES) * 2:
                connection.get(path)
        for load, streams in STREAMS.items():
            for kind, paths in _KINDS.items():
                bench.say(f"  {kind}, {load}")
                with _streaming(server.url, streams, seconds + 1) as streamed:
                    found = look(server.url, paths, viewers=_VIEWERS, seconds=seconds)
                values = {name: found.quantile(share) for name, share in (("median", 0.5), ("p99", 0.99), ("max", 1))}
                rate = {"rate": len(found.seconds) / seconds, "streamed": sum(streamed), "failed": found.failed}
                yield Measurement(f"{kind}, {load}", OURS, values | rate)


@contextmanager
def _streaming(url: str, streams: int, seconds: float) -> Iterator[list[float]]:
    """Clients that read as fast as they can; afterwards the list holds how many bytes per second they got."""
    rates: list[float] = []
    if not streams:
        yield rates
        return
    each = PLANES // streams
    urls = [f"{url}/v1/slice/data/{NAME}?select={i * each}:{(i + 1) * each}" for i in range(streams)]
    with module("tests.benchmarks.drain", *urls, environment={"DRAIN_SECONDS": str(seconds)}) as process:
        yield rates
        found = json.loads(process.communicate(timeout=seconds + 60)[0])
    rates.append(found["nbytes"] / found["seconds"])


def tables(outcome: Outcome) -> list[Table]:
    head = ["6 viewers", "answers a second", "median", "p99", "slowest", "streamed beside it"]
    rows = []
    for case in outcome.cases():
        streamed = outcome.value(case, OURS, "streamed")
        times = [duration(outcome.value(case, OURS, name)) for name in ("median", "p99", "max")]
        rate = f"{outcome.value(case, OURS, 'rate'):.0f}"
        rows.append([case, rate, *times, f"{amount(streamed)}/s" if streamed else ""])
    return [Table("Small requests beside huge ones", head, rows)]


def targets(outcome: Outcome) -> Sequence[Target]:
    case = f"cached tiles, {list(STREAMS)[1]}"
    p99 = outcome.value(case, OURS, "p99") or 9
    return [Target("cached tiles: p99 below 50 ms while a huge slice streams", duration(p99), p99 < _MOST)]


SUITE: Final = Suite("starvation", "Small requests beside huge ones", measure, tables, targets)

"""What can be reached at all: the same reads by hand, in process and over a bare socket, next to ours."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Final

from tests.benchmarks.data import make_all, warm
from tests.benchmarks.nginx import Missing, nginx
from tests.benchmarks.processes import module
from tests.benchmarks.programs import Program, quiet_server
from tests.benchmarks.report import duration, geometric_mean, ratio, times
from tests.benchmarks.results import Measurement, Outcome, Table, Target
from tests.benchmarks.rounds import compare
from tests.benchmarks.suite import Bench, Suite

ENGINE: Final = "Hyperslab"
REMOTE: Final = "RemoteArray"
HAND: Final = "by hand"
SOCKET: Final = "by hand, over a socket"
IN_PROCESS: Final = "TensorStore"
OVER_NGINX: Final = "TensorStore, nginx"

_RATIOS: Final = ((ENGINE, HAND), (HAND, IN_PROCESS), (REMOTE, SOCKET), (SOCKET, IN_PROCESS), (OVER_NGINX, SOCKET))


def programs(bench: Bench, stack: ExitStack) -> list[Program]:
    """Starts the servers; they end with ``stack``."""
    root = str(bench.arrays)
    server = stack.enter_context(quiet_server({"data": bench.arrays}, cache_bytes=0, answer_cache_bytes=0))
    sender = stack.enter_context(module("tests.benchmarks.by_hand", root))
    assert sender.stdout is not None
    port = json.loads(sender.stdout.readline())["port"]
    found = [
        Program(ENGINE, "hyperslab", root),
        Program(HAND, "by-hand", root),
        Program(IN_PROCESS, "tensorstore", root),
        Program(REMOTE, "remote-array", server.url, serving=[server.process.pid]),
        Program(SOCKET, "by-hand-socket", str(port), serving=[sender.pid]),
    ]
    try:
        files = stack.enter_context(nginx(bench.arrays))
    except Missing as missing:
        bench.note(str(missing))
        return found
    return [*found, Program(OVER_NGINX, "tensorstore", files.url, serving=files.processes())]


def measure(bench: Bench) -> Iterator[Measurement]:
    make_all(bench.arrays, bench.specs)
    warm(bench.arrays)
    with ExitStack() as stack:
        yield from (measurement for _, measurement in compare(bench, programs(bench, stack)))


def tables(outcome: Outcome) -> list[Table]:
    cases, names = outcome.cases(), outcome.programs()
    pairs = [pair for pair in _RATIOS if set(pair) <= set(names)]
    found = {pair: [ratio(*(outcome.value(case, name) for name in pair)) for case in cases] for pair in pairs}
    rows = [
        [case, *(duration(outcome.value(case, name)) for name in names), *(times(found[pair][i]) for pair in pairs)]
        for i, case in enumerate(cases)
    ]
    rows.append(["geometric mean", *([""] * len(names)), *(times(geometric_mean(found[pair])) for pair in pairs)])
    return [Table("By hand", ["case", *names, *(f"{a} ÷ {b}" for a, b in pairs)], rows)]


def targets(outcome: Outcome) -> Sequence[Target]:  # noqa: ARG001
    """It has none of its own: it tells which of the others' can be reached."""
    return []


SUITE: Final = Suite("bounds", "What can be reached by hand", measure, tables, targets)

"""In less than a minute: slices and chunks over HTTP next to zarr-python and TensorStore reading the same files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from tests.benchmarks.cases import Case, cases_of
from tests.benchmarks.data import SLIDE, STACK, ArraySpec, make, warm
from tests.benchmarks.programs import Program, quiet_server, running
from tests.benchmarks.report import comparison
from tests.benchmarks.results import Measurement, Outcome, Table, Target
from tests.benchmarks.suite import Bench, Suite
from tests.benchmarks.timing import Effort, take_turns

REMOTE: Final = "RemoteArray"
CACHED: Final = "RemoteArray, cached"
CHUNK: Final = "GET /v1/chunk"
PEERS: Final = ("TensorStore", "zarr-python 3")

SPECS: Final = (
    replace(STACK, name="stack-small", shape=(32, 1024, 1024)),
    replace(SLIDE, name="slide-small", shape=(2048, 2048)),
)


def measure(bench: Bench, specs: Sequence[ArraySpec] = SPECS) -> Iterator[Measurement]:
    for spec in specs:
        make(bench.arrays, spec)
        warm(bench.arrays / spec.name)
    effort = Effort(min(5, bench.effort.rounds), min(1.5, bench.effort.seconds))
    with ExitStack() as stack:
        slices, chunks = _programs(bench, stack)
        for programs, cases in ((slices, _slice_cases(specs)), (chunks, [_chunk_case(spec) for spec in specs])):
            workers, problems = stack.enter_context(running(programs))
            for problem in problems:
                bench.note(problem)
            for case in cases:
                found, wrong = take_turns(case, workers, effort)
                for problem in wrong:
                    bench.note(problem)
                yield from found


def _programs(bench: Bench, stack: ExitStack) -> tuple[list[Program], list[Program]]:
    stores = {"data": bench.arrays}
    cold = stack.enter_context(quiet_server(stores, cache_bytes=0, answer_cache_bytes=0))
    cached = stack.enter_context(quiet_server(stores))
    files = str(bench.arrays)
    peers = [Program(PEERS[0], "tensorstore", files), Program(PEERS[1], "zarr-python", files)]
    slices = [
        Program(REMOTE, "remote-array", cold.url, serving=[cold.process.pid]),
        Program(CACHED, "remote-array", cached.url, serving=[cached.process.pid]),
        *peers,
    ]
    return slices, [Program(CHUNK, "chunk-route", cold.url, serving=[cold.process.pid]), *peers]


def _slice_cases(specs: Sequence[ArraySpec]) -> list[Case]:
    return [case for spec in specs for case in cases_of(spec)]


def _chunk_case(spec: ArraySpec) -> Case:
    """The second chunk along each axis."""
    pairs = zip(spec.chunks, spec.shape, strict=True)
    return Case(spec, "one chunk", tuple(slice(c, 2 * c) if 2 * c <= n else slice(0, c) for c, n in pairs))


def tables(outcome: Outcome) -> list[Table]:
    chunks = [case for case in outcome.cases() if outcome.value(case, CHUNK) is not None]
    slices = [case for case in outcome.cases() if case not in chunks]
    return [
        comparison(_part(outcome, slices), "Slices", ours=REMOTE, against=PEERS, cases=slices),
        comparison(_part(outcome, chunks), "Chunks", ours=CHUNK, against=PEERS, cases=chunks),
    ]


def _part(outcome: Outcome, cases: Sequence[str]) -> Outcome:
    return replace(outcome, measurements=[m for m in outcome.measurements if m.case in cases])


def targets(_: Outcome) -> Sequence[Target]:
    return []


SUITE: Final = Suite("smoke", "Slices and chunks over HTTP", measure, tables, targets)

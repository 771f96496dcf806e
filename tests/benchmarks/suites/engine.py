"""Reading local files in process: our engine, TensorStore, zarr-python 2 and 3, zarrs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tests.benchmarks.data import make_all, warm
from tests.benchmarks.programs import Program
from tests.benchmarks.report import comparison, geometric_mean, ratio
from tests.benchmarks.results import Measurement, Outcome, Table, Target
from tests.benchmarks.rounds import compare
from tests.benchmarks.suite import Bench, Suite

OURS: Final = "Hyperslab"
FRESH: Final = "Hyperslab, cache on"
TENSORSTORE: Final = "TensorStore"
PEERS: Final = (TENSORSTORE, "zarr-python 3", "zarr-python 2", "zarrs")


def programs(bench: Bench) -> list[Program]:
    root = str(bench.arrays)
    found = [
        Program(OURS, "hyperslab", root),
        Program(FRESH, "hyperslab-fresh", root),
        Program(TENSORSTORE, "tensorstore", root),
        Program("zarr-python 3", "zarr-python", root),
        Program("zarrs", "zarrs", root),
    ]
    if bench.zarr2_python:
        found.append(Program("zarr-python 2", "zarr-python", root, python=bench.zarr2_python))
    else:
        bench.note("zarr-python 2 is left out: ZARR2_PYTHON names no Python that has it")
    return found


def measure(bench: Bench) -> Iterator[Measurement]:
    make_all(bench.arrays, bench.specs)
    warm(bench.arrays)
    yield from (measurement for _, measurement in compare(bench, programs(bench)))


def tables(outcome: Outcome) -> list[Table]:
    return [
        comparison(outcome, "In process", ours=OURS, against=[TENSORSTORE, "zarr-python 3"], cases=outcome.cases()),
    ]


def targets(outcome: Outcome) -> Sequence[Target]:
    mean = geometric_mean(ratio(outcome.value(c, OURS), outcome.value(c, TENSORSTORE)) for c in outcome.cases())
    fastest = list(_against_fastest(outcome))
    slower = [f"{case} ({worst:.2f}× {peer})" for case, peer, worst in fastest if worst > 1]
    return [
        Target("time at most 0.6× TensorStore's (geometric mean)", f"{mean or 0:.2f}×", (mean or 9) <= 0.6),
        Target("never slower than the fastest peer", ", ".join(slower) or "never slower", bool(fastest) and not slower),
    ]


def _against_fastest(outcome: Outcome) -> Iterator[tuple[str, str, float]]:
    """Case, fastest peer, and our time relative to it."""
    for case in outcome.cases():
        walls = {peer: outcome.value(case, peer) for peer in PEERS}
        there = {peer: wall for peer, wall in walls.items() if wall is not None}
        ours = outcome.value(case, OURS)
        if ours is not None and there:
            fastest = min(there, key=there.__getitem__)
            yield case, fastest, ours / there[fastest]


SUITE: Final = Suite("engine", "Reading files in process", measure, tables, targets)

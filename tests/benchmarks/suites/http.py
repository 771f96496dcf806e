"""Reading over loopback: `RemoteArray` from our server, next to TensorStore in process and to both over nginx."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Final

from tests.benchmarks.cases import Case
from tests.benchmarks.data import make_all, warm
from tests.benchmarks.nginx import Missing, nginx
from tests.benchmarks.programs import Program, quiet_server
from tests.benchmarks.report import comparison, geometric_mean, ratio
from tests.benchmarks.results import Measurement, Outcome, Table, Target
from tests.benchmarks.rounds import compare
from tests.benchmarks.suite import Bench, Suite

OURS: Final = "RemoteArray"
CACHED: Final = "RemoteArray, cached"
IN_PROCESS: Final = "TensorStore in process"
OVER_NGINX: Final = ("TensorStore, nginx", "zarr-python 3, nginx", "zarr-python 3 + obstore, nginx")
OVER_ZARR: Final = ("TensorStore, our /zarr", "zarr-python 3, our /zarr")

_MEBIBYTE: Final = 1 << 20


def programs(bench: Bench, stack: ExitStack) -> list[Program]:
    """Starts the servers; they end with ``stack``."""
    stores = {"data": bench.arrays}
    cold = stack.enter_context(quiet_server(stores, cache_bytes=0, answer_cache_bytes=0))
    cached = stack.enter_context(quiet_server(stores, cache_bytes=1 << 30))
    zarr_url, ours = f"{cold.url}/zarr/data", [cold.process.pid]
    found = [
        Program(OURS, "remote-array", cold.url, serving=ours),
        Program(CACHED, "remote-array", cached.url, serving=[cached.process.pid]),
        Program(IN_PROCESS, "tensorstore", str(bench.arrays)),
        Program(OVER_ZARR[0], "tensorstore", zarr_url, serving=ours),
        Program(OVER_ZARR[1], "zarr-python", zarr_url, serving=ours),
    ]
    try:
        files = stack.enter_context(nginx(bench.arrays))
    except Missing as missing:
        bench.note(str(missing))
        return found
    pids = files.processes()
    readers = ("tensorstore", "zarr-python", "zarr-obstore")
    return found + [Program(t, r, files.url, serving=pids) for t, r in zip(OVER_NGINX, readers, strict=True)]


def measure(bench: Bench) -> Iterator[Measurement]:
    make_all(bench.arrays, bench.specs)
    warm(bench.arrays)
    with ExitStack() as stack:
        yield from (_with_part(measurement, case) for case, measurement in compare(bench, programs(bench, stack)))


def tables(outcome: Outcome) -> list[Table]:
    against = [IN_PROCESS, *(name for name in OVER_NGINX[:2] if name in outcome.programs())]
    return [comparison(outcome, "Over loopback", ours=OURS, against=against, cases=outcome.cases())]


def targets(outcome: Outcome) -> Sequence[Target]:
    big = [c for c in outcome.cases() if (outcome.value(c, OURS, "nbytes") or 0) >= _MEBIBYTE]
    mean = geometric_mean(ratio(outcome.value(c, OURS), outcome.value(c, IN_PROCESS)) for c in big)
    slow = _listed((c, ratio(outcome.value(c, OURS), outcome.value(c, IN_PROCESS))) for c in big)
    found = [
        Target(
            "at most 1.2× TensorStore in process on reads of 1 MiB and more",
            f"mean {mean or 0:.2f}×; above: {slow or 'none'}",
            bool(big) and not slow,
        )
    ]
    if OVER_NGINX[0] in outcome.programs():
        found += _against_nginx(outcome)
    return found


def _against_nginx(outcome: Outcome) -> Iterator[Target]:
    cases = outcome.cases()
    speedups = {case: _speedup(outcome, case) for case in cases}
    slower = [f"{case} ({speedup:.2f}×)" for case, speedup in speedups.items() if speedup < 1]
    yield Target("faster than others over nginx on every case", ", ".join(slower) or "on every case", not slower)
    parts = [case for case in cases if outcome.value(case, OURS, "small_part")]
    short = [f"{case} ({speedups[case]:.1f}×)" for case in parts if speedups[case] < 5]
    mean = geometric_mean(speedups[case] for case in parts)
    text = "5× faster where a small part of big chunks is asked for"
    yield Target(text, f"mean {mean or 0:.1f}×; below: {', '.join(short) or 'none'}", not short)


def _speedup(outcome: Outcome, case: str) -> float:
    """How many times faster we are than the fastest over nginx."""
    walls = [wall for name in OVER_NGINX if (wall := outcome.value(case, name)) is not None]
    return ratio(min(walls, default=None), outcome.value(case, OURS)) or 0.0


def _listed(ratios: Iterator[tuple[str, float | None]]) -> str:
    return ", ".join(f"{case} ({value:.2f}×)" for case, value in ratios if value is None or value > 1.2)


def _with_part(measurement: Measurement, case: Case) -> Measurement:
    values = {**measurement.values, "small_part": float(case.is_small_part_of_big_chunks)}
    return Measurement(measurement.case, measurement.program, values)


SUITE: Final = Suite("http", "Reading over HTTP", measure, tables, targets)

"""What the size of an array costs those who want only a tile of it: from 10² to 10⁸ chunks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import tensorstore as ts
import zarr

from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import Service, build
from hyperslab.engine.selection import normalise
from hyperslab.storage import StoreConfig, open_store
from tests.benchmarks.data import make_sparse
from tests.benchmarks.programs import Sample, quiet_server, summary, take_turns
from tests.benchmarks.report import duration, ratio, times
from tests.benchmarks.sockets import connected
from tests.benchmarks.suite import Bench, Effort, Measurement, Outcome, Suite, Table, Target

SIZES: Final = {"10²": 10, "10⁴": 100, "10⁶": 1_000, "10⁸": 10_000}
"""Chunks of an array, and along each of its two axes."""
_CHUNK: Final = 256
_TILE: Final = (slice(1300, 1556), slice(1300, 1556))
_TEXT: Final = "1300:1556,1300:1556"


def measure(bench: Bench) -> Iterator[Measurement]:
    folder = bench.folder / "grids"
    names = {title: make_sparse(folder, side) for title, side in SIZES.items()}
    (folder / ".zgroup").write_text('{"zarr_format": 2}')
    with ExitStack() as stack:
        service = _service(folder)
        stack.callback(service.close)
        server = stack.enter_context(
            quiet_server({"data": folder}, cache_bytes=0, answer_cache_bytes=0, tile_cache_bytes=0)
        )
        get = stack.enter_context(connected(server.url)).body
        works: dict[str, dict[str, Callable[[], Any]]] = {}
        for title, name in names.items():
            z = (SIZES[title] * _CHUNK - 1).bit_length() - 8
            steps = _steps(folder, service, name)
            steps["slice over HTTP"] = partial(get, f"/v1/slice/data/{name}?select={_TEXT}")
            steps["PNG tile over HTTP"] = partial(get, f"/v1/tile/data/{name}/{z}/5/5.png")
            for step, work in steps.items():
                works.setdefault(f"{step}, {title} chunks", {})["Hyperslab"] = work
            others = {"TensorStore": _tensorstore(folder / name), "zarr-python 3": _zarr(folder / name)}
            works[f"open and read, {title} chunks"] = others
        flat = {
            f"{case}|{program}": partial(_timed, work) for case, by in works.items() for program, work in by.items()
        }
        samples = take_turns(flat, Effort(5 if bench.quick else 30, float("inf")))
        for case, by in works.items():
            yield from summary(case, {program: samples[f"{case}|{program}"] for program in by})


def _timed(work: Callable[[], Any]) -> Sample:
    work()
    began = time.perf_counter()
    work()
    return Sample(time.perf_counter() - began, 0.0)


def _service(folder: Path) -> Service:
    return build([MountedStore("data", open_store(StoreConfig(name="data", url=str(folder))))], cache_bytes=0)


def _steps(folder: Path, service: Service, name: str) -> dict[str, Callable[[], Any]]:
    """Opening in a service that has seen nothing yet, planning a tile, and planning and reading it."""
    array = service.catalog.open_array(f"data/{name}")
    reader = service.reader

    def open_() -> None:
        fresh = _service(folder)
        fresh.catalog.open_array(f"data/{name}")
        fresh.close()

    return {
        "open": open_,
        "plan": lambda: reader.plan(array, normalise(_TILE, array.metadata.shape)),
        "plan and read": lambda: reader.read(reader.plan(array, normalise(_TILE, array.metadata.shape)))[0],
    }


def _tensorstore(path: Path) -> Callable[[], Any]:
    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": str(path)}}
    return lambda: ts.open(spec, read=True).result()[_TILE].read().result()


def _zarr(path: Path) -> Callable[[], Any]:
    return lambda: zarr.open_array(str(path), mode="r")[_TILE]


def tables(outcome: Outcome) -> list[Table]:
    rows = []
    for program, step in _lines(outcome):
        walls = [outcome.value(f"{step}, {title} chunks", program) for title in SIZES]
        rows.append([f"{program}: {step}", *map(duration, walls), times(_growth(outcome, program, step))])
    return [
        Table("The size of the array", ["one tile of an array of", *(f"{t} chunks" for t in SIZES), "10⁸ ÷ 10²"], rows)
    ]


def targets(outcome: Outcome) -> Iterator[Target]:
    growths = {step: _growth(outcome, p, step) or 9 for p, step in _lines(outcome) if p == "Hyperslab"}
    if growths:
        worst = max(growths, key=growths.__getitem__)
        text = "open, plan and one tile cost the same for 10⁸ chunks as for 10²"
        yield Target(text, f"at most {growths[worst]:.2f}× ({worst})", growths[worst] <= 1.25)


def _growth(outcome: Outcome, program: str, step: str) -> float | None:
    """By the shortest times, which other load on the machine disturbs least."""
    small, *_, large = SIZES
    walls = [outcome.value(f"{step}, {title} chunks", program, "wall_min") for title in (large, small)]
    return ratio(*walls)


def _lines(outcome: Outcome) -> list[tuple[str, str]]:
    return list(dict.fromkeys((m.program, m.case.rpartition(", ")[0]) for m in outcome.measurements))


SUITE: Final = Suite("scaling", "The size of the array", measure, tables, targets)

"""What the size of an array costs those who want only a tile of it: from 10² to 10⁸ chunks."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numcodecs
import tensorstore as ts
import zarr

from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import Service, build
from hyperslab.engine.indexing import normalise
from hyperslab.storage import StoreConfig, open_store
from tests.benchmarks.data import BLOSC, slide
from tests.benchmarks.programs import quiet_server
from tests.benchmarks.report import duration, ratio, times
from tests.benchmarks.results import Measurement, Outcome, Table, Target
from tests.benchmarks.sockets import connected
from tests.benchmarks.suite import Bench, Suite

SIZES: Final = {"10²": 10, "10⁴": 100, "10⁶": 1_000, "10⁸": 10_000}
"""Chunks of an array, and along each of its two axes."""
_CHUNK: Final = 256
_MOST: Final = 1.25
_FIRST: Final = 4  # the first chunk that is there, along both axes
_THERE: Final = 4
_TILE: Final = (slice(1300, 1556), slice(1300, 1556))
_TEXT: Final = "1300:1556,1300:1556"


def make_sparse(folder: Path, side: int) -> str:
    """uint8 in chunks of 256², of which sixteen are there; returns the array's name."""
    name = f"grid{side}"
    target = folder / name
    if target.exists():
        return name
    target.mkdir(parents=True)
    codec = numcodecs.get_codec(dict(BLOSC))
    for i in range(_FIRST, _FIRST + _THERE):
        block = slide((_CHUNK, _THERE * _CHUNK), i * _CHUNK).astype("u1")
        for j in range(_THERE):
            chunk = block[:, j * _CHUNK : (j + 1) * _CHUNK].copy()
            (target / f"{i}.{j + _FIRST}").write_bytes(bytes(codec.encode(chunk)))
    document = {"zarr_format": 2, "shape": [side * _CHUNK] * 2, "chunks": [_CHUNK] * 2, "dtype": "|u1", "order": "C"}
    document |= {"compressor": dict(BLOSC), "filters": None, "fill_value": 0}
    (target / ".zarray").write_text(json.dumps(document), encoding="ascii")
    return name


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
        connection = stack.enter_context(connected(server.url))
        works: dict[tuple[str, str, str], Callable[[], Any]] = {}
        for title, name in names.items():
            for step, work in _steps(folder, service, name).items():
                works[title, "Hyperslab", step] = work
            works[title, "Hyperslab", "slice over HTTP"] = _getting(
                connection.get, f"/v1/slice/data/{name}?select={_TEXT}"
            )
            z = (SIZES[title] * _CHUNK - 1).bit_length() - 8
            works[title, "Hyperslab", "PNG tile over HTTP"] = _getting(
                connection.get, f"/v1/tile/data/{name}/{z}/5/5.png"
            )
            works[title, "TensorStore", "open and read"] = _tensorstore(folder / name)
            works[title, "zarr-python 3", "open and read"] = _zarr(folder / name)
        yield from _in_turns(works, rounds=5 if bench.quick else 30)


def _service(folder: Path) -> Service:
    return build([MountedStore("data", open_store(StoreConfig(name="data", url=str(folder))))], cache_bytes=0)


def _steps(folder: Path, service: Service, name: str) -> Mapping[str, Callable[[], Any]]:
    """Opening in a service that has seen nothing yet, planning a tile, and planning and reading it."""
    array = service.catalog.open_array(f"data/{name}")
    reader = service.reader

    def open_() -> None:
        fresh = _service(folder)
        fresh.catalog.open_array(f"data/{name}")
        fresh.close()

    return {
        "open": open_,
        "plan": lambda: reader.plan_only(array, normalise(_TILE, array.metadata.shape)),
        "plan and read": lambda: reader.read(reader.plan_only(array, normalise(_TILE, array.metadata.shape))),
    }


def _getting(get: Callable[[str], Any], path: str) -> Callable[[], Any]:
    def work() -> None:
        reply = get(path)
        if reply.status != 200:
            raise RuntimeError(f"{path} gave {reply.status}")

    return work


def _tensorstore(path: Path) -> Callable[[], Any]:
    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": str(path)}}
    return lambda: ts.open(spec, read=True).result()[_TILE].read().result()


def _zarr(path: Path) -> Callable[[], Any]:
    return lambda: zarr.open_array(str(path), mode="r")[_TILE]


def _in_turns(works: Mapping[tuple[str, str, str], Callable[[], Any]], rounds: int) -> Iterator[Measurement]:
    taken: dict[tuple[str, str, str], list[float]] = {key: [] for key in works}
    for _ in range(rounds):
        for key, work in works.items():
            work()
            began = time.perf_counter()
            work()
            taken[key].append(time.perf_counter() - began)
    for (title, program, step), walls in taken.items():
        values = {"wall": statistics.median(walls), "wall_min": min(walls)}
        yield Measurement(f"{step}, {title} chunks", program, values)


def tables(outcome: Outcome) -> list[Table]:
    rows = []
    for program, step in _lines(outcome):
        walls = [outcome.value(f"{step}, {title} chunks", program) for title in SIZES]
        rows.append([f"{program}: {step}", *map(duration, walls), times(_growth(outcome, program, step))])
    return [
        Table("The size of the array", ["one tile of an array of", *(f"{t} chunks" for t in SIZES), "10⁸ ÷ 10²"], rows)
    ]


def targets(outcome: Outcome) -> Sequence[Target]:
    growths = {step: _growth(outcome, p, step) or 9 for p, step in _lines(outcome) if p == "Hyperslab"}
    if not growths:
        return []
    worst = max(growths, key=growths.__getitem__)
    text = "open, plan and one tile cost the same for 10⁸ chunks as for 10²"
    return [Target(text, f"at most {growths[worst]:.2f}× ({worst})", growths[worst] <= _MOST)]


def _growth(outcome: Outcome, program: str, step: str) -> float | None:
    """By the shortest times, which other load on the machine disturbs least."""
    small, *_, large = SIZES
    walls = [outcome.value(f"{step}, {title} chunks", program, "wall_min") for title in (large, small)]
    return ratio(*walls)


def _lines(outcome: Outcome) -> list[tuple[str, str]]:
    return list(dict.fromkeys((m.program, m.case.rpartition(", ")[0]) for m in outcome.measurements))


SUITE: Final = Suite("scaling", "The size of the array", measure, tables, targets)

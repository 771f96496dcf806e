"""Writing whole arrays and boxes that no chunk's edge respects: over HTTP and in process, next to local writers.

The targets compare equal durability: written to another name, then renamed. Waiting for the disk is shown apart.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import zarr

from tests.benchmarks.cases import Selection
from tests.benchmarks.data import BLOSC, ArraySpec, make, micrographs, slide
from tests.benchmarks.programs import Program, ProgramFailed, Running, quiet_server, running, summary, take_turns
from tests.benchmarks.report import comparison, geometric_mean
from tests.benchmarks.suite import Bench, Effort, Measurement, Outcome, Suite, Table, Target

REMOTE: Final = "RemoteArray"
OURS: Final = "Hyperslab in process"
SHARDED: Final = "Hyperslab in process, shards"
ZARR: Final = "zarr-python 3"
TENSORSTORE: Final = "TensorStore"
SYNCED: Final = "waiting for the disk"

SPECS: Final = (
    ArraySpec("stack", (32, 1024, 2048), (16, 256, 256), "<u2", BLOSC, micrographs),
    ArraySpec("slide", (4096, 4096), (256, 256), "|u1", BLOSC, slide),
)
_BOXES: Final = 24
_FOLDERS: Final = ("remote", "ours", "sharded", "zarr3", "tensorstore", "zarr2", "remote-synced", "tensorstore-synced")


@dataclass(frozen=True, slots=True)
class WriteCase:
    """Boxes that are written one after the other."""

    spec: ArraySpec
    name: str
    boxes: Sequence[Selection]

    @property
    def title(self) -> str:
        return f"{self.spec.name}: {self.name}"


def cases_of(spec: ArraySpec, boxes: int = _BOXES) -> list[WriteCase]:
    whole = tuple(slice(0, n) for n in spec.shape)
    return [
        WriteCase(spec, "whole", [whole]),
        WriteCase(spec, f"{boxes} unaligned boxes", [_box(spec, i) for i in range(boxes)]),
    ]


def _box(spec: ArraySpec, seed: int) -> Selection:
    """About the size of a chunk and a half along each axis, anywhere."""
    chance = random.Random(seed)
    box = []
    for length, chunk in zip(spec.shape, spec.chunks, strict=True):
        size = min(length, chunk + chunk // 2 + 1)
        start = chance.randrange(length - size + 1)
        box.append(slice(start, start + size))
    return tuple(box)


def measure(bench: Bench, specs: Sequence[ArraySpec] = SPECS) -> Iterator[Measurement]:
    folder = bench.folder / "writes"
    shutil.rmtree(folder, ignore_errors=True)
    values = {spec.name: _values(folder, spec) for spec in specs}
    with ExitStack() as stack:
        for name in _FOLDERS:
            for spec in specs:
                make(folder / name, sharded(spec) if name == "sharded" else spec)
        normal, synced = _programs(folder, bench, stack)
        for programs, suffix in ((normal, ""), (synced, f", {SYNCED}")):
            workers, problems = stack.enter_context(running(programs))
            bench.note(*problems)
            for case in (case for spec in specs for case in cases_of(spec)):
                bench.say(f"  {case.title}{suffix}")
                yield from _in_turns(case, suffix, workers, values[case.spec.name], bench)
        written = [name for name in _FOLDERS if bench.zarr2_python or name != "zarr2"]
        for name, program in zip(written, (*normal, *synced), strict=True):
            _check(folder / name, specs, values, program, bench)
    shutil.rmtree(folder, ignore_errors=True)


def _programs(folder: Path, bench: Bench, stack: ExitStack) -> tuple[list[Program], list[Program]]:
    """Those that rename, and those that wait for the disk too; servers end with ``stack``."""

    def server(name: str, durability: str) -> Program:
        store = {"url": str(folder / name), "writable": True, "durability": durability}
        running_server = stack.enter_context(quiet_server({"data": store}, cache_bytes=0))
        return Program(REMOTE, "write-remote-array", running_server.url, serving=[running_server.process.pid])

    normal = [
        server("remote", "rename"),
        Program(OURS, "write-hyperslab", str(folder / "ours")),
        Program(SHARDED, "write-hyperslab", str(folder / "sharded")),
        Program(ZARR, "write-zarr-python", str(folder / "zarr3")),
        Program(TENSORSTORE, "write-tensorstore", str(folder / "tensorstore")),
    ]
    synced = [
        server("remote-synced", "fsync"),
        Program(TENSORSTORE, "write-tensorstore-sync", str(folder / "tensorstore-synced")),
    ]
    if bench.zarr2_python:
        root = str(folder / "zarr2")
        normal.append(Program("zarr-python 2", "write-zarr-python", root, python=bench.zarr2_python))
    return normal, synced


def sharded(spec: ArraySpec) -> ArraySpec:
    """The same chunks in Zarr v3, a row of them in a shard."""
    rows = zip(spec.shape[1:], spec.chunks[1:], strict=True)
    return replace(spec, shards=(spec.chunks[0], *(size // chunk * chunk for size, chunk in rows)))


def _values(folder: Path, spec: ArraySpec) -> Path:
    """What is written, other than what is there: the array upside down."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{spec.name}.npy"
    np.save(path, np.concatenate([block for _, block in spec.blocks()])[::-1])
    return path


def _in_turns(
    case: WriteCase, suffix: str, workers: Sequence[Running], values: Path, bench: Bench
) -> Iterator[Measurement]:
    works = {}
    for worker in workers:
        work = partial(worker.write, case.spec.name, case.boxes, values)
        try:
            work()  # not timed
        except ProgramFailed as failure:
            bench.note(f"{case.title}: {failure}")
        else:
            works[worker.program.title] = work
    nbytes = sum(_nbytes(box, case.spec) for box in case.boxes)
    samples = take_turns(works, Effort(bench.effort.rounds, float("inf")))
    yield from summary(case.title + suffix, samples, nbytes=nbytes)


def _nbytes(box: Selection, spec: ArraySpec) -> int:
    sizes = [item.stop - item.start for item in box if isinstance(item, slice)]
    return int(np.prod(sizes)) * spec.itemsize


def _check(folder: Path, specs: Sequence[ArraySpec], values: dict[str, Path], program: Program, bench: Bench) -> None:
    """Whether all of it is there."""
    for spec in specs:
        found: Any = zarr.open_array(str(folder / spec.name), mode="r")[...]
        if not np.array_equal(found, np.load(values[spec.name])):
            bench.note(f"{program.title} has not written {spec.name} as it was told to")


def tables(outcome: Outcome) -> list[Table]:
    plain = [case for case in outcome.cases() if SYNCED not in case]
    synced = [case for case in outcome.cases() if SYNCED in case]
    return [
        comparison(outcome, "Writing", ours=REMOTE, against=[ZARR, TENSORSTORE], cases=plain),
        comparison(outcome, "Writing and waiting for the disk", ours=REMOTE, against=[TENSORSTORE], cases=synced),
    ]


def targets(outcome: Outcome) -> Iterator[Target]:
    speeds = {case: speed for case, speed in outcome.ratios(ZARR, REMOTE).items() if case.endswith("whole")}
    found = ", ".join(f"{case} {speed:.2f}×" for case, speed in speeds.items())
    text = "whole arrays through HTTP at least as fast as zarr-python locally"
    mean = geometric_mean(speeds.values()) or 0.0
    yield Target(text, f"{found}; mean {mean:.2f}×", bool(speeds) and min(speeds.values()) >= 1)
    rates = {case: rate for case, rate in outcome.ratios(OURS, SHARDED).items() if case.endswith("whole")}
    found = ", ".join(f"{case} {rate:.2f}×" for case, rate in rates.items())
    yield Target("whole shards at 0.8 times the rate of chunks", found, bool(rates) and min(rates.values()) >= 0.8)


SUITE: Final = Suite("writes", "Writing", measure, tables, targets)

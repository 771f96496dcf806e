"""Constants that tune reading: the same reads with half, the present and twice the value of each."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import numcodecs
import numpy as np
import zarr

from hyperslab.arrays.chunks import ReadCost
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import build
from hyperslab.cache import VersionedCache
from hyperslab.engine.selection import normalise
from hyperslab.storage import StoreConfig, open_store
from hyperslab.tiles.service import Tiles
from tests.benchmarks.programs import Sample, take_turns
from tests.benchmarks.report import geometric_mean, times
from tests.benchmarks.suite import Bench, Effort, Measurement, Outcome, Suite, Table, Target
from tests.tiles.support import parse_query, rendering

_BLOSC: Final = ("lz4-1M", "zstd-1M", "lz4-4M")
CONSTANTS: Final[Mapping[str, tuple[Sequence[str], Sequence[str]]]] = {
    "engine.partial.WORTH_SHARE": ((*_BLOSC, "raw-1M"), ("half", "part", "side")),
    "engine.partial.GAP_BYTES": (_BLOSC, ("side", "half", "series")),
    "engine.partial.RANGE_GAP_BYTES": (("raw-1M", "raw-4M"), ("side", "half", "series")),
    "engine.partial.SMALL_FAST": (("raw-256K", "lz4-256K", "raw-64K", "lz4-64K"), ("plane", "part", "series")),
    "engine.partial.SMALL_SLOW": (("zstd-64K", "zstd-256K"), ("plane", "part", "series")),
    "engine.partial.SURGERY_FAST": (("lz4-1M", "lz4-4M"), ("plane", "half", "part", "series")),
    "engine.partial.SURGERY_SLOW": (("zstd-1M", "zstd-256K"), ("plane", "half", "part", "series")),
    "engine.partial.LIKELY_BLOCK": (_BLOSC, ("plane", "series")),
    "engine.partial.USUAL_BLOCK": (_BLOSC, ("plane", "series", "stream")),
    "engine.codecs.MIN_STREAM": (("gzip-64K", "gzip-256K"), ("plane", "part")),
    "arrays.read._LARGEST_SLAB": (("lz4-4M", "gzip-4M"), ("stream",)),
    "arrays.shards.GROUP_BYTES": (("shards-64K",), ("plane", "half", "stream")),
    "arrays.shards._LOCAL_BATCH": (("shards-64K",), ("plane", "half", "stream")),
    "tiles.read.STRIP_BYTES": (("lz4-1M", "zstd-4M"), ("tile",)),
}
"""Modules and names, with the arrays and boxes to which they matter."""
_FACTORS: Final = {"half": 0.5, "present": 1.0, "double": 2.0}
_SHAPE: Final = (128, 512, 512)
_CHUNKS: Final = {"64K": (8, 64, 64), "256K": (8, 128, 128), "1M": (16, 128, 256), "4M": (32, 256, 256)}
_CODECS: Final[Mapping[str, Any]] = {
    "raw": None,
    "lz4": numcodecs.Blosc("lz4"),
    "zstd": numcodecs.Blosc("zstd"),
    "gzip": numcodecs.GZip(1),
}
_BOXES: Final[Mapping[str, Any]] = {
    "plane": np.s_[9, :, :],
    "side": np.s_[:, :, 100],
    "series": np.s_[:, 200, 300],
    "half": np.s_[: _SHAPE[0] // 2 + 3, 10:300, 20:400],
    "part": np.s_[3:6, :200, :],
}


@contextmanager
def changed(name: str, factor: float) -> Iterator[None]:
    """A constant times a factor, in all modules that have imported it."""
    home, _, attribute = name.rpartition(".")
    value = getattr(sys.modules[f"hyperslab.{home}"], attribute)
    modules = [m for n, m in sys.modules.items() if n.startswith("hyperslab.") and vars(m).get(attribute) is value]
    for module in modules:
        setattr(module, attribute, type(value)(value * factor))
    try:
        yield
    finally:
        for module in modules:
            setattr(module, attribute, value)


def make(folder: Path) -> None:
    """Arrays of counts with some noise, in each codec and size of chunks, and one in shards."""
    rng = np.random.default_rng(5)
    values = (np.add.outer(np.arange(_SHAPE[0]) * 3, np.arange(512 * 512).reshape(512, 512) // 97)).astype("<u2")
    values += rng.integers(0, 9, _SHAPE, "<u2")
    for codec, compressor in _CODECS.items():
        for size, chunks in _CHUNKS.items():
            path = folder / f"{codec}-{size}"
            if not path.exists():
                made = {"shape": _SHAPE, "chunks": chunks, "dtype": "<u2", "compressors": compressor}
                zarr.create_array(path, zarr_format=2, **made)[:] = values
    if not (path := folder / "shards-64K").exists():
        zarr.create_array(path, shape=_SHAPE, shards=(64, 256, 256), chunks=_CHUNKS["64K"], dtype="<u2")[:] = values


def measure(bench: Bench) -> Iterator[Measurement]:
    folder = bench.folder / "tuning"
    make(folder)
    for name, (arrays, boxes) in CONSTANTS.items():
        bench.say(f"  {name}")
        works: dict[str, Callable[[], Sample]] = {}
        for array, box in product(arrays, boxes):
            for variant, factor in _FACTORS.items():
                works[f"{array} {box}|{variant}"] = partial(_timed, name, factor, _reader(folder, array, box))
        samples = take_turns(works, Effort(3 if bench.quick else 9, float("inf")))
        for work, taken in samples.items():
            case, _, variant = work.partition("|")
            yield Measurement(f"{name}|{case}", variant, {"cpu": min(sample.cpu for sample in taken)})


def _reader(folder: Path, name: str, case: str) -> Callable[[], object]:
    """Opens an array anew, as some constants count when it is opened, reads once, and returns a read of the same."""

    def begin() -> Callable[[], object]:
        service = build([MountedStore("data", open_store(StoreConfig(name="data", url=str(folder))))], cache_bytes=0)
        array, reader = service.catalog.open_array(f"data/{name}"), service.reader
        if case == "tile":
            tiles, query = Tiles(service.catalog, reader, VersionedCache(0)), parse_query([("rescale", "0,3000")])
            return lambda: rendering(tiles, array.path, query, (0, 0, 0), "raw").draw(None, ReadCost())
        items = _BOXES.get(case, np.s_[:100, 3:500, :])
        selection = normalise(items, array.metadata.shape)
        if case == "stream":
            plan = reader.plan(array, selection)
            return lambda: sum(len(slab) for slab in reader.stream(plan, 0, plan.nbytes))
        return lambda: reader.read(reader.plan(array, selection))[0]

    return begin


def _timed(name: str, factor: float, begin: Callable[[], Any]) -> Sample:
    with changed(name, factor):
        read = begin()
        read()
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(3):
            read()
        return Sample((time.perf_counter() - began) / 3, (time.process_time() - cpu) / 3)


def _rows(outcome: Outcome) -> Iterator[tuple[str, dict[str, dict[str, float]]]]:
    """For each constant, the ratios to the present value's processor time, by variant and case."""
    for name in CONSTANTS:
        own = Outcome(outcome.suite, 0, [m for m in outcome.measurements if m.case.startswith(f"{name}|")])
        if own.measurements:
            yield name, {variant: own.ratios(variant, "present", "cpu") for variant in ("half", "double")}


def tables(outcome: Outcome) -> list[Table]:
    rows = []
    for name, by in _rows(outcome):
        rows.append([name])
        for found in by.values():
            extremes = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
            shown = [f"{times(found[case])} {case.partition('|')[2]}" for case in extremes]
            rows[-1] += [times(geometric_mean(found.values())), *shown]
    head = ["processor time", *(f"{v}: {what}" for v in ("half", "double") for what in ("mean", "best", "worst"))]
    return [Table("Half and twice the constants of reading", head, rows)]


def targets(outcome: Outcome) -> Iterator[Target]:
    means = {(name, v): geometric_mean(found.values()) or 1 for name, by in _rows(outcome) for v, found in by.items()}
    if means:
        best = min(means, key=means.__getitem__)
        text = "no constant is better by 5 % at half or twice its value"
        yield Target(text, f"at best {means[best]:.2f}× ({best[0]}, {best[1]})", means[best] >= 0.95)


SUITE: Final = Suite("tuning", "The constants that tune reading", measure, tables, targets)

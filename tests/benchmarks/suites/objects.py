"""Slices of objects of 64 KiB from an S3-style endpoint: 1,024, next to nothing but concurrent gets, and a few."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import obstore
from obstore.store import S3Store

from hyperslab import RemoteArray
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import Service, build
from hyperslab.storage import StoreConfig, open_store
from tests.benchmarks.data import ArraySpec, field, make
from tests.benchmarks.free_memory import touch_free_memory
from tests.benchmarks.object_server import BUCKET
from tests.benchmarks.processes import module
from tests.benchmarks.programs import quiet_server
from tests.benchmarks.report import duration, ratio, times
from tests.benchmarks.results import Measurement, Outcome, Table, Target
from tests.benchmarks.suite import Bench, Suite

ENGINE: Final = "Hyperslab"
REMOTE: Final = "RemoteArray"
TENSORSTORE: Final = "TensorStore"
THREADS: Final = "obstore, threads"
ASYNC: Final = "obstore, async"

OBJECTS: Final = ArraySpec("objects", (4096, 4096), (128, 128), "<f4", None, field)
_LATENCIES: Final = (0, 10, 50)
_SMALL: Final[Mapping[str, tuple[Any, ...]]] = {"one object": (5, 5), "64 objects": (slice(1024), slice(1024))}
_MOST: Final = 1.3
_REGION: Final = "us-east-1"

Read = Callable[[], Any]
Part = Callable[[tuple[Any, ...]], Any]


def measure(bench: Bench) -> Iterator[Measurement]:
    folder = bench.folder / "bucket"
    make(folder, OBJECTS)
    with ExitStack() as stack:
        endpoint = stack.enter_context(object_server(folder))
        readers = stack.enter_context(_readers(endpoint, OBJECTS, bench))
        for latency in _LATENCIES:
            _control(endpoint, f"latency/{latency}")
            bench.say(f"  {latency} ms")
            yield from _in_turns(f"{latency} ms", {name: read for name, (read, _) in readers.items()}, endpoint, bench)
            for case, items in _SMALL.items():
                small = {name: partial(part, items) for name, (_, part) in readers.items() if part is not None}
                yield from _in_turns(f"{case}, {latency} ms", small, endpoint, bench)


@contextmanager
def object_server(folder: Path) -> Iterator[str]:
    """The bucket server in a process of its own; yields its endpoint."""
    with module("tests.benchmarks.object_server", str(folder)) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise subprocess.SubprocessError("the object server did not start")
        yield f"http://127.0.0.1:{int(line)}"


@contextmanager
def _readers(endpoint: str, spec: ArraySpec, bench: Bench) -> Iterator[Mapping[str, tuple[Read, Part | None]]]:
    """Every program's way to read the whole array, and a part of it, from connections that are open already."""
    options = {"endpoint": endpoint, "region": _REGION, "anonymous": "true"}
    store = {"url": f"s3://{BUCKET}", "options": options}
    client = S3Store(
        BUCKET, endpoint=endpoint, region=_REGION, skip_signature=True, client_options={"allow_http": True}
    )
    keys = [
        f"{spec.name}/{i}.{j}" for i, j in np.ndindex(*(n // c for n, c in zip(spec.shape, spec.chunks, strict=True)))
    ]
    with ExitStack() as stack:
        service = stack.enter_context(_service(options))
        server = stack.enter_context(quiet_server({"data": store}, cache_bytes=0, answer_cache_bytes=0))
        pool = stack.enter_context(ThreadPoolExecutor(service.catalog.mounts["data"].store.capabilities.width))
        remote = RemoteArray(f"{server.url}/v1/metadata/data/{spec.name}")
        array = service.catalog.open_array(f"data/{spec.name}")
        readers: dict[str, tuple[Read, Part | None]] = {
            THREADS: (lambda: list(pool.map(lambda key: obstore.get(client, key).bytes(), keys)), None),
            ASYNC: (lambda: asyncio.run(_gather(client, keys)), None),
            ENGINE: (lambda: service.reader.read(service.reader.plan_items(array, ())), None),
            REMOTE: (lambda: remote[...], remote.__getitem__),
        }
        other = _tensorstore(endpoint, spec, bench)
        yield readers if other is None else {**readers, TENSORSTORE: other}


@contextmanager
def _service(options: Mapping[str, str]) -> Iterator[Service]:
    store = open_store(StoreConfig(name="data", url=f"s3://{BUCKET}", options=options))
    service = build([MountedStore("data", store)], cache_bytes=0)
    try:
        yield service
    finally:
        service.close()


async def _gather(client: S3Store, keys: Sequence[str]) -> list[Any]:
    async def one(key: str) -> Any:
        return await (await obstore.get_async(client, key)).bytes_async()

    return await asyncio.gather(*map(one, keys))


def _tensorstore(endpoint: str, spec: ArraySpec, bench: Bench) -> tuple[Read, Part] | None:
    import tensorstore as ts

    kvstore: dict[str, object] = {
        "driver": "s3",
        "bucket": BUCKET,
        "path": f"{spec.name}/",
        "endpoint": endpoint,
        "aws_region": _REGION,
    }
    kvstore["aws_credentials"] = {"type": "anonymous"}
    try:
        array = ts.open({"driver": "zarr", "kvstore": kvstore}, read=True).result()
    except ValueError as error:
        bench.note(f"TensorStore cannot read the bucket: {error}")
        return None
    return lambda: array.read().result(), lambda items: array[items].read().result()


def _in_turns(case: str, readers: Mapping[str, Read], endpoint: str, bench: Bench) -> Iterator[Measurement]:
    rounds = 2 if bench.quick else bench.effort.rounds
    walls: dict[str, list[float]] = {name: [] for name in readers}
    requests: dict[str, dict[str, int]] = {}
    for turn in range(rounds + 1):
        for name, read in readers.items():
            _control(endpoint, "counts")
            touch_free_memory(OBJECTS.nbytes)
            began = time.perf_counter()
            read()
            walls[name] += [time.perf_counter() - began] if turn else []
            requests[name] = _control(endpoint, "counts")
    for name, taken in walls.items():
        gets = requests[name].get("get", 0)
        others = sum(requests[name].values()) - gets
        values = {"wall": statistics.median(taken), "wall_min": min(taken), "gets": gets, "other_requests": others}
        yield Measurement(case, name, values)


def _control(endpoint: str, what: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{endpoint}/-/{what}", timeout=30) as answer:
        found: dict[str, int] = json.load(answer)
        return found


def tables(outcome: Outcome) -> list[Table]:
    small = [case for case in outcome.cases() if "," in case]
    return [_whole(outcome, [case for case in outcome.cases() if case not in small]), _parts(outcome, small)]


def _whole(outcome: Outcome, cases: Sequence[str]) -> Table:
    programs = outcome.programs()
    shares = [f"{name} ÷ bare" for name in (ENGINE, REMOTE)]
    rows = []
    for case in cases:
        cells = [duration(outcome.value(case, name)) for name in programs]
        cells += [times(ratio(outcome.value(case, name), _bare(outcome, case))) for name in (ENGINE, REMOTE)]
        rows.append([case, *cells, *_requests(outcome, case, ENGINE)])
    return Table("1,024 objects of 64 KiB", ["latency", *programs, *shares, "gets", "other requests"], rows)


def _parts(outcome: Outcome, cases: Sequence[str]) -> Table:
    programs = (REMOTE, TENSORSTORE)
    rows = []
    for case in cases:
        cells = [duration(outcome.value(case, name)) for name in programs]
        share = times(ratio(outcome.value(case, REMOTE), outcome.value(case, TENSORSTORE)))
        rows.append([case, *cells, share, *_requests(outcome, case, REMOTE)])
    return Table("few objects of 64 KiB", ["read", *programs, "÷ TensorStore", "gets", "other requests"], rows)


def _requests(outcome: Outcome, case: str, name: str) -> list[str]:
    return [f"{outcome.value(case, name, kind):.0f}" for kind in ("gets", "other_requests")]


def targets(outcome: Outcome) -> Iterator[Target]:
    for case in [case for case in outcome.cases() if "," not in case]:
        share = ratio(outcome.value(case, ENGINE), _bare(outcome, case)) or 9
        yield Target(f"{case} latency: within 1.3× of bare gets", f"{share:.2f}×", share <= _MOST)
    for name in (ENGINE, REMOTE):
        yield _all_requests(outcome, name)


def _all_requests(outcome: Outcome, name: str) -> Target:
    """The constant is that of each of the requests that the client sends."""
    cases = [case for case in outcome.cases() if "," not in case]
    gets = {outcome.value(case, name, "gets") for case in cases}
    most = max((outcome.value(case, name, "other_requests") or 0 for case in cases), default=0)
    found = f"{', '.join(f'{n:.0f}' for n in gets if n is not None)} gets, {most:.0f} other requests"
    return Target(f"{name}: as many requests as chunks, plus a constant", found, gets == {1024.0} and most <= 16)


def _bare(outcome: Outcome, case: str) -> float | None:
    """The faster of the two ways to do nothing else."""
    return min(filter(None, (outcome.value(case, name) for name in (THREADS, ASYNC))), default=None)


SUITE: Final = Suite("objects", "Object stores", measure, tables, lambda outcome: list(targets(outcome)))

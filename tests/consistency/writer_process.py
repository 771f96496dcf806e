"""A process that writes and says what is acknowledged, until it is killed: ``python -m`` style, but forked from a
warm one."""

from __future__ import annotations

import random
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import Service, build
from hyperslab.storage import StoreConfig, open_store
from tests.layouts import LAYOUTS, definition

A = "data/a"
COLUMNS = 10
CHUNKS = (6, 4)
REPLACED = "replaced"


def service_on(folder: str) -> Service:
    """A service as a worker process has it."""
    store = open_store(StoreConfig(name="data", url=folder, writable=True, durability="rename"))
    return build([MountedStore("data", store, writable=True)])


def write_until_killed(folder: str, seed: int, report: Connection) -> None:
    """Write, append, resize and create at random; each acknowledgement is sent before the next operation begins."""
    service, chance = service_on(folder), random.Random(seed)
    for step in range(10_000):
        value = 1 + seed * 10_000 + step
        operation = chance.choice((_write, _write, _append, _shrink, _create))
        report.send(("begin", operation.__name__.lstrip("_"), value))
        report.send(("done", *operation(service, chance, value)))


def _write(service: Service, chance: random.Random, value: int) -> tuple[Any, ...]:
    rows = service.catalog.open_array(A).metadata.shape[0]
    start, stop = sorted((chance.randrange(rows + 1), chance.randrange(rows + 1)))
    first, last = sorted((chance.randrange(COLUMNS + 1), chance.randrange(COLUMNS + 1)))
    service.writer.write(A, (slice(start, stop), slice(first, last)), np.array(value, "<i4"))
    return "write", value, start, stop, first, last


def _append(service: Service, chance: random.Random, value: int) -> tuple[Any, ...]:
    rows = chance.randrange(1, 5)
    appended = service.appender.append(A, np.full((rows, COLUMNS), value, "<i4"), idempotency_key=str(value))
    return "append", value, appended.offset, rows


def _shrink(service: Service, chance: random.Random, value: int) -> tuple[Any, ...]:
    """Grows when the array is short, so that it does not end as nothing."""
    rows = service.catalog.open_array(A).metadata.shape[0]
    wanted = rows + 5 if rows < 8 else rows - chance.randrange(1, 6)
    service.resizer.resize(A, [wanted, None])
    return "resize", value, wanted


def _create(service: Service, chance: random.Random, value: int) -> tuple[Any, ...]:
    """A new array, or one in place of another, in any layout."""
    new = chance.random() < 0.5
    path = f"data/made/{value if new else REPLACED}"
    made = definition(chance.choice(LAYOUTS), [4], [2], attributes={"value": value})
    service.creator.create_array(path, made, mode="create" if new else "replace")
    filled = chance.random() < 0.5
    if filled:
        service.writer.write(path, (), np.full(4, value, "<i4"))
    return "created" if new else REPLACED, value, filled

"""Numbers of several workers as one: each puts its own where the others find them, and who is asked adds them up.

In a folder that the workers of one service share, every worker holds a *slot*: ``{n}.lock``, which it keeps locked
while it lives, and ``{n}.json``, its numbers. Whoever takes the slot of a worker that has died counts on from there.

Others may empty the folder (systemd does, when a user logs out whose service goes on): each worker makes its slot
again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

import portalocker
from prometheus_client.core import Metric

from hyperslab.api.metrics import Metrics
from hyperslab.engine.jsontext import dump_json
from hyperslab.storage.locks import is_still_at

REFRESH_SECONDS: Final = 1.0
"""How old the numbers of other workers may be."""

_EXCLUSIVE: Final = portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING
_SHARED: Final = portalocker.LockFlags.SHARED | portalocker.LockFlags.NON_BLOCKING
_GAUGE: Final = "gauge"

_Key = tuple[str, tuple[tuple[str, str], ...]]
"""A sample's name and labels."""

_log = logging.getLogger(__name__)


class Board:
    """One worker's slot, and its look at those of the others. All methods belong to one thread."""

    def __init__(self, folder: Path) -> None:
        """Take the first free slot of a folder, which is made where it is not there; raises `OSError`."""
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._slot, self._lock = _take_slot(folder)
        self._before = [metric for metric in self._read(self._slot) if metric.type != _GAUGE]
        self._written = b""

    def total(self, numbers: Iterable[Metric]) -> list[Metric]:
        """The worker's own numbers and those of all others: counters of all that ever were, gauges of those alive.

        What is told has been written first, so that no later answer of another worker can be behind it; where nothing
        can be written, as on a full disk, it is what was written last.
        """
        try:
            own = self.write(numbers)
        except OSError:
            own = _decode(self._written) if self._written else self._before
        others = [self._of_other(slot) for slot in self._slots() if slot != self._slot]
        return add_up([own, *others])

    def write(self, numbers: Iterable[Metric]) -> list[Metric]:
        """Write the worker's numbers, added to those of the workers that had the slot before; returns the sum."""
        own = add_up([self._before, numbers])
        data = _encode(own)
        if self._hold_slot() or data != self._written:
            _replace(self._numbers(self._slot), data)
            self._written = data
        return own

    def _hold_slot(self) -> bool:
        """Take a slot again where ours has been removed, and return whether that was so."""
        if is_still_at(self._lock, f"{self._folder}/{self._slot}.lock"):
            return False
        self._folder.mkdir(exist_ok=True)
        slot, lock = _take_slot(self._folder, self._slot)
        os.close(self._lock)
        self._slot, self._lock = slot, lock
        return True

    def close(self) -> None:
        """Leave the slot; the counters stay."""
        os.close(self._lock)

    def _of_other(self, slot: int) -> list[Metric]:
        alive = _is_locked(self._folder / f"{slot}.lock")
        return [metric for metric in self._read(slot) if alive or metric.type != _GAUGE]

    def _slots(self) -> Iterator[int]:
        return (int(path.stem) for path in self._folder.glob("*.json"))

    def _numbers(self, slot: int) -> Path:
        return self._folder / f"{slot}.json"

    def _read(self, slot: int) -> list[Metric]:
        try:
            return _decode(self._numbers(slot).read_bytes())
        except FileNotFoundError:
            return []


@asynccontextmanager
async def shared(metrics: Metrics, folder: Path | None) -> AsyncIterator[None]:
    """While it lasts, ``metrics`` tell the sum over all workers that share a folder; None: those of this one, as also
    where there is no space for a slot, which is no reason not to serve."""
    board = None if folder is None else _try_to_make(folder)
    if board is None:
        yield
        return
    metrics.share(board.total)
    refreshing = asyncio.create_task(_refresh(board, metrics))
    try:
        yield
    finally:
        refreshing.cancel()
        with suppress(asyncio.CancelledError):
            await refreshing
        _try_to_write(board, metrics)
        board.close()


async def _refresh(board: Board, metrics: Metrics) -> None:
    """On the loop, where the numbers are counted: one small file a second, and none where nothing has changed."""
    while True:
        _try_to_write(board, metrics)
        await asyncio.sleep(REFRESH_SECONDS)


def _try_to_make(folder: Path) -> Board | None:
    try:
        return Board(folder)
    except OSError as error:
        _log.warning("this worker tells its own numbers only, as it has no place to put them up: %s", error)
        return None


def _try_to_write(board: Board, metrics: Metrics) -> None:
    try:
        board.write(metrics.own())
    except OSError as error:
        _log.warning("the numbers of this worker cannot be put up for the others: %s", error)


def add_up(parts: Iterable[Iterable[Metric]]) -> list[Metric]:
    """Families by name, with the sums of equal samples, in the order in which they first came."""
    families: dict[str, Metric] = {}
    sums: dict[str, dict[_Key, float]] = {}
    for part in parts:
        for metric in part:
            families.setdefault(metric.name, metric)
            found = sums.setdefault(metric.name, {})
            for sample in metric.samples:
                key = (sample.name, tuple(sorted(sample.labels.items())))
                found[key] = found.get(key, 0) + sample.value
    return [_with_samples(family, sums[name]) for name, family in families.items()]


def _with_samples(family: Metric, values: Mapping[_Key, float]) -> Metric:
    made = Metric(family.name, family.documentation, family.type)
    for (name, labels), value in values.items():
        made.add_sample(name, dict(labels), value)
    return made


def _encode(metrics: Iterable[Metric]) -> bytes:
    """Names, words, kinds and samples as JSON."""
    return dump_json(
        [
            [metric.name, metric.documentation, metric.type, [[s.name, s.labels, s.value] for s in metric.samples]]
            for metric in metrics
        ]
    )


def _decode(data: bytes) -> list[Metric]:
    return [_decode_metric(*item) for item in json.loads(data)]


def _decode_metric(name: str, text: str, kind: str, samples: list[Any]) -> Metric:
    metric = Metric(name, text, kind)
    for sample in samples:
        metric.add_sample(*sample)
    return metric


def _take_slot(folder: Path, first: int = 0) -> tuple[int, int]:
    """The first slot that nobody holds, and the descriptor that now holds it."""
    for slot in count(first):
        descriptor = os.open(folder / f"{slot}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if _lock(descriptor, _EXCLUSIVE):
            return slot, descriptor
        os.close(descriptor)
    raise AssertionError("slots do not run out")


def _is_locked(path: Path) -> bool:
    """Whether a worker holds a slot; while we look at a free one, a worker that starts takes the next. Who tidies up
    temporary folders may have removed the file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _lock(descriptor, _SHARED)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, flags: portalocker.LockFlags) -> bool:
    try:
        portalocker.lock(descriptor, flags)
    except portalocker.AlreadyLocked:
        return False
    return True


def _replace(path: Path, data: bytes) -> None:
    """Readers see the old bytes or the new ones; nothing has to outlive the machine, so nothing is synced."""
    new = path.with_suffix(".new")
    new.write_bytes(data)
    new.replace(path)

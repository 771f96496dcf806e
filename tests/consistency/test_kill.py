"""SIGKILL at any moment: every chunk decodes, every acknowledged write is there, the array opens.

``TEST_KILLS`` says how often: 20 times its value, by default 80 times.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from hyperslab.arrays.service import Service
from hyperslab.errors import NodeNotFound
from tests.arrays.support import plan_items
from tests.consistency.writer_process import CHUNKS, COLUMNS, REPLACED, A, service_on, write_until_killed
from tests.layouts import LAYOUTS, definition
from tests.server import FORKED

KILLS = int(os.environ.get("TEST_KILLS", "4"))
ROUNDS = {"v2": 8 * KILLS, "v3": 2 * KILLS, "shards": 10 * KILLS}
NDArray = np.ndarray[Any, Any]


@dataclass(slots=True)
class Model:
    """What the array must hold, and the one operation of which it is not known whether it happened."""

    values: NDArray = field(default_factory=lambda: np.zeros((0, COLUMNS), "<i4"))
    created: dict[int, bool] = field(default_factory=dict)
    replaced: tuple[int, set[int]] = (0, {0})
    pending: tuple[str, int] | None = None

    def note(self, message: tuple[Any, ...]) -> None:
        kind, *facts = message
        if kind == "begin":
            self.pending = (facts[0], facts[1])
            return
        self.pending = None
        name, value, *rest = facts
        if name == "write":
            start, stop, first, last = rest
            self.values[start:stop, first:last] = value
        elif name == "append":
            offset, rows = rest
            assert offset == len(self.values)
            self.values = np.vstack([self.values, np.full((rows, COLUMNS), value, "<i4")])
        elif name == "resize":
            self._resize(rest[0])
        elif name == REPLACED:
            self.replaced = (value, {value if rest[0] else 0})
        else:
            self.created[value] = rest[0]

    def _resize(self, rows: int) -> None:
        grown = np.zeros((rows, COLUMNS), "<i4")
        kept = min(rows, len(self.values))
        grown[:kept] = self.values[:kept]
        self.values = grown


@pytest.mark.parametrize("layout", LAYOUTS)
def test_many_kills_lose_nothing_that_was_acknowledged(tmp_path: Path, layout: str) -> None:
    """After each kill: cells are as acknowledged, or hold the value of the one operation that was under way."""
    service, model = service_on(str(tmp_path)), Model()
    service.creator.create_array(A, definition(layout, [0, COLUMNS], CHUNKS))
    chance = random.Random(7)
    try:
        for seed in range(ROUNDS[layout]):
            _one_round(str(tmp_path), seed, chance, model)
            _check(service, model)
    finally:
        service.close()
    assert len(model.created) >= ROUNDS[layout] // 8
    zarr.open_array(str(tmp_path / "a"), mode="r")[...]


def _one_round(folder: str, seed: int, chance: random.Random, model: Model) -> None:
    """Start a writer, kill it some time after one of its first messages, and note all that it has said."""
    ours, theirs = FORKED.Pipe(duplex=False)
    process = FORKED.Process(target=write_until_killed, args=(folder, seed, theirs), daemon=True)
    process.start()
    theirs.close()
    for _ in range(chance.randint(1, 14)):  # counted, so that on a slow machine as much happens as on a fast one
        model.note(ours.recv())
    time.sleep(chance.uniform(0.0, 0.008))
    process.kill()
    process.join()
    _drain(ours, model)


def _drain(report: Connection, model: Model) -> None:
    try:
        while True:
            model.note(report.recv())
    except (EOFError, OSError):  # the pipe ends with the process, perhaps in the middle of a message
        report.close()


def _check(service: Service, model: Model) -> None:
    array = service.catalog.open_array(A)
    found = service.reader.read(plan_items(service.reader, array, ()))[0]
    name, value = model.pending or ("nothing", -1)
    if name in ("append", "shrink"):
        _check_shape(found, model, name, value)
    else:
        wrong = found != model.values
        assert found.shape == model.values.shape
        assert not wrong.any() or (name == "write" and (found[wrong] == value).all())
    _check_created(service, model)
    _check_replaced(service, model, value if name == "create" else None)
    model.values, model.pending = found.copy(), None


def _check_shape(found: NDArray, model: Model, name: str, value: int) -> None:
    """An append or a resize has happened as a whole or not at all."""
    kept = min(len(found), len(model.values))
    np.testing.assert_array_equal(found[:kept], model.values[:kept])
    if name == "append":
        assert len(found) >= len(model.values)
        assert (found[kept:] == value).all()
    else:
        assert not found[kept:].any()


def _check_created(service: Service, model: Model) -> None:
    for value, filled in list(model.created.items())[-3:]:
        array = service.catalog.open_array(f"data/made/{value}")
        assert array.attributes == {"value": value}
        if filled:
            assert service.reader.read(plan_items(service.reader, array, ()))[0].tolist() == [value] * 4


def _check_replaced(service: Service, model: Model, pending: int | None) -> None:
    """The last array that replaced others is there, or the one that was about to; or while it was, none."""
    path, (value, cells) = f"data/made/{REPLACED}", model.replaced
    try:
        array = service.catalog.open_array(path)
    except NodeNotFound:
        assert pending is not None or not value
        model.replaced = (0, {0})
        return
    found = {*service.reader.read(plan_items(service.reader, array, ()))[0].tolist()}
    if array.attributes == {"value": pending}:
        assert found <= {0, pending}
    else:
        assert array.attributes == {"value": value}
        assert found == cells or (pending is not None and found <= {0, value})
    model.replaced = (array.attributes["value"], found)  # a fill that was killed may have stored one chunk of two


def test_a_node_whose_creation_was_killed_can_be_created_again(tmp_path: Path) -> None:
    """Attributes without a document are what a killed creator leaves: no node yet, and no obstacle."""
    service = service_on(str(tmp_path))
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".zattrs").write_text('{"left": "over"}')

    with pytest.raises(NodeNotFound):
        service.catalog.open_array(A)
    made = service.creator.create_array(A, {"shape": [2], "dtype": "<i4", "attributes": {"new": 1}})

    assert made.node.attributes == {"new": 1}
    service.close()

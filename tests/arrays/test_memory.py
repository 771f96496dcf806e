"""Memory of large values is used again when nothing refers to it any more, and no earlier."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numcodecs import Zstd

from hyperslab.arrays.memory import LEAST, Memory
from tests.arrays.support import MIB, age, open_array, plan_items, service_on, zarr_array
from tests.server import wait_until


def address(data: Any) -> int:
    return int(np.frombuffer(data, np.uint8).ctypes.data)


@pytest.mark.parametrize("nbytes", [LEAST, LEAST + 1, 3 * LEAST])
def test_memory_is_used_again_once_every_view_of_it_is_gone(nbytes: int) -> None:
    memory = Memory(16 * LEAST)
    taken = memory.take(nbytes)
    first, view = address(taken), memoryview(taken[: LEAST // 8 * 8].view("<u8").reshape(2, -1)[1:].data).cast("B")[8:]
    del taken
    assert address(memory.take(nbytes)) != first
    del view
    assert address(memory.take(nbytes)) == first


def test_what_is_not_used_is_given_back_but_for_the_limit() -> None:
    memory = Memory(4 * LEAST, seconds=3600)
    held = [memory.take(2 * LEAST) for _ in range(5)]
    assert len({*map(address, held)}) == 5
    for _ in range(2):
        memory.trim()
        assert memory.nbytes == 10 * LEAST, "it is in use"
    held.clear()
    assert memory.take(2 * LEAST - 1).nbytes == 2 * LEAST - 1
    memory.trim()
    assert memory.nbytes == 4 * LEAST
    assert memory.take(3 * LEAST).nbytes == 3 * LEAST
    memory.trim()
    assert memory.nbytes == 7 * LEAST, "it was used lately"
    memory.trim()
    assert memory.nbytes == 4 * LEAST


def test_it_is_given_back_unasked() -> None:
    memory = Memory(0, seconds=0.01)
    memory.take(LEAST)
    wait_until(lambda: not memory.nbytes)


def test_a_stream_of_any_length_uses_the_memory_of_a_few_slabs(tmp_path: Path) -> None:
    values = np.arange(10 << 20, dtype="<i4").reshape(20, 512, 1024)
    zarr_array(tmp_path, values, (1, 512, 1024), compressors=Zstd(level=1))
    age(tmp_path)
    with service_on(tmp_path, cache_bytes=0) as service:
        plan = plan_items(service.reader, open_array(service), (slice(None), slice(3, 500)))
        used, sent, held = set[int](), b"", deque[memoryview](maxlen=2)  # as a server does
        for slab in service.reader.stream(plan, 0, plan.nbytes, slab_bytes=2 * MIB):
            held.append(slab)
            used.add(address(slab))
            sent += slab
        assert sent == values[:, 3:500].tobytes()
        assert len(used) <= 4

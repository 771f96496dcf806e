"""Memory in huge pages."""

from __future__ import annotations

import mmap
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from hyperslab.arrays.pages import HUGE_PAGE, WORTH_HUGE, make_room

MIB = 1 << 20


@pytest.mark.parametrize("nbytes", [0, 1, WORTH_HUGE - 1])
def test_little_is_what_was_asked_for(nbytes: int) -> None:
    assert make_room(nbytes).nbytes == nbytes


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has advice on huge pages")
@pytest.mark.parametrize(("nbytes", "pages"), [(WORTH_HUGE, 1), (2 * MIB, 1), (2 * MIB + 1, 2), (5 * MIB, 3)])
def test_much_is_in_whole_huge_pages_and_the_kernel_was_told(nbytes: int, pages: int) -> None:
    memory = make_room(nbytes)

    address = memory.ctypes.data
    assert (address % HUGE_PAGE, memory.nbytes) == (0, pages * HUGE_PAGE)
    assert "hg" in flags_of(address)


@pytest.mark.parametrize("nbytes", [1000, 3 * MIB])
def test_all_of_it_can_be_written_and_is_nobody_elses(nbytes: int) -> None:
    one, other = make_room(nbytes), make_room(nbytes)

    one[:], other[:] = 1, 2

    assert (one == 1).all()
    assert (other == 2).all()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has advice on huge pages")
def test_memory_is_given_back_when_nobody_holds_on_to_it() -> None:
    room = make_room(64 * MIB)
    address = room.ctypes.data
    room[:] = 1

    part = room[:10]
    del room
    assert "hg" in flags_of(address)
    del part

    assert "hg" not in flags_of(address)


def test_a_kernel_without_huge_pages_gives_ordinary_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(mmap.mmap):
        def madvise(self, *_: int) -> None:
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(mmap, "mmap", Refusing)
    memory = make_room(3 * MIB)

    memory[:] = 7
    assert np.count_nonzero(memory == 7) == memory.nbytes >= 3 * MIB


def test_a_system_without_such_advice_gives_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)

    assert make_room(3 * MIB).nbytes == 3 * MIB


def flags_of(address: int) -> str:
    """What the kernel says of the mapping at an address; nothing where there is none. [proc(5), VmFlags]"""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            first, last = (int(bound, 16) for bound in bounds.groups())
            inside = first <= address < last
        elif inside and line.startswith("VmFlags:"):
            return line
    return ""

"""Threads of one read beside each other."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator

import pytest

from hyperslab.arrays.placement import side_by_side

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a program place its threads")

NOBODY = 2**22 + 1
"""No thread has this id: it is above the largest that Linux gives."""


@pytest.fixture
def helper() -> Iterator[int]:
    """The native id of a thread that waits."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    assert thread.native_id is not None
    yield thread.native_id
    done.set()
    thread.join()


def test_caller_and_helper_are_on_different_processors_while_it_lasts(helper: int) -> None:
    allowed = os.sched_getaffinity(0)

    with side_by_side([helper]):
        here, there = os.sched_getaffinity(0), os.sched_getaffinity(helper)

    if len(allowed) > 1:
        assert len(here) == 1
        assert there == allowed - here
    assert os.sched_getaffinity(0) == allowed


def test_the_caller_is_free_again_after_an_error(helper: int) -> None:
    allowed = os.sched_getaffinity(0)

    with pytest.raises(ValueError, match="work"), side_by_side([helper]):
        raise ValueError("work")

    assert os.sched_getaffinity(0) == allowed


def test_a_process_with_one_processor_stays_as_it_is(helper: int) -> None:
    allowed = os.sched_getaffinity(0)
    one = {min(allowed)}
    os.sched_setaffinity(0, one)
    try:
        with side_by_side([helper]):
            assert os.sched_getaffinity(0) == one
            assert os.sched_getaffinity(helper) == allowed
    finally:
        os.sched_setaffinity(0, allowed)


def test_a_helper_that_has_ended_is_no_error() -> None:
    allowed = os.sched_getaffinity(0)

    with side_by_side([NOBODY]):
        assert os.sched_getaffinity(0) == allowed

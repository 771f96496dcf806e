"""Answers wait their turn for memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from hyperslab.api.admission import SMALL, Admission
from hyperslab.arrays.limits import BytesInFlight
from hyperslab.errors import Overloaded

BIG = 4 * SMALL


@pytest.fixture
def budget() -> Iterator[BytesInFlight]:
    """A budget that is to be whole again in the end."""
    budget = BytesInFlight(10 * SMALL)
    yield budget
    assert budget.held == 0


@pytest.fixture
def admission(budget: BytesInFlight) -> Admission:
    return Admission(budget, patience=30)


async def come_and_stay(admission: Admission) -> None:
    async with admission.hold(BIG):
        await asyncio.sleep(60)


async def test_who_gives_up_lets_those_behind_pass(admission: Admission) -> None:
    async def come(nbytes: int) -> None:
        async with admission.hold(nbytes):
            pass

    async with admission.hold(5 * SMALL):
        large = asyncio.create_task(come(9 * SMALL))
        await asyncio.sleep(0)
        small = asyncio.create_task(come(2 * SMALL))
        await asyncio.sleep(0)
        large.cancel()
        await asyncio.wait_for(small, 10)


async def test_who_does_not_fit_waits_and_comes_in_order(admission: Admission) -> None:
    order: list[int] = []

    async def come(number: int, nbytes: int) -> None:
        async with admission.hold(nbytes):
            order.append(number)
            await asyncio.sleep(0)

    async with admission.hold(8 * SMALL):
        waiting = [asyncio.create_task(come(n, nbytes)) for n, nbytes in enumerate([9 * SMALL, 2 * SMALL, BIG])]
        await asyncio.sleep(0.01)
        assert order == []
        assert len(admission._waiting) == 3
    await asyncio.gather(*waiting)
    assert order == [0, 1, 2]


async def test_an_answer_larger_than_the_whole_budget_goes_alone(admission: Admission, budget: BytesInFlight) -> None:
    async with admission.hold(budget.limit * 5):
        assert budget.held == budget.limit * 5


async def test_a_request_that_waits_too_long_for_memory_is_refused_with_a_time_to_retry(budget: BytesInFlight) -> None:
    admission = Admission(budget, patience=0.01)
    async with admission.hold(budget.limit):
        with pytest.raises(Overloaded) as caught:
            async with admission.hold(BIG):
                pytest.fail("there was no memory")
        assert caught.value.retry_after >= 1
        assert not admission._waiting


async def test_who_leaves_at_the_moment_of_being_let_in_gives_it_back(
    admission: Admission, budget: BytesInFlight
) -> None:
    async with admission.hold(budget.limit):
        waiting = asyncio.create_task(come_and_stay(admission))
        await asyncio.sleep(0.01)
    waiting.cancel()  # the turn was granted a moment ago, and the task has not run since
    await asyncio.gather(waiting, return_exceptions=True)

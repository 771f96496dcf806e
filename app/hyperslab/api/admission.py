"""Admission by bytes: responses wait for a share of a common memory budget."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hyperslab.arrays.limits import BytesInFlight
from hyperslab.errors import Overloaded

SMALL = 1 << 20
"""Responses up to this size never wait: their number is limited, and a viewer must not wait for a download."""


class Share:
    """A request's share of the budget."""

    def __init__(self, admission: Admission) -> None:
        self.nbytes = 0
        self._admission = admission

    async def grow(self, nbytes: int) -> None:
        """Grow the share to ``nbytes`` in all; raises `Overloaded` after the ``patience`` of `Admission`."""
        if nbytes > max(SMALL, self.nbytes):
            await self._admission.take(nbytes - self.nbytes, self.nbytes)
            self.nbytes = nbytes


class Admission:
    """Queue for the budget, first come, first served; runs on the event loop."""

    def __init__(self, budget: BytesInFlight, *, patience: float) -> None:
        self._budget = budget
        self._patience = patience
        self._waiting: deque[tuple[int, int, asyncio.Future[None]]] = deque()

    @property
    def limit(self) -> int:
        """The whole budget in bytes."""
        return self._budget.limit

    @asynccontextmanager
    async def hold(self, nbytes: int = 0) -> AsyncIterator[Share]:
        """Context with a share of the budget, which may grow; raises as `Share.grow`."""
        share = Share(self)
        try:
            await share.grow(nbytes)
            yield share
        finally:
            if share.nbytes:
                self._give_back(share.nbytes)

    async def take(self, nbytes: int, own: int) -> None:
        """Take ``nbytes`` in addition to the caller's ``own``; raises `Overloaded`."""
        if not self._waiting and self._budget.try_reserve(nbytes, own):
            return
        grant: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((nbytes, own, grant))
        try:
            async with asyncio.timeout(self._patience):
                await asyncio.shield(grant)
        except TimeoutError as error:
            self._leave(nbytes, own, grant)
            raise Overloaded("all memory for answers is in use", retry_after=max(1, round(self._patience))) from error
        except asyncio.CancelledError:
            self._leave(nbytes, own, grant)
            raise

    def _leave(self, nbytes: int, own: int, grant: asyncio.Future[None]) -> None:
        if grant.done():  # granted at the timeout
            self._give_back(nbytes)
        else:
            self._waiting.remove((nbytes, own, grant))
            self._grant()  # a smaller one behind it may fit

    def _give_back(self, nbytes: int) -> None:
        self._budget.release(nbytes)
        self._grant()

    def _grant(self) -> None:
        while self._waiting and self._budget.try_reserve(*self._waiting[0][:2]):
            self._waiting.popleft()[2].set_result(None)

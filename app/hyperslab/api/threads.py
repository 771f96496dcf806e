"""The line between the event loop and plain blocking code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import ParamSpec, TypeVar

from starlette.types import Receive

from hyperslab.arrays.cost import Cancel

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """Threads of our own for everything that blocks; the framework's are never used, so nothing else can fill them."""

    def __init__(self, width: int) -> None:
        self._pool = ThreadPoolExecutor(width, thread_name_prefix="requests")
        self._running = 0
        self._spent = False

    async def run(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking function without blocking the loop."""
        self._running += 1
        try:
            if kwargs:
                return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: fn(*args, **kwargs))
            return await asyncio.get_running_loop().run_in_executor(self._pool, fn, *args)
        finally:
            self._running -= 1

    def spare(self) -> bool:
        """Whether the loop may do something brief itself that would else take a trip to a thread: while no thread works
        for it, and once in each of its turns. Several that come in together are better done side by side."""
        if self._running or self._spent:
            return False
        self._spent = True
        asyncio.get_running_loop().call_soon(self._restore)
        return True

    def _restore(self) -> None:
        self._spent = False

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


@asynccontextmanager
async def cancelled_when_gone(receive: Receive) -> AsyncIterator[Cancel]:
    """A `Cancel` that is set as soon as the client disconnects, and when the block ends in any way but the ordinary."""
    cancel = Cancel()
    watch = asyncio.create_task(_set_when_gone(receive, cancel))
    try:
        yield cancel
    except BaseException:
        cancel.set()
        raise
    finally:
        watch.cancel()


async def _set_when_gone(receive: Receive, cancel: Cancel) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    cancel.set()

"""Threads: the boundary between the event loop and blocking code."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import Final, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from starlette.types import Receive

from hyperslab.arrays.workers import Cancel
from hyperslab.errors import Overloaded
from hyperslab.storage.base import AT_ONCE

P = ParamSpec("P")
T = TypeVar("T")

STORE: Final[ContextVar[str]] = ContextVar("hyperslab.store", default="")
"""The name of the store of a request, from its path."""


class Threads:
    """Threads for all blocking calls; the framework's threads are not used.

    Each ``remote`` store has ``width`` threads of its own, so that requests to an unresponsive store do not delay
    others. Requests to folders hardly wait: with more threads than processors they would take Python's lock from each
    other, and each thread keeps memory. So few have a slot at a time; those that take long, as for a million chunks or
    on a slow disk, give it to others after ``turn`` seconds, and go on beside them.

    Calls for many small chunks run one after another (`run_alone`): they are Python alone, and several at once would
    each take the lock whenever a small request has waited for the system. After ``alone_seconds`` the next one begins
    beside.

    ``pause``: seconds for which a store that would have waited for its disk is not read `at_once`.
    """

    slot_seconds = 0.05
    alone_seconds = 5.0
    pause = 1.0

    def __init__(self, width: int, remote: Iterable[str] = ()) -> None:
        few = min(width, max(4, 2 * (os.cpu_count() or 1)))
        self._pool = ThreadPoolExecutor(width, thread_name_prefix="requests")
        self._remote = {name: ThreadPoolExecutor(width, thread_name_prefix=f"requests-{name}") for name in remote}
        self._slots = asyncio.Semaphore(few)
        self._alone = asyncio.Semaphore(1)
        self._running = 0
        self._waited: dict[str, float] = {}

    async def run(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking function in a thread for the current request's `STORE`."""
        loop, pool = asyncio.get_running_loop(), self._remote.get(STORE.get())
        if pool is not None:
            return await loop.run_in_executor(pool, partial(fn, *args, **kwargs))
        await self._slots.acquire()
        done = loop.run_in_executor(self._pool, partial(fn, *args, **kwargs))
        self._running += 1
        slot = ExitStack()
        slot.callback(self._slots.release)
        timer = loop.call_later(self.slot_seconds, slot.close)

        def leave(_: object) -> None:
            self._running -= 1
            timer.cancel()
            slot.close()

        done.add_done_callback(leave)
        return await done

    async def run_alone(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `run`, for a call that works on many small chunks."""
        if STORE.get() in self._remote:
            return await self.run(fn, *args, **kwargs)
        await self._alone.acquire()
        with ExitStack() as lane:
            lane.callback(self._alone.release)
            timer = asyncio.get_running_loop().call_later(self.alone_seconds, lane.close)
            lane.callback(timer.cancel)
            return await self.run(fn, *args, **kwargs)

    def at_once(self, fn: Callable[[], T]) -> T | None:
        """Call a function on the event loop, for less than a millisecond of work that reads a folder. None if it would
        wait for a disk, or for Python's lock, which threads have."""
        store, now = STORE.get(), time.monotonic()
        if self._running or now < self._waited.get(store, now):
            return None
        before = AT_ONCE.set(True)
        try:
            return fn()
        except BlockingIOError:
            self._waited[store] = now + self.pause
            return None
        finally:
            AT_ONCE.reset(before)

    def close(self) -> None:
        for pool in (self._pool, *self._remote.values()):
            pool.shutdown(wait=True, cancel_futures=True)


class WriteThreads:
    """``width`` threads for writes, which may wait for other writers, so that no read waits behind them.

    Writers of one node get at most three quarters of them: if all wait for the lease of a dead replica, other nodes can
    still be written. Each ``remote`` store has ``width`` of its own. Writers without a thread wait on the event loop,
    first come, first served. Runs on the event loop.
    """

    def __init__(self, width: int, remote: Iterable[str] = (), *, patience: float) -> None:
        self._pools = {name: ThreadPoolExecutor(width, thread_name_prefix="writes") for name in ("", *remote)}
        self._free = {name: asyncio.Semaphore(width) for name in self._pools}
        self._each = max(1, width * 3 // 4)
        self._nodes: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._patience = patience

    async def run(self, path: str, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking function that writes to the node at ``path``; raises `Overloaded` if no thread is free within
        ``patience`` seconds."""
        name = path.strip("/")
        store = name.partition("/")[0] if name.partition("/")[0] in self._pools else ""
        free, node = self._free[store], self._nodes.setdefault(name, asyncio.Semaphore(self._each))
        try:
            async with asyncio.timeout(self._patience):
                await node.acquire()
                try:
                    await free.acquire()
                except BaseException:
                    node.release()
                    raise
        except TimeoutError as error:
            reason = f"too many writes wait for those before them, the next ones of {path!r} among them"
            raise Overloaded(reason, retry_after=max(1, round(self._patience))) from error

        def leave(_: object) -> None:
            node.release()
            free.release()

        done = asyncio.get_running_loop().run_in_executor(self._pools[store], partial(fn, *args, **kwargs))
        done.add_done_callback(leave)
        return await asyncio.shield(done)  # the thread stays busy after a cancellation

    def close(self) -> None:
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)


@asynccontextmanager
async def cancelled_when_gone(receive: Receive) -> AsyncIterator[Cancel]:
    """Context with a `Cancel`, set when the client disconnects and when the block ends by an exception."""
    cancel = Cancel()

    async def set_when_gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        cancel.set()

    watch = asyncio.create_task(set_when_gone())
    try:
        yield cancel
    except BaseException:
        cancel.set()
        raise
    finally:
        watch.cancel()

"""Threads: the line between the event loop and plain blocking code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import Final, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from starlette.types import Receive

from hyperslab.arrays.cancel import Cancel
from hyperslab.errors import Overloaded

P = ParamSpec("P")
T = TypeVar("T")

STORE: Final[ContextVar[str]] = ContextVar("hyperslab.store", default="")
"""The name of the store that a request is about, as its path spells it."""


class Threads:
    """Threads of our own for everything that blocks; the framework's are never used, so nothing else can fill them.

    Each ``remote`` store has ``width`` threads to itself: while it does not answer, requests for it wait until it
    times out, and those for other stores must not wait with them.
    """

    def __init__(self, width: int, remote: Iterable[str] = ()) -> None:
        self._pool = ThreadPoolExecutor(width, thread_name_prefix="requests")
        self._remote = {name: ThreadPoolExecutor(width, thread_name_prefix=f"requests-{name}") for name in remote}

    async def run(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking function without blocking the loop, in a thread for the running request's `STORE`."""
        loop, pool = asyncio.get_running_loop(), self._remote.get(STORE.get(), self._pool)
        if kwargs:
            return await loop.run_in_executor(pool, lambda: fn(*args, **kwargs))
        return await loop.run_in_executor(pool, fn, *args)

    def close(self) -> None:
        for pool in (self._pool, *self._remote.values()):
            pool.shutdown(wait=True, cancel_futures=True)


class WriteThreads:
    """``width`` threads for what may have to wait for other writers, so that no read ever stands behind it.

    The writers of one node get three quarters of them: where they all wait for a lease whose holder has died, other
    nodes can still be written. Each ``remote`` store has as many for itself. Who gets none waits on the event loop,
    first come, first served. Lives on the event loop.
    """

    def __init__(self, width: int, remote: Iterable[str] = (), *, patience: float) -> None:
        self._pools = {name: ThreadPoolExecutor(width, thread_name_prefix="writes") for name in ("", *remote)}
        self._free = {name: asyncio.Semaphore(width) for name in self._pools}
        self._each = max(1, width * 3 // 4)
        self._nodes: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._patience = patience

    async def run(self, path: str, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking function that writes to the node at ``path``; raises `Overloaded` if no thread is free for it
        within ``patience`` seconds."""
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
        return await asyncio.shield(done)  # a thread is taken until its work has ended, whoever still waits for it

    def close(self) -> None:
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)


@asynccontextmanager
async def cancelled_when_gone(receive: Receive) -> AsyncIterator[Cancel]:
    """A `Cancel` that is set as soon as the client disconnects, and when the block ends in any way but the ordinary."""
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

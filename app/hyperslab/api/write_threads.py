"""Threads for what may have to wait for other writers: no read ever stands behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import ParamSpec, TypeVar

from hyperslab.errors import Overloaded

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class _Node:
    """``users`` have a thread, or wait for one."""

    free: asyncio.Semaphore
    users: int = field(default=0)


class WriteThreads:
    """So many threads for all, of which the writers of one node get three quarters: where they all wait for a lease
    whose holder has died, other nodes can still be written.

    Who gets none waits on the event loop, first come, first served. Lives on the event loop.
    """

    def __init__(self, width: int, *, patience: float) -> None:
        self._pool = ThreadPoolExecutor(width, thread_name_prefix="writes")
        self._free = asyncio.Semaphore(width)
        self._each = max(1, width * 3 // 4)
        self._nodes: dict[str, _Node] = {}
        self._patience = patience

    async def run(self, path: str, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking function that writes to the node at ``path``; raises `Overloaded` where no thread is free for
        it within ``patience`` seconds."""
        async with self._node(path) as node:
            await self._enter(path, node)
            done = asyncio.get_running_loop().run_in_executor(self._pool, partial(fn, *args, **kwargs))
            done.add_done_callback(lambda _: self._leave(node))
            return await asyncio.shield(done)  # a thread is taken until its work has ended, whoever still waits for it

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    @asynccontextmanager
    async def _node(self, path: str) -> AsyncIterator[_Node]:
        name = path.strip("/")
        node = self._nodes.setdefault(name, _Node(asyncio.Semaphore(self._each)))
        node.users += 1
        try:
            yield node
        finally:
            node.users -= 1
            if not node.users:
                self._nodes.pop(name, None)

    async def _enter(self, path: str, node: _Node) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await node.free.acquire()
                try:
                    await self._free.acquire()
                except BaseException:
                    node.free.release()
                    raise
        except TimeoutError as error:
            reason = f"too many writes wait for those before them, the next ones of {path!r} among them"
            raise Overloaded(reason, retry_after=max(1, round(self._patience))) from error

    def _leave(self, node: _Node) -> None:
        node.free.release()
        self._free.release()

"""Threads for what may have to wait for other writers: no read ever stands behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
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


class _Lane:
    """The threads of one store, or of all that are near."""

    def __init__(self, width: int) -> None:
        self.pool = ThreadPoolExecutor(width, thread_name_prefix="writes")
        self.free = asyncio.Semaphore(width)


class WriteThreads:
    """``width`` threads, of which the writers of one node get three quarters: where they all wait for a lease whose
    holder has died, other nodes can still be written. Each store that is ``far`` has as many for itself.

    Who gets none waits on the event loop, first come, first served. Lives on the event loop.
    """

    def __init__(self, width: int, far: Iterable[str] = (), *, patience: float) -> None:
        self._near = _Lane(width)
        self._far = {name: _Lane(width) for name in far}
        self._each = max(1, width * 3 // 4)
        self._nodes: dict[str, _Node] = {}
        self._patience = patience

    async def run(self, path: str, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking function that writes to the node at ``path``; raises `Overloaded` where no thread is free for
        it within ``patience`` seconds."""
        lane = self._far.get(path.strip("/").partition("/")[0], self._near)
        async with self._node(path) as node:
            await self._enter(path, node, lane)
            done = asyncio.get_running_loop().run_in_executor(lane.pool, partial(fn, *args, **kwargs))
            done.add_done_callback(lambda _: self._leave(node, lane))
            return await asyncio.shield(done)  # a thread is taken until its work has ended, whoever still waits for it

    def close(self) -> None:
        for lane in (self._near, *self._far.values()):
            lane.pool.shutdown(wait=True, cancel_futures=True)

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

    async def _enter(self, path: str, node: _Node, lane: _Lane) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await node.free.acquire()
                try:
                    await lane.free.acquire()
                except BaseException:
                    node.free.release()
                    raise
        except TimeoutError as error:
            reason = f"too many writes wait for those before them, the next ones of {path!r} among them"
            raise Overloaded(reason, retry_after=max(1, round(self._patience))) from error

    def _leave(self, node: _Node, lane: _Lane) -> None:
        node.free.release()
        lane.free.release()

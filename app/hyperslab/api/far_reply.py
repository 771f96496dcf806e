"""Slices and chunks of a store that is far, where each request takes milliseconds: as many as can be are made at once.

An array that was opened before is read as it was then, while its documents are looked up: mostly they have not changed.
And where the whole of a small answer is wanted, its chunks are fetched at once, with the versions that its tag is made
of (ADR 0031).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import perf_counter
from typing import Final

import numpy as np
from numpy.typing import NDArray
from starlette.types import Send

from hyperslab.api.array_reply import Wanted, asked_for, planned_reply, representation_of, text_memory
from hyperslab.api.bodies import Bytes, Timings
from hyperslab.api.context import Context
from hyperslab.api.headers import cost_headers
from hyperslab.api.representation import Representation
from hyperslab.api.request import Request
from hyperslab.api.threads import cancelled_when_gone
from hyperslab.arrays.cost import Cancel, ReadCost
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import ReadPlan
from hyperslab.engine.indexing import Selection
from hyperslab.errors import HyperslabError

_MOST_AT_ONCE: Final = 32 << 20
"""Bytes of an answer that is read before any of it is sent: less than a stream of it would hold."""
_MOST_CHUNKS: Final = 1024


@dataclass(frozen=True, slots=True)
class FarReply:
    """What ``select`` chooses of the array at ``path``, as a request asks for it."""

    context: Context
    path: str
    select: Callable[[ArrayNode], Selection]

    async def send(self, request: Request, send: Send) -> None:
        """See `Reply`."""
        async with AsyncExitStack() as stack:
            representation = await self._made(request, stack)
            await representation.send(request, send)

    async def _made(self, request: Request, stack: AsyncExitStack) -> Representation:
        """``stack`` holds the memory of what is read."""
        known = self.context.remembered_array(self.path)
        if known is None:
            return await self._made_of(await self.context.open_array(self.path), request, stack)
        checking = asyncio.create_task(self.context.open_array(self.path))
        try:
            made = await self._made_of(known, request, stack)
        except HyperslabError:
            if await checking is known:
                raise
        except BaseException:
            checking.cancel()
            raise
        else:
            if await checking is known:
                return made
        await stack.aclose()
        return await self._made_of(checking.result(), request, stack)

    async def _made_of(self, array: ArrayNode, request: Request, stack: AsyncExitStack) -> Representation:
        context = self.context
        asked = asked_for(context, request, array, self.select(array))
        whole = request.wants_all and asked.is_stored and not asked.out_dtype.hasobject
        if not whole or asked.nbytes > _MOST_AT_ONCE:
            return await planned_reply(context, request, asked)
        began = perf_counter()
        plan, comes_tagged = await context.threads.run(self._planned, asked)
        if not comes_tagged:
            return await planned_reply(context, request, asked)
        await stack.enter_async_context(context.admission.hold(self._memory(asked, plan)))
        async with cancelled_when_gone(request.receive) as cancel:
            timings = {"plan": perf_counter() - began}
            body, plan = await context.threads.run(self._read, asked, plan, timings, cancel)
        return representation_of(context, request, asked, plan, body)

    def _planned(self, asked: Wanted) -> tuple[ReadPlan, bool]:
        reader = self.context.service.reader
        plan = reader.plan_only(asked.array, asked.selection, asked.field, asked.dtype)
        return plan, plan.touched <= _MOST_CHUNKS

    def _memory(self, asked: Wanted, plan: ReadPlan) -> int:
        reader = self.context.service.reader
        return plan.nbytes + reader.working_memory(plan) if asked.encode is None else text_memory(reader, plan)

    def _buffer(self, nbytes: int) -> NDArray[np.uint8]:
        """Large ones are used again, as those of streams are."""
        return self.context.service.reader.buffer(nbytes)

    def _read(self, asked: Wanted, plan: ReadPlan, timings: Timings, cancel: Cancel) -> tuple[Bytes, ReadPlan]:
        """The whole answer; blocks."""
        cost, prefix = ReadCost(), asked.prefix
        data = self._buffer(len(prefix) + plan.nbytes)
        data[: len(prefix)] = np.frombuffer(prefix, np.uint8)
        values = data[len(prefix) :].view(plan.dtype).reshape(plan.shape)
        values, plan = self.context.service.reader.read_tagged(plan, cancel, cost, values)
        body = memoryview(data) if asked.encode is None else asked.encode(values)  # type: ignore[arg-type]
        return Bytes(body, cost_headers(plan.touched, cost.cached, cost, timings)), plan

"""Context of the routes: use cases and shared state, and the rule for what may run on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from hyperslab.api.admission import Admission
from hyperslab.api.auth import PageCheck
from hyperslab.api.metrics import Metrics
from hyperslab.api.options import ApiOptions
from hyperslab.api.replay import ResponseCache
from hyperslab.api.request import Request
from hyperslab.api.response import Response
from hyperslab.api.threads import Threads, WriteThreads
from hyperslab.arrays.keys import KeyReader
from hyperslab.arrays.nodes import ArrayNode, GroupNode, MountedStore
from hyperslab.arrays.service import Service
from hyperslab.errors import HyperslabError, WrongKind
from hyperslab.streams.service import Streams


@dataclass(frozen=True, slots=True)
class Context:
    """The use cases, and the HTTP layer's own shared state."""

    service: Service
    options: ApiOptions
    threads: Threads
    writes: WriteThreads
    admission: Admission
    metrics: Metrics
    keys: KeyReader
    responses: ResponseCache
    pages: PageCheck
    streams: Streams

    async def open_node(self, path: str) -> ArrayNode | GroupNode:
        """`Catalog.open_node`, on the loop where the node is known and a look at its versions takes microseconds."""
        catalog = self.service.catalog
        node = catalog.open_known(path)
        return node if node is not None else await self.threads.run(catalog.open_node, path)

    async def open_array(self, path: str) -> ArrayNode:
        """Also raises `WrongKind`."""
        node = await self.open_node(path)
        if isinstance(node, ArrayNode):
            return node
        raise WrongKind(node.path, "group", "array")

    async def answer_from(
        self, path: str, request: Request, answer: Callable[[ArrayNode], Awaitable[Response]]
    ) -> Response:
        """What ``answer`` makes of the array at ``path``.

        One of a remote store that was opened before is read as it was then, while its documents are looked up: mostly
        they have not changed, and if so the response is made anew.
        """
        known = self.service.catalog.remembered(path)
        if not isinstance(known, ArrayNode):
            return await answer(await self.open_array(path))
        checking = asyncio.create_task(self.open_array(path))
        try:
            response = await answer(known)
        except HyperslabError:
            if await checking is known:
                raise
        except BaseException:
            checking.cancel()
            raise
        else:
            if await checking is known:
                return response
        await request.aclose()
        return await answer(checking.result())


def runs_on_loop(mount: MountedStore, chunks: int = 1, nbytes: int = 0) -> bool:
    """Whether to look up the versions of so many chunks, and to put together so many bytes of cached ones, takes a
    fraction of a millisecond: then it runs on the event loop, else in a thread."""
    return not mount.is_remote and chunks <= 64 and nbytes <= 1 << 20

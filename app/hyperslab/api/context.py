"""What every route can reach, and the rule for what may run on the event loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from hyperslab.api.admission import Admission
from hyperslab.api.metrics import Metrics
from hyperslab.api.options import ApiOptions
from hyperslab.api.pages import PageCheck
from hyperslab.api.replay import ResponseCache
from hyperslab.api.threads import Threads, WriteThreads
from hyperslab.arrays.keys import KeyReader
from hyperslab.arrays.nodes import ArrayNode, GroupNode, MountedStore
from hyperslab.arrays.service import Service
from hyperslab.errors import WrongKind

P = ParamSpec("P")
T = TypeVar("T")


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

    async def open_node(self, path: str) -> ArrayNode | GroupNode:
        """`Catalog.open_node`, on the loop where the node is known and a look at its versions takes microseconds."""
        catalog = self.service.catalog
        node = catalog.open_known(path)
        return node if node is not None else await self.threads.run(catalog.open_node, path)

    async def open_array(self, path: str) -> ArrayNode:
        """Also raises `WrongKind`."""
        return _array(await self.open_node(path))

    def is_remote(self, path: str) -> bool:
        """Whether a path lies in a store where each request takes milliseconds."""
        mount = self.service.catalog.mounts.get(path.partition("/")[0])
        return mount is not None and mount.is_remote

    def remembered_array(self, path: str) -> ArrayNode | None:
        """See `Catalog.remembered`; None where that is a group."""
        node = self.service.catalog.remembered(path)
        return node if isinstance(node, ArrayNode) else None

    async def near(self, mount: MountedStore, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call what asks a store for a few versions: on the loop where that takes microseconds, else in a thread."""
        if not mount.is_remote:
            return fn(*args, **kwargs)
        return await self.threads.run(fn, *args, **kwargs)


def _array(node: ArrayNode | GroupNode) -> ArrayNode:
    if isinstance(node, ArrayNode):
        return node
    raise WrongKind(node.path, "group", "array")

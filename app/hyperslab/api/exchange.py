"""One request and its response: headers, conditions, and memory that is held until the response has been sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import cached_property
from typing import Any, Final, TypeVar

from starlette.requests import Request

from hyperslab.access import Action, Principal, allows
from hyperslab.api.admission import SMALL
from hyperslab.api.conditional import CONDITIONAL, UNCONDITIONAL, Conditions
from hyperslab.api.middleware.access import PRINCIPAL, SEEN
from hyperslab.api.response import HELD, METHOD
from hyperslab.api.services import Services
from hyperslab.api.threads import STORE, cancelled_when_gone
from hyperslab.arrays.nodes import ArrayNode, GroupNode, MountedStore
from hyperslab.arrays.workers import Cancel
from hyperslab.errors import HyperslabError, WriteForbidden, WrongKind

T = TypeVar("T")
R = TypeVar("R")

MANY: Final = 4096
"""Number of chunks for which Python works for some 50 ms."""


def runs_on_loop(mount: MountedStore, chunks: int = 1, nbytes: int = 0) -> bool:
    """Whether the look-up of this number of chunks, and the assembly of these bytes from the cache, takes a fraction of
    a millisecond, and runs on the event loop instead of a thread."""
    return not mount.is_remote and chunks <= 64 and nbytes <= 1 << 20


class Exchange(AsyncExitStack):
    """A request as use cases need it. What it holds is released when the response has been sent, or before, by
    `aclose`.

    ``headers`` by lower-case names; repeated ones are joined to one list, as in RFC 9110 §5.3. ``method``: as sent,
    also HEAD, which is routed as GET. ``is_last_try``: the response is not made again after concurrent writes.
    """

    def __init__(self, request: Request) -> None:
        super().__init__()
        STORE.set(request.path_params.get("path", "").strip("/").partition("/")[0])
        request.scope[HELD].push_async_exit(self)
        services: Services = request.scope.get(SEEN) or request.app.state.services
        self.context = services
        self.service = services.service
        self.run = services.threads.run
        self.write = services.writes.run
        self.scope: dict[str, Any] = request.scope  # type: ignore[assignment]
        self.receive = request.receive
        self.method: str = request.scope[METHOD]
        self.is_last_try = False
        self.headers: dict[bytes, str] = {}
        for name, value in request.scope["headers"]:
            text = value.decode("latin-1")
            self.headers[name] = f"{self.headers[name]}, {text}" if name in self.headers else text
        self.header = self.headers.get

    def expect(self, array: ArrayNode, chunks: int) -> None:
        """Say for how many chunks the request will work, before it does: many small ones make it run beside no other
        such. Chunks of more than 16 KiB are decoded for longer, beside others, than Python works for them."""
        if chunks > MANY and array.metadata.chunk_nbytes <= 1 << 14:
            self.run = self.context.threads.run_alone

    async def hold(self, nbytes: int) -> Cancel:
        """Reserve memory until the response has been sent; the `Cancel` is set when the client leaves. Raises
        `Overloaded`."""
        cancel = await self.enter_async_context(cancelled_when_gone(self.receive))
        if nbytes > SMALL:
            await self.enter_async_context(self.context.admission.hold(nbytes))
        return cancel

    async def open_node(self, path: str) -> ArrayNode | GroupNode:
        """`Catalog.open_node`, on the event loop if the node is cached and its versions can be checked in
        microseconds."""
        catalog = self.service.catalog
        node = catalog.open_known(path)
        return node if node is not None else await self.run(catalog.open_node, path)

    async def open_array(self, path: str) -> ArrayNode:
        """Also raises `WrongKind`."""
        node = await self.open_node(path)
        if isinstance(node, ArrayNode):
            return node
        raise WrongKind(node.path, "group", "array")

    def may(self, action: Action, path: str) -> bool:
        """Whether who asks may do something at a node."""
        principal: Principal | None = self.scope.get(PRINCIPAL)
        return principal is None or allows(principal, action, path)

    def require(self, action: Action, path: str) -> None:
        """Raise `WriteForbidden` unless who asks may do something at a node."""
        if not self.may(action, path):
            raise WriteForbidden(action, path)

    @property
    def is_directory(self) -> bool:
        """Whether the path ends in a slash, as from directory-listing clients, or is that of all stores."""
        return self.scope["path"].endswith("/") or not self.scope["path_params"].get("path")

    @cached_property
    def conditions(self) -> Conditions:
        """Raises `BadParameter`."""
        return UNCONDITIONAL if CONDITIONAL.isdisjoint(self.headers) else Conditions.parse(self.header)

    @property
    def root_path(self) -> str:
        """The path below which the application is: of a proxy that removes it, or of a mount. Belongs before every
        link."""
        return str(self.scope.get("root_path", ""))


async def optimistically(
    request: Exchange, known: T | None, open_now: Callable[[], Awaitable[T]], answer: Callable[[T], Awaitable[R]]
) -> R:
    """The answer for what ``open_now`` opens. ``known``: what was opened before in a remote store, which is used while
    its documents are looked up; if they have changed, the answer is made again."""
    if known is None:
        return await answer(await open_now())
    checking = asyncio.ensure_future(open_now())
    try:
        made = await answer(known)
    except HyperslabError:
        if await checking is known:
            raise
    except BaseException:
        checking.cancel()
        raise
    else:
        if await checking is known:
            return made
    await request.aclose()
    return await answer(checking.result())

"""Bearer tokens, where the operator has set some: one kind may read, the other may write too."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from hyperslab.api.params import raw_path
from hyperslab.errors import Unauthorized, WriteForbidden

_READING: Final = frozenset(("GET", "HEAD"))
_WRITING: Final = frozenset(("PUT", "PATCH", "DELETE"))
_OPEN: Final = frozenset((b"/healthz", b"/readyz"))
_MAY_WRITE = "hyperslab.may_write"
_IS_READER = "hyperslab.is_reader"


class Tokens:
    """Lets through whoever carries a token that is good enough. Probes of an orchestrator need none, and neither does
    reading where ``public``, a test of the path as it was sent, says that nothing stored is shown.
    """

    def __init__(
        self, app: ASGIApp, *, readers: Sequence[str], writers: Sequence[str], public: Callable[[bytes], bool]
    ) -> None:
        self._app = app
        self._public = public
        self._readers = [token.encode() for token in readers]
        self._writers = [token.encode() for token in writers]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_open(scope):
            self._check(scope)
        await self._app(scope, receive, send)

    def _is_open(self, scope: Scope) -> bool:
        path = raw_path(scope)
        return is_open(path) or (scope["method"] in _READING and self._public(path))

    def _recognise(self, token: bytes | None) -> tuple[bool, bool]:
        """Whether it is a reader's token, and whether its bearer may write."""
        return _is_one_of(token, self._readers), not self._writers or _is_one_of(token, self._writers)

    def _lets_read(self, *, reader: bool, writer: bool) -> bool:
        return not self._readers or reader or (bool(self._writers) and writer)

    def _check(self, scope: Scope) -> None:
        token = _bearer(scope["headers"])
        reader, writer = self._recognise(token)
        if not self._lets_read(reader=reader, writer=writer):
            raise Unauthorized("a bearer token is needed to read" if token is None else "no such token")
        scope[_MAY_WRITE], scope[_IS_READER] = writer, reader
        if scope["method"] in _WRITING:
            check_may_write(scope)


def is_open(path: bytes) -> bool:
    """Whether a path needs no token, whatever the method."""
    return path in _OPEN


def check_may_write(scope: Scope) -> None:
    """For routes that write with POST; raises `Unauthorized` without a token that is known and `WriteForbidden` with a
    reader's."""
    if scope.get(_MAY_WRITE, True):
        return
    if scope[_IS_READER]:
        raise WriteForbidden
    raise Unauthorized("a bearer token is needed to write" if _bearer(scope["headers"]) is None else "no such token")


def _bearer(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip()
    return None


def _is_one_of(token: bytes | None, known: Sequence[bytes]) -> bool:
    """Compares with all of them, so that the time it takes tells nothing."""
    matches: list[Any] = [hmac.compare_digest(token or b"", each) for each in known]
    return token is not None and any(matches)

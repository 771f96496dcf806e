"""Errors as problem documents, ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

import json
import logging
import math
import tomllib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from hyperslab import errors
from hyperslab.api.metrics import Metrics
from hyperslab.errors import HyperslabError, MethodNotAllowed
from hyperslab.wire import PROBLEM

log = logging.getLogger("hyperslab.api")

SERVER_ERROR: Final = "internal-error"
UNEXPECTED: Final = "Something went wrong in the service"


@cache
def remedies() -> dict[str, str]:
    """What to do about each problem, by code: a sentence or two in which backquotes mark code."""
    text = files("hyperslab.api").joinpath("remedies.toml").read_text(encoding="utf-8")
    return {code: remedy for codes, remedy in tomllib.loads(text).items() for code in codes.split()}


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem document with its status and headers, ready to be sent."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


def problem(error: Exception, *, path: str, root: str = "") -> Problem:
    """What the client is told of an error at ``path``; ``root`` is the path that a proxy has cut off.

    The unexpected is logged with its traceback under an id, and only the id is told.
    """
    if not isinstance(error, HyperslabError):
        return _unexpected(error, path=path, root=root)
    status = error.http_status
    if status >= 500 and not isinstance(error, errors.Overloaded):
        log.warning("%s on %s: %s", error.code, path, error)
    described = {"title": error.title, "status": status, "detail": str(error), "code": error.code}
    return Problem(status, _headers(error), _document({**error.beside, **error.facts(), **described}, path, root))


def _unexpected(error: Exception, *, path: str, root: str) -> Problem:
    error_id = uuid.uuid4().hex[:12]
    log.error("%s %s on %s", SERVER_ERROR, error_id, path, exc_info=error)
    detail = f"This is a fault of the service. Its log has the details under {error_id}."
    described = {"title": UNEXPECTED, "status": 500, "detail": detail, "code": SERVER_ERROR}
    return Problem(500, _BASE_HEADERS, _document({**described, "id": error_id}, path, root))


_BASE_HEADERS: Final = ((b"content-type", PROBLEM.encode()), (b"cache-control", b"no-store"))


def _headers(error: HyperslabError) -> tuple[tuple[bytes, bytes], ...]:
    """The headers that RFC 9110 wants beside a status."""
    extra: list[tuple[bytes, str]] = []
    match error:
        case errors.Overloaded():
            extra = [(b"retry-after", str(error.retry_after))]
        case errors.PreconditionFailed(current=str() as etag):
            extra = [(b"etag", etag)]
        case errors.RangeNotSatisfiable():
            extra = [(b"content-range", f"bytes */{error.size}"), (b"accept-ranges", "bytes")]
        case errors.Unauthorized():
            extra = [(b"www-authenticate", "Bearer")]
        case errors.MismatchingUploadOffset():
            extra = [(b"upload-offset", str(error.expected_offset)), (b"upload-complete", "?0")]
        case MethodNotAllowed():
            extra = [(b"allow", ", ".join(error.allowed))]
        case _:
            pass
    return (*_BASE_HEADERS, *((name, value.encode("latin-1")) for name, value in extra))


def _document(members: Mapping[str, Any], path: str, root: str) -> bytes:
    document = {"type": f"{root}/problems/{members['code']}", **members, "instance": path}
    # ASCII only: a path may hold what is no text, and no JSON reader may stumble over a problem
    return json.dumps(_json_ready(document), ensure_ascii=True).encode()


def _json_ready(value: Any) -> Any:
    """Facts are JSON-ready but for numbers that JSON does not have, and for what a caller has quoted from its input."""
    if isinstance(value, Mapping):
        return {str(key): _json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_ready(item) for item in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return str(value)


REFUSAL: Final = "hyperslab.refusal"
"""Where a server finds the `Refusal`: a member of the ASGI lifespan's state."""
REASON: Final = "hyperslab.reason"
"""Where a server that can put a sentence into the status line gives what takes it: a member of the scope."""

Pairs = Iterable[tuple[bytes, bytes]]
"""Headers, their names in lower case."""


class Refused(NamedTuple):
    """``head``: the lines of all headers but those that every answer of the server has."""

    status: int
    head: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Refusal:
    """Makes and counts problem documents for requests that are not HTTP: the server sends them, not the application.

    ``patience``: seconds after which a server may let an idle client go.
    """

    metrics: Metrics
    cors: Callable[[Pairs], Sequence[tuple[bytes, bytes]]]
    patience: float

    def __call__(self, error: HyperslabError, target: bytes, headers: Pairs) -> Refused:
        """The problem that stands for a broken request; ``headers``: as many as were read."""
        found = problem(error, path=target.partition(b"?")[0].decode("latin-1"))
        length = (b"content-length", str(len(found.body)).encode())
        requests, seconds, sent = self.metrics.series["other", "GET", found.status]
        requests.inc()
        seconds.observe(0.0)
        sent.inc(len(found.body))
        return Refused(found.status, header_lines((*found.headers, length, *self.cors(headers))), found.body)


def header_lines(headers: Pairs) -> bytes:
    """Headers as they go over the wire; what comes from untrusted documents was encoded where they were made."""
    return b"".join([b"%s: %s\r\n" % pair for pair in headers])

"""Errors as problem documents, ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

import html
import json
import logging
import math
import tomllib
import uuid
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from traceback import clear_frames
from typing import Any, Final

from hyperslab import errors
from hyperslab.api.response import Headers, Response
from hyperslab.errors import HyperslabError
from hyperslab.wire import PROBLEM

log = logging.getLogger("hyperslab.api")

SERVER_ERROR: Final = "internal-error"
UNEXPECTED: Final = "Something went wrong in the service"


@cache
def remedies() -> dict[str, str]:
    """The remedy of each problem by code: a sentence or two with backquoted code."""
    text = files("hyperslab.api").joinpath("remedies.toml").read_text(encoding="utf-8")
    return {code: remedy for codes, remedy in tomllib.loads(text).items() for code in codes.split()}


def problem(error: Exception, *, path: str, root: str = "") -> Response:
    """The response for an error at ``path``; ``root`` is the prefix removed by a proxy.

    Unexpected errors are logged with traceback and an id; the response has only the id.
    """
    if isinstance(error, HyperslabError):
        status, code, title, detail = error.http_status, error.code, error.title, str(error)
        if status >= 500 and not isinstance(error, errors.Overloaded):
            log.warning("%s on %s: %s", code, path, error)
        facts = {**error.extra, **error.facts()}
    else:
        facts = {"id": uuid.uuid4().hex[:12]}
        status, code, title = 500, SERVER_ERROR, UNEXPECTED
        detail = f"This is a fault of the service. Its log has the details under {facts['id']}."
        log.error("%s %s on %s", code, facts["id"], path, exc_info=error)
    described = {"title": title, "status": status, "detail": detail, "code": code}
    document = {"type": f"{root}/problems/{code}", **facts, **described, "instance": path}
    headers = ((b"content-type", PROBLEM.encode()), (b"cache-control", b"no-store"), *_headers(error))
    # ASCII only: a path may contain invalid text, and every JSON reader must parse a problem
    return Response(status, headers, json.dumps(_json_ready(document), ensure_ascii=True).encode() + b"\n")


def let_go(error: BaseException | None) -> None:
    """Release what the frames that raised an error hold, also those of its causes. They refer to each other in cycles,
    and the collector is slow to come: bodies of refused requests would pile up, beyond the memory admitted."""
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def problem_page(error: HyperslabError) -> Response:
    """A page for people in place of the document of a problem, which loads nothing."""
    title, detail, remedy = (html.escape(text) for text in (error.title, str(error), remedies()[error.code]))
    text = (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"></head>\n'
        f"<body><h1>{title}</h1><p>{detail}.</p><p>{remedy}.</p></body></html>\n"
    )
    headers: Headers = ((b"content-type", b"text/html; charset=utf-8"), (b"cache-control", b"no-store"))
    headers = (*headers, (b"content-security-policy", b"default-src 'none'"), *_headers(error))
    return Response(error.http_status, headers, text.encode())


def _headers(error: Exception) -> Headers:
    """The headers that RFC 9110 requires with a status."""
    extra: list[tuple[bytes, str]] = []
    match error:
        case errors.Overloaded():
            extra = [(b"retry-after", str(error.retry_after))]
        case errors.PreconditionFailed(current=str() as etag):
            extra = [(b"etag", etag)]
        case errors.RangeNotSatisfiable():
            extra = [(b"content-range", f"bytes */{error.size}"), (b"accept-ranges", "bytes")]
        case errors.Unauthorized():
            extra = [(b"www-authenticate", challenge) for challenge in error.challenges]
        case errors.LinkExpired() | errors.LinkInvalid() | errors.LinkRevoked():
            extra = [(b"www-authenticate", "Bearer")]
        case errors.MismatchingUploadOffset():
            extra = [(b"upload-offset", str(error.expected_offset)), (b"upload-complete", "?0")]
        case errors.NotHttp() | errors.CodingUnknown() | errors.HeadTooLarge():
            extra = [(b"connection", "close")]
        case errors.MethodNotAllowed():
            extra = [(b"allow", ", ".join(error.allowed))]
        case _:
            pass
    return tuple([(name, value.encode("latin-1")) for name, value in extra])


def _json_ready(value: Any) -> Any:
    """A fact as JSON: non-finite numbers and quoted input of the caller are converted."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_ready(item) for item in value]
    if isinstance(value, float) and math.isfinite(value):
        return value
    return str(value)

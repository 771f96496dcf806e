"""Sessions: requests with retries, problems as exceptions, worker threads, and optimistic updates."""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

from hyperslab import __version__, wire
from hyperslab.client.transport import BROKEN_CONNECTION, CANCEL, Body, Cancel, NotConnected, Response, Transport
from hyperslab.errors import (
    BrokenData,
    HyperslabError,
    Overloaded,
    PreconditionFailed,
    RemoteProblem,
    StoreDenied,
    Unreachable,
    WriteConflict,
    from_facts,
)
from hyperslab.wire.retry import backoff

log = logging.getLogger("hyperslab.client")

T = TypeVar("T")

_MAX_DEPTH: Final = 300  # a stored document has up to 200
CHANGE_ATTEMPTS: Final = 100
"""Attempts of `retry_conflicts`."""


@dataclass(frozen=True, slots=True)
class Request:
    """HTTP request. ``safe``: may be repeated although it is a POST or PATCH; ``once``: must not be repeated.

    ``removes``: after a lost response, 404 to a repeated request means success.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Body | None = None
    safe: bool = False
    once: bool = False
    removes: bool = False

    @property
    def repeatable(self) -> bool:
        """Whether the request is idempotent (RFC 9110 §9.2.2)."""
        guarded = self.safe or wire.IDEMPOTENCY_KEY in self.headers or "If-Match" in self.headers
        return not self.once and (guarded or self.method not in ("POST", "PATCH"))

    def with_headers(self, headers: Mapping[str, str]) -> Request:
        return replace(self, headers={**self.headers, **headers})


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with jitter; waits in seconds. A ``Retry-After`` beyond ``longest_wait`` is an error."""

    attempts: int = 6
    first_wait: float = 0.2
    longest_wait: float = 30.0

    def backoff(self, attempt: int) -> float:
        """Seconds to wait after failure number ``attempt`` (from 1)."""
        return backoff(attempt, self.first_wait, self.longest_wait)


class BufferedResponse(NamedTuple):
    """A response with its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Session:
    """Requests over a transport, with retries. Thread-safe, and picklable (without sockets)."""

    def __init__(self, transport: Transport, *, headers: Mapping[str, str], connections: int) -> None:
        if connections < 1:
            raise ValueError(f"connections={connections}: expected at least 1")
        self.transport = transport
        self.connections = connections
        self.retry = RetryPolicy()
        self._headers = {"User-Agent": f"hyperslab/{__version__}", **headers}

    def read(self, request: Request) -> BufferedResponse:
        """The response with its body; raises as `attempt`."""
        return self.attempt(request, _read_whole)

    def read_json(self, request: Request) -> tuple[dict[str, Any], Mapping[str, str]]:
        """The JSON object in the response body, and the headers; raises as `attempt`, and `RemoteProblem` if none."""
        answer = self.read(request.with_headers({"Accept": f"{wire.JSON}, {wire.PROBLEM}", **request.headers}))
        members = _parse_object(answer.body)
        if members is None:  # a sign-in page, say, or the wrong port
            text = _snippet(answer.body) or "nothing"
            raise RemoteProblem(status=answer.status, detail=f"expected the JSON of a Hyperslab service, found {text}")
        return members, answer.headers

    def for_each(self, work: Callable[[T], None], items: Sequence[T]) -> None:
        """Run ``work`` on each item in up to ``connections`` threads; the first failure cancels the rest."""
        if len(items) == 1 or self.connections == 1:
            for item in items:
                work(item)
            return
        cancel = Cancel()
        failures: list[Exception] = []  # the first is the cause, later ones are cancellations

        def run(item: T) -> None:
            try:
                cancel.check()
                with cancel.scope():
                    work(item)
            except Exception as error:
                failures.append(error)
                cancel.set()

        with ThreadPoolExecutor(self.connections, thread_name_prefix="hyperslab-client") as threads:
            try:
                waiting = {threads.submit(run, item) for item in items}
                # Polled: a signal that arrives right before the system call would otherwise go unnoticed until it ends.
                while waiting:
                    waiting = wait(waiting, 0.5).not_done
            except BaseException:  # such as Ctrl-C
                cancel.set()
                raise
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Close idle connections; the session stays usable, and requests in progress continue."""
        self.transport.close()

    def attempt(self, request: Request, take: Callable[[Response], T]) -> T:
        """The result of ``take`` on the first response with a status below 300, or 304.

        A connection that breaks in ``take`` counts as a failed attempt; the response is closed if it raises. Raises the
        server's error for other responses, `Unreachable` after the last attempt, and `Cancelled`.
        """
        lost, attempts = False, self.retry.attempts
        for attempt in range(1, attempts + 1):
            CANCEL.get().check()
            last = attempt == attempts or not request.repeatable
            try:
                headers = {**self._headers, **request.headers}
                response = self.transport.request(request.method, request.url, headers=headers, body=request.body)
                if response.status < 300 or response.status == 304 or (lost and response.status == 404):
                    try:
                        return take(response)
                    except BaseException:
                        response.close()
                        raise
                lost |= request.removes and response.status in (502, 504)  # the request may have been processed
                pause = self._pause_after(response, attempt, last=last)
                failure = f"status {response.status}"
            except BROKEN_CONNECTION as error:
                CANCEL.get().check()  # cancellation breaks connections
                connected = not isinstance(error, NotConnected)
                if last or (isinstance(error, NotConnected) and error.is_permanent):
                    raise _unreachable(request, error, attempt) from None
                lost |= request.removes and connected
                pause, failure = self.retry.backoff(attempt), str(error)
            facts = (request.method, request.url.partition("?")[0], failure, attempt, attempts, pause)
            log.warning("%s %s: %s (attempt %d of %d); again in %.1f s", *facts)
            CANCEL.get().pause(pause)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _pause_after(self, response: Response, attempt: int, *, last: bool) -> float:
        """Seconds to wait after a temporary error; raises the problem if it is permanent or would take too long."""
        problem = read_problem(response)
        is_temporary = response.status in (429, 502, 503, 504) and not isinstance(problem, BrokenData | StoreDenied)
        if last or not is_temporary:
            raise problem
        retry_after = parse_retry_after(response.headers.get("Retry-After"))
        if retry_after is None:
            return self.retry.backoff(attempt)
        if retry_after > self.retry.longest_wait:
            raise problem
        return retry_after + random.uniform(0, self.retry.first_wait)  # jitter


def _unreachable(request: Request, error: Exception, attempts: int) -> Unreachable:
    """`Unreachable` from a transport's exception."""
    parts = urlsplit(request.url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    problem = Unreachable(parts.hostname or parts.netloc, port, str(error), attempts)
    problem.cause = error
    return problem


def parse_retry_after(value: str | None) -> float | None:
    """Seconds of a ``Retry-After`` header, a number or HTTP date (RFC 9110 §10.2.3); None if missing or invalid."""
    if value is None or value.strip().isdecimal():
        return None if value is None else float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def read_problem(response: Response) -> HyperslabError:
    """The server's error in a response, which is read and closed: by its ``code``, else `RemoteProblem`."""
    status, headers, body = _read_whole(response)
    document = _parse_object(body) or {}
    problem = from_facts(str(document.get("code")), document)
    if problem is not None:
        return problem
    location = headers.get("Location")
    if 300 <= status < 400 and location:
        return RemoteProblem(status=status, detail=f"redirected to {location}: use that address")
    detail = document.get("detail") or document.get("title") or _snippet(body) or "(no explanation)"
    return RemoteProblem(status=status, detail=str(detail))


def retry_conflicts(attempt: Callable[[], T]) -> T:
    """The result of an optimistic update: ``attempt`` is repeated after conflicts with other writers.

    Raises the error of the last attempt: `PreconditionFailed`, `WriteConflict` or `Overloaded`.
    """
    for number in range(1, CHANGE_ATTEMPTS):
        try:
            return attempt()
        except (PreconditionFailed, WriteConflict):
            time.sleep(backoff(number, first=0.01, longest=0.5))
        except Overloaded as busy:
            time.sleep(busy.retry_after + random.uniform(0, 0.005))
    return attempt()


def _parse_object(body: bytes) -> dict[str, Any] | None:
    try:
        wire.check_text_nesting(body, _MAX_DEPTH)
        document = json.loads(body)
    except ValueError:  # such as a proxy's HTML
        return None
    return document if isinstance(document, dict) else None


def _snippet(body: bytes) -> str:
    return body[:500].decode("utf-8", "replace").strip()


def _read_whole(response: Response) -> BufferedResponse:
    try:
        return BufferedResponse(response.status, response.headers, response.read())
    finally:
        response.close()

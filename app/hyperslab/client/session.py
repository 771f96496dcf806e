"""Requests with retries: backoff, problems as exceptions, worker threads, and changes on condition."""

from __future__ import annotations

import json
import logging
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

from urllib3.exceptions import ConnectTimeoutError, NewConnectionError, ProxyError, SSLError

from hyperslab import __version__, wire
from hyperslab.client.transport import BROKEN_CONNECTION, CURRENT, Body, Cancel, Response, Transport
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

CHANGE_ATTEMPTS: Final = 100
"""That many times others may come first in `until_undisturbed`; each time, one of them has written."""


@dataclass(frozen=True, slots=True)
class Request:
    """``safe`` marks a POST that may come twice, such as a gather of points; ``once`` what may not, whatever it is.

    ``removes``: where an answer was lost, a 404 to the next attempt says that the first one was carried out.
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
        """Whether the effect of sending it twice is that of sending it once (RFC 9110 §9.2.2)."""
        guarded = self.safe or wire.IDEMPOTENCY_KEY in self.headers or "If-Match" in self.headers
        return not self.once and (guarded or self.method not in ("POST", "PATCH"))

    def with_headers(self, headers: Mapping[str, str]) -> Request:
        return replace(self, headers={**self.headers, **headers})


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """``attempts`` without progress before giving up; waits in seconds, doubled each time, with jitter.

    A ``Retry-After`` longer than ``longest_wait`` is not waited for: the problem is raised at once.
    """

    attempts: int = 6
    first_wait: float = 0.2
    longest_wait: float = 30.0

    def backoff(self, attempt: int) -> float:
        """Seconds to wait after failure number ``attempt`` (from 1)."""
        return backoff(attempt, self.first_wait, self.longest_wait)


class Whole(NamedTuple):
    """A response with its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Session:
    """Connection to one server over one transport, with retries; thread-safe, and picklable without its sockets."""

    def __init__(self, transport: Transport, *, headers: Mapping[str, str], connections: int) -> None:
        if connections < 1:
            raise ValueError(f"connections={connections}: expected at least 1")
        self.transport = transport
        self.connections = connections
        self.retry = RetryPolicy()
        self._headers = {"User-Agent": f"hyperslab/{__version__}", **headers}

    def read(self, request: Request) -> Whole:
        """The response to ``request`` with its body, both in the same series of attempts; raises as `attempt`."""
        return self.attempt(request, _read_whole)

    def read_json(self, request: Request) -> tuple[dict[str, Any], Mapping[str, str]]:
        """The JSON object in the response body, and its headers; raises as `attempt`, and `RemoteProblem` if none."""
        answer = self.read(request.with_headers({"Accept": f"{wire.JSON}, {wire.PROBLEM}", **request.headers}))
        members = _parse_object(answer.body)
        if members is None:  # a sign-in page, say, or the wrong port
            shown = _snippet(answer.body) or "nothing"
            raise RemoteProblem(status=answer.status, detail=f"expected the JSON of a Hyperslab service, found {shown}")
        return members, answer.headers

    def for_each(self, work: Callable[[T], None], items: Sequence[T]) -> None:
        """Run ``work`` on each item, at most ``connections`` at a time; the first failure stops the rest."""
        if len(items) == 1 or self.connections == 1:
            for item in items:
                work(item)
            return
        cancel = Cancel()
        failures: list[Exception] = []  # the first is the cause; those after it are of work that was cancelled

        def run(item: T) -> None:
            try:
                cancel.check()
                with cancel.at_work():
                    work(item)
            except Exception as error:
                failures.append(error)
                cancel.set()

        with ThreadPoolExecutor(self.connections, thread_name_prefix="hyperslab-client") as threads:
            try:
                waiting = {threads.submit(run, item) for item in items}
                # Polled, because a signal that comes between Python's last look at signals and the system call would be
                # noticed only when the wait has ended by itself.
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
        """Result of ``take`` on the first response with a status below 300, or 304.

        A connection that breaks in ``take`` is a failed attempt; where it raises, the response is closed. Raises the
        server's own exception for any other response, `Unreachable` when attempts run out, and `Cancelled` where the
        work of this thread is cancelled.
        """
        lost, attempts = False, self.retry.attempts
        for attempt in range(1, attempts + 1):
            CURRENT.cancel.check()
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
                lost |= request.removes and response.status in (502, 504)  # a proxy has lost the response
                pause = self._pause_after(response, attempt, last=last)
                failure = f"status {response.status}"
            except (SSLError, ProxyError) as error:  # the same at every attempt
                raise _unreachable(request, error, attempt) from error
            except BROKEN_CONNECTION as error:
                CURRENT.cancel.check()  # which may have broken it
                if last:
                    raise _unreachable(request, error, attempt) from error
                lost |= request.removes and not isinstance(error, ConnectTimeoutError)
                pause, failure = self.retry.backoff(attempt), _reason(error)
            told = (request.method, request.url.partition("?")[0], failure, attempt, attempts, pause)
            log.warning("%s %s: %s (attempt %d of %d); again in %.1f s", *told)
            CURRENT.cancel.pause(pause)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _pause_after(self, response: Response, attempt: int, *, last: bool) -> float:
        """Seconds to wait after a temporary refusal; raises the problem if it is permanent or would take too long."""
        problem = read_problem(response)
        may_pass = response.status in (429, 502, 503, 504) and not isinstance(problem, BrokenData | StoreDenied)
        if last or not may_pass:
            raise problem
        asked = parse_retry_after(response.headers.get("Retry-After"))
        if asked is not None and asked > self.retry.longest_wait:
            raise problem
        jitter = random.uniform(0, self.retry.first_wait)  # so that clients do not all come back at once
        return self.retry.backoff(attempt) if asked is None else asked + jitter


def _unreachable(request: Request, error: Exception, attempts: int) -> Unreachable:
    """The error for the caller from a transport's exception."""
    parts = urlsplit(request.url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return Unreachable(parts.hostname or parts.netloc, port, _reason(error), attempts)


def _reason(error: Exception) -> str:
    """Short reason of a connection error, without the names of urllib3's objects."""
    cause = error.__cause__ or error.__context__
    if isinstance(error, NewConnectionError | ConnectTimeoutError) and isinstance(cause, OSError):
        return cause.strerror or str(cause)
    inner = error.args[-1] if error.args else None
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    return re.sub(r"^HTTPS?Connection(Pool)?\(.*?\): ", "", str(error)) or type(error).__name__


def parse_retry_after(value: str | None) -> float | None:
    """Seconds from a ``Retry-After`` header: a number or an HTTP date (RFC 9110 §10.2.3); None where it is neither."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, date.timestamp() - time.time())


def read_problem(response: Response) -> HyperslabError:
    """Read and close a refusal: the error that the server raised, by the ``code`` in it, or `RemoteProblem`."""
    status, headers, body = _read_whole(response)
    document = _parse_object(body) or {}
    known = from_facts(str(document.get("code")), document)
    if known is not None:
        return known
    location = headers.get("Location")
    if 300 <= status < 400 and location:
        return RemoteProblem(status=status, detail=f"redirected to {location}: use that address")
    detail = document.get("detail") or document.get("title") or _snippet(body) or "(no explanation)"
    return RemoteProblem(status=status, detail=str(detail))


def until_undisturbed(attempt: Callable[[], T]) -> T:
    """The result of the first ``attempt`` to read, change and write that no other writer interferes with.

    Where others keep coming, raises what the last attempt did: `PreconditionFailed`, `WriteConflict` or `Overloaded`.
    """
    for number in range(1, CHANGE_ATTEMPTS):
        try:
            return attempt()
        except (PreconditionFailed, WriteConflict):
            time.sleep(backoff(number, first=0.01, longest=0.5))
        except Overloaded as busy:  # refused before anything was done
            time.sleep(busy.retry_after + random.uniform(0, 0.005))
    return attempt()


def _parse_object(body: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(body)
    except ValueError:  # a proxy's HTML, or nothing at all
        return None
    return document if isinstance(document, dict) else None


def _snippet(body: bytes) -> str:
    return body[:500].decode("utf-8", "replace").strip()


def _read_whole(response: Response) -> Whole:
    try:
        return Whole(response.status, response.headers, response.read())
    finally:
        response.close()

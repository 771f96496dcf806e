"""Response bodies, read to their end with resumption after broken connections."""

from __future__ import annotations

from collections.abc import Callable

from hyperslab.client.session import Request, Session, reason_of, unreachable
from hyperslab.client.transport import BROKEN_CONNECTION, NEVER, Cancel, Response
from hyperslab.errors import RemoteProblem

RESTARTS = 5
"""How often a body that cannot be resumed is read from its beginning."""

OnBytes = Callable[[int], None]
"""Progress callback: called with the number of new bytes, negative if some have to be read again."""


class BodyChanged(Exception):
    """The body cannot be resumed: it has changed, or has no strong ETag."""


class Body:
    """Body of one response, resumed with ``Range`` and ``If-Range`` after a broken connection (RFC 9110 §14).

    ``check`` validates a response before its body is read from the beginning. ``begun`` is the initial `position` and
    `etag`: how many bytes an earlier attempt has read, and of which body.
    """

    def __init__(
        self,
        session: Session,
        request: Request,
        *,
        check: Callable[[Response], None],
        cancel: Cancel = NEVER,
        on_bytes: OnBytes = lambda _: None,
        begun: tuple[int, str | None] = (0, None),
    ) -> None:
        self._session = session
        self._request = request
        self._check = check
        self._cancel = cancel
        self.on_bytes = on_bytes
        self._response: Response | None = None
        self.position, self.etag = begun

    def open(self) -> int:
        """Send the request and return the number of bytes that remain to be read.

        Raises as `read`, and `RemoteProblem` for a response without a length.
        """
        response = self._response or self._open()
        length = response.headers.get("Content-Length")
        if length is None:
            raise RemoteProblem(status=response.status, detail="the answer does not say how long it is")
        return int(length)

    def fill(self, buffer: memoryview) -> None:
        """Read exactly as many bytes as ``buffer`` holds; raises as `read`."""
        while buffer.nbytes:
            buffer = buffer[self.read(buffer) :]

    def read(self, buffer: memoryview) -> int:
        """Read some bytes, at least one, and return how many.

        Raises `BodyChanged` if the rest cannot be resumed, `Cancelled`, and `Unreachable` after the last attempt.
        """
        self._cancel.check()
        retry = self._session.retry
        for attempt in range(1, retry.attempts + 1):
            response = self._response or self._open()
            try:
                count = response.readinto(buffer)
                if not count:
                    raise ConnectionResetError(f"the body ended after {self.position} bytes")
            except BROKEN_CONNECTION as error:
                self.close()
                if attempt == retry.attempts:
                    raise unreachable(self._request, error, attempt) from error
                self._session.wait(self._request, reason_of(error), attempt, retry.backoff(attempt), self._cancel)
            else:
                self.position += count
                self.on_bytes(count)
                return count
        raise AssertionError("unreachable: the last attempt returns or raises")

    def close(self) -> None:
        """Give the connection back."""
        if self._response is not None:
            self._response.close()
            self._response = None

    def _open(self) -> Response:
        if self.position:
            self._response = self._open_rest()
        else:
            self._response = self._session.open(self._request, self._cancel)
            self._check(self._response)
            self.etag = self._response.headers.get("ETag")
        return self._response

    def _open_rest(self) -> Response:
        if self._request.method != "GET" or self.etag is None or self.etag.startswith("W/"):
            raise BodyChanged("a part of this body cannot be asked for")
        rest = {"Range": f"bytes={self.position}-", "If-Range": self.etag}
        response = self._session.open(self._request.with_headers(rest), self._cancel)
        begins = response.headers.get("Content-Range", "")
        if response.status != 206 or not begins.startswith(f"bytes {self.position}-"):
            response.close()
            raise BodyChanged("the answer is another one by now")
        return response

"""Response bodies that resume after broken connections."""

from __future__ import annotations

from collections.abc import Callable

from hyperslab.client.session import Request, Session
from hyperslab.client.transport import BROKEN_CONNECTION, CANCEL, Response
from hyperslab.errors import RemoteProblem

RESTARTS = 5
"""Attempts to read a body that cannot be resumed."""

OnBytes = Callable[[int], None]
"""Progress callback, called with the number of new bytes; negative for bytes to be read again."""


class BodyChanged(Exception):
    """The body cannot be resumed: it has changed, or has no strong ETag."""


class Body:
    """Response body, resumed with ``Range`` and ``If-Range`` after a broken connection (RFC 9110 §14).

    ``check`` validates the first response. ``start`` is the initial `position` and `etag`, from an earlier attempt.
    """

    def __init__(
        self,
        session: Session,
        request: Request,
        *,
        check: Callable[[Response], None],
        on_bytes: OnBytes = lambda _: None,
        start: tuple[int, str | None] = (0, None),
    ) -> None:
        self._session = session
        self._request = request
        self._check = check
        self.on_bytes = on_bytes
        self._response: Response | None = None
        self.position, self.etag = start

    def open(self) -> int:
        """Send the request and return the number of remaining bytes.

        Raises as `read`, and `RemoteProblem` for a response without a length.
        """
        response = self._session.attempt(self._rest(), self._take)
        length = response.headers.get("Content-Length")
        if length is None:
            raise RemoteProblem(status=response.status, detail="the answer does not say how long it is")
        return int(length)

    def fill(self, buffer: memoryview) -> None:
        """Fill the whole buffer; raises as `read`."""
        while buffer.nbytes:
            buffer = buffer[self.read(buffer) :]

    def read(self, buffer: memoryview) -> int:
        """Read at least one byte and return the number read.

        Raises `BodyChanged` if the body cannot be resumed, `Cancelled`, and `Unreachable` after the last attempt.
        """
        CANCEL.get().check()
        if self._response is not None:
            try:
                return self._read_some(self._response, buffer)
            except BROKEN_CONNECTION:
                self.close()
        return self._session.attempt(self._rest(), lambda response: self._read_some(self._take(response), buffer))

    def close(self) -> None:
        """Release the connection."""
        if self._response is not None:
            self._response.close()
            self._response = None

    def _read_some(self, response: Response, buffer: memoryview) -> int:
        count = response.readinto(buffer)
        if not count:
            raise ConnectionResetError(f"the body ended after {self.position} bytes")
        self.position += count
        self.on_bytes(count)
        return count

    def _rest(self) -> Request:
        """The request for the remaining bytes."""
        if not self.position:
            return self._request
        if self.etag is None:
            raise BodyChanged("the body has no ETag, so its rest cannot be requested")
        return self._request.with_headers({"Range": f"bytes={self.position}-", "If-Range": self.etag})

    def _take(self, response: Response) -> Response:
        """Continue with a response; raises `BodyChanged` if it is not the remaining part."""
        if not self.position:
            self._check(response)
            self.etag = response.headers.get("ETag")
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {self.position}-"):
            raise BodyChanged("the answer is another one by now")
        self._response = response
        return response

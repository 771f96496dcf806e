"""Response bodies, read to their end with resumption after broken connections."""

from __future__ import annotations

from collections.abc import Callable

from hyperslab.client.session import Request, Session
from hyperslab.client.transport import BROKEN_CONNECTION, CURRENT, Response
from hyperslab.errors import RemoteProblem

RESTARTS = 5
"""How often a body that cannot be resumed is read from its beginning."""

OnBytes = Callable[[int], None]
"""Progress callback: called with the number of new bytes, negative if some have to be read again."""


class BodyChanged(Exception):
    """The body cannot be resumed: it has changed, or has no ETag (of a weak one, servers send no parts)."""


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
        on_bytes: OnBytes = lambda _: None,
        begun: tuple[int, str | None] = (0, None),
    ) -> None:
        self._session = session
        self._request = request
        self._check = check
        self.on_bytes = on_bytes
        self._response: Response | None = None
        self.position, self.etag = begun

    def open(self) -> int:
        """Send the request and return the number of bytes that remain to be read.

        Raises as `read`, and `RemoteProblem` for a response without a length.
        """
        response = self._session.attempt(self._rest(), self._take)
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
        CURRENT.cancel.check()
        if self._response is not None:
            try:
                return self._read_some(self._response, buffer)
            except BROKEN_CONNECTION:
                self.close()
        return self._session.attempt(self._rest(), lambda response: self._read_some(self._take(response), buffer))

    def close(self) -> None:
        """Give the connection back."""
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
        """The request for what has not been read yet."""
        if not self.position:
            return self._request
        if self.etag is None:
            raise BodyChanged("a part of this body cannot be asked for")
        return self._request.with_headers({"Range": f"bytes={self.position}-", "If-Range": self.etag})

    def _take(self, response: Response) -> Response:
        """Go on with this response; raises `BodyChanged` if it is not the rest."""
        if not self.position:
            self._check(response)
            self.etag = response.headers.get("ETag")
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {self.position}-"):
            raise BodyChanged("the answer is another one by now")
        self._response = response
        return response

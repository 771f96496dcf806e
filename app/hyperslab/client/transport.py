"""One HTTP exchange: the seam that tests and other runtimes replace.

A transport makes a single attempt and reports what happened; retries, problems and resuming live above it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import urllib3

Body = bytes | memoryview
"""What a request may carry; both can be sent again by a retry."""

BROKEN_CONNECTION: tuple[type[Exception], ...] = (
    urllib3.exceptions.ProtocolError,
    urllib3.exceptions.TimeoutError,
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ReadTimeoutError,
    ConnectionError,
    TimeoutError,
)
"""What a transport may raise for a connection that a second attempt could mend."""


class Response(Protocol):
    """An answer whose body is read by the caller, who closes it."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Looked up without regard to case."""
        ...

    def readinto(self, buffer: memoryview) -> int:
        """Read some bytes of the body into ``buffer`` and return how many; 0 at its end."""
        ...

    def read(self) -> bytes:
        """The rest of the body."""
        ...

    def close(self) -> None:
        """Give the connection back; a body that was not read to its end costs the connection."""
        ...


class Transport(Protocol):
    """Something that can exchange one request for one response.

    Raises one of `BROKEN_CONNECTION` where no answer came. Has to be usable from several threads and to survive
    pickling.
    """

    def request(self, method: str, url: str, *, headers: Mapping[str, str], body: Body | None) -> Response: ...

    def close(self) -> None: ...

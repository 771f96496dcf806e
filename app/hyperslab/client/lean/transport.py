"""The lean transport: plain ``http://`` and no proxy."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from functools import partial
from typing import Final

from hyperslab.client.lean.answer import answer_of
from hyperslab.client.lean.connection import Connection
from hyperslab.client.lean.pool import Pool
from hyperslab.client.lean.request import Origin, encode_head, split_url
from hyperslab.client.transport import Body, Response

_MOST_SERVERS: Final = 10
"""Whose connections are kept."""


class LeanTransport:
    """Keep-alive connections, at most ``connections`` to one server.

    The timeouts are seconds; ``read_timeout`` bounds the wait until the next bytes come, or can be sent.
    """

    def __init__(self, *, connections: int = 4, connect_timeout: float = 10.0, read_timeout: float = 60.0) -> None:
        self._connections = connections
        self._timeouts = {"connect_timeout": connect_timeout, "read_timeout": read_timeout}
        self._start()

    def request(self, method: str, url: str, *, headers: Mapping[str, str], body: Body | None) -> Response:
        """Send one request.

        Raises `Unusual`, before anything is sent, for what is better left to urllib3; `ValueError` for a header with a
        line break; and `BROKEN_CONNECTION`.
        """
        server, target = split_url(url)
        origin, pool = self._server(server)
        head = encode_head(method, target, origin.authority, headers, body)
        connection = pool.take()
        try:
            answer = connection.exchange(method, head, memoryview(body or b"").cast("B"))
            return answer_of(answer, connection, pool)
        except BaseException:
            connection.close()
            pool.give(None)
            raise

    def close(self) -> None:
        """Close idle connections; the transport can still be used."""
        for _, pool in list(self._servers.values()):
            pool.close()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._servers: dict[str, tuple[Origin, Pool]] = {}

    def _server(self, text: str) -> tuple[Origin, Pool]:
        if self._pid != os.getpid():  # a forked child: sharing sockets, both would read each other's answers
            self._start()
        return self._servers.get(text) or self._add_server(text)

    def _add_server(self, text: str) -> tuple[Origin, Pool]:
        origin = Origin.parse(text)
        connect = partial(Connection.open, origin, **self._timeouts)
        with self._lock:
            while len(self._servers) >= _MOST_SERVERS:
                self._servers.pop(next(iter(self._servers)))
            return self._servers.setdefault(text, (origin, Pool(self._connections, connect)))

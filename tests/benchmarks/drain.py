"""``python -m tests.benchmarks.drain URL...``: read all bodies at the same time and throw them away.

Prints one JSON line: bytes, seconds, and how many were told to come back later. ``DRAIN_SECONDS`` ends it early.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
import time
from urllib.parse import urlsplit

_PIECE = 1 << 20


def drain(urls: list[str], seconds: float) -> dict[str, float]:
    """Read until all bodies have ended or time is up."""
    buffer = memoryview(bytearray(_PIECE))
    total, refused, began = 0, 0, time.monotonic()
    with selectors.DefaultSelector() as selector:
        for url in urls:
            selector.register(_asked(url), selectors.EVENT_READ, data=[True])
        while selector.get_map() and time.monotonic() - began < seconds:
            for key, _ in selector.select(1.0):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                count = connection.recv_into(buffer)
                total += count
                if key.data[0] and count:
                    key.data[0] = False
                    refused += bytes(buffer[9:12]) == b"503"
                if not count:
                    selector.unregister(connection)
                    connection.close()
    return {"nbytes": total, "seconds": time.monotonic() - began, "refused": refused}


def _asked(url: str) -> socket.socket:
    parts = urlsplit(url)
    connection = socket.create_connection((parts.hostname, parts.port), timeout=60)
    request = f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n"
    connection.sendall(request.encode())
    return connection


def main() -> None:
    print(json.dumps(drain(sys.argv[1:], float(os.environ.get("DRAIN_SECONDS", "600")))), flush=True)


if __name__ == "__main__":
    main()

"""``az://``, against as much of the Blob service as conditional puts need."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import ABSENT, Store, VersionConflict, WritersSafe


class _Blobs(ThreadingHTTPServer):
    """Blobs by path, each with its tag."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.blobs: dict[str, tuple[bytes, str]] = {}
        self.lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Blobs

    def do_PUT(self) -> None:
        """Where nothing must be there and something is, the service says 409, and 412 for every other condition."""
        path, body = urlsplit(self.path).path, self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            found = self.server.blobs.get(path)
            if self.headers["If-None-Match"] == "*" and found is not None:
                self._answer(409, b"<Error><Code>BlobAlreadyExists</Code></Error>")
            elif self.headers["If-Match"] not in (None, found and found[1]):
                self._answer(412, b"<Error><Code>ConditionNotMet</Code></Error>")
            else:
                self.server.blobs[path] = body, f'"{uuid4().hex}"'
                self._answer(201, tag=self.server.blobs[path][1])

    def do_GET(self) -> None:
        found = self.server.blobs.get(urlsplit(self.path).path)
        if found is None:
            self._answer(404, b"<Error><Code>BlobNotFound</Code></Error>")
        else:
            self._answer(200, *found)

    do_HEAD = do_GET  # noqa: N815  (the base class looks for it)

    def do_DELETE(self) -> None:
        self.server.blobs.pop(urlsplit(self.path).path, None)
        self._answer(202)

    def do_POST(self) -> None:
        """A batch of deletions: this service takes none."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(501)

    def _answer(self, status: int, body: bytes = b"", tag: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Sun, 22 Nov 2026 12:00:00 GMT")
        if tag:
            self.send_header("ETag", tag)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class calls it so)
        """Tests have no use for an access log."""


@pytest.fixture
def store() -> Iterator[Store]:
    with _Blobs() as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        options = {"account_name": "x", "account_key": "eA==", "endpoint": endpoint}
        yield open_store(StoreConfig("a", "az://container", writable=True, timeout=60.0, retries=1, options=options))
        server.shutdown()


def test_conditions_are_honoured(store: Store) -> None:
    first = store.put("k", b"1", if_version=ABSENT)
    second = store.put("k", b"2", if_version=first)

    for condition in (ABSENT, first):
        with pytest.raises(VersionConflict) as conflict:
            store.put("k", b"3", if_version=condition)
        assert conflict.value.current == second
    assert store.capabilities.writers_safe is WritersSafe.REPLICAS


def test_the_end_of_a_value_is_read_though_the_service_knows_no_ranges_from_there(store: Store) -> None:
    """The index of a shard lies there."""
    store.put("k", b"0123456789")

    part = store.get_tail("k", 3)

    assert part is not None
    assert (part.entry.size, bytes(part.between(7, 10))) == (10, b"789")

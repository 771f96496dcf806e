"""``az://``, against as much of the Blob service as conditional puts need."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from typing_extensions import override

from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import ABSENT, Store, VersionConflict, WritersSafe
from tests.storage.support import Quiet, serve


class _Blobs(Quiet):
    """Blobs by path, each with its tag."""

    protocol_version = "HTTP/1.1"
    blobs: ClassVar[dict[str, tuple[bytes, str]]] = {}
    lock: ClassVar = threading.Lock()

    def do_PUT(self) -> None:  # noqa: N802  (the base class looks for it)
        """Where nothing must be there and something is, the service says 409, and 412 for every other condition."""
        path, body = urlsplit(self.path).path, self.rfile.read(int(self.headers["Content-Length"]))
        with self.lock:
            found = self.blobs.get(path)
            if self.headers["If-None-Match"] == "*" and found is not None:
                self.answer(409, b"<Error><Code>BlobAlreadyExists</Code></Error>")
            elif self.headers["If-Match"] not in (None, found and found[1]):
                self.answer(412, b"<Error><Code>ConditionNotMet</Code></Error>")
            else:
                self.blobs[path] = body, f'"{uuid4().hex}"'
                self.answer(201, headers={"ETag": self.blobs[path][1]})

    @override
    def do_GET(self) -> None:
        found = self.blobs.get(urlsplit(self.path).path)
        if found is None:
            self.answer(404, b"<Error><Code>BlobNotFound</Code></Error>")
        else:
            self.answer(200, found[0], {"ETag": found[1], "Last-Modified": "Sun, 22 Nov 2026 12:00:00 GMT"})

    do_HEAD = do_GET  # noqa: N815  (the base class looks for it)

    def do_DELETE(self) -> None:  # noqa: N802  (the base class looks for it)
        self.blobs.pop(urlsplit(self.path).path, None)
        self.answer(202)

    def do_POST(self) -> None:  # noqa: N802  (the base class looks for it)
        """A batch of deletions: this service takes none."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(501)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    _Blobs.blobs.clear()
    for endpoint in serve(_Blobs, tmp_path / "root"):
        options = {"account_name": "x", "account_key": "eA==", "endpoint": endpoint}
        yield open_store(StoreConfig("a", "az://container", writable=True, timeout=60.0, retries=1, options=options))


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

    part = store.get_end("k", 3)

    assert part is not None
    assert (part.entry.size, bytes(part.between(7, 10))) == (10, b"789")

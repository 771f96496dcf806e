"""Services in this process behind real sockets, and requests exactly as they are spelt."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import zarr
from numpy.typing import NDArray

from hyperslab.api.app import create_app
from hyperslab.api.options import ApiOptions
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import Service, build
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import MOST_BYTES, Capabilities, Part, Stored
from hyperslab.storage.local import LocalStore
from tests.arrays.counting import CountingStore
from tests.server import served


class HookedStore(CountingStore):
    """Counts, also the keys whose versions are ``looked_up``, and calls ``before_chunk`` with each chunk's key whose
    value is about to be read, and ``before_versions`` with keys that are about to be looked up; both may block or
    raise. ``far``: each look-up is said to take milliseconds."""

    before_chunk: Callable[[str], None] = staticmethod(lambda _: None)
    before_versions: Callable[[Sequence[str]], None] = staticmethod(lambda _: None)
    looked_up = 0
    far = False

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, cheap_stat=not self.far)

    def versions(self, prefix: str, keys: Sequence[str]) -> list[str | None]:
        self.looked_up += len(keys)
        self.before_versions(keys)
        return super().versions(prefix, keys)

    def get(self, key: str, most: int = MOST_BYTES) -> Stored | None:
        self._meet(key)
        return super().get(key, most)

    def get_ranges(
        self, key: str, ranges: Sequence[tuple[int, int]], version: str | None = None
    ) -> list[bytes | memoryview] | None:
        self._meet(key)
        return super().get_ranges(key, ranges, version)

    def get_part(self, key: str, start: int, stop: int) -> Part | None:
        self._meet(key)
        return super().get_part(key, start, stop)

    def _meet(self, key: str) -> None:
        if not _is_document(key):
            self.before_chunk(key)

    def chunk_gets(self) -> list[str]:
        """The keys read so far that are no metadata."""
        return [key for key in self.gets if not _is_document(key)]


def _is_document(key: str) -> bool:
    return key.rpartition("/")[2].startswith(".z")


@dataclass(frozen=True, slots=True)
class Running:
    """A service behind a socket: its URL, the store it reads, and the service itself."""

    url: str
    store: HookedStore
    service: Service


@contextmanager
def running(
    folder: Path,
    options: ApiOptions | None = None,
    *,
    mount: Mapping[str, Any] | None = None,
    root_path: str = "",
    far: bool = False,
    **sizes: int,
) -> Iterator[Running]:
    """A folder served as the store ``data``; ``mount`` holds further members of `MountedStore`."""
    store = HookedStore(open_store(StoreConfig(name="data", url=str(folder))))
    store.far = far
    service = build([MountedStore("data", store, **(mount or {}))], **sizes)
    with served(create_app(service, options), root_path=root_path) as url:
        yield Running(url, store, service)


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """An answer as it came; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def request(url: str, target: str, method: str = "GET", headers: Mapping[str, str] | None = None) -> RawAnswer:
    """Ask for exactly ``target``, which no client library gets to tidy."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    try:
        connection.putrequest(method, target, skip_accept_encoding=True)
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return RawAnswer(answer.status, found, answer.read())
    finally:
        connection.close()


def dial(url: str) -> socket.socket:
    """A connection to a server, for https without asking who it is."""
    parts = urlsplit(url)
    connection = socket.create_connection((parts.hostname or "", parts.port or 80), timeout=30)
    if parts.scheme != "https":
        return connection
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(connection)


@contextmanager
def open_request(
    url: str, target: str, *, method: str = "GET", receive_buffer: int | None = None
) -> Iterator[socket.socket]:
    """A request whose answer is read, or not, by the test; ``receive_buffer`` is the socket's, in bytes."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    with socket.socket() as connection:
        connection.settimeout(30)
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.connect((parts.hostname, parts.port or 80))
        connection.sendall(f"{method} {target} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        yield connection


def write_array(folder: Path, name: str, values: NDArray[Any], chunks: tuple[int, ...], **options: Any) -> NDArray[Any]:
    """Write ``values`` as a Zarr v2 array with zarr-python 3 and return them."""
    array = zarr.create_array(
        str(folder / name), shape=values.shape, chunks=chunks, dtype=values.dtype, zarr_format=2, **options
    )
    array[...] = values
    return values


def npy(body: bytes) -> NDArray[Any]:
    """The array of an npy body."""
    import io

    array: NDArray[Any] = np.load(io.BytesIO(body), allow_pickle=False)
    return array


class WatchedStore(LocalStore):
    """A folder that notes whose versions are looked up, and calls ``before_read`` when small chunks are about to be
    read."""

    def __init__(self, root: Path) -> None:
        super().__init__(StoreConfig("data", str(root)), str(root))
        self.looked_up: list[str] = []
        self.before_read: Callable[[], None] = lambda: None

    def versions(self, prefix: str, keys: Sequence[str]) -> list[str | None]:
        self.looked_up += keys
        return super().versions(prefix, keys)

    def get(self, key: str, most: int = MOST_BYTES) -> Stored | None:
        if "/.z" not in key:
            self.before_read()
        return super().get(key, most)

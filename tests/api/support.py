"""Services in this process behind real sockets, and requests exactly as they are spelt."""

from __future__ import annotations

import http.client
import io
import shutil
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
from numpy.typing import NDArray

from hyperslab.api.app import create_app
from hyperslab.api.options import ApiOptions
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import Service, build
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import Store
from tests.arrays.counting import CountingStore, is_document
from tests.arrays.support import zarr_array
from tests.server import served


class HookedStore(CountingStore):
    """Calls ``before_chunk`` with each chunk's key whose value is about to be read, ``before_versions`` with keys that
    are about to be looked up, and ``before_listing`` with prefixes; all may block or raise."""

    before_chunk: Callable[[str], None] = staticmethod(lambda _: None)
    before_versions: Callable[[Sequence[str]], None] = staticmethod(lambda _: None)
    before_listing: Callable[[str], None] = staticmethod(lambda _: None)

    def before(self, operation: str, keys: Sequence[str]) -> None:
        if operation == "versions":
            self.before_versions(keys)
        elif operation == "list_prefix":
            self.before_listing(keys[0])
        elif operation == "get" and not is_document(keys[0]):
            self.before_chunk(keys[0])


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
    remote: bool = False,
    **sizes: int,
) -> Iterator[Running]:
    """A folder served as the store ``data``; ``mount`` holds further members of `MountedStore`."""
    claims = {"cheap_stat": False} if remote else {}
    store = HookedStore(open_store(StoreConfig(name="data", url=str(folder))), **claims)
    service = build([MountedStore("data", store, **(mount or {}))], **sizes)
    with served(create_app(service, options), root_path=root_path) as url:
        yield Running(url, store, service)


@dataclass(frozen=True, slots=True)
class Served:
    """A store, a client of the service on it, and the service itself."""

    http: httpx.Client
    store: Store
    url: str
    service: Service

    def break_node(self, documents: dict[str, bytes], name: str = "a") -> None:
        chunks = {"0": bytes(8), "1": bytes(8)} if ".zarray" in documents else {}
        for key, data in {**documents, **chunks}.items():
            self.store.put(f"{name}/{key}", data)

    def keys(self) -> list[str]:
        return [entry.key for entry in self.store.list_prefix("") if not entry.key.startswith(".hyperslab/")]


@contextmanager
def serving(
    config: StoreConfig | Store | Path, options: ApiOptions | None = None, *, writable: bool = True, **sizes: int
) -> Iterator[Served]:
    """A store, or a folder as the store ``data``, which may be written, behind a socket."""
    if isinstance(config, Path):
        config = StoreConfig(name="data", url=str(config), writable=True, durability="rename")
    store = open_store(config) if isinstance(config, StoreConfig) else config
    service = build([MountedStore(store.name, store, writable=writable)], **sizes)
    with served(create_app(service, options)) as url, httpx.Client(base_url=url, timeout=60) as http:
        yield Served(http, store, url, service)


@contextmanager
def writable(folder: Path, options: ApiOptions | None = None) -> Iterator[httpx.Client]:
    """A client of a service that may write to a folder."""
    with serving(folder, options) as found:
        yield found.http


def problem(answer: httpx.Response) -> tuple[int, Any]:
    """Status and code of a refusal."""
    return answer.status_code, answer.json().get("code")


DEFINITION = {"shape": [4], "chunks": [2], "dtype": "<i4", "compressor": None}


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
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if parts.scheme != "https":
        return connection
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(connection)


def exchange(url: str, sent: bytes) -> bytes:
    """All that comes back on one connection until the server closes it."""
    with dial(url) as connection:
        connection.sendall(sent)
        return rest_of(connection)


def rest_of(connection: socket.socket) -> bytes:
    """What comes until the other side closes the connection."""
    received = b""
    while piece := connection.recv(1 << 16):
        received += piece
    return received


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
    zarr_array(folder, values, chunks, name, **options)
    return values


def restore(original: Path, folder: Path) -> None:
    """Make a folder what ``original`` is; a service on it sees it by the versions of its files."""
    for entry in folder.iterdir():
        if not entry.is_dir():
            entry.unlink()
        while entry.exists():  # the service may just put a note into a folder
            shutil.rmtree(entry, ignore_errors=True)
    shutil.copytree(original, folder, dirs_exist_ok=True)


def npy(body: bytes) -> NDArray[Any]:
    """The array of an npy body."""
    array: NDArray[Any] = np.load(io.BytesIO(body), allow_pickle=False)
    return array


def saved(*arrays: NDArray[Any]) -> bytes:
    """npy files, one behind the other."""
    out = io.BytesIO()
    for array in arrays:
        np.save(out, array)
    return out.getvalue()

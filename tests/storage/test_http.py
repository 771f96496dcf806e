"""Plain web servers."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typing_extensions import override

from hyperslab import errors
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import Store
from tests.faults import Delay, Fault, FaultProxy, Reset, Status, Truncate
from tests.s3 import S3Bucket, S3Server
from tests.storage.contract import ListContract, ListedVersionContract, Opened, ReadContract, ReadOnlyContract


class _Quiet(SimpleHTTPRequestHandler):
    @override
    def log_message(self, format: str, *args: object) -> None:
        """Tests have no use for an access log."""


class _Bare(_Quiet):
    """Knows neither HEAD nor dates nor lengths."""

    @override
    def do_HEAD(self) -> None:
        self.send_error(405)

    @override
    def send_header(self, keyword: str, value: str) -> None:
        if keyword not in ("Last-Modified", "Content-Length"):
            super().send_header(keyword, value)


class _Server(ThreadingHTTPServer):
    request_queue_size = 128


def serve(handler: type[_Quiet], root: Path) -> Iterator[str]:
    root.mkdir(exist_ok=True)
    with _Server(("127.0.0.1", 0), partial(handler, directory=str(root))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[str]:
    """The URL of a server of files with index pages; it knows no ranges and no ETags."""
    yield from serve(_Quiet, tmp_path / "root")


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[str]:
    yield from serve(_Bare, tmp_path / "root")


def fill(root: Path, values: Mapping[str, bytes]) -> None:
    for key, value in values.items():
        path = root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)


def web(url: str, **values: object) -> Store:
    return open_store(StoreConfig("web", url, **({"timeout": 5.0, "retries": 1} | values)))  # type: ignore[arg-type]


class TestFileServer(ReadContract, ListContract, ListedVersionContract, ReadOnlyContract):
    """Python's own: index pages, but whole values only."""

    @pytest.fixture
    def opened(self, files: str, tmp_path: Path) -> Opened:
        def open_filled(values: Mapping[str, bytes]) -> Store:
            fill(tmp_path / "root", values)
            return web(files)

        return open_filled


class TestBareServer(ReadContract):
    """The version is a digest where the server says nothing of use."""

    @pytest.fixture
    def opened(self, bare: str, tmp_path: Path) -> Opened:
        def open_filled(values: Mapping[str, bytes]) -> Store:
            fill(tmp_path / "root", values)
            return web(bare)

        return open_filled


class TestObjectServer(ReadContract):
    """A public bucket over plain HTTP: ETags and ranges, but no index pages."""

    @pytest.fixture
    def opened(self, s3_server: S3Server, s3_bucket: S3Bucket) -> Opened:
        def open_filled(values: Mapping[str, bytes]) -> Store:
            for key, value in values.items():
                s3_server.client.put_object(Bucket=s3_bucket.name, Key=key, Body=value, ACL="public-read")
            return web(f"{s3_server.url}/{s3_bucket.name}")

        return open_filled


LASTING = [
    (Status(500), errors.StoreError),
    (Status(503), errors.StoreError),
    (Status(410), errors.StoreError),
    (Status(403), errors.StoreDenied),
    (Status(401), errors.StoreDenied),
    (Status(504), errors.StoreTimeout),
    (Delay(0.5), errors.StoreTimeout),
    (Reset(), errors.StoreError),
]


class TestFaults:
    """Only 404 is absence."""

    @pytest.fixture
    def proxy(self, files: str, tmp_path: Path) -> Iterator[FaultProxy]:
        fill(tmp_path / "root", {"k": bytes(50_000)})
        with FaultProxy(files) as running:
            yield running

    @pytest.mark.parametrize(("fault", "kind"), LASTING, ids=str)
    def test_a_lasting_fault_fails_every_read(
        self, proxy: FaultProxy, fault: Fault, kind: type[errors.StoreError]
    ) -> None:
        store = web(proxy.url, timeout=0.2)
        proxy.inject(fault, times=math.inf)

        for read in (lambda: store.get("k"), lambda: store.stat("k"), lambda: store.list_dir(""), store.check):
            with pytest.raises(kind):
                read()

    @pytest.mark.parametrize("fault", [Status(503), Reset(), Delay(2.5), Truncate(1_000)], ids=str)
    def test_a_passing_fault_is_outlived(self, proxy: FaultProxy, fault: Fault) -> None:
        store = web(proxy.url, timeout=1.0)  # which an honest answer does not take on a busy machine either
        proxy.inject(fault)

        stored = store.get("k")

        assert stored is not None
        assert bytes(stored.data) == bytes(50_000)

    def test_a_body_that_is_always_cut_short_is_a_failure(self, proxy: FaultProxy) -> None:
        proxy.inject(Truncate(1_000), times=math.inf)

        with pytest.raises(errors.StoreError):
            web(proxy.url).get("k")

    def test_a_query_in_the_url_goes_out_with_every_request_and_is_not_shown(self, proxy: FaultProxy) -> None:
        store = web(f"{proxy.url}/?signature=secret")

        store.get("k")
        store.stat("k")

        assert {seen.path for seen in proxy.seen} == {"/k?signature=secret"}
        assert "secret" not in store.url

    @pytest.mark.parametrize(
        ("user", "options", "sent"),
        [("me:p%40ss@", {}, "Basic bWU6cEBzcw=="), ("", {"authorization": "Bearer token"}, "Bearer token")],
    )
    def test_credentials_are_sent_and_not_shown(
        self, proxy: FaultProxy, user: str, options: dict[str, str], sent: str
    ) -> None:
        config = StoreConfig("web", proxy.url.replace("//", f"//{user}"), options=options)
        store = open_store(config)

        store.get("k")

        assert proxy.seen[0].headers["Authorization"] == sent
        assert store.url == proxy.url
        assert "token" not in repr(config)


def test_index_pages_are_found_out_by_the_check(files: str, s3_server: S3Server, s3_bucket: S3Bucket) -> None:
    listed, unlisted = web(files), web(f"{s3_server.url}/{s3_bucket.name}")
    s3_server.client.put_bucket_acl(Bucket=s3_bucket.name, ACL="public-read")
    assert not listed.capabilities.listable

    for store in (listed, unlisted):
        store.check()

    assert [store.capabilities.listable for store in (listed, unlisted)] == [True, False]
    with pytest.raises(errors.StoreError, match="no index pages"):
        unlisted.list_dir("")


def test_a_web_server_cannot_be_a_writable_store() -> None:
    with pytest.raises(errors.BadDefinition, match="read-only"):
        open_store(StoreConfig("web", "https://example.com/data", writable=True))


def test_a_port_where_nobody_listens_is_a_failure_and_no_time_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    with pytest.raises(errors.StoreError, match="no answer") as caught:
        web(url).get("k")

    assert not isinstance(caught.value, errors.StoreTimeout)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(errors.BadDefinition, match="authorization"):
        web("https://example.com", options={"authorisation": "x"})

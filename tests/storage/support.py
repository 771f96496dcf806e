"""What several storage tests share: filling stores, and small web servers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from http.client import HTTPConnection
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, urlsplit

from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]
from typing_extensions import override

from hyperslab.storage.base import Store
from tests.s3 import S3Bucket, S3Server


def fill(root: Path, values: Mapping[str, bytes]) -> None:
    """Put values into a folder."""
    for key, value in values.items():
        path = root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)


_SIGNED = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request"


def fill_bucket(
    server: S3Server, bucket: S3Bucket, values: Mapping[str, bytes], base: str = "", **headers: str
) -> None:
    """Put values into a bucket, not through a store, and far faster than with boto3."""
    with closing(HTTPConnection(urlsplit(server.url).netloc)) as connection:
        for key, value in values.items():
            path = f"/{bucket.name}/{quote(base + key)}"
            connection.request("PUT", path, value, {"Authorization": _SIGNED, **headers})
            with connection.getresponse() as answer:
                assert answer.status == 200, answer.read()


def value_of(store: Store, key: str) -> bytes:
    """The value of a key that is there."""
    stored = store.get(key)
    assert stored is not None
    return bytes(stored.data)


class Quiet(SimpleHTTPRequestHandler):
    """Serves files with index pages; it knows no ranges and no ETags."""

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Tests have no use for an access log."""

    def answer(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """A whole answer, for handlers that serve no files."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class Bare(Quiet):
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


def serve(handler: type[Quiet], root: Path) -> Iterator[str]:
    """The URL of a server, of a folder if the handler serves one, for a fixture."""
    root.mkdir(exist_ok=True)
    with _Server(("127.0.0.1", 0), partial(handler, directory=str(root))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


class PlainFiles(LocalFileSystem):  # type: ignore[misc]
    """A file system with real folders and no atomic writes, as SFTP's and SMB's are."""

    protocol = "plainfiles"

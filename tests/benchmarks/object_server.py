"""``python -m tests.benchmarks.object_server FOLDER``: a bucket that only reads, fast enough to be waited for in vain.

Every file below FOLDER is an object of the bucket ``bucket``, kept in memory. Speaks what S3 clients need to read: GET
with Range and If-Match, HEAD, ListObjectsV2. Prints its port and serves 127.0.0.1 until stdin ends. Besides,
``/-/latency/MS`` delays every answer, and ``/-/counts`` tells as JSON how many requests of which kind there were since
it was last asked.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sys
from bisect import bisect_right
from collections import Counter
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import httptools
import uvloop

from tests.benchmarks.readers import BUCKET

_DATE: Final = "Thu, 01 Jan 2026 00:00:00 GMT"
_PAGE: Final = 1000


class Bucket:
    """Objects by key, and what has been asked for."""

    def __init__(self, folder: Path) -> None:
        files = (path for path in folder.rglob("*") if path.is_file())
        self._objects = {str(path.relative_to(folder)): path.read_bytes() for path in files}
        self._keys = sorted(self._objects)
        self._tags = {key: hashlib.md5(data).hexdigest() for key, data in self._objects.items()}
        self.latency = 0.0
        self.counts: Counter[str] = Counter()

    def answer(self, method: str, target: str, headers: dict[str, str]) -> tuple[list[bytes], float]:
        """Pieces of the answer, and after how many seconds to send it."""
        parts = urlsplit(target)
        if parts.path.startswith("/-/"):
            return self._control(parts.path), 0.0
        key = unquote(parts.path).removeprefix(f"/{BUCKET}").lstrip("/")
        if not key:
            self.counts["list"] += 1
            return self._list(parse_qs(parts.query, keep_blank_values=True)), self.latency
        self.counts[method.lower()] += 1
        return self._object(method, key, headers), self.latency

    def _control(self, path: str) -> list[bytes]:
        if path.startswith("/-/latency/"):
            self.latency = float(path.rpartition("/")[2]) / 1000
        body = json.dumps(self.counts).encode()
        self.counts.clear()
        return _message("200 OK", [], body)

    def _object(self, method: str, key: str, headers: dict[str, str]) -> list[bytes]:
        data = self._objects.get(key)
        if data is None:
            return _error("404 Not Found", "NoSuchKey")
        tag = f'"{self._tags[key]}"'
        if headers.get("if-match", tag) != tag:
            return _error("412 Precondition Failed", "PreconditionFailed")
        fields = [f"ETag: {tag}", f"Last-Modified: {_DATE}", "Accept-Ranges: bytes"]
        found = re.fullmatch(r"bytes=([0-9]+)-([0-9]*)", headers.get("range", ""))
        if found is None:
            return _message("200 OK", fields, data, head=method == "HEAD")
        start, last = int(found[1]), min(int(found[2] or len(data) - 1), len(data) - 1)
        if start >= len(data):
            return _error("416 Range Not Satisfiable", "InvalidRange")
        fields.append(f"Content-Range: bytes {start}-{last}/{len(data)}")
        return _message("206 Partial Content", fields, data[start : last + 1], head=method == "HEAD")

    def _list(self, query: dict[str, list[str]]) -> list[bytes]:
        def one(name: str) -> str:
            return query.get(name, [""])[0]

        prefix, after = one("prefix"), one("continuation-token") or one("start-after")
        limit = min(int(one("max-keys") or _PAGE), _PAGE)
        first = bisect_right(self._keys, after) if after else 0
        keys: list[str] = []
        common: dict[str, None] = {}
        for key in self._keys[first:]:
            if key.startswith(prefix) and len(keys) <= limit:
                rest, delimiter, _ = key[len(prefix) :].partition(one("delimiter") or "\0")
                if delimiter:
                    common[prefix + rest + delimiter] = None
                else:
                    keys.append(key)
        return _message(
            "200 OK", ["Content-Type: application/xml"], self._page(keys[:limit], common, len(keys) > limit)
        )

    def _page(self, keys: list[str], common: dict[str, None], more: bool) -> bytes:
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>&quot;{self._tags[key]}&quot;</ETag><Size>{len(self._objects[key])}</Size></Contents>"
            for key in keys
        )
        prefixes = "".join(f"<CommonPrefixes><Prefix>{escape(p)}</Prefix></CommonPrefixes>" for p in common)
        token = f"<NextContinuationToken>{escape(keys[-1])}</NextContinuationToken>" if more else ""
        return (
            '<?xml version="1.0" encoding="UTF-8"?>'
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{BUCKET}</Name><KeyCount>{len(keys)}</KeyCount><MaxKeys>{_PAGE}</MaxKeys>"
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{contents}{prefixes}{token}</ListBucketResult>"
        ).encode()


class Connection(asyncio.Protocol):
    """One connection; requests on it are answered in order."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._parser = httptools.HttpRequestParser(self)
        self._headers: dict[str, str] = {}
        self._url = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_message_complete(self) -> None:
        method = self._parser.get_method().decode()
        pieces, delay = self._bucket.answer(method, self._url.decode(), self._headers)
        self._url, self._headers = b"", {}
        if delay:
            asyncio.get_running_loop().call_later(delay, self._transport.writelines, pieces)
        else:
            self._transport.writelines(pieces)


def _message(status: str, fields: list[str], body: bytes, *, head: bool = False) -> list[bytes]:
    lines = [f"HTTP/1.1 {status}", *fields, f"Content-Length: {len(body)}", "", ""]
    start = "\r\n".join(lines).encode()
    return [start] if head else [start, body]


def _error(status: str, code: str) -> list[bytes]:
    return _message(status, ["Content-Type: application/xml"], f"<Error><Code>{code}</Code></Error>".encode())


async def serve(folder: Path) -> None:
    """Until stdin ends."""
    bucket, loop = Bucket(folder), asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(bucket), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1])))

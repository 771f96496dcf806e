"""Plain web servers."""

from __future__ import annotations

import gzip
import math
import random
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

import pytest
from typing_extensions import override

from hyperslab import errors
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import Store, StoredRange
from hyperslab.storage.http import within_origin
from tests.faults import Delay, Fault, FaultProxy, Reset, Status, Truncate
from tests.s3 import S3Bucket, S3Server
from tests.storage.support import Quiet, fill, fill_bucket, serve, value_of


@pytest.fixture
def files(tmp_path: Path) -> Iterator[str]:
    """The URL of a server of files with index pages; it knows no ranges and no ETags."""
    yield from serve(Quiet, tmp_path / "root")


def web(url: str, **values: object) -> Store:
    return open_store(StoreConfig("web", url, **({"timeout": 60.0, "retries": 1} | values)))  # type: ignore[arg-type]


@pytest.mark.timeout(60)
def test_values_that_are_too_large_keep_no_connection(files: str, tmp_path: Path) -> None:
    fill(tmp_path / "root", {"large": bytes(1 << 20), "small": b"s"})
    store = web(files)

    for _ in range(store.capabilities.width + 1):
        with pytest.raises(errors.StoredTooLarge):
            store.get("large", 10)

    assert value_of(store, "small") == b"s"


LASTING = [
    (Status(500), errors.StoreError),
    (Status(503), errors.StoreError),
    (Status(400), errors.StoreError),
    (Status(403), errors.StoreDenied),
    (Status(401), errors.StoreDenied),
    (Status(504), errors.StoreTimeout),
    (Delay(0.5), errors.StoreTimeout),
    (Reset(), errors.StoreError),
    (Truncate(1_000), errors.StoreError),
]


class TestFaults:
    """Only 404 and 410 are absence."""

    @pytest.fixture
    def proxy(self, files: str, tmp_path: Path) -> Iterator[FaultProxy]:
        fill(tmp_path / "root", {"k": bytes(50_000)})
        with FaultProxy(files) as running:
            yield running

    @pytest.mark.parametrize(("fault", "kind"), LASTING, ids=str)
    def test_a_lasting_fault_fails_every_read(
        self, proxy: FaultProxy, fault: Fault, kind: type[errors.StoreError]
    ) -> None:
        store = web(proxy.url, timeout=0.2 if isinstance(fault, Delay) else 60.0)
        proxy.inject(fault, times=math.inf)

        for read in (
            lambda: store.get("k"),
            lambda: store.get_part("k", 0, 10),
            lambda: store.stat("k"),
            # 403 may mean that the root has neither index page nor document
            *([] if fault == Status(403) else [lambda: store.list_dir(""), store.check]),
        )[: 1 if isinstance(fault, Truncate) else None]:
            with pytest.raises(kind):
                read()

    def test_what_is_gone_is_absent(self, proxy: FaultProxy) -> None:
        store = web(proxy.url)
        proxy.inject(Status(410), times=math.inf)

        assert [store.get("k"), store.get_part("k", 0, 10), store.stat("k")] == [None, None, None]
        store.check()

    @pytest.mark.parametrize("fault", [Status(503), Reset(), Delay(3.0), Truncate(1_000)], ids=str)
    def test_a_passing_fault_is_outlived(self, proxy: FaultProxy, fault: Fault) -> None:
        store = web(proxy.url, timeout=1.5 if isinstance(fault, Delay) else 60.0)
        proxy.inject(fault)

        stored = store.get("k")

        assert stored is not None
        assert bytes(stored.data) == bytes(50_000)

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


def test_a_part_takes_one_request_and_where_the_server_knows_no_ranges_it_is_all(
    files: str, tmp_path: Path, s3_server: S3Server, s3_bucket: S3Bucket
) -> None:
    fill(tmp_path / "root", {"k": b"0123456789"})
    fill_bucket(s3_server, s3_bucket, {"k": b"0123456789"}, **{"x-amz-acl": "public-read"})
    for url, base, start, data in ((files, "", 0, b"0123456789"), (s3_server.url, f"/{s3_bucket.name}", 2, b"234")):
        with FaultProxy(url) as proxy:
            part = web(f"{proxy.url}{base}").get_part("k", 2, 5)
            asked = [(seen.method, seen.headers["Range"]) for seen in proxy.seen]

        assert part is not None
        assert (part.entry.size, part.start, part.data) == (10, start, data)
        assert asked == [("GET", "bytes=2-4")]


def test_index_pages_are_found_out_by_the_check(files: str, s3_server: S3Server, s3_bucket: S3Bucket) -> None:
    listed, unlisted = web(files), web(f"{s3_server.url}/{s3_bucket.name}")
    s3_server.client.put_bucket_acl(Bucket=s3_bucket.name, ACL="public-read")
    assert not listed.capabilities.listable

    for store in (listed, unlisted):
        store.check()

    assert [store.capabilities.listable for store in (listed, unlisted)] == [True, False]
    with pytest.raises(errors.StoreError, match="no index pages"):
        unlisted.list_dir("")


@pytest.mark.parametrize(
    ("values", "says"), [({"writable": True}, "read-only"), ({"options": {"authorisation": "x"}}, "authorization")]
)
def test_what_a_web_server_cannot_be_is_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(errors.BadDefinition, match=says):
        web("https://example.com/data", **values)


def test_a_port_where_nobody_listens_is_a_failure_and_no_time_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    with pytest.raises(errors.StoreError, match="no answer") as caught:
        web(url).get("k")

    assert not isinstance(caught.value, errors.StoreTimeout)


class _Odd(Quiet):
    """One value of 1,000 bytes, in answers that are not what was asked for; the key says which."""

    VALUE: ClassVar = random.Random(0).randbytes(1000)

    @override
    def do_GET(self) -> None:
        packed = gzip.compress(self.VALUE)
        first, last = (int(text) for text in self.headers.get("Range", "bytes=0-999")[6:].split("-"))
        part = {"Content-Range": f"bytes {first}-{last}/1000"}
        status, headers, body = {
            "/packed": (200, {"Content-Encoding": "gzip"}, packed),
            "/packed-part": (206, {**part, "Content-Encoding": "gzip"}, gzip.compress(self.VALUE[first : last + 1])),
            "/short": (206, {"Content-Range": f"bytes {first}-{first + 9}/1000"}, self.VALUE[first : first + 10]),
            "/nothing": (416, {"Content-Range": "bytes */0"}, b"no such range"),
            "/length": (200, {}, self.VALUE),
        }[self.path]
        odd = {"Content-Length": "many"} if self.command == "HEAD" and self.path == "/length" else {}
        self.answer(status, body, {**headers, **odd, "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"})

    do_HEAD = do_GET  # noqa: N815  (the base class looks for it)


@pytest.fixture
def odd(tmp_path: Path) -> Iterator[Store]:
    for url in serve(_Odd, tmp_path / "root"):
        yield web(url, retries=0)


@pytest.mark.parametrize("key", ["packed-part", "short", "nothing"])
def test_a_part_or_a_refusal_is_never_taken_for_the_value(odd: Store, key: str) -> None:
    with pytest.raises(errors.StoreError):
        odd.get(key)


@pytest.mark.parametrize("key", ["packed-part", "short"])
def test_other_bytes_than_those_of_the_range_are_a_failure(odd: Store, key: str) -> None:
    for read in (lambda: odd.get_ranges(key, [(0, 100)]), lambda: odd.get_part(key, 0, 100)):
        with pytest.raises(errors.StoreError, match="206"):  # nor does it come whole
            read()


@pytest.mark.parametrize("key", ["packed", "length"])
def test_what_was_compressed_on_the_way_or_has_an_odd_length_has_the_size_of_the_value(odd: Store, key: str) -> None:
    entry, stored = odd.stat(key), odd.get(key)

    assert entry is not None
    assert stored is not None
    assert (entry.size, bytes(stored.data)) == (1000, _Odd.VALUE)
    assert odd.get_ranges(key, [(5, 10)]) == [_Odd.VALUE[5:10]]
    assert odd.get_part(key, 5, 10) == StoredRange(entry, 0, _Odd.VALUE)


class _Redirecting(Quiet):
    """``/to/URL`` leads there; all else is a value."""

    asked: ClassVar[list[tuple[str, str | None]]] = []

    @override
    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Authorization"]))
        location = unquote(self.path.partition("/to/")[2])
        self.answer(307 if location else 200, b"value", {"Location": location} if location else None)

    do_HEAD = do_GET  # noqa: N815  (the base class looks for it)


@pytest.fixture
def redirecting(tmp_path: Path) -> Iterator[str]:
    _Redirecting.asked.clear()
    yield from serve(_Redirecting, tmp_path / "root")


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("{other}/k?signature=secret", "{other}/k;"),
        ("//localhost:{port}/k", "http://localhost:{port}/k;"),
        ("{other}\\@127.0.0.1:{port}/k", "{other}"),  # a host to some parsers, and a password to others
        ("https://127.0.0.1:{port}/k", "https://127.0.0.1:{port}/k;"),
        ("file:///etc/passwd", "file:///etc/passwd;"),
        ("http://[::1/k", "an invalid URL;"),
    ],
)
def test_redirects_to_another_origin_are_refused_and_nobody_there_is_asked(
    redirecting: str, files: str, tmp_path: Path, location: str, shown: str
) -> None:
    fill(tmp_path / "root", {"k": b"of another"})
    port = redirecting.rpartition(":")[2]
    with FaultProxy(files) as other:
        names = {"other": other.url, "port": port}
        store = web(redirecting, options={"authorization": "Bearer token"})

        for ask in (store.get, store.stat, lambda key: store.get_ranges(key, [(0, 2)])):
            with pytest.raises(errors.StoreError, match="redirects to " + re.escape(shown.format(**names))) as caught:
                ask(f"to/{location.format(**names)}")

        assert "secret" not in str(caught.value).partition("redirects to")[2]
        assert not other.seen
    assert all(path.startswith("/to/") for path, _ in _Redirecting.asked)


@pytest.mark.parametrize(
    "location", ["/k", "../k", "{url}/k", "//127.0.0.1:{port}/k", "HTTP://me@127.0.0.1:{port}/to//k"]
)
def test_redirects_within_the_origin_are_followed_with_the_credentials(redirecting: str, location: str) -> None:
    store = web(redirecting, options={"authorization": "Bearer token"})

    found = store.get("to/" + location.format(url=redirecting, port=redirecting.rpartition(":")[2]))

    assert found is not None
    assert found.data == b"value"
    assert _Redirecting.asked[-1] == ("/k", "Bearer token")
    with pytest.raises(errors.StoreError, match="5 redirects"):  # a circle comes to an end
        store.get("to/?")


def test_http_may_lead_to_https_of_the_same_host_at_their_usual_ports() -> None:
    leads = [
        within_origin(url, target) is not None
        for url, target in [
            ("http://example.com/k", "https://example.com/k"),
            ("http://example.com:80/k", "https://EXAMPLE.com:443/k"),
            ("https://example.com/k", "http://example.com/k"),
            ("http://example.com/k", "https://www.example.com/k"),
            ("http://example.com:8000/k", "https://example.com/k"),
            ("http://example.com/k", "https://example.com:8443/k"),
        ]
    ]

    assert leads == [True, True, False, False, False, False]

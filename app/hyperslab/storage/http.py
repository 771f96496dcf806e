"""Plain web servers as read-only stores: ``http://`` and ``https://``.

Not through fsspec, whose HTTP file system reports a refused, failed or unreachable request as a missing file.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from hashlib import blake2b
from html.parser import HTMLParser
from typing import Final
from urllib.parse import quote, unquote, urljoin, urlsplit

import urllib3
from typing_extensions import override
from urllib3 import HTTPHeaderDict
from urllib3.exceptions import HTTPError, MaxRetryError, NewConnectionError
from urllib3.exceptions import TimeoutError as RequestTimeout
from urllib3.util import Url, parse_url

from hyperslab.errors import BadDefinition, ReadOnly, StoreDenied, StoredTooLarge, StoreError, StoreTimeout
from hyperslab.storage.base import (
    MOST_BYTES,
    Absent,
    Capabilities,
    Check,
    Entry,
    Keep,
    Listing,
    Part,
    Store,
    Stored,
    VersionConflict,
    WritersSafe,
)
from hyperslab.storage.config import StoreConfig, flag, public_url, reject_unknown
from hyperslab.storage.keys import is_hidden
from hyperslab.storage.parallel import SideBySide
from hyperslab.storage.ranges import Span, cut, merge

WIDTH: Final = 16
OPTIONS: Final = frozenset({"authorization", "listable"})

_MOST_IGNORED: Final = 4 * MOST_BYTES
"""Bytes that may come from a server that knows no ranges, and sends the whole value."""
_SAFE: Final = "/!$&'()*+,;=:@~"
_RANGE = re.compile(r"bytes (\d+)-")
_INDEX_PAGE = re.compile(rb"<title>\s*(index of|directory listing)", re.IGNORECASE)
_FAILURES: Final = {401: StoreDenied, 403: StoreDenied, 408: StoreTimeout, 504: StoreTimeout}
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_MOST_REDIRECTS: Final = 5
_PORTS: Final = {"http": 80, "https": 443}
_NO_HEAD: Final = (403, 405, 501)  # 403: a URL may be signed for GET alone


class Deletes:
    """DELETEs of signed URLs, on the condition of a version; none is repeated."""

    def __init__(self, timeout: float) -> None:
        self._http = urllib3.PoolManager(num_pools=2, maxsize=64, timeout=timeout, retries=False)

    def ask(self, url: str, version: str) -> int | None:
        """The status of the answer; None where there is none."""
        try:
            return self._http.request("DELETE", url, headers={"If-Match": version}, redirect=False).status
        except HTTPError:
            return None

    def close(self) -> None:
        self._http.clear()


class HttpStore(Store):
    """Keys below a URL; a query in it (a signature) goes out with every request. Nothing can be written.

    404 means absent, every other status but success a failure. The version is the ETag, else the date of modification
    and the size, else a digest of the content (then each look costs a whole read). Redirects are followed within the
    origin, and from http to https: elsewhere are machines that the operator has not named. Options: ``authorization``
    (the header's value; user and password in the URL do the same) and ``listable=true``, for servers whose index pages
    are not recognised: `check` looks whether the root has one that calls itself "Index of" or "Directory listing".
    """

    def __init__(self, config: StoreConfig) -> None:
        reject_unknown(config.options, OPTIONS, "http(s)://")
        if config.writable:
            raise BadDefinition("writable", "web servers are read-only stores")
        self._config = config
        self._base, self._query, authorization = _split(config)
        self._width = config.width or WIDTH
        self._listable = flag(config.options, "listable", False)
        self._fan = SideBySide(self._width, config.name)
        self._http = urllib3.PoolManager(
            num_pools=4,
            maxsize=self._width,
            block=True,
            headers={"Accept-Encoding": "identity", "User-Agent": "hyperslab"} | authorization,
            timeout=urllib3.Timeout(connect=min(config.timeout, 10), read=config.timeout),
            retries=urllib3.Retry(
                total=config.retries,
                backoff_factor=0.1,
                backoff_max=5,
                status_forcelist={429, 500, 502, 503, 504},
                respect_retry_after_header=False,
                raise_on_status=False,
            ),
        )

    @property
    def name(self) -> str:
        return self._config.name

    @property
    def url(self) -> str:
        return public_url(self._config.url)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            writable=False,
            listable=self._listable,
            conditional_put=False,
            writers_safe=WritersSafe.THREADS,
            width=self._width,
            cheap_stat=False,
            ranges=True,
        )

    def get(self, key: str, most: int = MOST_BYTES) -> Stored | None:
        answer = self._ask("GET", key, most=most)
        return None if answer is None else Stored(answer.data, _version(answer) or _digest(answer.data))

    @override
    def get_each(self, keys: Sequence[str], most: int = MOST_BYTES) -> list[Stored | None]:
        return list(self._fan.map(partial(self.get, most=most), keys))

    def get_part(self, key: str, start: int, stop: int) -> Part | None:
        """One request where the server knows ranges and tells a version; what it cannot give in part comes whole."""
        answer = self._ask("GET", key, {"Range": f"bytes={start}-{stop - 1}"}, max(stop, _MOST_IGNORED))
        if answer is None:
            return None
        if answer.status == 206 and (part := _part(key, answer, start, stop)) is not None:
            return part
        if answer.status == 416 and (entry := self.stat(key)) is not None and entry.size <= start:
            return Part(entry, start, b"")
        whole = answer if answer.status == 200 else self._ask("GET", key)
        return None if whole is None else _whole(key, whole)

    def get_ranges(
        self, key: str, ranges: Sequence[tuple[int, int]], version: str | None = None
    ) -> list[bytes | memoryview] | None:
        spans: list[Span] = []
        for span in self._fan.map(partial(self._span, key=key), merge(ranges) or [(0, 1)]):
            if span is None:
                return None
            version = version or span.version
            if span.version != version:
                raise VersionConflict(key, span.version)
            spans.append(span)
        return cut(spans, ranges)

    def stat(self, key: str) -> Entry | None:
        answer = self._ask("HEAD", key)
        if answer is None:
            return None
        size, version = answer.headers.get("Content-Length", ""), _version(answer)
        if not size.isdecimal() or version is None or _is_encoded(answer):
            return self._stat_by_reading(key)
        return Entry(key, int(size), version, _modified(answer))

    @override
    def versions(self, prefix: str, keys: Sequence[str]) -> list[str | None]:
        return [None if entry is None else entry.version for entry in self._fan.map(self.stat, keys)]

    @override
    def put(self, key: str, data: bytes | memoryview, *, if_version: str | Absent | None = None) -> str:
        raise ReadOnly(self.name)

    @override
    def delete(self, key: str, *, if_version: str | None = None) -> bool:
        raise ReadOnly(self.name)

    @override
    def delete_prefix(self, prefix: str, check: Check | None = None, keep: Keep | None = None) -> int:
        raise ReadOnly(self.name)

    @override
    def is_link(self, prefix: str) -> bool:
        return False

    def list_dir(self, prefix: str) -> Listing:
        """What the index page of the directory links to; raises `errors.StoreError` where the server has none."""
        if not self._listable:
            self._look_for_index()
        if not self._listable:
            raise StoreError(self.name, prefix, "the server has no index pages")
        answer = self._ask("GET", prefix)
        if answer is None:
            return Listing((), ())
        names = _links(answer.data.decode("utf-8", "replace"), self._target(prefix))
        files = sorted(name for name in names if not name.endswith("/"))
        entries = self._fan.map(self.stat, [prefix + name for name in files])
        prefixes = sorted(name.rstrip("/") for name in names if name.endswith("/"))
        return Listing(tuple(entry for entry in entries if entry is not None), tuple(prefixes))

    def list_prefix(self, prefix: str) -> Iterator[Entry]:
        listed = self.list_dir(prefix)
        yield from listed.entries
        for name in listed.prefixes:
            yield from self.list_prefix(f"{prefix}{name}/")

    @override
    def lock(self, key: str, *, shared: bool = False) -> AbstractContextManager[None]:
        raise ReadOnly(self.name)

    def check(self) -> None:
        self._ask("GET", ".zgroup")
        if not self._listable:
            self._look_for_index()

    def close(self) -> None:
        self._fan.close()
        self._http.clear()

    def _look_for_index(self) -> None:
        answer = self._ask("GET", "")
        self._listable = answer is not None and _INDEX_PAGE.search(answer.data) is not None

    def _span(self, request: tuple[int, int], key: str) -> Span | None:
        start, stop = request
        answer = self._ask("GET", key, {"Range": f"bytes={start}-{stop - 1}"}, max(stop, _MOST_IGNORED))
        if answer is None:
            return None
        if answer.status == 416:
            entry = self.stat(key)
            return None if entry is None else Span(start, memoryview(b""), entry.version)
        if answer.status == 206 and not _is_range(answer, start, stop):
            raise StoreError(self.name, key, "the server answered another range than it was asked for")
        data = memoryview(answer.data) if answer.status == 206 else memoryview(answer.data)[start:stop]
        version = _version(answer)
        if version is None:
            entry = self._stat_by_reading(key)
            version = "" if entry is None else entry.version
        return Span(start, data, version)

    def _stat_by_reading(self, key: str) -> Entry | None:
        answer = self._ask("GET", key)
        return None if answer is None else _whole(key, answer).entry

    def _target(self, key: str) -> str:
        return f"{self._base}{quote(key, safe=_SAFE)}{self._query}"

    def _ask(
        self, method: str, key: str, headers: dict[str, str] | None = None, most: int = MOST_BYTES
    ) -> _Answer | None:
        """The whole answer; None for 404, an error of ours for all but success, and 416 where a range was asked for.

        Raises `StoredTooLarge` for one of more than ``most`` bytes, unread where the server tells its length.
        """
        answer = self._received(method, key, dict(self._http.headers) | headers if headers else None, most)
        if method == "HEAD" and answer.status in _NO_HEAD:
            return self._ask("GET", key, headers, most)
        if answer.status == 404 or (key and _led_to_a_directory(answer, self._target(key))):
            return None
        if answer.status == 200 or (headers is not None and answer.status in (206, 416)):
            return answer
        raise _FAILURES.get(answer.status, StoreError)(self.name, key, f"the server answered {answer.status}")

    def _received(self, method: str, key: str, headers: dict[str, str] | None, most: int) -> _Answer:
        """An answer that has come whole; the library itself tries again only until the head is there."""
        for attempts_left in reversed(range(self._config.retries + 1)):
            try:
                return self._followed(method, key, headers, most)
            except HTTPError as error:
                if isinstance(error, MaxRetryError) or not attempts_left:
                    raise self._failure(key, error) from error
        raise AssertionError("the last attempt returns or raises")

    def _followed(self, method: str, key: str, headers: dict[str, str] | None, most: int) -> _Answer:
        """The answer behind redirects; raises `errors.StoreError` for one that leads to another origin."""
        url = self._target(key)
        for _ in range(_MOST_REDIRECTS + 1):
            answer = self._http.request(method, url, headers=headers, preload_content=False, redirect=False)
            received = _receive(answer, url, key, most)
            location = received.headers.get("Location") if received.status in _REDIRECTS else None
            if location is None:
                return received
            target = _within(url, location)
            if target is None:
                leads = f"the server redirects to {_shown(url, location)}"
                raise StoreError(self.name, key, f"{leads}; only redirects within its own origin are followed")
            url = target
        raise StoreError(self.name, key, f"more than {_MOST_REDIRECTS} redirects")

    def _failure(self, key: str, error: HTTPError) -> StoreError:
        cause = error.reason if isinstance(error, MaxRetryError) else error
        if isinstance(cause, RequestTimeout) and not isinstance(cause, NewConnectionError):  # urllib3 counts it as one
            return StoreTimeout(self.name, key, "no answer in time")
        return StoreError(self.name, key, f"no answer ({type(cause).__name__})")


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer to a request; ``url``: of the resource that it is of, behind redirects."""

    status: int
    headers: HTTPHeaderDict
    url: str
    data: bytes


def _receive(answer: urllib3.BaseHTTPResponse, url: str, key: str, most: int) -> _Answer:
    """Read an answer; raises `StoredTooLarge` for a value of more than ``most`` bytes, of which at most one more is
    read."""
    is_value, size = answer.status in (200, 206), answer.length_remaining or 0
    limit = most if is_value else MOST_BYTES
    try:
        data = b"" if size > limit else answer.read(limit + 1)
        if max(size, len(data)) > limit:
            answer.close()
            if is_value:
                raise StoredTooLarge(key, max(size, len(data)), most)
    finally:
        answer.release_conn()
    return _Answer(answer.status, answer.headers, url, data)


class _Links(HTMLParser):
    """The targets of a page's links."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def _links(page: str, url: str) -> set[str]:
    """The names directly below ``url`` that a page links to, unquoted; directories end in ``/``."""
    parser = _Links()
    parser.feed(page)
    base = urlsplit(url)
    names = set()
    for link in parser.found:
        target = urlsplit(urljoin(url, link))
        name = unquote(target.path.removeprefix(base.path))
        below = target.netloc == base.netloc and target.path.startswith(base.path) and not link.startswith("?")
        if below and name.strip("/") and "/" not in name[:-1] and not is_hidden(name.rstrip("/")):
            names.add(name)
    return names


def _split(config: StoreConfig) -> tuple[str, str, dict[str, str]]:
    """The URL that keys are put after, the query that follows them, and the header that says who asks."""
    parts = urlsplit(config.url)
    if not parts.hostname:
        raise BadDefinition("url", "it names no machine")
    user, _, host = parts.netloc.rpartition("@")
    basic = f"Basic {b64encode(unquote(user).encode()).decode()}" if user else ""
    authorization = config.options.get("authorization", basic)
    base = parts._replace(netloc=host, query="", fragment="").geturl().rstrip("/") + "/"
    headers = {"Authorization": authorization} if authorization else {}
    return base, f"?{parts.query}" if parts.query else "", headers


def _within(url: str, location: str) -> str | None:
    """The address that a redirect leads to, if it stays at the scheme, host and port, or goes from http to https, each
    at its usual port; the parser is that of the library which then asks, since others see other hosts in some URLs."""
    try:
        target = urljoin(url, location)
        before, after = (_origin(parse_url(text)) for text in (url, target))
    except ValueError:
        return None
    upgraded = before[0] == "http" and before[2] == 80 and after == ("https", before[1], 443)
    return target if after == before or upgraded else None


def _origin(url: Url) -> tuple[str | None, str | None, int | None]:
    return url.scheme, url.host, url.port or _PORTS.get(url.scheme or "")


def _shown(url: str, location: str) -> str:
    """Where a redirect leads, without what may be secret in it."""
    try:
        return parse_url(urljoin(url, location))._replace(auth=None, query=None, fragment=None).url[:200]
    except ValueError:
        return "what is no URL"


def _version(answer: _Answer) -> str | None:
    if tag := answer.headers.get("ETag"):
        return str(tag)
    modified, size = answer.headers.get("Last-Modified"), _size(answer)
    return f"{modified}-{size}" if modified and size else None


def _part(key: str, answer: _Answer, start: int, stop: int) -> Part | None:
    """What a partial answer holds; None where it is not what was asked for, or does not say of what it is a part."""
    size, version = _size(answer) or "", _version(answer)
    if version is None or not size.isdecimal() or not _is_range(answer, start, stop):
        return None
    return Part(Entry(key, int(size), version, _modified(answer)), start, answer.data)


def _whole(key: str, answer: _Answer) -> Part:
    """A value that has come whole."""
    version = _version(answer) or _digest(answer.data)
    return Part(Entry(key, len(answer.data), version, _modified(answer)), 0, answer.data)


def _size(answer: _Answer) -> str | None:
    """The size of the whole value, of which a partial answer names it behind the slash."""
    if answer.status == 206:
        return str(answer.headers.get("Content-Range", "")).rpartition("/")[2].replace("*", "")
    return answer.headers.get("Content-Length")


def _is_range(answer: _Answer, start: int, stop: int) -> bool:
    """Whether a partial answer holds the bytes from ``start`` to ``stop`` as they are stored, or to the value's end."""
    size = _size(answer) or ""
    found = _RANGE.match(answer.headers.get("Content-Range", ""))
    ends = min(stop, int(size)) if size.isdecimal() else stop
    return found is not None and int(found[1]) == start and len(answer.data) == ends - start and not _is_encoded(answer)


def _is_encoded(answer: _Answer) -> bool:
    """Whether it was compressed on the way, though we asked for it as it is: its sizes are not those of the value."""
    return answer.headers.get("Content-Encoding", "identity").lower() != "identity"


def _led_to_a_directory(answer: _Answer, url: str) -> bool:
    """Whether the server redirected from a name to its index page: then there is no value of that name."""
    path = urlsplit(url).path
    return not path.endswith("/") and urlsplit(answer.url).path == f"{path}/"


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def _modified(answer: _Answer) -> float:
    try:
        return parsedate_to_datetime(answer.headers["Last-Modified"]).timestamp()
    except (KeyError, ValueError):  # not sent, or not a date
        return 0.0

"""Read-only stores over HTTP: ``http://`` and ``https://``.

obstore's HTTP store follows redirects to any host and lists only by WebDAV; fsspec's reports failed requests as missing
files.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Collection
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from hashlib import blake2b
from html.parser import HTMLParser
from typing import Final
from urllib.parse import quote, unquote, urljoin, urlsplit

import urllib3
from typing_extensions import override
from urllib3 import HTTPHeaderDict, HTTPResponse
from urllib3.exceptions import DecodeError, HTTPError, NewConnectionError
from urllib3.exceptions import TimeoutError as RequestTimeout
from urllib3.util import Url, parse_url

from hyperslab.errors import BadDefinition, StoreDenied, StoredTooLarge, StoreError, StoreTimeout
from hyperslab.storage.base import (
    MAX_BYTES,
    Capabilities,
    Entry,
    Listing,
    Store,
    StoredRange,
    StoredValue,
    UnservedEntry,
)
from hyperslab.storage.config import StoreConfig, flag, missing_statuses, reject_unknown
from hyperslab.storage.keys import flaw_of, is_hidden
from hyperslab.wire.retry import attempts

OPTIONS: Final = frozenset({"authorization", "listable", "missing"})


class HttpStore(Store):
    """Read-only store of keys below a URL; a query in it (a signature) is sent with each request.

    404 and 410 mean absent, other statuses but success are failures. The version is the ETag, else modification time
    and size, else a digest, for which each stat reads the whole value. Redirects are followed within the origin and
    from http to https only, as the operator has not named other hosts. Options: ``authorization`` (the header's value;
    alternatively user and password in the URL), ``listable=true`` for servers whose index pages are not detected by
    their title ("Index of" or "Directory listing"), and ``missing`` (see `missing_statuses`).
    """

    def __init__(self, config: StoreConfig) -> None:
        super().__init__(config, Capabilities(width=16, listable=False), concurrent=True)
        reject_unknown(config.options, OPTIONS, "http(s)://")
        parts = urlsplit(config.url)
        if config.writable:
            raise BadDefinition("writable", "web servers are read-only stores")
        if not parts.hostname:
            raise BadDefinition("url", "it names no machine")
        user, _, host = parts.netloc.rpartition("@")
        basic = f"Basic {b64encode(unquote(user).encode()).decode()}" if user else ""
        authorization = config.options.get("authorization", basic)
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "hyperslab"}
        self._headers |= {"Authorization": authorization} if authorization else {}
        self._base = parts._replace(netloc=host, query="", fragment="").geturl().rstrip("/") + "/"
        self._query = f"?{parts.query}" if parts.query else ""
        self._capabilities = replace(self._capabilities, listable=flag(config.options, "listable", False))
        self._missing = missing_statuses(config.options)
        timeout = urllib3.Timeout(connect=min(config.timeout, 10), read=config.timeout)
        self._http = urllib3.PoolManager(4, maxsize=self._width, block=True, timeout=timeout, retries=False)

    def get(self, key: str, max_bytes: int = MAX_BYTES) -> StoredValue | None:
        part = self._whole(key, max_bytes)
        return None if part is None else StoredValue(part.data, part.entry.version)

    def get_part(self, key: str, start: int, stop: int) -> StoredRange | None:
        """One request if the server supports ranges and versions; else the whole value."""
        answer = self._ask("GET", key, (start, stop), max(stop, 4 * MAX_BYTES))  # the server may ignore ranges
        if answer is None:
            return None
        if answer.status == 206 and (part := answer.part(key, start, stop)) is not None:
            return part
        if answer.status == 416 and (entry := self.stat(key)) is not None and entry.size <= start:
            return StoredRange(entry, start, b"")
        return answer.whole(key) if answer.status == 200 else self._whole(key)

    def stat(self, key: str) -> Entry | None:
        answer = self._ask("HEAD", key)
        if answer is None:
            return None
        if not answer.size.isdecimal() or answer.version is None or answer.encodings:
            whole = self._whole(key)
            return None if whole is None else whole.entry
        return Entry(key, int(answer.size), answer.version, answer.modified)

    def list_dir(self, prefix: str) -> Listing:
        """The links of an index page; raises `errors.StoreError` if the server has none."""
        if not self._has_index():
            raise StoreError(self.name, prefix, "the server has no index pages")
        answer = self._ask("GET", prefix)
        if answer is None:
            return Listing((), ())
        names = _links(answer.data.decode("utf-8", "replace"), self._target(prefix))
        unserved = [
            UnservedEntry.at(prefix, name, flaw) for name in names if (flaw := flaw_of(name.rstrip("/"), prefix))
        ]
        names = {name for name in names if flaw_of(name.rstrip("/"), prefix) is None}

        def stat(key: str) -> Entry | UnservedEntry | None:
            try:
                return self.stat(key)
            except StoreDenied as error:  # hides none of its neighbours
                return UnservedEntry.at("", key, error.reason)

        entries = [*self._map(stat, [prefix + name for name in names if not name.endswith("/")])]
        folders = (name.rstrip("/") for name in names if name.endswith("/"))
        unserved += [each for each in entries if isinstance(each, UnservedEntry)]
        return Listing.of((each for each in entries if isinstance(each, Entry)), folders, unserved)

    def check(self) -> None:
        """Read one key. 403 is no failure, as some servers answer it for missing keys."""
        self._request("GET", ".zgroup", (200, 403, *self._missing))
        self._has_index()

    def close(self) -> None:
        super().close()
        self._http.clear()

    def _has_index(self) -> bool:
        if not self._capabilities.listable:
            answer = self._request("GET", "", (200, 403, *self._missing))
            title = rb"(?i)<title>\s*(index of|directory listing)"
            is_index = answer is not None and re.search(title, answer.data) is not None
            self._capabilities = replace(self._capabilities, listable=is_index)
        return self._capabilities.listable

    def _whole(self, key: str, max_bytes: int = MAX_BYTES) -> StoredRange | None:
        answer = self._ask("GET", key, max_bytes=max_bytes)
        return None if answer is None else answer.whole(key)

    def _target(self, key: str) -> str:
        return self._base + quote(key, safe="/!$&'()*+,;=:@~") + self._query

    def _ask(
        self, method: str, key: str, part: tuple[int, int] | None = None, max_bytes: int = MAX_BYTES
    ) -> _Answer | None:
        """The response with its body: of success, or 416 to a range request; None for a missing key.

        Raises `errors.StoreError` for other statuses, `StoreDenied` also for a web page, which servers of applications
        and logins send for any URL, and `StoredTooLarge` for more than ``max_bytes``.
        """
        answer = self._request(method, key, (200, *self._missing), part, max_bytes)
        is_file = key and not key.endswith("/")
        requested, final = urlsplit(self._target(key)).path, urlsplit(answer.url).path
        if answer.status in self._missing or (is_file and final == f"{requested}/"):
            return None  # the latter is a redirect to the index page of a directory
        if is_file and answer.is_typed_html:
            seen = self._request("GET", key, (200, *self._missing)) if method == "HEAD" else answer
            if seen.data.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html")):
                raise StoreDenied(self.name, key, "the server answered with a web page")
        return answer

    def _request(
        self,
        method: str,
        key: str,
        expected: Collection[int],
        part: tuple[int, int] | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> _Answer:
        """The response, of an ``expected`` status, or 206 or 416 to a range request."""
        headers = self._headers | ({} if part is None else {"Range": f"bytes={part[0]}-{part[1] - 1}"})
        for attempt in attempts(self._config.retries + 1):
            last = attempt == self._config.retries
            try:
                answer = self._follow(method, key, headers, max_bytes)
            except DecodeError as error:
                raise StoreError(self.name, key, "its content encoding cannot be decoded") from error
            except HTTPError as error:
                if last:
                    late = isinstance(error, RequestTimeout) and not isinstance(error, NewConnectionError)
                    reason = "no answer in time" if late else f"no answer ({type(error).__name__})"
                    raise (StoreTimeout if late else StoreError)(self.name, key, reason) from error
            else:
                if last or answer.status not in (429, 500, 502, 503, 504):
                    break
        if method == "HEAD" and answer.status in (403, 405, 501):  # 403: the URL may be signed for GET only
            return self._request("GET", key, expected, part, max_bytes)
        if answer.status in expected or (part is not None and answer.status in (206, 416)):
            return answer
        kinds = {401: StoreDenied, 403: StoreDenied, 408: StoreTimeout, 504: StoreTimeout}
        raise kinds.get(answer.status, StoreError)(self.name, key, f"the server answered {answer.status}")

    def _follow(self, method: str, key: str, headers: dict[str, str], max_bytes: int) -> _Answer:
        """The response after redirects; raises `errors.StoreError` for one to another origin."""
        url = self._target(key)
        for _ in range(6):
            raw = self._http.request(method, url, headers=headers, preload_content=False, redirect=False)
            answer = _receive(raw, url, key, max_bytes)
            location = answer.headers.get("Location") if answer.status in (301, 302, 303, 307, 308) else None
            if location is None:
                if answer.status == 200 and not {*answer.encodings} <= {*HTTPResponse.CONTENT_DECODERS}:
                    reason = f"its content encoding {', '.join(answer.encodings)!r} cannot be decoded"
                    raise StoreError(self.name, key, reason)
                return answer
            target = within_origin(url, location)
            if target is None:
                leads = f"the server redirects to {_printable(url, location)}"
                raise StoreError(self.name, key, f"{leads}; only redirects within its own origin are followed")
            url = target
        raise StoreError(self.name, key, "more than 5 redirects")


@dataclass(frozen=True, slots=True)
class _Answer:
    """Response with its body; ``url`` is that after redirects."""

    status: int
    headers: HTTPHeaderDict
    url: str
    data: bytes

    @property
    def version(self) -> str | None:
        """ETag, or modification time and size; None without either."""
        if tag := self.headers.get("ETag"):
            return str(tag)
        modified = self.headers.get("Last-Modified")
        return f"{modified}-{self.size}" if modified and self.size else None

    @property
    def size(self) -> str:
        """Size of the whole value, as text; "" if unknown."""
        if self.status == 206:
            return str(self.headers.get("Content-Range", "")).rpartition("/")[2].replace("*", "")
        return str(self.headers.get("Content-Length", ""))

    @property
    def modified(self) -> float:
        try:
            return parsedate_to_datetime(self.headers["Last-Modified"]).timestamp()
        except (KeyError, ValueError):  # not sent, or not a date
            return 0.0

    @property
    def is_typed_html(self) -> bool:
        return self.status in (200, 206) and str(self.headers.get("Content-Type", "")).startswith("text/html")

    @property
    def encodings(self) -> list[str]:
        """The content encodings; with any, sizes are not those of the value."""
        names = (name.strip().lower() for name in self.headers.get("Content-Encoding", "").split(","))
        return [name for name in names if name not in ("", "identity")]

    def whole(self, key: str) -> StoredRange:
        """The part that is the whole value."""
        version = self.version or blake2b(self.data, digest_size=16).hexdigest()
        return StoredRange(Entry(key, len(self.data), version, self.modified), 0, self.data)

    def part(self, key: str, start: int, stop: int) -> StoredRange | None:
        """The requested part; None if it is another one, encoded, or without a version."""
        version, size = self.version, self.size
        if version is None or not size.isdecimal() or self.encodings:
            return None
        first = str(self.headers.get("Content-Range", "")).startswith(f"bytes {start}-")
        if not first or len(self.data) != min(stop, int(size)) - start:
            return None
        return StoredRange(Entry(key, int(size), version, self.modified), start, self.data)


def _receive(answer: urllib3.BaseHTTPResponse, url: str, key: str, max_bytes: int) -> _Answer:
    """Read a response; raises `StoredTooLarge` for a value of more than ``max_bytes``, reading at most one more."""
    is_value, size = answer.status in (200, 206), answer.length_remaining or 0
    limit = max_bytes if is_value else MAX_BYTES
    try:
        whole = answer.status != 206  # a part of an encoded value cannot be decoded
        data = b"" if size > limit else answer.read(limit + 1, decode_content=whole)
        if max(size, len(data)) > limit:
            answer.close()
            if is_value:
                raise StoredTooLarge(key, max(size, len(data)), max_bytes)
    finally:
        answer.release_conn()
    return _Answer(answer.status, answer.headers, url, data)


class _Links(HTMLParser):
    """Parser that collects the links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def _links(page: str, url: str) -> set[str]:
    """Unquoted names of a page's links directly below ``url``; directories end in ``/``."""
    parser = _Links()
    parser.feed(page)
    base = urlsplit(url)
    names = set()
    for link in parser.found:
        target = urlsplit(urljoin(url, link))
        name = unquote(target.path.removeprefix(base.path), errors="surrogateescape")
        below = target.netloc == base.netloc and target.path.startswith(base.path) and not link.startswith("?")
        if below and name.strip("/") and "/" not in name[:-1] and not is_hidden(name.rstrip("/")):
            names.add(name)
    return names


def within_origin(url: str, location: str) -> str | None:
    """The target of a redirect if it has the same scheme, host and port, or leads from http to https on default ports;
    else None. The URL is parsed by urllib3, which also requests it, as parsers may differ about the host."""
    try:
        target = urljoin(url, location)
        before, after = (_origin(parse_url(text)) for text in (url, target))
    except ValueError:
        return None
    upgraded = before[0] == "http" and before[2] == 80 and after == ("https", before[1], 443)
    return target if after == before or upgraded else None


def _origin(url: Url) -> tuple[str | None, str | None, int | None]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme or "")


def _printable(url: str, location: str) -> str:
    """The target of a redirect, without secrets."""
    try:
        return parse_url(urljoin(url, location))._replace(auth=None, query=None, fragment=None).url[:200]
    except ValueError:
        return "an invalid URL"

"""Listings of buckets on S3 with keys that obstore cannot represent.

A key with an empty segment, a control character or ``..`` fails obstore's whole page, with all keys beside it; one that
ends in a slash loses that, and looks like another key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_plus
from xml.etree import ElementTree

import urllib3
from urllib3.exceptions import HTTPError

from hyperslab.errors import StoreDenied, StoreError
from hyperslab.storage.keys import flaw_of
from hyperslab.wire.retry import attempts

if TYPE_CHECKING:  # obstore's types are not there at run time
    from obstore import ObjectMeta


@dataclass(frozen=True, slots=True)
class ListedPage:
    """A page of a listing: objects, names of deeper prefixes, and the keys of neither, up to the segment with a flaw,
    with the flaw."""

    objects: list[ObjectMeta]
    prefixes: list[str]
    flawed: dict[str, str]


@dataclass(frozen=True, slots=True)
class S3Listings:
    """Requests of ListObjectsV2, to the URL that ``url_of`` makes of a query; ``place`` names the bucket and its
    endpoint. [Amazon S3 API reference]"""

    store: str
    url_of: Callable[[str], str]
    http: urllib3.PoolManager
    retries: int
    place: str

    def pages(self, prefix: str, after: str | None = None, *, deeper: bool = True) -> Iterator[ListedPage]:
        """Pages of the objects below a prefix, in order, after a key; without those of ``deeper`` prefixes, or with."""
        query = {"list-type": "2", "encoding-type": "url", "prefix": prefix}
        query |= ({} if after is None else {"start-after": after}) | ({} if deeper else {"delimiter": "/"})
        while True:
            root = self._ask(prefix, "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items()))
            space = root.tag.rpartition("}")[0] + "}" if "}" in root.tag else ""
            yield _page(root, space, prefix)
            following = root.findtext(f"{space}NextContinuationToken")
            if following is None:
                return
            query["continuation-token"] = following

    def _ask(self, prefix: str, query: str) -> ElementTree.Element:
        status: int | None = None
        for _ in attempts(self.retries + 1):
            try:
                answer = self.http.request("GET", self.url_of(query), redirect=False)
            except HTTPError:
                continue
            status = answer.status
            if status == HTTPStatus.OK:
                try:
                    return ElementTree.fromstring(answer.data)
                except ElementTree.ParseError as error:
                    reason = "the object store's answer cannot be understood"
                    raise StoreError(self.store, prefix, reason) from error
            if status < 500 and status != HTTPStatus.TOO_MANY_REQUESTS:
                break
        denied = status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        kind = StoreDenied if denied else StoreError
        key, said = (prefix, status) if status else ("", "nothing")
        raise kind(self.store, key, f"the object store answered {said} to a listing", place=self.place)


def _page(root: ElementTree.Element, space: str, prefix: str) -> ListedPage:
    page = ListedPage([], [], {})

    def is_sound(path: str) -> bool:
        segments = path[len(prefix) :].split("/")
        for index, name in enumerate(segments):
            if flaw := flaw_of(name) or ("a tab is in its name" if "\t" in name else None):
                page.flawed[prefix + "/".join(segments[: index + 1]) + "/" * (index + 1 < len(segments))] = flaw
                return False
        return True

    for item in root.iterfind(f"{space}Contents"):
        texts = {name: item.findtext(space + name) or "" for name in ("Key", "Size", "ETag", "LastModified")}
        key = unquote_plus(texts["Key"])
        if key.endswith("/") and texts["Size"] == "0":  # a "folder" object, which consoles and file systems make
            continue
        if is_sound(key):
            page.objects.append(
                {
                    "path": key,
                    "size": int(texts["Size"]),
                    "e_tag": texts["ETag"] or None,
                    "last_modified": datetime.fromisoformat(texts["LastModified"]),
                    "version": None,
                }
            )
    for item in root.iterfind(f"{space}CommonPrefixes"):
        path = unquote_plus(item.findtext(f"{space}Prefix") or "").removesuffix("/")
        if is_sound(path + ("/" if path == prefix else "")):
            page.prefixes.append(path.rpartition("/")[2])
    return page

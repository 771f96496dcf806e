"""Outermost middleware: one spelling of each path, HEAD as GET, and what is no request or names a parameter twice."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address
from typing import Final
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hyperslab.api.response import METHOD, REFUSED
from hyperslab.errors import BadParameter, BadPath, CodingUnknown, HeadTooLarge, HyperslabError, NotHttp
from hyperslab.storage.keys import normalise_path

ENCODED_SLASH: Final = "\udc2f"
"""An encoded slash in a decoded path. Like each byte that is not UTF-8, it is a lone surrogate, which is in no name and
no route: proxies and frameworks treat it differently, and one URL would lead to different nodes."""

LONGEST_HEAD: Final = 64 << 10
"""Bytes of target and headers together."""
_HOST: Final = re.compile(
    rb"(?:([\w.~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*|\[(?P<address>[0-9A-Fa-f:.]+)\])(:(?P<port>[0-9]{0,5}))?"
)


class Edge:
    """Errors that it finds are raised by `Problems`, behind which they have CORS headers and are counted.

    ``repeatable``: by the beginning of a path, parameters that may be given more than once.
    """

    def __init__(self, app: ASGIApp, repeatable: Mapping[str, Collection[str]]) -> None:
        self._app = app
        self._repeatable = repeatable.items()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method, raw = scope["method"], scope.get("raw_path")
        path = decoded(raw) if raw else scope["path"]
        if "//" in path or "\\" in path:
            path = re.sub(r"[/\\]+", "/", path)
        scope = {**scope, METHOD: method, "path": path}  # a copy, as the server looks at its own
        try:
            self._check(scope)
        except HyperslabError as error:
            scope.setdefault(REFUSED, error)
        if method != "HEAD":
            await self._app(scope, receive, send)
            return
        scope["method"] = "GET"

        async def send_head(message: Message) -> None:
            await send(message if message["type"] != "http.response.body" else {**message, "body": b""})

        await self._app(scope, receive, send_head)

    def _check(self, scope: Scope) -> None:
        """Refuse what servers pass on: a head that is too large, other transfer codings than chunked, and a Host header
        that is missing, repeated, or no host (RFC 9112 §3.2, §6.1); and repeated parameters below ``/v1``: the keys of
        a store have none, and pages read their own."""
        hosts, is_host, size = 0, True, len(scope["path"]) + len(scope["query_string"])
        for name, value in scope["headers"]:
            size += len(name) + len(value)
            if name == b"host":
                hosts += 1
                is_host = is_host and _is_host(value)
            elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                raise CodingUnknown(value.decode("latin-1"), "chunked")
        if size > LONGEST_HEAD:
            raise HeadTooLarge(LONGEST_HEAD)
        if hosts > 1 or (not hosts and scope["http_version"] == "1.1"):
            raise NotHttp(f"A request has one Host header; this one has {hosts or 'none'}.")
        if not is_host:
            raise NotHttp("The Host header is a name or an address, and maybe a port.")
        sent = scope["query_string"]
        if scope["method"] == "OPTIONS" or (b"&" not in sent and b"%" not in sent and sent.isascii()):
            return
        path = re.sub("^/link/[^/]*", "", route_path(scope))
        if not f"{path}/".startswith("/v1/"):
            return
        query = sent.decode("latin-1")
        try:
            pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=200)
        except ValueError as error:  # UnicodeDecodeError is one
            raise BadParameter("query", query[:200], "at most 200 parameters in percent-encoded UTF-8") from error
        if len(dict(pairs)) == len(pairs):
            return
        allowed = next((names for front, names in self._repeatable if path.startswith(front)), ())
        for name, _ in pairs:
            values = [value for other, value in pairs if other == name]
            if len(values) > 1 and name not in allowed:
                raise BadParameter(name, values, "the parameter once")


def decoded(raw: bytes) -> str:
    """A path, percent-decoded exactly once."""
    if b"%" not in raw:
        return raw.decode("utf-8", "surrogateescape")
    parts = re.split(b"%2[fF]", raw)
    return ENCODED_SLASH.join(unquote_to_bytes(part).decode("utf-8", "surrogateescape") for part in parts)


def node_path(text: str) -> str:
    """The path of a node, or a key; raises `BadPath`."""
    if not text.isascii() and (undecoded := [char for char in text if "\udc00" <= char <= "\udcff"]):
        is_slash = ENCODED_SLASH in undecoded
        sent = "".join(f"%{ord(char) - 0xDC00:02x}" if char in undecoded else char for char in text)
        sent = sent.replace("%2f", "%2F")
        reason = "an encoded slash (%2F) is never part of a name" if is_slash else "not UTF-8 after percent-decoding"
        raise BadPath(f"/{sent}", reason)
    return normalise_path(f"/{text}")


def printable(path: str) -> str:
    """A path for people: with slashes, and replacements of what is not UTF-8."""
    return path.replace(ENCODED_SLASH, "/").encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def route_path(scope: Scope) -> str:
    """The path below that of the application, as Starlette's router finds it."""
    root: str = scope.get("root_path", "")
    path: str = scope["path"]
    return path[len(root) :] if root and f"{path}/".startswith(f"{root}/") else path


@lru_cache(256)
def _is_host(text: bytes) -> bool:
    """Whether this is a name or an address, and maybe a port (RFC 3986 §3.2.2)."""
    match = _HOST.fullmatch(text)
    try:
        if match is not None and match["address"] is not None:
            IPv6Address(match["address"].decode())
    except AddressValueError:
        return False
    return match is not None and int(match["port"] or 0) < 1 << 16

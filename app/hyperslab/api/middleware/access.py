"""Access control: bearer tokens, if configured, and protection against foreign web pages.

Some tokens allow reads, others writes too. A browser sends requests for any page, so a change must come from our own
pages or from no page: appends and gathers of points need no preflight, and a host name rebound to 127.0.0.1 gives an
attacker's page our origin (DNS rebinding).
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from hyperslab.api.middleware.edge import route_path
from hyperslab.api.options import ApiOptions
from hyperslab.api.response import REFUSED
from hyperslab.errors import ForeignHost, ForeignOrigin, HyperslabError, Unauthorized, WriteForbidden

OPEN: Final = ("/healthz", "/readyz")
"""Paths without a token for all methods, as probes of orchestrators have none."""
PAGES: Final = re.compile("/|/view(/.*)?|/viewer/static/.*|/favicon.ico|/docs|/docs/static/.*|/openapi.json", re.DOTALL)
"""Paths that need no token to be read: they are the same for all, and contain no data."""
NO_WRITER: Final = "hyperslab.no_writer"
"""Scope key: the error for a change by a token without permission to write."""


class Access:
    """What a request may not do is an error, which `Problems` raises; it comes before all other errors."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] != "OPTIONS":
            try:
                self._guard.check(scope)
            except HyperslabError as error:
                scope[REFUSED] = error
        await self._app(scope, receive, send)


def is_open(method: str, path: str) -> bool:
    """Whether a request needs no token, whatever the settings."""
    return path in OPEN or (method == "GET" and PAGES.fullmatch(path) is not None)


class Guard:
    """Refuses requests without the required token, changes by pages of foreign origins, and requests for foreign host
    names.

    Origins allowed to
    read, except ``*``, may change too. Host names are checked with ``allowed_hosts`` configured, or on connections over
    the loopback interface; not if tokens are required, which foreign pages lack, nor with ``*`` as a host name.
    """

    def __init__(self, options: ApiOptions) -> None:
        self._readers = [token.encode() for token in options.read_tokens]
        self._writers = [token.encode() for token in options.write_tokens]
        self.has_tokens = bool(self._readers or self._writers)
        self._origins = frozenset(options.cors_origins) - {"*"}
        self._hosts = frozenset(map(str.lower, options.allowed_hosts))
        self._any_host = self.has_tokens or "*" in self._hosts

    def check(self, scope: Scope) -> None:
        """Check a request; changes by POST to points, most of which are reads, are left to `check_change`."""
        method = scope["method"]
        if self.has_tokens and not is_open(method, route_path(scope)):
            self._check_token(scope)
        if method not in ("GET", "PROPFIND") and not route_path(scope).startswith("/v1/points/"):
            self.check_change(scope)

    def _check_token(self, scope: Scope) -> None:
        """Raise `Unauthorized` and `WriteForbidden`; for POST, which may only read, the latter is left to
        `check_change`."""
        headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
        bearers = (v[7:].strip() for name, v in headers if name == b"authorization" and v[:7].lower() == b"bearer ")
        token = next(bearers, None)
        reader, writer = _is_one_of(token, self._readers), _is_one_of(token, self._writers)
        found = "no such token"
        if self._readers and not (reader or writer):
            raise Unauthorized("a bearer token is needed to read" if token is None else found)
        if self._writers and not writer:
            unknown = Unauthorized("a bearer token is needed to write" if token is None else found)
            refusal: HyperslabError = WriteForbidden() if reader else unknown
            if scope["method"] in ("PUT", "PATCH", "DELETE"):
                raise refusal
            scope[NO_WRITER] = refusal

    def check_change(self, scope: Scope) -> None:
        """Check a request for a change; raises the error deferred by `check_token`, `ForeignOrigin` and
        `ForeignHost`."""
        if NO_WRITER in scope:
            raise scope[NO_WRITER]
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host, origin, site = headers.get("host", ""), headers.get("origin"), headers.get("sec-fetch-site")
        reached = _address(str((scope.get("server") or ("",))[0]))  # loopback addresses are local to this machine
        is_checked = bool(self._hosts) or (reached is not None and reached.is_loopback)
        if is_checked and not self._any_host:
            # DNS rebinding needs a name with dots
            name = _name(host)
            if "." in name and name not in self._hosts and not name.endswith(".localhost") and _address(name) is None:
                raise ForeignHost(host)
        ours = ("same-origin", "none")  # values of Sec-Fetch-Site for our pages, and for no page
        if origin is None:
            if site not in (None, *ours):  # other programs send no such header
                raise ForeignOrigin(f"another one ({site})", host)
        elif site not in ours and not self._is_known(origin, host):
            raise ForeignOrigin(origin, host)

    def _is_known(self, origin: str, host: str) -> bool:
        scheme, _, place = origin.lower().partition("://")
        port = {"http": ":80", "https": ":443"}.get(scheme, "")
        own = bool(place) and place.removesuffix(port) == host.lower().removesuffix(port)
        return own or origin in self._origins or _name(place) in self._hosts


def _is_one_of(token: bytes | None, known: Sequence[bytes]) -> bool:
    """Whether a token is known; compares all of them, in constant time."""
    matches: list[Any] = [hmac.compare_digest(token or b"", each) for each in known]
    return token is not None and any(matches)


def _name(host: str) -> str:
    """A Host header without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None

"""Who may do what: bearer tokens, where the operator has set some, and web pages as writers.

One kind of tokens may read, the other may write too. A browser sends what any page asks it to, so a change has to come
from a page of ours, or none: an append and a gather of points are requests that need no preflight, and a name that an
attacker has pointed at 127.0.0.1 makes his page one of the same origin as ours (DNS rebinding).
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from starlette.types import Scope

from hyperslab.api.request import raw_path
from hyperslab.errors import ForeignHost, ForeignOrigin, Unauthorized, WriteForbidden

_MAY_WRITE = "hyperslab.may_write"
_IS_READER = "hyperslab.is_reader"


class Tokens:
    """Bearer tokens of readers and writers. Probes of an orchestrator need none, and neither does reading where
    ``public``, a predicate on the path as it was sent, says that nothing stored is shown.
    """

    def __init__(self, readers: Sequence[str], writers: Sequence[str], *, public: Callable[[bytes], bool]) -> None:
        self._public = public
        self._readers = [token.encode() for token in readers]
        self._writers = [token.encode() for token in writers]

    def check(self, scope: Scope) -> None:
        """Raises `Unauthorized` and `WriteForbidden`; notes in the scope who the bearer is, for `check_may_write`."""
        path = raw_path(scope)
        if is_open(path) or (scope["method"] in ("GET", "HEAD") and self._public(path)):
            return
        token = _bearer(scope["headers"])
        reader, named_writer = _is_one_of(token, self._readers), _is_one_of(token, self._writers)
        if self._readers and not (reader or named_writer):
            raise Unauthorized("a bearer token is needed to read" if token is None else "no such token")
        scope[_MAY_WRITE], scope[_IS_READER] = named_writer or not self._writers, reader
        if scope["method"] in ("PUT", "PATCH", "DELETE"):
            check_may_write(scope)


def is_open(path: bytes) -> bool:
    """Whether a path needs no token, whatever the method."""
    return path in (b"/healthz", b"/readyz")


def check_may_write(scope: Scope) -> None:
    """For routes that write with POST; raises `Unauthorized` without a token that is known and `WriteForbidden` with a
    reader's."""
    if scope.get(_MAY_WRITE, True):
        return
    if scope[_IS_READER]:
        raise WriteForbidden
    raise Unauthorized("a bearer token is needed to write" if _bearer(scope["headers"]) is None else "no such token")


def _bearer(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip()
    return None


def _is_one_of(token: bytes | None, known: Sequence[bytes]) -> bool:
    """Compares with all of them, so that the time it takes tells nothing."""
    matches: list[Any] = [hmac.compare_digest(token or b"", each) for each in known]
    return token is not None and any(matches)


_OURS: Final = (None, "same-origin", "none")
"""What browsers say of requests of the page's own origin, and of none; and programs say nothing."""


class PageCheck:
    """Refuses changes that a page of another origin wants, and those under a foreign host name.

    ``origins`` of other pages that may change something, where ``*`` counts for nothing. ``hosts``: names of this
    service. A name is looked at where there are some, or the connection came over the machine's own loopback interface;
    not where ``tokens`` are needed, which no foreign page has, nor where ``*`` is a name.
    """

    def __init__(self, origins: Sequence[str], hosts: Sequence[str], *, tokens: bool) -> None:
        self._origins = frozenset(origins) - {"*"}
        self._hosts = frozenset(map(str.lower, hosts))
        self._any_host = tokens or "*" in self._hosts

    def check(self, scope: Scope) -> None:
        """Raises `ForeignOrigin` and `ForeignHost`; for requests that change something."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host, origin, site = headers.get("host", ""), headers.get("origin"), headers.get("sec-fetch-site")
        reached = _address(str((scope.get("server") or ("",))[0]))  # loopback: an address only this machine reaches
        is_checked = bool(self._hosts) or (reached is not None and reached.is_loopback)
        if is_checked and not self._any_host:
            # no stranger can point an address anywhere, or a name without dots
            name = _name(host)
            if "." in name and name not in self._hosts and not name.endswith(".localhost") and _address(name) is None:
                raise ForeignHost(host)
        if origin is None:
            if site not in _OURS:
                raise ForeignOrigin(f"another one ({site})", host)
        elif site not in _OURS[1:] and not self._is_known(origin, host):
            raise ForeignOrigin(origin, host)

    def _is_known(self, origin: str, host: str) -> bool:
        scheme, _, place = origin.lower().partition("://")
        port = {"http": ":80", "https": ":443"}.get(scheme, "")
        own = bool(place) and place.removesuffix(port) == host.lower().removesuffix(port)
        return own or origin in self._origins or _name(place) in self._hosts


def _name(host: str) -> str:
    """A Host header without its port, and an IPv6 address without its brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None

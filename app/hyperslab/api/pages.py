"""Web pages as writers: a browser sends what any page asks it to, so a change has to come from a page of ours, or none.

An append and a gather of points are requests that need no preflight, and a name that an attacker has pointed at
127.0.0.1 makes his page one of the same origin as ours (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from starlette.types import Scope

from hyperslab.errors import ForeignHost, ForeignOrigin

_DEFAULT_PORTS: Final[Mapping[str, str]] = {"http": ":80", "https": ":443"}
_OURS: Final = (None, "same-origin", "none")
"""What browsers say of requests of the page's own origin, and of none; and programs say nothing."""


class PageCheck:
    """Refuses changes that a foreign page wants, and those under a foreign name where it could be one.

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
        headers = _decoded(scope["headers"])
        host, origin, site = headers.get("host", ""), headers.get("origin"), headers.get("sec-fetch-site")
        if not (self._any_host or self._is_ours(_name(host)) or not (self._hosts or _is_loopback(scope))):
            raise ForeignHost(host)
        if origin is None:
            if site not in _OURS:
                raise ForeignOrigin(f"another one ({site})", host)
        elif site not in _OURS[1:] and not self._is_known(origin, host):
            raise ForeignOrigin(origin, host)

    def _is_ours(self, name: str) -> bool:
        """Whether the operator has named it, or no stranger can point it anywhere: an address, a name without dots."""
        return name in self._hosts or "." not in name or name.endswith(".localhost") or _address(name) is not None

    def _is_known(self, origin: str, host: str) -> bool:
        scheme, _, place = origin.lower().partition("://")
        port = _DEFAULT_PORTS.get(scheme, "")
        own = bool(place) and place.removesuffix(port) == host.lower().removesuffix(port)
        return own or origin in self._origins or _name(place) in self._hosts


def _decoded(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}


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


def _is_loopback(scope: Scope) -> bool:
    """Whether the connection came to an address that only this machine reaches."""
    address = _address(str((scope.get("server") or ("",))[0]))
    return address is not None and address.is_loopback

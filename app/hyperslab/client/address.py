"""Addresses of nodes, parsed from URLs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlencode, urlsplit, urlunsplit

from hyperslab import wire
from hyperslab.errors import BadParameter, BadPath


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a node: ``base`` is the URL of the service without a trailing slash, ``path`` that of the node
    (``""`` for the root group)."""

    base: str
    path: str

    @classmethod
    def parse(cls, url: str) -> Address:
        """The address in a URL of any route of a node, or of the service itself; raises `BadParameter`."""
        parts = _split(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise BadParameter(name="url", value=url, expected="an http or https URL")
        if "@" in parts.netloc:
            redacted = urlunsplit(parts._replace(netloc="…@" + parts.netloc.rpartition("@")[2]))
            raise BadParameter(name="url", value=redacted, expected="no credentials in it: they go into headers")
        origin = f"{parts.scheme}://{parts.netloc}"
        routes = r"/(v1/(?P<route>metadata|slice|chunk|plan|points|append|stream|tile)|zarr[23]?|view)(?=/|$)"
        match = re.search(routes, parts.path)
        if match is not None:
            path = _node_path(match["route"] or match[1], parts.path[match.end() :])
            return cls(origin + parts.path[: match.start()], path)
        if parts.path.strip("/"):
            expected = "the URL of a node: …/v1/metadata/{store}/{path}, …/zarr/… or …/view/…"
            raise BadParameter(name="url", value=url, expected=expected)
        return cls(origin, "")

    def url(self, route: str, **query: str | None) -> str:
        """``{base}/v1/{route}/{path}?{query}``, without parameters that are None."""
        parameters = {name: value for name, value in query.items() if value is not None}
        text = "?" + urlencode(parameters, safe=":,/", quote_via=quote) if parameters else ""
        return f"{self.base}/v1/{route}/{quote(self.path)}{text}"

    def child(self, name: str) -> Address:
        """The address of a path below this group; raises `BadPath` for an invalid name, or one of the group itself."""
        try:
            name.encode()
        except (AttributeError, UnicodeEncodeError) as error:  # not a str, or with a lone surrogate
            raise BadPath(path=ascii(name)[:256], reason="a name is text in UTF-8") from error
        segments = [segment for segment in name.replace("\\", "/").split("/") if segment]
        if not segments or {".", ".."} & set(segments):
            raise BadPath(path=name, reason="it names nothing below the group, or has a segment '.' or '..'")
        return Address(self.base, "/".join([*filter(None, [self.path]), *segments]))

    @property
    def name(self) -> str:
        """The last segment of the path."""
        return self.path.rpartition("/")[2]


def with_query(url: str, name: str, argument: str | None) -> str | None:
    """The value of an argument or of the URL's query parameter ``name``; None without either.

    Raises `BadParameter` if they differ.
    """
    values = {*parse_qs(_split(url).query).get(name, ()), argument} - {None, ""}
    if len(values) > 1:
        raise BadParameter(
            name=name, value=sorted(map(str, values)), expected="one value, in the URL or as an argument"
        )
    return next(iter(values), None)


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(wire.without_driver(url))
    except ValueError as error:
        raise BadParameter(name="url", value=url, expected=f"an http or https URL ({error})") from error


def _node_path(route: str, tail: str) -> str:
    """The node's path from the rest of a URL, without the key, chunk coordinates or tile behind it."""
    if route == "tile":
        tail = re.sub(r"/(info\.json|[0-9]+/[0-9]+/[0-9]+\.\w+)$", "", tail, flags=re.ASCII)
    path = unquote(tail).strip("/")
    parent, _, last = path.rpartition("/")
    if route.startswith("zarr"):
        is_key = last in (".zarray", ".zgroup", ".zattrs", ".zmetadata", "zarr.json")
    else:
        is_key = route == "chunk" and re.fullmatch(r"[0-9]+(\.[0-9]+)*", last, re.ASCII) is not None
    return parent if is_key else path

"""Access control: who asks, what that one may do, and protection against foreign web pages.

Who asks is known by a token, as ``Authorization: Bearer``, as ``X-API-Key`` or as the password of Basic, or by a signed
link, the beginning of a path. What is done to which node follows from method and path; `access.allows` decides.

A browser sends requests for any page, so a change must come from our own pages or from no page: appends and gathers of
points need no preflight, and a host name rebound to 127.0.0.1 gives an attacker's page our origin (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
import logging
import re
import time
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hyperslab.access import EVERYTHING, METRICS, READING, Action, Principal, View, allows, digest, sees, timestamp
from hyperslab.api.links import PREFIX, Links
from hyperslab.api.middleware.audit import LINK, LOOK_AFTER, Audit, Running, request_id, write_line
from hyperslab.api.middleware.edge import route_path
from hyperslab.api.middleware.replay import WHO
from hyperslab.api.options import ApiOptions
from hyperslab.api.response import REFUSED
from hyperslab.arrays.catalog import looks_like_chunk
from hyperslab.arrays.keys import NAMES
from hyperslab.errors import (
    ForeignHost,
    ForeignOrigin,
    HyperslabError,
    KeyNotFound,
    NodeNotFound,
    ReadForbidden,
    Unauthorized,
    WriteForbidden,
)

if TYPE_CHECKING:
    from hyperslab.api.middleware.identity import Identities

log = logging.getLogger("hyperslab.api")

OPEN: Final = ("/healthz", "/readyz")
"""Paths without a token for all methods, as probes of orchestrators have none."""
PAGES: Final = re.compile(
    "/|/view(/.*)?|/viewer/static/.*|/favicon.ico|/docs|/docs/static/.*|/openapi.json|/problems/[^/]+", re.DOTALL
)
"""Paths that need no token to be read: they are the same for all, and contain no data."""
PRINCIPAL: Final = "hyperslab.principal"
"""Scope key: the `Principal` who asks; absent where everybody may do everything."""
SEEN: Final = "hyperslab.seen"
"""Scope key: the `Services` as who asks sees them; absent for one who may read the whole store."""
UNSEEN: Final = "hyperslab.unseen"
"""Scope key: an `Unseen`, for a group that only leads to what may be read without a token."""
DENIED: Final = "hyperslab.denied"
"""Scope key: the status 401 or 403 of the answer."""
DEMAND: Final = "hyperslab.demand"
"""Scope key: the `Demand` of a request, where there are rules."""
OUTER_ROOT: Final = "hyperslab.outer_root"
"""Scope key: the path below which the application is, without the link."""

MOST_GRANTED: Final = 4096
"""Paths of which a principal is known to may read them."""
LONGEST: Final = 16_384
"""Bytes of a header with a token."""


class Access:
    """Middleware that checks access. A refusal is an error, which `Problems` raises before all others."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        guard = self._guard
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if guard.identities is not None and PREFIX not in scope["path"]:
            await guard.identify(guard.identities, sent_token(scope))
        try:
            guard.check(scope)
        except HyperslabError as error:
            scope[REFUSED] = error
        if OUTER_ROOT in scope and scope["path"].startswith(("/v1/", "/zarr")):
            send = partial(send_revalidated, send)
        principal: Principal | None = scope.get(PRINCIPAL)
        refused = REFUSED in scope
        demand: Demand | None = scope.get(DEMAND)
        if demand is not None and (refused or demand.actions[0] != "read" or demand.path == LINK):
            name = "unknown" if principal is None else principal.name
            audited = Audit(self._app, scope, name, demand.actions[0], demand.path)
            work: Awaitable[None] = audited.run(receive, send, refused=refused)
        else:
            work = self._app(scope, receive, send)
        await (work if principal is None or principal.is_anonymous else guard.running.run(principal, work))
        if DENIED in scope and not refused and demand is not None and demand.actions[0] == "read":
            facts = {"principal": principal and principal.name, "action": "read", "path": demand.path, "bytes": 0}
            write_line("refusal", {**facts, "status": scope[DENIED], "request": request_id(scope)})


async def send_revalidated(send: Send, message: Message) -> None:
    """Send a message; what caches might keep for longer than a link lasts is to be revalidated."""
    if message["type"] == "http.response.start":
        kept = b"private, no-cache, no-transform"
        headers = message["headers"]
        message["headers"] = [(n, kept if n == b"cache-control" and b"immutable" in v else v) for n, v in headers]
    await send(message)


def sent_token(scope: Scope) -> bytes | str | None:
    """The token that a request carries, or what is wrong with it; None without one."""
    sent = key = None
    for name, value in scope["headers"]:
        if name == b"authorization":
            sent = value
        elif name == b"x-api-key":
            key = value
    scheme, _, rest = (sent or b"").strip().partition(b" ")
    if sent is None or len(sent) > LONGEST or scheme.lower() not in (b"bearer", b"basic"):
        if key is not None:
            return bytes(key).strip()
        return None if sent is None else "a token is sent as Bearer, as X-API-Key, or as the password of Basic"
    if scheme.lower() == b"bearer":
        return bytes(rest).strip()
    try:
        return b64decode(rest.strip(), validate=True).partition(b":")[2]
    except ValueError:
        return "the credentials are not of the form that Basic has"


def alike(one: Principal, other: Principal) -> bool:
    """Whether two principals are the same."""
    return (one.name, one.rules, one.ends) == (other.name, other.rules, other.ends)


def is_open(method: str, path: str) -> bool:
    """Whether a request needs no token, whatever the settings."""
    return path in OPEN or (method == "GET" and PAGES.fullmatch(path) is not None)


class Unseen(NamedTuple):
    """The ``error`` in place of a 404 or 403, if nothing is to be seen at a ``path``."""

    error: HyperslabError
    path: str


class Demand(NamedTuple):
    """Demand of a request: one of some actions, at a path. ``kind``: what is asked for there."""

    actions: tuple[Action, ...]
    path: str
    kind: Literal["node", "stream", "document", "page", "key", "other"] = "node"


class Guard:
    """Refuses requests that are not allowed, changes by pages of foreign origins, and requests for foreign host names.

    Origins allowed to read, except ``*``, may change too. Host names are checked with ``allowed_hosts`` configured, or
    on connections over the loopback interface; not if tokens are required, which foreign pages lack, nor with ``*`` as
    a host name.

    ``seen_by``: the services as a view shows them, for a principal who may not read a whole store.
    """

    def __init__(self, options: ApiOptions) -> None:
        self.links = Links(options.link_keys)
        self.seen_by: Callable[[View], object] = lambda _: None
        self.has_iiif = True
        self.identities: Identities | None = None
        if options.identity is not None:
            from hyperslab.api.middleware.identity import Identities  # of an extra

            self.identities = Identities(options.identity)
        readers, writers = options.read_tokens, options.write_tokens
        self._own: dict[bytes, Principal] = {}
        for number, token in enumerate(readers, 1):
            allowed = READING if writers or options.has_rules else EVERYTHING
            self._own[digest(token.encode())] = Principal(f"reader-{number}", (allowed,))
        for number, token in enumerate(writers, 1):
            self._own[digest(token.encode())] = Principal(f"writer-{number}", (EVERYTHING,))
        self._own.update(options.tokens)
        self._tokens: Mapping[bytes, Principal] = self._own
        rules = () if options.anonymous is None else (options.anonymous,)
        only_writers = bool(writers) and not readers and not options.has_rules
        self._anonymous = Principal("anonymous", (READING,) if only_writers else rules, is_anonymous=True)
        self._is_lenient = only_writers
        self.has_tokens = bool(readers or writers or options.has_rules)
        self._file, self._read_file = options.tokens_file, options.read_tokens_file
        self._file_state: tuple[int, ...] | None = None
        self._looked = 0.0
        self._gone = set[Principal]()
        self.reread()
        self.running = Running(self.gone)
        self._origins = frozenset(options.cors_origins) - {"*"}
        self._hosts = frozenset(map(str.lower, options.allowed_hosts))
        self._any_host = self.has_tokens or "*" in self._hosts

    def reread(self) -> None:
        """Read the file of tokens again if it has changed. One that is gone has none; one that cannot be parsed, as
        while it is written, changes nothing."""
        if self._file is None or time.monotonic() - self._looked < LOOK_AFTER:
            return
        self._looked = time.monotonic()
        state: tuple[int, ...] = ()
        with suppress(OSError):
            stat = self._file.stat()
            state = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if state == self._file_state:
            return
        try:
            read = self._read_file(self._file) if state else {}
        except ValueError as error:
            log.error("the tokens of %s stay as they were: %s", self._file, error)  # noqa: TRY400 - no trace
            self._file_state = state
            return
        before, self._file_state = self._tokens, state
        same = {key: old for key, new in read.items() if (old := before.get(key)) is not None and alike(old, new)}
        self._tokens = {**read, **same, **self._own}
        self._gone |= {*before.values()} - {*self._tokens.values()}

    def gone(self) -> set[Principal]:
        """Look at the file, and return the principals whose tokens have gone since the last look."""
        self.reread()
        principals, self._gone = self._gone, set()
        return principals

    def check(self, scope: Scope) -> None:
        """Check a request, and note who asks. Requests for the methods of a path are allowed to all."""
        method = scope["method"]
        is_change = method not in ("GET", "PROPFIND")
        if self.has_tokens or PREFIX in scope["path"]:
            path = route_path(scope)
            if path.startswith(PREFIX):
                principal: Principal | None = self.enter(scope, path, method)
                path = scope["path"]
            else:
                principal = self._principal(scope, method, path) if self.has_tokens else None
            if principal is not None:
                scope[PRINCIPAL] = principal
                granted = principal.granted.get(path) if method == "GET" else None
                if granted is not None:
                    scope[DEMAND], view = granted
                    if view is not None:
                        scope[SEEN], scope[WHO] = self.seen_by(view), view.key
                elif method != "OPTIONS" and not is_open(method, path):
                    self._permit(scope, principal, method, path)
        if is_change and method != "OPTIONS" and not route_path(scope).startswith("/v1/points/"):
            self.check_change(scope)

    def enter(self, scope: Scope, path: str, method: str) -> Principal | None:
        """Take a link off a path, and put it before all links of the answer."""
        text, slash, rest = path[len(PREFIX) :].partition("/")
        outer = scope.get("root_path", "")
        scope[OUTER_ROOT], scope["root_path"] = outer, f"{outer}{PREFIX}{text}"
        scope["path"] = slash + rest or "/"
        if method == "OPTIONS":
            return None
        try:
            return self.links.principal(text)
        except HyperslabError:
            scope[DEMAND] = self._demand(scope, method, scope["path"])
            raise

    def _principal(self, scope: Scope, method: str, path: str) -> Principal | None:
        """The principal of the token that was sent. Raises `Unauthorized` for one that is none, where one is needed."""
        self.reread()
        token = sent_token(scope)
        if token is None:
            return self._anonymous
        who: Principal | str | None = token if isinstance(token, str) else self._tokens.get(digest(token))
        if who is None and self.identities is not None and isinstance(token, bytes):
            who = self.identities.find(token)
        if isinstance(who, Principal):
            if time.time() < who.ends:
                return who
            who = f"this token ended at {timestamp(who.ends)}"
        who = who or "no such token"
        if is_open(method, path) or method == "OPTIONS":
            return None
        if not self._is_lenient:
            scope[DEMAND] = self._demand(scope, method, path)
            raise unauthorized(scope, who)
        return Principal(who, self._anonymous.rules, is_anonymous=True)

    async def identify(self, identities: Identities, token: bytes | str | None) -> None:
        """Ask the identity provider for a token of the form that these have, if it is of none here."""
        is_theirs = isinstance(token, bytes) and token.count(b".") == 2 and digest(token) not in self._tokens
        if is_theirs and isinstance(token, bytes) and identities.find(token) is None:
            await identities.look(token)

    def _permit(self, scope: Scope, principal: Principal, method: str, path: str) -> None:
        """Raise what a principal gets who may not do what is asked for; note what is seen by one who may."""
        actions, node, kind = demand = scope[DEMAND] = self._demand(scope, method, path)
        if kind == "other":
            knows = not principal.is_anonymous if actions == ("read",) else False
            knows = knows or bool(principal.views[actions[0]].paths)
            if not (allows(principal, "read", node) if node == METRICS else knows):
                raise self._refusal(scope, principal, demand)
            return
        granted = next((view for action in actions if (view := principal.views[action]).covers(node)), None)
        is_covered = granted is not None
        if granted is None:
            granted = principal.view
            leads = "read" in actions and kind != "stream" and granted.leads_to(node)
            if not (leads or (node == "" and actions == ("read",) and not principal.is_anonymous)):
                raise self._refusal(scope, principal, demand)
            if principal.is_anonymous:
                scope[UNSEEN] = Unseen(self._refusal(scope, principal, demand), node)
        partly = None if granted.covers(node.partition("/")[0]) else granted
        if partly is not None:
            scope[SEEN], scope[WHO] = self.seen_by(partly), partly.key
        if is_covered and method == "GET":
            if len(principal.granted) >= MOST_GRANTED:
                principal.granted.clear()
            principal.granted[path] = demand, partly

    def _refusal(self, scope: Scope, principal: Principal, demand: Demand) -> HyperslabError:
        """The error for what a principal may not do: where it is not seen, nothing is there."""
        action = demand.actions[0]
        if principal.is_anonymous:
            is_named = principal.name != "anonymous"
            return unauthorized(scope, principal.name if is_named else f"a bearer token is needed to {action}")
        if action != "read" and (demand.kind == "other" or sees(principal, demand.path)):
            return WriteForbidden(action, demand.path)
        if demand.kind == "other":
            return ReadForbidden("read", demand.path)
        if demand.kind == "key":
            return ReadForbidden(action, demand.path) if action == "read" else WriteForbidden(action, demand.path)
        return (
            KeyNotFound(route_path(scope)[1:].partition("/")[2].strip("/"))
            if demand.kind in ("document", "page")
            else NodeNotFound(demand.path)
        )

    def _demand(self, scope: Scope, method: str, path: str) -> Demand:
        """The demand of a request. Of a change that depends on what is there, the endpoint looks again."""
        head, _, tail = path[1:].partition("/")
        if head in ("zarr", "zarr2", "zarr3"):
            return demand_of_key(scope, method, tail)
        route, _, tail = tail.partition("/")
        if head != "v1" or route not in ROUTES:
            if path == LINK:  # whose endpoint looks again
                return Demand(("read",), path, "other")
            return Demand(("read",) if method == "GET" else ("write",), METRICS if path == METRICS else "", "other")
        node = tail.strip("/")
        query = scope["query_string"].decode("latin-1") if method not in ("GET", "PATCH") else ""
        sent = {name: values[-1].lower() for name, values in parse_qs(query, keep_blank_values=True).items()}
        match route:
            case "tile":
                node = node_of_tile(node) if self.has_iiif else OF_TILE.sub("", node)
            case "chunk":
                node = node.rpartition("/")[0]
            case "stream":
                node = re.sub("/(flush|skip|frames)$", "", node)
                return Demand(actions_of_stream(method, sent), node, "stream")
        actions: tuple[Action, ...] = ROUTES[route]
        if method == "GET" or (route == "points" and sent.get("values", "0") in ("false", "0", "no")):
            actions = ("read",)
        elif method == "DELETE":
            actions = ("delete",)
        elif route == "metadata" and method == "PUT":
            actions = {"replace": ("delete",), "open": ("create", "read")}.get(sent.get("mode", ""), ("create",))  # type: ignore[assignment]
        return Demand(actions, node)

    def check_change(self, scope: Scope) -> None:
        """Check where a request for a change comes from; raises `ForeignOrigin` and `ForeignHost`."""
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


ROUTES: Final[Mapping[str, tuple[Action, ...]]] = {
    "slice": ("write",),
    "chunk": ("write",),
    "metadata": ("write",),
    "points": ("write",),
    "append": ("write",),
    "stream": ("write",),
    "tile": ("read",),
    "plan": ("read",),
    "changes": ("read",),
}
"""Routes of nodes, and the action of a change by one."""

OF_TILE: Final = re.compile(
    r"(/[0-9]{1,3}/-?[0-9]+/-?[0-9]+\.\w+|/info\.json|/thumbnail\.\w+|/histogram\.json|/legend\.png|\.dzi"
    r"|_files/[0-9]{1,3}/[0-9]+_[0-9]+\.\w+)$",
    re.ASCII,
)
"""Tail of a tile's path, behind the node."""


def node_of_tile(tail: str) -> str:
    """The node of a tile, or of an image by IIIF."""
    image = tail.removeprefix("iiif/")
    if image == tail or image.endswith("/info.json"):
        return OF_TILE.sub("", image)
    parts = image.split("/")
    return "/".join(parts[:-4]) if len(parts) > 4 and "." in parts[-1] else image


def actions_of_stream(method: str, sent: Mapping[str, str]) -> tuple[Action, ...]:
    """The actions of which a request to a stream wants one."""
    if method == "GET":
        return ("read",)
    if method == "PUT":
        return ("delete",) if sent.get("if_exists") == "replace" else ("create", "write")
    discards = method == "DELETE" and sent.get("discard", "false") not in ("false", "0", "no")
    return ("delete",) if discards else ("write",)


def demand_of_key(scope: Scope, method: str, tail: str) -> Demand:
    """The demand of a request that names a key of a store."""
    key, reads = tail.strip("/"), method in ("GET", "PROPFIND")
    parent, _, name = key.rpartition("/")
    if name in NAMES:
        document: tuple[Action, ...] = {"PUT": ("write", "create"), "DELETE": ("delete",)}.get(method, ("write",))  # type: ignore[assignment]
        return Demand(("read",) if reads else document, parent, "document")
    if reads:
        return Demand(("read",), key, "page" if method == "PROPFIND" or asks_for_page(scope, tail) else "key")
    return Demand(("delete",) if method == "DELETE" else ("write",), key, "key")


def asks_for_page(scope: Scope, tail: str) -> bool:
    """Whether a request is for the index of a folder rather than for a key of a store."""
    if not tail or tail.endswith("/"):
        return True
    accept = next((value for name, value in scope["headers"] if name == b"accept"), b"")
    return b"text/html" in accept and not looks_like_chunk(tail.rpartition("/")[2])


def unauthorized(scope: Scope, reason: str) -> Unauthorized:
    """A 401. Programs are told of Basic too, which some send only then; a browser would ask for a name."""
    error = Unauthorized(reason)
    agent = next((value for name, value in scope["headers"] if name == b"user-agent"), b"Mozilla/")
    if not agent.startswith(b"Mozilla/"):
        error.challenges = ("Bearer", 'Basic realm="hyperslab", charset="UTF-8"')
    return error


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

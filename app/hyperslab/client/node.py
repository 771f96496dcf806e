"""What arrays and groups have in common: an address, a node document, attributes."""

from __future__ import annotations

import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from copy import deepcopy
from types import TracebackType
from typing import Any, Final, Self

from hyperslab import wire
from hyperslab.client.address import Address
from hyperslab.client.session import Request, Session, until_undisturbed
from hyperslab.client.text import Progress
from hyperslab.client.transport import HTTPTransport, Transport
from hyperslab.client.values import dump_json
from hyperslab.errors import BadParameter

TOKEN: Final = "HYPERSLAB_TOKEN"
"""The variable of the environment that holds a bearer token for whoever gives none."""


class RemoteNode(ABC):
    """A node of a server, seen through a session that it may share with others."""

    def __init__(self, session: Session, address: Address, *, progress: Progress) -> None:
        self._session = session
        self._address = address
        self._progress = progress

    @property
    def _decode(self) -> str | None:
        """Value of ``decode=`` in requests."""
        return None

    @property
    def url(self) -> str:
        """URL of the node document."""
        return self._address.url("metadata")

    @property
    def path(self) -> str:
        """``{store}/{path in the store}``."""
        return self._address.path

    @property
    def name(self) -> str:
        """The last segment of the path."""
        return self._address.name

    @property
    @abstractmethod
    def info(self) -> Mapping[str, Any]:
        """The node document, as it was last read."""

    @property
    def attrs(self) -> Attributes:
        """The attributes, a mapping; setting one writes it."""
        return Attributes(self)

    def refresh(self) -> Self:
        """Read the node document again, since others may have resized the array or set attributes. Returns the node.

        Raises:
            NodeNotFound: The node was deleted.
            WrongKind: An array became a group, or the reverse.
        """
        self._reload()
        return self

    def close(self) -> None:
        """Close idle connections. The node, and all that share them, can still be used."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def _adopt(self, members: Mapping[str, Any], etag: str | None) -> None:
        """Take over a newer node document."""

    def _patch(self, patch: Mapping[str, Any], *, guard: Mapping[str, str] | None = None, **flags: bool) -> None:
        """Change the node document by a merge patch, and take over what came of it.

        The patches of this client have the same effect when they come twice, and a key tells the server that they are
        one; but for those with a ``guard``, a header with a precondition.
        """
        headers = {"Content-Type": wire.MERGE_PATCH, **(guard or {wire.IDEMPOTENCY_KEY: str(uuid.uuid4())})}
        url = self._address.url("metadata", **{name: "true" for name, given in flags.items() if given})
        request = Request("PATCH", url, headers, dump_json(patch), once=guard is not None)
        members, answer = self._session.read_json(request)
        self._adopt(members, answer.get("ETag"))

    def _reload(self) -> str | None:
        """Take over the node document as it is now; its ETag."""
        members, etag = read_document(self._session, self._address, decode=self._decode)
        self._adopt(members, etag)
        return etag


class Attributes(MutableMapping[str, Any]):
    """Attributes of a node, a mapping of JSON values, as they were last read; each change is one request.

    A change is a merge patch (RFC 7396), so members that others set meanwhile are kept. Scalars and arrays of numpy
    become numbers and lists.

    Raises:
        ValueError: A value is None, or contains None in a mapping: a merge patch cannot store it.
        TypeError: A value has no form in JSON.
        ReadOnly: The store is not writable.
    """

    def __init__(self, node: RemoteNode) -> None:
        self._node = node

    def _read(self) -> Mapping[str, Any]:
        return self._node.info.get("attributes") or {}

    def __getitem__(self, name: str) -> Any:
        return self._read()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        if name not in self._read():
            raise KeyError(name)
        self._node._patch({"attributes": {name: None}})

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return repr(dict(self._read()))

    def update(self, *args: Any, **members: Any) -> None:
        """Set several members by one request; raises as all changes do."""
        if patch := self._changed(dict(*args, **members)):
            self._node._patch({"attributes": patch})

    def change(self, function: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
        """Set what a function makes of all members as they are now, without losing what others set meanwhile.

        Args:
            function: Gets all members and returns those to set. It is called again if another writer came first.

        Raises:
            Unreachable: The answer was lost: it is not known whether the members were set.
        """

        def attempt() -> None:
            etag = self._node._reload()
            patch = self._changed(function(deepcopy(self.asdict())))
            self._node._patch({"attributes": patch}, guard={"If-Match": etag or "*"})

        until_undisturbed(attempt)

    def clear(self) -> None:
        """Remove all members by one request; raises as all changes do."""
        if self._read():
            self._node._patch({"attributes": dict.fromkeys(self._read())})

    def _changed(self, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
        """The patch that sets members."""
        current = self._read()
        return {name: _replacement(current.get(name), value, name) for name, value in wanted.items()}

    def asdict(self) -> dict[str, Any]:
        """All members, as plain JSON values."""
        return dict(self._read())


def _replacement(current: Any, wanted: Any, where: str) -> Any:
    """The patch that turns ``current`` into ``wanted``: members that ``wanted`` lacks are taken away."""
    if wanted is None:
        raise ValueError(f"attribute {where}: a merge patch cannot store None; delete the member, or leave it out")
    if not isinstance(wanted, Mapping):
        return wanted
    known = current if isinstance(current, Mapping) else {}
    members = {name: _replacement(known.get(name), value, f"{where}.{name}") for name, value in wanted.items()}
    return {**dict.fromkeys(known.keys() - wanted.keys()), **members}


def open_session(
    connections: int, headers: Mapping[str, str] | None, transport: Transport | None, token: str | None
) -> Session:
    """A session over ``transport``, or over HTTP with as many connections.

    Its requests carry the ``token``, or where that is None and the ``headers`` say nothing of the kind, that of the
    environment. Raises `ValueError` where both are given, and `BadParameter` for what is no token.
    """
    sent = dict(headers or {})
    if not any(name.lower() == "authorization" for name in sent):
        token = os.environ.get(TOKEN, "") if token is None else token
        if not (token.isascii() and token.isprintable()):
            raise BadParameter(name="token", value="…", expected="printable ASCII, without line breaks")
        sent |= {"Authorization": f"Bearer {token}"} if token else {}
    elif token is not None:
        raise ValueError("token= and an Authorization header are two answers to one question: give one of them")
    return Session(transport or HTTPTransport(connections=connections), headers=sent, connections=connections)


def read_document(
    session: Session, address: Address, *, decode: str | None = None
) -> tuple[Mapping[str, Any], str | None]:
    """The node document, without the children of a group, and its ETag."""
    members, headers = session.read_json(Request("GET", address.url("metadata", limit="0", decode=decode)))
    return members, headers.get("ETag")

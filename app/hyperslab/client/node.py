"""Base class of remote arrays and groups: address, node document, attributes."""

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
from hyperslab.client.session import Request, Session, retry_conflicts
from hyperslab.client.text import Progress
from hyperslab.client.transport import HTTPTransport, Transport
from hyperslab.client.values import dump_json
from hyperslab.errors import BadParameter

TOKEN: Final = "HYPERSLAB_TOKEN"
"""The environment variable of the default bearer token."""


class RemoteNode(ABC):
    """A node of a server; several nodes may share a session."""

    _members: Mapping[str, Any]  # of the node document
    _decode: str | None = None  # value of ``decode=`` in requests

    def __init__(self, session: Session, address: Address, *, progress: Progress) -> None:
        self._session = session
        self._address = address
        self._progress = progress

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
    def info(self) -> Mapping[str, Any]:
        """The node document, as last read."""
        return self._members

    @property
    def attrs(self) -> Attributes:
        """The attributes, a mutable mapping."""
        return Attributes(self)

    def refresh(self) -> Self:
        """Read the node document again and return the node.

        Raises:
            NodeNotFound: The node was deleted.
            WrongKind: An array became a group, or the reverse.
        """
        self._reload()
        return self

    def close(self) -> None:
        """Close idle connections. The node and others with the same session stay usable."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def _adopt(self, members: Mapping[str, Any], etag: str | None) -> None:
        """Replace the node document."""

    def _patch(self, patch: Mapping[str, Any], *, guard: Mapping[str, str] | None = None, **flags: bool) -> None:
        """Change the node document by a merge patch, and adopt the result.

        Patches are retried under an idempotency key, except with a ``guard``, a precondition header.
        """
        headers = {"Content-Type": wire.MERGE_PATCH, **(guard or {wire.IDEMPOTENCY_KEY: str(uuid.uuid4())})}
        url = self._address.url("metadata", **{name: "true" for name, is_set in flags.items() if is_set})
        request = Request("PATCH", url, headers, dump_json(patch), once=guard is not None)
        members, answer = self._session.read_json(request)
        self._adopt(members, answer.get("ETag"))

    def _reload(self) -> str | None:
        """Read and adopt the node document, and return its ETag."""
        members, etag = read_document(self._session, self._address, decode=self._decode)
        self._adopt(members, etag)
        return etag


class Attributes(MutableMapping[str, Any]):
    """Attributes of a node, as last read: a mutable mapping of JSON values; each change is one request.

    Changes are merge patches (RFC 7396) and keep members that others set meanwhile. Scalars and arrays of numpy are
    stored as numbers and lists.

    Raises:
        ValueError: A value is None, or a mapping in it contains None: a merge patch cannot store it.
        TypeError: A value cannot be represented in JSON.
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
        """Set several members in one request; raises as the class says."""
        if patch := self._patch_of(dict(*args, **members)):
            self._node._patch({"attributes": patch})

    def change(self, function: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
        """Set members from their current values, retried if other writers interfere.

        Args:
            function: Maps all members to those to set; called again after a conflict.

        Raises:
            Unreachable: No response, so the members may or may not be set.
        """

        def attempt() -> None:
            etag = self._node._reload()
            patch = self._patch_of(function(deepcopy(self.asdict())))
            self._node._patch({"attributes": patch}, guard={"If-Match": etag or "*"})

        retry_conflicts(attempt)

    def clear(self) -> None:
        """Remove all members in one request; raises as the class says."""
        if self._read():
            self._node._patch({"attributes": dict.fromkeys(self._read())})

    def _patch_of(self, members: Mapping[str, Any]) -> Mapping[str, Any]:
        """The merge patch that sets members."""
        current = self._read()
        return {name: _replacement(current.get(name), value, name) for name, value in members.items()}

    def asdict(self) -> dict[str, Any]:
        """All members, as plain JSON values."""
        return dict(self._read())


def _replacement(current: Any, new: Any, where: str) -> Any:
    """The merge patch from ``current`` to ``new``, which removes members that ``new`` lacks."""
    if new is None:
        raise ValueError(f"attribute {where}: a merge patch cannot store None; delete the member, or leave it out")
    if not isinstance(new, Mapping):
        return new
    old = current if isinstance(current, Mapping) else {}
    members = {name: _replacement(old.get(name), value, f"{where}.{name}") for name, value in new.items()}
    return {**dict.fromkeys(old.keys() - new.keys()), **members}


def open_session(
    connections: int, headers: Mapping[str, str] | None, transport: Transport | None, token: str | None
) -> Session:
    """A session over ``transport``, by default an `HTTPTransport` with at most ``connections`` connections.

    The token defaults to the environment's, unless ``headers`` have an Authorization. Raises `ValueError` for both
    token and Authorization, and `BadParameter` for an invalid token.
    """
    all_headers = dict(headers or {})
    if not any(name.lower() == "authorization" for name in all_headers):
        token = os.environ.get(TOKEN, "") if token is None else token
        if not (token.isascii() and token.isprintable()):
            raise BadParameter(name="token", value="…", expected="printable ASCII, without line breaks")
        all_headers |= {"Authorization": f"Bearer {token}"} if token else {}
    elif token is not None:
        raise ValueError("give token= or an Authorization header, not both")
    return Session(transport or HTTPTransport(connections=connections), headers=all_headers, connections=connections)


def read_document(
    session: Session, address: Address, *, decode: str | None = None
) -> tuple[Mapping[str, Any], str | None]:
    """The node document, without the children of a group, and its ETag."""
    members, headers = session.read_json(Request("GET", address.url("metadata", limit="0", decode=decode)))
    return members, headers.get("ETag")

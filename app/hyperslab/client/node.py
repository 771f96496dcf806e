"""What arrays and groups have in common: an address, a node document, attributes."""

from __future__ import annotations

import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self

from hyperslab import wire
from hyperslab.client.address import Address
from hyperslab.client.attributes import Attributes, Patch
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
        return Attributes(
            lambda: self.info.get("attributes") or {},
            lambda patch: self._patch({"attributes": patch}),
            self._change_attributes,
        )

    def refresh(self) -> Self:
        """Read the node document again, since others may have resized the array or set attributes. Returns the node.

        Raises:
            NodeNotFound: The node was deleted.
            WrongKind: An array became a group, or the reverse.
        """
        self._adopt(*read_document(self._session, self._address, decode=self._decode))
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

    def _change_attributes(self, patch: Callable[[], Patch]) -> None:
        """Set what ``patch`` makes of the node document as it is, while it is that."""

        def attempt() -> None:
            members, etag = read_document(self._session, self._address, decode=self._decode)
            self._adopt(members, etag)
            self._patch({"attributes": patch()}, guard={"If-Match": etag or "*"})

        until_undisturbed(attempt)


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

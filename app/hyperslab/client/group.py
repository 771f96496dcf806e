"""`RemoteGroup`: a remote group, a mapping of names to nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, KeysView, Mapping, Sequence
from difflib import get_close_matches
from http import HTTPStatus
from itertools import islice
from types import EllipsisType
from typing import Any, Literal
from weakref import ref

from hyperslab import wire
from hyperslab.client.address import Address
from hyperslab.client.array import RemoteArray
from hyperslab.client.definition import Codec, define_array, initial_values
from hyperslab.client.endpoint import Endpoint
from hyperslab.client.node import RemoteNode, open_session, read_document
from hyperslab.client.session import Request, Session
from hyperslab.client.text import Progress, Tree, dtype_and_size, group_as_html
from hyperslab.client.transport import Transport
from hyperslab.client.values import dump_json
from hyperslab.errors import BadPath, BrokenData, HyperslabError, NodeNotFound, WrongKind

PAGE = 1000
"""Children per request."""

Kind = Literal["array", "group"]
Mode = Literal["create", "open", "replace"]


class NoSuchNode(KeyError):
    """`KeyError` of a missing node, with similar names."""

    def __str__(self) -> str:
        name, *similar = self.args
        return f"{name!r}: did you mean {' or '.join(map(repr, similar))}?" if similar else repr(name)


class RemoteGroup(RemoteNode, Mapping[str, "RemoteArray | RemoteGroup"]):
    """A group of a Hyperslab server, a mapping of names to nodes: ``g["a/b"]``, ``for name in g``, ``g.tree()``.

    Args:
        url: Any URL of the group, or of the service for the group of all stores.
        connections: As for `RemoteArray`, like all others; nodes opened through a group share its connections.
    """

    def __init__(
        self,
        url: str,
        *,
        connections: int = 4,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        progress: Progress = False,
        transport: Transport | None = None,
    ) -> None:
        address = Address.parse(url)
        super().__init__(open_session(connections, headers, transport, token), address, progress=progress)
        self._adopt(*read_document(self._session, address))

    @classmethod
    def from_parts(
        cls, session: Session, address: Address, members: Mapping[str, Any], *, progress: Progress = False
    ) -> RemoteGroup:
        """A group from its node document; raises `WrongKind` for that of an array."""
        group = cls.__new__(cls)
        RemoteNode.__init__(group, session, address, progress=progress)
        group._adopt(members, None)
        return group

    _asked: Callable[[], _Names | None] = staticmethod(lambda: None)
    """The newest iterator of names, if it is still there."""

    # --- children ------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> RemoteArray | RemoteGroup:
        """The node at a path below this group; raises `KeyError`, with similar names, if there is none."""
        try:
            return self._open(name)
        except KeyError as error:
            missing = error.__cause__
        try:
            similar = self._similar(name)
        except HyperslabError:
            similar = []  # report the missing node, not this error
        raise NoSuchNode(name, *similar) from missing

    def get(self, name: str, default: Any = None) -> Any:
        """The node at a path below this group, or ``default`` if there is none; raises the server's errors."""
        try:
            return self._open(name)
        except KeyError:
            return default

    def _open(self, name: str) -> RemoteArray | RemoteGroup:
        address, members, etag = self._find(name)
        return open_node(self._session, address, members, etag, progress=self._progress)

    def _similar(self, name: str) -> list[str]:
        """Suggestions for a missing path: its first missing segment replaced by siblings with similar names."""
        try:
            segments = self._address.child(name).path.removeprefix(self.path).strip("/").split("/")
        except BadPath:
            return []
        group, rest = self, segments
        while len(rest) > 1:
            node = group.get(rest[0])
            if not isinstance(node, RemoteGroup):
                break
            group, rest = node, rest[1:]
        names = {child.lower(): child for child in group._ipython_key_completions_()}
        parents = segments[: len(segments) - len(rest)]
        return ["/".join([*parents, names[near], *rest[1:]]) for near in get_close_matches(rest[0].lower(), names, 3)]

    def _find(self, name: str) -> tuple[Address, Mapping[str, Any], str | None]:
        """Address, node document and ETag of the node at a path below this group; raises `KeyError`."""
        try:
            address = self._address.child(name)
            return address, *read_document(self._session, address)
        except (NodeNotFound, BadPath) as error:
            raise KeyError(name) from error

    def __iter__(self) -> Iterator[str]:
        """Names of the direct children, fetched page by page; raises the server's errors, and `Unreachable`."""
        names = _Names(self)
        self._asked = ref(names)
        return names

    def __len__(self) -> int:
        """Number of direct children; fetches all pages, and raises as iteration does."""
        names, asked = [name for name, _ in self.children()], self._asked()
        if asked is not None:
            asked.take(names)
        return len(names)

    def keys(self) -> KeysView[str]:
        """Names of the direct children, which `list` fetches once; raises as iteration does."""
        return _Keys(self)

    def __contains__(self, name: object) -> bool:
        """Whether there is a node at a path below this group; raises the server's errors."""
        return isinstance(name, str) and self.get(name) is not None

    def children(self) -> Iterator[tuple[str, Kind]]:
        """Names and kinds of the direct children, fetched page by page; raises the server's errors."""
        cursor: str | None = None
        while True:
            url = self._address.url("metadata", limit=str(PAGE), cursor=cursor)
            members, _ = self._session.read_json(Request("GET", url))
            yield from ((child["name"], child["kind"]) for child in members.get("children", ()))
            cursor = members.get("next_cursor")
            if cursor is None:
                return

    def arrays(self) -> Iterator[tuple[str, RemoteArray]]:
        """Names and arrays of the direct children, one request each; raises as `open_array`."""
        return ((name, self.open_array(name)) for name, kind in self.children() if kind == "array")

    def groups(self) -> Iterator[tuple[str, RemoteGroup]]:
        """Names and groups of the direct children, one request each; raises as `open_group`."""
        return ((name, self.open_group(name)) for name, kind in self.children() if kind == "group")

    def open_array(self, name: str) -> RemoteArray:
        """The array at a path below this group.

        Raises:
            KeyError: There is no such node.
            WrongKind: The node is a group.
        """
        node = self[name]
        if isinstance(node, RemoteGroup):
            raise WrongKind(path=node.path, kind="group", wanted="array")
        return node

    def open_group(self, name: str) -> RemoteGroup:
        """The group at a path below this one.

        Raises:
            KeyError: There is no such node.
            WrongKind: The node is an array.
        """
        node = self[name]
        if isinstance(node, RemoteArray):
            raise WrongKind(path=node.path, kind="array", wanted="group")
        return node

    def tree(self, level: int | None = None) -> Tree:
        """All nodes below, printed as a tree, broken ones included. Sends one request per node.

        Raises the server's errors.

        Args:
            level: Maximum depth; by default unlimited.
        """
        return Tree(f"{self.name}/", tuple(_branches(self, level)))

    def to_xarray(self, **options: Any) -> Any:
        """The arrays of this group as an ``xarray.Dataset``, of which slices are read when they are needed.

        ``options``, and what is raised: as of ``xarray.open_dataset``. Values are decoded as the CF conventions say.
        """
        import xarray

        source: Any = self
        return xarray.open_dataset(source, engine="hyperslab", **options)

    # --- changes -------------------------------------------------------------------------------------------------

    def create_array(
        self,
        name: str,
        shape: int | Sequence[int] | None = None,
        dtype: Any = None,
        *,
        data_type: Any = None,
        data: Any = None,
        mode: Mode = "create",
        chunks: int | bool | Sequence[int | None] | None = None,
        chunk_elements: int | None = None,
        chunk_aspect_ratio: Sequence[float | None] | None = None,
        chunk_layout: Mapping[str, Any] | None = None,
        compressor: Codec | EllipsisType | None = ...,
        filters: Sequence[Codec] | EllipsisType | None = ...,
        fill_value: Any = ...,
        order: Literal["C", "F"] | None = None,
        dimension_separator: Literal[".", "/"] | None = None,
        dimension_names: Sequence[str | None] | None = None,
        attributes: Mapping[str, Any] | None = None,
        zarr_format: Literal[2, 3] | None = None,
        shards: int | bool | Sequence[int | None] | None = None,
        codecs: Sequence[str | Mapping[str, Any]] | None = None,
        chunk_key_encoding: str | Mapping[str, Any] | None = None,
    ) -> RemoteArray:
        """Create an array at a path below this group. Omitted members get defaults of the server.

        Args:
            name: The path.
            shape: Length of each axis; by default that of ``data``.
            dtype: A dtype of numpy, or whatever numpy or zarr-python takes for one: a type string, a name, ``str`` (for
                text of any length), a ``ZDType``, or Zarr's JSON, of v2 or v3; by default that of ``data``.
            data_type: Another name of ``dtype``, that of Zarr v3.
            data: Initial values.
            mode: If the path exists, ``create`` raises, ``open`` opens an array that matches all members given, and
                ``replace`` deletes it first.
            chunks: Items along each axis (None or -1: the whole axis; 0: automatic), one number for all axes, True for
                zarr-python's guess, or False for one chunk.
            chunk_elements: Number of items of an automatic chunk shape.
            chunk_aspect_ratio: Proportions of an automatic chunk shape.
            chunk_layout: TensorStore's chunk layout.
            compressor: A codec as name (``"zstd"``), configuration, or object of numcodecs; None for none.
            filters: A list of codecs.
            fill_value: A value of the dtype, or Zarr's JSON of it; None for undefined.
            order: Memory layout of chunks.
            dimension_separator: Separator in chunk keys.
            dimension_names: A name or None for each axis.
            attributes: Any JSON object.
            zarr_format: 2 or 3; by default that of this group.
            shards: Shard shape, or True for an automatic one (Zarr v3).
            codecs: Codecs as in a ``zarr.json``, instead of compressor, filters and order (Zarr v3).
            chunk_key_encoding: As in a ``zarr.json`` (Zarr v3).

        Raises:
            NodeExists: The path exists.
            BadPath: The path is invalid.
            BadDefinition: A member is invalid; ``member`` names it.
            ValueError: Data or fill value do not fit, also as `TypeError` or `OverflowError`; nothing was created.
        """
        members: dict[str, Any] = {
            "chunks": chunks,
            "chunk_elements": chunk_elements,
            "chunk_aspect_ratio": chunk_aspect_ratio,
            "chunk_layout": chunk_layout,
            "order": order,
            "dimension_separator": dimension_separator,
            "dimension_names": dimension_names,
            "attributes": attributes,
            "zarr_format": self._child_format(zarr_format),
            "shards": shards,
            "codecs": codecs,
            "chunk_key_encoding": chunk_key_encoding,
        }
        nullable = {"compressor": compressor, "filters": filters, "fill_value": fill_value}
        members = {member: value for member, value in members.items() if value is not None}
        members |= {member: value for member, value in nullable.items() if value is not ...}
        if dtype is not None and data_type is not None:
            raise ValueError("dtype and data_type are two names of one argument: give one of them")
        dtype = data_type if dtype is None else dtype
        values = None if data is None else initial_values(data, dtype)
        definition = define_array(values, shape, dtype, members)
        array = self._create(name, definition, mode)
        assert isinstance(array, RemoteArray)
        if values is not None:
            array[...] = values
        return array

    def create_group(
        self,
        name: str,
        *,
        attributes: Mapping[str, Any] | None = None,
        mode: Mode = "create",
        zarr_format: Literal[2, 3] | None = None,
    ) -> RemoteGroup:
        """Create a group at a path below this one.

        Args:
            name: The path.
            attributes: Any JSON object.
            mode: As for `create_array`.
            zarr_format: 2 or 3; by default that of this group.

        Raises:
            NodeExists: The path exists.
            BadPath: The path is invalid.
        """
        members = {"attributes": attributes, "zarr_format": self._child_format(zarr_format)}
        definition = {"kind": "group", **{member: value for member, value in members.items() if value is not None}}
        group = self._create(name, definition, mode)
        assert isinstance(group, RemoteGroup)
        return group

    def delete(self, name: str, *, recursive: bool = False, foreign: bool = False) -> Mapping[str, Any]:
        """Delete the node at a path below this group.

        Args:
            name: The path; not the group itself.
            recursive: Also delete all nodes below it.
            foreign: Also delete keys that do not belong to Zarr.

        Returns:
            The ``count`` of remaining keys and the first of them as ``keys``; an empty mapping if none remain.

        Raises:
            NodeExists: There are keys below it, and ``recursive`` is not set.
            KeyError: There is no such node.
        """
        flags = {"recursive": recursive, "foreign": foreign}
        try:
            url = self._address.child(name).url("metadata", **{flag: "true" for flag, on in flags.items() if on})
            answer = self._session.read(Request("DELETE", url, removes=True))
        except (NodeNotFound, BadPath) as error:
            raise KeyError(name) from error
        remaining: Mapping[str, Any] = json.loads(answer.body)["kept"] if answer.status == HTTPStatus.OK else {}
        return remaining

    def __delitem__(self, name: str) -> None:
        self.delete(name)

    def _child_format(self, requested: int | None) -> int | None:
        """The Zarr format of a new child; None for the server's default."""
        return 3 if requested is None and self._members.get("zarr_format") == 3 else requested

    def _create(self, name: str, definition: Mapping[str, Any], mode: Mode) -> RemoteArray | RemoteGroup:
        address = self._address.child(name)
        once = mode == "create"  # a retry would conflict with the node that the first request created
        url = address.url("metadata", mode=mode)
        request = Request("PUT", url, {"Content-Type": wire.JSON}, dump_json(definition), once=once)
        document, answer = self._session.read_json(request)
        return open_node(self._session, address, document, answer.get("ETag"), progress=self._progress)

    # --- representation ------------------------------------------------------------------------------------------

    def _adopt(self, members: Mapping[str, Any], etag: str | None) -> None:  # noqa: ARG002 - only arrays keep it
        if members.get("kind") != "group":
            raise WrongKind(path=self.path, kind=str(members.get("kind")), wanted="group")
        self._members = members

    def __repr__(self) -> str:
        return f"<RemoteGroup {self.path or '/'} at {self.url}>"

    def _repr_html_(self) -> str:
        """Tables of attributes and the first children."""
        return group_as_html(self.path or "/", self.url, self.attrs, list(islice(self.children(), 51)), limit=50)

    def _ipython_key_completions_(self) -> list[str]:
        """Names of children, to complete ``group["``."""
        return list(islice(self, PAGE))

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteGroup.from_parts, (self._session, self._address, self._members)


class _Names(Iterator[str]):
    """Names of children. `list` asks for the iterator, then for the length, and only then for the names: these are the
    ones that were fetched for the length."""

    def __init__(self, group: RemoteGroup) -> None:
        self._group = group
        self._names: Iterator[str] | None = None

    def take(self, names: Sequence[str]) -> None:
        """Yield these, unless the first was asked for already."""
        self._names = iter(names) if self._names is None else self._names

    def __next__(self) -> str:
        if self._names is None:
            self._names = (name for name, _ in self._group.children())
        return next(self._names)


class _Keys(KeysView[str]):
    """Names of children; `list` of them fetches each page once, too."""

    def __init__(self, group: RemoteGroup) -> None:
        super().__init__(group)
        self._group = group

    def __iter__(self) -> Iterator[str]:
        return iter(self._group)


def open_node(
    session: Session, address: Address, members: Mapping[str, Any], etag: str | None, *, progress: Progress = False
) -> RemoteArray | RemoteGroup:
    """The node of a node document."""
    if members.get("kind") == "group":
        return RemoteGroup.from_parts(session, address, members, progress=progress)
    return RemoteArray.from_parts(Endpoint.parse(session, address, members, etag), progress=progress)


def _branches(group: RemoteGroup, level: int | None) -> Iterator[Tree]:
    if level is not None and level <= 0:
        return
    for name, kind in group.children():
        try:
            if kind == "group":
                yield group.open_group(name).tree(level and level - 1)
            else:
                _, members, _ = group._find(name)
                yield Tree(" ".join([name, str(tuple(members["shape"])), ", ".join(dtype_and_size(members))]))
        except BrokenData as error:
            yield Tree(f"{name}, which is broken: {error}")
        except KeyError:
            continue  # deleted meanwhile

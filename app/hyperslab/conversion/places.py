"""Places that hold Zarr: a folder or bucket, which is read and written directly, and a node of a service, by its URL.

An unfinished conversion is plain to see: in a folder or bucket no document of the new nodes exists before the
last value is stored, and a *marker* lies beside the chunks; on a service, the new node has the marker as an attribute,
which the last request removes. The marker says what is being made, and what of it is done.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote, urlsplit

import numpy as np

from hyperslab.arrays.delete import is_half_deleted, refuse_denied
from hyperslab.arrays.documents import attributes_text
from hyperslab.arrays.nodes import V3, ArrayNode, GroupNode, MountedStore
from hyperslab.arrays.plan import select
from hyperslab.arrays.service import Service, build
from hyperslab.client import RemoteArray, RemoteGroup
from hyperslab.client.address import Address
from hyperslab.client.session import Request
from hyperslab.conversion.model import Box
from hyperslab.engine.creation import checked, new_document
from hyperslab.engine.jsontext import dump_copy, dump_json, json_floats
from hyperslab.engine.v3 import new_group
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.config import is_local, local_path
from hyperslab.storage.files import TEMPORARY
from hyperslab.storage.keys import HIDDEN, as_prefix

MARKER: Final = f"{HIDDEN}.conversion"
"""Key of the marker of a conversion in a folder or bucket; `Place` has other kinds of markers too."""
MARKER_ATTRIBUTE: Final = "hyperslab-conversion"
"""Attribute with the marker on a service."""


Groups = Mapping[str, tuple[int, Mapping[str, Any]]]
"""Zarr format and attributes of groups by path."""


class Target(Protocol):
    """An array of a place, to be pickled."""

    def read(self, box: Box) -> np.ndarray: ...

    def write(self, box: Box, values: np.ndarray) -> None:
        """Store the values of a box of whole stored objects."""


class Place(Protocol):
    """Where nodes are made. Paths are below the place, ``""`` for its own node."""

    def exists(self) -> str | None:
        """A sentence on what is there already; None if nothing is."""

    def marker(self) -> dict[str, Any] | None:
        """The marker of an unfinished conversion."""

    def begin(self, marker: Mapping[str, Any], groups: Groups, arrays: Mapping[str, Any]) -> None: ...

    def write_marker(self, marker: Mapping[str, Any]) -> None:
        """Store the marker again, with what is done."""

    def target(self, path: str, definition: Mapping[str, Any]) -> Target: ...

    def finish(
        self, groups: Groups, arrays: Mapping[str, Any], *, resumed: bool, attributes: Mapping[str, Any] | None = None
    ) -> None:
        """Make the nodes visible, children first, then merge ``attributes`` into those of the own node, and remove the
        marker, and what writers of an earlier run left if it is ``resumed``."""

    def clear(self) -> list[str]:
        """Remove the nodes that are there, or what an unfinished conversion left; returns the keys that stay."""


def open_place(url: str, job: str, *, token: str | None = None) -> Place:
    """The place of a path or URL; nothing is read yet. ``job``: text that no other conversion has. Raises
    `errors.BadDefinition` for an invalid URL."""
    if is_service(url):
        return ServicePlace(Address.parse(url).url("metadata"), token)
    return StorePlace(url, job)


def place_of(url: str) -> str:
    """The place of a path or URL in one spelling, to be compared."""
    if is_service(url):
        return Address.parse(url).url("metadata")
    return str(Path(local_path(url)).resolve()) if is_local(url) else url.rstrip("/")


def is_service(url: str) -> bool:
    """Whether a URL is that of a node of a service, by its form."""
    if not url.startswith(("http://", "https://")):
        return False
    path = urlsplit(url).path
    return any(
        f"{route}/" in f"{path}/" for route in ("/v1/metadata", "/v1/slice", "/view", "/zarr", "/zarr2", "/zarr3")
    )


# --- folders and buckets ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def service_of(url: str, writable: bool, job: str) -> Service:  # noqa: ARG001 - part of the key
    """The service over one place, named ``at``: one for each process and ``job``, as another job may find another
    folder of the same name."""
    config = StoreConfig(url, url, writable=writable, durability="rename")
    mount = MountedStore("at", open_store(config), writable=writable)
    return build([mount], cache_bytes=8 << 20)


@dataclass(frozen=True, slots=True)
class StoreArray:
    """An array in a folder or bucket, whose document need not be stored yet."""

    url: str
    path: str
    document: Mapping[str, Any] = field(hash=False)
    job: str

    def read(self, box: Box) -> np.ndarray:
        service, node = self._open()
        plan = service.reader.plan(node, select(node, None, box)[0])
        values, _ = service.reader.read(plan)
        return values

    def write(self, box: Box, values: np.ndarray) -> None:
        service, node = self._open()
        service.writer.fill(node, box, values)

    def _open(self) -> tuple[Service, ArrayNode]:
        service = service_of(self.url, True, self.job)
        return service, _node(self.url, self.path, self.job, json.dumps(self.document))


@lru_cache(maxsize=256)
def _node(url: str, path: str, job: str, document: str) -> ArrayNode:
    mount = service_of(url, True, job).catalog.mounts["at"]
    return ArrayNode(mount, as_prefix(path), checked(json.loads(document)), {}, "", "", {})


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A folder or bucket; a folder is made when it is needed."""

    url: str
    job: str
    kind: str = "conversion"

    @property
    def marker_key(self) -> str:
        return f"{HIDDEN}.{self.kind}"

    @property
    def service(self) -> Service:
        return service_of(self.url, True, self.job)

    @property
    def mount(self) -> MountedStore:
        return self.service.catalog.mounts["at"]

    @property
    def folder(self) -> Path | None:
        return Path(local_path(self.url)) if is_local(self.url) else None

    def exists(self) -> str | None:
        folder = self.folder
        if folder is not None and not folder.is_dir():
            return f"{folder} is a file" if folder.exists() else None
        if not self._no_documents():
            return f"{self.url} exists"
        if self.marker() is None and is_half_deleted(self.mount, ""):
            return f"a part of {self.url}, whose replacement was interrupted, still exists"
        if folder is not None:
            others = sorted(path.name for path in folder.iterdir() if not path.name.startswith(HIDDEN))
        else:
            listing = self.mount.store.list_dir("")
            others = [*[entry.key for entry in listing.entries], *listing.prefixes]
        if others and self.marker() is None:
            return f"{self.url} holds other data, such as {others[0]!r}, which is not an array or group of Zarr"
        return None

    def _no_documents(self) -> bool:
        return all(self.mount.store.stat(name) is None for name in (V3, ".zarray", ".zgroup"))

    def marker(self) -> dict[str, Any] | None:
        if self.folder is not None and not self.folder.is_dir():
            return None
        stored = self.mount.store.get(self.marker_key, 64 << 20)
        return None if stored is None else json.loads(bytes(stored.data))

    def begin(
        self,
        marker: Mapping[str, Any],
        groups: Groups,  # noqa: ARG002 - of the protocol
        arrays: Mapping[str, Any],  # noqa: ARG002
    ) -> None:
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        self.write_marker(marker)

    def write_marker(self, marker: Mapping[str, Any]) -> None:
        self.mount.store.put(self.marker_key, json.dumps(marker).encode())

    def document(self, definition: Mapping[str, Any]) -> Mapping[str, Any]:
        """The document of a definition."""
        members = {name: value for name, value in definition.items() if name not in ("attributes", "kind")}
        if definition.get("zarr_format") != 3:
            members.pop("dimension_names", None)
            return new_document(members)
        return new_document(members, definition.get("attributes") or {})

    def _documents(self, groups: Groups, arrays: Mapping[str, Any]) -> dict[str, bytes]:
        """Documents by key, that of the own node last, with consolidated metadata for xarray."""
        written: dict[str, bytes] = {}
        for path, definition in arrays.items():
            prefix, document = as_prefix(path), self.document(definition)
            if definition.get("zarr_format") == 3:
                written[prefix + V3] = dump_copy(dict(document))
                continue
            attributes = dict(definition.get("attributes") or {})
            if definition.get("dimension_names") is not None:
                attributes["_ARRAY_DIMENSIONS"] = list(definition["dimension_names"])
            written[f"{prefix}.zattrs"] = attributes_text(attributes)
            written[f"{prefix}.zarray"] = dump_json(dict(document))
        for path, (zarr_format, members) in groups.items():
            prefix = as_prefix(path)
            if zarr_format == 3:
                written[prefix + V3] = dump_copy(new_group(members))
            else:
                written[f"{prefix}.zattrs"] = attributes_text(members)
                written[f"{prefix}.zgroup"] = dump_json({"zarr_format": 2})
        if ".zgroup" in written:
            metadata = {key: json.loads(text) for key, text in sorted(written.items())}
            written[".zmetadata"] = dump_copy({"zarr_consolidated_format": 1, "metadata": metadata})
            written[".zgroup"] = written.pop(".zgroup")
        elif "" in groups:  # which xarray misses without it
            below = {key[: -len(V3) - 1]: json.loads(text) for key, text in sorted(written.items()) if key != V3}
            inline = {"kind": "inline", "must_understand": False, "metadata": below}
            written[V3] = dump_copy({**new_group(groups[""][1]), "consolidated_metadata": inline})
        return written

    def target(self, path: str, definition: Mapping[str, Any]) -> StoreArray:
        return StoreArray(self.url, path, self.document(definition), self.job)

    def finish(
        self, groups: Groups, arrays: Mapping[str, Any], *, resumed: bool, attributes: Mapping[str, Any] | None = None
    ) -> None:
        if self.folder is not None and resumed:
            for left in self.folder.rglob(f"{TEMPORARY}*"):
                left.unlink(missing_ok=True)
        written = self._documents(groups, arrays)
        own = [key for key in written if "/" not in key]
        for key in [*[key for key in written if "/" in key], *own]:
            self.mount.store.put(key, written[key])
        if attributes is not None:
            self.service.creator.change_attributes("at", attributes)
        self.mount.store.delete(self.marker_key)
        self.service.close()
        service_of.cache_clear()
        _node.cache_clear()
        if self.folder is not None:
            for empty in (self.folder / HIDDEN / "locks", self.folder / HIDDEN):
                with suppress(OSError):  # another process has locks there
                    empty.rmdir()

    def clear(self) -> list[str]:
        store, marker = self.mount.store, self.marker()
        refuse_denied(self.mount, "")
        if marker is not None:
            for path, definition in marker["arrays"].items():
                prefix, node = as_prefix(path), self.target(path, definition)._open()[1]
                keys = [entry.key for entry in store.list_prefix(prefix)]
                names = (V3, ".zarray", ".zattrs")
                ours = [key for key in keys if node.metadata.stored_grid.parse_key(key[len(prefix) :]) is not None]
                for key in [*ours, *[prefix + name for name in names if prefix + name in keys]]:
                    store.delete(key)
            for path in marker["groups"]:
                for name in (V3, ".zgroup", ".zattrs", ".zmetadata"):
                    store.delete(as_prefix(path) + name)
            store.delete(self.marker_key)
        else:
            left = self._no_documents() and is_half_deleted(self.mount, "")
            if left:
                store.put(V3, dump_copy(new_group({})))  # as only nodes are deleted
            self.service.creator.delete("at", recursive=not left)
        return [entry.key for entry in store.list_prefix("")]


@dataclass(frozen=True, slots=True)
class StoredValues:
    """Values of an array that is stored in a folder, bucket, archive or on a web server."""

    url: str
    path: str
    job: str

    def read(self, box: Box) -> np.ndarray:
        service = service_of(self.url, False, self.job)
        node = service.catalog.open_array(f"at/{self.path}".rstrip("/"))
        values, _ = service.reader.read(service.reader.plan(node, select(node, None, box)[0]))
        return values


# --- services --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _remote(url: str, token: str | None) -> RemoteArray:
    return RemoteArray(url, token=token)


@dataclass(frozen=True, slots=True)
class ServiceArray:
    """An array of a service."""

    url: str
    token: str | None = field(default=None, repr=False)

    def read(self, box: Box) -> np.ndarray:
        return np.asarray(_remote(self.url, self.token)[box])

    def write(self, box: Box, values: np.ndarray) -> None:
        _remote(self.url, self.token)[box] = values


@dataclass(frozen=True, slots=True)
class ServicePlace:
    """A node of a service, by the URL of its document."""

    url: str
    token: str | None = field(default=None, repr=False)
    kind: str = "conversion"

    @property
    def marker_attribute(self) -> str:
        return f"hyperslab-{self.kind}"

    def _root(self) -> tuple[RemoteGroup, str]:
        address = Address.parse(self.url)
        return RemoteGroup(f"{address.base}/v1/metadata", token=self.token), address.path

    def _node(self, path: str = "") -> RemoteArray | RemoteGroup | None:
        root, own = self._root()
        node: RemoteArray | RemoteGroup | None = root.get(f"{own}/{path}".rstrip("/"))
        return node

    def exists(self) -> str | None:
        node = self._node()
        if node is None or self.marker_attribute in node.attrs:
            return None
        return f"{self.url} exists"

    def marker(self) -> dict[str, Any] | None:
        node = self._node()
        text = None if node is None else node.attrs.get(self.marker_attribute)
        return None if text is None else json.loads(text)

    def begin(self, marker: Mapping[str, Any], groups: Groups, arrays: Mapping[str, Any]) -> None:
        root, own = self._root()
        for path, (form, _) in groups.items():
            attributes = {self.marker_attribute: json.dumps(marker)} if path == "" else {}
            if self._node(path) is None:
                root.create_group(f"{own}/{path}".rstrip("/"), attributes=attributes, zarr_format=2 if form == 2 else 3)
        for path, definition in arrays.items():
            members = {**definition, "kind": "array", "attributes": json_floats(definition.get("attributes") or {})}
            if path == "":
                members["attributes"][self.marker_attribute] = json.dumps(marker)
            if self._node(path) is None:
                root._create(f"{own}/{path}".rstrip("/"), members, "create")
        self.write_marker(marker)

    def write_marker(self, marker: Mapping[str, Any]) -> None:
        node = self._node()
        assert node is not None
        node.attrs[self.marker_attribute] = json.dumps(marker)

    def target(self, path: str, definition: Mapping[str, Any]) -> ServiceArray:  # noqa: ARG002 - of the protocol
        return ServiceArray(f"{self.url}/{path}".rstrip("/"), self.token)

    def finish(
        self,
        groups: Groups,
        arrays: Mapping[str, Any],
        *,
        resumed: bool,  # noqa: ARG002 - of the protocol
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        changes = {path: wanted for path, (_, wanted) in groups.items()}
        changes |= {path: definition.get("attributes") or {} for path, definition in arrays.items()}
        changes[""] = {**changes.get("", {}), **(attributes or {})}
        for path, changed in sorted(changes.items(), reverse=True):
            node = self._node(path)
            assert node is not None
            if path in groups or path == "":
                node.attrs.update(json_floats(changed))
            now = node.attrs.asdict()
            if any(now.get(name, ...) != value for name, value in changed.items()):
                # NaN, which is not JSON, or null, which removes
                url, document, attributes_there = _stored_document(node)
                attributes_there.update(changed)
                body = dump_copy(document)
                node._session.read(Request("PUT", url, {"Content-Type": "application/json"}, body))
        assert node is not None
        del node.attrs[self.marker_attribute]

    def clear(self) -> list[str]:
        root, own = self._root()
        return [*root.delete(own, recursive=True).get("keys", [])]


def stored_attributes(node: RemoteArray | RemoteGroup) -> dict[str, Any]:
    """The attributes of a node as they are stored: NaN and infinities are floats, where a node document has text."""
    attributes: dict[str, Any] = node.attrs.asdict()
    return _stored_document(node)[2] if re.search('"NaN"|Infinity"', json.dumps(attributes)) else attributes


def _stored_document(node: RemoteArray | RemoteGroup) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """URL and content of the document with the attributes of a node, and these in it."""
    of_v3 = node.info.get("zarr_format") == 3
    url = f"{Address.parse(node.url).base}/zarr/{quote(node.path)}/{V3 if of_v3 else '.zattrs'}"
    document, _ = node._session.read_json(Request("GET", url))
    return url, document, document["attributes"] if of_v3 else document


def walk(service: Service, path: str) -> Iterator[ArrayNode | GroupNode]:
    """A node and all below it; raises the error of one that is broken."""
    node = service.catalog.open_node(path)
    yield node
    if isinstance(node, GroupNode):
        cursor = None
        while True:
            page = service.catalog.children(node, limit=1000, cursor=cursor)
            for child in page.nodes:
                yield from walk(service, f"{path}/{child.name}")
            cursor = page.next_cursor
            if cursor is None:
                return

"""One service for all conformance cases: a few stores over one folder, a node of its own for each case."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
import numpy as np
from numpy.typing import NDArray

from hyperslab import RemoteArray, RemoteGroup, wire
from hyperslab.api.app import create_app
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import build
from hyperslab.storage import StoreConfig, open_store
from tests.server import served

Array = NDArray[Any]
Files = Mapping[str, Any]
"""Contents by key: bytes as they stand, anything else as JSON."""

DOCUMENT: Final = {"zarr_format": 2, "compressor": None, "fill_value": None, "order": "C", "filters": None}
ASSUMED: Final = {**DOCUMENT, "shape": [4], "chunks": [2], "dtype": "|u1", "fill_value": 0}
STORES: Final[Mapping[str, Mapping[str, Any]]] = {
    "data": {},
    "strict": {"fill_missing": False},
    "explicit": {"store_data_equal_to_fill_value": True},
    "renamed": {"metadata_key": "zarray"},
    "trusting": {"recheck": "never"},
    "assumed": {"assume_metadata": {"": ASSUMED, "too/little": {"shape": [4]}}},
}
"""The options of each store, by name: all are writable."""


@dataclass(frozen=True, slots=True)
class Node:
    """A place in a store, of which nothing is known to the service before it is asked: ``path`` for URLs, ``folder``
    on disk."""

    service: Conformance
    path: str
    folder: Path

    def get(self, route: str = "metadata", tail: str = "", **query: Any) -> httpx.Response:
        """``GET /v1/{route}/{path}{tail}``."""
        return self.service.http.get(self.service.target(route, self.path + tail), params=query)

    def put(self, route: str = "metadata", tail: str = "", *, json: Any = None, **rest: Any) -> httpx.Response:
        """``PUT``; ``rest`` are httpx's own arguments."""
        target = self.service.target(route, self.path + tail)
        return self.service.http.put(target, **({} if json is None else {"json": json}), **rest)

    def values(self, **query: Any) -> Array:
        """A slice, as raw."""
        return decoded(self.get("slice", **query))

    def remote(self, field: str | None = None) -> RemoteArray:
        """The array as `RemoteArray` sees it; the service's group owns the connections."""
        found = self.service.group[self.path]
        assert isinstance(found, RemoteArray)
        return found if field is None else found.with_field(field)

    def below(self, name: str) -> Node:
        return Node(self.service, f"{self.path}/{name}", self.folder / name)

    def keys(self) -> dict[str, bytes]:
        """What is stored below, by key."""
        files = {path.relative_to(self.folder): path for path in sorted(self.folder.rglob("*")) if path.is_file()}
        return {key.as_posix(): path.read_bytes() for key, path in files.items() if key.parts[0] != ".hyperslab"}

    def chunks(self) -> dict[str, str]:
        """The stored chunks in hex."""
        return {key: data.hex() for key, data in self.keys().items() if not key.rpartition("/")[2].startswith(".z")}

    def document(self, key: str = ".zarray") -> dict[str, Any]:
        """A stored document."""
        found: dict[str, Any] = json.loads((self.folder / key).read_bytes())
        return found

    def write(self, key: str, content: Any) -> None:
        """Change a file behind the service's back."""
        path = self.folder / key
        assert path.is_relative_to(self.folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())


@dataclass(frozen=True, slots=True)
class Conformance:
    """The service, a client of each kind, and the folder that holds the stores."""

    url: str
    folder: Path
    http: httpx.Client
    group: RemoteGroup
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def target(self, route: str, path: str) -> str:
        prefix = f"{self.url}/zarr" if route == "zarr" else f"{self.url}/v1/{route}"
        return f"{prefix}/{quote(path)}"

    def node(self, files: Files | None = None, store: str = "data") -> Node:
        """A new place that holds ``files``."""
        name = f"n{next(self.numbers)}"
        node = Node(self, f"{store}/{name}", self.folder / store / name)
        for key, content in (files or {}).items():
            node.write(key, content)
        return node

    def array(self, contents: Mapping[str, bytes] | None = None, store: str = "data", **members: Any) -> Node:
        """A new array: ``members`` of its document, and the ``contents`` of chunks as they are stored."""
        return self.node({".zarray": {**DOCUMENT, **members}, **(contents or {})}, store)


@contextmanager
def conformance_service(folder: Path) -> Iterator[Conformance]:
    """All stores behind a socket."""
    mounts = []
    for name, options in STORES.items():
        (folder / name).mkdir()
        store = open_store(StoreConfig(name=name, url=str(folder / name), writable=True, durability="rename"))
        mounts.append(MountedStore(name, store, writable=True, **options))
    with (
        served(create_app(build(mounts))) as url,
        httpx.Client(timeout=60) as http,
        RemoteGroup(url, connections=2) as group,
    ):
        yield Conformance(url, folder, http, group)


def decoded(answer: httpx.Response) -> Array:
    """The values of a raw answer, by what its headers say."""
    assert answer.status_code == 200, answer.text
    shape = json.loads(answer.headers[wire.ARRAY_SHAPE])
    if answer.headers["content-type"] == wire.OBJECTS:
        values = np.empty(len(items := wire.unpack_objects(answer.content)), object)
        for i, item in enumerate(items):
            values[i] = item
        return values.reshape(shape)
    return np.frombuffer(answer.content, wire.parse_dtype(answer.headers[wire.ARRAY_DTYPE])).reshape(shape)


def problem(answer: httpx.Response) -> dict[str, Any]:
    """The problem document of a refusal."""
    assert answer.headers["content-type"] == wire.PROBLEM, answer.text
    found: dict[str, Any] = answer.json()
    assert found["status"] == answer.status_code != 500, found
    return found

"""Where the array under test lives: behind the oracle, or behind the real server over files that zarr-python wrote."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import zarr

from hyperslab import RemoteArray
from tests.client.oracle_server import Oracle
from tests.server import running_server

Array = np.ndarray[Any, np.dtype[Any]]


class Host(Protocol):
    """Holds arrays and knows what is stored by other means than the client's."""

    @property
    def url(self) -> str: ...

    def add(self, values: Array, chunks: tuple[int, ...]) -> RemoteArray:
        """A remote array with these values."""
        ...

    def stored(self, array: RemoteArray) -> Array:
        """What is stored of it now."""
        ...


@dataclass
class OracleHost:
    oracle: Oracle
    names: Iterator[int] = field(default_factory=count)

    @property
    def url(self) -> str:
        return self.oracle.url

    def add(self, values: Array, chunks: tuple[int, ...]) -> RemoteArray:
        return RemoteArray(self.oracle.add(f"store/a{next(self.names)}", values, chunks))

    def stored(self, array: RemoteArray) -> Array:
        return self.oracle.arrays[array.path].values


@dataclass
class ServerHost:
    """``folder`` is served as the store ``store``."""

    url: str
    folder: Path
    names: Iterator[int] = field(default_factory=count)

    def add(self, values: Array, chunks: tuple[int, ...]) -> RemoteArray:
        name = f"a{next(self.names)}"
        written = zarr.create_array(
            self.folder / name, shape=values.shape, chunks=chunks, dtype=values.dtype, zarr_format=2, fill_value=0
        )
        written[...] = values
        return RemoteArray(f"{self.url}/v1/metadata/store/{name}")

    def stored(self, array: RemoteArray) -> Array:
        return np.asarray(zarr.open_array(self.folder / array.name, mode="r")[...])


@contextmanager
def server_host(folder: Path) -> Iterator[ServerHost]:
    """The real server, writable, in a process of its own."""
    folder.mkdir(exist_ok=True)
    with running_server({"store": {"url": str(folder), "writable": True}}) as server:
        yield ServerHost(server.url, folder)

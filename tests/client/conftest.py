"""What the client's tests are run against."""

from __future__ import annotations

import gc
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from hyperslab import RemoteArray, RemoteGroup
from hyperslab.asgi import create_app
from hyperslab.settings import Settings, StoreSettings
from tests.client.proxy import Proxy
from tests.server import served


@dataclass(frozen=True)
class Host:
    """The real application over a folder, ``store``, whose arrays zarr-python writes."""

    url: str
    folder: Path
    names: Iterator[int] = field(default_factory=count)

    def add(self, values: np.ndarray[Any, Any], chunks: tuple[int, ...]) -> RemoteArray:
        """A remote array with these values."""
        path = self.folder / f"a{next(self.names)}"
        written = zarr.create_array(
            path, shape=values.shape, chunks=chunks, dtype=values.dtype, zarr_format=2, fill_value=0
        )
        written[...] = values
        return RemoteArray(f"{self.url}/v1/metadata/store/{path.name}")

    def stored(self, array: RemoteArray) -> np.ndarray[Any, Any]:
        """What is stored of it now."""
        return np.asarray(zarr.open_array(self.folder / array.name, mode="r")[...])


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """An application for all tests of the client."""
    folder = tmp_path_factory.mktemp("store")
    store = StoreSettings(url=str(folder), writable=True, durability="rename")
    with served(create_app(Settings(stores={"store": store}))) as url:
        yield Host(url, folder)


@pytest.fixture
def proxy(host: Host) -> Iterator[Proxy]:
    """A fault proxy before the application, whose store is empty."""
    for path in host.folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with Proxy(host.url) as running, running.root:
        yield running


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Callable[..., Proxy]]:
    """Makes fault proxies before applications with the given settings, whose store is empty."""
    with ExitStack() as stack:

        def make(**settings: Any) -> Proxy:
            store = StoreSettings(url=str(tmp_path), writable=True, durability="rename")
            url = stack.enter_context(served(create_app(Settings(stores={"store": store}, **settings))))
            proxy = stack.enter_context(Proxy(url))
            stack.enter_context(proxy.root)
            return proxy

        yield make


@pytest.fixture
def group(host: Host, request: pytest.FixtureRequest) -> RemoteGroup:
    """A fresh group for a test."""
    return RemoteGroup(f"{host.url}/v1/metadata/store").create_group(request.node.originalname, mode="replace")


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Retries that do not sleep: the seconds that they would have waited."""
    waited: list[float] = []
    monkeypatch.setattr("hyperslab.client.transport.Cancel.pause", lambda _, seconds: waited.append(seconds))
    return waited


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where the tests run in the background, whose processes ignore it.

    No garbage is collected meanwhile: Python drops an interrupt that falls into the finalizer of an earlier test's
    connection, whatever is running (https://docs.python.org/3/library/signal.html, "handlers and exceptions").
    """
    gc.collect()
    gc.disable()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        gc.enable()

"""What the client's tests are run against."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.client.hosts import Host, OracleHost, server_host
from tests.client.oracle_server import Oracle, serve


@pytest.fixture
def oracle() -> Iterator[Oracle]:
    """A fresh oracle server on a port of its own."""
    with serve(Oracle()) as running:
        yield running


@pytest.fixture(scope="module", params=["oracle", "server"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Where arrays live, for the tests of a module: the oracle, and then the real server."""
    if request.param == "oracle":
        with serve(Oracle()) as running:
            yield OracleHost(running)
    else:
        with server_host(tmp_path_factory.mktemp("stores") / "store") as running_server:
            yield running_server


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Retries that do not sleep: the seconds that they would have waited."""
    waited: list[float] = []
    monkeypatch.setattr("hyperslab.client.transport.Cancel.pause", lambda _, seconds: waited.append(seconds))
    return waited


@pytest.fixture
def kept_garbage() -> Iterator[None]:
    """No garbage collected meanwhile: Python drops an interrupt that falls into the finalizer of an earlier test's
    connection, whatever is running (https://docs.python.org/3/library/signal.html, "handlers and exceptions")."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

"""What the client's tests are run against."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hyperslab.client import session
from tests.client.oracle_server import Oracle, serve


@pytest.fixture
def oracle() -> Iterator[Oracle]:
    """A fresh oracle server on a port of its own."""
    with serve(Oracle()) as running:
        yield running


@pytest.fixture(scope="module")
def shared_oracle() -> Iterator[Oracle]:
    """One oracle server for the tests of a module that only add arrays."""
    with serve(Oracle()) as running:
        yield running


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Retries that do not sleep: the seconds that they would have waited."""
    waited: list[float] = []
    monkeypatch.setattr(session.time, "sleep", waited.append)
    return waited

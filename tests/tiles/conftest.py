"""Tiles of what a test writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hyperslab.tiles.service import Tiles
from tests.tiles.support import tiles_on


@pytest.fixture
def tiles(tmp_path: Path) -> Iterator[Tiles]:
    """Of the test's folder, as the store ``data``."""
    with tiles_on(tmp_path) as tiles:
        yield tiles

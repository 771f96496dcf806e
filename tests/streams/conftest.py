"""A server with one writable store, a folder or a bucket."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.s3 import S3Server, s3_server
from tests.streams.support import Lab, lab_of

__all__ = ["s3_server"]


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server) -> Iterator[Lab]:
    """The store ``lab`` of a server: a folder, or with the parameter ``bucket`` one of those."""
    with lab_of(getattr(request, "param", "folder"), tmp_path_factory.mktemp("lab"), s3_server) as found:
        yield found


@pytest.fixture
def client(lab: Lab) -> httpx.Client:
    return lab.client

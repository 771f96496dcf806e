"""Two replicas of eight worker processes each, over the same folder and the same bucket."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.s3 import S3Server
from tests.server import Server, running_server

WORKERS = 8


@pytest.fixture(scope="session")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that both replicas serve as ``disk``."""
    return tmp_path_factory.mktemp("disk")


@pytest.fixture(scope="session")
def replicas(disk: Path, s3_server: S3Server) -> Iterator[list[Server]]:
    """Both serve the stores ``disk`` and ``bucket``; nothing else connects them."""
    s3_bucket = s3_server.new_bucket()
    stores = {
        "disk": {"url": str(disk), "writable": True, "durability": "rename"},
        "bucket": {"url": s3_bucket.url, "writable": True, "options": dict(s3_bucket.options)},
    }
    start = partial(running_server, stores, workers=WORKERS, request_threads=4, cache_bytes=8 << 20)
    with start() as first, start() as second:
        yield [first, second]

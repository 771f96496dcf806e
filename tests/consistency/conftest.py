"""Two replicas over the same folder and the same bucket, of two worker processes each unless a file asks for more."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.s3 import S3Server
from tests.server import Server, running_server


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that both replicas serve as ``disk``."""
    return tmp_path_factory.mktemp("disk")


@pytest.fixture(scope="module")
def replicas(disk: Path, s3_server: S3Server, request: pytest.FixtureRequest) -> Iterator[list[Server]]:
    """Both serve the stores ``disk`` and ``bucket``; nothing else connects them."""
    s3_bucket = s3_server.new_bucket()
    stores = {
        "disk": {"url": str(disk), "writable": True, "durability": "rename"},
        "bucket": {"url": s3_bucket.url, "writable": True, "options": dict(s3_bucket.options)},
    }
    workers = getattr(request.module, "WORKERS", 2)
    start = partial(running_server, stores, workers=workers, request_threads=4, cache_bytes=8 << 20)
    with start() as first, start() as second:
        yield [first, second]

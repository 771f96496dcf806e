"""Two replicas over the same folder and the same bucket, of two worker processes each unless a file asks for more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from hyperslab.arrays import lease
from tests.faults import Before, FaultProxy
from tests.s3 import S3Bucket, S3Server
from tests.server import Server, running_server

TakeOver = Callable[[FaultProxy], None]


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that both replicas serve as ``disk``."""
    return tmp_path_factory.mktemp("disk")


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> S3Bucket:
    """The bucket that both replicas serve as ``bucket``."""
    return s3_server.new_bucket()


@pytest.fixture(scope="module")
def replicas(disk: Path, bucket: S3Bucket, request: pytest.FixtureRequest) -> Iterator[list[Server]]:
    """Both serve the stores ``disk`` and ``bucket``; nothing else connects them."""
    stores = {
        "disk": {"url": str(disk), "writable": True, "durability": "rename"},
        "bucket": {"url": bucket.url, "writable": True, "options": dict(bucket.options)},
    }
    workers = getattr(request.module, "WORKERS", 2)
    start = partial(running_server, stores, workers=workers, request_threads=4, cache_bytes=8 << 20)
    with start() as first, start() as second:
        yield [first, second]


@pytest.fixture
def take_over(monkeypatch: pytest.MonkeyPatch) -> TakeOver:
    """Has the clock of leases go forward by more than their term when the next who waits for one has seen it."""
    ahead = [0.0]
    clock = vars(time) | {"monotonic": lambda: time.monotonic() + ahead[-1]}
    monkeypatch.setattr(lease, "time", SimpleNamespace(**clock))

    def arm(proxy: FaultProxy) -> None:
        for action in (lambda: None, lambda: ahead.append(ahead[-1] + lease._TERM + 1)):
            proxy.inject(Before(action), method="GET", path="/lease/")

    return arm

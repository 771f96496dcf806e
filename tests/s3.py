"""Fixtures that give tests real buckets on a real server, one for each process of tests.

def test_something(s3_bucket):
    store = open_store(s3_bucket.config(writable=True))
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest

from hyperslab.storage import StoreConfig

_SCRIPT = Path(__file__).with_name("s3_server.py")


@dataclass(frozen=True, slots=True)
class S3Bucket:
    """A bucket: what to put into a store's configuration."""

    name: str
    url: str
    options: Mapping[str, str]

    def at(self, endpoint: str) -> S3Bucket:
        """The same bucket, reached through another address (a `tests.faults.FaultProxy`)."""
        return replace(self, options={**self.options, "endpoint": endpoint})

    def config(self, **values: Any) -> StoreConfig:
        """A configuration of a store on the whole bucket: quick to give up unless ``values`` say otherwise."""
        chosen: dict[str, Any] = {"name": "bucket", "url": self.url, "timeout": 60.0, "retries": 2, **values}
        return StoreConfig(**{**chosen, "options": {**self.options, **chosen.get("options", {})}})


class S3Server:
    """A running server. ``url`` is its endpoint, ``client`` a boto3 client: the tests' other way into a bucket."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id="test-access-key",
            aws_secret_access_key="test-secret-key",
        )

    def new_bucket(self) -> S3Bucket:
        """An empty bucket of a new name."""
        name = f"bucket-{uuid4().hex[:12]}"
        self.client.create_bucket(Bucket=name)
        options = {
            "endpoint": self.url,
            "region": "us-east-1",
            "access_key_id": "test-access-key",
            "secret_access_key": "test-secret-key",
        }
        return S3Bucket(name, f"s3://{name}", options)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One server for all tests of this process."""
    command = [sys.executable, str(_SCRIPT)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield S3Server(f"http://127.0.0.1:{int(process.stdout.readline())}")
        process.stdin.close()
        process.wait(timeout=60)


@pytest.fixture
def s3_bucket(s3_server: S3Server) -> S3Bucket:
    """A bucket of its own for one test."""
    return s3_server.new_bucket()

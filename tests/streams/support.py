"""Settings of streams for tests, and stores for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from hyperslab.asgi import create_app
from hyperslab.settings import Settings, StoreSettings
from tests.s3 import S3Bucket, S3Server
from tests.server import running_server, served


@dataclass(frozen=True, slots=True)
class Place:
    """Where streams are written: a folder, or a bucket, of which ``folder`` is a copy."""

    folder: Path
    bucket: S3Bucket | None
    s3: S3Server
    copied: dict[str, str] = field(default_factory=dict)
    """Of each object in the copy, its ETag."""

    @property
    def store(self) -> Mapping[str, Any]:
        """The members of a store's settings."""
        if self.bucket is None:
            return {"url": str(self.folder), "writable": True, "durability": "rename"}
        return {"url": self.bucket.url, "writable": True, "options": dict(self.bucket.options)}

    def files(self) -> Path:
        """A folder with what the store holds now, as other programs see it."""
        if self.bucket is not None:
            pages = self.s3.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket.name)
            found = {each["Key"]: each["ETag"] for page in pages for each in page.get("Contents", [])}
            for key in self.copied.keys() - found.keys():
                (self.folder / key).unlink()
            for key in [key for key, tag in found.items() if self.copied.get(key) != tag]:
                (self.folder / key).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / key).write_bytes(self.read(key))
            self.copied.clear()
            self.copied.update(found)
        return self.folder

    def read(self, key: str) -> bytes:
        """What the store holds under a key."""
        if self.bucket is None:
            return (self.folder / key).read_bytes()
        body: bytes = self.s3.client.get_object(Bucket=self.bucket.name, Key=key)["Body"].read()
        return body


@dataclass(frozen=True, slots=True)
class Lab:
    """A server with a store ``lab``, and a client of it."""

    place: Place
    client: httpx.Client


def place_of(kind: str, folder: Path, s3: S3Server) -> Place:
    """An empty folder or ``bucket``."""
    return Place(folder, s3.new_bucket() if kind == "bucket" else None, s3)


@contextmanager
def lab_of(kind: str, folder: Path, s3: S3Server) -> Iterator[Lab]:
    """A server on an empty folder or ``bucket``."""
    place = place_of(kind, folder, s3)
    with running_server({"lab": place.store}) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        yield Lab(place, client)


@contextmanager
def client_of(store: Mapping[str, Any], **options: Any) -> Iterator[httpx.Client]:
    """A client of a server in this process with the store ``lab``."""
    app = create_app(Settings(stores={"lab": StoreSettings(**store)}, **options))
    with served(app) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


def dimension(name: str, size: int | None, chunk: int = 4, **others: Any) -> dict[str, Any]:
    """A dimension; its type follows from its name."""
    return {
        "name": name,
        "type": {"t": "time", "c": "channel"}.get(name, "space"),
        "size": size,
        "chunk": chunk,
        **others,
    }


def image(key: str, **members: Any) -> dict[str, Any]:
    """An array of dimensions t, c, y, x with a pyramid."""
    sizes = [dimension("t", None, 2), dimension("c", 2, 1), dimension("y", 10, scale=0.5), dimension("x", 9)]
    return {"key": key, "dtype": "<u2", "dimensions": sizes, "fill_value": 7, "pyramid": {"method": "mean"}, **members}


def plate(key: str) -> dict[str, Any]:
    """A plate of four wells, of which one has two fields."""
    array = {"dtype": "<f4", "dimensions": [dimension("y", 10), dimension("x", 9)], "pyramid": {"method": "max"}}
    fields = [{"key": name, "acquisition": 3, "array": array} for name in ("0", "1")]
    wells = [{"row": "A", "column": "1", "fields": fields}, {"row": "B", "column": "2", "fields": fields[:1]}]
    acquisitions = [{"id": 3, "name": "first", "starttime": 0, "endtime": 1}]
    return {
        "key": key,
        "name": "P",
        "rows": ["A", "B"],
        "columns": ["1", "2"],
        "wells": wells,
        "acquisitions": acquisitions,
    }

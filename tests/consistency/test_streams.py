"""An answer that is under way when its array is changed: the bytes of one version and no others, or cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import pytest

from hyperslab import RemoteArray
from hyperslab.api import slices
from hyperslab.api.app import create_app
from hyperslab.arrays import plan
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import Service, build
from hyperslab.errors import ArrayChanged, ChangedWhileRead
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import MAX_BYTES, StoredValue
from hyperslab.storage.local import LocalStore
from tests.faults import Before, FaultProxy
from tests.s3 import S3Server
from tests.server import served

SLICE = "/v1/slice/data/a"
ROWS, MIDDLE, LAST, FILL = 16, 6, 14, 15
"""Chunks, one a row: what is changed when the middle one is about to be read, and the last, which is not stored."""
STORED = {"folder, small chunks": 128 << 10, "folder, large chunks": 512 << 10, "bucket": 128 << 10}
SMALL = [kind for kind in STORED if "large" not in kind]


@dataclass(frozen=True, slots=True)
class Scene:
    """A service under test, which reads ``row`` bytes of every chunk; another one that writes; and how to let it do
    so when a chunk is about to be read."""

    url: str
    writer: Service
    row: int
    when_read: Callable[[int, Callable[[], object]], None]

    @property
    def old(self) -> bytes:
        return b"\1" * self.row * FILL + b"\0" * self.row

    def write(self, value: int, rows: slice = slice(0, FILL)) -> None:
        self.writer.writer.write("data/a", (rows,), np.array(value, "u1"))

    def read(self, headers: dict[str, str] | None = None) -> tuple[httpx.Response, bytes]:
        """An answer, and as much of its body as comes."""
        body = bytearray()
        with httpx.stream("GET", self.url + SLICE, headers=headers, timeout=60) as answer:
            try:
                for piece in answer.iter_raw():
                    body += piece
            except httpx.RemoteProtocolError:
                assert len(body) < int(answer.headers["content-length"])
        return answer, bytes(body)


@pytest.fixture(params=SMALL)
def scene(
    request: pytest.FixtureRequest, tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    row = STORED[request.param]
    monkeypatch.setattr(slices, "_MAX_REMOTE_BYTES", row)  # what is larger is streamed
    with FaultProxy(s3_server.url) as proxy:
        if request.param == "bucket":
            bucket = s3_server.new_bucket()
            config, reading = (bucket.at(url).config(name="data", writable=True) for url in (s3_server.url, proxy.url))
        else:
            config = reading = StoreConfig("data", str(tmp_path), writable=True, durability="rename")
        writer = build([MountedStore("data", open_store(config), writable=True)])
        service = build([MountedStore("data", open_store(reading), writable=True)], cache_bytes=0, slab_bytes=2 * row)
        shape, chunks = [ROWS, row], [1, row]
        definition = {"shape": shape, "chunks": chunks, "dtype": "|u1", "compressor": None, "fill_value": 0}
        writer.creator.create_array("data/a", definition)
        when_read = _before_file(monkeypatch) if request.param != "bucket" else _before_request(proxy)
        with served(create_app(service)) as url:
            found = Scene(url, writer, row, when_read)
            found.write(1)
            yield found
        writer.close()


def _before_file(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], object]], None]:
    """For small and for large chunks of a folder."""
    waiting: dict[str, Callable[[], object]] = {}

    get = LocalStore.get

    def hooked(store: LocalStore, key: str, max_bytes: int = MAX_BYTES) -> StoredValue | None:
        waiting.pop(key, bool)()
        return get(store, key, max_bytes)

    monkeypatch.setattr(LocalStore, "get", hooked)
    return lambda row, action: waiting.__setitem__(f"a/{row}.0", action)


def _before_request(proxy: FaultProxy) -> Callable[[int, Callable[[], object]], None]:
    return lambda row, action: proxy.inject(Before(action), method="GET", path=f"/a/{row}.0")


def replaced(scene: Scene) -> None:
    definition = {"shape": [ROWS, scene.row // 2], "chunks": [1, scene.row // 2], "dtype": "<u2", "compressor": None}
    scene.writer.creator.create_array("data/a", definition, mode="replace")
    scene.writer.writer.write("data/a", (), np.array(777, "<u2"))


def there_and_back(scene: Scene) -> None:
    scene.write(2)
    scene.write(1)


CHANGES: dict[str, tuple[Callable[[Scene], object], int]] = {
    "another value": (partial(Scene.write, value=2, rows=slice(LAST, FILL)), 200),
    "back again": (there_and_back, 200),
    "deleted": (lambda scene: scene.writer.creator.delete("data/a"), 404),
    "shrunk": (lambda scene: scene.writer.resizer.resize("data/a", [LAST, None]), 200),
    "replaced": (replaced, 200),
}
"""What somebody does meanwhile, and the status of the next answer."""


@pytest.mark.parametrize(
    ("scene", "change", "many"),
    [
        *[(kind, change, False) for kind in SMALL for change in CHANGES],
        *[(kind, "shrunk", True) for kind in SMALL],
        ("folder, large chunks", "another value", False),
    ],
    indirect=["scene"],
)
def test_a_body_is_of_one_version_or_cut_and_not_resumed(
    scene: Scene, change: str, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if many:  # of which only hashes of the versions are kept
        monkeypatch.setattr(plan, "MAX_VERSIONS", 0)
    act, status = CHANGES[change]
    scene.when_read(MIDDLE, lambda: act(scene))
    answer, body = scene.read()

    assert answer.status_code == 200
    assert body == scene.old[: len(body)]
    if change == "back again" and len(body) == len(scene.old):  # to a bucket the same bytes are the same version
        return
    assert scene.row <= len(body) < len(scene.old)
    resumed, whole = scene.read({"Range": f"bytes={len(body)}-", "If-Range": answer.headers["etag"]})
    assert resumed.status_code == status
    assert status == 404 or b"\0" not in whole[: scene.row * LAST]


def test_what_is_written_first_meanwhile_is_not_in_the_answer_or_cuts_it(scene: Scene) -> None:
    scene.when_read(MIDDLE, lambda: scene.write(2, slice(FILL, ROWS)))
    answer, body = scene.read()

    assert body == scene.old[: len(body)]
    again, _ = scene.read({"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 200


@pytest.mark.parametrize("ranges", ["bytes={}-", "bytes=0-9,{}-"], ids=["one part", "several parts"])
def test_parts_are_of_one_version_too(scene: Scene, ranges: str) -> None:
    scene.when_read(MIDDLE, lambda: scene.write(2))
    _, body = scene.read({"Range": ranges.format(scene.row)})

    assert b"\1" in body
    assert b"\2" not in body
    assert body.count(1) < scene.row * FILL


def test_the_client_reads_afresh_what_was_changed_under_it(scene: Scene) -> None:
    array = RemoteArray(f"{scene.url}/v1/metadata/data/a")
    scene.when_read(MIDDLE, lambda: scene.write(2))

    values = array[:FILL]

    assert np.unique(values).tolist() == [2]


def test_the_client_says_that_the_array_is_another_one(scene: Scene) -> None:
    array = RemoteArray(f"{scene.url}/v1/metadata/data/a")
    scene.when_read(MIDDLE, lambda: replaced(scene))

    with pytest.raises(ArrayChanged):
        array[...]


def test_where_every_attempt_meets_a_writer_a_small_answer_has_a_tag_of_its_own(scene: Scene) -> None:
    values = iter(range(2, 100))

    def again() -> None:
        scene.when_read(0, again)
        scene.write(next(values), slice(0, 1))

    scene.when_read(0, again)
    first = httpx.get(f"{scene.url}{SLICE}", params={"select": "0:1"}, headers={"If-Match": "*"})
    large = httpx.get(f"{scene.url}{SLICE}", timeout=60)
    scene.when_read(0, bool)
    same = {"If-None-Match": first.headers["etag"]}
    second = httpx.get(f"{scene.url}{SLICE}", params={"select": "0:1"}, headers=same)

    assert first.status_code == second.status_code == 200
    assert len(set(first.content)) == 1
    assert (large.status_code, large.json()["code"]) == (503, ChangedWhileRead.code)
    assert large.headers["retry-after"] == "1"

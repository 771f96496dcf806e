"""Requests that nobody would send on purpose: each gets an answer of its own, and none a 500.

A few, as `tests.api.test_corpus` has hundreds, unless more are asked for, which differ each time:
``FUZZ=20000 python -m pytest tests/api/test_fuzz.py``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random, SystemRandom

import numpy as np
import pytest

from hyperslab.api.app import create_app
from hyperslab.api.options import ApiOptions
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import build
from hyperslab.server import PROTOCOL
from hyperslab.storage import StoreConfig, open_store
from tests.api.odd_requests import Asked, reading, writing
from tests.api.support import dial, restore, write_array
from tests.server import served

HOW_MANY = int(os.environ.get("FUZZ", "0"))
FIRST = SystemRandom().getrandbits(48) if HOW_MANY else 0
BROKEN = ("broken", "nojson", "text")


def fill(folder: Path) -> None:
    """Write every kind of array, and some that are broken."""
    write_array(folder, "cube", np.arange(24_000, dtype="<u2").reshape(20, 30, 40), (8, 16, 16))
    write_array(folder, "group/f", np.linspace(-1, 1, 63, dtype=">f4").reshape(7, 9), (3, 4))
    write_array(folder, "scalar", np.array(42, "<i8"), ())
    write_array(folder, "empty", np.zeros((0, 5), "<f4"), (1, 5))
    write_array(folder, "flags", np.array([True, False]), (2,))
    write_array(folder, "times", np.array([1, 2, 3], "<M8[s]"), (2,))
    largest = np.finfo("<f8").max
    extremes = np.array([[np.nan, np.inf, -np.inf, 5e-324], [largest, -largest, 0, -0.0]])
    write_array(folder, "extremes", extremes, (1, 4))
    write_array(folder, "moments", np.array([[-(2**63), 2**63 - 1], [1 - 2**63, 0]]).view("<M8[s]"), (2, 2))
    for name, dtype, chunk, members in (
        ("table", [["id", "<i4"], ["pos", "<f8", [3]], ["n\xe4me", "|S4"]], bytes(128), {}),
        ("text", "<U2", b"\xff" * 32, {"fill_value": ""}),
        ("void", "|V8", b"\xff\0\x80\x01" * 8, {"order": "F"}),
        ("objects", "|O", b'[1,{"a":NaN},null,[2],"|O",[4]]', {"filters": [{"id": "json2"}]}),
        ("broken", "<i4", b"junk", {"compressor": {"id": "zlib", "level": 1}}),
    ):
        plain = {"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": dtype, "order": "C", "fill_value": None}
        (folder / name).mkdir()
        document = {**plain, "compressor": None, "filters": None, **members}
        (folder / name / ".zarray").write_text(json.dumps(document))
        (folder / name / "0").write_bytes(chunk)
    (folder / "nojson").mkdir()
    (folder / "nojson" / ".zarray").write_text("{")


@contextmanager
def serving(folder: Path, *, writable: bool) -> Iterator[str]:
    config = StoreConfig(name="data", url=str(folder), writable=writable, durability="rename")
    service = build([MountedStore("data", open_store(config), writable=writable)])
    with served(create_app(service, ApiOptions(max_upload_bytes=1 << 20)), http=PROTOCOL) as url:
        yield url


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    fill(folder)
    return folder


def ask(url: str, asked: Asked) -> tuple[bytes, bytes]:
    """Head and body of the answer, right behind which there is that to a second request on the same connection."""
    with dial(url) as connection:
        connection.sendall(asked.sent() + b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        received = b""
        while piece := connection.recv(1 << 16):
            received += piece
    head, _, rest = received.partition(b"\r\n\r\n")
    body = rest[: body_size(asked, head)]
    if b"\r\nconnection: close" not in head.lower():
        assert rest[len(body) :].startswith(b"HTTP/1.1 200 OK\r\n"), (asked, received)
    return head, body


def body_size(asked: Asked, head: bytes) -> int:
    if asked.method == "HEAD" or head.startswith((b"HTTP/1.1 204", b"HTTP/1.1 304")):
        return 0
    size = re.search(rb"\r\ncontent-length: (\d+)", head.lower())
    return int(size[1]) if size else 1 << 62


def check(asked: Asked, head: bytes, body: bytes) -> int:
    """Demand what holds for every answer; returns its status."""
    assert head.startswith(b"HTTP/1.1 "), asked
    status = int(head.split(b" ")[1])
    lines = head.lower()
    assert status not in (301, 302, 307, 308, 500), (asked, body)
    assert b"access-control-allow-origin" in lines or b"vary: origin" in lines, (asked, head)
    if asked.method != "HEAD":
        assert len(body) == body_size(asked, head), (asked, "cut")
        if status >= 400:
            assert b"application/problem+json" in lines, (asked, head)
            check_problem(asked, status, body)
    return status


def check_problem(asked: Asked, status: int, body: bytes) -> None:
    document = json.loads(body)
    assert document["status"] == status, asked
    assert document["title"], asked
    assert b"Traceback" not in body, asked
    if status >= 502:
        assert document["code"] in ("bad-metadata", "chunk-corrupt"), (asked, document)
        assert any(name in document["key"] for name in BROKEN), (asked, document)


def seeds() -> Iterator[int]:
    """What requests are made from: printed, for the one that fails to be seen and made again."""
    for seed in range(FIRST, FIRST + (HOW_MANY or 50)):
        print(f"seed {seed}")
        yield seed


def test_any_request_to_a_store_that_is_read_only_has_an_answer_of_its_own(original: Path) -> None:
    with serving(original, writable=False) as url:
        for seed in seeds():
            asked = reading(Random(seed))
            head, body = ask(url, asked)
            if check(asked, head, body) == 200:  # the second time it may be what was cached of the first
                again, same = ask(url, asked)
                assert (again.partition(b"\r\n")[0], same) == (head.partition(b"\r\n")[0], body), asked


def test_any_request_to_a_store_that_can_be_written_has_an_answer_of_its_own(original: Path, tmp_path: Path) -> None:
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    with serving(tmp_path, writable=True) as url:
        for seed in seeds():
            asked = writing(Random(seed))
            if check(asked, *ask(url, asked)) < 300:
                restore(original, tmp_path)

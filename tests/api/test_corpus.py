"""The recorded answers of the HTTP interface: the same requests are to get the same answers.

``corpus.jsonl.gz`` has a line for each exchange: the request, and of its answer the status, the headers (without times,
tags and the state of caches) and a digest of the body. A difference is a change of the contract: either a fault, or one
that the changelog names, and then ``python -m tests.api.test_corpus`` records all answers again. Each request has an
answer of its own, and none a 500: ``FUZZ=20000 python -m pytest tests/api/test_corpus.py`` tries others.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, Final

import numpy as np
import zarr
from PIL import Image

from hyperslab.api.app import create_app
from hyperslab.api.options import ApiOptions
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import build
from hyperslab.demo import demo_folder
from hyperslab.storage import StoreConfig, open_store
from tests.api.odd_requests import Asked, reading, writing
from tests.api.support import dial, restore, write_array
from tests.demos import demo_parent
from tests.server import served

HOW_MANY: Final = int(os.environ.get("FUZZ", "0"))
BROKEN: Final = ("broken", "nojson", "text")
CORPUS: Final = Path(__file__).with_name("corpus.jsonl.gz")
_VOLATILE: Final = {"date", "server", "server-timing", "content-length", "last-modified", "etag", "connection"}
_TAG: Final = re.compile(r"[0-9a-f]{24}|[0-9a-f]{16}-[0-9a-f]+-[0-9a-f]+-[0-9a-f]{16}")
NODES: Final = ("events", "signal", "stations", "speed_of_light", "climate/sst", "climate/time", "brain")
STYLES: Final = {
    "brain": ("z=5", "axes=z,y&colormap_name=viridis&c=0", "invert=true&nodata=0", "bg=FF0000", "bogus=1"),
    "microscope": ("c=0&c=1&color=FF0000&color=00FF00", "labels=nuclei&opacity=0.5", "c=1&colormap_name=magma", "z=1"),
    "climate/sst": ("time=5&decode=cf", "colormap_name=coolwarm&c=0", "flip=lat", "time=-1"),
}
"""Parameters of tiles that fit each picture of the demo store, and some that do not."""


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
    if body == b"Invalid HTTP request received.":  # uvicorn's, to what is no HTTP
        return status
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


def plain(target: str, method: str = "GET", **headers: str) -> Asked:
    return Asked(method, target.encode(), {name.replace("_", "-"): value for name, value in headers.items()}, b"")


def demo_requests() -> Iterator[Asked]:
    """Requests that people send, over every route and format, to the demo store."""
    yield from metadata_requests()
    yield from slice_requests()
    yield from chunk_requests()
    yield from tile_requests()
    for target in ("/healthz", "/readyz", "/view/demo", "/docs/none", "/nothing", "/v1/points/x"):
        yield plain(target)
        yield plain(target, "HEAD")
        yield plain(target, "DELETE")


def metadata_requests() -> Iterator[Asked]:
    for node in [*NODES, "microscope/0", "", "climate", "microscope", "microscope/labels", "plate", "nothing"]:
        yield plain(f"/v1/metadata/demo/{node}".rstrip("/"))
        yield plain(f"/v1/metadata/demo/{node}?field=attributes&limit=2".replace("/?", "?"))
        yield plain(f"/v1/tile/demo/{node}/info.json")
        yield plain(f"/v1/tile/demo/{node}/thumbnail.png")
        for key in (".zarray", ".zgroup", ".zattrs", ".zmetadata", "zarr.json"):
            yield plain(f"/zarr/demo/{node}/{key}".replace("//", "/"))


def slice_requests() -> Iterator[Asked]:
    for node in NODES:
        for select in ("0", "-1", "::40", "[0,2,1]", "...,0", "1:1", "0,0", "99999999"):
            for kind in ("raw", "npy", "json", "csv"):
                yield plain(f"/v1/slice/demo/{node}?select={select}&format={kind}")
            yield plain(f"/v1/plan/demo/{node}?select={select}&box_bytes=100000")
        first = f"/v1/slice/demo/{node}?select=0"
        yield plain(f"{first}&dtype=<f8&format=json")
        yield plain(f"{first}&format=json", "HEAD")
        yield plain(f"{first}&decode=cf&format=npy")
        yield plain(first, Range="bytes=0-3")
        yield plain(first, If_None_Match="*")
        yield plain(first, If_Match='"x"')
        yield plain(first, "OPTIONS")
    for target in ("events?select=:3&field=energy&format=json", "events?select=:3&field=nope", "events?select=:2"):
        yield plain(f"/v1/slice/demo/{target}")


def chunk_requests() -> Iterator[Asked]:
    for key in ("brain/1.2.1", "events/0", "climate/sst/0.0.0", "microscope/0/0/0/0/0", "brain/0.0.0", "brain/99.0.0"):
        for kind in ("", "?format=raw", "?format=npy", "?format=stored", "?dtype=x"):
            yield plain(f"/v1/chunk/demo/{key.replace('/0/0/0/0/0', '/0/0.0.0.0')}{kind}")
        yield plain(f"/zarr/demo/{key}", Range="bytes=0-9")
        yield plain(f"/zarr/demo/{key}", "HEAD")


def tile_requests() -> Iterator[Asked]:
    for node, styles in STYLES.items():
        for style in (*styles, "", "rescale=0,100", "rescale=auto", "gamma=2", "tile_size=100", "size=64"):
            for tile in ("0/0/0.png", "1/0/0.webp", "0/0/0.npy", "thumbnail.png", "histogram.json", "legend.png"):
                yield plain(f"/v1/tile/demo/{node}/{tile}?{style}")
        for image in ("info.json", "full/max/0/default.png", "0,0,50,40/25,/0/default.png", "full/64,/90/gray.png"):
            yield plain(f"/v1/tile/iiif/demo/{node}/{image}")
        yield plain(f"/v1/tile/demo/{node}/dzi.dzi")


def requests() -> Iterator[tuple[str, Asked]]:
    """Every request with the store that it goes to: ``demo``, ``odd`` (read-only) or ``written`` (made anew after)."""
    yield from (("demo", asked) for asked in demo_requests())
    yield from (("odd", reading(Random(seed))) for seed in range(900_000, 900_500))
    yield from (("written", writing(Random(seed))) for seed in range(910_000, 910_350))


def recorded(asked: Asked, head: bytes, body: bytes) -> dict[str, Any]:
    """What of an answer is to stay."""
    line, *rest = head.decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in rest if line)
    status = int(line.split(" ")[1])
    kept = {name: value for name, value in headers.items() if name not in _VOLATILE}
    kept |= {name: "present" for name in ("etag", "last-modified") if name in headers}
    if "array-chunks" in kept:
        kept["array-chunks"] = kept["array-chunks"].partition(",")[0]
    kept = {name: _TAG.sub("TAG", value) for name, value in sorted(kept.items())}
    kept.pop("timing-allow-origin", None)  # always as access-control-allow-origin
    exposed = {name: value for name, value in kept.items() if not name.startswith("access-control-")}
    exposed["cors"] = hashlib.sha256(repr([kept.get(n) for n in kept if n not in exposed]).encode()).hexdigest()[:8]
    return {"status": status, "headers": exposed, "body": digest(headers.get("content-type", ""), asked, body)}


def digest(media_type: str, asked: Asked, body: bytes) -> Any:
    """The facts of a problem, the pixels of a picture, and a digest of all others."""
    if asked.method == "HEAD" or not body or media_type.startswith("multipart/"):  # whose boundary is random
        return len(body)
    if media_type == "application/problem+json":
        facts = json.loads(_TAG.sub("TAG", body.decode()))
        return {name: _fact(value) for name, value in sorted(facts.items()) if name != "title"}
    if media_type.startswith("text/html"):  # a page for people, in words that may change
        return "page"
    if media_type in ("image/jpeg", "image/webp"):  # their bytes are those of a version of a library
        return list(Image.open(io.BytesIO(body)).size)
    if media_type == "image/png":
        body = np.asarray(Image.open(io.BytesIO(body)).convert("RGBA")).tobytes()
    if media_type == "application/json":
        body = _TAG.sub("TAG", body.decode()).encode()
    return hashlib.sha256(body).hexdigest()[:16]


def _fact(value: Any) -> Any:
    """Sentences may be put in better words."""
    return "text" if isinstance(value, str) and " " in value else value


def answers(asked_for: Iterable[tuple[str, Asked]]) -> Iterator[tuple[str, Asked, dict[str, Any]]]:
    """Requests with their answers of today."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        for store in ("odd", "written"):
            (folder / store).mkdir()
            fill(folder / store)
        shutil.copytree(folder / "odd", folder / "original")
        apps: dict[str, Callable[[], Any]] = {
            "demo": lambda: _app(demo_with_plain_values(folder), "demo"),
            "odd": lambda: _app(folder / "odd", "data"),
            "written": lambda: _app(folder / "written", "data", writable=True),
        }
        urls: dict[str, str] = {}
        for store, asked in asked_for:
            if store not in urls:
                urls[store] = stack.enter_context(served(apps[store]()))
            head, body = ask(urls[store], asked)
            answer = recorded(asked, head, body)
            yield store, asked, answer
            if store != "demo":
                check(asked, head, body)
            if store == "odd" and answer["status"] == 200:  # the second time it may be what was kept of the first
                again, same = ask(urls[store], asked)
                assert (again.partition(b"\r\n")[0], same) == (head.partition(b"\r\n")[0], body), asked
            if store == "written" and answer["status"] < 300:
                restore(folder / "original", folder / "written")


def demo_with_plain_values(folder: Path) -> Path:
    """A copy of the demo store whose numbers are the same on every machine: its sines and exponentials differ
    from processor to processor in the last bit."""
    copy = folder / "demo"
    shutil.copytree(demo_folder(demo_parent()), copy)
    for document in sorted([*copy.rglob(".zarray"), *copy.rglob("zarr.json")]):
        array = zarr.open(document.parent, mode="r+")
        if isinstance(array, zarr.Array) and array.ndim > 1 and array.dtype.kind in "uf":
            values = np.arange(4093) * 7919 % 4093
            values = np.where(values % 17 == 0, np.nan, values / 128) if array.dtype.kind == "f" else values
            array[...] = np.resize(values.astype(array.dtype), array.shape)
    return copy


def _app(folder: Path, name: str, *, writable: bool = False) -> Any:
    config = StoreConfig(name=name, url=str(folder), writable=writable, durability="rename")
    return create_app(
        build([MountedStore(name, open_store(config), writable=writable)]), ApiOptions(max_upload_bytes=1 << 20)
    )


def lines() -> Iterator[str]:
    for store, asked, answer in answers(requests()):
        body = base64.b64encode(asked.body[:60]).decode() + (f"+{len(asked.body)}" if len(asked.body) > 60 else "")
        sent = [store, asked.method, asked.target.decode("latin-1"), asked.headers, body]
        yield json.dumps([sent, answer], sort_keys=True)


def test_every_recorded_request_has_the_recorded_answer() -> None:
    expected = gzip.decompress(CORPUS.read_bytes()).decode().splitlines()

    found = list(lines())

    different = [(old, new) for old, new in zip(expected, found, strict=True) if old != new]
    assert not different, "\n".join(f"- {old}\n+ {new}" for old, new in different[:20]) + f"\n{len(different)} in all"


def test_any_request_has_an_answer_of_its_own() -> None:
    """Seeds are printed, for the request that fails to be seen and made again."""
    first = SystemRandom().getrandbits(48) if HOW_MANY else 0

    def asked_for() -> Iterator[tuple[str, Asked]]:
        for seed in range(first, first + (HOW_MANY or 5)):
            print(f"seed {seed}")
            yield "odd", reading(Random(seed))
            yield "written", writing(Random(seed))

    assert len([*answers(asked_for())]) == 2 * (HOW_MANY or 5)


if __name__ == "__main__":
    CORPUS.write_bytes(gzip.compress("\n".join(lines()).encode(), mtime=0))

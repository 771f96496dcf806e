"""Requests that nobody would send on purpose, made of what servers trip over."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import numpy as np

from tests.api.support import saved

T = TypeVar("T")


def words(text: str) -> list[str]:
    return text.split()


FIRST_CHUNKS = (
    {"cube": "0.0.0", "group": "f/0.0", "new/a": "0"}
    | dict.fromkeys(words("group/f empty extremes moments"), "0.0")
    | dict.fromkeys(words("scalar flags times table text void objects broken nojson"), "0")
)
"""The nodes of the store (but for ``new/a``), and a key below each."""
BAD = words(
    "data nope data/nope data/cube/x data//cube /data/cube/ data/./cube data/../x data/%2e%2e/x data/a%2Fb data/a%00b "
    "data/%ff data/cube%0a data/.hyperslab data/.zgroup data/cube/.zarray DATA/cube data/\\cube data/%E2%80%AE "
    "data/cube;x=1 data/{x} data/%zz"
)
CHUNKS = words(
    "0.0.0 0 0.0 -1 9.9.9 a 0.0. .. 00.0.0 0/0/0 0.0.0.0 %20 99999999999999999999.0.0 .zarray .zgroup .zattrs "
    ".zmetadata zarr.json"
)
IMAGES = words(
    "info.json full/max/0/default.jpg 0,0,5,5/max/0/default.png pct:0,0,50,50/,2/90/gray.png square/^max/0/bitonal.png "
    "full/!5,5/22.5/default.webp full/0,/0/default.jpg full/max/0/default.bmp a/b/c/d.e full/99999999,/0/default.jpg "
    "1,1/max/0/default.png -1,0,5,5/max/0/default.png full/pct:0/0/default.png full/max/361/default.png"
)
TILES = words(
    "info.json 0/0/0.png 0/0/0.npy 0/0/0.jpg 0/0/0.webp 0/0/0.raw 99/0/0.png -1/0/0.png 0/1/0.png 0/0/0.gif 0/0/0 "
    "0/0/a.png thumbnail.png histogram.json legend.png 99999999999999999999/0/0.png"
)
SELECTIONS = words(
    "0 -1 ... : ::-1 ::2 0:3 [0,1] [] [-1] 1,2,3 0,0,0,0 a [ ] [[1]] 1:2:3:4 ::0 99 1e3 1.5 None 0x10 0, ...,... ...,0 "
    "5:2 99999999999999999999999 9223372036854775807 ::-9223372036854775808 %00 --1 +1 [1%202] [1,] [,] 0,[1,2],::-1"
)
DTYPES = words(
    "safe <f4 float32 |u1 |O <U5 M8[ns] object bfloat16 int4 x <f4,<i4 V8 f <i3 (2,)f4 %00 <c16 m8 datetime64[h] p "
    "<f16 a5 M8[01s] M8[s/2] M8[as]"
)
TILE_VALUES = words(
    "0 1 -1 10 true auto minmax dtype 0,1 1,0 nan inf,-inf 1e400 FF0000 viridis viridis_r [] {} [[1,2]] x,y z,y 0,2 "
    "abs tms 204 transparent 99999999999 256 100000"
)
VALUES: dict[str, list[str]] = {
    "select": SELECTIONS,
    "dtype": DTYPES,
    "format": words("raw npy json csv stored tiff JSON png"),
    "field": words("id pos x pos.0"),
    "limit": words("0 1 -1 x 99999999999"),
    "cursor": ["a", "", "%ff", "\U0010ffff"],
    "box_bytes": words("1 0 -1 x 99999999999999999999"),
} | dict.fromkeys(
    words(
        "z t c rescale color colormap_name colormap gamma axes sel tile_size scheme empty size bins quality bg nodata "
        "component labels opacity overlap v invert slect mode recursive casting axis at values"
    ),
    TILE_VALUES,
)
VALUES_OF_TILES = [name for name, values in VALUES.items() if values is VALUES["z"]]
VALUES |= {name: ["true", "1", "x", ""] for name in ("recursive", "expand_only", "shrink_only", "values")}
VALUES |= {"mode": ["create", "open", "replace", "x"], "casting": ["unsafe", "x"], "axis": ["0", "1", "-1", "9", "x"]}
VALUES |= {"at": ["0", "20", "-1", "x", "99999999999999999999"]}
READING: dict[str, list[str]] = {
    "/v1/metadata/": ["limit", "cursor", "field"],
    "/v1/slice/": ["select", "format", "dtype", "field"],
    "/v1/plan/": ["select", "format", "dtype", "field", "box_bytes"],
    "/v1/chunk/": ["format", "dtype", "field"],
    "/v1/tile/": VALUES_OF_TILES,
    "/v1/tile/iiif/": [],
    "/zarr/": [],
}
"""Parameters by the front of the path."""
WRITING: list[tuple[str, str, list[str]]] = [
    ("PUT", "/v1/metadata/", ["mode"]),
    ("PATCH", "/v1/metadata/", ["expand_only", "shrink_only"]),
    ("DELETE", "/v1/metadata/", ["recursive"]),
    ("PUT", "/v1/slice/", ["select", "field", "casting"]),
    ("PUT", "/v1/chunk/", ["format", "field", "casting"]),
    ("DELETE", "/v1/chunk/", []),
    ("POST", "/v1/append/", ["axis", "at", "casting"]),
    ("POST", "/v1/points/", ["field", "format", "values", "casting"]),
    ("PUT", "/zarr/", []),
    ("DELETE", "/zarr/", []),
]
ENDS: dict[str, list[str]] = {"/v1/chunk/": CHUNKS, "/zarr/": CHUNKS, "/v1/tile/": TILES, "/v1/tile/iiif/": IMAGES}
USUAL_ENDS = {"/v1/tile/": TILES[:5], "/v1/tile/iiif/": IMAGES[:4], "/zarr/": words(".zarray .zgroup 0.0.0 0.0 0 0")}
ODD_LETTERS = "a0-+.:,;=&?#%/\\[]{}\"'<> \t\r\n\0\x7f\xe4\u202e\U0010ffff"
ELSEWHERE = words("/ /v1/ // /v1/nothing/ /view/ /problems/ /docs/ /v1/append/ /healthz/ /%76%31/slice/")
OTHERS = ["HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"]
HEADERS: dict[str, list[str]] = {
    "Range": ["bytes=0-", "bytes=-5", "bytes=5-2", "bytes=0-0,2-2", "bytes=99999999-", "items=0-1", "bytes=a-b"],
    "If-None-Match": ["*", '"x"', 'W/"x"', "x", '""', ",", '"unterminated', '"\xe9"'],
    "If-Match": ["*", '"x"', "x"],
    "If-Range": ['"x"', "Sun, 06 Nov 1994 08:49:37 GMT", "junk"],
    "If-Modified-Since": ["junk", "Sun, 99 Nov 99999 99:99:99 GMT", "Mon, 01 Jan 0001 00:00:00 -2359"],
    "Accept": ["application/json", "image/png", "*/*;q=0", "a", ";;;", "application/json;q=x", "text/html,*/*;q=0.8"],
    "Content-Type": ["application/json", "application/x-npy", "text/plain", ";", "\xe9"],
    "Content-Digest": ["sha-256=:abc:", "x", "sha-256=:4REjxQ4yrqUVicfSKYNO/cF9zNj5ANbzgDZt3/h3Qxo=:"],
    "Content-Encoding": ["gzip"],
    "Idempotency-Key": ["k", "", "x" * 300],
    "Array-Shape": ["[1]", "x", "1"],
    "Array-Dtype": ['"<u2"', '"<M8[s/2]"', "x", "[]", '["a"]', '{"a":1}', "5", "null", '[["a"]]'],
    "Authorization": ["Bearer x", "Basic", "\xe9"],
    "X-Forwarded-Proto": ["https", "junk"],
}


def npy(header: str, data: bytes = bytes(64)) -> bytes:
    """A body that has some header of an npy file."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data


DEFINITION = {"shape": [3], "dtype": "<i4"}
WRONG: dict[str, list[Any]] = {
    "shape": [None, "a", [1.5], [-1], [2**70], [True]],
    "dtype": [5, {}, "x", "|O", [["a", "<i4"], ["a", "<i4"]], [["a", "<i4", [2**40]]], "<M8"],
    "chunks": [[0], "a", [True], [-2], [2**70], [1, 2]],
    "compressor": [{"id": "pickle"}, {"id": "zlib", "level": 99}, {"id": "blosc", "cname": "x"}, 5, {"id": []}],
    "filters": [{}, [{"id": "delta", "dtype": "x"}], [5], [{"id": "fixedscaleoffset"}]],
    "fill_value": ["x", 1e300, [1], {}],
    "order": ["K"],
    "dimension_separator": ["-"],
    "dimension_names": [["a", "b"], 5],
    "attributes": [[1], {"a": None}],
    "chunk_elements": [-5, "a"],
    "chunk_aspect_ratio": [[0], [-1.5, 2]],
    "chunk_layout": [5, {"x": 1}],
    "zarr_format": [3],
    "kind": ["x", 5],
    "schema": [{"a": 1}],
}
COORDINATES: list[Any] = [[[0, 0, 0]], [[0]], [], [["a"]], [[1.5, 0, 0]], [[2**70, 0, 0]], None, [[[0]]]]
DOCUMENTS: list[Any] = [
    DEFINITION,
    *[{**DEFINITION, name: value} for name, values in WRONG.items() for value in values],
    *[{}, [], None, 1, "x", [1, 2], [[1]], 2**80],
    *[{"kind": "group"}, {"attributes": 5}, {"attributes": {"a": 1}}, {"shape": [None]}, {"shape": [2**80]}],
    *[{"coordinates": value} for value in COORDINATES],
]
JSON, NPY = "application/json", "application/x-npy"
BODIES: list[tuple[str | None, bytes]] = [
    *[(JSON, json.dumps(document).encode()) for document in DOCUMENTS],
    *[(JSON, body) for body in (b"", b"\xff", b"NaN", b"{", b'{"a":' * 300)],
    *[(JSON, b"0")] * 15,
    *[(None, body) for body in (b"", b"\0" * 8, b"\0" * 48_000)],
    *[(NPY, saved(np.zeros(shape, dtype))) for shape, dtype in (((20, 30, 40), "<u2"), ((1, 3), "<i8"), ((), "<f4"))],
    *[(NPY, npy(header)) for header in ("(" * 300, "{")],
    *[(NPY, npy(f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': (1,), }}\n")) for dtype in ("|O", "<M8[s/2]")],
    (NPY, npy("{'descr': '<i4', 'fortran_order': False, 'shape': (9**18,), }\n")),
]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it is spelt."""

    method: str
    target: bytes
    headers: dict[str, str]
    body: bytes

    def sent(self) -> bytes:
        """The bytes that go through the socket."""
        lines = [f"{name}: {value}".encode("latin-1") for name, value in self.headers.items()]
        head = [self.method.encode() + b" " + self.target + b" HTTP/1.1", b"Host: x", *lines]
        return b"\r\n".join([*head, b"Content-Length: %d" % len(self.body), b"", self.body])


def encoded(text: str) -> bytes:
    """As a client spells it that escapes only what would break the request line."""
    return re.sub(rb"[\x00-\x20\x7f-\xff\"<>]", lambda m: b"%%%02x" % m[0][0], text.encode())


def reading(random: Random) -> Asked:
    """Mostly GET, mostly of something that is there, sometimes neither."""
    front = mostly(random, list(READING), ELSEWHERE)
    method = mostly(random, ["GET"], OTHERS)
    return asked(random, method, front, READING.get(front, list(VALUES)))


def writing(random: Random) -> Asked:
    """Whatever changes something, mostly of something that is there."""
    return asked(random, *random.choice(WRITING))


def asked(random: Random, method: str, front: str, parameters: Sequence[str]) -> Asked:
    """A request below ``front``, mostly with ``parameters`` that it knows."""
    node = random.choice(list(FIRST_CHUNKS))
    if (method, front) == ("PUT", "/v1/metadata/"):
        node = random.choice(("new/a", node))
    path = mostly(random, [f"data/{node}"], [*BAD, odd_text(random)])
    if front in ENDS:
        path += "/" + mostly(random, USUAL_ENDS.get(front, [FIRST_CHUNKS[node]]), ENDS[front], odd=0.4)
    names = {mostly(random, parameters or ["select"], list(VALUES)) for _ in range(random.choice((0, 0, 1, 1, 2)))}
    query = "&".join(f"{name}={mostly(random, VALUES[name], [odd_text(random)])}" for name in sorted(names))
    headers = {name: random.choice(HEADERS[name]) for name in random.sample(list(HEADERS), random.choice((0, 0, 1)))}
    body = b""
    if method in ("PUT", "POST", "PATCH"):
        kind, body = random.choice(BODIES)
        headers = ({} if kind is None else {"Content-Type": kind}) | headers
    return Asked(method, encoded(front + path) + (b"?" + encoded(query) if query else b""), headers, body)


def mostly(random: Random, usual: Sequence[T], others: Sequence[T], odd: float = 0.12) -> T:
    return random.choice(others if random.random() < odd else usual)


def odd_text(random: Random) -> str:
    return "".join(random.choice(ODD_LETTERS) for _ in range(random.randrange(9)))

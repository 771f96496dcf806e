"""What ``/openapi.json`` says, held against what really comes: for each operation, each of its answers."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate

from hyperslab.api.options import ApiOptions
from hyperslab.engine.creation import MEMBERS
from tests.api.support import restore, running, saved, writable

JSON, NPY, RAW = "application/json", "application/x-npy", "application/octet-stream"
OBJECTS, PATCH = "application/vnd.hyperslab.objects", "application/merge-patch+json"
FRAMES = "application/vnd.hyperslab.frames"
PROBLEM = "application/problem+json"
HEADERS = {
    "If-None-Match": ("*", {304, 412}),
    "If-Match": ('"other"', {412}),
    "Range": ("bytes=0-0", {206}),
    "Content-Digest": ("sha-256=:AAAA:", {400}),
    "Array-Shape": ("[77]", {400}),
    "Array-Dtype": ('"<c16"', {400}),
    "Idempotency-Key": ("k" * 300, {400}),
    "Upload-Offset": ("none", {400}),
    "Upload-Complete": ("none", {400}),
    "Stream-Epoch": ("none", {400}),
}
"""Values that, where they are looked at, have such statuses; If-Range needs a Range."""
OF_ANSWERS = {"etag", "location", "array-shape", "array-dtype", "array-chunks", "server-timing", "content-range"}
ARRAY = {"shape": [8, 8], "chunks": [4, 4], "dtype": "<i4"}


@dataclass(frozen=True)
class Example:
    """A request that an operation answers with ``status``."""

    status: int
    target: str
    body: bytes = b""
    kind: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def as_json(status: int, target: str, document: Any, kind: str = JSON) -> Example:
    return Example(status, target, json.dumps(document).encode(), kind)


ROWS, CELLS = saved(np.ones((1, 8), "<i4")), saved(np.ones((8, 8), "<i4"))
DIMENSIONS = [{"name": n, "type": "space", "size": s, "chunk": 4} for n, s in (("z", None), ("y", 4), ("x", 6))]
STREAM = {"arrays": [{"dtype": "|u1", "dimensions": DIMENSIONS}]}
ZGROUP = b'{"zarr_format": 2}'
EXAMPLES = {
    "get /": [Example(200, "/")],
    "get /view/{path}": [Example(200, "/view/data/a")],
    "get /openapi.json": [Example(200, "/openapi.json")],
    "get /docs": [Example(200, "/docs")],
    "get /v1": [Example(200, "/v1")],
    "get /healthz": [Example(200, "/healthz")],
    "get /readyz": [Example(200, "/readyz"), Example(200, "/readyz?stores=1")],
    "get /metrics": [Example(200, "/metrics")],
    "get /problems/{code}": [Example(200, "/problems/bad-path"), Example(404, "/problems/none")],
    "get /v1/metadata/{path}": [Example(200, "/v1/metadata/data/a"), Example(404, "/v1/metadata/data/none")],
    "put /v1/metadata/{path}": [
        as_json(200, "/v1/metadata/data/a?mode=open", ARRAY),
        as_json(201, "/v1/metadata/data/new", ARRAY),
        as_json(409, "/v1/metadata/data/a", ARRAY),
    ],
    "patch /v1/metadata/{path}": [
        as_json(200, "/v1/metadata/data/a", {"attributes": {"k": 1}}),
        as_json(200, "/v1/metadata/data/a", {"attributes": {"k": 1}}, PATCH),
        as_json(422, "/v1/metadata/data/a", {"colour": 1}),
    ],
    "delete /v1/metadata/{path}": [
        Example(200, "/v1/metadata/data/mixed?recursive=true"),
        Example(204, "/v1/metadata/data/a"),
        Example(404, "/v1/metadata/data/none"),
    ],
    "get /v1/slice/{path}": [
        *(Example(200, f"/v1/slice/data/a?format={form}") for form in ("raw", "npy", "json", "csv")),
        Example(200, "/v1/slice/data/texts"),
        Example(422, "/v1/slice/data/a?select=99"),
    ],
    "put /v1/slice/{path}": [
        Example(204, "/v1/slice/data/a", bytes(256), RAW),
        Example(204, "/v1/slice/data/a", CELLS, NPY),
        as_json(204, "/v1/slice/data/a", 7),
        Example(400, "/v1/slice/data/a", b"", OBJECTS),
    ],
    "get /v1/chunk/{path}/{chunk}": [
        *(Example(200, f"/v1/chunk/data/a/0.0?format={form}") for form in ("raw", "npy", "json", "csv", "stored")),
        Example(400, "/v1/chunk/data/a/0"),
    ],
    "put /v1/chunk/{path}/{chunk}": [
        Example(204, "/v1/chunk/data/a/0.0", bytes(64), RAW),
        Example(204, "/v1/chunk/data/a/0.0", saved(np.ones((4, 4), "<i4")), NPY),
        as_json(204, "/v1/chunk/data/a/0.0", 7),
        Example(400, "/v1/chunk/data/a/0.0", b"", OBJECTS),
    ],
    "delete /v1/chunk/{path}/{chunk}": [Example(204, "/v1/chunk/data/a/0.0"), Example(400, "/v1/chunk/data/a/0")],
    "get /v1/changes/{path}": [Example(200, "/v1/changes/data", headers={"Accept": JSON})],
    "post /v1/append/{path}": [
        Example(201, "/v1/append/data/a", bytes(32), RAW),
        Example(201, "/v1/append/data/a", ROWS, NPY),
        as_json(201, "/v1/append/data/a", [[1] * 8]),
        Example(400, "/v1/append/data/a", b"", OBJECTS),
        Example(200, "/v1/append/data/a", bytes(32), RAW, {"Idempotency-Key": "twice"}),
    ],
    "get /v1/plan/{path}": [Example(200, "/v1/plan/data/a"), Example(422, "/v1/plan/data")],
    "post /v1/points/{path}": [
        as_json(204, "/v1/points/data/a?values=1", {"coordinates": [[0, 0]], "values": 1}),
        Example(204, "/v1/points/data/a?values=1", saved(np.zeros((1, 2), int), np.ones(1, "<i4")), NPY),
        *(
            as_json(200, f"/v1/points/data/a?format={form}", {"coordinates": [[0, 0]]})
            for form in ("raw", "json", "csv")
        ),
        Example(400, "/v1/points/data/a", b"{}", JSON),
    ],
    "get /v1/stream/{path}": [Example(200, "/v1/stream/data/s?key="), Example(404, "/v1/stream/data/none")],
    "put /v1/stream/{path}": [
        as_json(200, "/v1/stream/data/s?if_exists=resume", STREAM),
        as_json(201, "/v1/stream/data/s?if_exists=replace", STREAM),
        as_json(409, "/v1/stream/data/s", STREAM),
    ],
    "patch /v1/stream/{path}": [
        Example(204, "/v1/stream/data/s", bytes(24), RAW),
        Example(204, "/v1/stream/data/s", bytes(24), "application/partial-upload"),
        Example(204, "/v1/stream/data/s?key=", saved(np.zeros((4, 6), "|u1")), NPY),
        Example(409, "/v1/stream/data/s", bytes(24), RAW, {"Upload-Offset": "99"}),
    ],
    "delete /v1/stream/{path}": [
        Example(200, "/v1/stream/data/s?finish=true"),
        Example(204, "/v1/stream/data/s?discard=true"),
        Example(400, "/v1/stream/data/s"),
    ],
    "post /v1/stream/{path}/flush": [Example(200, "/v1/stream/data/s/flush")],
    "get /v1/stream/{path}/frames": [
        Example(200, "/v1/stream/data/s/frames"),
        Example(404, "/v1/stream/data/none/frames"),
    ],
    "post /v1/stream/{path}/frames": [Example(200, "/v1/stream/data/s/frames", b"", FRAMES)],
    "post /v1/stream/{path}/skip": [as_json(204, "/v1/stream/data/s/skip", {"frames": 1})],
    "post /v1/link": [
        as_json(201, "/v1/link", {"path": "data/a", "allow": ["read"], "expires": "7d"}),
        as_json(422, "/v1/link", {"path": "data/a", "expires": "for ever"}),
    ],
    "get /v1/tile/{path}/info.json": [Example(200, "/v1/tile/data/a/info.json"), Example(404, "/v1/tile/data/a/x")],
    "get /v1/tile/{path}/{z}/{x}/{y}.{form}": [
        *(Example(200, f"/v1/tile/data/a/0/0/0.{kind}") for kind in ("png", "jpg", "webp", "npy", "raw")),
        Example(204, "/v1/tile/data/a/9/9/9.png?empty=204"),
        Example(404, "/v1/tile/data/a/9/9/9.png"),
    ],
    "get /v1/tile/{path}/thumbnail.{form}": [
        *(Example(200, f"/v1/tile/data/a/thumbnail.{kind}") for kind in ("png", "jpg", "webp")),
        Example(400, "/v1/tile/data/a/thumbnail.png?size=1"),
    ],
    "get /v1/tile/{path}/legend.png": [Example(200, "/v1/tile/data/a/legend.png")],
    "get /v1/tile/{path}/histogram.json": [Example(200, "/v1/tile/data/a/histogram.json")],
    "get /v1/tile/{path}.dzi": [Example(200, "/v1/tile/data/a.dzi")],
    "get /v1/tile/{path}_files/{level}/{x}_{y}.{form}": [
        Example(200, "/v1/tile/data/a_files/0/0_0.png"),
        Example(204, "/v1/tile/data/a_files/0/5_5.png?empty=204"),
        Example(404, "/v1/tile/data/a_files/0/5_5.png"),
    ],
    "get /v1/tile/iiif/{path}": [Example(303, "/v1/tile/iiif/data/a"), Example(404, "/v1/tile/iiif/data/none")],
    "get /v1/tile/iiif/{path}/info.json": [Example(200, "/v1/tile/iiif/data/a/info.json")],
    "get /v1/tile/iiif/{path}/{region}/{size}/{rotation}/{quality}.{form}": [
        Example(200, "/v1/tile/iiif/data/a/full/max/0/default.png"),
        Example(400, "/v1/tile/iiif/data/a/full/none/0/default.png"),
    ],
    "get /zarr/{path}": [
        Example(200, "/zarr/data/a/.zarray"),
        Example(200, "/zarr/data/a/0.0"),
        Example(200, "/zarr/data/"),
        Example(404, "/zarr/data/a/1.1"),
    ],
    "get /zarr2/{path}": [Example(200, "/zarr2/data/a/.zarray"), Example(404, "/zarr2/data/a/zarr.json")],
    "get /zarr3/{path}": [Example(200, "/zarr3/data/a/zarr.json"), Example(404, "/zarr3/data/a/.zarray")],
    "put /zarr/{path}": [
        Example(204, "/zarr/data/.zgroup", ZGROUP, RAW),
        Example(201, "/zarr/data/g/.zgroup", ZGROUP, JSON),
        Example(400, "/zarr/data/g/.zgroup", b"", RAW),
    ],
    "delete /zarr/{path}": [Example(204, "/zarr/data/a/0.0"), Example(404, "/zarr/data/a/1.1")],
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Path, Path]]:
    """A writable service that has numbers in one chunk of ``data/a``, and ``data/texts``; its folder, and a copy."""
    folder, copy = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("copy")
    with writable(folder) as found:
        found.put("/v1/metadata/data/a", json=ARRAY)
        found.put("/zarr/data/.zgroup", content=ZGROUP)
        found.put("/zarr/data/mixed/.zgroup", content=ZGROUP)
        (folder / "mixed" / "notes.txt").touch()
        found.put("/v1/slice/data/a", params={"select": "0:4,0:4"}, json=3)
        found.put("/v1/metadata/data/texts", json={"shape": [2], "dtype": "|O", "filters": [{"id": "vlen-utf8"}]})
        found.put("/v1/stream/data/s", json=STREAM)
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        yield found, folder, copy


@pytest.fixture
def client(template: tuple[httpx.Client, Path, Path]) -> httpx.Client:
    """A client of the service, whose folder is as it was at first."""
    client, folder, copy = template
    restore(copy, folder)
    return client


@pytest.fixture(scope="module")
def description(example_store: Path) -> dict[str, Any]:
    with running(example_store) as found:
        document: dict[str, Any] = httpx.get(f"{found.url}/openapi.json").json()
    return document


@pytest.fixture(params=EXAMPLES)
def name(request: pytest.FixtureRequest) -> str:
    """Of an operation: its method and path."""
    found: str = request.param
    return found


@pytest.fixture
def operation(name: str, description: dict[str, Any]) -> dict[str, Any]:
    method, path = name.split(" ")
    found: dict[str, Any] = description["paths"][path][method]
    return found


def ask(client: httpx.Client, name: str, example: Example, **headers: str) -> httpx.Response:
    method, kind = name.split(" ", maxsplit=1)[0], {} if example.kind is None else {"Content-Type": example.kind}
    sent = {**kind, **example.headers, **headers}
    return client.request(method, example.target, content=example.body, headers=sent)


def test_every_operation_is_described_and_tried_out(description: dict[str, Any]) -> None:
    validate(description)
    described = {f"{method} {path}" for path, methods in description["paths"].items() for method in methods}

    assert described == EXAMPLES.keys()


def test_each_answer_is_described(
    client: httpx.Client, name: str, operation: dict[str, Any], description: dict[str, Any]
) -> None:
    for example in EXAMPLES[name]:
        if example.headers:
            ask(client, name, example)
        answer = ask(client, name, example)

        assert answer.status_code == example.status, answer.text
        known = operation["responses"]
        described = known["default"] if answer.status_code >= 400 else known[str(answer.status_code)]
        kind = answer.headers.get("content-type", "").partition(";")[0]
        content = described.get("content", {"": None})
        assert kind in content
        if kind in (JSON, PROBLEM):
            schema = {**content[kind].get("schema", {}), "components": description["components"]}
            OAS31Validator(schema).validate(answer.json())
        headers = {header.lower(): value for header, value in described.get("headers", {}).items()}
        assert {header for header, value in headers.items() if value.get("required")} <= answer.headers.keys()
        if answer.status_code < 400 and operation["tags"] != ["pages"]:
            assert OF_ANSWERS & answer.headers.keys() <= headers.keys()


def test_bodies_and_headers_are_described_where_they_matter(
    client: httpx.Client, name: str, operation: dict[str, Any]
) -> None:
    statuses = operation["responses"].keys() - {"206", "304", "503", "default"}
    bodies = operation.get("requestBody", {"content": {}})["content"]
    assert statuses - {"202"} == {str(example.status) for example in EXAMPLES[name] if example.status < 400}
    assert bodies.keys() == {example.kind for example in EXAMPLES[name] if example.kind}
    example = EXAMPLES[name][0]
    if bodies and name != "put /zarr/{path}":  # which takes what the key says
        assert ask(client, name, Example(415, example.target, example.body, "text/plain")).status_code == 415

    described = {parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "header"}
    matter = {
        header
        for header, (value, statuses) in HEADERS.items()
        if ask(client, name, example, **{header: value}).status_code in statuses
    }

    assert described - {"If-Range", "Last-Event-ID"} == matter


def test_other_parameters_than_those_that_are_described_are_refused(
    client: httpx.Client, name: str, operation: dict[str, Any]
) -> None:
    """Those of tiles may be axes, the keys of a store have none, and pages have their own."""
    if not f"{name.partition(' ')[2]}/".startswith("/v1/") or operation["tags"] == ["tile"]:
        return
    described = {parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "query"}

    target = EXAMPLES[name][0].target
    refused = ask(client, name, Example(400, f"{target}{'&' if '?' in target else '?'}colour=1", b"{}", JSON))

    assert (refused.status_code, refused.json()["name"]) == (400, "colour")
    assert set(refused.json()["expected"].removeprefix("one of the parameters ").split(", ")) == (
        described or {"no parameters"}
    )


@pytest.mark.parametrize("method", ["DELETE", "PATCH", "PUT", "GET", "POST"])
@pytest.mark.parametrize(
    ("action", "methods"), [("flush", "POST"), ("skip", "POST"), ("frames", "GET, HEAD, POST"), ("other", None)]
)
def test_the_parts_of_a_stream_have_methods_of_their_own(
    client: httpx.Client, action: str, methods: str | None, method: str
) -> None:
    target = f"/v1/stream/data/s/{action}"
    allowed = f"{methods or 'GET, HEAD, PUT, PATCH, DELETE'}, OPTIONS"

    assert client.options(target).headers["allow"] == allowed
    answer = client.request(method, target)
    assert (answer.status_code == 405) == (method not in allowed.split(", "))
    assert answer.status_code != 405 or answer.headers["allow"] == allowed


OFFERED = [
    (
        "get /v1/slice/{path}",
        "select",
        ("", "0", "-1", ":", "::-1", "1:2:3", "...", "0,...,[1,2]", "[1,]", "[]", " 1 , 2 ", "+1", "0:4:2,0"),
        ("a", "1.5", "[", "1:2:3:4", "[1,[2]]", ",", "0,,1"),
    ),
    (
        "get /v1/slice/{path}",
        "If-None-Match",
        ("*", '"a"', 'W/"a"', '"a", "b"', '"a" ,W/"b",', "abc"),
        ("", '"a', '"a" "b"', "a b"),
    ),
    (
        "put /v1/slice/{path}",
        "Content-Digest",
        ("", "md5=:AAAA:", "a=:AA==:, b=:AAA=:"),
        ("sha-256", "sha-256=AAAA", "sha-256=:AAAA", "sha-256=:A:"),
    ),
    ("put /v1/slice/{path}", "Array-Shape", ("[8, 8]", "[]", "[ 8,8 ]"), ("4, 6", "[4,", "[a]")),
    ("post /v1/append/{path}", "Idempotency-Key", ("a", "a" * 256), ("", "a" * 257)),
    ("patch /v1/stream/{path}", "Upload-Offset", ("0", "24"), ("-1", "a", "", "1" * 20)),
    ("patch /v1/stream/{path}", "Upload-Complete", ("?0",), ("", "1")),
    ("patch /v1/stream/{path}", "Stream-Epoch", ("1",), ("-1", "a", "")),
    ("get /v1/metadata/{path}", "limit", ("0", "1000"), ("-1", "1001", "a")),
    ("get /v1/metadata/{path}", "path", ("data/a", "data"), ("data/\x00", "data/\x1fb", "data/\x7f")),
    ("get /v1/tile/{path}/legend.png", "colormap", ("000,fff", "#000000,ff0000ff", '{"1": "f00"}'), ("", "000", "red")),
    ("get /v1/tile/{path}/legend.png", "colormap_name", ("viridis", "magma_r"), ("",)),
    ("get /v1/tile/{path}/legend.png", "c", ("0",), ("a", str(10**18))),
    *(
        ("get /v1/tile/iiif/{path}/{region}/{size}/{rotation}/{quality}.{form}", name, right, wrong)
        for name, right, wrong in (
            ("region", ("full", "square", "0,0,4,4", "pct:0,0,50,50.5"), ("all", "0,0,4", "pct:1")),
            ("size", ("max", "2,", ",2", "2,2", "!2,2", "pct:50"), ("full", "!2,", ",", "pct:")),
            ("rotation", ("0", "!90", "360"), ("45", "-90", "!")),
            ("quality", ("default", "gray"), ("bitonal",)),
            ("form", ("png", "jpg", "webp"), ("gif", "jpeg")),
        )
    ),
]
PLACES = {"path": "data/a", "region": "full", "size": "max", "rotation": "0", "quality": "default", "form": "png"}


@pytest.mark.parametrize(("name", "parameter", "right", "wrong"), OFFERED, ids=[each[1] for each in OFFERED])
def test_what_the_description_offers_is_what_is_taken(
    client: httpx.Client,
    operation: dict[str, Any],
    name: str,
    parameter: str,
    right: Sequence[str],
    wrong: Sequence[str],
) -> None:
    """Its patterns, limits and examples, against the service."""
    described = next(each for each in operation["parameters"] if each["name"] == parameter)
    validator = OAS31Validator(described["schema"])
    kind = described["schema"]["items"]["type"] if "items" in described["schema"] else described["schema"]["type"]

    def is_offered(text: str) -> bool:
        value: Any = int(text) if kind == "integer" and re.fullmatch("-?[0-9]+", text) else text
        return bool(validator.is_valid([value] if "items" in described["schema"] else value))

    def status(text: str) -> int:
        method, template = name.split(" ")
        places = {**PLACES, **({"path": "data/s"} if "stream" in template else {})}
        places |= {parameter: quote(text)} if described["in"] == "path" else {}
        kinds = [each.kind for each in EXAMPLES[name] if each.kind]
        headers = {"Content-Type": kinds[0]} if kinds else {}
        headers |= {parameter: text} if described["in"] == "header" else {}
        query = {parameter: text} if described["in"] == "query" else None
        body, target = EXAMPLES[name][0].body, template.format(**places)
        return client.request(method, target, params=query, headers=headers, content=body).status_code

    assert [text for text in right if not is_offered(text)] == []
    assert [text for text in wrong if is_offered(text)] == []
    assert [text for text in wrong if status(text) not in (400, 422)] == []
    assert [text for text in right if status(text) in (400, 422)] == []


def test_a_read_of_points_takes_the_defaults_of_writes(client: httpx.Client) -> None:
    points = {"coordinates": [[0, 0]]}

    assert client.post("/v1/points/data/a?casting=safe&decode=none", json=points).status_code == 200
    assert client.post("/v1/points/data/a?casting=unsafe", json=points).json()["name"] == "casting"


@pytest.mark.parametrize(
    ("options", "reading", "writing"),
    [
        (ApiOptions(), [], []),
        (ApiOptions(read_tokens=("r",)), [{"bearer": []}], [{"bearer": []}]),
        (ApiOptions(write_tokens=("w",)), [], [{"bearer": []}]),
    ],
)
def test_tokens_are_described_where_they_are_needed(
    example_store: Path, options: ApiOptions, reading: list[Any], writing: list[Any]
) -> None:
    with running(example_store, options) as found:
        headers = {"Authorization": "Bearer r"}
        document = httpx.get(f"{found.url}/openapi.json", headers=headers).json()
    paths = document["paths"]

    def security(operation: dict[str, Any]) -> Any:
        return operation.get("security", document.get("security", []))

    assert document["components"]["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}
    assert security(paths["/v1/slice/{path}"]["get"]) == reading
    assert security(paths["/v1/slice/{path}"]["put"]) == security(paths["/v1/append/{path}"]["post"]) == writing
    assert security(paths["/healthz"]["get"]) == security(paths["/view/{path}"]["get"]) == []


def test_bodies_of_json_say_their_members(description: dict[str, Any]) -> None:
    def members(path: str, method: str) -> set[str]:
        bodies = description["paths"][path][method]["requestBody"]["content"]
        return {*bodies["application/json"]["schema"]["properties"]}

    (stream,) = [path for path in description["paths"] if path.startswith("/v1/stream") and path.endswith("}")]
    (node,) = [path for path in description["paths"] if path.startswith("/v1/metadata/")]

    assert members(node, "put") == {*MEMBERS, "kind", "attributes"}
    assert members(node, "patch") == {"shape", "attributes"}
    assert members(stream, "put") == {"arrays", "plates", "zarr_format", "expires_in", "ack"}
    assert "chunk" in description["components"]["schemas"]["Dimension"]["properties"]

"""Bad requests and broken stores: each has a code and a status of its own; none is a 500, none a wrong 404."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperslab.api.app import create_app
from hyperslab.api.options import ApiOptions
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import build
from hyperslab.errors import StoreError, StoreTimeout
from hyperslab.storage import StoreConfig, open_store
from tests.api.support import RawAnswer, Running, request, running, write_array
from tests.documents import zarray
from tests.server import served

PYTHON = re.compile(r"\b(None|True|False|dict|tuple|NoneType)\b|\(\d+,\)|<class|object at 0x|dtype\(|\sb'")
"""What no sentence for people has in it."""


def check_problem(answer: RawAnswer, status: int, code: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(answer.body)
    assert (answer.status, document["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    assert b"Traceback" not in answer.body
    assert not PYTHON.search(document["detail"]), document["detail"]
    return document


EXPECTED_CHUNK = "the indices of a chunk in a grid of [3, 2, 3], such as '0.0.0'"
EXPECTED_SCALAR = "the indices of a chunk in a grid of [], such as '0'"
NO_LIMITS = ("", "x", "1.5", "-1", "99999", "1e3", "%D9%A3", "%2B3", "%203", "9" * 5000)


@pytest.mark.parametrize(
    ("target", "status", "code", "facts"),
    [
        ("/nowhere", 404, "route-not-found", {"path": "/nowhere"}),
        ("/v1/nothing/data", 404, "route-not-found", {}),
        ("/problems/no-such-code", 404, "route-not-found", {}),
        ("/v1/metadata/data/nothing", 404, "node-not-found", {"path": "data/nothing"}),
        ("/v1/metadata/nostore", 404, "node-not-found", {"path": "nostore"}),
        ("/v1/slice/data/nothing", 404, "node-not-found", {}),
        ("/v1/slice/data/group", 422, "wrong-kind", {"kind": "group", "wanted": "array"}),
        ("/v1/slice/", 422, "wrong-kind", {}),
        ("/v1/chunk/data/group/0.0", 422, "wrong-kind", {}),
        ("/v1/plan/data/group", 422, "wrong-kind", {}),
        ("/v1/slice/data/cube?select=0:10,foo", 400, "bad-selection", {"part": "foo", "position": 5}),
        ("/v1/slice/data/cube?select=0,,1", 400, "bad-selection", {"position": 2}),
        ("/v1/slice/data/cube?select=0,99", 422, "index-out-of-range", {"axis": 1, "index": 99, "size": 30}),
        ("/v1/slice/data/cube?select=-21", 422, "index-out-of-range", {"axis": 0, "index": -21, "size": 20}),
        ("/v1/slice/data/cube?select=[0,40]", 422, "index-out-of-range", {"index": 40}),
        ("/v1/slice/data/cube?select=9999999999999999999", 422, "index-out-of-range", {}),
        ("/v1/slice/data/cube?select=-9999999999999999999", 422, "index-out-of-range", {}),
        ("/v1/slice/data/cube?select=99999999999999999999", 422, "index-out-of-range", {"index": 10**20 - 1}),
        ("/v1/slice/data/cube?select=[1,-99999999999999999999]", 422, "index-out-of-range", {"index": 1 - 10**20}),
        ("/v1/chunk/data/cube/0.0.0.0", 400, "bad-parameter", {"expected": EXPECTED_CHUNK}),
        ("/v1/chunk/data/scalar/0.0", 400, "bad-parameter", {"expected": EXPECTED_SCALAR}),
        ("/v1/slice/data/cube?select=0,0,0,0", 422, "too-many-indices", {"given": 4, "rank": 3}),
        ("/v1/slice/data/cube?format=gif", 400, "bad-parameter", {"name": "format", "value": "gif"}),
        ("/v1/slice/data/cube?dtype=nonsense", 400, "bad-parameter", {"name": "dtype"}),
        ("/v1/slice/data/cube?slect=0", 400, "bad-parameter", {"name": "slect"}),
        ("/v1/slice/data/cube?select=0&select=1", 400, "bad-parameter", {"name": "select"}),
        ("/v1/slice/data/cube?select=%ff", 400, "bad-parameter", {}),
        ("/v1/slice/data/group/floats?dtype=%3Ci4", 422, "not-representable", {}),
        ("/v1/slice/data/cube?format=csv", 422, "not-representable", {}),
        ("/v1/slice/data/cube?field=x", 422, "field-unknown", {"field": "x", "fields": []}),
        ("/v1/slice/data/table?field=nope", 422, "field-unknown", {"fields": ["id", "pos", "name"]}),
        ("/v1/metadata/data/table?field=nope", 422, "field-unknown", {}),
        ("/v1/slice/data/cube?" + "&".join(f"p{i}=1" for i in range(200)), 400, "bad-parameter", {}),
        *((f"/v1/metadata/data?limit={text}", 400, "bad-parameter", {"name": "limit"}) for text in NO_LIMITS),
        ("/v1/metadata/data/../../etc/passwd", 400, "bad-path", {}),
        *((f"/v1/metadata/data/{path}", 400, "bad-path", {}) for path in ("%2e%2e/x", "./a", "a%00b", "%0a", "..%5c")),
        ("/zarr/data/..%2f..%2fetc/passwd", 400, "bad-path", {}),
        ("/zarr/data/a%2Fb", 400, "bad-path", {"reason": "an encoded slash (%2F) is never part of a name"}),
        ("/zarr/data/" + "a" * 1100, 400, "bad-path", {}),
    ],
)
def test_a_bad_request_has_a_problem_of_its_own(
    example: Running, target: str, status: int, code: str, facts: Mapping[str, Any]
) -> None:
    document = check_problem(request(example.url, target), status, code)

    assert {name: document[name] for name in facts} == facts


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Accept": "image/png"}, 406, "not-acceptable"),
        ({"If-Match": '"other"'}, 412, "precondition-failed"),
        ({"If-Match": "no quotes"}, 400, "bad-parameter"),
        ({"Range": "bytes=9999999999-"}, 416, "range-not-satisfiable"),
    ],
)
def test_bad_headers_have_problems_too(example: Running, headers: Mapping[str, str], status: int, code: str) -> None:
    check_problem(request(example.url, "/v1/slice/data/cube", headers=headers), status, code)


METHODS = {
    "/": "GET HEAD",
    "/view/data": "GET HEAD",
    "/healthz": "GET HEAD",
    "/metrics": "GET HEAD",
    "/problems/bad-path": "GET HEAD",
    "/docs": "GET HEAD",
    "/v1/metadata/data/cube": "GET HEAD PUT PATCH DELETE",
    "/v1/slice/data/cube": "GET HEAD PUT",
    "/v1/chunk/data/cube/0.0.0": "GET HEAD PUT DELETE",
    "/v1/plan/data/cube": "GET HEAD",
    "/v1/tile/data/cube/info.json": "GET HEAD",
    "/v1/append/data/cube": "POST",
    "/v1/points/data/cube": "POST",
    "/zarr/data/cube/0.0.0": "GET HEAD PUT DELETE PROPFIND",
    "/nope": "",
    "/v1/nope/data": "",
}


@pytest.mark.parametrize(("target", "methods"), METHODS.items())
def test_a_path_tells_the_methods_that_it_has(example: Running, target: str, methods: str) -> None:
    allowed = [*methods.split(), "OPTIONS"]

    preflight = request(example.url, target, "OPTIONS")
    refused = request(example.url, target, "TRACE", {"Content-Length": "0"})

    assert (preflight.status, preflight.headers["allow"]) == (204, ", ".join(allowed))
    assert preflight.headers["access-control-allow-methods"] == preflight.headers["allow"]
    if methods:
        assert check_problem(refused, 405, "method-not-allowed")["allowed"] == allowed
        assert refused.headers["allow"] == ", ".join(allowed)
    else:
        check_problem(refused, 404, "route-not-found")
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"):
        status = request(example.url, target, method, {"Content-Length": "0"}).status
        assert (status == 405) == (bool(methods) and method not in methods.split()), method


@pytest.mark.parametrize(
    ("encoded", "plain"),
    [
        ("/v1/%73lice/data/cube?select=0,0,0:2", "/v1/slice/data/cube?select=0,0,0:2"),
        ("/%76%31/s%6Cice/data/cube?select=0,0,0:2", "/v1/slice/data/cube?select=0,0,0:2"),
        ("/%7Aarr/data/cube/.zarray", "/zarr/data/cube/.zarray"),
        ("/problems/%62ad-path", "/problems/bad-path"),
    ],
)
def test_an_encoded_letter_is_the_same_letter(example: Running, encoded: str, plain: str) -> None:
    assert request(example.url, encoded).status == 200
    assert request(example.url, encoded).body == request(example.url, plain).body


@pytest.mark.parametrize(
    "target",
    [
        *("//healthz", "//v1/metadata//data", "/v1//slice/data/cube", "///v1///chunk/data/cube/0.0.0", "//"),
        *("/v1//tile/data/cube/info.json", "//zarr//data/.zgroup", "//problems//bad-path", "//view/data"),
    ],
)
def test_repeated_slashes_count_once_wherever_they_are(example: Running, target: str) -> None:
    plain = re.sub("/+", "/", target)

    assert request(example.url, target).status == 200
    assert request(example.url, target).body == request(example.url, plain).body
    assert (
        request(example.url, target, "OPTIONS").headers["allow"]
        == request(example.url, plain, "OPTIONS").headers["allow"]
    )


@pytest.mark.parametrize(
    "target", ["/zarr%2fdata/.zattrs", "/v1%2Fslice/data/cube", "/v1/slice%2fdata/cube", "/view%2fdata", "/%ff", "/%"]
)
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_an_encoded_slash_ends_no_name_of_a_route(example: Running, target: str, method: str) -> None:
    check_problem(request(example.url, target, method, {"Content-Length": "0"}), 404, "route-not-found")


def test_the_page_of_a_problem_explains_its_code(example: Running) -> None:
    problem = json.loads(request(example.url, "/v1/slice/data/cube?select=x").body)

    explained = json.loads(request(example.url, problem["type"]).body)

    assert explained["code"] == "bad-selection"
    assert explained["status"] == 400
    assert {"select", "part", "position", "reason"} <= set(explained["members"])
    assert "quote the URL" in explained["remedy"]
    page = request(example.url, problem["type"], headers={"Accept": "text/html,*/*"})
    assert page.headers["content-type"].startswith("text/html")
    assert "<code>position</code> say which piece" in page.body.decode()
    assert json.loads(request(example.url, "/problems/internal-error").body)["members"] == ["id"]


GOOD = zarray()


def test_a_broken_chunk_is_a_bad_gateway_that_names_the_key(tmp_path: Path) -> None:
    spoilt: dict[str, tuple[Any, Callable[[bytes], bytes]]] = {
        "truncated": ("auto", lambda chunk: chunk[: len(chunk) // 2]),
        "corrupt": ("auto", lambda chunk: b"\x00" * len(chunk)),
        "empty": ("auto", lambda _: b""),
        "short": (None, lambda chunk: chunk[:-1]),
        "long": (None, lambda chunk: chunk + b"x"),
    }
    for name, (compressors, spoil) in spoilt.items():
        write_array(tmp_path, name, np.arange(100, dtype="<i4"), (50,), compressors=compressors)
        chunk = tmp_path / name / "1"
        chunk.write_bytes(spoil(chunk.read_bytes()))

    with running(tmp_path) as found:
        for name in spoilt:
            asked: list[tuple[str, dict[str, str]]] = [
                (f"/v1/slice/data/{name}{query}", {}) for query in ("", "?format=json")
            ]
            asked += [(f"/v1/chunk/data/{name}/1", {"Range": part}) for part in ("", "bytes=0-3", "bytes=0-0,2-2")]
            for target, headers in asked:
                answer = request(found.url, target, headers=headers)
                assert check_problem(answer, 502, "chunk-corrupt")["key"] == f"{name}/1"
            assert request(found.url, f"/v1/slice/data/{name}?select=:50").status == 200


@pytest.fixture
def failing(example_store: Path) -> Iterator[Running]:
    with running(example_store) as found:
        yield found


@pytest.mark.parametrize(
    ("error", "status", "code"), [(StoreError, 502, "store-failed"), (StoreTimeout, 504, "store-timeout")]
)
def test_a_store_that_cannot_answer_is_never_404(
    failing: Running, error: type[StoreError], status: int, code: str
) -> None:
    def before_chunk(key: str) -> None:
        raise error("data", key, "no answer")

    failing.store.before_chunk = before_chunk

    chunk, values = "chunk/data/cube/0.0.0?format=stored", "slice/data/cube?format=csv&select=0"
    for target in ("/zarr/data/cube/0.0.0", "/v1/slice/data/cube", f"/v1/{chunk}", f"/v1/{values}"):
        assert check_problem(request(failing.url, target), status, code)["store"] == "data"


@pytest.fixture(scope="module")
def half_down(example_store: Path) -> Iterator[str]:
    """The store ``data``, and ``down``, on whose port nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        options = {"endpoint": f"http://127.0.0.1:{listener.getsockname()[1]}", "anonymous": "true"}
    configs = [
        StoreConfig(name="data", url=str(example_store)),
        StoreConfig(name="down", url="s3://bucket", options=options, timeout=2.0, retries=0),
    ]
    service = build([MountedStore(config.name, open_store(config)) for config in configs])
    with served(create_app(service)) as url:
        yield url


def test_a_store_that_is_down_leaves_the_others_alone(half_down: str) -> None:
    listed = json.loads(request(half_down, "/v1/metadata").body)

    assert [child["name"] for child in listed["children"]] == ["data", "down"]
    assert b'href="data/"' in request(half_down, "/zarr/", headers={"Accept": "text/html"}).body
    assert request(half_down, "/v1/slice/data/cube?select=0,0").status == 200
    ready, alert = request(half_down, "/readyz"), request(half_down, "/readyz?stores=1")
    assert (ready.status, json.loads(ready.body)["status"], alert.status) == (200, "ready", 503)
    stores = json.loads(ready.body)["stores"]
    assert {name: store["ready"] for name, store in stores.items()} == {"data": True, "down": False}
    assert request(half_down, "/readyz?stores=TRUE").status == 503
    check_problem(request(half_down, "/readyz?stores=maybe"), 400, "bad-parameter")
    assert request(half_down, "/healthz").status == 200


@pytest.mark.parametrize(
    "target",
    [
        *("/v1/metadata/down", "/v1/metadata/down/a", "/v1/slice/down/a", "/v1/plan/down/a"),
        *("/v1/chunk/down/a/0", "/v1/tile/down/a/info.json", "/zarr/down/a/0", "/zarr/down/.zmetadata"),
        *("/zarr/down/a/.zarray", "/zarr/down/"),
    ],
)
def test_nothing_is_absent_in_a_store_that_is_down(half_down: str, target: str) -> None:
    assert check_problem(request(half_down, target), 502, "store-failed")["store"] == "down"


def test_a_missing_chunk_is_an_error_where_the_operator_wants_it_so(example_store: Path) -> None:
    with running(example_store, mount={"fill_missing": False}) as found:
        document = check_problem(request(found.url, "/v1/slice/data/sparse?select=0,0"), 404, "chunk-not-found")

    assert document["key"] == "sparse/0.0"


def test_a_fault_of_ours_is_a_500_that_tells_nothing_but_an_id(
    failing: Running, caplog: pytest.LogCaptureFixture
) -> None:
    def before_chunk(_: str) -> None:
        raise ZeroDivisionError("inner secret")

    failing.store.before_chunk = before_chunk

    document = check_problem(request(failing.url, "/zarr/data/cube/0.0.0"), 500, "internal-error")

    assert "secret" not in json.dumps(document)
    assert document["id"] in caplog.text


def test_a_text_answer_above_its_limit_is_refused_with_a_split(example_store: Path) -> None:
    with running(example_store, ApiOptions(max_csv_bytes=100)) as found:
        document = check_problem(request(found.url, "/v1/slice/data/cube?select=0&format=csv"), 413, "too-large")

    assert document["limit"] == 100
    assert document["boxes"]

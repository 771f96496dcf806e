"""Health, metrics, descriptions and pages: what operators and newcomers look at."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from hyperslab.api.options import ApiOptions
from hyperslab.errors import StoreError
from tests.api.support import Running, request, running


@pytest.mark.parametrize(
    "target", ["/healthz", "/readyz", "/v1", "/v1/", "/metrics", "/openapi.json", "/docs", "/problems/bad-path", "/"]
)
def test_get_and_head_answer_alike(example: Running, target: str) -> None:
    get, head = request(example.url, target), request(example.url, target, "HEAD")

    assert get.status == head.status == 200
    assert head.body == b""
    assert head.headers["content-type"] == get.headers["content-type"]


def test_readiness_shows_each_store_and_what_it_can_do(client: httpx.Client) -> None:
    document = client.get("/readyz").json()

    assert document["status"] == "ready"
    store = document["stores"]["data"]
    assert store["ready"] is True
    assert {"writable", "listable", "conditional_put", "writers_safe", "width"} <= store["capabilities"].keys()


def test_a_store_that_cannot_be_reached_makes_the_service_unready_and_leaves_it_alive(
    example_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(example_store) as found:

        def check() -> None:
            raise StoreError("data", "", "nobody answers")

        monkeypatch.setattr(found.store, "check", check)
        ready, alive = httpx.get(f"{found.url}/readyz"), httpx.get(f"{found.url}/healthz")

    assert ready.status_code == 503
    assert ready.json()["stores"]["data"]["problem"] == "store-failed"
    assert "nobody answers" in ready.json()["stores"]["data"]["detail"]
    assert alive.status_code == 200


def test_metrics_count_requests_bytes_and_the_cache(example_store: Path) -> None:
    with running(example_store) as found:
        for _ in range(3):
            request(found.url, "/v1/slice/data/cube?select=0,0")
        request(found.url, "/v1/slice/data/nothing")
        request(found.url, "/zarr/data/cube/.zarray", "HEAD")
        answer = request(found.url, "/metrics")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"  # which Prometheus knows
    text = answer.body.decode()

    def value(pattern: str) -> float:
        match = re.search(rf"^{pattern} (\S+)$", text, re.MULTILINE)
        assert match is not None, pattern
        return float(match[1])

    assert value(r'hyperslab_requests_total\{method="GET",route="slice",status="200"\}') == 3
    assert value(r'hyperslab_requests_total\{method="GET",route="slice",status="404"\}') == 1
    assert value(r'hyperslab_requests_total\{method="HEAD",route="zarr",status="200"\}') == 1
    assert value(r'hyperslab_request_seconds_count\{route="slice"\}') == 4
    assert value(r'hyperslab_sent_bytes_total\{route="slice"\}') > 3 * 80
    assert value("hyperslab_chunk_cache_misses_total") > 0
    assert value("hyperslab_answer_cache_hits_total") > 0
    assert value("hyperslab_tile_cache_limit_bytes") > 0
    assert value("hyperslab_chunk_cache_bytes") > 0
    assert value("hyperslab_in_flight_bytes") == 0
    assert answer.headers["cache-control"] == "no-store"


def test_the_root_of_the_api_lists_the_routes(client: httpx.Client) -> None:
    listed = client.get("/v1").json()
    described = client.get("/openapi.json").json()["paths"]

    assert {(route["method"].lower(), route["path"]) for route in listed["routes"]} == {
        (method, path) for path, methods in described.items() for method in methods
    }
    assert all(route["summary"] for route in listed["routes"])
    assert all(client.get(link).status_code == 200 for link in listed["links"].values())


def test_the_description_links_to_the_site_that_is_configured(example_store: Path) -> None:
    with running(example_store, ApiOptions(documentation_url="https://docs.example/?a&b")) as found:
        description = json.loads(request(found.url, "/openapi.json").body)

    assert description["externalDocs"]["url"] == "https://docs.example/?a&b"


def test_links_and_pages_know_the_path_that_a_proxy_has_cut_off(example_store: Path) -> None:
    with running(example_store, root_path="/api") as found:
        document = json.loads(request(found.url, "/v1/metadata/data/cube").body)
        problem = json.loads(request(found.url, "/v1/metadata/data/none").body)
        page = request(found.url, "/docs").body.decode()
        description = json.loads(request(found.url, "/openapi.json").body)

    assert description["servers"] == [{"url": "/api"}]
    assert document["links"]["slice"] == "/api/v1/slice/data/cube"
    assert problem["type"] == "/api/problems/node-not-found"
    assert 'data-url="/api/openapi.json"' in page


def test_only_listed_origins_are_let_in_where_there_is_a_list(example_store: Path) -> None:
    options = ApiOptions(cors_origins=("https://good.example",))
    with running(example_store, options) as found:
        good, bad = (
            request(found.url, "/zarr/data/.zgroup", headers={"Origin": origin})
            for origin in ("https://good.example", "https://bad.example")
        )

    assert good.headers["access-control-allow-origin"] == "https://good.example"
    assert good.headers["timing-allow-origin"] == "https://good.example"
    assert "access-control-allow-origin" not in bad.headers
    assert "timing-allow-origin" not in bad.headers
    assert good.headers["vary"] == bad.headers["vary"] == "Origin"


TOKENS = ApiOptions(read_tokens=("r1", "r2"), write_tokens=("w1",))


@pytest.fixture(scope="module")
def guarded(example_store: Path) -> Iterator[str]:
    with running(example_store, TOKENS) as found:
        yield found.url


@pytest.mark.parametrize(
    ("header", "method", "status"),
    [
        (None, "GET", 401),
        ("Bearer r2", "GET", 200),
        ("bearer w1", "HEAD", 200),
        ("Bearer nope", "GET", 401),
        ("Basic cjE6", "GET", 401),
        ("Bearer r1", "PUT", 403),
        ("Bearer w1", "PATCH", 405),
        (None, "PUT", 401),
        (None, "OPTIONS", 204),
    ],
)
def test_tokens_let_in_those_who_carry_them(guarded: str, header: str | None, method: str, status: int) -> None:
    headers = {} if header is None else {"Authorization": header}
    answer = request(guarded, "/zarr/data/.zgroup", method, {**headers, "Content-Length": "0"})

    assert answer.status == status
    assert answer.headers["access-control-allow-origin"] == "*"
    assert (answer.headers.get("www-authenticate") == "Bearer") == (status == 401)


def test_where_only_writers_need_tokens_all_may_read(example_store: Path) -> None:
    with running(example_store, ApiOptions(write_tokens=("w",))) as found:
        assert request(found.url, "/zarr/data/.zgroup").status == 200
        assert request(found.url, "/zarr/data/.zgroup", "PUT", {"Content-Length": "0"}).status == 401
        posts = ("append/data/cube", "points/data/cube?values=1", "stream/data/s/flush", "stream/data/s/frames")
        for method, target in (("PUT", "/zarr/data/.zgroup"), *(("POST", f"/v1/{target}") for target in posts)):
            unknown = request(found.url, target, method, {"Content-Length": "0", "Authorization": "Bearer guess"})
            assert (unknown.status, unknown.headers["www-authenticate"]) == (401, "Bearer")
        assert request(found.url, "/v1/points/data/cube", "POST", {"Content-Length": "0"}).status == 400


def test_the_page_and_probes_need_no_token_and_nothing_else_becomes_public(guarded: str) -> None:
    page = request(guarded, "/view/data/cube")
    files = re.findall(r'(?:src|href)="(/viewer/static/[^"]+)"', page.body.decode())
    described = request(guarded, "/docs").body.decode()
    files += re.findall(r'(?:src|href)="(/docs/static/[^"]+)"', described)
    public = ["/", "/view", "/view/data", "/favicon.ico", "/docs", "/openapi.json", "/problems/bad-path", *files]

    assert len(files) > 30
    assert {request(guarded, target, method).status for target in public for method in ("GET", "HEAD")} == {200}
    assert {request(guarded, target, "PUT", {"Content-Length": "0"}).status for target in public} == {401}
    assert request(guarded, "/readyz").status == request(guarded, "/healthz").status == 200


@pytest.mark.parametrize(
    "target",
    [
        *("/v1/metadata/", "/v1/metadata/data", "/v1/slice/data/cube", "/v1/chunk/data/cube/0.0.0", "/zarr/data/"),
        *("/v1/tile/data/cube/info.json", "/v1/plan/data/cube", "/metrics", "/docs/x", "/v1"),
        *("//v1/metadata/data", "/viewer", "/viewer/", "/viewer/other", "/views", "/view%2fdata", "/favicon.ico/"),
    ],
)
def test_everything_else_needs_a_token(guarded: str, target: str) -> None:
    assert request(guarded, target).status == 401


@pytest.mark.parametrize("root_path", ["", "/view", "/lab"])
def test_no_path_leads_past_the_page_to_data(example_store: Path, root_path: str) -> None:
    tails = ("/view/../v1/metadata/data", "/view/%2e%2e/v1/metadata/data", "/view//v1/metadata/data")
    with running(example_store, TOKENS, root_path=root_path) as found:
        targets = [before + tail for before in {"", root_path} for tail in (*tails, "//view/../zarr/data/.zgroup")]
        answers = [request(found.url, target) for target in targets]

    for answer in answers:
        assert answer.status in (200, 401, 404)
        assert b"zarr_format" not in answer.body
        assert answer.status != 200 or answer.headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize(("tokens", "whose"), [(("r",), "private"), ((), "public")])
def test_shared_caches_keep_nothing_that_needs_a_token(
    example_store: Path, tokens: tuple[str, ...], whose: str
) -> None:
    options = ApiOptions(read_tokens=tokens)
    with running(example_store, options, mount={"recheck": "never"}) as found:
        headers = {"Authorization": "Bearer r"}
        kept = request(found.url, "/v1/chunk/data/cube/0.0.0", headers=headers)
        key = request(found.url, "/zarr/data/cube/0.0.0", headers=headers)
        pinned = request(found.url, "/v1/tile/data/cube/0/0/0.png?v=1", headers=headers)

    assert kept.headers["cache-control"] == f"{whose}, max-age=86400, immutable, no-transform"
    assert key.headers["cache-control"] == kept.headers["cache-control"]
    assert pinned.headers["cache-control"] == f"{whose}, max-age=31536000, immutable, no-transform"

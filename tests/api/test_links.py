"""Signed links: clients that nobody changed read through them, all links inside stay behind them, and they end."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
import tensorstore
import xarray
import zarr

from hyperslab.access import digest
from hyperslab.api.links import Links
from hyperslab.asgi import create_app
from hyperslab.cli import run as run_command
from hyperslab.settings import Settings
from tests.api.test_access import KEY, PATHS, ROUTES, TOKEN, application, ask, make
from tests.server import served


class Guarded(NamedTuple):
    """A service that allows nothing without a token, and where its stores are."""

    url: str
    root: Path
    tokens: Path


def table(name: str, token: str, **members: Any) -> str:
    lines = [f"{key} = {json.dumps(value)}" for key, value in members.items()]
    return "\n".join([f"[tokens.{name}]", f'hash = "sha256:{digest(token.encode()).hex()}"', *lines, ""])


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    root = tmp_path_factory.mktemp("guarded")
    make(root / "stores")
    data = xarray.Dataset({"t": (("y", "x"), np.arange(12.0).reshape(3, 4))}, coords={"y": [1, 2, 3]})
    data.to_zarr(root / "stores" / "lab" / "set", zarr_format=2, consolidated=True)
    tokens = root / "tokens.toml"
    tokens.write_text(table("anna", TOKEN, allow=["read", "write", "create"], paths=["**"]))
    stores: Any = {name: {"url": str(root / "stores" / name), "writable": True} for name in ("lab", "lab3")}
    links: Any = {"old": "another key", "a": KEY}
    with served(create_app(Settings(stores=stores, tokens_file=tokens, link_keys=links))) as url:
        yield Guarded(url, root / "stores", tokens)


def link(guarded: Guarded, path: str, *, allow: list[str] | None = None, expires: str = "1h") -> str:
    body = {"path": path, "expires": expires, **({} if allow is None else {"allow": allow})}
    answer = httpx.post(f"{guarded.url}/v1/link", json=body, headers={"X-API-Key": TOKEN})
    assert answer.status_code == 201
    return str(answer.json()["prefix"])


def test_clients_that_nobody_changed_read_through_a_link(guarded: Guarded) -> None:
    prefix, values = link(guarded, "lab/g"), np.arange(16).reshape(4, 4)

    np.testing.assert_array_equal(zarr.open_array(f"{prefix}/zarr/lab/g/a", mode="r")[:], values)
    member = zarr.open_group(f"{prefix}/zarr3/lab/g", mode="r")["a"]
    assert isinstance(member, zarr.Array)
    np.testing.assert_array_equal(member[1:], values[1:])
    opened = tensorstore.open({"driver": "zarr", "kvstore": f"{prefix}/zarr/lab/g/a/"}).result()
    np.testing.assert_array_equal(opened.read().result(), values)
    with xarray.open_zarr(f"{link(guarded, 'lab/set')}/zarr/lab/set", zarr_format=2) as data:
        np.testing.assert_array_equal(data.t, np.arange(12.0).reshape(3, 4))
    with pytest.raises(FileNotFoundError):
        zarr.open_group(f"{prefix}/zarr3/lab/h", mode="r")


def test_links_inside_an_answer_stay_behind_the_link(guarded: Guarded) -> None:
    prefix = link(guarded, "lab/g", allow=["read", "create"])
    below = prefix.removeprefix(guarded.url)
    with httpx.Client(base_url=f"{prefix}/") as http:
        members = http.get("v1/metadata/lab/g/a").json()["links"]
        assert members
        assert all(each.startswith(f"{below}/") for each in members.values())
        assert http.get("v1/tile/lab/g/im/info.json").json()["tiles"][0].startswith(f"{prefix}/v1/tile/lab/g/im/")
        assert http.get("v1/tile/iiif/lab/g/im/info.json").json()["id"] == f"{prefix}/v1/tile/iiif/lab/g/im"
        moved = http.get("v1/tile/iiif/lab/g/im")
        assert moved.headers["location"] == f"{prefix}/v1/tile/iiif/lab/g/im/info.json"
        made = http.put("v1/metadata/lab/g/new", json={"shape": [2], "dtype": "<i4"})
        assert made.headers["location"] == f"{below}/v1/metadata/lab/g/new"
        assert http.get("zarr/lab/g/").text.count(f"Index of {below}/zarr/lab/g") == 2
        listed = httpx.request("PROPFIND", f"{prefix}/zarr/lab/g", headers={"Depth": "1"}).text
        assert listed.count(f"<D:href>{below}/zarr/lab/g") == listed.count("<D:href>") > 3
        page = http.get("view/lab/g").text
        assert f'"{below}/viewer/static/' in page
        assert '"/viewer/static/' not in page
        assert http.get("openapi.json").json()["servers"] == [{"url": below}]
        assert all(each.startswith(below) for each in http.get("v1").json()["links"].values())
        assert http.get("v1/tile/lab/g/im.dzi").status_code == http.get("v1/tile/lab/g/im_files/0/0_0.png").status_code


def test_a_problem_behind_a_link_does_not_have_its_text(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    prefix = link(guarded, "lab/g")
    text = prefix.rpartition("/")[2]
    answers = [
        httpx.get(f"{prefix}/{each}") for each in ("v1/metadata/lab/g/nothing", "v1/slice/lab/h", "zarr/lab/h/0")
    ]

    assert [each.status_code for each in answers] == [404, 404, 403]
    assert not any(text in each.text or text in str(each.headers) for each in answers)
    hyperslab = [record.getMessage() for record in caplog.records if record.name.startswith("hyperslab")]
    assert not any(text in each or TOKEN in each for each in hyperslab)


def test_a_link_allows_its_actions_at_its_path_and_no_more(guarded: Guarded) -> None:
    prefix = link(guarded, "lab/g/a")
    outside = httpx.get(f"{prefix}/v1/metadata/lab/h/a")
    change = httpx.put(f"{prefix}/v1/slice/lab/g/a", content=bytes(32))
    group = httpx.get(f"{prefix}/v1/metadata/lab").json()
    again = httpx.post(f"{prefix}/v1/link", json={"path": "lab/g/a", "expires": "9d"}).json()

    assert outside.status_code == 404
    assert (change.status_code, change.json()["action"]) == (403, "write")
    assert (group["attributes"], group["children"]) == ({}, [{"name": "g", "kind": "group"}])
    assert again["prefix"].startswith(f"{guarded.url}/link/a.")
    ends = time.mktime(time.strptime(again["expires"], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone
    assert ends < time.time() + 4000  # with the link by which it was made


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"path": "lab", "expires": "7d", "allow": ["delete"]}, 403, "write-forbidden"),
        ({"path": "lab"}, 422, "bad-definition"),
        ({"path": "lab", "expires": "soon"}, 422, "bad-definition"),
        ({"path": "lab", "expires": "999999999d"}, 422, "bad-definition"),  # beyond the year 9999
        ({"path": "lab", "expires": "7d", "allow": []}, 422, "bad-definition"),
        ({"path": "lab", "expires": "7d", "allow": ["all"]}, 422, "bad-definition"),
        ({"path": "lab", "expires": "7d", "more": 1}, 422, "bad-definition"),
        ({"path": "../x", "expires": "7d"}, 400, "bad-path"),
    ],
)
def test_a_link_is_made_for_what_one_may_do(guarded: Guarded, body: Any, status: int, code: str) -> None:
    answer = httpx.post(f"{guarded.url}/v1/link", json=body, headers={"X-API-Key": TOKEN})

    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert httpx.post(f"{guarded.url}/v1/link", json=body).status_code == 401


async def test_a_link_that_has_ended_is_401_on_every_route_and_key_and_says_why(guarded: Guarded) -> None:
    app = application(guarded.root, ["**"], link_keys={"a": KEY})
    links = Links({"a": KEY})
    good, ended = (links.sign("lab", ["read"], time.time() + seconds, "anna") for seconds in (100, -1))
    texts = {
        ended: "link-expired",
        good[:-1]: "link-invalid",
        good[:-2] + ("AA" if good[-2:] != "AA" else "BB"): "link-invalid",
        good.replace("a.", "a.x", 1): "link-invalid",
        "a": "link-invalid",
        f"b{good[1:]}": "link-revoked",
        Links({"old": KEY}).sign("lab", ["read"], time.time() + 100, "anna"): "link-revoked",
    }

    assert (await ask(app, f"/link/{good}/v1/metadata/lab", {})).status == 200
    for text, code in texts.items():
        routes = ROUTES if text == ended else ROUTES[:3]
        targets = [route.format(path) for route in routes for path in PATHS]
        for target in (*targets, "/", "/view/lab", "/docs", "/healthz", "/metrics", "/v1", "/v1/nothing", ""):
            method, _, path = target.rpartition(" ")
            answer = await ask(app, f"{method} /link/{text}{path}".strip(), {"X-API-Key": TOKEN})
            assert (answer.status, json.loads(answer.body)["code"]) == (401, code), (text, target)
    page = await ask(app, f"/link/{ended}/view/lab", {"accept": "text/html"})
    assert (page.status, b"<h1>This link has ended</h1>" in page.body) == (401, True)


def test_the_command_line_makes_a_link_of_any_url(guarded: Guarded, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> str:
        assert run_command(["link", *arguments, "--token", TOKEN]) == 0
        return capsys.readouterr().out.strip()

    key = run(f"{guarded.url}/zarr/lab/g/a/.zarray", "--expires", "90s")
    again = run(key.replace("/zarr/", "/v1/slice/").removesuffix("/.zarray") + "?format=json")

    assert httpx.get(key).json()["shape"] == [4, 4]
    assert httpx.get(again).json()[0] == [0, 1, 2, 3]
    assert again.partition("/v1/")[0] != key.partition("/zarr/")[0]


def test_a_token_that_leaves_the_file_ends_with_its_running_answers(guarded: Guarded) -> None:
    kept, gone = "k" * 32, "g" * 32
    before = guarded.tokens.read_text()
    guarded.tokens.write_text(before + table("kept", kept) + table("gone", gone))
    wait_for(lambda: httpx.get(f"{guarded.url}/v1/metadata/lab", headers={"X-API-Key": gone}).status_code == 200)
    changes = f"{guarded.url}/v1/changes/lab"
    with (
        httpx.stream("GET", changes, headers={"X-API-Key": gone}, timeout=20) as ending,
        httpx.stream("GET", changes, headers={"X-API-Key": kept}, timeout=20) as going,
    ):
        first = next(going.iter_bytes())
        guarded.tokens.write_text(before + table("kept", kept))
        began = time.monotonic()
        with pytest.raises(httpx.RemoteProtocolError):
            list(ending.iter_bytes())
        assert time.monotonic() - began < 5
        assert b"ready" in first
        answers = [httpx.get(f"{guarded.url}/v1/metadata/lab", headers={"X-API-Key": each}) for each in (kept, gone)]
        assert [each.status_code for each in answers] == [200, 401]
        guarded.tokens.write_text("[tokens.kept\n")  # as while it is written
        time.sleep(1.1)
        assert httpx.get(f"{guarded.url}/v1/metadata/lab", headers={"X-API-Key": kept}).status_code == 200
    guarded.tokens.write_text(before)


def wait_for(holds: Any) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


async def test_each_change_and_each_refusal_has_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(tmp_path)
    app = application(tmp_path, ["lab/g"], ["read", "write", "create"])
    caplog.set_level(logging.INFO, "hyperslab.audit")
    own, body, group = {"X-API-Key": TOKEN}, b"\x01\x00" * 16, "PUT /v1/metadata/lab/g{}?mode=open"

    await ask(app, "/v1/metadata/lab/g/a", own)
    await ask(app, "PUT /v1/slice/lab/g/a", {**own, "x-request-id": "r-1"}, body)
    await ask(app, "DELETE /v1/metadata/lab/g/a", own)
    await ask(app, "/v1/metadata/lab/h", own)
    await ask(app, "/zarr/lab/g/a/0.0", {})
    await ask(app, "/zarr/lab/g/a/0.0", {"X-API-Key": "unknown"})
    await ask(app, "PUT /v1/slice/lab/g/a", own, b"short")
    await ask(app, group.format(""), {**own, "content-length": "2"}, b"{}")  # it is there: nothing has changed
    await ask(app, group.format("/new"), {**own, "content-length": "2"}, b"{}")
    lines = [
        {name: getattr(r, name) for name in ("audit", "principal", "action", "path", "bytes", "status")}
        for r in caplog.records
    ]
    assert [tuple(each.values()) for each in lines] == [
        ("change", "anna", "write", "lab/g/a", 32, 204),
        ("refusal", "anna", "delete", "lab/g/a", 0, 403),
        ("refusal", "anna", "read", "lab/h", 0, 404),
        ("refusal", "anonymous", "read", "lab/g/a/0.0", 0, 401),
        ("refusal", "unknown", "read", "lab/g/a/0.0", 0, 401),
        ("failure", "anna", "write", "lab/g/a", 5, 400),
        ("change", "anna", "create", "lab/g/new", 2, 201),
    ]
    assert caplog.records[0].request == "r-1"  # type: ignore[attr-defined]
    assert not any(TOKEN in record.getMessage() for record in caplog.records)

"""Who may see and change what: the rule itself, and that every route asks it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

import httpx
import numpy as np
import pytest
import zarr
from fastapi import FastAPI
from fastapi.routing import APIRoute

from hyperslab.access import ACTIONS, Principal, allows, digest, rule, sees
from hyperslab.api.app import ROUTERS
from hyperslab.api.links import Links
from hyperslab.api.middleware import access
from hyperslab.asgi import create_app
from hyperslab.settings import Settings
from tests.server import running_server

TOKEN = "t" * 32
KEY = "a key for the tests of links"
EXAMPLES = int(os.environ.get("TEST_EXAMPLES", "20"))
BY_HAND = EXAMPLES >= 1000


@pytest.mark.parametrize(
    ("pattern", "path", "covered", "leads"),
    [
        ("lab", "lab", True, True),
        ("lab", "lab/a/b", True, False),
        ("lab", "labs", False, False),
        ("lab", "", False, True),
        ("lab/2026", "lab", False, True),
        ("lab/2026", "lab/2027", False, False),
        ("lab/2026/**", "lab/2026", True, True),
        ("lab/2026/**", "lab/2026/x/y", True, True),
        ("lab/*/raw", "lab/x", False, True),
        ("lab/*/raw", "lab/x/raw/0", True, False),
        ("lab/*/raw", "lab/x/y/raw", False, False),
        ("**/raw", "a/b/raw/c", True, True),
        ("**/raw", "a/b", False, True),
        ("lab/**/x", "lab/x", True, True),
        ("lab/**/x", "other", False, False),
        ("**", "", True, True),
        ("**", "/metrics", True, True),
        ("/metrics", "/metrics", True, False),
        ("/metrics", "metrics", False, False),
        ("/metrics", "", False, False),
        ("a.b", "aXb", False, False),
    ],
)
def test_a_pattern_covers_a_node_and_all_below_and_leads_there(
    pattern: str, path: str, covered: bool, leads: bool
) -> None:
    principal = Principal("anna", (rule(["read"], [pattern]),))

    assert allows(principal, "read", path) is covered
    assert sees(principal, path) is (covered or leads)
    assert not any(allows(principal, action, path) for action in ACTIONS if action != "read")


@pytest.mark.parametrize("pattern", ["", "/", "a/../b", "a/b*", "a/***", "."])
def test_a_pattern_that_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="path"):
        rule(["read"], [pattern])


def test_who_may_do_something_at_a_node_may_do_it_at_all_below() -> None:
    """So to delete a group asks for every node below it."""
    chance = random.Random(1)
    for _ in range(2000):
        rules = rule(["delete"], random_patterns(chance))
        path = "/".join(chance.choices(NAMES, k=chance.randrange(4)))
        if allows(Principal("anna", (rules,)), "delete", path):
            assert allows(Principal("anna", (rules,)), "delete", f"{path}/{chance.choice(NAMES)}".lstrip("/"))


# --- what one may not see leaves no trace ----------------------------------------------------------------------------

NAMES = ("lab", "lab3", "g", "h", "a", "im", "0", "nothing")
HIDDEN_WORD = "topsecret"


def make(root: Path) -> None:
    """Two stores, of Zarr v2 and v3: groups ``g`` and ``h`` with attributes, arrays in them, an image, and what is
    consolidated."""
    formats: Sequence[tuple[Literal[2, 3], str]] = ((2, "lab"), (3, "lab3"))
    for zarr_format, store in formats:
        group = zarr.open_group(root / store, mode="w", zarr_format=zarr_format)
        group.attrs["title"] = HIDDEN_WORD
        for name in ("g", "h"):
            inner = group.create_group(name)
            inner.attrs["title"] = HIDDEN_WORD
            names: Any = {"dimension_names": ["y", "x"]} if zarr_format == 3 else {}
            attributes: Any = {} if names else {"_ARRAY_DIMENSIONS": ["y", "x"]}
            array = inner.create_array("a", shape=(4, 4), chunks=(2, 2), dtype="u2", attributes=attributes, **names)
            array[:] = np.arange(16).reshape(4, 4)
            inner.create_array("y", shape=(4,), chunks=(4,), dtype="i2")[:] = np.arange(4) * 10
            image = inner.create_group("im")
            axes = [{"name": "y", "type": "space"}, {"name": "x", "type": "space"}]
            image.attrs["multiscales"] = [{"version": "0.4", "axes": axes, "datasets": [{"path": "0"}]}]
            image.create_array("0", shape=(4, 4), chunks=(2, 2), dtype="u1")[:] = 7
        group.create_array("a", shape=(2,), chunks=(2,), dtype="i4")[:] = 5
        if zarr_format == 2:
            zarr.consolidate_metadata(root / store, zarr_format=2)


PATHS = (
    "",
    *(f"{s}{p}" for s in ("lab", "lab3") for p in ("", "/g", "/h", "/g/a", "/h/a", "/g/y", "/g/im", "/h/im/0", "/a")),
)
PATHS = (*PATHS, "lab/g/st", "lab/nothing", "lab/g/nothing", "nothing", "nothing/a")
ROUTES = (
    *("/v1/metadata/{}", "/v1/metadata/{}?limit=1", "/v1/metadata/{}?search=a", "/v1/slice/{}?format=json"),
    *("/v1/chunk/{}/0.0", "/v1/plan/{}", "/v1/tile/{}/info.json", "/v1/tile/{}/0/0/0.png", "/v1/tile/{}.dzi"),
    *("/v1/tile/iiif/{}/info.json", "/v1/tile/iiif/{}/full/max/0/default.png", "/v1/tile/{}/thumbnail.png"),
    *("/v1/stream/{}", "/zarr/{}/", "/zarr/{}", "/zarr/{}/.zarray", "/zarr/{}/.zgroup", "/zarr/{}/.zattrs"),
    *("/zarr/{}/.zmetadata", "/zarr/{}/zarr.json", "/zarr/{}/0.0", "/zarr/{}/c/0/0", "/zarr2/{}/.zmetadata"),
    *("/zarr2/{}/.zarray", "/zarr2/{}/0.0", "/zarr3/{}/zarr.json", "/zarr3/{}/c/0/0", "/zarr2/{}/", "/zarr3/{}/"),
    *("/v1/slice/{}?format=json&sel=y:10", "/v1/slice/{}?format=tiff", "/v1/slice/{}?reduce=minmax&format=json"),
    *("/v1/metadata/{}?table=true&limit=3", "/v1/metadata/{}?limit=0", "/v1/metadata/{}?search=topsecret"),
    *("/v1/metadata/{}?decode=cf", "/v1/changes/{}", "/v1/changes/{}?since=lab=0-0-0", "/v1/stream/{}/frames?key=a"),
    *("/v1/tile/{}/legend.png", "/v1/tile/{}/histogram.json", "/v1/tile/{}_files/0/0_0.png", "/view/{}"),
    *("PROPFIND /zarr/{}", "POST /v1/points/{}", "POST /v1/points/{}?sel=y:10", "POST /v1/link?{}", "/v1", "/docs"),
    *("/openapi.json", "/metrics", "/readyz"),
)
CHANGES: Mapping[str, tuple[str, ...]] = {
    "PUT /v1/slice/{}": ("write",),
    "PUT /v1/chunk/{}/0.0": ("write",),
    "DELETE /v1/chunk/{}/0.0": ("delete",),
    "PATCH /v1/metadata/{}": ("write",),
    "DELETE /v1/metadata/{}": ("delete",),
    "PUT /v1/metadata/{}": ("create",),
    "PUT /v1/metadata/{}?mode=replace": ("delete",),
    "POST /v1/append/{}": ("write",),
    "POST /v1/points/{}?values=1": ("write",),
    "PUT /zarr/{}/0.0": ("write",),
    "DELETE /zarr/{}/.zarray": ("delete",),
    "PUT /v1/stream/{}?if_exists=replace": ("delete",),
    "POST /v1/stream/{}/flush": ("write",),
    "DELETE /v1/stream/{}?finish=true": ("write",),
    "DELETE /v1/stream/{}?discard=true": ("delete",),
}


def random_patterns(chance: random.Random) -> list[str]:
    pool = [*filter(None, PATHS), "lab/*", "lab/*/a", "*/g", "**/im", "lab3/**/0", "lab/g/**", "lab/*/*", "*/*/y"]
    return chance.sample(pool, chance.randint(1, 3))


class Answer(NamedTuple):
    status: int
    headers: Mapping[bytes, bytes]
    body: bytes


async def ask(app: FastAPI, target: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
    """A request without a socket; the method may stand before the path."""
    method, _, path = target.rpartition(" ")
    raw, _, query = path.partition("?")
    sent = [(name.lower().encode(), value.encode()) for name, value in {"host": "localhost", **headers}.items()]
    scope = {
        **{"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method or "GET"},
        **{"scheme": "http", "path": raw, "raw_path": raw.encode(), "query_string": query.encode(), "root_path": ""},
        **{"headers": sent, "client": ("127.0.0.1", 1), "server": ("localhost", 80)},
    }
    received: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    received.put_nowait({"type": "http.request", "body": body, "more_body": False})
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    await app(scope, received.get, send)
    start, *parts = messages
    return Answer(start["status"], dict(start["headers"]), b"".join(each.get("body", b"") for each in parts))


def stores_of(root: Path) -> dict[str, Any]:
    return {each.name: {"url": str(each), "writable": True} for each in sorted(root.iterdir())}


def rules_of(token: str, patterns: Sequence[str], allow: Sequence[str] = ("read",)) -> Any:
    return {"hash": f"sha256:{digest(token.encode()).hex()}", "allow": [*allow], "paths": [*patterns]}


def application(root: Path, patterns: Sequence[str], allow: Sequence[str] = ("read",), **more: Any) -> FastAPI:
    """A service in which ``TOKEN`` allows actions at paths."""
    return create_app(Settings(stores=stores_of(root), tokens={"anna": rules_of(TOKEN, patterns, allow)}, **more))


def without_the_hidden(root: Path, target: Path, patterns: Sequence[str]) -> None:
    """A copy with the same files, of the nodes that patterns cover alone, in bare groups."""
    principal = Principal("anna", (rule(["read"], patterns),))
    target.mkdir()
    for store in root.iterdir():
        (target / store.name).mkdir()
    for file in sorted(root.rglob("*")):
        path = file.relative_to(root).as_posix()
        above = path.split("/")
        nodes = ["/".join(above[:depth]) for depth in range(1, len(above))]
        node = next((each for each in reversed(nodes) if {*NODES} & {each}), nodes[-1] if nodes else "")
        if not file.is_file() or not allows(principal, "read", node):
            continue
        for each in nodes:
            (target / each).mkdir(parents=True, exist_ok=True)
            if not allows(principal, "read", each):
                name = ".zgroup" if each.startswith("lab/") or each == "lab" else "zarr.json"
                bare = {"zarr_format": 2} if name == ".zgroup" else {"zarr_format": 3, "node_type": "group"}
                (target / each / name).write_text(json.dumps(bare))
        os.link(file, target / path)


NODES = tuple(
    f"{s}{p}"
    for s in ("lab", "lab3")
    for p in ("", "/g", "/h", "/a", *(f"/{g}/{n}" for g in "gh" for n in ("a", "y", "im", "im/0", "st")))
)


def told(answer: Answer) -> tuple[Any, ...]:
    """What an answer tells, without what varies from one to the next: times of files, ids of the change feed and of
    links, and how many chunks are cached."""
    varies = {b"server-timing", b"last-modified", b"x-request-id", b"date", b"server", b"connection", b"content-length"}
    varies |= {b"array-chunks"}
    body = re.sub(
        rb'/link/a\.[^"]*|\b\w+=[0-9a-f]{8}-[0-9a-f]*-[0-9a-f]+|"(expires":"[^"]*"|cached":\d+)', b"", answer.body
    )
    if b"multistatus" in body:
        body = b"".join(sorted(body.removesuffix(b"</D:multistatus>").split(b"<D:response>")))
    body = re.sub(rb"<D:(getlastmodified|creationdate)>[^<]*", b"", body)
    headers = {k: re.sub(rb'-\d+-67108864"$', b"", v) for k, v in answer.headers.items() if k not in varies}
    return answer.status, headers, body


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("stores")
    make(root)
    time: Any = {"name": "t", "type": "time", "size": None, "chunk": 2}
    names = [time, *({"name": name, "type": "space", "size": 4, "chunk": 4} for name in "yx")]
    body = dumped({"arrays": [{"key": "a", "dtype": "|u1", "dimensions": names}]})
    opening = ask(create_app(Settings(stores=stores_of(root))), "PUT /v1/stream/lab/g/st", {}, body)
    assert asyncio.run(opening).status == 201
    return root


Ask = Callable[[str, Mapping[str, str], bytes], Awaitable[Answer]]


@asynccontextmanager
async def workers(settings: Mapping[str, Any]) -> AsyncIterator[Ask]:
    """Requests to two workers, each of which gets some: two applications, or by hand a server."""
    if not BY_HAND:
        apps = [create_app(Settings(**settings)) for _ in range(2)]
        turns = count()
        yield lambda target, headers, body: ask(apps[next(turns) % 2], target, headers, body)
        return
    more = {name: value for name, value in settings.items() if name != "stores"}
    limits = httpx.Limits(max_keepalive_connections=0)  # the kernel chooses a worker for each connection
    with running_server(settings["stores"], executed=True, workers=2, **more) as server:
        async with httpx.AsyncClient(base_url=server.url, limits=limits, timeout=60) as client:

            async def request(target: str, headers: Mapping[str, str], body: bytes) -> Answer:
                method, _, path = target.rpartition(" ")
                sent = {"host": "localhost", "accept-encoding": "identity", **headers}
                found = await client.request(method or "GET", path, headers=sent, content=body or None)
                return Answer(found.status_code, {k.lower(): v for k, v in found.headers.raw}, found.content)

            yield request


def dumped(document: Any) -> bytes:
    return json.dumps(document).encode()


async def compare(asked: Ask, other: FastAPI, chance: random.Random, token: str, patterns: Sequence[str]) -> None:
    """Random routes and paths, cold and warm, after one who sees everything, with a token or by a link."""
    links = Links({"a": KEY})
    for _ in range(1000 if BY_HAND else 250):
        path, target = chance.choice(PATHS), chance.choice(ROUTES)
        body = dumped({"coordinates": [[0, 0]]}) if "points" in target else b""
        body = dumped({"path": path, "expires": "1h"}) if "link" in target else body
        target = target.replace("?{}", "").format(path)
        headers = {"accept": chance.choice(["*/*", "text/html", "application/json"]), "user-agent": "Mozilla/5.0"}
        if "/v1/changes" in target:
            headers["accept"] = "application/json"
        headers |= {"content-type": "application/json"} if "link" in target else {}
        if chance.random() < 0.3:
            await asked(target, {**headers, "X-API-Key": TOKEN}, body)
        if len(patterns) == 1 and "*" not in patterns[0] and chance.random() < 0.5:
            method, _, rest = target.rpartition(" ")
            target = f"{method} /link/{links.sign(patterns[0], ['read'], 4e9, 'anna')}{rest}".strip()
        else:
            headers["X-API-Key"] = token
        if " " not in target and chance.random() < 0.1:
            target = f"HEAD {target}"
        for turn in range(chance.choice([1, 1, 2, 3])):
            found, expected = await asked(target, headers, body), await ask(other, target, headers, body)
            assert told(found) == told(expected), (patterns, target, headers, body)
            if turn and b"etag" in expected.headers and "/v1/plan/" not in target:
                headers["if-none-match"] = expected.headers[b"etag"].decode()


async def test_what_one_may_not_see_leaves_no_trace(whole: Path, tmp_path: Path) -> None:
    """Answers are those of a service on whose disk the hidden nodes are not."""
    chance = random.Random(36)
    views = {f"{number:032}": random_patterns(chance) for number in range(max(4, EXAMPLES // 1000))}
    tokens = {f"n{token}": rules_of(token, patterns) for token, patterns in views.items()}
    more: dict[str, Any] = {"link_keys": {"a": KEY}}

    settings = {"stores": stores_of(whole), "tokens": tokens, "read_tokens": [TOKEN], **more}
    async with workers(settings) as asked:
        for token, patterns in views.items():
            twin = tmp_path / token
            without_the_hidden(whole, twin, patterns)
            own = {f"n{token}": tokens[f"n{token}"]}
            other = create_app(Settings(stores=stores_of(twin), tokens=own, **more))
            await compare(asked, other, chance, token, patterns)
            shutil.rmtree(twin)


async def test_no_change_is_made_that_is_not_allowed(whole: Path) -> None:
    chance = random.Random(37)

    before = contents(whole)
    for _ in range(max(8, EXAMPLES // 500)):
        patterns, allow = random_patterns(chance), chance.sample(ACTIONS, chance.randint(1, 3))
        app = application(whole, patterns, allow)
        principal = Principal("anna", (rule(allow, patterns),))
        for change, actions in CHANGES.items():
            for path in filter(None, PATHS):
                if any(allows(principal, action, path) for action in actions):  # type: ignore[arg-type]
                    continue
                answer = await ask(app, change.format(path), {"X-API-Key": TOKEN, "content-length": "0"})
                is_key = "/zarr/" in change and "0.0" in change
                expected = 403 if sees(principal, path) or is_key else 404
                assert answer.status == expected, (patterns, allow, change, path, answer.body)
                assert expected == 404 or json.loads(answer.body)["action"] == actions[0]
    assert contents(whole) == before


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(file): file.read_bytes() for file in root.rglob("*") if file.is_file() and ".hyperslab" not in str(file)
    }


async def test_without_a_token_all_that_anonymous_does_not_cover_is_401_whether_it_is_there_or_not(whole: Path) -> None:
    app = application(whole, ["**"], anonymous={"paths": ["lab/g/im", "lab3/*/nothing"]})

    async def statuses(*targets: str) -> set[int]:
        return {(await ask(app, target, {})).status for target in targets}

    for path in ("lab/h", "lab/nothing", "lab3", "lab3/g", "lab3/nothing", "nothing"):
        for route in (
            "/v1/metadata/{}",
            "/zarr/{}/.zgroup",
            "/zarr/{}/0.0",
            "/zarr/{}/",
            "/v1/slice/{}",
            "/v1/changes/{}",
        ):
            assert await statuses(route.format(path)) == {401}, (route, path)
        assert await statuses(f"PUT /v1/metadata/{path}", f"DELETE /v1/metadata/{path}") == {401}
    assert await statuses("/v1/metadata/lab/g/im", "/v1/metadata/lab", "/v1/metadata", "/zarr/lab/.zgroup") == {200}
    assert await statuses("/zarr/lab/.zattrs", "/v1/metadata/lab/g/im/nothing") == {404}
    assert await statuses("PUT /v1/slice/lab/g/im/0", "/metrics") == {401}
    assert await statuses("/healthz", "/docs", "/openapi.json", "/problems/bad-path", "/view/lab/h") == {200}
    children = json.loads((await ask(app, "/v1/metadata", {})).body)["children"]
    assert children == [{"name": "lab", "kind": "group"}]


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("Authorization", f"Bearer {TOKEN}", 200),
        ("Authorization", f"bearer  {TOKEN} ", 200),
        ("X-API-Key", TOKEN, 200),
        ("Authorization", "Basic YW55Om5hbWU6dA==", 401),
        ("Authorization", "Basic !", 401),
        ("Authorization", "Digest x", 401),
        ("X-API-Key", f"{TOKEN}x", 401),
        ("X-API-Key", "", 401),
    ],
)
async def test_a_token_is_a_bearer_an_api_key_or_a_password(whole: Path, header: str, value: str, status: int) -> None:
    answer = await ask(application(whole, ["lab"]), "/v1/metadata/lab", {header: value})

    assert answer.status == status
    assert value not in answer.body.decode() or not value


async def test_a_program_that_waits_for_a_challenge_is_told_of_basic_and_a_browser_is_not(whole: Path) -> None:
    import base64

    app, basic = application(whole, ["lab"]), base64.b64encode(f"any:{TOKEN}".encode()).decode()
    for agent, challenge in (("Wget/1.21", b'Basic realm="hyperslab", charset="UTF-8"'), ("Mozilla/5.0", b"Bearer")):
        answer = await ask(app, "/v1/metadata/lab", {"User-Agent": agent})
        assert (answer.status, answer.headers[b"www-authenticate"]) == (401, challenge)
    assert (await ask(app, "/v1/metadata/lab", {"Authorization": f"Basic {basic}"})).status == 200


async def test_new_nodes_need_create_and_what_is_there_needs_write(tmp_path: Path) -> None:
    make(tmp_path)
    array = (tmp_path / "lab" / "a" / ".zarray").read_bytes()
    new = json.dumps({"shape": [4], "dtype": "<i4"}).encode()

    async def statuses(*allow: str) -> list[int]:
        app, headers = application(tmp_path, ["lab"], ["read", *allow]), {"X-API-Key": TOKEN}
        targets = [
            ("PUT /zarr/lab/new/.zarray", array),
            ("PUT /zarr/lab/a/.zattrs", b"{}"),
            ("PUT /v1/metadata/lab/open?mode=open", new),
            ("PUT /v1/metadata/lab/g?mode=open", b"{}"),
            ("PUT /v1/metadata/lab/other?mode=replace", new),
            ("PATCH /v1/metadata/lab/a", b'{"attributes": {"x": 1}}'),
        ]
        found = []
        for target, body in targets:
            answer = await ask(app, target, {**headers, "content-length": str(len(body))}, body)
            found.append(answer.status)
        return found

    assert await statuses() == [403, 403, 403, 200, 403, 403]
    assert await statuses("write") == [403, 204, 403, 200, 403, 200]
    assert await statuses("delete") == [403, 403, 403, 200, 403, 403]
    assert await statuses("create", "delete") == [201, 403, 201, 200, 201, 403]


async def test_a_change_by_one_who_may_not_read_tells_nothing_of_the_node(tmp_path: Path) -> None:
    make(tmp_path)
    app = application(tmp_path, ["lab"], ["write"])
    body = b'{"attributes": {"x": 1}}'
    answer = await ask(app, "PATCH /v1/metadata/lab", {"X-API-Key": TOKEN, "content-length": "24"}, body)

    assert (answer.status, answer.body) == (204, b"")
    assert json.loads((tmp_path / "lab" / ".zattrs").read_text()) == {"title": HIDDEN_WORD, "x": 1}


def test_every_route_of_nodes_is_one_that_rules_know() -> None:
    paths = [route.path for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    routes = {path.split("/")[2] for path in paths if path.startswith("/v1/") and path != "/v1/"}

    assert routes - {"link"} == access.ROUTES.keys()  # the endpoint of links asks by itself


async def test_ids_of_changes_count_nothing_that_one_may_not_see(tmp_path: Path) -> None:
    make(tmp_path)
    everything = "w" * 32
    app = application(tmp_path, ["lab/g"], write_tokens=[everything])

    async def put(path: str, value: int) -> None:
        target = f"PUT /v1/slice/lab/{path}?select={value},{value}"
        assert (await ask(app, target, {"X-API-Key": everything}, bytes([value, 0]))).status == 204

    async def changes(token: str, since: str = "") -> tuple[list[Any], str]:
        target = "/v1/changes/lab" + (f"?since={since}" if since else "")
        answer = await ask(app, target, {"X-API-Key": token, "accept": "application/json"})
        found = json.loads(answer.body)
        return [(each["path"], each["boxes"]) for each in found["events"]], found["next"]

    async def told(since: str, most: int) -> None:
        """Wait until this many changes are in the log."""
        while len((await changes(everything, since))[0]) < most:
            await asyncio.sleep(0.01)

    (_, first), (_, own), (_, same) = [await changes(each) for each in (everything, TOKEN, TOKEN)]
    form = re.compile("lab=[0-9a-f]{8}-[0-9a-f]{24}-[0-9a-f]{16}")
    assert form.fullmatch(own) and form.fullmatch(same) and own != same  # noqa: PT018
    await put("h/a", 0)
    await put("g/a", 1)
    await put("h/a", 2)
    await told(first, 2)
    events, own = await changes(TOKEN, own)
    assert (events, form.fullmatch(own) is not None) == ([("lab/g/a", ["0:2,0:2"])], True)
    await put("g/a", 3)
    assert (await changes(TOKEN, own))[0] == [("lab/g/a", ["2:4,2:4"])]
    unknown = await ask(app, f"/v1/changes/lab?since={first}", {"X-API-Key": TOKEN, "accept": "application/json"})
    assert [each["unknown"] for each in json.loads(unknown.body)["events"]] == [True]


async def test_a_chunk_whose_key_a_pattern_covers_by_its_name_is_absent_with_its_array(whole: Path) -> None:
    app = application(whole, ["lab3/**/0"])
    keys = ("lab3/g/a/c/0/0", "lab3/nothing/c/0/0")

    answers = [(await ask(app, f"/zarr/{key}", {"X-API-Key": TOKEN})).status for key in keys]

    assert answers == [404, 404]

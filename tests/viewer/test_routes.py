"""The page over HTTP: its policy, its caching, its addresses behind a proxy."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from hyperslab import viewer
from tests.api.support import running

POLICY = "default-src 'self'; img-src 'self' blob: data:"


def static_addresses(page: str) -> list[str]:
    return re.findall(r'(?:src|href)="([^"]*/viewer/static/[^"]+)"', page)


@pytest.mark.parametrize("path", ["/", "/view", "/view/demo/brain", "/view/no/such/node"])
def test_page_has_a_strict_policy_and_is_revalidated(url: str, path: str) -> None:
    answer = httpx.get(url + path)

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith(POLICY)
    assert answer.headers["cache-control"] == "no-cache"
    conditions = ("If-None-Match", answer.headers["etag"], 304), ("If-None-Match", "*", 304), ("If-Match", '"x"', 412)
    for name, tags, status in conditions:
        assert httpx.get(url + path, headers={name: tags}).status_code == status


def test_files_named_in_the_page_are_there_for_ever(url: str) -> None:
    with httpx.Client(base_url=url) as client:
        addresses = static_addresses(client.get("/").text)
        answers = [client.head(address) for address in addresses]

    assert len(addresses) > 30
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.headers["cache-control"] for answer in answers} == {"public, max-age=31536000, immutable"}


def test_files_of_another_version_are_not_kept(url: str) -> None:
    answer = httpx.get(f"{url}/viewer/static/0123456789abcdef/main.js")

    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(("accept", "encoding"), [("gzip, br", "gzip"), ("identity", None)])
def test_files_are_compressed_for_those_who_take_it(url: str, accept: str, encoding: str | None) -> None:
    address = f"{url}/viewer/static/{viewer.load().digest}/openseadragon/openseadragon.min.js"

    answer = httpx.get(address, headers={"Accept-Encoding": accept})

    assert answer.headers.get("content-encoding") == encoding
    assert answer.headers["vary"] == "Accept-Encoding"
    assert answer.content == viewer.load().files["openseadragon/openseadragon.min.js"].body


@pytest.mark.parametrize("name", ["nothing.js", "index.html", "..%2F..%2F__init__.py", "../__init__.py", ""])
def test_nothing_else_is_served(url: str, name: str) -> None:
    answer = httpx.get(f"{url}/viewer/static/{viewer.load().digest}/{name}")

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_vendored_library_comes_with_its_licence(url: str) -> None:
    answer = httpx.get(f"{url}/viewer/static/{viewer.load().digest}/openseadragon/LICENSE.txt")

    assert "CodePlex Foundation" in answer.text


def test_addresses_follow_the_prefix_of_a_proxy(tmp_path: Path) -> None:
    with running(tmp_path, root_path='/lab/"data"') as found:
        page = httpx.get(found.url).text

    assert static_addresses(page)
    assert all(address.startswith("/lab/&quot;data&quot;/viewer/static/") for address in static_addresses(page))
    assert '<meta name="hyperslab-root" content="/lab/&quot;data&quot;">' in page


def test_every_file_stays_small() -> None:
    assert max(len(asset.body) for asset in viewer.load().files.values()) < 1_000_000


@pytest.mark.parametrize("scheme", [0, 1, 2])
def test_text_stands_out_from_what_is_behind_it(scheme: int) -> None:
    """At least 4.5 to 1 (WCAG 2.2, 1.4.3): dark, light by the system's wish, and light by choice."""
    sheet = viewer.load().files["viewer.css"].body.decode()
    blocks = [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block)) for block in re.findall(r"{([^{}]*)}", sheet)]
    colours = [block for block in blocks if "ground" in block][scheme]

    for name in ("text", "muted", "faint", "accent", "danger"):
        for behind in ("ground", "surface", "raised", "hover"):
            assert contrast(colours[name], colours[behind]) >= 4.5, (name, behind)
    assert contrast(colours["on-accent"], colours["accent"]) >= 4.5


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    """Of a colour in sRGB (WCAG 2.2)."""
    parts = [value / 255 for value in bytes.fromhex(colour[1:])]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue

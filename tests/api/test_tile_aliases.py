"""Deep Zoom and IIIF over HTTP: the requests that OpenSeadragon sends, and the cells that the answers show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import ceil
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from hyperslab.storage import StoreConfig
from tests.api.support import Running, request, running, serving, write_array
from tests.tiles.support import Array, pixels

PLANE = np.add.outer(np.arange(300), np.arange(420) // 2).astype(np.uint8)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("aliases")
    write_array(folder, "a", PLANE, (64, 64))
    with running(folder) as found:
        yield found


def grey(body: bytes) -> Array:
    found = pixels(body)
    assert (found[..., 3] == 255).all()
    return found[..., 0]


@pytest.mark.parametrize("overlap", [0, 1])
def test_deep_zoom_tiles_fit_together(server: Running, overlap: int) -> None:
    query = f"?overlap={overlap}&tile_size=128"
    image = ET.fromstring(request(server.url, f"/v1/tile/data/a.dzi{query}").body)
    shown = np.zeros_like(PLANE)
    for column in range(ceil(420 / 128)):
        for row in range(ceil(300 / 128)):
            tile = grey(request(server.url, f"/v1/tile/data/a_files/9/{column}_{row}.png{query}").body)
            top, left = (max(0, 128 * n - overlap) for n in (row, column))
            shown[top : top + tile.shape[0], left : left + tile.shape[1]] = tile

    assert (image.attrib["TileSize"], image.attrib["Overlap"], image.attrib["Format"]) == ("128", str(overlap), "png")
    np.testing.assert_array_equal(shown, PLANE)


def test_deep_zoom_goes_down_to_one_pixel(server: Running) -> None:
    tile = grey(request(server.url, "/v1/tile/data/a_files/0/0_0.png").body)

    assert tile.shape == (1, 1)
    assert tile[0, 0] == np.floor(PLANE.mean() + 0.5)


@pytest.mark.parametrize("target", ["a_files/10/0_0.png", "a_files/9/2_0.png", "a_files/9/0_2.png"])
def test_deep_zoom_has_no_tiles_outside(server: Running, target: str) -> None:
    assert request(server.url, f"/v1/tile/data/{target}").status == 404
    assert request(server.url, f"/v1/tile/data/{target}?empty=204").status == 204


def test_every_tile_of_the_description_shows_its_part(server: Running) -> None:
    info = json.loads(request(server.url, "/v1/tile/iiif/data/a/info.json").body)
    base = info["id"].removeprefix(server.url)

    assert (info["width"], info["height"], info["type"]) == (420, 300, "ImageService3")
    for factor in info["tiles"][0]["scaleFactors"]:
        side = info["tiles"][0]["width"] * factor
        for left in range(0, 420, side):
            for top in range(0, 300, side):
                width, height = min(side, 420 - left), min(side, 300 - top)
                size = f"{ceil(width / factor)},{ceil(height / factor)}"
                answer = request(server.url, f"{base}/{left},{top},{width},{height}/{size}/0/default.png")
                shown = grey(answer.body)
                cells = PLANE[top : top + height, left : left + width]
                assert shown[0, 0] == np.floor(cells[:factor, :factor].mean() + 0.5)
                assert f"{shown.shape[1]},{shown.shape[0]}" == size


def test_the_whole_image_and_parts_of_it_are_shown(server: Running) -> None:
    full = grey(request(server.url, "/v1/tile/iiif/data/a/full/max/0/default.png").body)
    part = grey(request(server.url, "/v1/tile/iiif/data/a/10,20,30,40/max/0/gray.png").body)

    np.testing.assert_array_equal(full, PLANE)
    np.testing.assert_array_equal(part, PLANE[20:60, 10:40])


def test_images_can_be_turned_and_mirrored(server: Running) -> None:
    turned = grey(request(server.url, "/v1/tile/iiif/data/a/0,0,30,40/max/90/default.png").body)
    mirrored = grey(request(server.url, "/v1/tile/iiif/data/a/0,0,30,40/max/!0/default.png").body)

    np.testing.assert_array_equal(turned, np.rot90(PLANE[:40, :30], -1))
    np.testing.assert_array_equal(mirrored, PLANE[:40, :30][:, ::-1])


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("full/500,/0/default.png", 400),
        ("full/pct:0/0/default.png", 400),
        ("full/pct:0.0/0/default.png", 400),
        ("full/max/45/default.png", 400),
        ("full/max/0/best.png", 400),
        ("full/max/0/default.tif", 400),
        ("500,0,5,5/max/0/default.png", 400),
        ("full/max/0", 404),
    ],
)
def test_what_the_service_does_not_do_is_refused(server: Running, target: str, status: int) -> None:
    answer = request(server.url, f"/v1/tile/iiif/data/a/{target}")

    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("tail", ["", "/", "?c=0"])
def test_the_base_of_an_iiif_image_leads_to_its_description(server: Running, tail: str) -> None:
    answer = request(server.url, f"/v1/tile/iiif/data/a{tail}")

    query = tail.removeprefix("/")
    assert answer.status == 303
    assert answer.headers["location"] == f"{server.url}/v1/tile/iiif/data/a/info.json{query}"
    assert request(server.url, answer.headers["location"].removeprefix(server.url)).status == 200
    assert request(server.url, "/v1/tile/iiif/data/none").status == 404


def test_a_store_may_be_called_iiif(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("iiif")
    write_array(folder, "a", PLANE, (64, 64))
    with serving(StoreConfig(name="iiif", url=str(folder)), writable=False) as found:
        answer = request(found.url, "/v1/tile/iiif/a/info.json")

    assert json.loads(answer.body)["path"] == "iiif/a"

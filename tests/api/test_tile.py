"""Tiles over HTTP: pictures, numbers, documents, validators, and what is refused how."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from hyperslab.api.options import ApiOptions
from tests.api.support import Running, npy, request, running, write_array
from tests.tiles.support import pixels, same_picture, slow_grey, write_attributes, write_image, write_plain

VOLUME = np.random.default_rng(0).integers(0, 1000, (6, 300, 200)).astype("<u2")
CHANNELS = np.random.default_rng(1).integers(0, 255, (2, 64, 64), dtype=np.uint8)
TILE = "/v1/tile/data"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """``volume`` (three named axes), ``image`` (OME, two channels), ``broken`` (OME, unusable), ``text``, ``line``."""
    folder = tmp_path_factory.mktemp("pictures")
    write_array(folder, "volume", VOLUME, (2, 64, 64), attributes={"_ARRAY_DIMENSIONS": ["z", "y", "x"]})
    window = {"min": 0, "max": 255, "start": 0, "end": 255}
    channels = [{"label": color, "color": color, "window": window} for color in ("FF0000", "00FF00")]
    write_image(folder / "image", [CHANNELS, CHANNELS[:, ::2, ::2]], "cyx", {"omero": {"channels": channels}})
    write_attributes(folder / "broken", {"multiscales": [{"version": "0.4"}]})
    write_array(folder / "broken", "0", VOLUME[0], (64, 64))
    write_array(folder, "text", np.array([["a", "b"]], "<U3"), (1, 2))
    write_array(folder, "line", np.arange(9.0), (9,))
    with running(folder) as found:
        yield found


@pytest.mark.parametrize(("place", "factor"), [("0/0/0", 2), ("1/0/0", 1), ("1/0/1", 1)])
def test_a_tile_shows_the_cells_under_it(pictures: Running, place: str, factor: int) -> None:
    answer = request(pictures.url, f"{TILE}/volume/{place}.png?z=4&rescale=0,1000")

    column, row = map(int, place.split("/")[1:])
    assert (answer.status, answer.headers["content-type"]) == (200, "image/png")
    same_picture(pixels(answer.body), slow_grey(VOLUME[4], factor, (column, row), (0, 1000)))


def test_numbers_are_cut_at_the_edge_and_described(pictures: Running) -> None:
    array = request(pictures.url, f"{TILE}/volume/1/0/1.npy?z=1")
    raw = request(pictures.url, f"{TILE}/volume/1/0/1.raw?z=1")

    np.testing.assert_array_equal(npy(array.body), VOLUME[1, 256:, :])
    np.testing.assert_array_equal(np.frombuffer(raw.body, "<u2").reshape(44, 200), VOLUME[1, 256:, :])
    assert (raw.headers["array-shape"], raw.headers["array-dtype"]) == ("[44,200]", '"<u2"')


def test_tms_counts_rows_from_below(pictures: Running) -> None:
    from_above = request(pictures.url, f"{TILE}/volume/1/0/1.png")
    from_below = request(pictures.url, f"{TILE}/volume/1/0/0.png?scheme=tms")

    assert from_below.body == from_above.body


def test_an_array_named_like_a_level_is_found(pictures: Running) -> None:
    answer = request(pictures.url, f"{TILE}/image/0/0/0/0.npy?d0=1")

    np.testing.assert_array_equal(npy(answer.body), CHANNELS[1])


@pytest.mark.parametrize(
    "target",
    [
        *("1/0/0.png", "1/0/0.raw", "1/0/0.jpeg", "thumbnail.png", "info.json", "histogram.json"),
        *("legend.png", "1/9/9.png?empty=transparent"),
    ],
)
def test_a_copy_that_is_still_good_is_not_sent_again(pictures: Running, target: str) -> None:
    first = request(pictures.url, f"{TILE}/volume/{target}")

    again = request(pictures.url, f"{TILE}/volume/{target}", headers={"If-None-Match": first.headers["etag"]})

    assert not first.headers["etag"].startswith("W/")
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])


def test_a_304_reads_no_chunk_and_draws_nothing(tmp_path: Path) -> None:
    write_array(tmp_path, "a", VOLUME[0], (64, 64))
    target = f"{TILE}/a/1/0/0.png?rescale=0,1000"
    with running(tmp_path) as first:
        etag = request(first.url, target).headers["etag"]

    with running(tmp_path) as fresh:
        answer = request(fresh.url, target, headers={"If-None-Match": etag})
        read = fresh.store.chunk_gets()

    assert (answer.status, read) == (304, [])


def test_a_head_is_like_a_get_without_the_body(pictures: Running) -> None:
    for target in ("volume/1/0/0.png?z=5", "volume/1/0/0.npy?z=5", "volume/info.json"):
        head, get = (request(pictures.url, f"{TILE}/{target}", method) for method in ("HEAD", "GET"))

        assert head.body == b""
        for name in ("content-type", "content-length", "etag", "array-shape", "array-dtype", "cache-control"):
            assert head.headers.get(name) == get.headers.get(name)


def test_many_who_ask_at_once_have_the_tile_drawn_once(tmp_path: Path) -> None:
    write_array(tmp_path, "a", VOLUME[0], (64, 64))
    asked = threading.Semaphore(0)

    def wait(_: str) -> None:
        asked.acquire(timeout=60)

    with running(tmp_path, cache_bytes=0) as server, ThreadPoolExecutor(8) as threads:
        server.store.before_chunk = wait
        target = f"{TILE}/a/1/0/0.png?rescale=0,1000"
        waiting = [threads.submit(request, server.url, target) for _ in range(8)]
        time.sleep(0.3)  # all eight are on their way
        asked.release(1000)
        answers = [answer.result() for answer in waiting]
        read = server.store.chunk_gets()

    assert len({answer.body for answer in answers}) == 1
    assert len(read) == len(set(read)) == 16


@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        ("volume/2/0/0.png", 404, "tile-not-found"),
        ("volume/1/1/0.png", 404, "tile-not-found"),
        ("volume/1/-1/0.png", 404, "tile-not-found"),
        ("volume/0/0/0.png?z=6", 404, "tile-not-found"),
        ("volume/0/0/0.png?color=F00&color=0F0", 400, "bad-parameter"),
        ("volume/0/0/0.png?rescale=0,9&rescale=0,5", 400, "bad-parameter"),
        ("volume/0/0/0.png?labels=1&invert=1&invert=0", 400, "bad-parameter"),
        ("image/0/0/0.png?c=0&c=1&invert=1&invert=0&invert=1", 400, "bad-parameter"),
        ("volume/legend.png?rescale=0,9&rescale=0,5", 400, "bad-parameter"),
        ("volume/0/0/0.png?rescale=5,5", 400, "bad-parameter"),
        ("image/0/0/0.png?c=0&c=1&colormap_name=viridis", 400, "bad-parameter"),
        ("image/0/0/0.png?c=2", 404, "tile-not-found"),
        ("text/0/0/0.png", 422, "not-representable"),
        ("text/info.json", 422, "not-representable"),
        ("line/info.json", 422, "not-representable"),
        ("volume/0/0/0.png?field=x", 422, "field-unknown"),
        ("nothing/info.json", 404, "node-not-found"),
        ("nothing/info.json?isel=:1", 400, "bad-parameter"),
        ("info.json", 422, "wrong-kind"),
        ("volume", 404, "route-not-found"),
    ],
)
def test_what_cannot_be_is_refused_with_a_clear_problem(pictures: Running, target: str, status: int, code: str) -> None:
    answer = request(pictures.url, f"{TILE}/{target}")

    problem = json.loads(answer.body)
    assert (answer.status, problem["code"]) == (status, code)
    assert problem["detail"]


@pytest.mark.parametrize(("empty", "status", "nbytes"), [("204", 204, 0), ("transparent", 200, None)])
def test_tiles_outside_can_be_empty_instead(pictures: Running, empty: str, status: int, nbytes: int | None) -> None:
    answer = request(pictures.url, f"{TILE}/volume/1/7/7.png?empty={empty}&tile_size=128")

    assert answer.status == status
    if nbytes is None:
        assert not pixels(answer.body)[..., 3].any()
        assert pixels(answer.body).shape == (128, 128, 4)
    else:
        assert len(answer.body) == nbytes


def test_a_tile_that_would_read_too_much_is_refused_and_the_description_says_so(tmp_path: Path) -> None:
    write_array(tmp_path, "a", np.zeros((2048, 2048), np.uint8), (512, 512))

    with running(tmp_path, ApiOptions(max_tile_bytes=1 << 20)) as server:
        refused = request(server.url, f"{TILE}/a/0/0/0.png")
        info = json.loads(request(server.url, f"{TILE}/a/info.json").body)
        good = request(server.url, f"{TILE}/a/{info['minzoom']}/0/0.png")

    problem = json.loads(refused.body)
    assert (refused.status, problem["limit"], problem["requested"]) == (413, 1 << 20, 1 << 22)
    assert (info["minzoom"], good.status) == (1, 200)


def test_a_tile_of_very_many_small_chunks_shows_single_cells_and_says_so(tmp_path: Path) -> None:
    values = np.add.outer(np.arange(512), np.arange(512)) // 4
    write_array(tmp_path, "a", values[:8, :8].astype(np.uint8), (8, 8), compressors=None)
    document = json.loads((tmp_path / "a" / ".zarray").read_text())
    (tmp_path / "a" / ".zarray").write_text(json.dumps(document | {"shape": [512, 512]}))
    for y, x in np.ndindex(64, 64):
        chunk = values[8 * y : 8 * y + 8, 8 * x : 8 * x + 8]
        (tmp_path / "a" / f"{y}.{x}").write_bytes(chunk.astype(np.uint8).tobytes())

    with running(tmp_path, ApiOptions(max_tile_bytes=1 << 16)) as server:  # 1,024 of 4,096 chunks
        tile, again = (request(server.url, f"{TILE}/a/0/0/0.npy") for _ in range(2))
        pictures = [request(server.url, f"{TILE}/a/{name}.png") for name in ("0/0/0", "thumbnail")]
        fine = request(server.url, f"{TILE}/a/1/1/1.npy")
        info = json.loads(request(server.url, f"{TILE}/a/info.json").body)
        levels = json.loads(request(server.url, "/v1/tile/iiif/data/a/info.json").body)["tiles"][0]["scaleFactors"]

    assert np.array_equal(npy(tile.body), values[8::16, 8::16].repeat(8, 0).repeat(8, 1))
    assert all("sampled" in answer.headers["array-chunks"] for answer in (tile, again, *pictures))
    assert "sampled" not in fine.headers["array-chunks"]
    assert [answer.status for answer in pictures] == [200, 200]
    assert (info["minzoom"], info["sampled_below"], levels) == (0, 1, [1, 2])


def test_a_tile_of_many_chunks_that_are_not_small_is_refused_and_says_from_which_zoom_on_there_are_fewer(
    tmp_path: Path,
) -> None:
    write_plain(tmp_path / "a", np.zeros((1, 1), np.uint8), "|u1")
    document = json.loads((tmp_path / "a" / ".zarray").read_text())
    huge = {"shape": [160_000, 160_000], "chunks": [1024, 1024]}
    (tmp_path / "a" / ".zarray").write_text(json.dumps(document | huge))

    with running(tmp_path) as server:
        refused = [request(server.url, f"{TILE}/a/{name}.png") for name in ("0/0/0", "thumbnail")]
        info = json.loads(request(server.url, f"{TILE}/a/info.json").body)
        good = request(server.url, f"{TILE}/a/{info['minzoom']}/1/1.png")
        levels = json.loads(request(server.url, "/v1/tile/iiif/data/a/info.json").body)["tiles"][0]["scaleFactors"]

    for answer in refused:
        problem = json.loads(answer.body)
        assert answer.status == 413
        assert f"from zoom {info['minzoom']} of 10" in problem["detail"]
    assert info["minzoom"] == info["sampled_below"] > 0
    assert (good.status, levels) == (200, [1 << i for i in range(11 - info["minzoom"])])


def test_a_broken_chunk_is_a_fault_of_the_store(tmp_path: Path) -> None:
    write_array(tmp_path, "a", VOLUME[0], (64, 64))
    (tmp_path / "a" / "0.0").write_bytes(b"rubbish")

    with running(tmp_path) as server:
        answer = request(server.url, f"{TILE}/a/1/0/0.png?rescale=0,1000")
        other = request(server.url, f"{TILE}/a/1/0/1.png?rescale=0,1000")

    assert (answer.status, json.loads(answer.body)["code"]) == (502, "chunk-corrupt")
    assert other.status == 200

"""Viewers that others wrote show the right pixels: OpenSeadragon over DZI and IIIF, neuroglancer and napari
over Zarr."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final

import httpx
import numpy as np
import pytest
import zarr
from playwright.sync_api import Browser, expect
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from hyperslab import RemoteStream
from hyperslab.viewer import STATIC
from tests.chromium import Tab, open_tab
from tests.server import running_server, served
from tests.tools import ROOT, napari_python
from tests.viewer.support import Pixels, Viewer, pixels

HEIGHT: Final = 600
WIDTH: Final = 700
PICTURE: Final = np.kron(
    np.random.default_rng(3).integers(0, 256, (HEIGHT // 20, WIDTH // 20), np.uint8), np.ones((20, 20), np.uint8)
)
"""Squares of 20 pixels: no multiple of a tile's size, so tiles end within them."""
MIDDLES: Final = np.s_[10::20, 10::20]
"""Of the squares: at their edges, viewers round as they like."""
_KINDS: Final = {"t": ("time", None, 2), "y": ("space", HEIGHT, 200), "x": ("space", WIDTH, 200)}
IMAGE: Final = {
    "key": "a",
    "dtype": "|u1",
    "dimensions": [{"name": n, "type": kind, "size": size, "chunk": c} for n, (kind, size, c) in _KINDS.items()],
    "pyramid": {"method": "decimate"},
}
"""An array of a stream."""

OPENSEADRAGON = """
<!doctype html><title>loading</title><style>body {{ margin: 0 }} #view {{ width: 700px; height: 600px }}</style>
<div id="view"></div><script src="/page/openseadragon/openseadragon.min.js"></script><script>
const viewer = OpenSeadragon({{
  id: "view", tileSources: "{source}", drawer: "canvas", showNavigationControl: false, imageSmoothingEnabled: false,
}});
let failed = 0;
viewer.addHandler("tile-load-failed", () => (failed += 1));
const done = () => requestAnimationFrame(() => (document.title = `failed ${{failed}}`));
viewer.addHandler("open", () => viewer.world.getItemAt(0).whenFullyLoaded(done));
</script>
"""
TOKEN = "others" * 6
NEUROGLANCER = """
import json, sys
import neuroglancer
neuroglancer.set_server_bind_address("127.0.0.1")
viewer = neuroglancer.Viewer(token="test")
viewer.set_state(json.loads(sys.argv[1]))
with viewer.txn() as state:
    state.cross_section_scale = 1
    state.show_axis_lines = state.show_scale_bar = state.show_default_annotations = False
with viewer.config_state.txn() as config:
    config.show_ui_controls = config.show_panel_borders = False
print(viewer.get_viewer_url(), flush=True)
sys.stdin.read()
"""
INTERPRETER = """
import json, sys
for line in sys.stdin:
    code, arguments = json.loads(line)
    names = {"arguments": arguments}
    exec(code, names)
    print(json.dumps(names["found"]), flush=True)
"""
LEVELS = """
from napari_ome_zarr import napari_get_reader
levels = napari_get_reader(arguments[0])(arguments[0])[0][0]
found = [[list(level.shape), int(level[-1].sum(dtype="u8").compute())] for level in levels]
"""
PLUGIN = """
import tomllib
from pathlib import Path
import numpy
from napari.layers import Layer
from napari.layers.utils.stack_utils import split_channels
from npe2 import PluginManager, PluginManifest, io_utils
project = tomllib.loads(Path(arguments[0], "pyproject.toml").read_text())["project"]
package, _, name = project["entry-points"]["napari.manifest"]["hyperslab"].partition(":")
manifest = PluginManifest.from_file(Path(arguments[0], "app", *package.split("."), name))
manifest.validate_imports()
PluginManager.instance().register(manifest)
found = []
for data, options, kind in io_utils.read([arguments[1]], stack=False, plugin_name="hyperslab"):
    layers = split_channels(data, **options) if "channel_axis" in options else [(data, options, kind)]
    for levels, one, _ in layers:
        layer = Layer.create(levels, one, kind)
        levels = levels if one["multiscale"] else [levels]
        middle = numpy.asarray(levels[-1][tuple(size // 2 for size in levels[-1].shape[:-2])])
        color = None if kind == "labels" else layer.colormap.colors[-1].tolist()
        limits = None if kind == "labels" else list(layer.contrast_limits)
        total = int(middle.sum(dtype="u8"))
        found.append([kind, layer.name, layer.scale.tolist(), bool(layer.visible), color, limits, total])
"""


@pytest.fixture(scope="module")
def store_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A signed link to a store of a service that asks for a token: viewers that nobody changed can send none."""
    folder = tmp_path_factory.mktemp("others")
    root = zarr.open_group(folder, mode="w", zarr_format=2)
    array = root.create_array("picture", shape=PICTURE.shape, chunks=(128, 150), dtype="u1")
    array.attrs["_ARRAY_DIMENSIONS"] = ["y", "x"]
    array[...] = PICTURE
    with running_server({"data": {"url": str(folder), "writable": True}}, read_tokens=[TOKEN]) as server:
        with closing(RemoteStream(f"{server.url}/v1/stream/data/run", {"arrays": [IMAGE]}, token=TOKEN)) as stream:
            stream.append(PICTURE)  # which is in no chunk
        asked, headers = {"path": "data", "expires": "1h"}, {"X-API-Key": TOKEN}
        yield httpx.post(f"{server.url}/v1/link", json=asked, headers=headers).json()["prefix"]


@pytest.fixture
def small_tab(browser: Browser) -> Iterator[Tab]:
    with open_tab(browser, (WIDTH, HEIGHT)) as tab:
        yield tab


def show(tab: Tab, html: str) -> Pixels:
    """What a page on another origin than the service's shows when it says that all is loaded."""
    routes = [Route("/", lambda _: HTMLResponse(html)), Mount("/page", StaticFiles(directory=STATIC))]
    with served(Starlette(routes=routes)) as origin:
        tab.page.goto(origin)
        expect(tab.page).to_have_title("failed 0")
        return pixels(tab.page.screenshot())


def grey(picture: Pixels) -> Pixels:
    """One of three equal channels."""
    assert (picture == picture[..., :1]).all()
    return picture[..., 0]


@pytest.mark.parametrize("address", ["/v1/tile/data/picture.dzi", "/v1/tile/iiif/data/picture/info.json"])
def test_openseadragon_shows_the_pixels(small_tab: Tab, store_url: str, address: str) -> None:
    shown = show(small_tab, OPENSEADRAGON.format(source=store_url + address))

    np.testing.assert_array_equal(grey(shown)[MIDDLES], PICTURE[MIDDLES])
    assert small_tab.failed == []


@contextmanager
def neuroglancer(scene: str) -> Iterator[str]:
    """Its own server in a process of its own, showing a scene."""
    pytest.importorskip("neuroglancer", reason="pip install neuroglancer")
    command = [sys.executable, "-W", "ignore", "-c", NEUROGLANCER, scene]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.mark.parametrize("path", ["picture", "run/a"], ids=["array", "image of a stream"])
def test_neuroglancer_shows_the_pixels_of_the_link_in_our_page(
    tab: Tab, webgl_browser: Browser, store_url: str, path: str
) -> None:
    page = Viewer(tab, store_url)
    page.open_image(f"/view/data/{path}?rescale=0,255")
    link = page.page.get_by_role("link", name="Open in neuroglancer").get_attribute("href")
    scene = urllib.parse.unquote((link or "").partition("#!")[2])

    with neuroglancer(scene) as url, open_tab(webgl_browser, (300, 200)) as other:
        other.page.goto(url)
        other.wait_until(lambda: _share_of_equal(other) > 0.9)  # letters and buttons lie over the others


def _share_of_equal(tab: Tab) -> float:
    """Of the squares around the middle."""
    shown, wanted = pixels(tab.page.screenshot())[..., 0], PICTURE[200:400, 200:500]
    return float((abs(shown[MIDDLES].astype(int) - wanted[MIDDLES]) <= 1).mean())


@pytest.fixture(scope="module")
def napari() -> Iterator[Callable[..., Any]]:
    """Runs a piece of Python with arguments where napari is installed, and returns what it has found."""
    command, environment = [str(napari_python()), "-c", INTERPRETER], {**os.environ, "PYTHONPATH": str(ROOT / "app")}
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ask, answers = process.stdin, process.stdout

        def run(code: str, *arguments: str) -> Any:
            print(json.dumps([code, arguments]), file=ask, flush=True)
            return json.loads(answers.readline())

        yield run


def test_napari_shows_the_image_of_a_stream_while_it_grows(tmp_path: Path, napari: Callable[..., Any]) -> None:
    frames = np.stack([PICTURE, 255 - PICTURE, PICTURE])

    def check(rows: int) -> None:
        levels = [frames[:rows, ::step, ::step] for step in (1, 2, 4)]
        expected = [[list(level.shape), int(level[-1].sum(dtype="u8"))] for level in levels]
        assert napari(LEVELS, f"{server.url}/zarr/data/run/a") == expected

    with running_server({"data": {"url": str(tmp_path), "writable": True}}) as server:
        url, settings = f"{server.url}/v1/stream/data/run", {"zarr_format": 3, "arrays": [IMAGE]}
        with closing(RemoteStream(url, settings)) as stream:
            stream.append(frames[0])
        check(1)  # its frame is stored, and in no chunk
        with RemoteStream(url, settings, if_exists="resume") as stream:
            stream.append(frames[1:])
        check(3)


def test_napari_gets_the_layers_of_the_recipe(demo_url: str, napari: Callable[..., Any]) -> None:
    page = (ROOT / "docs" / "recipes" / "napari.md").read_text(encoding="utf-8")
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "napari_get_reader" in block)

    shapes = napari(f"{code.replace('http://127.0.0.1:8000', demo_url)}\nfound = [each[0][0].shape for each in layers]")

    # one layer that names its axis of channels, or from 0.11 on a layer for each, and one of labels
    assert shapes in ([[3, 16, 768, 1024]], *([[16, 768, 1024]] * count for count in (3, 4)))


def test_napari_opens_layers_with_the_plugin_of_the_package(
    demo_url: str, demo_store: Path, napari: Callable[..., Any]
) -> None:
    found = napari(PLUGIN, str(ROOT), f"{demo_url}/v1/metadata/demo/microscope")
    image: Any = zarr.open_group(demo_store / "microscope", mode="r")
    levels = [dataset["path"] for dataset in image.attrs["multiscales"][0]["datasets"]]
    planes = [*image[levels[-1]][...], image["labels/nuclei"][levels[-1]][...]]
    totals = [int(planes[i][len(planes[i]) // 2].sum(dtype="u8")) for i in range(4)]

    assert [each[-1] for each in found] == totals
    assert [(kind, name) for kind, name, *_ in found[:-1]] == [
        ("image", c["label"]) for c in image.attrs["omero"]["channels"]
    ]
    assert [each[5] for each in found[:-1]] == [
        [c["window"]["start"], c["window"]["end"]] for c in image.attrs["omero"]["channels"]
    ]
    assert found[0][2:5] == [[0.5, 0.25, 0.25], True, pytest.approx([0x4D / 255, 0x7C / 255, 1, 1])]
    assert found[-1][:3] == ["labels", "nuclei", [0.5, 0.25, 0.25]]

"""The pages that docs/ shows for web viewers do what they say, on a small store with the demo's names."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from playwright.sync_api import Browser, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from hyperslab.viewer import STATIC
from tests.chromium import Tab, open_tab
from tests.server import running_server, served
from tests.tiles.support import pixels as rgba
from tests.tiles.support import write_array, write_attributes, write_image
from tests.tools import ROOT, node_modules
from tests.viewer.support import pixels

PAGES: Final = (
    "tutorials/web-viewer",
    *(f"recipes/{name}" for name in ("openseadragon", "openlayers", "colours")),
)
TEXT: Final = "\n".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in PAGES)
DOCUMENTED: Final = "http://127.0.0.1:8000"
ORANGE, BLUE = (255, 128, 0), (0, 128, 255)
LIBRARIES: Final[Mapping[str, str]] = {
    "leaflet.css": "leaflet/dist/leaflet.css",
    "leaflet.js": "leaflet/dist/leaflet.js",
    "ol.css": "ol/ol.css",
    "ol.js": "ol/dist/ol.js",
}


def recipes(language: str) -> dict[str, str]:
    """The blocks of a language by the title in them, or by their first line."""
    blocks = re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)
    return {
        (re.search("<title>(.*?)</title>", block) or [block, block.partition("\n")[0]])[1]: block for block in blocks
    }


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store whose microscope shows orange on the left and blue on the right."""
    folder = tmp_path_factory.mktemp("recipes")
    write_attributes(folder, {})
    stack = np.zeros((3, 16, 768, 1024), np.uint8)
    stack[0, :, :, :512] = stack[1, :, :, 512:] = 255
    window = {"min": 0, "max": 255, "start": 0, "end": 255}
    channels = [{"color": color, "window": window, "label": color} for color in ("FF8000", "0080FF", "FFFFFF")]
    levels = [stack, stack[..., ::2, ::2], stack[..., ::4, ::4]]
    write_image(folder / "microscope", levels, "czyx", {"omero": {"channels": channels}}, chunks=(1, 1, 256, 256))
    write_attributes(folder / "microscope" / "labels", {"labels": ["nuclei"]})
    nuclei = (stack[0] > 0).astype("<u2")
    write_image(folder / "microscope" / "labels" / "nuclei", [nuclei], "zyx", {"image-label": {"version": "0.4"}})
    named = {"_ARRAY_DIMENSIONS": ["z", "y", "x"]}
    write_array(folder / "brain", np.zeros((8, 260, 30), "<u2"), attributes=named)
    write_attributes(folder / "climate", {})
    sst = np.full((190, 20, 40), np.nan, "<f4")
    write_array(folder / "climate" / "sst", sst, attributes={"_ARRAY_DIMENSIONS": ["time", "lat", "lon"]})
    with running_server({"demo": folder}) as server:
        yield server.url


def library(name: str) -> Path:
    """A file that a recipe wants beside its page."""
    if name == "openseadragon.min.js":
        return Path(STATIC) / "openseadragon" / name
    path = node_modules() / LIBRARIES[name]
    if not path.exists():
        pytest.skip(f"{name} is not installed: run tests/run.sh once")
    return path


def site(recipe: str) -> Starlette:
    """The recipe as a page, with the files beside it that it asks for."""
    wanted = re.findall(r'(?:src|href)="([^"/]+)"', recipe)
    files = [Route(f"/{name}", partial(_send, library(name))) for name in wanted]
    icon = Route("/favicon.ico", lambda _: Response(status_code=204))
    return Starlette(routes=[Route("/", lambda _: HTMLResponse(recipe)), icon, *files])


async def _send(path: Path, _: Request) -> Response:
    return FileResponse(path)


@pytest.fixture
def canvas(browser: Browser) -> Iterator[Tab]:
    with open_tab(browser, (820, 620)) as tab:
        yield tab


def halves(tab: Tab) -> list[Any]:
    """The colours in the middle of the left and of the right half of the picture."""
    box = tab.page.locator("#viewer, #map").bounding_box()
    assert box is not None
    shown = pixels(tab.page.screenshot())
    row = round(box["y"] + box["height"] / 2)
    return [shown[row, round(box["x"] + box["width"] * share)].tolist() for share in (0.3, 0.7)]


@pytest.mark.parametrize("title", recipes("html"))
def test_a_page_shows_the_picture(canvas: Tab, url: str, title: str) -> None:
    recipe = recipes("html")[title].replace(DOCUMENTED, url)

    with served(site(recipe)) as origin:
        canvas.page.goto(origin)
        canvas.wait_until(lambda: halves(canvas) == [list(ORANGE), list(BLUE)])
        expect(canvas.page).to_have_title(title)

    assert (canvas.failed, canvas.errors) == ([], [])


def test_the_commands_fetch_pictures(url: str, tmp_path: Path) -> None:
    (commands,) = (block for block in recipes("sh").values() if "thumbnail" in block)

    subprocess.run(
        ["bash", "-euc", commands.replace("curl ", "curl -sSf ").replace(DOCUMENTED, url)],
        cwd=tmp_path, check=True, timeout=300,
    )  # fmt: skip

    outputs = [shlex.split(line)[2] for line in commands.splitlines() if line.startswith("curl")]
    assert len(outputs) == 6
    for name in outputs[:-1]:
        assert rgba((tmp_path / name).read_bytes()).ndim == 3
    assert np.load(tmp_path / outputs[-1]).shape == (256, 256)

"""Every line that the page offers to copy does what it says: run for a node of each kind, in each of its views."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import subprocess
from pathlib import Path
from typing import Any, Final

import numpy as np
from playwright.sync_api import expect

from hyperslab.client import RemoteGroup
from tests.viewer.support import Viewer

ADDRESSES: Final = (
    *("", "demo", "demo/climate", "demo/microscope", "demo/microscope/labels/nuclei", "demo/sharded"),
    *("demo/sharded/0", "demo/climate/lat", "demo/signal", "demo/stations", "demo/speed_of_light", "demo/events"),
    *("demo/events?view=values&field=label", "demo/events?view=plot&field=energy", "demo/brain?view=values"),
    *("demo/brain", "demo/climate/sst", "demo/climate/sst?view=values", "demo/microscope?view=values"),
)


def snippets(viewer: Viewer, address: str) -> dict[str, str]:
    """The texts of all languages, once the view has settled."""
    viewer.open(address)
    viewer.page.locator('[data-view]:not([aria-busy="true"])').wait_for()
    code, texts = viewer.page.locator(".code code"), {}
    expect(code).not_to_be_empty()
    for tab in viewer.page.get_by_role("tab").all():
        tab.click()
        expect(tab).to_have_attribute("aria-selected", "true")
        texts[tab.inner_text()] = code.inner_text()
    return texts


def run(language: str, text: str, folder: Path) -> Any:
    """What a snippet gets: an array, a group, a document."""
    if language == "curl":
        command = shlex.split(text)
        done = subprocess.run([*command, "-sSf"], cwd=folder, capture_output=True, check=False, timeout=300)
        assert done.returncode == 0, (text, done.stderr)
        if "-o" not in command:
            return json.loads(done.stdout)
        file = folder / command[command.index("-o") + 1]
        return json.loads(file.read_text()) if file.suffix == ".json" else np.load(file)
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(text, names)
    return next(names[name] for name in ("slab", "d", "g") if name in names)


def plain(found: Any) -> tuple[Any, ...]:
    """Values as something that is the same for all languages."""
    array = np.asarray(found)
    return array.shape, json.dumps(array.tolist()) if array.dtype.kind in "OTU" else (array.dtype.str, array.tobytes())


def test_all_snippets_of_the_demo_run_and_agree(viewer: Viewer, tmp_path: Path) -> None:
    for address in ADDRESSES:
        texts = snippets(viewer, f"/view/{address}")
        found = {title: run(title, text, tmp_path) for title, text in texts.items()}
        if isinstance(found["Python"], RemoteGroup):
            members = set(found["Python"])
            assert members == {child["name"] for child in found["curl"]["children"]}
            assert {"zarr", "xarray"} <= found.keys() or not address
            assert set(found.get("zarr", members)) == members
        else:
            assert found.keys() == {"curl", "Python", "zarr", "numpy"}
            if "# as stored" in texts["zarr"]:
                del found["zarr"]
            assert {plain(value) for value in found.values()} == {plain(found["Python"])}, address

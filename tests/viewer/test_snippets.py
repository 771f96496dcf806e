"""Every line that the page offers to copy does what it says: run for every node of the demo, in each of its views."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import expect

from hyperslab.client import RemoteGroup
from tests.viewer.support import Viewer


def nodes(path: Path, name: str) -> Iterator[str]:
    """Paths of a node of the demo and of all below it."""
    yield name
    for child in sorted(path.iterdir()):
        if child.is_dir() and any((child / document).exists() for document in (".zarray", ".zgroup", "zarr.json")):
            yield from nodes(child, f"{name}/{child.name}")


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
        done = subprocess.run([*command, "-sSf"], cwd=folder, capture_output=True, check=False, timeout=60)
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


def test_all_snippets_of_the_demo_run_and_agree(viewer: Viewer, demo_store: Path, tmp_path: Path) -> None:
    for node in ["", *nodes(demo_store, "demo")]:
        if node[-1:].isdigit() and not node.endswith("0"):  # a coarser level is an array as the finest one is
            continue
        views = {"": "", "values": "?view=values"}
        if (demo_store / node.removeprefix("demo").lstrip("/") / ".zarray").exists() and node.endswith("events"):
            views |= {"a field as a plot": "?view=plot&field=energy", "a field": "?view=values&field=label"}
        for view in views.values():
            texts = snippets(viewer, f"/view/{node}{view}")
            found = {title: run(title, text, tmp_path) for title, text in texts.items()}
            if isinstance(found["Python"], RemoteGroup):
                members = set(found["Python"])
                assert members == {child["name"] for child in found["curl"]["children"]}
                assert {"zarr", "xarray"} <= found.keys() or not node
                assert set(found.get("zarr", members)) == members
            else:
                assert found.keys() == {"curl", "Python", "zarr", "numpy"}
                if "# as stored" in texts["zarr"]:
                    del found["zarr"]
                assert {plain(value) for value in found.values()} == {plain(found["Python"])}, (node, view)
    viewer.check_clean()

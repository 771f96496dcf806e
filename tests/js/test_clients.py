"""JavaScript's Zarr libraries open what is served under ``/zarr``."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import zarr

from tests.server import ServerFactory
from tests.tools import ROOT, node, node_modules

VALUES = np.arange(4 * 5 * 6, dtype="<i4").reshape(4, 5, 6)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    group = zarr.open_group(tmp_path / "data.zarr", mode="w", zarr_format=2)
    cube = group.create_array("a b/cube", shape=VALUES.shape, chunks=(3, 2, 4), dtype="<i4", attributes={"unit": "mm"})
    cube[...] = VALUES
    return tmp_path / "data.zarr"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The programs beside the libraries that they import."""
    for program in Path(__file__).parent.glob("*.*js"):
        shutil.copy(program, tmp_path)
    (tmp_path / "node_modules").symlink_to(node_modules())
    return tmp_path


def run(folder: Path, program: str, *arguments: str) -> Any:
    done = subprocess.run([node(), program, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_zarrita_reads_through_a_link_and_made_up_consolidated_metadata(
    store: Path, programs: Path, server: ServerFactory
) -> None:
    url, token = server({"data": store}, read_tokens=["zarrita"]).url, {"X-API-Key": "zarrita"}
    made = httpx.post(f"{url}/v1/link", json={"path": "data", "expires": "1h"}, headers=token).json()
    found = run(programs, "zarrita.mjs", f"{made['prefix']}/zarr/data", "a b/cube")

    assert found["attributes"] == {"unit": "mm"}
    assert found["contents"] == ["/", "/a b", "/a b/cube"]
    assert found["whole"] == {"shape": [4, 5, 6], "data": VALUES.ravel().tolist()}
    assert found["part"] == {"shape": [2, 5], "data": VALUES[1:3, :, 0].ravel().tolist()}


def test_zarrjs_reads(store: Path, programs: Path, server: ServerFactory) -> None:
    found = run(programs, "zarrjs.cjs", server({"data": store}).url, "zarr/data/a b/cube")

    assert found == {"shape": [4, 5, 6], "data": VALUES.ravel().tolist()}


def test_zarrjs_writes(store: Path, programs: Path, server: ServerFactory) -> None:
    url = server({"data": {"url": str(store), "writable": True}}).url

    run(programs, "zarrjs.cjs", url, "zarr/data/a b/cube", "7")

    np.testing.assert_array_equal(zarr.open_array(store / "a b" / "cube", mode="r")[...], np.full_like(VALUES, 7))


def test_text_is_read_with_the_lines_of_the_reference(store: Path, tmp_path: Path, server: ServerFactory) -> None:
    """The program that docs/reference/http.md shows for the binary form of objects."""
    texts = ["a", "", "é中", "long text " * 9]
    array = zarr.create_array(store / "names", shape=(4,), chunks=(3,), dtype=str, zarr_format=2)
    array[...] = np.array(texts, object)
    url = f"{server({'data': store}).url}/v1/slice/data/names"
    (shown,) = re.findall(r"```js\n(.*?)```", (ROOT / "docs/reference/http.md").read_text(encoding="utf-8"), re.DOTALL)
    fetched = f"const body = await (await fetch('{url}')).arrayBuffer();"
    (tmp_path / "text.mjs").write_text(f"{fetched}\n{shown}\nconsole.log(JSON.stringify(texts));\n", encoding="utf-8")

    assert run(tmp_path, "text.mjs") == texts

"""Programs of the field that are no Zarr libraries, or have some of their own, read Zarr v3 through the service."""

from __future__ import annotations

import json
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import pytest
import rasterio  # type: ignore[import-untyped]
import zarr

from tests.benchmarks.nginx import free_port, started
from tests.server import running_server
from tests.tools import ROOT, curl, nginx, node, node_modules, others_python, wget

IMAGE: Final = np.arange(4 * 20 * 30, dtype="<u2").reshape(4, 20, 30)
PLAIN: Final = np.arange(24, dtype="<u2").reshape(4, 6)
SPACE: Final = [{"name": name, "type": "space", "unit": "nanometer"} for name in "zyx"]
SCALE: Final = [{"type": "scale", "scale": [40.0, 4.0, 4.0]}]
TOKEN: Final = "a-token-of-whom-may-read"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a sharded image of OME-Zarr 0.5 and a group of arrays, all of Zarr v3: ``data`` for everybody, and
    as ``lab`` for whom has a token. In a process of its own: while GDAL waits for an answer, nothing else runs in this
    one."""
    folder = tmp_path_factory.mktemp("others")
    root = zarr.create_group(folder, zarr_format=3)
    levels = [{"path": "0", "coordinateTransformations": SCALE}]
    ome = {"version": "0.5", "multiscales": [{"axes": SPACE, "datasets": levels}]}
    image = root.create_group("image", attributes={"ome": ome})
    level = image.create_array(
        "0", shape=IMAGE.shape, dtype="<u2", chunks=(2, 8, 16), shards=(4, 16, 32), dimension_names="zyx"
    )
    level[...] = IMAGE
    plain = root.create_group("plain")
    for name in ("v", "deeper/w"):
        plain.create_array(name, data=PLAIN, chunks=(4, 4), compressors=None, dimension_names="yx")
    rules: Any = {"read_tokens": [TOKEN], "anonymous": {"paths": ["data"]}}
    with running_server({"data": folder, "lab": folder}, **rules) as server:
        yield server.url


@pytest.fixture(scope="module")
def link(url: str) -> str:
    """A signed link to ``lab``."""
    asked = {"path": "lab", "expires": "1h"}
    return str(httpx.post(f"{url}/v1/link", json=asked, headers={"X-API-Key": TOKEN}).json()["prefix"])


@pytest.fixture(scope="module")
def read(url: str) -> Any:
    program = [str(others_python()), "-W", "ignore", str(Path(__file__).with_name("other_clients.py")), url]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_icechunk_reads_chunks_by_reference_while_their_tags_are_the_same(read: Any) -> None:
    assert read["by_reference"] == PLAIN.tolist()


def test_virtualizarr_finds_all_chunks_of_a_url(read: Any) -> None:
    assert read["virtualized"] == PLAIN.tolist()


def test_cloudvolume_reads_shards_as_chunks_of_zarr_v2(read: Any) -> None:
    assert read["volume"] == IMAGE[1:4, 2, 3:6].T.tolist()


@pytest.mark.parametrize("format_", ["zarr", "zarr2", "zarr3"])
def test_gdal_opens_groups_through_a_link(link: str, format_: str) -> None:
    name = f"/vsicurl/{link}/{format_}/lab/plain"
    members, values = by_gdal(name)

    assert members == [f'ZARR:"{name}":/{path}' for path in ("v", "deeper/w")]
    np.testing.assert_array_equal(values, PLAIN)


def by_gdal(name: str, **options: str) -> tuple[list[str], Any]:
    """The arrays of a group, and the values of the second."""
    with warnings.catch_warnings(), rasterio.Env(GDAL_HTTP_TIMEOUT="30", **options):
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with rasterio.open(f'ZARR:"{name}"') as group:
            members = group.subdatasets
        with rasterio.open(members[1]) as array:
            return members, array.read(1)


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        (curl, ["-fsSu", f"any:{TOKEN}"]),
        (curl, ["-fsSH", f"X-API-Key: {TOKEN}"]),
        (wget, ["-qO-", "--user=any", f"--password={TOKEN}"]),
    ],
)
def test_programs_send_a_token_as_password_or_key(url: str, program: Any, arguments: list[str]) -> None:
    command = [program(), *arguments, f"{url}/v1/slice/lab/plain/v"]

    assert subprocess.run(command, capture_output=True, timeout=60, check=True).stdout == PLAIN.tobytes()


def test_gdal_sends_a_token_as_password(url: str) -> None:
    _, values = by_gdal(f"/vsicurl/{url}/zarr2/lab/plain", GDAL_HTTP_USERPWD=f"any:{TOKEN}")

    np.testing.assert_array_equal(values, PLAIN)


@pytest.mark.parametrize("format_", ["zarr", "zarr2"])
def test_viv_loads_planes_of_an_image_through_a_link(link: str, tmp_path: Path, format_: str) -> None:
    shutil.copy(ROOT / "tests/js/viv.mjs", tmp_path)
    (tmp_path / "node_modules").symlink_to(node_modules())

    command = [node(), "viv.mjs", f"{link}/{format_}/lab/image", '{"z": 3}']
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr
    levels = [{"labels": ["z", "y", "x"], "shape": [4, 20, 30], "data": IMAGE[3].ravel().tolist()}]
    assert json.loads(done.stdout) == levels


def test_ranges_pass_a_cache_of_nginx_as_the_guide_says(url: str, tmp_path: Path) -> None:
    nginx()
    guide = (ROOT / "docs/operate/deploy.md").read_text(encoding="utf-8")
    forced = "proxy_force_ranges on;"
    assert f"`{forced}`" in guide
    port = free_port()
    cache = f"proxy_cache_path {tmp_path}/cache keys_zone=keys:1m;"
    location = f"location / {{ proxy_pass {url}; proxy_cache keys; {forced} }}"

    with started(f"{cache} server {{ listen 127.0.0.1:{port}; {location} }}", port):
        shard = f"http://127.0.0.1:{port}/zarr/data/image/0"
        part = httpx.get(f"{shard}/c/0/0/0", headers={"Range": "bytes=0-9"})
        plane = zarr.open_array(shard, mode="r")[2]

    assert (part.status_code, len(part.content)) == (206, 10)
    np.testing.assert_array_equal(plane, IMAGE[2])

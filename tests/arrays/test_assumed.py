"""Arrays whose ``.zarray`` the operator's configuration holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import zarr

from hyperslab import RemoteArray
from hyperslab.asgi import create_app
from hyperslab.cli import run
from hyperslab.settings import load
from hyperslab.welcome import welcome
from tests.arrays.support import snapshot
from tests.server import served

_CONFIG = """
[stores.old]
url = '{folder}'
writable = true
[stores.old.assume_metadata."lab/scan"]
shape = [6]
chunks = [2]
dtype = "<u2"
compressor = "null"
fill_value = "null"
[stores.old.assume_metadata.lost]
shape = [4]
dtype = "|u1"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "old"
    (folder / "lab" / "scan").mkdir(parents=True)
    for i in range(3):
        (folder / "lab" / "scan" / str(i)).write_bytes(np.array([2 * i, 2 * i + 1], "<u2").tobytes())
    (folder / "lab" / "scan" / ".zattrs").write_text('{"runs": 1, "limit": NaN}')
    return folder


@pytest.fixture
def config(tmp_path: Path, folder: Path) -> Path:
    path = tmp_path / "hyperslab.toml"
    path.write_text(_CONFIG.format(folder=folder))
    return path


@pytest.fixture
def url(config: Path) -> Iterator[str]:
    with served(create_app(load(config))) as url:
        yield url


def test_what_a_document_leaves_out_is_as_in_a_new_array(url: str) -> None:
    scan = httpx.get(f"{url}/v1/metadata/old/lab/scan").json()
    lost = httpx.get(f"{url}/v1/metadata/old/lost").json()

    assert (scan["compressor"], scan["fill_value"], scan["filters"], scan["order"]) == (None, None, None, "C")
    assert (lost["compressor"]["id"], lost["fill_value"], lost["chunks"]) == ("blosc", 0, [4])
    assert RemoteArray(f"{url}/v1/metadata/old/lab/scan")[:].tolist() == [0, 1, 2, 3, 4, 5]


def test_attributes_of_an_assumed_array_are_stored_and_each_change_has_a_new_tag(url: str, folder: Path) -> None:
    array = RemoteArray(f"{url}/v1/metadata/old/lab/scan")
    assert array.attrs["runs"] == 1
    tags = set()
    for _ in range(4):
        array.attrs.change(lambda attributes: {**attributes, "runs": attributes["runs"] + 1})
        tags.add(httpx.head(f"{url}/v1/metadata/old/lab/scan").headers["etag"])

    assert (array.attrs["runs"], len(tags)) == (5, 4)
    patched = httpx.patch(f"{url}/v1/metadata/old/lab/scan", json={"attributes": {"unit": "m"}})
    assert patched.json()["attributes"]["unit"] == "m"
    assert json.loads((folder / "lab" / "scan" / ".zattrs").read_text())["runs"] == 5


def test_assumed_arrays_are_listed_and_found_by_plain_clients(url: str, folder: Path) -> None:
    (folder / "lab" / "scan" / ".zgroup").write_text('{"zarr_format": 2}')
    names = {path: httpx.get(f"{url}/v1/metadata/{path}").json()["children"] for path in ("old", "old/lab")}
    group = zarr.open_group(f"{url}/zarr/old", mode="r", zarr_format=2)

    assert names["old"] == [{"name": "lab", "kind": "group"}, {"name": "lost", "kind": "array"}]
    assert names["old/lab"] == [{"name": "scan", "kind": "array"}]
    assert np.asarray(group["lab/scan"])[:3].tolist() == [0, 1, 2]
    assert httpx.get(f"{url}/zarr/old/lab/scan/.zgroup").status_code == 404
    assert httpx.get(f"{url}/v1/metadata/old/lab/scan/0").status_code == 404


def test_no_request_pretends_to_change_what_the_configuration_fixes(url: str, folder: Path) -> None:
    before = snapshot(folder)
    node, key = f"{url}/v1/metadata/old/lab/scan", f"{url}/zarr/old/lab/scan/.zarray"
    definition = {"shape": [9], "dtype": "<i4"}

    refused = [
        httpx.delete(node),
        httpx.put(node, params={"mode": "replace"}, json=definition),
        httpx.patch(node, json={"shape": [9]}),
        httpx.put(key, content=httpx.get(key).content),
        *(httpx.delete(f"{url}/v1/metadata/{path}?recursive=true&foreign=true") for path in ("old", "old/lab")),
        httpx.put(f"{url}/v1/metadata/old/lab", params={"mode": "replace"}, json={}),
    ]

    assert [answer.status_code for answer in refused] == [422] * 7
    assert all("old/lab/scan" in answer.json()["detail"] for answer in refused)
    assert {answer.json()["member"] for answer in refused} == {"metadata"}
    assert snapshot(folder) == before


def test_the_service_says_that_it_has_found_them(tmp_path: Path, config: Path) -> None:
    """And offers no line about a store that it cannot read."""
    said = welcome(load(config), "http://a", demo=False)
    (tmp_path / "v3").mkdir()
    (tmp_path / "v3" / "zarr.json").write_text("{}")
    config.write_text(f"[stores.v3]\nurl = '{tmp_path / 'v3'}'\n")
    broken = welcome(load(config), "http://a", demo=False)

    assert "2 arrays in 0 groups" in said
    assert "http://a/v1/slice/old/lab/scan?select=:8&format=json" in said
    assert "skipped 1: broken metadata (zarr.json: " in broken
    assert "curl http://a/v1\n" in broken
    assert "/v1/metadata/v3" not in broken


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('dtype = "<q2"', "stores.old.assume_metadata.lost.dtype"),
        ('fil_value = 3\ndtype = "|u1"', "stores.old.assume_metadata.lost.fil_value"),
        ("", "stores.old.assume_metadata.lost.dtype"),
        ('compressor = {id = "nonsense"}\ndtype = "|u1"', "stores.old.assume_metadata.lost.compressor"),
    ],
)
def test_check_refuses_what_no_array_could_be(
    config: Path, capsys: pytest.CaptureFixture[str], line: str, says: str
) -> None:
    config.write_text(config.read_text().replace('dtype = "|u1"', line))

    assert run(["check", "--config", str(config)]) == 1
    assert says in capsys.readouterr().err

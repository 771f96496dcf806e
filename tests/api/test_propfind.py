"""obstore's HTTP store, which lists by WebDAV, and what zarr-python does through it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pytest
import zarr
from obstore.store import HTTPStore
from zarr.storage import ObjectStore

from hyperslab.api.routes import propfind
from tests.api.support import Served, problem, serving


def http_store(data: Served) -> HTTPStore:
    """A store of the whole host: obstore takes listed paths for those of the host, whatever its own URL is."""
    return HTTPStore(data.url, client_options={"allow_http": True})


def test_a_listing_has_keys_lengths_and_folders_and_nothing_hidden(tmp_path: Path) -> None:
    zarr.save_array(str(tmp_path / "g x" / "ä"), np.arange(4), zarr_format=3)
    (tmp_path / "g x" / ".git").mkdir()
    (tmp_path / "g x" / ".git" / "config").write_text("x")
    (tmp_path / "g x" / ".hidden").write_text("x")
    (tmp_path / "g x" / "empty").mkdir()
    zarr.save_array(str(tmp_path / "g x" / ".odd"), np.arange(4), zarr_format=3)
    with serving(tmp_path) as data:
        store, root = http_store(data), "zarr/data/g x"
        everything = [meta for page in obstore.list(store, root) for meta in page]
        one = obstore.list_with_delimiter(store, root)
        nothing = [meta for page in obstore.list(store, "zarr/data/nothing") for meta in page]
        stores = data.http.request("PROPFIND", "/zarr/", headers={"Depth": "1"})
        key = data.http.request("PROPFIND", "/zarr/data/g x/ä/zarr.json", headers={"Depth": "0"})
        read = [data.http.get(f"/zarr/{meta['path'].partition('/')[2]}").status_code for meta in everything]
        walked = [
            data.http.request("PROPFIND", f"/{each}/", headers={"Depth": "1"}).status_code
            for each in (*one["common_prefixes"], f"{root}/.git")
        ]
        strange = data.http.request("PROPFIND", "/zarr/data", headers={"Depth": "2"})
        missing = data.http.request("PROPFIND", "/zarr/nowhere")

    sizes = {meta["path"].removeprefix(f"{root}/"): meta["size"] for meta in everything}
    folder = tmp_path / "g x"
    assert sizes == {
        name: (folder / name).stat().st_size for name in ("ä/zarr.json", "ä/c/0", ".odd/zarr.json", ".odd/c/0")
    }
    assert ([*one["common_prefixes"]], [*one["objects"]]) == ([f"{root}/{name}" for name in (".odd", "empty", "ä")], [])
    assert (read, walked) == ([200] * 4, [207, 207, 207, 404])
    assert nothing == []
    assert (stores.status_code, "<D:href>/zarr/data/</D:href>" in stores.text) == (207, True)
    assert (key.status_code, key.text.count("<D:response>")) == (207, 1)
    assert problem(strange) == (400, "bad-parameter")
    assert missing.status_code == 404


def test_a_listing_of_too_many_keys_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propfind, "MOST", 3)
    zarr.save_array(str(tmp_path / "a"), np.arange(4), zarr_format=3)
    with serving(tmp_path) as data:
        answer = data.http.request("PROPFIND", "/zarr/data")
        shallow = data.http.request("PROPFIND", "/zarr/data/a", headers={"Depth": "1"})

    assert (answer.status_code, "propfind-finite-depth" in answer.text) == (403, True)
    assert shallow.status_code == 207


@pytest.mark.filterwarnings("ignore")  # consolidated metadata of v3 are no standard yet
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr_python_lists_and_deletes_through_obstore(tmp_path: Path, zarr_format: Any) -> None:
    with serving(tmp_path) as data:
        made = zarr.open_group(f"{data.url}/zarr/data/w", mode="a", zarr_format=zarr_format)
        for name in ("t", "u"):
            made.create_array(name, data=np.arange(4), chunks=(2,))
        group = zarr.open_group(ObjectStore(http_store(data)), path="zarr/data/w", mode="r+", use_consolidated=False)
        names = sorted(group.keys())
        values = np.asarray(group["u"])
        del group["t"]
        left = data.http.get("/v1/metadata/data/w").json()["children"]

    assert names == ["t", "u"]
    assert values.tolist() == [0, 1, 2, 3]
    assert [child["name"] for child in left] == ["u"]

"""Buckets and web servers that answer 403 for missing keys: S3 without the right to list, CDNs in front of it; and web
applications, which answer with a page."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import numpy as np
import pytest
import zarr
from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]
from typing_extensions import override

from hyperslab.storage import StoreConfig
from tests.api.support import Served, problem, serving
from tests.faults import DenyMissing, FaultProxy
from tests.s3 import S3Bucket, S3Server
from tests.storage.support import Quiet, fill_bucket, serve

DIMENSIONS = "_ARRAY_DIMENSIONS"


class NoListing(Quiet):
    """Answers 403 for missing keys."""

    @override
    def send_head(self) -> Any:
        if Path(self.translate_path(self.path)).is_file():
            return super().send_head()
        self.send_error(403)
        return None


class Application(Quiet):
    """Answers any other URL with its page, as those of web applications do."""

    @override
    def send_head(self) -> Any:
        if Path(self.translate_path(self.path)).is_file():
            return super().send_head()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(_PAGE)))
        self.end_headers()
        return io.BytesIO(_PAGE)


_PAGE = b"<!DOCTYPE html><title>An application</title>"


class DenyingFileSystem(LocalFileSystem):  # type: ignore[misc]
    """As file systems of object stores without the right to list."""

    protocol = "denying"

    def info(self, path: str, **more: Any) -> Any:
        if not Path(self._strip_protocol(path)).is_file():
            raise PermissionError("Forbidden")
        return super().info(path, **more)

    def ls(self, path: str, *_: Any, **__: Any) -> Any:
        raise PermissionError(f"Forbidden: {path}")


fsspec.register_implementation("denying", DenyingFileSystem, clobber=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Arrays of both formats, with a chunk that is not stored, in a group with consolidated metadata."""
    root = tmp_path / "root"
    zarr.open_group(str(root), mode="w", zarr_format=2)
    for of in (2, 3):
        array = zarr.create_array(
            str(root / f"v{of}"), shape=(4,), chunks=(2,), dtype="i4", fill_value=7, zarr_format=of
        )
        array[:2] = [1, 2]
        if of == 2:
            zarr.consolidate_metadata(str(root), zarr_format=2)
    scale = [{"type": "scale", "scale": [1, 1]}]
    datasets = [{"path": path, "coordinateTransformations": scale} for path in ("0", "missing")]
    axes = [{"name": name, "type": "space"} for name in "yx"]
    multiscales = [{"version": "0.4", "axes": axes, "datasets": datasets}]
    image = zarr.create_group(str(root / "image"), zarr_format=2, attributes={"multiscales": multiscales})
    image.create_array("0", data=np.arange(16, dtype="u1").reshape(4, 4) + 1, attributes={DIMENSIONS: ["y", "x"]})
    zarr.save_array(str(root / "alone"), np.arange(4), zarr_format=2)
    zarr.create_group(str(root / "apart"), zarr_format=3).create_array("x", data=np.arange(4))
    return root


@pytest.fixture(params=["http", "page", "s3", "fsspec"])
def denying(
    request: pytest.FixtureRequest, folder: Path, s3_server: S3Server, s3_bucket: S3Bucket
) -> Iterator[StoreConfig]:
    """The configuration of a store that cannot list."""
    if request.param in ("http", "page"):
        for url in serve(NoListing if request.param == "http" else Application, folder):
            yield StoreConfig("data", url)
    elif request.param == "fsspec":
        yield StoreConfig("data", f"denying://{folder}", options={"listable": "false"})
    else:
        keys = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        fill_bucket(s3_server, s3_bucket, keys)
        with FaultProxy(s3_server.url) as proxy:
            proxy.inject(DenyMissing(), times=math.inf)
            yield s3_bucket.at(proxy.url).config(name="data", options={"listable": "false"})


def reading(config: StoreConfig, **options: str) -> Any:
    return serving(StoreConfig("data", config.url, options={**config.options, **options}), writable=False)


def test_what_is_stored_is_read_and_only_missing_chunks_are_denied(denying: StoreConfig) -> None:
    with reading(denying) as data:
        assert data.http.get("/readyz").status_code == 200
        assert [child["name"] for child in data.http.get("/v1/metadata/data").json()["children"]] == ["v2"]
        for of in (2, 3):
            node = f"data/v{of}"
            assert data.http.get(f"/v1/metadata/{node}").json()["zarr_format"] == of
            assert data.http.get(f"/v1/slice/{node}?select=:2&format=json").json() == [1, 2]
            assert problem(data.http.get(f"/v1/slice/{node}?format=json")) == (502, "store-denied")
            assert read(data, f"zarr{5 - of}/{node}", slice(2)) == [1, 2]
            assert read(data, f"zarr/{node}", slice(2)) == [1, 2]
        assert data.http.get("/zarr/data/v2/zarr.json").status_code == 404
        assert data.http.get("/zarr/data/v3/.zattrs").status_code == 404


def test_a_group_whose_children_nothing_names_says_so(denying: StoreConfig) -> None:
    with reading(denying) as data:
        found = {
            path: data.http.get(f"/v1/metadata/data{path}").json() for path in ("", "/apart", "/image", "/apart/x")
        }

    assert found["/apart/x"]["shape"] == [4]
    assert found["/apart"]["problems"] == [
        "children are unknown: the store cannot be listed, and no consolidated metadata name any"
    ]
    assert [found[path]["problems"] for path in ("", "/image")] == [[], []]


@pytest.mark.parametrize("denying", ["http", "s3", "fsspec"], indirect=True)
def test_an_operator_may_have_denied_chunks_read_as_missing(denying: StoreConfig) -> None:
    with reading(denying, missing="[403, 404]") as data:
        for of in (2, 3):
            assert data.http.get(f"/v1/slice/data/v{of}?format=json").json() == [1, 2, 7, 7]
            assert read(data, f"zarr/data/v{of}", slice(None)) == [1, 2, 7, 7]
        assert problem(data.http.get("/v1/metadata/data/nothing")) == (404, "node-not-found")


def test_pictures_and_other_formats_look_for_what_may_be_denied(denying: StoreConfig) -> None:
    """Label images, coordinates, the groups above: none of them is there, and the store denies them all."""
    with reading(denying) as data:
        for path, levels in (("image", ["data/image/0"]), ("image/0", ["data/image/0"])):
            found = data.http.get(f"/v1/tile/data/{path}/info.json")
            assert found.status_code == 200, found.text
            assert [level["path"] for level in found.json()["levels"]] == levels
            assert len(found.json()["problems"]) == (path == "image")
            assert data.http.get(f"/v1/tile/data/{path}/0/0/0.png").status_code == 200
        assert data.http.get("/zarr3/data/image/0/zarr.json").json()["shape"] == [4, 4]
        assert data.http.get("/zarr3/data/alone/zarr.json").json()["shape"] == [4]
        answer = data.http.get("/v1/slice/data/image/0?sel=y:1.5")
        assert problem(answer) == (422, "no-coordinate")


def read(data: Served, path: str, selection: slice) -> list[int]:
    """As zarr-python reads over HTTP."""
    found: list[int] = np.asarray(zarr.open_array(f"{data.url}/{path}", mode="r")[selection]).tolist()
    return found

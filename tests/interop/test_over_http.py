"""Arrays of the service opened over HTTP by everyone: the same bytes, and the same understanding of the metadata."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Mapping
from typing import Any

import fsspec  # type: ignore[import-untyped]
import numpy as np
import obstore.store
import pytest
import rasterio  # type: ignore[import-untyped]
import xarray
import zarr
from zarr.storage import ObjectStore

from hyperslab import wire
from tests.conformance.service import Conformance, Node
from tests.interop.jobs import CHUNKS, SHAPE, Job, assert_equal, jobs_of
from tests.interop.libraries import Described, Library
from tests.interop.tables import COMPRESSORS, DTYPES, DtypeRow, LibraryName
from tests.server import ServerFactory

_BY_DTYPE = [(row, name) for row in DTYPES for name in sorted(row.libraries)]
_IDS = [f"{row.title}-{name}" for row, name in _BY_DTYPE]
_FEW = tuple(codec for codec in COMPRESSORS if codec.id in ("null", "blosc", "zstd"))


@pytest.mark.parametrize(("row", "name"), _BY_DTYPE, ids=_IDS)
def test_every_library_reads_every_dtype_and_its_metadata_through_the_keys(
    service: Conformance, libraries: Mapping[LibraryName, Library], row: DtypeRow, name: LibraryName
) -> None:
    """A fill value that is not zero, where the dtype has one that all libraries spell alike."""
    jobs = jobs_of(row, _FEW)[::2]
    fills = {job.name: fill_of(job) for job in jobs}
    root = service.node()
    for job in jobs:
        members = {**job.document, "shape": SHAPE, "chunks": CHUNKS, "fill_value": spelled(fills[job.name], job)}
        assert root.below(job.name).put(json=members).status_code == 201, job
        root.below(job.name).remote()[...] = job.values

    url = service.target("zarr", root.path)
    found, described = libraries[name].read(url, jobs), libraries[name].describe(url, jobs)

    for job in jobs:
        assert_equal(found[job.name], job.values, f"{name}: {job}")
        compressor = None if job.compressor is None else job.compressor["id"]
        filters = tuple(config["id"] for config in job.filters)
        assert described[job.name] == Described(SHAPE, CHUNKS, job.order, fills[job.name], compressor, filters), job


def fill_of(job: Job) -> bytes | None:
    if job.dtype == "|O" or job.dtype in ("float4_e2m1fn", "float8_e8m0fnu"):
        return None
    item = job.values[1, 2] if not isinstance(job.dtype, list) else job.values[1:2, 2]
    native = wire.dtype_from_json(job.dtype)
    stored = np.asarray(item, native)
    if native.name in ("int4", "int2"):
        stored = stored.astype(np.int8)
    return stored.tobytes()


def spelled(fill: bytes | None, job: Job) -> Any:
    """As `.zarray` spells it."""
    if fill is None:
        return None
    dtype = wire.dtype_from_json(job.dtype)
    item = np.frombuffer(fill, dtype)[0]
    if dtype.names is not None or (dtype.kind in "SV" and dtype.isbuiltin != 2):
        return base64.b64encode(fill).decode()
    if dtype.kind in "mM":
        return int(item.astype(np.int64))
    if dtype.kind == "c":
        return [float(item.real), float(item.imag)]
    if dtype.isbuiltin == 2:
        return float(item)
    return item.item()


# --- other clients -------------------------------------------------------------------------------------------------


@pytest.fixture(params=[".", "/"], ids=["flat", "nested"])
def picture(request: pytest.FixtureRequest, service: Conformance) -> tuple[Node, Any]:
    values = np.arange(20 * 30, dtype="<u2").reshape(20, 30)
    node = service.node()
    members = {"shape": [20, 30], "chunks": [8, 16], "dtype": "<u2", "dimension_separator": request.param}
    names = {"dimension_names": ["y", "x"], "compressor": {"id": "zlib", "level": 1}}
    assert node.put(tail="/a", json={**members, **names}).status_code == 201
    node.below("a").remote()[...] = values
    return node, values


def test_gdal_reads_a_picture(server: ServerFactory, picture: tuple[Node, Any]) -> None:
    """From a server in another process: while GDAL waits for an answer, nothing else runs in this one."""
    node, values = picture
    url = f"{server({'data': node.folder}).url}/zarr/data/a"

    with warnings.catch_warnings(), rasterio.Env(GDAL_HTTP_TIMEOUT="30"):
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with rasterio.open(f'ZARR:"/vsicurl/{url}"') as opened:
            np.testing.assert_array_equal(opened.read(1), values)


def test_xarray_opens_the_group_as_a_dataset(service: Conformance, picture: tuple[Node, Any]) -> None:
    node, values = picture

    for consolidated in (None, True, False):
        url = service.target("zarr", node.path)
        with xarray.open_zarr(url, consolidated=consolidated, mask_and_scale=False) as opened:
            assert opened["a"].dims == ("y", "x")
            np.testing.assert_array_equal(opened["a"].values, values)


def test_fsspec_and_obstore_hand_out_the_stored_bytes(service: Conformance, picture: tuple[Node, Any]) -> None:
    node, values = picture
    url, stored = service.target("zarr", node.path), node.keys()

    mapper = fsspec.get_mapper(url)
    remote = obstore.store.HTTPStore.from_url(url, client_options={"allow_http": True})

    assert {key: mapper[key] for key in stored} == stored
    assert {key: bytes(remote.get(key).bytes()) for key in stored} == stored
    group = zarr.open_group(ObjectStore(remote, read_only=True), mode="r", zarr_format=2)
    np.testing.assert_array_equal(group["a"][...], values)  # type: ignore[index]

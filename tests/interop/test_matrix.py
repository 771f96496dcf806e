"""Arrays of three libraries read through the service, and arrays of the service read by three libraries.

Each dtype of the tables with every fourth compressor, in an order and with a separator by turns; filters with the
dtypes that they take.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hyperslab import RemoteArray
from hyperslab.client.values import format_fill_value
from tests.conformance.service import Conformance, Node, decoded
from tests.interop.jobs import CHUNKS, SHAPE, Job, assert_equal, filter_jobs, jobs_of
from tests.interop.libraries import Described, Library
from tests.interop.tables import COMPRESSORS, DTYPES, FILTERS, CodecRow, DtypeRow, LibraryName

Libraries = Mapping[LibraryName, Library]

_BY_DTYPE = [(row, name) for row in DTYPES for name in sorted(row.libraries)]
_BY_FILTER = [(row, name) for row in FILTERS for name in sorted(row.libraries)]


def ids(pairs: list[Any]) -> list[str]:
    return [f"{getattr(row, 'title', '') or row.id}-{name}" for row, name in pairs]


def of_library(row: DtypeRow, name: LibraryName) -> list[Job]:
    """The jobs whose compressors the library knows."""
    return jobs_of(row, tuple(codec for codec in COMPRESSORS if name in codec.libraries))


def chosen(libraries: Libraries, name: LibraryName) -> Library:
    if name not in libraries:
        pytest.skip(f"{name} is not installed")
    return libraries[name]


@pytest.mark.parametrize(("row", "name"), _BY_DTYPE, ids=ids(_BY_DTYPE))
def test_arrays_of_a_library_read_equal(
    service: Conformance, libraries: Libraries, row: DtypeRow, name: LibraryName
) -> None:
    library, jobs, root = chosen(libraries, name), of_library(row, name), service.node()

    library.write(root.folder, jobs)

    theirs = library.read(root.folder, [job for job in jobs if job.order not in row.orders])
    for number, job in enumerate(jobs):
        expected = theirs.get(job.name, job.values)
        assert_reads(root.below(job.name), expected, str(job), in_full=number % 3 == 0)


@pytest.mark.parametrize(("row", "name"), _BY_FILTER, ids=ids(_BY_FILTER))
def test_filtered_arrays_of_a_library_read_equal(
    service: Conformance, libraries: Libraries, row: CodecRow, name: LibraryName
) -> None:
    library, jobs, root = chosen(libraries, name), filter_jobs(row), service.node()

    library.write(root.folder, jobs)

    for job in jobs:
        assert_reads(root.below(job.name), job.values, str(job), in_full=True)


def assert_reads(node: Node, expected: NDArray[Any], where: str, *, in_full: bool) -> None:
    """A slice over HTTP, whole and turned around; in every other way, too, if ``in_full``."""
    assert_equal(node.values(), expected, where)
    if not in_full:
        return
    array = node.remote()
    assert array.dtype == expected.dtype, where
    assert_equal(array[...], expected, where)
    assert_equal(array[::-1, 1:4], expected[::-1, 1:4], where)
    assert_equal(array.oindex[[2, 0], [4, 1]], expected[[2, 0]][:, [4, 1]], where)
    assert_equal(node.values(select="2,::-2"), expected[2, ::-2], where)
    assert_equal(decoded(node.get("chunk", "/1.1")), expected[2:, 3:], where)
    if not expected.dtype.hasobject:
        npy = np.load(io.BytesIO(node.get("slice", format="npy").content), allow_pickle=False)
        assert_equal(npy.view(expected.dtype), expected, where)
    assert len(json.loads(node.get("slice", format="json").content)) == SHAPE[0], where


@pytest.mark.parametrize("row", DTYPES, ids=lambda row: row.title)
def test_our_arrays_are_read_equal_by_every_library(service: Conformance, libraries: Libraries, row: DtypeRow) -> None:
    """Created and written over HTTP, every second one by `RemoteArray`; read from the folder, and some through the
    keys, where the metadata are understood alike, too."""
    root, jobs = service.node(), jobs_of(row)
    for number, job in enumerate(jobs):
        make(root.below(job.name), job, by_client=number % 2 == 0, fill=fill_of(job))
    for name in sorted(row.libraries & libraries.keys()):
        known = {id(config) for codec in COMPRESSORS if name in codec.libraries for config in codec.configs}
        readable = [job for job in jobs if id(job.compressor) in known]
        some, url = readable[::3], service.target("zarr", root.path)

        for job, values in zip(readable, libraries[name].read(root.folder, readable).values(), strict=True):
            assert_equal(values, job.values, f"{name}: {job}")
        for job, values in zip(some, libraries[name].read(url, some).values(), strict=True):
            assert_equal(values, job.values, f"{name} over HTTP: {job}")
        for job, described in zip(some, libraries[name].describe(url, some).values(), strict=True):
            compressor, fill = None if job.compressor is None else job.compressor["id"], fill_of(job)
            filters, stored = tuple(config["id"] for config in job.filters), None if fill is None else fill.tobytes()
            assert described == Described(SHAPE, CHUNKS, job.order, stored, compressor, filters), f"{name}: {job}"


def fill_of(job: Job) -> Any:
    """An item that is not zero, where the dtype has one that all libraries spell alike."""
    if job.dtype == "|O" or job.dtype in ("float4_e2m1fn", "float8_e8m0fnu"):
        return None
    return job.values[1, 2:3].reshape(())  # an array, which keeps the byte order


def make(node: Node, job: Job, *, by_client: bool, fill: Any = None) -> None:
    spelled = {"fill_value": format_fill_value(fill)}
    made = node.put(json={**job.document, **spelled, "shape": SHAPE, "chunks": CHUNKS})
    assert made.status_code == 201, (made.text, job)
    if by_client or job.values.dtype.hasobject:
        node.remote()[...] = job.values
        return
    put = node.put("slice", content=job.values.tobytes())
    assert put.status_code == 204, (put.text, job)


@pytest.mark.parametrize(("row", "name"), _BY_FILTER, ids=ids(_BY_FILTER))
def test_our_filtered_arrays_are_read_equal(
    service: Conformance, libraries: Libraries, row: CodecRow, name: LibraryName
) -> None:
    library, root, jobs = chosen(libraries, name), service.node(), filter_jobs(row)
    for job in jobs:
        make(root.below(job.name), job, by_client=True)

    found = library.read(root.folder, jobs)

    for job in jobs:
        assert_equal(found[job.name], job.values, f"{name}: {job}")


@pytest.mark.parametrize("row", [row for row in FILTERS if not row.libraries], ids=lambda row: row.id)
def test_filters_that_no_library_here_has_read_back_equal(service: Conformance, row: CodecRow) -> None:
    """Within the tolerance of zfpy, which loses some."""
    for job in filter_jobs(row):
        node = service.node()
        make(node, job, by_client=True)
        array = node.remote()
        assert isinstance(array, RemoteArray)
        np.testing.assert_allclose(array[...], job.values, atol=0.001)

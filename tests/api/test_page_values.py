"""What the page asks for is what numpy has: values decoded by CF, of any box, in every form that it reads."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tifffile
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api.support import serving

SHAPE = (5, 12, 17)
RANDOM = np.random.default_rng(11)
PACKED = RANDOM.integers(-300, 300, SHAPE).astype("<i2")
PACKED[RANDOM.random(SHAPE) < 0.1] = -999
LABELS = RANDOM.integers(2**53 - 5, 2**53 + 5, SHAPE).astype("<i8")
WAVE = (RANDOM.normal(size=SHAPE) + 1j * RANDOM.normal(size=SHAPE)).astype("<c8")
MEANT = {"packed": np.where(PACKED == -999, np.nan, PACKED * 0.5), "labels": LABELS, "wave": WAVE}


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder: Path = tmp_path_factory.mktemp("values")
    for name, values in (("packed", PACKED), ("labels", LABELS), ("wave", WAVE)):
        fill = -999 if name == "packed" else 0
        array = zarr.create_array(
            folder / name, shape=SHAPE, chunks=(2, 5, 6), dtype=values.dtype, zarr_format=2, fill_value=fill
        )
        array[...] = values
        array.attrs["_ARRAY_DIMENSIONS"] = ["time", "lat", "lon"]
        if name == "packed":
            array.attrs.update({"scale_factor": 0.5, "_FillValue": fill, "units": "K"})
    with serving(folder, writable=False) as found:
        yield found.http


def axis(size: int) -> st.SearchStrategy[tuple[str, Any]]:
    """An index, or a slice in either direction, as text and as numpy takes it."""
    index = st.integers(0, size - 1).map(lambda i: (str(i), i))
    bounds = st.tuples(st.integers(0, size - 1), st.integers(1, size), st.sampled_from([1, 2, -1]))

    def sliced(drawn: tuple[int, int, int]) -> tuple[str, Any]:
        start, count, step = drawn
        stop = min(start + count, size) if step > 0 else start - min(count, start + 1)
        text = f"{start}:{'' if stop < 0 else stop}:{step}"
        return text, slice(start, None if stop < 0 else stop, step)

    return st.one_of(index, bounds.map(sliced))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from([*MEANT]), axes=st.tuples(*map(axis, SHAPE)), form=st.sampled_from(["npy", "json", "tiff"]))
def test_every_form_of_a_selection_has_numpys_values(
    http: httpx.Client, name: str, axes: tuple[tuple[str, Any], ...], form: str
) -> None:
    expected = MEANT[name][tuple(item for _, item in axes)]
    query = {
        "select": ",".join(text for text, _ in axes),
        "format": form,
        "decode": "cf" if name == "packed" else "none",
    }
    answer = http.get(f"/v1/slice/{'data'}/{name}", params=query).raise_for_status()

    match form:
        case "npy":
            values = np.load(io.BytesIO(answer.content))
        case "tiff":
            rows_last = [isinstance(item, slice) for _, item in axes] == [True, True, False]
            expected = expected.T if rows_last else expected  # latitudes are rows, as in every picture
            values = tifffile.imread(io.BytesIO(answer.content)).reshape(expected.shape)
        case _:
            listed = np.array(answer.json(), dtype=object)
            values = listed[..., 0].astype(float) + 1j * listed[..., 1].astype(float) if name == "wave" else listed
            values = values.astype(expected.dtype)
    assert np.array_equal(values, expected, equal_nan=name != "labels")

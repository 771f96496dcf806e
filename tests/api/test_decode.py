"""``decode=cf`` and ``reduce=minmax`` on the wire."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import xarray
import zarr
from PIL import Image

from hyperslab import RemoteArray
from hyperslab.api.options import ApiOptions
from tests.api.conftest import CUBE
from tests.api.support import Running, npy, running, write_array

PACKED = np.arange(-600, 1800, dtype="<i2").reshape(40, 60)
PACKED[3, 4:9] = -32767
DAYS = np.arange(400, dtype="<i4")
SIGNAL = np.sin(np.arange(300_000) / 500)
SIGNAL[123_456], SIGNAL[234_567], SIGNAL[7] = 50, -50, np.nan


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Climate data as xarray packs it, and arrays that only other writers make."""
    path = tmp_path_factory.mktemp("climate")
    packed = {"scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32767, "units": "K"}
    data = xarray.Dataset({"t": (("y", "x"), PACKED, packed), "time": ("time", DAYS, {"units": "days since 2000-1-1"})})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = xarray.decode_cf(data)
        data["t"].encoding["chunks"] = (16, 16)
        data.to_zarr(path, zarr_format=2, consolidated=False)
    path = path / "other"
    zarr.open_group(path, mode="w", zarr_format=2)
    calendar = {"units": "days since 2000-1-1", "calendar": "noleap"}
    write_array(path, "noleap", DAYS, (100,), attributes=calendar, fill_value=None)
    write_array(path, "broken", PACKED, (40, 60), attributes={"scale_factor": "x"}, fill_value=None)
    write_array(path, "signal", SIGNAL, (10_000,), fill_value=None)
    return path.parent


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Running]:
    with running(folder) as found:
        yield found


@pytest.fixture(scope="module")
def client(served: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url) as found:
        yield found


@pytest.fixture(scope="module")
def opened(folder: Path) -> xarray.Dataset:
    found: xarray.Dataset = xarray.open_zarr(
        folder, zarr_format=2, consolidated=False, chunks=None, decode_timedelta=False
    )
    return found


@pytest.mark.parametrize("remote", [False, True])
def test_a_slice_is_decoded_as_xarray_decodes_it(folder: Path, opened: xarray.Dataset, remote: bool) -> None:
    with running(folder, remote=remote) as found, httpx.Client(base_url=found.url) as client:
        for select in ("...", "3,4", "::-7,5:30:3", "[1,3]", "0:0"):
            answer = client.get("/v1/slice/data/t", params={"select": select, "format": "npy", "decode": "cf"})
            expected = eval(f"values[{select}]", {"values": opened["t"].values})

            np.testing.assert_array_equal(npy(answer.content), expected)
            assert npy(answer.content).dtype == opened["t"].dtype
            assert json.loads(answer.headers["Array-Dtype"]) == "<f8"
            assert json.loads(answer.headers["Array-Shape"]) == list(expected.shape)


def test_decoded_answers_have_tags_ranges_and_text(client: httpx.Client, opened: xarray.Dataset) -> None:
    target = "/v1/slice/data/t?decode=cf"
    whole = client.get(target, headers={"Accept": "application/octet-stream"})
    part = client.get(target, headers={"Range": "bytes=1001-9999", "Accept": "application/octet-stream"})

    assert part.status_code == 206
    assert part.content == whole.content[1001:10_000]
    assert client.get(target, headers={"If-None-Match": whole.headers["ETag"]}).status_code == 304
    assert whole.headers["ETag"] != client.get("/v1/slice/data/t").headers["ETag"]
    assert client.head(target).headers["Content-Length"] == str(PACKED.size * 8)
    values = client.get("/v1/slice/data/t?decode=cf&format=json&select=3,3:5").json()
    assert values == [opened["t"].values[3, 3], "NaN"]
    floats = client.get("/v1/slice/data/t?decode=cf&format=npy&dtype=<f4&select=5")
    np.testing.assert_array_equal(npy(floats.content), opened["t"].values[5].astype("<f4"))


def test_a_large_decoded_slice_is_streamed_and_resumed(tmp_path: Path) -> None:
    values = np.arange(3_000_000, dtype="<i2")
    write_array(tmp_path, "a", values, (100_000,), attributes={"scale_factor": 0.5}, fill_value=None)
    with running(tmp_path) as found, httpx.Client(base_url=found.url) as client:
        whole = client.get("/v1/slice/data/a?decode=cf&format=npy").content
        part = client.get("/v1/slice/data/a?decode=cf&format=npy", headers={"Range": "bytes=9000003-"}).content

    np.testing.assert_array_equal(npy(whole), values * 0.5)
    assert part == whole[9_000_003:]


def test_a_fill_value_of_zero_hides_nothing_where_nobody_has_chosen_it(tmp_path: Path) -> None:
    names = {"_ARRAY_DIMENSIONS": ["x"]}
    for name, attributes in (("plain", {}), ("named", names), ("x", names)):
        write_array(tmp_path, name, DAYS[:3], (3,), attributes=attributes, fill_value=0)
    with running(tmp_path) as found:
        values = {
            name: httpx.get(f"{found.url}/v1/slice/data/{name}?decode=cf&format=json").json()
            for name in ("plain", "named", "x")
        }

    assert values == {"plain": [0, 1, 2], "named": ["NaN", 1.0, 2.0], "x": [0, 1, 2]}


def test_dates_beyond_nanoseconds_are_refused_with_the_dtype_that_holds_them(tmp_path: Path) -> None:
    days = {"units": "days since 0001-01-01", "calendar": "proleptic_gregorian"}
    write_array(tmp_path, "t", np.array([0, 730_119], "<i4"), (2,), attributes=days, fill_value=None)
    with running(tmp_path) as found, httpx.Client(base_url=found.url) as client:
        refused = client.get("/v1/slice/data/t?decode=cf")
        told = client.get("/v1/slice/data/t?decode=cf&dtype=<M8[us]&format=json")

    assert (refused.status_code, refused.json()["code"]) == (422, "not-representable")
    assert "<M8[us]" in refused.json()["detail"]
    assert [text[:10] for text in told.json()] == ["0001-01-01", "2000-01-01"]


def test_points_chunks_and_plans_are_decoded_too(client: httpx.Client, opened: xarray.Dataset) -> None:
    values = opened["t"].values
    answer = client.post(
        "/v1/points/data/t?decode=cf&format=npy", content='{"coordinates": [[3, 4], [0, 0], [-1, -1]]}'
    )
    np.testing.assert_array_equal(npy(answer.content), values[[3, 0, -1], [4, 0, -1]])
    assert json.loads(answer.headers["Array-Dtype"]) == "<f8"
    chunk = npy(client.get("/v1/chunk/data/t/0.0?decode=cf&format=npy").content)
    np.testing.assert_array_equal(chunk, values[:16, :16])
    plan = client.get("/v1/plan/data/t?decode=cf").json()
    assert (plan["dtype"], plan["nbytes"]) == ("<f8", PACKED.size * 8)


def test_the_document_says_what_decoding_does_and_what_is_wrong(client: httpx.Client) -> None:
    def decoded(name: str) -> Any:
        return client.get(f"/v1/metadata/data/{name}?decode=cf").json()["decoded"]

    packed = decoded("t")
    assert (packed["dtype"], packed["cf"], packed["packed"], packed["unit"]) == ("<f8", True, True, "K")
    assert decoded("other/noleap") | {"problems": None} == {
        "dtype": "<U32", "cf": True, "changes": True, "packed": False, "unit": None, "calendar": "noleap", "flags": [],
        "problems": None,
    }  # fmt: skip
    assert "scale_factor" in decoded("other/broken")["problems"][0]
    assert "decoded" not in client.get("/v1/metadata/data/t").json()
    np.testing.assert_array_equal(npy(client.get("/v1/slice/data/other/broken?decode=cf&format=npy").content), PACKED)


@pytest.mark.parametrize(
    ("target", "status", "name"),
    [
        ("/v1/slice/data/t?decode=yes", 400, "decode"),
        ("/v1/slice/data/t?bins=5", 400, "bins"),
        ("/v1/slice/data/t?reduce=minmax&bins=0", 400, "bins"),
        ("/v1/slice/data/t?reduce=minmax&bins=65537", 400, "bins"),
        ("/v1/slice/data/t?reduce=median", 400, "reduce"),
        ("/v1/slice/data/t?reduce=minmax&select=1,1", 400, "reduce"),
        ("/v1/chunk/data/t/0.0?reduce=minmax", 400, "reduce"),
    ],
)
def test_what_cannot_be_asked_for_is_named(client: httpx.Client, target: str, status: int, name: str) -> None:
    answer = client.get(target)

    assert answer.status_code == status
    assert answer.json()["name"] == name


def test_text_has_no_minimum(client: httpx.Client) -> None:
    answer = client.get("/v1/slice/data/other/noleap?decode=cf&reduce=minmax")

    assert (answer.status_code, answer.json()["code"]) == (422, "not-representable")


@pytest.mark.parametrize(("select", "bins"), [("", 997), ("::-3", 64), ("5:90", 200), ("0:0", 7)])
def test_bins_hold_minimum_maximum_and_mean(client: httpx.Client, select: str, bins: int) -> None:
    answer = client.get(
        "/v1/slice/data/other/signal", params={"select": select, "reduce": "minmax", "bins": bins, "format": "npy"}
    )
    values = eval(f"values[{select or '...'}]", {"values": SIGNAL})
    count = min(bins, len(values))
    edges = [i * len(values) // count for i in range(count + 1)] if count else []
    parts = [values[a:b] for a, b in pairwise(edges)]

    found = npy(answer.content)
    assert found.shape == (count, 3)
    np.testing.assert_array_equal(
        found[:, 0], [np.nanmin(part) if not np.isnan(part).all() else np.nan for part in parts]
    )
    np.testing.assert_array_equal(
        found[:, 1], [np.nanmax(part) if not np.isnan(part).all() else np.nan for part in parts]
    )
    known = ~np.isnan(found[:, 0])
    np.testing.assert_allclose(found[known, 2], [np.nanmean(p) for p in parts if not np.isnan(p).all()])


def test_no_spike_is_lost_and_the_answer_has_a_tag(client: httpx.Client) -> None:
    target = "/v1/slice/data/other/signal?reduce=minmax&bins=100"
    answer = client.get(target, headers={"Accept": "application/json"})

    bins = np.array(answer.json(), object)
    assert (bins[:, 0].min(), bins[:, 1].max()) == (-50, 50)
    assert (
        client.get(target, headers={"If-None-Match": answer.headers["ETag"], "Accept": "application/json"}).status_code
        == 304
    )
    assert client.get(target, headers={"Range": "bytes=24-47"}).content == client.get(target).content[24:48]
    assert client.get(f"{target}1").headers["ETag"] != client.get(target).headers["ETag"]


def test_bins_are_made_of_rows_and_of_decoded_values(
    client: httpx.Client, example: Running, opened: xarray.Dataset
) -> None:
    found = npy(client.get("/v1/slice/data/t?decode=cf&reduce=minmax&bins=4&format=npy").content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = opened["t"].values.reshape(40, 4, 15)
        np.testing.assert_array_equal(found[..., 0], np.nanmin(parts, axis=2))
        np.testing.assert_array_equal(found[..., 1], np.nanmax(parts, axis=2))
    dates = npy(client.get("/v1/slice/data/time?decode=cf&reduce=minmax&bins=2&format=npy").content)
    assert dates[1].astype("M8[D]").astype(str).tolist() == ["2000-07-19", "2001-02-03", "2000-10-26"]
    cube = npy(httpx.get(f"{example.url}/v1/slice/data/cube?select=2:4&reduce=minmax&bins=40&format=npy").content)
    np.testing.assert_array_equal(cube, np.repeat(CUBE[2:4, ..., None], 3, axis=-1))
    lengths = npy(httpx.get(f"{example.url}/v1/slice/data/table?field=pos&reduce=minmax&bins=10&format=npy").content)
    np.testing.assert_allclose(lengths[:, 0], np.linalg.norm(np.arange(30).reshape(10, 3), axis=1))


def test_bins_have_a_limit(folder: Path) -> None:
    with running(folder, ApiOptions(max_json_bytes=4096)) as found:
        answer = httpx.get(f"{found.url}/v1/slice/data/other/signal?reduce=minmax&bins=200")

    assert (answer.status_code, answer.json()["code"]) == (413, "too-large")


def test_a_remote_array_reads_decoded_values(served: Running, opened: xarray.Dataset) -> None:
    remote = RemoteArray(f"{served.url}/v1/metadata/data/t", decode="cf")
    values = opened["t"].values

    assert remote.dtype == values.dtype
    np.testing.assert_array_equal(remote[...], values)
    np.testing.assert_array_equal(remote[3:5, ::-2], values[3:5, ::-2])
    np.testing.assert_array_equal(remote.vindex[[3, 0], [4, 0]], values[[3, 0], [4, 0]])
    np.testing.assert_array_equal(remote.oindex[[3, 0], 2:9], values[[3, 0], 2:9])
    assert np.isnan(remote[3, 4])
    with pytest.raises(TypeError, match="decode"):
        remote[0, 0] = 1
    assert RemoteArray(f"{served.url}/v1/slice/data/t?decode=cf").refresh().dtype == values.dtype
    assert RemoteArray(f"{served.url}/v1/metadata/data/t").dtype == PACKED.dtype
    days = RemoteArray(f"{served.url}/v1/metadata/data/other/noleap", decode="cf")
    assert days[60] == "2000-03-02T00:00:00"


@pytest.fixture(scope="module", params=[2, 3])
def field(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, xarray.Dataset]]:
    """A dataset of xarray in either format, served: counts with zeros, a packed field whose zeros are values, flags of
    each kind, and times with bounds, which have no units of their own; and what xarray reads."""
    days = np.array([["2001-02-26", "2001-02-28"], ["2001-02-28", "2001-03-02"]], "M8[ns]")
    numbers = np.arange(24.0).reshape(4, 6)
    numbers[1, 2] = np.nan
    data = xarray.Dataset(
        {
            "packed": (("y", "x"), 280 + numbers / 2, {"units": "K"}),
            "count": (("y", "x"), np.arange(24, dtype="u2").reshape(4, 6)),
            "float": (("y", "x"), numbers.astype("f4")),
            "bool": (("y", "x"), np.arange(24, dtype="i1").reshape(4, 6) % 2, {"dtype": "bool"}),
            "time_bnds": (("time", "bnds"), days),
            "cell": ((), days[0, 0]),
            "within": (("two",), days[0]),
        },
        coords={"time": ("time", days[:, 0], {"bounds": "time_bnds"})},
    )
    data["packed"].encoding = {"dtype": "i2", "scale_factor": 0.5, "add_offset": 280.0, "_FillValue": -32768}
    data["float"].encoding = {"_FillValue": -9999.0, "chunks": (2, 4)}
    data["time"].encoding = {"units": "hours since 2001-2-1", "calendar": "standard", "dtype": "f8"}
    data["cell"].attrs["bounds"] = "within"
    data["cell"].encoding = data["within"].encoding = {"units": "days since 2001-2-1", "calendar": "standard"}
    folder = tmp_path_factory.mktemp("field")
    data.to_zarr(folder, zarr_format=request.param, consolidated=False)
    for name in ("time_bnds", "within"):
        attributes: Any = zarr.open_group(folder)[name].attrs
        del attributes["units"], attributes["calendar"]
    with running(folder) as found:
        yield found.url, xarray.open_zarr(folder, consolidated=False, chunks=None).load()


@pytest.mark.parametrize("name", ["packed", "count", "float", "bool", "time", "time_bnds", "within"])
def test_slices_points_chunks_bins_documents_and_arrays_decode_as_xarray_does(
    field: tuple[str, xarray.Dataset], name: str
) -> None:
    url, opened = field
    values = opened[name].values

    def get(route: str, **query: Any) -> np.ndarray[Any, Any]:
        answer = httpx.get(f"{url}/v1/{route}", params={"decode": "cf", "format": "npy", **query})
        return npy(answer.raise_for_status().content)

    found = get(f"slice/data/{name}")
    np.testing.assert_array_equal(found, values)
    assert found.dtype == values.dtype
    remote = RemoteArray(f"{url}/v1/metadata/data/{name}", decode="cf")
    assert remote.dtype == values.dtype
    np.testing.assert_array_equal(remote[...], values)
    at = [[0] * values.ndim, [1] * values.ndim]
    points = httpx.post(f"{url}/v1/points/data/{name}?decode=cf&format=npy", json={"coordinates": at})
    np.testing.assert_array_equal(npy(points.raise_for_status().content), [values[tuple(index)] for index in at])
    chunk = get(f"chunk/data/{name}/" + ".".join("0" * values.ndim))
    np.testing.assert_array_equal(chunk, values[tuple(slice(size) for size in chunk.shape)])
    bins = get(f"slice/data/{name}", reduce="minmax", bins=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(
            bins[..., 0, 0], np.nanmin(values.astype("f8") if values.dtype == bool else values, axis=-1)
        )
    decoded = httpx.get(f"{url}/v1/metadata/data/{name}?decode=cf").json()["decoded"]
    assert (decoded["dtype"], decoded["problems"]) == (values.dtype.str, [])
    assert httpx.get(f"{url}/v1/plan/data/{name}?decode=cf").json()["dtype"] == values.dtype.str


@pytest.mark.parametrize(("name", "most"), [("packed", 291.5), ("count", 23.0), ("float", 23.0)])
def test_pictures_and_their_limits_are_of_decoded_values(
    field: tuple[str, xarray.Dataset], name: str, most: float
) -> None:
    url, opened = field
    values = opened[name].values.astype("f8")
    about = httpx.get(f"{url}/v1/tile/data/{name}/histogram.json?decode=cf&bins=23").json()
    info = httpx.get(f"{url}/v1/tile/data/{name}/info.json?decode=cf").json()

    assert sum(about["counts"]) == np.isfinite(values).sum()
    assert (min(about["edges"]), max(about["edges"])) == (np.nanmin(values), most)
    assert info["problems"] == []
    picture = httpx.get(f"{url}/v1/tile/data/{name}/thumbnail.png?decode=cf&size=16").content
    assert (
        np.asarray(Image.open(io.BytesIO(picture)).convert("LA"))[..., 1].astype(bool).sum()
        == np.isfinite(values).sum()
    )


def test_bounds_follow_the_time_that_they_belong_to(tmp_path: Path) -> None:
    """Their tag does too."""
    root = zarr.open_group(tmp_path, mode="w", zarr_format=3)
    time: Any = root.create_array("time", data=np.arange(2), dimension_names=["time"])
    root.create_array("edges", data=np.array([[0, 1], [1, 2]]), dimension_names=["time", "two"])
    with running(tmp_path) as found, httpx.Client(base_url=found.url) as client:
        target = "/v1/slice/data/edges?decode=cf&format=json"
        tags = [client.get(target).headers["ETag"]]
        assert client.get(target).json() == [[0, 1], [1, 2]]
        for day in ("2000-01-01", "2001-01-01"):
            time.attrs.update({"bounds": "edges", "units": f"days since {day}"})
            answer = client.get(target, headers={"If-None-Match": tags[-1]})
            assert answer.status_code == 200
            assert answer.json()[0][0] == f"{day}T00:00:00.000000000"
            tags.append(answer.headers["ETag"])
            assert client.get(target, headers={"If-None-Match": tags[-1]}).status_code == 304

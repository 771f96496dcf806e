"""xarray and dask over HTTP: datasets equal those that xarray opens from the folder, and only slices travel."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import xarray
from distributed import Client, LocalCluster

from hyperslab import RemoteArray, RemoteGroup
from tests.api.support import Served, serving

pytestmark = pytest.mark.filterwarnings("ignore:The data type")

TIME = np.datetime64("2001-01-30", "ns") + np.arange(12) * np.timedelta64(1, "D")


def dataset() -> xarray.Dataset:
    rng = np.random.default_rng(7)
    air = rng.normal(280, 10, (12, 6, 8)).astype("f4")
    coordinates = {"time": TIME, "y": np.linspace(50, 45, 6), "x": np.arange(8) * 1.5, "lat2d": (("y", "x"), air[0])}
    return xarray.Dataset(
        {
            "air": (("time", "y", "x"), air, {"units": "K"}),
            "packed": (("time", "y", "x"), np.where(air > 280, air, np.nan)),
            "count": ("x", np.arange(8, dtype="i2")),
            "name": ("y", np.array(["a", "b", "", "é", "long" * 9, "f"], object)),
            "code": ("y", np.array([b"ab", b"c", b"", b"d", b"e", b"f"], "S2")),
            "flag": (("y", "x"), air[0] > 280, {"flag_values": [0, 1]}),
            "step": ("time", (TIME - TIME[0]).astype("m8[ns]")),
            "wave": ("x", rng.normal(size=8) + 1j),
            "one": ((), np.float32(3)),
        },
        coords=coordinates,
        attrs={"title": "air", "nested": {"a": [1]}},
    )


ENCODING: dict[str, Any] = {
    "packed": {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768, "chunks": (5, 4, 4)},
    "air": {"chunks": (12, 6, 8)},
    "time": {"units": "hours since 1900-01-01", "calendar": "standard"},
}


def calendar(name: str) -> xarray.DataArray:
    found: xarray.DataArray = xarray.date_range("2001-01-30", periods=5, freq="30D", calendar=name, use_cftime=True)
    return found


FIELD = np.random.default_rng(5).normal(280, 9, (5, 4, 6))
YX = (("y", "x"), FIELD[0])
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "air_temperature": (
        {"air": (("time", "lat", "lon"), FIELD, {"units": "degK", "standard_name": "air_temperature"})},
        {"time": TIME[:5], "lat": np.linspace(75, 60, 4, dtype="f4"), "lon": np.arange(6) * 2.5},
        {"air": {"dtype": "i2", "scale_factor": 0.01, "_FillValue": -1}, "time": {"units": "hours since 1800-01-01"}},
    ),
    "rasm": (
        {"Tair": (("time", "y", "x"), np.where(FIELD > 280, FIELD, np.nan))},
        {"time": calendar("noleap"), "xc": YX, "yc": YX},
        {"Tair": {"_FillValue": 9.96921e36}},
    ),
    "ROMS_example": (
        {"salt": (("ocean_time", "s_rho", "eta_rho"), FIELD.astype("f4")), "Vtransform": ((), np.int32(2))},
        {"Cs_r": ("s_rho", np.linspace(-1, 0, 4)), "ocean_time": TIME[:5], "hc": ((), 20.0)},
        {"ocean_time": {"units": "seconds since 2001-01-01", "dtype": "f8"}},
    ),
    "ersstv5": (
        {
            "sst": (("time", "lat"), FIELD[:, :, 0].astype("f4")),
            "time_bnds": (("time", "nbnds"), np.stack([TIME[:5]] * 2, 1)),
        },
        {"time": ("time", TIME[:5], {"bounds": "time_bnds"})},
        {"time": {"units": "days since 1800-1-1"}},
    ),
    "basin_mask": ({"basin": (("Z", "Y"), np.arange(12, dtype="f4").reshape(3, 4))}, {"Z": [0.0, 10, 20]}, {}),
    "tiny": ({"tiny": ("dim_0", np.arange(5.0))}, {}, {}),
    "scatter": ({"u": YX}, {"angle": ("x", np.arange(6) * 0.1, {"units": "rad"})}, {}),
    "calendar_360": ({"a": ("time", np.arange(5))}, {"time": calendar("360_day")}, {}),
    "calendar_julian": ({"a": ("time", np.arange(5))}, {"time": calendar("julian")}, {}),
    "stations": ({"t": ("name", np.arange(3.0))}, {"name": np.array(["a", "é", "long" * 20], object)}, {}),
    "codes": ({"c": ("x", np.array([b"ab", b"c", b""]))}, {"label": ("x", np.array(["u", "v", "wxyz"], "U4"))}, {}),
    "flags": (
        {"q": ("x", np.array([0, 1, 4], "i1"), {"flag_values": [0, 1, 4], "flag_meanings": "good bad none"})},
        {},
        {},
    ),
    "mask": ({"m": (("y", "x"), FIELD[0] > 280)}, {}, {}),
    "unsigned": (
        {"b": ("x", np.array([0, 200, 255.0]))},
        {},
        {"b": {"dtype": "i1", "_Unsigned": "true", "_FillValue": -1}},
    ),
    "missing_integers": ({"n": ("x", [1.0, np.nan, 3])}, {}, {"n": {"dtype": "i4", "_FillValue": -9999}}),
    "lead_times": ({"a": ("lead", np.arange(3))}, {"lead": np.arange(3).astype("m8[h]").astype("m8[ns]")}, {}),
    "instants": ({"a": ("t", np.arange(3))}, {"t": TIME[0] + np.arange(3).astype("m8[ns]")}, {}),
    "not_a_time": ({"when": ("x", np.array([TIME[0], "NaT", TIME[1]], "M8[ns]"))}, {}, {}),
    "grid_mapping": (
        {
            "a": (("y", "x"), FIELD[0], {"grid_mapping": "crs"}),
            "crs": ((), 0, {"semi_major_axis": 6378137.0, "names": ["a"]}),
        },
        {"lat": YX, "lon": YX},
        {},
    ),
    "numbers": (
        {f"n{kind}": ("x", np.arange(3).astype(kind)) for kind in ("f2", "u8", "i8", ">f4", "c8", "u1")},
        {},
        {},
    ),
    "nothing": ({"a": (("time", "x"), np.zeros((0, 3)))}, {"x": [1, 2, 3]}, {}),
    "scalars": ({"a": ((), 1.5), "b": ((), "text"), "c": ((), TIME[0])}, {}, {}),
    "blocks": ({"a": (("time", "y", "x"), FIELD)}, {}, {"a": {"chunks": (2, 3, 4)}}),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    folder = tmp_path_factory.mktemp("datasets")
    for zarr_format in (2, 3):
        dataset().to_zarr(folder / f"v{zarr_format}", zarr_format=zarr_format, encoding=ENCODING, consolidated=False)
    tree = {"/": dataset(), "/a": dataset()[["count"]], "/a/b": dataset()[["name"]]}
    xarray.DataTree.from_dict(tree).to_zarr(folder / "tree", zarr_format=3, consolidated=False)
    with serving(folder) as found:
        yield found, folder


def url(data: tuple[Served, Path], path: str) -> str:
    return f"{data[0].url}/v1/metadata/data/{path}"


@pytest.mark.parametrize("kind", KINDS)
def test_datasets_of_every_kind_are_those_of_the_folder(data: tuple[Served, Path], kind: str) -> None:
    variables, coordinates, encoding = KINDS[kind]
    for zarr_format in (2, 3):
        name = f"kinds/{kind}{zarr_format}"
        made = xarray.Dataset(variables, coordinates, {"title": kind})
        made.to_zarr(data[1] / name, zarr_format=zarr_format, encoding=encoding, consolidated=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of how spans of time will be decoded
            local = xarray.open_zarr(data[1] / name, consolidated=False)
            remote = xarray.open_dataset(url(data, name), engine="hyperslab")

        xarray.testing.assert_identical(remote.load(), local.load())
        kinds = [
            {n: v.dtype for n, v in each.variables.items() if v.dtype.kind not in "OT"} for each in (remote, local)
        ]
        assert kinds[0] == kinds[1]


def test_other_processes_compute_a_mean(data: tuple[Served, Path]) -> None:
    local = xarray.open_zarr(data[1] / "v3", consolidated=False)
    with (
        dask.config.set({"distributed.worker.daemon": True}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,  # type: ignore[no-untyped-call]
        Client(cluster),  # type: ignore[no-untyped-call]
    ):
        mean = xarray.open_dataset(url(data, "v3"), engine="hyperslab", chunks={}).packed.mean("time").load()

    xarray.testing.assert_allclose(mean, local.packed.mean("time").load())


@pytest.mark.parametrize("zarr_format", [2, 3])
class TestDatasets:
    def test_a_group_is_the_dataset_that_xarray_opens_from_the_folder(
        self, data: tuple[Served, Path], zarr_format: int
    ) -> None:
        for options in ({}, {"mask_and_scale": False, "decode_times": False}, {"drop_variables": ["air"]}):
            remote = xarray.open_dataset(url(data, f"v{zarr_format}"), engine="hyperslab", **options)
            local = xarray.open_dataset(data[1] / f"v{zarr_format}", engine="zarr", consolidated=False, **options)

            assert {n: v.encoding["preferred_chunks"] for n, v in remote.variables.items()} == {
                n: v.encoding["preferred_chunks"] for n, v in local.variables.items()
            }
            xarray.testing.assert_identical(remote.load(), local.load())

    def test_every_way_of_indexing_reads_the_same(self, data: tuple[Served, Path], zarr_format: int) -> None:
        remote = xarray.open_dataset(url(data, f"v{zarr_format}"), engine="hyperslab")
        local = xarray.open_zarr(data[1] / f"v{zarr_format}", consolidated=False)
        points = {"x": xarray.DataArray([0, 3, 3], dims="p"), "y": xarray.DataArray([1, 2, 5], dims="p")}

        for key in ({"time": -1}, {"time": slice(None, None, -3), "x": [5, 1]}, points, {**points, "time": [2, 1]}):
            xarray.testing.assert_identical(remote.isel(key).load(), local.isel(key).load())
        xarray.testing.assert_identical(
            remote.sel(time="2001-02", y=slice(49, 46)).load(), local.sel(time="2001-02", y=slice(49, 46)).load()
        )

    def test_blocks_of_dask_are_stored_chunks_and_computed_in_other_processes(
        self, data: tuple[Served, Path], zarr_format: int
    ) -> None:
        remote = xarray.open_dataset(url(data, f"v{zarr_format}"), engine="hyperslab", chunks={})
        local = xarray.open_zarr(data[1] / f"v{zarr_format}", consolidated=False)

        assert remote.packed.chunks == local.packed.chunks
        with dask.config.set(scheduler="synchronous"):
            means = pickle.loads(pickle.dumps(remote[["air", "packed"]].mean(["x", "y"])))
            xarray.testing.assert_allclose(means.load(), local[["air", "packed"]].mean(["x", "y"]).load())


def test_a_tree_is_the_tree_that_xarray_opens_from_the_folder(data: tuple[Served, Path]) -> None:
    remote = xarray.open_datatree(url(data, "tree"), engine="hyperslab")

    xarray.testing.assert_identical(
        remote.load(), xarray.open_datatree(data[1] / "tree", engine="zarr", consolidated=False).load()
    )
    xarray.testing.assert_identical(
        xarray.open_dataset(url(data, "tree"), engine="hyperslab", group="a/b").load(),
        dataset()[["name"]].drop_vars("y"),
    )


def test_a_series_at_a_point_moves_a_tenth_of_the_bytes_of_its_chunks(data: tuple[Served, Path]) -> None:
    served, folder = data
    values = np.random.default_rng(2).normal(size=(100, 60, 80)).astype("f4")
    xarray.Dataset({"a": (("time", "y", "x"), values)}).to_zarr(
        folder / "large", encoding={"a": {"chunks": (50, 30, 40)}}, consolidated=False
    )
    remote = xarray.open_dataset(url(data, "large"), engine="hyperslab")

    def sent() -> int:
        lines = served.http.get("/metrics").text.splitlines()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith("hyperslab_sent_bytes_total"))

    def cost(dataset: xarray.Dataset) -> int:
        before = sent()
        np.testing.assert_array_equal(dataset.a.isel(x=3, y=5).values, values[:, 5, 3])
        return sent() - before

    keys = xarray.open_zarr(f"{served.url}/zarr/data/large", consolidated=False)
    assert 0 < 10 * cost(remote) <= cost(keys)


def test_the_engine_is_guessed_where_netcdf4_is_asked_last(data: tuple[Served, Path]) -> None:
    with xarray.set_options(netcdf_engine_order=["h5netcdf", "scipy"]):  # type: ignore[no-untyped-call]
        xarray.backends.refresh_engines()
        opened = xarray.open_dataset(url(data, "v3")), xarray.open_datatree(url(data, "tree"))
    xarray.backends.refresh_engines()

    assert opened[0].sizes == dataset().sizes
    assert opened[1].groups == ("/", "/a", "/a/b")


def test_axes_without_names_are_named_and_can_be_left_out(data: tuple[Served, Path]) -> None:
    root = RemoteGroup(url(data, ""))
    group = root.create_group("bare", zarr_format=3)
    group.create_array("a", (2, 3), "i2", dimension_names=["y", None])
    group.create_array("b", (2,), "i2", dimension_names=["y"])

    with pytest.raises(ValueError, match=r"data/bare/a: dimensions \('y', None\)"):
        xarray.open_dataset(group.url, engine="hyperslab")
    assert list(xarray.open_dataset(group.url, engine="hyperslab", drop_variables="a")) == ["b"]


class TestArrays:
    def test_positions_and_labels_choose_what_they_choose_in_xarray(self, data: tuple[Served, Path]) -> None:
        air, local = RemoteArray(url(data, "v3/air")), xarray.open_zarr(data[1] / "v3", consolidated=False).air

        for labels in (
            {"time": "2001-02"},
            {"time": slice("2001-02-01", "2001-02-03"), "y": 48},
            {"x": [3.0, 0.0], "y": slice(49, 46)},
        ):
            np.testing.assert_array_equal(air.sel(labels), local.sel(labels))
        near = air.sel(x=3.2, y=47.9, method="nearest")
        np.testing.assert_array_equal(near[::-1], local.sel(x=3.2, y=47.9, method="nearest")[::-1])
        view = air.isel(time=slice(None, None, -2)).isel(x=[6, 1, 4], y=slice(1, 5)).isel(time=slice(1, 4))
        expected = local.values[::-2, 1:5][:, :, [6, 1, 4]][1:4]
        assert view.dims == ("time", "y", "x")
        assert view.shape == expected.shape
        for key in (
            ...,
            (0, slice(None, None, -1)),
            (slice(0, 2), [3, 0]),
            (1, 2, 0),
            (slice(None), slice(None), [2, 2]),
        ):
            np.testing.assert_array_equal(view[key], expected[key])

    def test_dates_of_other_calendars_are_labels(self, data: tuple[Served, Path]) -> None:
        dates = xarray.date_range("2000-01-30", periods=36, calendar="360_day", use_cftime=True)
        local = xarray.DataArray(np.arange(36), {"time": dates}, name="a")
        local.to_dataset().to_zarr(data[1] / "dates", consolidated=False)
        remote = RemoteArray(url(data, "dates/a"))

        some = [dates[4], dates[[9, 4]].values]
        for label in ("2000-02", "2000-02-30", slice("2000-02-03", "2000-02-07"), *some):
            np.testing.assert_array_equal(remote.sel(time=label), local.sel(time=label))

    def test_a_part_is_written(self, data: tuple[Served, Path]) -> None:
        array = RemoteGroup(url(data, "")).create_array(
            "written", data=np.zeros((4, 5), "i4"), dimension_names=["y", "x"], zarr_format=3
        )

        array.isel(y=1, x=slice(0, 5, 2))[...] = [1, 2, 3]
        array.isel(x=[4, 1])[2:] = [[7, 8], [9, 10]]

        assert array[...].tolist() == [[0] * 5, [1, 0, 2, 0, 3], [0, 8, 0, 0, 7], [0, 10, 0, 0, 9]]

    def test_an_array_brings_its_coordinates(self, data: tuple[Served, Path]) -> None:
        for name in ("air", "packed", "time"):
            array = RemoteArray(url(data, f"v3/{name}")).to_xarray()
            xarray.testing.assert_identical(
                array.load(), xarray.open_zarr(data[1] / "v3", consolidated=False)[name].load()
            )
        xarray.testing.assert_identical(
            RemoteGroup(url(data, "v2")).to_xarray().load(), xarray.open_zarr(data[1] / "v2", consolidated=False).load()
        )

    def test_dask_reads_blocks(self, data: tuple[Served, Path]) -> None:
        packed = RemoteArray(url(data, "v3/packed"))

        assert packed.to_dask(chunks=None).chunksize == (5, 4, 4)
        with dask.config.set(scheduler="synchronous"):
            np.testing.assert_array_equal(packed.to_dask()[::3, 1].sum(axis=0).compute(), packed[::3, 1].sum(axis=0))

    @pytest.mark.parametrize("is_part", [False, True])
    def test_what_it_does_not_do_says_what_does(self, data: tuple[Served, Path], is_part: bool) -> None:
        whole = RemoteArray(url(data, "v3/air"))
        air: Any = whole.isel(time=[3, 1]) if is_part else whole

        for expression in ("air + 1", "1 - air", "-air", "air @ air", "air > 0"):
            with pytest.raises(TypeError, match=r"a\[\.\.\.\], or use a\.to_dask\(\)"):
                eval(expression, {"air": air})
        with dask.config.set(scheduler="synchronous"):
            np.testing.assert_array_equal(air.to_dask()[0].compute(), air[0])
        for name in ("mean", "T", "reshape"):
            with pytest.raises(AttributeError, match=rf"a\[\.\.\.\]\.{name}, or use a\.to_dask\(\)\.{name}"):
                getattr(air, name)
        with pytest.raises(AttributeError, match="no attribute 'other'"):
            air.other  # noqa: B018

    @pytest.mark.parametrize(
        ("labels", "error", "message"),
        [
            ({"z": 1}, ValueError, "no dimension 'z': the array has 'time', 'y', 'x'"),
            ({"time": "1999"}, KeyError, "no value is '1999'"),
            ({"time": "soon"}, ValueError, "'soon' is no label"),
            ({"x": 3.2}, KeyError, "no value is 3.2"),
        ],
    )
    def test_a_label_that_selects_nothing_is_named(
        self, data: tuple[Served, Path], labels: dict[str, Any], error: type[Exception], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            RemoteArray(url(data, "v3/air")).sel(labels)

    def test_an_axis_without_a_coordinate_is_chosen_by_position(self, data: tuple[Served, Path]) -> None:
        array = RemoteGroup(url(data, "")).create_array("alone", (3,), "i2", dimension_names=["q"], zarr_format=3)

        with pytest.raises(KeyError, match="no coordinate 'q' is stored beside data/alone or above: choose by isel"):
            array.sel(q=1)

    def test_coordinates_of_the_groups_above_are_inherited(self, data: tuple[Served, Path]) -> None:
        """As in xarray's tree of groups, in which a child stores none that its parent has."""
        folder, lat = data[1] / "nested", np.linspace(-40, 40, 5)
        upper = xarray.Dataset(coords={"time": TIME[:3]})
        inner = xarray.Dataset({"a": (("time", "lat"), np.arange(15).reshape(3, 5))}, {"lat": lat})
        stored = xarray.DataTree.from_dict({"/": upper, "/b/c": inner})
        stored.to_zarr(folder, zarr_format=3, consolidated=False)
        tree = xarray.open_datatree(folder, engine="zarr", consolidated=False)
        expected = tree["b/c"].a.sel(time=TIME[1])

        answer = data[0].http.get(f"/v1/slice/data/nested/b/c/a?sel=time:{TIME[1]}&format=json")
        info = data[0].http.get("/v1/tile/data/nested/b/c/a/info.json").json()
        array = RemoteArray(url(data, "nested/b/c/a"))

        assert answer.json() == array.sel(time=TIME[1])[...].ravel().tolist() == expected.values.tolist()
        assert info["natural"]["flip"] == ["lat"]
        xarray.testing.assert_equal(array.to_xarray().sel(time=TIME[1]).load(), expected)

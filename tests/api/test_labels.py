"""Labels over HTTP select what they select in xarray, and what they select is never out of date."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec
from urllib.parse import quote

import httpx
import numpy as np
import pytest
import xarray
import zarr
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.engine.cf import Decoder
from tests.api.support import Served, problem, serving

pytestmark = pytest.mark.filterwarnings("ignore:The data type")

TIME = np.datetime64("2001-01-01", "ns") + np.arange(90) * np.timedelta64(1, "D")
SIZES = {"time": 90, "lat": 8, "lon": 6, "station": 4, "level": 5}
COORDINATES: dict[str, Any] = {
    "time": TIME,
    "lat": np.linspace(70, 0, 8),
    "lon": np.linspace(0, 1, 6, dtype="f4"),
    "station": np.array(["b", "a", "c,d", "é..f"], object),
    "level": np.array([1, 10, 5, 7, 100]),
}
ENCODING: dict[str, Any] = {"time": {"units": "hours since 1900-01-01", "chunks": (40,)}}


def dataset(*names: str) -> xarray.Dataset:
    shape = [SIZES[name] for name in names]
    values = np.arange(np.prod(shape), dtype="i4").reshape(shape)
    coordinates = {name: COORDINATES[name] for name in names}
    return xarray.Dataset({"a": (names, values)}, coordinates)


KINDS: dict[str, tuple[str, ...]] = {"grid": ("time", "lat", "lon"), "stations": ("station", "level")}
TEXTS: dict[str, list[str]] = {
    "time": ["2001", "2001-02", "2001-02-03", "2001-01-30T00", "1999", "2001-03-31", "2001-05-01"],
    "lat": ["70", "40.0", "35", "-1", "80", "20"],
    "lon": ["0.2", "0.6", "0.5", "1", "2"],
    "station": ["a", "b", "x"],
    "level": ["1", "10", "5.0", "6", "100", "200"],
}


def label(name: str) -> st.SearchStrategy[Any]:
    one = st.sampled_from(TEXTS[name])
    end = st.none() | one
    return one | st.lists(one, min_size=1, max_size=3) | st.builds(slice, end, end, st.sampled_from([None, None, 2]))


@st.composite
def selections(draw: st.DrawFn) -> tuple[str, dict[str, Any], str | None]:
    kind = draw(st.sampled_from([*KINDS]))
    names = draw(st.lists(st.sampled_from(KINDS[kind]), min_size=1, unique=True))
    methods = [None, None, "nearest", "ffill"] if "level" not in names else [None]  # in no order xarray has no nearest
    return kind, {name: draw(label(name)) for name in names}, draw(st.sampled_from(methods))


def written(found: Any) -> str:
    if isinstance(found, list):
        return "[" + ",".join(map(quoted, found)) + "]"
    if not isinstance(found, slice):
        return quoted(found)
    ends = [quoted(end) if end is not None else "" for end in (found.start, found.stop)]
    return "..".join([*ends, *([] if found.step is None else [str(found.step)])])


def quoted(text: str) -> str:
    return json.dumps(text) if "," in text or ".." in text else text


def typed(name: str, found: Any) -> Any:
    """The label for xarray, of which numbers are no text."""
    if isinstance(found, list):
        return [typed(name, each) for each in found]
    if isinstance(found, slice):
        first, last = (None if end is None else typed(name, end) for end in (found.start, found.stop))
        return slice(first, last, found.step)
    return float(found) if name in ("lat", "lon", "level") else found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("labels")
    for kind, names in KINDS.items():
        encoding = {name: each for name, each in ENCODING.items() if name in names}
        for zarr_format in (2, 3):
            dataset(*names).to_zarr(
                folder / f"{kind}{zarr_format}", zarr_format=zarr_format, encoding=encoding, consolidated=False
            )
    with serving(folder) as found:
        yield found


def ask(http: httpx.Client, path: str, *labels: str, **query: str) -> httpx.Response:
    pairs = [*query.items(), *(("sel", each) for each in labels)]
    return http.get(f"/v1/{path}?" + "&".join(f"{name}={quote(value)}" for name, value in pairs))


@given(selections(), st.sampled_from([2, 3]))
def test_a_slice_is_what_sel_of_xarray_selects(
    served: Served, selected: tuple[str, dict[str, Any], str | None], zarr_format: int
) -> None:
    kind, labels, method = selected
    query = {} if method is None else {"method": method}
    texts = [f"{name}:{written(each)}" for name, each in labels.items()]
    answer = ask(served.http, f"slice/data/{kind}{zarr_format}/a", *texts, format="json", **query)
    array = dataset(*KINDS[kind]).a

    try:
        keys = {name: typed(name, each) for name, each in labels.items()}
        expected = array.sel({name: key for name, key in keys.items() if isinstance(key, slice)})
        expected = expected.sel({name: key for name, key in keys.items() if not isinstance(key, slice)}, method=method)
    except (KeyError, ValueError, NotImplementedError, TypeError):
        assert answer.status_code in (400, 422), (texts, answer.text)
    else:
        if answer.status_code == 422:  # a part of a date in which nothing is
            assert 0 in expected.shape, (texts, answer.text)
        else:
            assert answer.json() == expected.values.tolist(), texts


class TestFreshness:
    @pytest.mark.parametrize("zarr_format", [2, 3])
    def test_an_answer_follows_the_coordinate_while_the_data_stays(self, tmp_path: Path, zarr_format: int) -> None:
        """By two services on one folder, one of which writes, and by another program: answers, those with a condition,
        and those that are asked for again."""
        folder = tmp_path / "d"
        values = np.random.default_rng(1).integers(0, 255, (3, 70, 80), "u1")
        variables = {"a": (("time", "y", "x"), values)}
        xarray.Dataset(variables, {"time": TIME[:3]}).to_zarr(folder, zarr_format=zarr_format, consolidated=False)
        paths = (
            "slice/data/d/a?sel=time:2001-01-02",
            "plan/data/d/a?sel=time:2001-01-02",
            "tile/data/d/a/0/0/0.npy?sel=time:2001-01-02",
            "tile/data/d/a/0/0/0.png?sel=time:2001-01-02&rescale=0,255",
        )
        with ExitStack() as stack:
            first, second = (stack.enter_context(serving(tmp_path)).http for _ in range(2))

            def answers(http: httpx.Client) -> list[httpx.Response]:
                return [http.get(f"/v1/{path}") for path in paths]

            def check(index: int) -> list[httpx.Response]:
                expected = [
                    first.get(f"/v1/{path.replace('sel=time:2001-01-02', f'{at}{index}')}").content
                    for path, at in zip(paths, ("select=", "select=", "time=", "time="), strict=True)
                ]
                for http in (first, second, first, second):
                    found = answers(http)
                    assert [each.status_code for each in found] == [200] * 4
                    assert [each.content for each in found[2:]] == expected[2:]
                    assert found[0].content == values[index].tobytes()
                    assert found[1].json()["etag"] == found[0].headers["etag"]
                return found

            def still(http: httpx.Client, found: list[httpx.Response]) -> list[int]:
                tags = [{"If-None-Match": each.headers["etag"]} for each in found]
                return [http.get(f"/v1/{path}", headers=tag).status_code for path, tag in zip(paths, tags, strict=True)]

            for change in (
                lambda: first.put("/v1/slice/data/d/time?select=0:3", json=[1, 2, 0]),  # days since 2001-01-01
                lambda: zarr.open_array(folder / "time", mode="r+").set_basic_selection(slice(0, 3), [2, 0, 1]),
                lambda: second.patch(
                    "/v1/metadata/data/d/time", json={"attributes": {"units": "days since 2000-12-31"}}
                ),
            ):
                at = int(np.flatnonzero(xarray.open_zarr(folder, consolidated=False).time == TIME[1])[0])
                found = check(at)
                assert still(first, found) == still(second, found) == [304] * 4
                change()
                for http in (first, second):
                    assert still(http, found) == [200] * 4
            check(int(np.flatnonzero(xarray.open_zarr(folder, consolidated=False).time == TIME[1])[0]))

    def test_many_dates_are_decoded_once(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        decoded = create_autospec(Decoder.__call__, side_effect=Decoder.__call__)
        monkeypatch.setattr(Decoder, "__call__", decoded)

        for day in range(1, 9):
            assert ask(served.http, "slice/data/grid3/a", f"time:2001-01-0{day}").status_code == 200

        assert decoded.call_count <= 1


class TestRoutes:
    def test_positions_and_labels_go_together(self, served: Served) -> None:
        expected = dataset(*KINDS["grid"]).a.sel(time=slice("2001-02", "2001-02-10"), lat=40)

        sliced = ask(served.http, "slice/data/grid3/a", "time:2001-02..2001-02-10", "lat:40", select="...,1:3")
        planned = ask(served.http, "plan/data/grid2/a", "time:2001-02..2001-02-10", "lat:40", select=":,:,1:3")

        assert sliced.content == expected.values[:, 1:3].tobytes()
        assert planned.json()["shape"] == [10, 2]
        assert served.http.head("/v1/slice/data/grid3/a?sel=lat:40").headers["array-shape"] == "[90,6]"

    def test_a_slice_is_written_by_labels(self, tmp_path: Path) -> None:
        dataset(*KINDS["grid"]).to_zarr(tmp_path / "g", consolidated=False)
        expected = dataset(*KINDS["grid"]).load()
        expected.a.loc[{"time": "2001-02", "lat": [70, 0]}] = 7
        with serving(tmp_path) as found:
            answer = found.http.put("/v1/slice/data/g/a?sel=time:2001-02&sel=lat:[70,0]", json=7)

        assert answer.status_code == 204
        xarray.testing.assert_equal(xarray.open_zarr(tmp_path / "g", consolidated=False), expected)

    def test_points_are_chosen_by_labels(self, served: Served) -> None:
        def points(body: Any, *labels: str, **query: str) -> httpx.Response:
            params = {**query, "sel": labels, "format": "json"}
            return served.http.post("/v1/points/data/grid3/a", params=params, json=body)

        def along(values: Any) -> xarray.DataArray:
            return xarray.DataArray(values, dims="p")

        array = dataset(*KINDS["grid"]).a
        lat, lon = [61.2, 20, 33], [0.11, 0.52, 0.9]
        near = array.sel(lat=along(lat), lon=along(lon), method="nearest")
        dates = along(["2001-02-03", "2001-01-01"]).astype("M8[ns]")
        exact = array.sel(time=dates, lat=along([70, 10]), lon=along([0.0, 1.0]))

        assert (
            points({"coordinates": [[1, 2], [-1, 0]]}, "time:2001-02-03").json()
            == array[33].values[[1, -1], [2, 0]].tolist()
        )
        assert (
            points({"labels": {"lat": lat, "lon": lon}}, "time:2001-01-02", method="nearest").json()
            == near[1].values.tolist()
        )
        named = {"time": ["2001-02-03", "2001-01-01"], "lat": [70, 10.0], "lon": [0, 1]}
        assert points({"labels": named}).json() == exact.values.tolist()
        assert problem(points({"coordinates": [[0, 0]]}, "time:2001-02")) == (400, "bad-parameter")
        assert problem(points({"labels": {"lat": [70]}}, "time:2001-02-03")) == (400, "bad-body")
        assert problem(points({"labels": {"lat": [70], "lon": [0, 1]}}, "time:2001-02-03")) == (400, "bad-body")
        refused = points({"labels": {"lat": [70, 71], "lon": [0, 1]}}, "time:2001-02-03")
        assert (problem(refused), refused.json()["nearest"]) == ((422, "label-not-found"), ["70.0"])

    def test_points_are_written_by_labels(self, tmp_path: Path) -> None:
        dataset(*KINDS["stations"]).to_zarr(tmp_path / "s", consolidated=False)
        body = {"labels": {"station": ["a", "b"]}, "values": [-1, -2]}
        with serving(tmp_path) as found:
            answer = found.http.post("/v1/points/data/s/a?values=1&sel=level:7", json=body)

        assert answer.status_code == 204
        assert xarray.open_zarr(tmp_path / "s", consolidated=False).a.sel(level=7).values.tolist()[:2] == [-2, -1]

    def test_a_tile_shows_the_plane_of_a_label(self, served: Served) -> None:
        def numbers(query: str) -> httpx.Response:
            return served.http.get(f"/v1/tile/data/grid3/a/0/0/0.npy?{query}")

        assert numbers("sel=time:2001-01-03").content == numbers("time=2").content
        assert numbers("sel=time:2001-01-03T14&method=nearest").content == numbers("time=3").content
        assert numbers("axes=time,lon&sel=lat:40").content == numbers("axes=time,lon&lat=3").content
        info = served.http.get("/v1/tile/data/grid3/a/info.json?sel=time:2001-01-03").json()
        assert info["selection"]["time"] == 2
        for query in ("sel=time:2001-01", "sel=time:2005..2006", "sel=lat:70", "sel=depth:0"):
            assert problem(numbers(query)) == (400, "bad-parameter"), query
        assert problem(numbers("sel=time:2005")) == (422, "label-not-found")


@pytest.mark.parametrize(
    ("labels", "refusal", "text"),
    [
        (["depth:1"], (400, "bad-parameter"), "name of a dimension (time, lat, lon)"),
        (["lat"], (400, "bad-parameter"), "name:label"),
        (["lat:"], (400, "bad-parameter"), "a label is missing"),
        (["lat:north"], (400, "bad-parameter"), "'north' is no label of a coordinate of float64"),
        (["lat:1..2..x"], (400, "bad-parameter"), "from..to..step"),
        (["lat:70", "lat:0"], (400, "bad-parameter"), "one label of lat"),
        (["lat:41"], (422, "label-not-found"), "no value is '41'; there are 50.0 and 40.0"),
        (["time:2001-01-01T12:30"], (422, "label-not-found"), "there are 2001-01-01 and 2001-01-02"),
        (["time:1999"], (422, "label-not-found"), "there are 2001-01-01"),
        (["time:[2001-01-01,2001-01-01T01]"], (422, "label-not-found"), "'2001-01-01T01'"),
    ],
)
def test_what_is_no_label_is_refused(served: Served, labels: list[str], refusal: tuple[int, str], text: str) -> None:
    for path in ("slice/data/grid2/a", "plan/data/grid3/a"):
        answer = ask(served.http, path, *labels)

        assert problem(answer) == refusal
        assert text in str(answer.json()["detail"])


def test_the_first_axis_may_be_chosen_once(served: Served) -> None:
    assert problem(ask(served.http, "slice/data/grid2/a", "lat:70", select=":,3")) == (400, "bad-parameter")
    assert problem(ask(served.http, "slice/data/grid2/a", "lat:70", select="0,:,0,0")) == (422, "too-many-indices")
    assert problem(ask(served.http, "slice/data/grid2/a", "lat:1", method="close")) == (400, "bad-parameter")
    assert problem(ask(served.http, "slice/data/stations2/a", "level:2..6")) == (422, "label-not-found")


def test_an_array_without_coordinates_is_chosen_by_position(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "g", mode="w")
    group.create_array("a", data=np.arange(6).reshape(2, 3), dimension_names=["y", "x"])
    group.create_array("x", data=np.arange(4.0))
    zarr.create_array(tmp_path / "alone", data=np.arange(3), dimension_names=["x"])
    zarr.create_array(tmp_path / "bare", data=np.arange(3))
    with serving(tmp_path) as found:
        for path, label in (("g/a", "y:1"), ("g/a", "x:1")):
            assert problem(ask(found.http, f"slice/data/{path}", label)) == (422, "no-coordinate")
        assert ask(found.http, "slice/data/alone", "x:1", format="json").status_code == 422
        assert problem(ask(found.http, "slice/data/bare", "x:1")) == (400, "bad-parameter")

"""Times of every unit and multiple in every form: what does not fit into 64 bits is refused, and never wraps around."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from hyperslab import RemoteArray
from tests.api.support import Running, Served, npy, running, serving

LEAST = -(2**63)
COUNTS = np.array([[0, 1, -5, 2**40], [LEAST, LEAST + 1, 2**63 - 1, 70]])
NAMES = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")
UNITS = [f"{multiple}{unit}" for unit in NAMES for multiple in ("", "10", "25")]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """An array of `COUNTS` for each unit, at ``M8/UNIT`` and ``m8/UNIT``."""
    folder = tmp_path_factory.mktemp("times")
    members = {"zarr_format": 2, "compressor": None, "filters": None, "order": "C", "fill_value": 0}
    for kind in ("M8", "m8"):
        for at, unit in enumerate(UNITS):
            order = "<>"[at % 2]
            place = folder / kind / unit
            place.mkdir(parents=True)
            document = {**members, "shape": [2, 4], "chunks": [2, 4], "dtype": f"{order}{kind}[{unit}]"}
            (place / ".zarray").write_text(json.dumps(document))
            (place / "0.0").write_bytes(COUNTS.astype(f"{order}i8").tobytes())
    with running(folder) as found:
        yield found


@pytest.fixture(scope="module")
def client(served: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url) as found:
        yield found


def text_of(count: int, unit: str) -> Any:
    """numpy's text of a time that is near enough to 1970 for it."""
    return "NaT" if count == LEAST else str(np.array(count).view(f"M8[{unit}]"))


@pytest.mark.parametrize("unit", UNITS)
def test_times_are_text_where_there_is_a_date_and_counts_beyond(client: httpx.Client, unit: str) -> None:
    near, (missing, *ends, last) = client.get(f"/v1/slice/data/M8/{unit}?format=json").json()

    assert [*near, last, missing] == [text_of(count, unit) for count in (0, 1, -5, 2**40, 70, LEAST)]
    for count, shown in zip(COUNTS[1, 1:3].tolist(), ends, strict=True):
        exact = np.datetime_data(f"M8[{unit}]")[1] == 1 and not unit.endswith(("Y", "M", "W"))
        assert shown == (text_of(count, unit) if exact and abs(count) <= 2**63 - 2**12 else count)
    rows = client.get(f"/v1/slice/data/M8/{unit}?format=csv").text.splitlines()
    assert [row.split(",") for row in rows] == [near, [missing, *map(str, ends), last]]
    gathered = client.post(f"/v1/points/data/M8/{unit}?format=json", json={"coordinates": [[0, 1], [1, 0], [1, 2]]})
    assert gathered.json() == [near[1], missing, ends[1]]
    assert client.get(f"/v1/slice/data/m8/{unit}?format=json&select=1").json() == ["NaT", *COUNTS[1, 1:].tolist()]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("kind", ["M8", "m8"])
def test_bins_of_times_hold_their_ends(client: httpx.Client, served: Running, kind: str, unit: str) -> None:
    target = f"/v1/slice/data/{kind}/{unit}?reduce=minmax&bins=2"
    found = npy(client.get(f"{target}&format=npy").content)

    assert found.dtype == np.dtype(f"<{kind}[{unit}]")
    assert found.view("<i8")[0].tolist() == [[0, 1, 0], [-5, 2**40, 2**39 - 2]]
    assert found.view("<i8")[1, 0].tolist() == [LEAST + 1] * 3
    assert client.get(f"{target}&format=json").status_code == 200
    with RemoteArray(f"{served.url}/v1/metadata/data/{kind}/{unit}") as remote:
        assert np.asarray(remote[...]).astype(np.int64).tolist() == COUNTS.tolist()


@pytest.mark.parametrize("form", ["raw", "npy", "json", "csv"])
@pytest.mark.parametrize(
    ("kind", "unit", "wanted"),
    [
        *(("M8", unit, "<M8[ns]") for unit in ("Y", "10M", "W", "D", "25h", "us")),
        *(("m8", unit, "<m8[ns]") for unit in ("W", "D", "25h", "us")),
        ("M8", "10s", "<M8[7s]"),
        ("M8", "Y", "<M8[10us]"),
    ],
)
def test_times_that_do_not_fit_into_the_dtype_that_is_asked_for_are_refused(
    client: httpx.Client, kind: str, unit: str, wanted: str, form: str
) -> None:
    target = f"/v1/slice/data/{kind}/{unit}"
    options = {"dtype": wanted, "format": form}

    refused = client.get(target, params=options | {"select": "1"})
    near = client.get(target, params={"dtype": wanted, "format": "npy", "select": "0,:2"})

    assert (refused.status_code, refused.json()["code"]) == (422, "not-representable")
    expected = COUNTS[0, :2].view(f"{kind}[{unit}]").astype(wanted)
    np.testing.assert_array_equal(npy(near.content), expected)
    binned = client.get(target, params=options | {"reduce": "minmax", "bins": 2})
    assert (binned.status_code, binned.json()["code"]) == (422, "not-representable")


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as found:
        yield found


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        ("<M8[ns]", "9001-01-01"),
        ("<M8[ns]", "1677-01-01"),
        (">M8[ns]", "999999-01-01T00:00:00.000000000"),
        ("<M8[us]", "294250-01-01"),
        ("<M8[as]", "1970-01-01T00:00:20"),
        ("<M8[D]", "9223372036854775807-01-01"),
        ("<M8[s]", "2001-01-01T00:00:00.0000000000000001"),
    ],
)
def test_text_of_times_out_of_range_is_refused_by_service_and_client(written: Served, dtype: str, text: str) -> None:
    """numpy wraps all of these around without a word."""
    url = f"{written.url}/v1/metadata/data/a"
    httpx.put(url, json={"shape": [1], "dtype": dtype}).raise_for_status()
    target = f"{written.url}/v1/slice/data/a"

    refused = httpx.put(target, content=json.dumps([text]), headers={"Content-Type": "application/json"})

    assert (refused.status_code, refused.json()["code"]) == (400, "bad-body")
    with RemoteArray(url) as remote:
        if dtype != "<M8[s]":  # rounded down, as numpy does
            with pytest.raises(OverflowError, match="fit"):
                remote[:] = text
        remote[:] = "1970-01-01T00:00:01.5"
        assert remote[0] == np.array("1970-01-01T00:00:01.5", dtype)


def test_times_of_npy_bodies_that_do_not_fit_are_refused_also_in_fields(written: Served, tmp_path: Path) -> None:
    url = f"{written.url}/v1/metadata/data"
    httpx.put(f"{url}/a", json={"shape": [1], "dtype": "<M8[ns]"}).raise_for_status()
    httpx.put(f"{url}/r", json={"shape": [1], "dtype": [["t", "<M8[ns]", [2]]]}).raise_for_status()
    late, early = (np.array([year], "M8[D]") for year in ("9001-01-01", "2001-01-01"))
    records = np.zeros(1, [("t", "<M8[D]", (2,))])
    for name, value in (("a", late), ("r", records)):
        records["t"] = late
        target = f"{written.url}/v1/slice/data/{name}?casting=unsafe"
        headers = {"Content-Type": "application/x-npy"}
        np.save(tmp_path / "body.npy", value)
        refused = httpx.put(target, content=(tmp_path / "body.npy").read_bytes(), headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (400, "bad-body")
    records["t"] = early
    np.save(tmp_path / "body.npy", records)
    httpx.put(target, content=(tmp_path / "body.npy").read_bytes(), headers=headers).raise_for_status()
    assert httpx.get(f"{written.url}/v1/slice/data/r?field=t&format=json").json() == [
        ["2001-01-01T00:00:00.000000000"] * 2
    ]

"""``/v1/plan``: what a slice would cost."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import httpx
import numpy as np

from hyperslab.api.options import ApiOptions
from tests.api.conftest import CUBE
from tests.api.support import Running, running


def test_a_plan_tells_size_and_chunks_and_reads_none(example_store: Path) -> None:
    with running(example_store) as found:
        cold = httpx.get(f"{found.url}/v1/plan/data/cube?select=2:5,::2&dtype=%3Cf4").json()
        reads = found.store.chunk_gets()
        slice_ = httpx.get(f"{found.url}/v1/slice/data/cube?select=2:5,::2&dtype=%3Cf4")
        warm = httpx.get(f"{found.url}/v1/plan/data/cube?select=2:5,::2&dtype=%3Cf4").json()

    assert cold["shape"] == [3, 15, 40]
    assert cold["dtype"] == "<f4"
    assert cold["nbytes"] == 3 * 15 * 40 * 4
    assert cold["chunks"] == {"touched": 6, "cached": 0}
    assert reads == []
    assert warm["chunks"] == {"touched": 6, "cached": 6}
    assert cold["etag"] == slice_.headers["etag"]


def test_the_boxes_of_a_plan_make_up_the_slice(example_store: Path) -> None:
    with running(example_store) as found:
        plan = httpx.get(f"{found.url}/v1/plan/data/cube?box_bytes=12000").json()
        parts = [httpx.get(f"{found.url}/v1/slice/data/cube?select={quote(box)}").content for box in plan["boxes"]]

    assert all(len(part) <= 12_000 for part in parts)
    values = np.concatenate([np.frombuffer(part, "<u2") for part in parts])
    np.testing.assert_array_equal(np.sort(values), CUBE.reshape(-1))


def test_a_plan_is_made_for_what_would_be_refused(example_store: Path) -> None:
    with running(example_store, ApiOptions(max_response_bytes=5000)) as found:
        plan = httpx.get(f"{found.url}/v1/plan/data/cube").json()
        refused = httpx.get(f"{found.url}/v1/slice/data/cube").json()

    assert plan["limit"] == refused["limit"] == 5000
    assert plan["boxes"] == refused["boxes"]


def test_plans_for_dtypes_that_numpy_spells_alike_have_tags_of_their_own(example: Running) -> None:
    names = ("float8_e4m3fn", "float8_e4m3b11fnuz")

    plans = [httpx.get(f"{example.url}/v1/plan/data/group/floats", params={"dtype": name}) for name in names]

    assert plans[0].content != plans[1].content
    assert plans[0].headers["etag"] != plans[1].headers["etag"]


def test_a_plan_is_asked_for_anew_also_where_the_store_never_changes(example_store: Path) -> None:
    """How much of it is cached does change."""
    with running(example_store, mount={"recheck": "never"}) as found:
        cold = httpx.get(f"{found.url}/v1/plan/data/cube")
        httpx.get(f"{found.url}/v1/slice/data/cube")
        warm = httpx.get(f"{found.url}/v1/plan/data/cube", headers={"If-None-Match": cold.headers["etag"]})

    assert cold.headers["cache-control"] == "no-cache, no-transform"
    assert cold.json()["chunks"] == {"touched": 18, "cached": 0}
    assert warm.json()["chunks"] == {"touched": 18, "cached": 18}

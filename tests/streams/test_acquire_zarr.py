"""What acquire-zarr makes of the same frames, where it is right: the same arrays, chunks, shards and OME levels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import acquire_zarr
import numpy as np
import pytest
import zarr

from hyperslab import RemoteStream
from hyperslab.asgi import create_app
from hyperslab.settings import Settings, StoreSettings
from tests.server import served
from tests.streams.acquire import theirs
from tests.streams.support import dimension

TCYX = [dimension("t", None, 3, shard=2), dimension("c", 2, 1), dimension("y", 48, 8, shard=3), dimension("x", 64, 16)]


@pytest.mark.parametrize(
    ("dimensions", "dtype", "method"),
    [
        (TCYX, "<u2", None),
        (TCYX, "<f4", None),
        (TCYX, "<u2", "decimate"),
        (TCYX, "<i2", "min"),
        (TCYX, "|u1", "max"),
        (TCYX, "<f4", "mean"),
    ],
)
def test_both_make_the_same_of_the_same_frames(
    tmp_path: Path, dimensions: list[dict[str, Any]], dtype: str, method: str | None
) -> None:
    shape = (6, *[each["size"] for each in dimensions[1:]])
    items = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    frames = items.reshape(-1, *shape[-2:])
    asked = {} if method is None else {"downsampling_method": getattr(acquire_zarr.DownsamplingMethod, method.upper())}
    pyramid = None if method is None else {"method": method}
    settings = {
        "zarr_format": 3,
        "arrays": [{"key": "a", "dtype": dtype, "dimensions": dimensions, "pyramid": pyramid}],
    }

    theirs(tmp_path / "theirs", dimensions, frames.dtype.str, frames, **asked)
    with (
        served(create_app(Settings(stores={"store": StoreSettings(url=str(tmp_path), writable=True)}))) as url,
        RemoteStream(f"{url}/v1/stream/store/ours", settings) as stream,
    ):
        stream.append(frames)

    levels = [""] if method is None else ["0", "1", "2"]
    pairs = [
        [zarr.open_array(tmp_path / side / "a" / level, mode="r") for side in ("theirs", "ours")] for level in levels
    ]
    for one, other in pairs:
        assert (other.shape, other.chunks) == (one.shape, one.chunks)
        np.testing.assert_array_equal(other[:], one[:])
    assert pairs[0][1].shards == pairs[0][0].shards  # theirs get smaller level by level, ours are kept
    np.testing.assert_array_equal(pairs[0][1][:], items)

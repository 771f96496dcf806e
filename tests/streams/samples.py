"""Streams of all kinds of arrays for tests, and what their arrays have to read as."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import zarr

from tests.streams.model import Model, Sender
from tests.streams.support import Lab, dimension

T, C, Z = dimension("t", None, 3), dimension("c", 2, 1), dimension("z", 3, 2)
Y, X = dimension("y", 11, 4), dimension("x", 13, 5)
ARRAYS: dict[str, dict[str, Any]] = {
    "2-D": {"dtype": "|u1", "dimensions": [Y, X], "pyramid": {"method": "max"}},
    "frames": {"dtype": "<f4", "dimensions": [T, Y, X], "fill_value": 1.5},
    "channels": {"dtype": "<u2", "dimensions": [T, C, Y, X], "pyramid": {"method": "mean"}},
    "stack": {"dtype": "<i2", "dimensions": [dimension("z", None, 2), Y, X], "pyramid": {"method": "mean"}},
    "stacks": {"dtype": ">i4", "dimensions": [T | {"size": 4}, C, Z, Y, X], "pyramid": {"method": "min"}},
    "permuted": {
        "dtype": "<u2",
        "dimensions": [T, C, Y, X],
        "storage_order": ["c", "x", "t", "y"],
        "pyramid": {"method": "decimate"},
        "compressor": None,
    },
    "sharded": {
        "dtype": "<u2",
        "dimensions": [T | {"shard": 2}, C, Y | {"shard": 2}, X | {"shard": 3}],
        "storage_order": ["c", "t", "y", "x"],
        "pyramid": {"method": "mean"},
    },
}


BOTH = pytest.mark.parametrize("lab", ["folder", "bucket"], indirect=True, scope="module")
"""Tests over both kinds of store."""


def folder(path: Path) -> dict[str, Any]:
    """The settings of a store in a folder."""
    return {"url": str(path), "writable": True, "durability": "rename"}


def frames_of(model: Model, count: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return list(rng.integers(0, 200, (count, *model.frame_shape)).astype(model.dtype))


def opened(client: httpx.Client, path: str, *arrays: dict[str, Any], **settings: Any) -> None:
    answer = client.put(f"/v1/stream/{path}", json={"arrays": list(arrays), **settings})
    assert answer.status_code == 201, answer.text


def level_paths(sender: Sender) -> list[str]:
    state = sender.state()
    return [f"{state['path']}/{level}" for level in state["levels"]] or [state["path"]]


def check_reads(sender: Sender, model: Model, *, final: bool = False) -> None:
    """Every level reads as the model has it, through the service."""
    for path, expected in zip(level_paths(sender), model.levels(final=final), strict=True):
        np.testing.assert_array_equal(sender.read(path), expected, err_msg=path)


def check_files(lab: Lab, sender: Sender, model: Model, *, final: bool) -> None:
    """The bare store says the same, without the service."""
    folder = lab.place.files()
    for path, expected in zip(level_paths(sender), model.levels(final=final), strict=True):
        stored = zarr.open_array(folder / path.removeprefix("lab/"), mode="r")
        np.testing.assert_array_equal(stored[...], expected, err_msg=path)

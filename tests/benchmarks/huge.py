"""An array of 20 GiB that takes a few megabytes: all its chunks are names of a handful of files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import numcodecs
import numpy as np

from tests.benchmarks.data import BLOSC, STACK, micrographs

NAME: Final = "huge"
PLANES: Final = 10_240
SIDE: Final = 1024
PLANE_BYTES: Final = SIDE * SIDE * 2
_DIFFERENT: Final = 8


def make_huge(folder: Path) -> None:
    """uint16 (10240, 1024, 1024) in chunks of one plane of 2 MiB."""
    target = folder / NAME
    if target.exists():
        return
    unfinished = folder / f"{NAME}.unfinished"
    unfinished.mkdir(parents=True, exist_ok=True)
    codec = numcodecs.get_codec(dict(BLOSC))
    files = []
    for i in range(_DIFFERENT):
        plane = micrographs((1, SIDE, SIDE), i).astype(STACK.dtype)
        files.append(unfinished / f"{i}.0.0")
        files[-1].write_bytes(bytes(codec.encode(plane)))
    for i in range(_DIFFERENT, PLANES):
        os.link(files[i % _DIFFERENT], unfinished / f"{i}.0.0")
    (unfinished / ".zarray").write_text(json.dumps(_document()), encoding="ascii")
    unfinished.rename(target)


def _document() -> dict[str, object]:
    return {
        "zarr_format": 2,
        "shape": [PLANES, SIDE, SIDE],
        "chunks": [1, SIDE, SIDE],
        "dtype": np.dtype(STACK.dtype).str,
        "compressor": dict(BLOSC),
        "filters": None,
        "fill_value": 0,
        "order": "C",
    }

"""``python -m tests.benchmarks.frames PROGRAM TARGET CASE FRAMES``: sends frames as fast as they are taken, and says
how long it took until all are stored. ``TARGET``: the URL of a stream, that of a service for ``append``, a folder for
acquire-zarr."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import acquire_zarr
import numpy as np

from hyperslab import RemoteArray, RemoteStream
from tests.streams.acquire import theirs

LARGE: Final[dict[str, dict[str, Any]]] = {
    "uncompressed": {},
    "Blosc LZ4": {"compressor": {"id": "blosc", "cname": "lz4", "clevel": 1, "shuffle": 1}},
    "mean pyramid": {"pyramid": {"method": "mean"}},
}
"""What is asked for beside 2,048² uint16 frames, in chunks of 1×512×512 and a shard for each frame."""
SMALL: Final = "100 frames in a chunk"
"""Frames of 256² uint16."""


def settings(case: str) -> dict[str, Any]:
    """The settings of a stream."""
    size, chunk, rows = (256, 256, 100) if case == SMALL else (2048, 512, 1)
    shard = size // chunk
    dimensions = [
        {"name": "t", "type": "time", "size": None, "chunk": rows},
        {"name": "y", "type": "space", "size": size, "chunk": chunk, "shard": shard},
        {"name": "x", "type": "space", "size": size, "chunk": chunk, "shard": shard},
    ]
    array = {"key": "a", "dtype": "<u2", "dimensions": dimensions, "compressor": None, **LARGE.get(case, {})}
    return {"zarr_format": 3, "arrays": [array]}


def frames(case: str) -> list[np.ndarray[Any, Any]]:
    """A few frames of a dim microscope, to be sent again and again."""
    side, chance = settings(case)["arrays"][0]["dimensions"][1]["size"], np.random.default_rng(0)
    return [chance.integers(100, 400, (side, side), np.uint16) for _ in range(4)]


def stream(url: str, case: str, count: int) -> None:
    some = frames(case)
    with RemoteStream(url, settings(case), if_exists="replace") as sending:
        for number in range(count):
            sending.append(some[number % len(some)])


def append(url: str, case: str, count: int) -> None:
    """A request for each frame, to an array that is there and empty."""
    some = frames(case)
    with RemoteArray(f"{url}/v1/slice/data/appended") as array:
        for number in range(count):
            array.append(some[number % len(some)][None])


def acquire(folder: str, case: str, count: int) -> None:
    some, array = frames(case), settings(case)["arrays"][0]
    members: dict[str, Any] = {}
    if array["compressor"]:
        codec = acquire_zarr.CompressionCodec.BLOSC_LZ4
        blosc = acquire_zarr.Compressor.BLOSC1
        members["compression"] = acquire_zarr.CompressionSettings(compressor=blosc, codec=codec, level=1, shuffle=1)
    if "pyramid" in array:
        members["downsampling_method"] = acquire_zarr.DownsamplingMethod.MEAN
    sent = (some[number % len(some)] for number in range(count))
    theirs(Path(folder), array["dimensions"], array["dtype"], sent, **members)


PROGRAMS: Final[dict[str, Callable[[str, str, int], None]]] = {"stream": stream, "append": append, "acquire": acquire}


def main() -> None:
    program, target, case, count = sys.argv[1:]
    cpu_began, began = time.process_time(), time.perf_counter()
    PROGRAMS[program](target, case, int(count))
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    print(json.dumps({"wall": wall / int(count), "cpu": cpu / int(count)}), flush=True)


if __name__ == "__main__":
    main()

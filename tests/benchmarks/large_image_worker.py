"""``python -m tests.benchmarks.large_image_worker FOLDER SIZE grey|channels SECONDS``: PNG tiles of large_image.

Runs in an environment that has large_image and its Zarr source; prints a rate per second and the mean bytes as JSON.
"""

from __future__ import annotations

import importlib
import itertools
import json
import sys
import time


def main() -> None:
    folder, size, what, seconds = sys.argv[1:]
    channel, sys.stdout = sys.stdout, sys.stderr
    library = importlib.import_module("large_image")
    library.config.setConfig("cache_backend", "python")
    library.config.setConfig("cache_tilesource_memory_portion", 2)
    style = {"band": 1, "min": 0, "max": 4000} if what == "grey" else None
    source = library.open(folder, encoding="PNG", style=style, tileWidth=int(size), tileHeight=int(size))
    turn = itertools.cycle(range(source.sizeX // source.tileWidth))
    source.getTile(next(turn), 3, source.levels - 1)
    sizes, began = [], time.perf_counter()
    while time.perf_counter() - began < float(seconds):
        sizes.append(len(source.getTile(next(turn), 3, source.levels - 1)))
    found = {"rate": len(sizes) / (time.perf_counter() - began), "nbytes": sum(sizes) / len(sizes)}
    print(json.dumps(found), file=channel, flush=True)


if __name__ == "__main__":
    main()

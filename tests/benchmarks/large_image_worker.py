"""``python -m tests.benchmarks.large_image_worker ZATTRS SIZE grey|channels SECONDS``: PNG tiles of large_image.

Of the group whose ``.zattrs`` is named, each tile once, for it keeps what it has drawn. Runs in an environment that has
large_image and its Zarr source; prints a rate per second and the mean bytes as JSON.
"""

from __future__ import annotations

import importlib
import itertools
import json
import sys
import time


def main() -> None:
    document, size, what, seconds = sys.argv[1:]
    channel, sys.stdout = sys.stdout, sys.stderr
    library = importlib.import_module("large_image")
    palettes = ["#FFF"] if what == "grey" else ["#F00", "#0F0", "#00F"]
    bands = [{"band": i, "min": 0, "max": 4000, "palette": ["#000", full]} for i, full in enumerate(palettes, 1)]
    source = library.open(
        document, encoding="PNG", style={"bands": bands}, tileWidth=int(size), tileHeight=int(size), noCache=True
    )
    places = itertools.product(range(source.sizeX // source.tileWidth), range(source.sizeY // source.tileHeight))
    source.getTile(*next(places), source.levels - 1)
    sizes, began = [], time.perf_counter()
    for x, y in places:
        sizes.append(len(source.getTile(x, y, source.levels - 1)))
        if time.perf_counter() - began > float(seconds):
            break
    found = {"rate": len(sizes) / (time.perf_counter() - began), "nbytes": sum(sizes) / len(sizes)}
    print(json.dumps(found), file=channel, flush=True)


if __name__ == "__main__":
    main()

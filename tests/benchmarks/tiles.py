"""``python -m tests.benchmarks.tiles``: tiles a second and bytes a tile, cold and warm, with ours and other encoders.

Prints Markdown tables. ``--tiled URL`` and ``--large-image`` measure other programs on the same data, which is kept in
``--folder``. Nothing here is asserted; a busy machine shows.
"""

from __future__ import annotations

import argparse
import importlib
import io
import itertools
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

from hyperslab.arrays.cost import ReadCost
from hyperslab.tiles.asked import parse_asked
from hyperslab.tiles.colour import named_lut
from hyperslab.tiles.encode import encode_picture
from hyperslab.tiles.raster import Indexed, Planes, Raster, to_planes
from hyperslab.tiles.service import Tiles
from tests.arrays.support import service_on
from tests.server import running_server
from tests.tiles.support import Array, Query, write_image

SIDE: Final = 4096
WINDOW: Final = ("rescale", "0,4000")
SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Case:
    """What is asked of the service, and the same picture as Pillow would be given it."""

    name: str
    query: Query


CASES: Final = (
    Case("grey", [WINDOW, ("c", "0"), ("colormap_name", "gray")]),
    Case("viridis", [WINDOW, ("c", "0"), ("colormap_name", "viridis")]),
    Case(
        "3 channels", [WINDOW, *(("c", str(i)) for i in range(3)), ("color", "F00"), ("color", "0F0"), ("color", "00F")]
    ),
)


def stack(side: int = SIDE) -> Array:
    """Three channels that look like a microscope's: smooth shapes, and noise as photons make it."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:side, :side] / side
    shapes = [np.sin((9 + i) * x * np.pi) * np.cos((7 - i) * y * np.pi) + 1 for i in range(3)]
    return np.stack([rng.poisson(200 + 1500 * shape) for shape in shapes]).astype("<u2")


def pyramid(base: Array) -> list[Array]:
    """Levels of half the size until one tile holds all."""
    levels = [base]
    while levels[-1].shape[-1] > 256:
        last = levels[-1].astype(np.uint32)
        quarters = last[:, ::2, ::2] + last[:, 1::2, ::2] + last[:, ::2, 1::2] + last[:, 1::2, 1::2]
        levels.append((quarters // 4).astype(base.dtype))
    return levels


def rate(work: Callable[[], int]) -> tuple[float, float]:
    """Calls a second and mean bytes of ``work``, which returns how many bytes it made."""
    work()
    sizes, start = [], time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        sizes.append(work())
    return len(sizes) / (time.perf_counter() - start), float(np.mean(sizes))


def places(size: int) -> Iterator[tuple[int, int, int]]:
    """All tiles of full resolution, again and again."""
    across = SIDE // size
    z = across.bit_length() - 1
    return itertools.cycle([(z, x, y) for y in range(across) for x in range(across)])


def drawn(folder: Path, case: Case, size: int, *, chunks: int, tiles: int) -> tuple[float, float]:
    """A service with so many bytes for chunks and for tiles."""
    with service_on(folder, cache_bytes=chunks) as service:
        server = Tiles(service.catalog, service.reader, cache_bytes=tiles)
        asked = parse_asked([*case.query, ("tile_size", str(size))])
        turn = places(size)

        def work() -> int:
            return len(server.tile("data/a", asked, next(turn), "png").draw(None, ReadCost()).body)

        for _ in range((SIDE // size) ** 2 if tiles or chunks else 0):
            work()
        return rate(work)


def raster_of(base: Array, case: Case, size: int) -> Raster:
    """The picture of the first tile, in memory."""
    steps = np.clip(base[:, :size, :size].astype(np.float32) * (255 / 4000), 0, 255).astype(np.uint8)
    if case.name == "3 channels":
        return Planes(steps)
    return Indexed(steps[0], named_lut("gray" if case.name == "grey" else "viridis"))


def with_pillow(raster: Raster) -> bytes:
    """What a server does that leaves PNG to Pillow."""
    if isinstance(raster, Indexed) and (raster.palette[:, 0] == raster.palette[:, 1]).all():
        image = Image.fromarray(raster.index)
    else:
        image = Image.fromarray(np.ascontiguousarray(to_planes(raster).rgb.transpose(1, 2, 0)))
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=1)
    return out.getvalue()


def report(folder: Path, base: Array) -> Iterator[tuple[str, ...]]:
    """Rows of the table."""
    for case, size in itertools.product(CASES, (256, 512)):
        raster = raster_of(base, case, size)
        ours, nbytes = rate(lambda raster=raster: len(encode_picture(raster, "png", quality=80)))  # type: ignore[misc]
        pillow, pillow_bytes = rate(lambda raster=raster: len(with_pillow(raster)))  # type: ignore[misc]
        cold, _ = drawn(folder, case, size, chunks=0, tiles=0)
        warm, _ = drawn(folder, case, size, chunks=1 << 30, tiles=0)
        kept, _ = drawn(folder, case, size, chunks=0, tiles=1 << 30)
        rates = (f"{value:,.0f}" for value in (cold, warm, kept, ours, pillow))
        yield (f"{case.name} {size}²", *rates, f"{nbytes / 1000:.0f} kB", f"{pillow_bytes / 1000:.0f} kB")


# --- other programs --------------------------------------------------------------------------------------------


def over_http(name: str, address: Callable[[int, int], str]) -> Iterator[tuple[str, ...]]:
    """PNG answers of a server, one after the other; ``address`` is given the side of a square and which one it is."""
    for size in (256, 512):
        turn = itertools.cycle(range(SIDE // size))

        def work(size: int = size, turn: Any = turn) -> int:
            with urllib.request.urlopen(address(size, next(turn))) as answer:
                return len(answer.read())

        speed, nbytes = rate(work)
        yield f"{name}, grey {size}²", f"{speed:,.0f}", f"{nbytes / 1000:.0f} kB"


def served(folder: Path) -> Iterator[tuple[str, ...]]:
    """Our own answers over HTTP, each of them drawn anew from cached chunks."""
    with running_server({"data": folder}, tile_cache_bytes=0) as server:
        base = f"{server.url}/v1/tile/data/a"

        def address(size: int, x: int) -> str:
            z = (SIDE // size).bit_length() - 1
            return f"{base}/{z}/{x}/0.png?c=0&rescale=0,4000&colormap_name=gray&tile_size={size}"

        yield from over_http("Hyperslab", address)


def tiled(url: str) -> Iterator[tuple[str, ...]]:
    """Squares of the finest level. Tiled has no levels and no colours, and each answer has a window of its own."""
    yield from over_http(
        "Tiled", lambda size, x: f"{url}?format=image/png&slice=0,0,0,0:{size},{x * size}:{(x + 1) * size}"
    )


class Forgetful(dict[str, Any]):
    """A cache that keeps nothing."""

    def __setitem__(self, key: str, value: Any) -> None:
        pass


def large_image(folder: Path) -> Iterator[tuple[str, ...]]:
    """PNG tiles of large_image's Zarr source, in its process and without its cache of tiles."""
    library = importlib.import_module("large_image")
    window = {"min": 0, "max": 4000}
    palettes = (["#000", "#f00"], ["#000", "#0f0"], ["#000", "#00f"])
    channels = {"bands": [{"frame": i, "palette": palette, **window} for i, palette in enumerate(palettes)]}
    for name, style in (("grey", window), ("3 channels", channels)):
        source = library.open(str(folder / "a" / ".zattrs"), encoding="PNG", style=style, noCache=True)
        source.cache = Forgetful()
        turn = itertools.cycle((x, y) for y in range(SIDE // 256) for x in range(SIDE // 256))

        def work(source: Any = source, turn: Any = turn) -> int:
            return len(source.getTile(*next(turn), source.levels - 1))

        speed, nbytes = rate(work)
        yield f"large_image, {name} 256²", f"{speed:,.0f}", f"{nbytes / 1000:.0f} kB"


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> None:
    print("| " + " | ".join(head) + " |\n|---" + "|--:" * (len(head) - 1) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the data is kept between runs")
    parser.add_argument("--tiled", metavar="URL", help="the array's URL at a running Tiled: …/api/v1/array/full/…")
    parser.add_argument("--large-image", action="store_true", help="measure large_image, which must be installed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        base = stack()
        if not (folder / "a").exists():
            levels = [level[None, :, None] for level in pyramid(base)]
            window = {"min": 0, "max": 65535, "start": 0, "end": 4000}
            channels = [{"label": c, "color": c, "window": window} for c in ("FF0000", "00FF00", "0000FF")]
            write_image(folder / "a", levels, "tczyx", {"omero": {"channels": channels}}, chunks=(1, 1, 1, 256, 256))
        head = (
            "tiles a second",
            "cold",
            "chunks cached",
            "tiles cached",
            "encoder alone",
            "Pillow alone",
            "bytes",
            "Pillow's",
        )
        table(head, report(folder, base))
        others = tiled(options.tiled) if options.tiled else iter(())
        table(("over HTTP", "a second", "bytes"), itertools.chain(served(folder), others))
        if options.large_image:
            table(("other libraries", "a second", "bytes"), large_image(folder))


if __name__ == "__main__":
    main()

"""Tiles a second and bytes a tile, cold and warm, with our encoder and Pillow's, and of other programs."""

from __future__ import annotations

import io
import itertools
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image

from hyperslab.arrays.chunks import ReadCost
from hyperslab.cache import VersionedCache
from hyperslab.tiles.colour import named_lut
from hyperslab.tiles.encode import encode_picture
from hyperslab.tiles.render import PaletteImage, Planes, Raster, to_planes
from hyperslab.tiles.service import Tiles
from tests.arrays.support import service_on
from tests.benchmarks.processes import end, start
from tests.benchmarks.programs import quiet_server
from tests.benchmarks.report import NONE, amount, ratio, times
from tests.benchmarks.sockets import connected
from tests.benchmarks.suite import Bench, Measurement, Outcome, Suite, Table, Target
from tests.benchmarks.suites.reading import INSTALL, peer
from tests.tiles.support import Array, Query, parse_query, rendering, write_image

COLD: Final = "cold"
CHUNKS_CACHED: Final = "chunks cached"
TILES_CACHED: Final = "tiles cached"
OURS_ALONE: Final = "our encoder"
PILLOW_ALONE: Final = "Pillow's encoder"
HTTP: Final = "over HTTP"
TILED: Final = "Tiled over HTTP"
LARGE_IMAGE: Final = "large_image"
PROGRAMS: Final = (COLD, CHUNKS_CACHED, TILES_CACHED, OURS_ALONE, PILLOW_ALONE, HTTP, TILED, LARGE_IMAGE)

SIDE: Final = 4096
_SIZES: Final = (256, 512)
_WINDOW: Final = ("rescale", "0,4000")
_COLOURS: Final = [("color", "F00"), ("color", "0F0"), ("color", "00F")]

_CACHES: Final = {COLD: (0, 0), CHUNKS_CACHED: (1 << 30, 0), TILES_CACHED: (0, 1 << 30)}
"""Bytes for chunks and for tiles."""

_OMERO: Final = {"omero": {"channels": [{"label": name, "color": "FFFFFF", "active": True} for name in "rgb"]}}
"""large_image takes only groups for OME-Zarr that have this."""

Work = Callable[[], int]
"""Makes one tile and returns how many bytes it has."""


@dataclass(frozen=True, slots=True)
class Look:
    """What is asked of the service."""

    name: str
    query: Query


GREY: Final = Look("grey", [_WINDOW, ("c", "0"), ("colormap_name", "gray")])
VIRIDIS: Final = Look("viridis", [_WINDOW, ("c", "0"), ("colormap_name", "viridis")])
CHANNELS: Final = Look("3 channels", [_WINDOW, *(("c", str(i)) for i in range(3)), *_COLOURS])


@dataclass(frozen=True, slots=True)
class Picture:
    """An image of ``side``² pixels that lies in ``folder``."""

    folder: Path
    base: Array

    @property
    def side(self) -> int:
        return int(self.base.shape[-1])

    def level(self, size: int) -> int:
        """The level of full resolution in tiles of this size."""
        return (self.side // size).bit_length() - 1

    def places(self, size: int) -> Iterator[tuple[int, int, int]]:
        """All tiles of full resolution, again and again."""
        across, z = self.side // size, self.level(size)
        return itertools.cycle([(z, x, y) for y in range(across) for x in range(across)])


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


def measure(bench: Bench, side: int = SIDE) -> Iterator[Measurement]:
    folder = bench.folder / "pictures"
    base = stack(side)
    if not (folder / "a").exists():
        write_image(folder / "unfinished", pyramid(base), "cyx", _OMERO, chunks=(1, 256, 256))
        (folder / "unfinished").rename(folder / "a")
    picture, seconds = Picture(folder, base), 0.3 if bench.quick else 2.0
    for look, size in itertools.product((GREY, VIRIDIS, CHANNELS), _SIZES):
        bench.say(f"  {look.name} {size}²")
        raster = raster_of(base, look, size)
        yield _measured(look, size, OURS_ALONE, partial(with_ours, raster), seconds)
        yield _measured(look, size, PILLOW_ALONE, partial(with_pillow, raster), seconds)
        for program, (chunks, tiles) in _CACHES.items():
            with ExitStack() as ending:
                work = _drawing(picture, look, size, ending, chunks=chunks, tiles=tiles)
                yield _measured(look, size, program, work, seconds)
    yield from _over_http(bench, picture, seconds)
    yield from _large_image(bench, picture, seconds)


def _measured(look: Look, size: int, program: str, work: Work, seconds: float) -> Measurement:
    speed, nbytes = rate(work, seconds)
    return Measurement(f"{look.name} {size}²", program, {"rate": speed, "nbytes": nbytes})


def rate(work: Work, seconds: float) -> tuple[float, float]:
    """Calls a second, and mean bytes."""
    work()
    sizes: list[int] = []
    began = time.perf_counter()
    while time.perf_counter() - began < seconds or not sizes:
        sizes.append(work())
    return len(sizes) / (time.perf_counter() - began), float(np.mean(sizes))


def _drawing(picture: Picture, look: Look, size: int, ending: ExitStack, *, chunks: int, tiles: int) -> Work:
    """Tiles from a service with so many bytes for chunks and for tiles, all of them asked for once before."""
    service = ending.enter_context(service_on(picture.folder, cache_bytes=chunks))
    server = Tiles(service.catalog, service.reader, VersionedCache(tiles))
    asked = parse_query([*look.query, ("tile_size", str(size))])
    turn = picture.places(size)

    def work() -> int:
        return len(rendering(server, "data/a", asked, next(turn), "png").draw(None, ReadCost()).body)

    for _ in range((picture.side // size) ** 2 if tiles or chunks else 0):
        work()
    return work


def raster_of(base: Array, look: Look, size: int) -> Raster:
    """The picture of the first tile, in memory."""
    steps = np.clip(base[:, :size, :size].astype(np.float32) * (255 / 4000), 0, 255).astype(np.uint8)
    if look is CHANNELS:
        return Planes(steps)
    return PaletteImage(steps[0], named_lut("gray" if look is GREY else "viridis"))


def with_ours(raster: Raster) -> int:
    """Bytes of the PNG that our encoder makes."""
    return len(encode_picture(raster, "png", quality=80))


def with_pillow(raster: Raster) -> int:
    """The same for a server that leaves PNG to Pillow."""
    if isinstance(raster, PaletteImage) and (raster.palette[:, 0] == raster.palette[:, 1]).all():
        image = Image.fromarray(raster.index)
    else:
        image = Image.fromarray(np.ascontiguousarray(to_planes(raster).rgb.transpose(1, 2, 0)))
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=1)
    return out.tell()


# --- other programs --------------------------------------------------------------------------------------------


def _over_http(bench: Bench, picture: Picture, seconds: float) -> Iterator[Measurement]:
    """PNG answers, one after the other; ours are drawn anew each time from cached chunks.

    Tiled has no levels and no windows: it is asked for squares of the finest level.
    """

    def ours(size: int, x: int) -> str:
        query = f"c=0&rescale=0,4000&colormap_name=gray&tile_size={size}"
        return f"/v1/tile/data/a/{picture.level(size)}/{x}/0.png?{query}"

    def tiled(size: int, x: int) -> str:
        return f"/api/v1/array/full/0?format=image/png&slice=0,0:{size},{x * size}:{(x + 1) * size}"

    with quiet_server({"data": picture.folder}, tile_cache_bytes=0, answer_cache_bytes=0) as server:
        yield from _asked(HTTP, server.url, ours, picture, seconds)
    if bench.peers_python is None:
        bench.note(f"Tiled and large_image are left out: PEERS_PYTHON names no Python that has them ({INSTALL})")
        return
    try:
        with peer("tiled", picture.folder / "a", bench.peers_python) as (url, _):
            yield from _asked(TILED, url, tiled, picture, seconds)
    except (subprocess.SubprocessError, ConnectionError) as error:
        bench.note(f"{TILED}: {error}")


def _asked(
    program: str, url: str, path: Callable[[int, int], str], picture: Picture, seconds: float
) -> Iterator[Measurement]:
    for size in _SIZES:
        turn = itertools.cycle(range(picture.side // size))
        with connected(url) as connection:

            def work(
                size: int = size, turn: Iterator[int] = turn, get: Callable[[str], bytes] = connection.body
            ) -> int:
                body = get(path(size, next(turn)))
                if not body.startswith(b"\x89PNG"):
                    raise ConnectionError(f"no picture but {body[:80]!r}")
                return len(body)

            yield _measured(GREY, size, program, work, seconds)


def _large_image(bench: Bench, picture: Picture, seconds: float) -> Iterator[Measurement]:
    """PNG tiles of large_image's Zarr source, in its process."""
    if bench.peers_python is None:
        return
    for look, what in ((GREY, "grey"), (CHANNELS, "channels")):
        arguments = [str(picture.folder / "a" / ".zattrs"), "256", what, str(seconds)]
        process = start(bench.peers_python, ["-W", "ignore", "-m", "tests.benchmarks.large_image_worker", *arguments])
        try:
            out, _ = process.communicate(timeout=60 + seconds)
        finally:
            end(process)
        if not out:
            bench.note(f"large_image is left out ({INSTALL})")
            return
        yield Measurement(f"{look.name} 256²", LARGE_IMAGE, json.loads(out))


def tables(outcome: Outcome) -> list[Table]:
    there = [name for name in PROGRAMS if name in outcome.programs()]
    rows = []
    for case in outcome.cases():
        speeds = [outcome.value(case, name, "rate") for name in there]
        sizes = [outcome.value(case, name, "nbytes") for name in (OURS_ALONE, PILLOW_ALONE)]
        cells = [NONE if speed is None else f"{speed:,.0f}" for speed in speeds]
        rows.append([case, *cells, *(amount(size) for size in sizes)])
    return [Table("Tiles a second", ["", *there, "bytes", "Pillow's bytes"], rows)]


def targets(outcome: Outcome) -> Sequence[Target]:
    speedups = [
        ratio(outcome.value(c, OURS_ALONE, "rate"), outcome.value(c, PILLOW_ALONE, "rate")) for c in outcome.cases()
    ]
    least = min((speedup for speedup in speedups if speedup is not None), default=0.0)
    return [Target("PNG is encoded faster than by Pillow", f"at least {times(least)}", least > 1)]


SUITE: Final = Suite("tiles", "Tiles", measure, tables, targets)

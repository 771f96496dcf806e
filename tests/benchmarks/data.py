"""The arrays that are read: made once, the same on every machine, with content that compresses as measurements do.

Needs zarr-python 3. Each array is a folder below the work folder, of Zarr v2 or, where it has shards, of v3.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, Final

import numcodecs
import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import BloscCodec, ZstdCodec

NDArray = npt.NDArray[Any]
Content = Callable[[tuple[int, ...], int], NDArray]
"""Given the shape of a block of leading rows and the index of the first: its values, before the cast to the dtype."""

BLOSC: Final = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}
ZSTD: Final = {"id": "zstd", "level": 1}


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """An array to be made; ``codec`` is its compressor as ``.zarray`` spells it. With ``shards`` it is of Zarr v3."""

    name: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: str
    codec: Mapping[str, Any] | None
    content: Content
    shards: tuple[int, ...] | None = None

    @property
    def itemsize(self) -> int:
        return np.dtype(self.dtype).itemsize

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.itemsize

    @property
    def chunk_nbytes(self) -> int:
        return prod(self.chunks) * self.itemsize

    def block(self, start: int) -> NDArray:
        """The rows of one row of chunks or shards, from row ``start`` on."""
        rows = min(self._rows, self.shape[0] - start)
        return self.content((rows, *self.shape[1:]), start).astype(self.dtype)

    def blocks(self) -> Iterator[tuple[int, NDArray]]:
        """First row and values of each row of chunks, or of shards."""
        return ((start, self.block(start)) for start in range(0, self.shape[0], self._rows))

    @property
    def _rows(self) -> int:
        return (self.shards or self.chunks)[0]


def micrographs(shape: tuple[int, ...], start: int) -> NDArray:
    """A stack as a microscope makes it: soft structures over a background, and a camera's noise."""
    rng = np.random.default_rng([1, start])
    z, y, x = (np.arange(n, dtype=np.float32) for n in shape)
    structure = np.sin(x / 50 + (z + start)[:, None, None]) + np.cos(y / 70)[:, None]
    noise = rng.integers(0, 60, shape, dtype=np.uint16)
    return (1500 + 500 * structure).astype(np.uint16) + noise


def climate(shape: tuple[int, ...], start: int) -> NDArray:
    """Temperatures four times a day, to a hundredth of a degree: seasons, latitudes, weather."""
    rng = np.random.default_rng([2, start])
    t, y, x = (np.arange(n, dtype=np.float32) for n in shape)
    season = 10 * np.sin((t + start) / 1460 * 2 * np.pi)[:, None, None]
    zonal = 30 * np.cos((y - shape[1] / 2) / shape[1] * np.pi)[:, None] + 2 * np.sin(x / 30)
    weather = rng.standard_normal(shape, dtype=np.float32)
    return np.asarray(np.round(250 + season + zonal + weather, 2))


def slide(shape: tuple[int, ...], start: int) -> NDArray:
    """One channel of a scanned slide: tissue in patches on white glass, and little noise."""
    rng = np.random.default_rng([3, start])
    y, x = (np.arange(n, dtype=np.float32) for n in shape)
    tissue = 120 + 60 * np.sin(x / 300) * np.cos((y + start) / 400)[:, None]
    noise = rng.integers(0, 8, shape, dtype=np.uint8)
    return np.where(tissue < 130, tissue.astype(np.uint8) + noise, np.uint8(243))


def field(shape: tuple[int, ...], start: int) -> NDArray:
    """A simulation's field, which nothing compresses."""
    return np.random.default_rng([4, start]).standard_normal(shape, dtype=np.float32)


def counts(shape: tuple[int, ...], start: int) -> NDArray:
    """A detector's counts."""
    return np.random.default_rng([5, start]).poisson(300, shape)


STACK: Final = ArraySpec("stack", (64, 2048, 2048), (16, 256, 256), "<u2", BLOSC, micrographs)
CLIMATE: Final = ArraySpec("climate", (1460, 180, 360), (73, 90, 180), "<f4", ZSTD, climate)
SLIDE: Final = ArraySpec("slide", (8192, 8192), (256, 256), "|u1", BLOSC, slide)
FIELD: Final = ArraySpec("field", (4096, 4096), (512, 512), "<f4", None, field)
SMALL: Final = ArraySpec("small", (512, 512), (128, 128), "<u2", None, counts)
ALL: Final = (STACK, CLIMATE, SLIDE, FIELD, SMALL)

_CUBES: Final = ArraySpec("shards-lz4", (256, 512, 512), (32, 64, 64), "<u2", BLOSC, micrographs, (128, 256, 256))
SHARDED: Final = (
    _CUBES,
    replace(_CUBES, name="shards-zstd", codec=ZSTD),
    replace(_CUBES, name="shards-raw", codec=None),
    replace(_CUBES, name="shards-lz4-8k", shape=(128, 512, 512), chunks=(16, 16, 16)),
)


def make(folder: Path, spec: ArraySpec) -> Path:
    """The array's folder; written where it is not there yet, and never seen half-written."""
    target = folder / spec.name
    if target.exists():
        return target
    unfinished = folder / f"{spec.name}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    codec: Any = None if spec.codec is None else numcodecs.get_codec(dict(spec.codec))
    if spec.shards is not None and spec.codec is not None:
        codec = BloscCodec(cname="lz4", clevel=5, shuffle="shuffle") if spec.codec is BLOSC else ZstdCodec(level=1)
    array = zarr.create_array(
        str(unfinished),
        shape=spec.shape,
        chunks=spec.chunks,
        shards=spec.shards,
        dtype=spec.dtype,
        compressors=codec,
        fill_value=0,
        zarr_format=2 if spec.shards is None else 3,
    )
    for start, block in spec.blocks():
        array[start : start + len(block)] = block
    unfinished.rename(target)
    return target


def make_all(folder: Path, specs: Sequence[ArraySpec] = ALL) -> None:
    """All arrays, in a folder that is a Zarr group."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".zgroup").write_text('{"zarr_format": 2}')
    for spec in specs:
        make(folder, spec)


def warm(folder: Path) -> None:
    """Read every file once, so that the page cache holds it."""
    for path in folder.rglob("*"):
        if path.is_file():
            path.read_bytes()


# --- arrays of which few chunks are different, or there -------------------------------------------------------------

HUGE: Final = "huge"
PLANES: Final = 10_240
SIDE: Final = 1024
PLANE_BYTES: Final = SIDE * SIDE * 2
_DIFFERENT: Final = 8
_CHUNK: Final = 256
_FIRST: Final = 4  # the first chunk that is there, along both axes
_THERE: Final = 4


def write_zarray(folder: Path, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: str) -> None:
    """The metadata of an array of Blosc chunks."""
    document = {"zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": np.dtype(dtype).str, "order": "C"}
    document |= {"compressor": dict(BLOSC), "filters": None, "fill_value": 0}
    (folder / ".zarray").write_text(json.dumps(document), encoding="ascii")


def make_huge(folder: Path) -> None:
    """uint16 (10240, 1024, 1024) in chunks of one plane of 2 MiB, all of them names of a handful of files."""
    target = folder / HUGE
    if target.exists():
        return
    unfinished = folder / f"{HUGE}.unfinished"
    unfinished.mkdir(parents=True, exist_ok=True)
    codec = numcodecs.get_codec(dict(BLOSC))
    files = []
    for i in range(_DIFFERENT):
        plane = micrographs((1, SIDE, SIDE), i).astype(STACK.dtype)
        files.append(unfinished / f"{i}.0.0")
        files[-1].write_bytes(bytes(codec.encode(plane)))
    for i in range(_DIFFERENT, PLANES):
        os.link(files[i % _DIFFERENT], unfinished / f"{i}.0.0")
    write_zarray(unfinished, (PLANES, SIDE, SIDE), (1, SIDE, SIDE), STACK.dtype)
    unfinished.rename(target)


def make_sparse(folder: Path, side: int) -> str:
    """uint8 in chunks of 256², of which sixteen are there; returns the array's name."""
    name = f"grid{side}"
    target = folder / name
    if target.exists():
        return name
    target.mkdir(parents=True)
    codec = numcodecs.get_codec(dict(BLOSC))
    for i in range(_FIRST, _FIRST + _THERE):
        block = slide((_CHUNK, _THERE * _CHUNK), i * _CHUNK).astype("u1")
        for j in range(_THERE):
            chunk = block[:, j * _CHUNK : (j + 1) * _CHUNK].copy()
            (target / f"{i}.{j + _FIRST}").write_bytes(bytes(codec.encode(chunk)))
    write_zarray(target, (side * _CHUNK,) * 2, (_CHUNK,) * 2, "|u1")
    return name

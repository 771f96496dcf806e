"""Pictures in folders, tiles of them, and a rendering of the same without levels, strips and chunks."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from PIL import Image

from hyperslab.arrays.chunks import ReadCost
from hyperslab.cache import VersionedCache
from hyperslab.tiles.query import REPEATABLE, TileQuery
from hyperslab.tiles.resample import work_dtype
from hyperslab.tiles.service import EncodedPicture, Rendering, TilePlace, Tiles
from tests.arrays.support import service_on
from tests.documents import zarray

Array = npt.NDArray[Any]
Query = Sequence[tuple[str, str]]


def parse_query(pairs: Iterable[tuple[str, str]]) -> TileQuery:
    """The query of a URL. Raises `pydantic.ValidationError`."""
    values: dict[str, Any] = {}
    for name, text in pairs:
        is_list = name in REPEATABLE or name not in TileQuery.model_fields
        values[name] = [*values.get(name, ()), text] if is_list else text
    return TileQuery.model_validate(values)


@contextmanager
def tiles_on(folder: Path, *, cache_bytes: int = 64 << 20, **options: Any) -> Iterator[Tiles]:
    """Tiles of what lies in ``folder``, mounted as ``data``."""
    with service_on(folder) as service:
        yield Tiles(service.catalog, service.reader, VersionedCache(cache_bytes), **options)


def write_attributes(folder: Path, attributes: Mapping[str, Any], *, document: str | None = ".zgroup") -> None:
    """The ``.zattrs`` of a group; NaN and its like are written as Python does."""
    folder.mkdir(parents=True, exist_ok=True)
    if document is not None:
        (folder / document).write_text('{"zarr_format": 2}')
    (folder / ".zattrs").write_text(json.dumps(attributes))


def write_array(folder: Path, values: Array, chunks: Sequence[int] | None = None, **options: Any) -> None:
    """A Zarr v2 array, written by zarr-python."""
    shape = tuple(chunks) if chunks is not None else tuple(max(1, min(32, n)) for n in values.shape)
    array = zarr.create_array(
        str(folder), shape=values.shape, chunks=shape, dtype=values.dtype, zarr_format=2, overwrite=True, **options
    )
    array[...] = values


def write_plain(folder: Path, values: Array, dtype: Any) -> None:
    """An array of one chunk, for dtypes that zarr-python does not write."""
    folder.mkdir()
    shape = list(values.shape)
    (folder / ".zarray").write_text(json.dumps(zarray(shape, shape, dtype, fill_value=None)))
    (folder / ".".join("0" for _ in shape)).write_bytes(values.tobytes())


def axes_json(names: str) -> list[dict[str, str]]:
    """OME axes of one letter each."""
    kinds = {"t": "time", "c": "channel"}
    return [{"name": name, "type": kinds.get(name, "space")} for name in names]


def factor_of(full: int, size: int) -> float:
    """An integer if it explains the sizes, as writers round them down or up."""
    whole = round(full / size) if size else 0
    return whole if not whole or abs(full / whole - size) < 1 else full / size


def write_image(
    folder: Path, levels: Sequence[Array], names: str, extra: Mapping[str, Any] | None = None, **options: Any
) -> None:
    """An OME-Zarr 0.4 image; scales follow from the shapes."""
    datasets = []
    for i, level in enumerate(levels):
        scale = [factor_of(a, b) or 1 for a, b in zip(levels[0].shape, level.shape, strict=False)]
        datasets.append({"path": str(i), "coordinateTransformations": [{"type": "scale", "scale": scale}]})
    multiscale = {"version": "0.4", "name": "picture", "axes": axes_json(names), "datasets": datasets}
    write_attributes(folder, {"multiscales": [multiscale], **(extra or {})})
    for i, level in enumerate(levels):
        write_array(folder / str(i), level, **options)


def rendering(tiles: Tiles, path: str, query: TileQuery, place: tuple[int, int, int], fmt: str) -> Rendering:
    tile = TilePlace(path, *place, query.tile_size, tms=query.scheme == "tms")
    return tiles.picture(tiles.images.open(path, query.field), query, fmt, tile)


def draw(rendering: Rendering) -> EncodedPicture:
    return rendering.draw(None, ReadCost())


def tile(tiles: Tiles, path: str, place: tuple[int, int, int], query: Query = (), fmt: str = "png") -> bytes:
    return draw(rendering(tiles, path, parse_query(query), place, fmt)).body


def pixels(data: bytes) -> Array:
    """RGBA of an encoded picture: ``(height, width, 4)``."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGBA"))


def numbers(tiles: Tiles, path: str, place: tuple[int, int, int], query: Query = ()) -> Array:
    found: Array = np.load(io.BytesIO(tile(tiles, path, place, query, "npy")), allow_pickle=False)
    return found


def slow_tile(plane: Array, factor: int, place: tuple[int, int], size: int = 256) -> tuple[Array, Array]:
    """Means of the cells under each pixel of a tile, and which pixels have none: NaN and beyond the edge.

    ``plane`` is the stored level, ``factor`` its cells per pixel, ``place`` column and row of the tile.
    """
    (x, y), extent = place, factor * size
    part = plane[y * extent : (y + 1) * extent, x * extent : (x + 1) * extent].astype(np.float64)
    cells = np.full((extent, extent), np.nan)
    cells[: part.shape[0], : part.shape[1]] = part
    boxes = cells.reshape(size, factor, size, factor)
    counts = (~np.isnan(boxes)).sum(axis=(1, 3))
    return (np.nansum(boxes, axis=(1, 3)) / np.maximum(counts, 1)).astype(work_dtype(plane.dtype)), counts == 0


def slow_steps(values: Array, low: float, high: float) -> Array:
    """``floor((v - low) * (255 / (high - low)) + 0.5)`` within 0 and 255, in the dtype of the values."""
    number = values.dtype.type if values.dtype.kind == "f" else np.float64
    steps = (values - number(low)) * number(255 / (high - low))
    return np.floor(np.clip(steps, number(0), number(255)) + number(0.5)).astype(np.uint8)


def slow_grey(plane: Array, factor: int, place: tuple[int, int], window: tuple[float, float], size: int = 256) -> Array:
    """RGBA of a grey tile."""
    values, hidden = slow_tile(plane, factor, place, size)
    grey = slow_steps(values, *window)
    return np.stack([grey, grey, grey, np.where(hidden, 0, 255)], axis=-1).astype(np.uint8)


def same_picture(found: Array, expected: Array) -> None:
    """All pixels that are seen are equal, and the same ones are seen."""
    np.testing.assert_array_equal(found[..., 3], expected[..., 3])
    seen = expected[..., 3] > 0
    np.testing.assert_array_equal(found[seen], expected[seen])

"""What is read of each array: whole, planes, a cube, a series, a tile, a cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from tests.benchmarks.data import ArraySpec

Selection = tuple[int | slice, ...]

_AXES: Final = {2: ("row", "column"), 3: ("plane z", "plane y", "plane x")}
_CUBE: Final = (32, 256, 256)
_TILE: Final = 256
_SMALL_SHARE: Final = 8
_BIG_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """A selection of an array: integers and slices with bounds, one for each axis."""

    spec: ArraySpec
    name: str
    selection: Selection

    @property
    def title(self) -> str:
        return f"{self.spec.name}: {self.name}"

    @property
    def nbytes(self) -> int:
        """Size of the answer."""
        return int(prod(s.stop - s.start for s in self.selection if isinstance(s, slice))) * self.spec.itemsize

    @property
    def touched_nbytes(self) -> int:
        """Decoded size of the chunks that hold the answer."""
        pairs = zip(self.selection, self.spec.chunks, strict=True)
        return prod(_touched(item, size) for item, size in pairs) * self.spec.chunk_nbytes

    @property
    def is_small_part_of_big_chunks(self) -> bool:
        """Whether less than an eighth is asked for of chunks of a mebibyte or more."""
        return self.spec.chunk_nbytes >= _BIG_CHUNK and self.nbytes * _SMALL_SHARE < self.touched_nbytes

    @property
    def text(self) -> str:
        """The selection as ``select=`` spells it."""
        return ",".join(f"{s.start}:{s.stop}" if isinstance(s, slice) else str(s) for s in self.selection)


def cases_of(spec: ArraySpec) -> Iterator[Case]:
    """All cases of an array of two or three axes."""
    shape = spec.shape
    whole = tuple(slice(0, n) for n in shape)
    middle = tuple(n * 3 // 7 for n in shape)  # on no chunk's edge, and in no special place
    yield Case(spec, "whole", whole)
    for axis, name in enumerate(_AXES[len(shape)]):
        yield Case(spec, name, (*whole[:axis], middle[axis], *whole[axis + 1 :]))
    if len(shape) == 3:
        if all(n >= size for n, size in zip(shape, _CUBE, strict=True)):
            yield Case(spec, "cube", tuple(map(_box, middle, _CUBE, shape)))
        yield Case(spec, "series", (whole[0], *middle[1:]))
    tile = tuple(_box(at, min(_TILE, n // 2), n) for at, n in zip(middle[-2:], shape[-2:], strict=True))
    yield Case(spec, "tile", (*middle[:-2], *tile))
    yield Case(spec, "cell", middle)


def all_cases(specs: Sequence[ArraySpec]) -> list[Case]:
    return [case for spec in specs for case in cases_of(spec)]


def _box(at: int, size: int, limit: int) -> slice:
    start = min(at, limit - size)
    return slice(start, start + size)


def _touched(item: int | slice, chunk: int) -> int:
    return 1 if isinstance(item, int) else (item.stop - 1) // chunk - item.start // chunk + 1

"""Selections that go on into the subarray of a field, whose axes follow the array's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from hyperslab.engine.dtypes import Field
from hyperslab.engine.indexing import place, take
from hyperslab.engine.runs import Region
from hyperslab.engine.selection import IndexAxis, ListAxis, Selection, SliceAxis


def split_selection(selection: Selection, rank: int, field: Field | None) -> tuple[Selection, Field | None]:
    """What a selection takes of the array's ``rank`` axes, and the field with what it takes of its subarray."""
    outer, inner = Selection(selection.axes[:rank]), Selection(selection.axes[rank:])
    if field is None or inner.axes in ((), tuple(SliceAxis(0, 1, size) for size in field.shape)):
        return outer, field
    return outer, replace(field, shape=inner.shape, part=inner)


def values_of(field: Field, records: NDArray[Any]) -> NDArray[Any]:
    """The values of a field in records: a view of them, unless lists take of its subarray."""
    values: NDArray[Any] = records[field.name]
    return values if field.part is None else take(values, _regions(field.part, values.ndim))


def put_values(field: Field, records: NDArray[Any], values: NDArray[Any]) -> None:
    """Put what `values_of` gave, and was changed since, back where it is not a view."""
    if field.part is not None and any(isinstance(axis, ListAxis) for axis in field.part.axes):
        found = records[field.name]
        place(found, _regions(field.part, found.ndim), values)


def _regions(part: Selection, rank: int) -> list[Region]:
    return [*[slice(None)] * (rank - len(part.axes)), *map(_region, part.axes)]


def _region(axis: IndexAxis | SliceAxis | ListAxis) -> Region:
    if isinstance(axis, IndexAxis):
        return axis.index
    if isinstance(axis, ListAxis):
        return axis.indices
    stop = axis.start + axis.step * axis.count
    return slice(axis.start, None if stop < 0 else stop, axis.step)

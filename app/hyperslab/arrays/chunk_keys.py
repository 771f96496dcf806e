"""Keys of chunks, where they are not those that the document of an array states: writers have stored ``0/0`` without
saying so, and the reverse.

Readers look only when a chunk is absent, writers always: at some of the keys below the array, and at other keys of
absent chunks. What is found, or written first, is remembered for a minute; that no chunk is there, or that the store
failed, is not. Where keys of another form were found, each absent chunk is looked for again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Final

from hyperslab.arrays.nodes import V3, ArrayNode, KeyForm
from hyperslab.engine.grid import ChunkGrid, Coords
from hyperslab.engine.v3 import parse_key_encoding
from hyperslab.errors import ChunkCorrupt, StoreDenied

_SECONDS: Final = 60.0
_LISTED: Final = 64
"""Number of keys below an array that are listed."""
_TRIED: Final = 16
"""Number of absent chunks whose other keys are looked up, where more keys lie below the array."""


def located(array: ArrayNode, absent: Sequence[Coords] = ()) -> ArrayNode:
    """The array with the keys under which its chunks lie, of which those of the stored objects ``absent`` are not
    there; with a problem if they are not the stated ones.

    Keys of another form are taken only where none of the stated form are found; where both are, the stated ones. Raises
    `StoreError`, and `ChunkCorrupt` if an absent object of such a mixture lies under another key.
    """
    mount, document = array.mount, array.metadata.document
    separator = document.get("dimension_separator")
    if separator is None and array.zarr_format == 2 and mount.dimension_separator is not None:
        return array.with_keys(KeyForm("", mount.dimension_separator))
    stated = KeyForm("", separator or ".")
    if array.zarr_format == 3:
        stated = KeyForm(*parse_key_encoding(document["chunk_key_encoding"]))
    array = array.with_keys(stated)
    form = mount.key_forms.get(array.prefix, array.data_id, count_miss=False)
    if form is None or form.problem is not None or form.until < time.monotonic():
        form = _look(array, absent)
        if form is None:
            mount.key_forms.drop(array.prefix)
        else:
            mount.key_forms.put(array.prefix, array.data_id, form, 1)
    return array if form is None else array.with_keys(form)


def remember_keys(array: ArrayNode) -> None:
    """Remember that chunks are stored under the keys of an array of which there was none before."""
    grid, forms = array.metadata.stored_grid, array.mount.key_forms
    form = KeyForm(grid.prefix, grid.separator, None, time.monotonic() + _SECONDS)
    forms.put(array.prefix, array.data_id, forms.get(array.prefix, array.data_id, count_miss=False) or form, 1)


def is_settled(array: ArrayNode) -> bool:
    """Whether any chunk of the array was found, so that absent ones are known to be absent."""
    return array.mount.key_forms.holds(array.prefix, array.data_id)


def elsewhere(array: ArrayNode, absent: Sequence[Coords]) -> ArrayNode | None:
    """The array with other keys if its chunks are `located` there, else None."""
    moved = located(array, absent)
    alike = moved.metadata.stored_grid.key(first := (0,) * array.metadata.rank) == array.metadata.stored_grid.key(first)
    return None if alike else moved


def parse_any(array: ArrayNode, name: str) -> Coords | None:
    """The coords of a stored object by a key of any form, relative to the array."""
    grids = _forms(array)
    return next((coords for grid in grids if (coords := grid.parse_key(name)) is not None), None)


def _forms(array: ArrayNode) -> list[ChunkGrid]:
    """Grids of stored objects with all forms of keys of the array's Zarr format."""
    grid, prefixes = array.metadata.stored_grid, ("",) if array.zarr_format == 2 else ("c", "")
    return [replace(grid, prefix=prefix, separator=separator) for prefix in prefixes for separator in (".", "/")]


def _look(array: ArrayNode, absent: Sequence[Coords]) -> KeyForm | None:
    """The form of the keys that exist; None if there is no chunk at all."""
    stated, v3 = array.metadata.stored_grid, array.zarr_format == 3
    first = (0,) * len(stated.shape)
    others = [*{grid.key(first): grid for grid in _forms(array) if grid.key(first) != stated.key(first)}.values()]
    store, prefix, names = array.mount.store, array.prefix, list[str]()
    form = KeyForm(stated.prefix, stated.separator, None, time.monotonic() + _SECONDS)
    if not others:  # as those of one axis are alike in Zarr v2
        return form
    is_whole = False
    with suppress(StoreDenied):
        if store.capabilities.listable:
            names = [entry.key[len(prefix) :] for entry in islice(store.list_prefix(prefix, []), _LISTED)]
            is_whole = len(names) < _LISTED
    if not is_whole:
        names += _present(array, others if absent else [stated, *others], absent[:_TRIED] or [first])
    present = {
        grid: [coords for coords in map(grid.parse_key, names) if coords is not None] for grid in (stated, *others)
    }
    other = next((grid for grid in others if present[grid]), None)
    if other is None:
        return form if present[stated] or not is_whole else None
    where = f"{prefix}{V3 if v3 else array.mount.metadata_key}"
    says, lie = f"{stated.key(first)!r}", f"chunks lie under keys like {other.key(first)!r}"
    if not present[stated] and not _present(array, [stated], [*present[other], *absent]):
        problem = f"{where}: it states keys like {says}, but {lie}, which are read"
        return KeyForm(other.prefix, other.separator, problem)
    for name in _present(array, others, absent):
        raise ChunkCorrupt(prefix + name, None, f"the array has chunks under keys like {says}, but not this one")
    return form._replace(problem=f"{where}: {lie} too; only those like {says} are read")


def _present(array: ArrayNode, grids: Sequence[ChunkGrid], coords: Sequence[Coords]) -> list[str]:
    """Keys of those objects that exist, relative to the array."""
    store, names = array.mount.store, [grid.key(coord) for grid in grids for coord in coords]

    def is_there(name: str) -> bool:
        try:
            return store.stat(array.prefix + name) is not None
        except StoreDenied:
            if store.hides_absence:
                return False
            raise

    return [name for name, exists in zip(names, array.mount.each(is_there, names), strict=True) if exists]

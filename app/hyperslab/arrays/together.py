"""The versions that several plans need, looked up for all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hyperslab.arrays.cost import Cancel
from hyperslab.arrays.nodes import ArrayNode, MountedStore
from hyperslab.arrays.plan import ReadPlan
from hyperslab.arrays.versions import Versions
from hyperslab.engine.dtypes import Field
from hyperslab.engine.indexing import Selection, touched_coords

_BATCH = 8_192


class Part(NamedTuple):
    """One of several selections that are planned together."""

    array: ArrayNode
    selection: Selection
    field: Field | None


class Together:
    """Versions for plans that were made to ask here: what `look_up` has found they take from it, once; what they ask
    for besides, or later, is asked of the ``inner`` versions."""

    def __init__(self, inner: Versions) -> None:
        self._inner = inner
        self._found: dict[tuple[str, str], str | None] = {}

    def versions(self, mount: MountedStore, prefix: str, keys: Sequence[str]) -> list[str | None]:
        """As `VersionBook.versions`."""
        names = [(mount.name, key) for key in keys]
        if all(name in self._found for name in names):
            return [self._found[name] for name in names]
        return self._inner.versions(mount, prefix, keys)

    def look_up(self, plans: Sequence[ReadPlan], cancel: Cancel | None) -> None:
        """Let all ``plans`` know their versions. Raises `Cancelled` and `StoreError`."""
        try:
            for mount, prefix, keys in _by_mount(plans):
                for start in range(0, len(keys), _BATCH):
                    if cancel is not None:
                        cancel.check()
                    batch = keys[start : start + _BATCH]
                    found = self._inner.versions(mount, prefix, batch)
                    self._found.update(((mount.name, key), v) for key, v in zip(batch, found, strict=True))
            for plan in plans:
                plan.lookup()
        finally:
            self._found = {}  # to a later look-up it would be old


def _by_mount(plans: Sequence[ReadPlan]) -> list[tuple[MountedStore, str, list[str]]]:
    """Stores, what all keys in them begin with, and the keys of chunks that plans touch, each once."""
    found: dict[str, tuple[MountedStore, set[str], dict[str, None]]] = {}
    for plan in plans:
        array = plan.array
        _, prefixes, keys = found.setdefault(array.mount.name, (array.mount, set(), {}))
        prefixes.add(array.prefix)
        keys.update((array.chunk_key(coords), None) for coords in touched_coords(plan.selection, array.metadata.grid))
    return [(mount, prefixes.pop() if len(prefixes) == 1 else "", [*keys]) for mount, prefixes, keys in found.values()]

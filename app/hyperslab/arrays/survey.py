"""What a store holds, counted for people: groups, arrays, and what cannot be served with the reason."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.nodes import ArrayNode, MountedStore
from hyperslab.errors import HyperslabError
from hyperslab.storage.keys import as_prefix

V3 = "Zarr v3 (zarr.json), which cannot be read yet"
_BROKEN = "broken metadata"
_CLOSED = "folders that cannot be read"


@dataclass(slots=True)
class Survey:
    """``skipped`` holds paths by the reason; ``whole`` is false where time ran out; ``example`` can be read."""

    groups: int = 0
    arrays: int = 0
    skipped: dict[str, list[str]] = field(default_factory=dict)
    whole: bool = True
    example: ArrayNode | None = None

    def lines(self) -> Iterator[str]:
        """A sentence for what is there, and one for each reason to skip something."""
        least = "" if self.whole else "at least "
        if self.arrays or self.groups or not self.whole:
            yield f"{least}{_count(self.arrays, 'array')} in {_count(self.groups, 'group')}"
        else:
            yield "no arrays: there is no .zarray, .zgroup or .zmetadata in it"
        for reason, paths in self.skipped.items():
            shown = ", ".join(paths[:3]) + (", …" if len(paths) > 3 else "")
            yield f"skipped {least}{len(paths)}: {reason} ({shown})"


def survey(catalog: Catalog, mount: MountedStore, *, seconds: float) -> Survey:
    """Look at every folder that is not inside an array, for at most so many seconds."""
    found, end = Survey(), time.monotonic() + seconds
    for path in mount.assume_metadata:
        _open(catalog, mount, as_prefix(path), found)
    waiting = [""]
    while waiting:
        if time.monotonic() > end:
            found.whole = False
            break
        prefix = waiting.pop()
        try:
            waiting += [f"{prefix}{name}/" for name in reversed(_look(catalog, mount, prefix, found))]
        except HyperslabError:
            found.skipped.setdefault(_CLOSED, []).append(prefix.rstrip("/") or ".")
    return found


def _look(catalog: Catalog, mount: MountedStore, prefix: str, found: Survey) -> tuple[str, ...]:
    """Count what is at a prefix; the names of the folders to look into."""
    if prefix.rstrip("/") in mount.assume_metadata:  # counted already
        return ()
    documents = (mount.metadata_key, "zarr.json", ".zgroup")
    has_array, has_v3, has_group = mount.store.versions(prefix, [prefix + name for name in documents])
    if has_v3 is not None and has_array is None and has_group is None:
        found.skipped.setdefault(V3, []).append(prefix.rstrip("/") or ".")
        return ()
    if has_array is not None or has_group is not None:
        _open(catalog, mount, prefix, found)
    if has_array is not None or mount.store.is_link(prefix):
        return ()
    return mount.store.list_dir(prefix).prefixes


def _open(catalog: Catalog, mount: MountedStore, prefix: str, found: Survey) -> None:
    try:
        node = catalog.open_node(mount.path(prefix))
    except HyperslabError as error:
        found.skipped.setdefault(_BROKEN, []).append(str(error))
        return
    found.arrays += isinstance(node, ArrayNode)
    found.groups += not isinstance(node, ArrayNode)
    if found.example is None and isinstance(node, ArrayNode) and _shows_in_every_format(node):
        found.example = node


def _shows_in_every_format(node: ArrayNode) -> bool:
    dtype = node.metadata.dtype
    return not dtype.is_object and not dtype.fields and 0 not in node.metadata.shape


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

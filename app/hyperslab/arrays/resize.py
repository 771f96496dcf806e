"""Changing an array's shape so that no reader ever sees what is not its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hyperslab.arrays import consolidated
from hyperslab.arrays.access import check_not_assumed, check_writable
from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.clear import check_clearable, clear_edges, clear_outside, fill_doubt
from hyperslab.arrays.documents import put_document
from hyperslab.arrays.extent import LARGEST, extent, larger, with_extent
from hyperslab.arrays.lease import Turn, alone
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.patch import plan_attributes, put_attributes
from hyperslab.arrays.read import Reader
from hyperslab.arrays.write import node_lock
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.errors import BadDefinition, ConsolidatedBehind, Overloaded, WriteConflict
from hyperslab.storage.base import ABSENT, Absent, VersionConflict
from hyperslab.storage.keys import as_prefix

_MOST_TRIES = 32


class Resizer:
    """Grows and shrinks arrays: the shape is published first, then what it cut off is cleared.

    While cells beyond the shape may hold data, ``.zarray`` says so (see `extent.py`), in the same step as the shape.
    Whoever grows the array clears them first: what a killed process left cannot come back.
    """

    def __init__(self, catalog: Catalog, reader: Reader) -> None:
        self._catalog = catalog
        self._reader = reader

    def resize(
        self,
        path: str,
        shape: Sequence[int | None],
        *,
        expand_only: bool = False,
        shrink_only: bool = False,
        attributes: Mapping[str, Any] | None = None,
        check: Callable[[ArrayNode], None] | None = None,
    ) -> ArrayNode:
        """Give an array a new shape (None keeps an axis), perhaps with a merge patch of its attributes, and return it
        as it is then.

        Attributes come first: others may change them at the same time, and what a shape cuts off is gone. Raises, with
        nothing changed, `BadDefinition` for a wrong rank or size, an axis that changes in a direction that is not
        allowed, or attributes that are not possible; what ``check`` raises for the array as it is now; `WriteConflict`
        where others keep changing the metadata, or have changed the shape alone after the check. `TooLarge` as
        `publish` does.
        """
        mount, rest = self._catalog.locate(path)
        check_writable(mount)
        prefix = as_prefix(rest)
        # what an append has under way is not cut, nor published
        with node_lock(mount, prefix), alone(mount, prefix) as turn:
            for _ in range(_MOST_TRIES):
                array = self._catalog.open_array(path, fresh=True)
                if check is not None:
                    check(array)
                wanted = _wanted(array.metadata.shape, shape, expand_only=expand_only, shrink_only=shrink_only)
                if attributes is not None and not self._change_attributes(array, attributes, wanted):
                    continue
                if wanted == array.metadata.shape or self.publish(array, array.metadata.with_shape(wanted), turn):
                    follow_again(array)
                    return self._catalog.open_array(path, fresh=True)
                if attributes is not None and check is not None:  # the check would not know the array again
                    raise WriteConflict(path, "the attributes are changed; the shape is not, another writer came first")
                attributes = None
                turn.take_again()
        raise WriteConflict(path, f"other writers changed the metadata {_MOST_TRIES} times")

    def clear_beyond(self, array: ArrayNode, turn: Turn) -> None:
        """Clear what may lie beyond the shape, for those who are about to store a larger one, or one without a note of
        it; raises `WriteConflict` where the turn is lost on the way: then it may be the next holder's."""
        left = extent(array.metadata)
        if left is not None:
            clear_outside(self._reader, array, left, turn.check)

    def publish(self, array: ArrayNode, metadata: ArrayMetadata, turn: Turn) -> bool:
        """Store new metadata (the same but for the shape) and clear what it cuts off; False where it has changed
        meanwhile. The caller holds the node lock. Raises `TooLarge`, before anything is stored, where that cuts through
        chunks too large to be decoded."""
        before, now = array.metadata.shape, metadata.shape
        left = extent(array.metadata)
        check_clearable(self._reader, replace(array, metadata=metadata), larger(before, left))
        if any(n > b for n, b in zip(now, before, strict=True)):
            self.clear_beyond(array, turn)
            clear_edges(self._reader, array, now, turn.check)
            fill_doubt(self._reader, array, now, turn.check)
        if all(n >= b for n, b in zip(now, before, strict=True)):
            return publish_metadata(self._reader, array, with_extent(metadata, None)) is not None
        if publish_metadata(self._reader, array, with_extent(metadata, larger(before, left))) is None:
            return False
        with suppress(WriteConflict, Overloaded):  # the shrink is done, and noted: the next who grows clears the rest
            turn.take_again()
            self._clear(array.path, turn)
        return True

    def _change_attributes(self, array: ArrayNode, patch: Mapping[str, Any], wanted: tuple[int, ...]) -> bool:
        """Merge a patch where the shape could be stored, too; False where others have changed the attributes since.

        What ``.zmetadata`` does not say then, it says when the shape is stored: else that would not be done.
        """
        if wanted != array.metadata.shape:
            stored_version(array)
        plan = plan_attributes(array.mount, array.prefix, array, patch)
        try:
            return put_attributes(array.mount, array.prefix, plan, self._catalog.versions)
        except ConsolidatedBehind:
            return True

    def _clear(self, path: str, turn: Turn) -> None:
        """Clear what a shrink has cut off and say so; where others change the metadata, the next who grows will."""
        array = self._catalog.open_array(path, fresh=True)
        if extent(array.metadata) is not None:
            self.clear_beyond(array, turn)
            publish_metadata(self._reader, array, with_extent(array.metadata, None))


def publish_metadata(reader: Reader, array: ArrayNode, metadata: ArrayMetadata) -> str | None:
    """As `put_metadata`, and ``.zmetadata`` follows; where it cannot, `ConsolidatedBehind` says that all else is
    done."""
    version = put_metadata(reader, array, metadata)
    if version is not None:
        _follow(array, ".zarray")
    return version


def put_metadata(reader: Reader, array: ArrayNode, metadata: ArrayMetadata) -> str | None:
    """Store an array's new ``.zarray`` if it is still the one that was opened, and return its version; None where it is
    not."""
    key = array.prefix + array.mount.metadata_key
    try:
        version = put_document(array.mount, key, metadata.to_bytes(), stored_version(array))
    except VersionConflict:
        return None
    reader.versions.note(array.mount, key, version)
    return version


def follow_again(array: ArrayNode) -> None:
    """Have ``.zmetadata`` say what is published, which a request before, or a step before, may have failed to do."""
    if array.documents.get(array.prefix + array.mount.metadata_key) is not None:
        _follow(array, ".zarray", ".zattrs")


def _follow(array: ArrayNode, *names: str) -> None:
    consolidated.follow(array.mount, array.prefix, [array.prefix + name for name in names])


def stored_version(array: ArrayNode) -> str | Absent:
    """The version of the array's own document, `ABSENT` where only ``.zmetadata`` holds it.

    Raises `BadDefinition` where the metadata is assumed: there is nothing to change.
    """
    check_not_assumed(array.mount, array.prefix)
    if array.metadata_version.startswith("consolidated-"):
        return ABSENT
    return array.metadata_version


def _wanted(
    before: tuple[int, ...], shape: Sequence[int | None], *, expand_only: bool, shrink_only: bool
) -> tuple[int, ...]:
    if len(shape) != len(before):
        raise BadDefinition("shape", f"the array has {len(before)} axes, {len(shape)} sizes were given")
    wanted = tuple(was if now is None else now for now, was in zip(shape, before, strict=True))
    for axis, (now, was) in enumerate(zip(wanted, before, strict=True)):
        if not 0 <= now <= LARGEST:
            raise BadDefinition("shape", f"axis {axis} cannot have size {now}: expected 0 to 2**62 - 1")
        if expand_only and now < was:
            raise BadDefinition("shape", f"axis {axis} would shrink from {was} to {now}, and expand_only was asked for")
        if shrink_only and now > was:
            raise BadDefinition("shape", f"axis {axis} would grow from {was} to {now}, and shrink_only was asked for")
    return wanted

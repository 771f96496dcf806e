"""Changing the attributes of a node that is there: worked out first, then stored on top of just what was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hyperslab.arrays import consolidated
from hyperslab.arrays.attributes import attributes_text, merge_patch
from hyperslab.arrays.documents import put_document
from hyperslab.arrays.nodes import ArrayNode, GroupNode, MountedStore
from hyperslab.arrays.versions import VersionBook
from hyperslab.engine.metadata import parse_attributes
from hyperslab.storage.base import ABSENT, Absent, VersionConflict


@dataclass(frozen=True, slots=True)
class AttributesPlan:
    """Attributes to be stored, and the version of the ``.zattrs`` that they were made from."""

    text: bytes
    version: str | Absent


def plan_attributes(
    mount: MountedStore, prefix: str, node: ArrayNode | GroupNode, patch: Mapping[str, Any]
) -> AttributesPlan:
    """Merge a patch into the attributes that a node was opened with; stores nothing. Raises `BadDefinition`."""
    attributes, version = _read(mount, prefix + ".zattrs", node)
    return AttributesPlan(attributes_text(merge_patch(attributes, patch)), version)


def put_attributes(mount: MountedStore, prefix: str, plan: AttributesPlan, versions: VersionBook) -> bool:
    """Store what was planned; False, and nothing done, where somebody has changed the attributes since. The caller
    holds the node lock."""
    key = prefix + ".zattrs"
    try:
        version = put_document(mount, key, plan.text, plan.version)
    except VersionConflict:
        return False
    versions.note(mount, key, version)
    consolidated.follow(mount, prefix, [key])
    return True


def _read(mount: MountedStore, key: str, node: ArrayNode | GroupNode) -> tuple[Mapping[str, Any], str | Absent]:
    """What a patch is merged into and its version, which belong together: a version that is looked up later may be that
    of other attributes. A node that was not opened from documents of its own may have such a one all the same."""
    if key in node.documents:
        version = node.documents[key]
        return node.attributes, ABSENT if version is None else version
    stored = mount.store.get(key)
    if stored is None:
        return node.attributes, ABSENT
    return parse_attributes(stored.data, key), stored.version

"""Who may do what to which store."""

from __future__ import annotations

from hyperslab.arrays.nodes import MountedStore
from hyperslab.errors import BadDefinition, ReadOnly


def check_writable(mount: MountedStore) -> None:
    """Raise `ReadOnly` unless the operator has made the store writable and the store itself takes writes."""
    if not (mount.writable and mount.store.capabilities.writable):
        raise ReadOnly(mount.name)


def check_not_assumed(mount: MountedStore, prefix: str) -> None:
    """Raise `BadDefinition` for an array whose document the operator has given: no request can change it."""
    if prefix.rstrip("/") in mount.assume_metadata:
        raise BadDefinition("metadata", "the operator's configuration fixes the metadata of this array")

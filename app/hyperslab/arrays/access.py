"""Who may do what to which store."""

from __future__ import annotations

from hyperslab.arrays.nodes import MountedStore
from hyperslab.errors import BadDefinition, ReadOnly, shown
from hyperslab.storage.keys import as_prefix


def check_writable(mount: MountedStore) -> None:
    """Raise `ReadOnly` unless the operator has made the store writable and the store itself takes writes."""
    if not (mount.writable and mount.store.capabilities.writable):
        raise ReadOnly(mount.name)


def check_not_assumed(mount: MountedStore, prefix: str, *, below: bool = False) -> None:
    """Raise `BadDefinition` for an array whose document the operator has given: no request can change it, or remove
    it with all that lies ``below`` a group."""
    for path in mount.assume_metadata:
        if as_prefix(path) == prefix or (below and path.startswith(prefix)):
            which = mount.path(as_prefix(path))
            raise BadDefinition("metadata", f"the operator's configuration fixes the metadata of {shown(which)}")

"""Who may do what to which store."""

from __future__ import annotations

from hyperslab.arrays.nodes import MountedStore
from hyperslab.errors import ReadOnly


def check_writable(mount: MountedStore) -> None:
    """Raise `ReadOnly` unless the operator has made the store writable and the store itself takes writes."""
    if not (mount.writable and mount.store.capabilities.writable):
        raise ReadOnly(mount.name)

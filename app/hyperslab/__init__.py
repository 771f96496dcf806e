"""Hyperslab: every Zarr array becomes a URL that can be sliced, tiled, written and resized.

Importing this package loads no server code: the client needs little, and is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from hyperslab.client import RemoteArray, RemoteGroup, RemoteStream

__all__ = ["RemoteArray", "RemoteGroup", "RemoteStream", "__version__"]


def __getattr__(name: str) -> Any:
    if name in __all__[:3]:
        from hyperslab import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

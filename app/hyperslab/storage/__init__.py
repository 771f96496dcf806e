"""Storage: bytes by key, with versions, in folders, object stores, on web servers, and in whatever fsspec opens."""

from __future__ import annotations

from hyperslab.storage.config import StoreConfig
from hyperslab.storage.open import open_store

__all__ = ["StoreConfig", "open_store"]

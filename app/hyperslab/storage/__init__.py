"""Bytes by key, with versions: folders, object stores, and whatever fsspec opens."""

from __future__ import annotations

from hyperslab.storage.config import StoreConfig
from hyperslab.storage.open import open_store

__all__ = ["StoreConfig", "open_store"]

"""Byte-bounded caches of versioned values, with single flight."""

from hyperslab.cache.lru import CacheStats, Loaded, Vanished, VersionedCache
from hyperslab.cache.recent import Recent

__all__ = ["CacheStats", "Loaded", "Recent", "Vanished", "VersionedCache"]

"""Byte-bounded caches of versioned values, with single flight."""

from hyperslab.cache.lru import CacheStats, VersionedCache
from hyperslab.cache.recent import Recent

__all__ = ["CacheStats", "Recent", "VersionedCache"]

"""Byte-bounded caches of versioned values, with single flight."""

from hyperslab.cache.lru import CacheStats, VersionedCache

__all__ = ["CacheStats", "VersionedCache"]

"""Use cases: the only layer that uses engine, storage and cache together. Synchronous, and independent of HTTP."""

"""Use cases: the only place where engine, storage and cache meet. Synchronous; knows no HTTP."""

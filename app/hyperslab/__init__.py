"""Hyperslab: every Zarr array becomes a URL that can be sliced, tiled, written and resized."""

from __future__ import annotations

__version__ = "0.1.0"

"""What client and server both know of the names of nodes."""

from __future__ import annotations

from typing import Final

LONGEST_KEY: Final = 1024
"""Bytes of UTF-8 that a key may have: the limit of S3 and of GCS."""

"""Names of headers of our own, and the media types that bodies have."""

from __future__ import annotations

from typing import Final

ARRAY_SHAPE: Final = "Array-Shape"
"""Shape of the body as JSON, for example ``[4,512,512]``."""
ARRAY_DTYPE: Final = "Array-Dtype"
"""Dtype of the body as JSON in Zarr v2 form, for example ``"<u2"`` or ``[["x","<i4"]]``."""
LONGEST_DTYPE: Final = 4 << 10
"""Up to here a dtype goes into a header, in bytes: proxies take 4 or 8 KiB of headers, Python's http.client 64 KiB a
line, and a server of ours 64 KiB of a head. The node document has any dtype whole."""
ARRAY_CHUNKS: Final = "Array-Chunks"
"""What the answer cost: ``touched=8, cached=6, bytes=120433`` (bytes read from the store)."""
SERVER_TIMING: Final = "Server-Timing"
IDEMPOTENCY_KEY: Final = "Idempotency-Key"
CONTENT_DIGEST: Final = "Content-Digest"

EXPOSED_HEADERS: Final = (
    "Accept-Ranges",
    "Array-Chunks",
    "Array-Dtype",
    "Array-Shape",
    "Content-Encoding",
    "Content-Length",
    "Content-Range",
    "ETag",
    "Last-Modified",
    "Link",
    "Location",
    "Retry-After",
    "Server-Timing",
)

RAW: Final = "application/octet-stream"
NPY: Final = "application/x-npy"
JSON: Final = "application/json"
CSV: Final = "text/csv"
OBJECTS: Final = "application/vnd.hyperslab.objects"
"""Objects of any length, in the layout of `wire.objects`."""
HTML: Final = "text/html"
PROBLEM: Final = "application/problem+json"
MERGE_PATCH: Final = "application/merge-patch+json"

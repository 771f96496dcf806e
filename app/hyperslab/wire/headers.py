"""Names of headers of our own, media types of bodies, and what client and server both know of keys and URLs."""

from __future__ import annotations

import re
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
UPLOAD_OFFSET: Final = "Upload-Offset"
"""Bytes of an array of a stream that are stored, or where a body begins."""
UPLOAD_COMPLETE: Final = "Upload-Complete"
UPLOAD_LIMIT: Final = "Upload-Limit"
STREAM_EPOCH: Final = "Stream-Epoch"
"""Which opening of a stream a sender knows of."""

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
    "Stream-Epoch",
    "Upload-Complete",
    "Upload-Limit",
    "Upload-Offset",
)

RAW: Final = "application/octet-stream"
NPY: Final = "application/x-npy"
JSON: Final = "application/json"
JSON_LINES: Final = "application/jsonl"
EVENTS: Final = "text/event-stream"
CSV: Final = "text/csv"
OBJECTS: Final = "application/vnd.hyperslab.objects"
"""Objects of any length, in the layout of `wire.objects`."""
FRAMES: Final = "application/vnd.hyperslab.frames"
"""Frames of several arrays of a stream, each ``(u32 key length, key, u64 frame index, u32 JSON length, JSON metadata,
u64 n, bytes)``, little endian."""
HTML: Final = "text/html"
PROBLEM: Final = "application/problem+json"
PARTIAL_UPLOAD: Final = "application/partial-upload"
MERGE_PATCH: Final = "application/merge-patch+json"

LONGEST_KEY: Final = 1024
"""Bytes of UTF-8 that a key may have: the limit of S3 and of GCS."""


def without_driver(url: str) -> str:
    """The URL of a node or a store that may be spelt as in TensorStore: ``…|zarr2:path`` is ``…/path``, and so are
    ``|zarr3:`` and ``|zarr:``, as both formats are recognised."""
    found = re.search(r"\|zarr[23]?:(.*)", url, re.DOTALL)
    if found is None:
        return url
    return "/".join(part for part in (url[: found.start()].rstrip("/"), found[1].strip("/")) if part)

"""Wire formats of client and server: selections, headers, media types, dtypes and objects.

Independent of arrays: `engine.selection` normalises selections against a shape, `engine.dtypes` has Zarr's strict rules
of dtypes.
"""

from __future__ import annotations

import re
from typing import Final

from hyperslab.wire.data_types import implied_codec as implied_codec
from hyperslab.wire.data_types import named_dtype as named_dtype
from hyperslab.wire.dtypes import PADDING as PADDING
from hyperslab.wire.dtypes import bare_dtype as bare_dtype
from hyperslab.wire.dtypes import dtype_from_json as dtype_from_json
from hyperslab.wire.dtypes import dtype_to_json as dtype_to_json
from hyperslab.wire.dtypes import extension_name as extension_name
from hyperslab.wire.dtypes import field_names as field_names
from hyperslab.wire.dtypes import format_dtype as format_dtype
from hyperslab.wire.dtypes import is_extension as is_extension
from hyperslab.wire.dtypes import kind_of as kind_of
from hyperslab.wire.dtypes import limits_of as limits_of
from hyperslab.wire.dtypes import npy_dtype as npy_dtype
from hyperslab.wire.dtypes import numbers_dtype as numbers_dtype
from hyperslab.wire.dtypes import numpy_dtype as numpy_dtype
from hyperslab.wire.dtypes import parse_dtype as parse_dtype
from hyperslab.wire.dtypes import part_dtype as part_dtype
from hyperslab.wire.nesting import check_nesting as check_nesting
from hyperslab.wire.nesting import check_text_nesting as check_text_nesting
from hyperslab.wire.objects import Packer as Packer
from hyperslab.wire.objects import pack_objects as pack_objects
from hyperslab.wire.objects import unpack_objects as unpack_objects
from hyperslab.wire.selections import SelectionItem as SelectionItem
from hyperslab.wire.selections import format_selection as format_selection
from hyperslab.wire.selections import parse_selection as parse_selection

ARRAY_SHAPE: Final = "Array-Shape"
"""Shape of the body as JSON, for example ``[4,512,512]``."""
ARRAY_DTYPE: Final = "Array-Dtype"
"""Dtype of the body as JSON in Zarr v2 form, for example ``"<u2"`` or ``[["x","<i4"]]``."""
MAX_DTYPE_BYTES: Final = 4 << 10
"""Bytes of a dtype above which the header is omitted: proxies limit headers to 4 or 8 KiB. The node document has any
dtype."""
ARRAY_CHUNKS: Final = "Array-Chunks"
"""Read statistics: ``touched=8, cached=6, bytes=120433`` (bytes read from the store)."""
SERVER_TIMING: Final = "Server-Timing"
IDEMPOTENCY_KEY: Final = "Idempotency-Key"
CONTENT_DIGEST: Final = "Content-Digest"
UPLOAD_OFFSET: Final = "Upload-Offset"
"""Offset in bytes into an array of a stream: stored bytes, or the start of a body."""
UPLOAD_COMPLETE: Final = "Upload-Complete"
UPLOAD_LIMIT: Final = "Upload-Limit"
STREAM_EPOCH: Final = "Stream-Epoch"
"""Number of times a stream was opened, known to its sender."""

EXPOSED_HEADERS: Final = (
    "Accept-Ranges, Array-Chunks, Array-Dtype, Array-Shape, Content-Encoding, Content-Length, Content-Range, ETag, "
    "Last-Modified, Link, Location, Retry-After, Server-Timing, Stream-Epoch, Upload-Complete, Upload-Limit, "
    "Upload-Offset"
)
"""Value of ``Access-Control-Expose-Headers``."""

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

MAX_KEY_BYTES: Final = 1024
"""Maximum length of a key in bytes of UTF-8: the limit of S3 and GCS."""


def without_driver(url: str) -> str:
    """The URL without TensorStore's driver: ``…|zarr2:path``, ``…|zarr3:path`` and ``…|zarr:path`` become
    ``…/path``."""
    match = re.search(r"\|zarr[23]?:(.*)", url, re.DOTALL)
    if match is None:
        return url
    return "/".join(part for part in (url[: match.start()].rstrip("/"), match[1].strip("/")) if part)

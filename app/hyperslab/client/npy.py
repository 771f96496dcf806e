"""Arrays as npy bodies."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from hyperslab.wire import npy_dtype


def encode_npy(array: np.ndarray[Any, Any]) -> bytes:
    """``array`` in npy format, C order; the dtype must not hold objects."""
    buffer = io.BytesIO()
    items = np.asarray(array, order="C")
    np.lib.format.write_array(buffer, items.view(npy_dtype(items.dtype)), allow_pickle=False)
    return buffer.getvalue()

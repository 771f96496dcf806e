"""Arrays as npy bodies."""

from __future__ import annotations

import io
from typing import Any

import numpy as np


def encode_npy(array: np.ndarray[Any, Any]) -> bytes:
    """``array`` in npy format, C order; the dtype must not hold objects."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array, order="C"), allow_pickle=False)
    return buffer.getvalue()

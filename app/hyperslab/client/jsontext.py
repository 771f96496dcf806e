"""What is sent as JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np


def dump_json(members: Any) -> bytes:
    """JSON in which numpy's scalars and arrays are numbers and lists, as they are in Zarr's attributes.

    Raises `TypeError` for what has no form in JSON, and `ValueError` for NaN and infinities.
    """
    return json.dumps(members, allow_nan=False, default=_plain).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"objects of type {type(value).__name__} have no form in JSON")

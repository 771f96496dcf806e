"""Nesting of lists and maps in JSON text and in objects, bounded by counting.

Where Python's recursion ends depends on its version, and in libraries written in C on the memory of a thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from typing import Any, Final

import numpy as np

MAX_DEPTH: Final = 100
"""Maximum nesting of lists and maps in an object."""
_STEP: Final = 1 << 20


def check_text_nesting(text: bytes, limit: int) -> None:
    """Raise `ValueError` for JSON in UTF-8 whose lists and objects are nested more than ``limit`` deep, before it is
    parsed; brackets in strings do not count."""
    if text.count(b"[") + text.count(b"{") <= limit:
        return
    if b'"' in text:
        text = re.sub(rb'"(?:[^"\\]++|\\.)*+"?', b"", text, flags=re.DOTALL)
    codes, depth = np.frombuffer(text, np.uint8), 0
    for start in range(0, len(codes), _STEP):
        bare = codes[start : start + _STEP] | 0x20  # [ and ] become { and }
        depths = depth + np.cumsum((bare == ord("{")).view(np.int8) - (bare == ord("}")).view(np.int8), dtype=np.int64)
        if int(np.max(depths, initial=0)) > limit:
            raise ValueError(f"JSON nested more than {limit} levels deep")
        depth = int(depths[-1])


def check_nesting(items: Iterable[Any], limit: int = MAX_DEPTH) -> None:
    """Raise `ValueError` for lists, tuples and dicts nested more than ``limit`` deep in one of the items."""
    level = [item for item in items if isinstance(item, list | tuple | dict)]
    for _ in range(limit):
        if not level:
            return
        inside = chain.from_iterable(item.values() if isinstance(item, dict) else item for item in level)
        level = [item for item in inside if isinstance(item, list | tuple | dict)]
    if level:
        raise ValueError(f"lists nested more than {limit} deep")

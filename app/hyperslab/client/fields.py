"""Field names in the brackets."""

from __future__ import annotations

from typing import Any


def split_fields(key: Any) -> tuple[str | list[str] | None, Any]:
    """The field or list of fields that a key names, and its rest: ``"x"``, ``["x", "y"]``, ``("x", 0)``."""
    if isinstance(key, str):
        return key, ()
    if _are_names(key):
        return list(key), ()
    if not isinstance(key, tuple):
        return None, key
    named = [part for part in key if isinstance(part, str) or _are_names(part)]
    if not named:
        return None, key
    if len(named) > 1:
        raise IndexError("an index can name one field or one list of fields")
    fields, _ = split_fields(named[0])
    return fields, tuple(part for part in key if part is not named[0])


def _are_names(part: Any) -> bool:
    return isinstance(part, list) and bool(part) and all(isinstance(name, str) for name in part)

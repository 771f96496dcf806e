"""Typed looks at untrusted JSON: the value, or a `ValueError` that names the member."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from hyperslab.errors import shown

T = TypeVar("T")
Problems = list[str]

VERSIONS: Final = ("0.1", "0.2", "0.3", "0.4", "0.5")
MISSING: Final = object()
"""What `Mapping.get` gives for a member that is not there, told apart from JSON's null."""


def as_object(value: Any, where: str) -> Mapping[str, Any]:
    """A JSON object."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}: {_found(value, 'an object')}")  # noqa: TRY004 - about JSON, not about Python
    return value


def as_list(value: Any, where: str, *, at_least: int = 0) -> list[Any]:
    """A JSON array of ``at_least`` so many entries."""
    if not isinstance(value, list):
        raise ValueError(f"{where}: {_found(value, 'a list')}")  # noqa: TRY004 - about JSON, not about Python
    if len(value) < at_least:
        raise ValueError(f"{where}: expected at least {at_least}, found {len(value)}")
    return value


def as_text(value: Any, where: str) -> str:
    """A string that is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{where}: {_found(value, 'a string')}")
    return value


def as_flag(value: Any, where: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError(f"{where}: {_found(value, 'true or false')}")  # noqa: TRY004 - about JSON, not about Python
    return value


def as_number(value: Any, where: str) -> float:
    """A finite number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise ValueError(f"{where}: {_found(value, 'a number')}")
    return value


def as_integer(value: Any, where: str, *, at_least: int | None = None) -> int:
    """A whole number (``1.0`` is one), of ``at_least`` so much."""
    if as_number(value, where) != int(value):
        raise ValueError(f"{where}: {_found(value, 'an integer')}")
    if at_least is not None and value < at_least:
        raise ValueError(f"{where}: expected {at_least} or more, found {value}")
    return int(value)


def as_version(value: Any, where: str) -> str | None:
    """A known version of the specification; None where none is given."""
    if value is None or value is MISSING:
        return None
    if value not in VERSIONS:
        raise ValueError(f"{where}: {shown(value)} is none of {', '.join(VERSIONS)}")
    return str(value)


def lenient(parse: Callable[[Any, str], T], value: Any, where: str, problems: Problems) -> T | None:
    """What ``parse`` makes of a member that can be done without; None, and a problem, where it is broken."""
    try:
        return parse(value, where)
    except ValueError as error:
        problems.append(str(error))
        return None


def check_unique(values: list[Any], where: str) -> None:
    """Raise where two entries are equal."""
    seen: set[str] = set()
    for value in values:
        text = json.dumps(value, sort_keys=True)
        if text in seen:
            raise ValueError(f"{where}: {shown(value)} is there twice")
        seen.add(text)


def _found(value: Any, expected: str) -> str:
    return "missing" if value is MISSING else f"expected {expected}, found {shown(value)}"

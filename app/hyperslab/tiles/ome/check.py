"""Typed looks at untrusted JSON: the value, or a `ValueError` that names the member."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from hyperslab.errors import shown

T = TypeVar("T")
Problems = list[str]

VERSIONS: Final = ("0.1", "0.2", "0.3", "0.4", "0.5")
_VERSION: Final = re.compile(r"0\.[1-5](?![0-9])")
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


def as_path(value: Any, where: str, problems: Problems) -> str:
    """The path of an array; some writers put its number."""
    if isinstance(value, int) and not isinstance(value, bool):
        problems.append(f"{where}: expected a string, found {value}: read as '{value}'")
        return str(value)
    return as_text(value, where)


def as_version(value: Any, where: str, problems: Problems) -> str | None:
    """The version of the specification that is meant; None where none is given, or none that is known."""
    if value is None or value is MISSING:
        return None
    if value in VERSIONS:
        return str(value)
    meant = _VERSION.match(str(value))
    read_as = f": read as {meant[0]}" if meant else ""
    problems.append(f"{where}: {shown(value)} is none of {', '.join(VERSIONS)}{read_as}")
    return meant[0] if meant else None


def lenient(parse: Callable[[Any, str], T], value: Any, where: str, problems: Problems) -> T | None:
    """What ``parse`` makes of a member that can be done without; None, and a problem, where it is broken."""
    try:
        return parse(value, where)
    except ValueError as error:
        problems.append(str(error))
        return None


def usable(
    parse: Callable[[Any, str], T], value: Any, where: str, problems: Problems, *, at_least: int = 1
) -> tuple[T, ...]:
    """What ``parse`` makes of the entries of a list; those that are broken, or are there again, are left out, and each
    is a problem. Raises `ValueError` where there is no list of ``at_least`` so many entries."""
    found: dict[str, T] = {}
    for i, entry in enumerate(as_list(value, where, at_least=at_least)):
        text = json.dumps(entry, sort_keys=True)
        if text in found:
            problems.append(f"{where}[{i}]: {shown(entry)} is there twice")
        elif (parsed := lenient(parse, entry, f"{where}[{i}]", problems)) is not None:
            found[text] = parsed
    return tuple(found.values())


def _found(value: Any, expected: str) -> str:
    return "missing" if value is MISSING else f"expected {expected}, found {shown(value)}"

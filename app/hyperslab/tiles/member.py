"""Members of untrusted JSON, each with its place in the document."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from hyperslab.errors import shown

T = TypeVar("T")
Problems = list[str]

VERSIONS: Final = ("0.1", "0.2", "0.3", "0.4", "0.5")
_VERSION: Final = re.compile(r"0\.[1-5](?![0-9])")
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Member:
    """A value, ``where`` it stands, and the ``problems`` of the whole document, to which what can be done without adds.

    What gives the value as a type raises a `ValueError` that names the member where it is none.
    """

    value: Any
    where: str
    problems: Problems

    def __getitem__(self, name: str) -> Member:
        """A member of an object; one that is missing is a `Member`, too."""
        return self.get(name, _MISSING)

    def get(self, name: str, default: Any) -> Member:
        """A member of an object, or if it is missing, ``default`` in its place."""
        return Member(self.object().get(name, default), f"{self.where}.{name}".lstrip("."), self.problems)

    @property
    def is_missing(self) -> bool:
        return self.value is _MISSING

    @property
    def is_given(self) -> bool:
        """Whether it is there, and not null."""
        return self.value is not None and not self.is_missing

    def error(self, reason: str) -> ValueError:
        return ValueError(f"{self.where}: {reason}")

    def unlike(self, expected: str) -> ValueError:
        """The error for a value that is missing or another than expected."""
        return self.error("missing" if self.is_missing else f"expected {expected}, found {shown(self.value)}")

    def report(self, problem: str) -> None:
        self.problems.append(f"{self.where}: {problem}")

    def object(self) -> Mapping[str, Any]:
        """A JSON object."""
        if not isinstance(self.value, Mapping):
            raise self.unlike("an object")
        return self.value

    def list(self, *, at_least: int = 0) -> list[Member]:
        """The entries of a JSON array of ``at_least`` so many."""
        if not isinstance(self.value, list):
            raise self.unlike("a list")
        if len(self.value) < at_least:
            raise self.error(f"expected at least {at_least}, found {len(self.value)}")
        return [Member(entry, f"{self.where}[{i}]", self.problems) for i, entry in enumerate(self.value)]

    def text(self) -> str:
        """A string that is not empty."""
        if not isinstance(self.value, str) or not self.value:
            raise self.unlike("a string")
        return self.value

    def text_or(self, default: T) -> str | T:
        """A string; ``default`` for anything else."""
        return self.value if isinstance(self.value, str) else default

    def flag(self) -> bool:
        """True or false."""
        if not isinstance(self.value, bool):
            raise self.unlike("true or false")
        return self.value

    def number(self) -> float:
        """A finite number that a float can hold."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            raise self.unlike("a number")
        return value

    def integer(self, *, at_least: int | None = None) -> int:
        """A whole number (``1.0`` is one), of ``at_least`` so much."""
        value = self.number()
        if value != int(value):
            raise self.unlike("an integer")
        if at_least is not None and value < at_least:
            raise self.error(f"expected {at_least} or more, found {value}")
        return int(value)

    def path(self) -> str:
        """The path of an array; some writers put its number."""
        if isinstance(self.value, int) and not isinstance(self.value, bool):
            self.report(f"expected a string, found {self.value}: read as '{self.value}'")
            return str(self.value)
        return self.text()

    def version(self) -> str | None:
        """The version of the specification that is meant; None where none is given, or none that is known."""
        if not self.is_given:
            return None
        if self.value in VERSIONS:
            return str(self.value)
        meant = _VERSION.match(str(self.value))
        read_as = f": read as {meant[0]}" if meant else ""
        self.report(f"{shown(self.value)} is none of {', '.join(VERSIONS)}{read_as}")
        return meant[0] if meant else None

    def lenient(self, parse: Callable[[Member], T]) -> T | None:
        """What ``parse`` makes of a member that can be done without; None, and a problem, where it is broken."""
        try:
            return parse(self)
        except ValueError as error:
            self.problems.append(str(error))
            return None

    def usable(self, parse: Callable[[Member], T], *, at_least: int = 1) -> tuple[T, ...]:
        """What ``parse`` makes of the entries of a list of ``at_least`` so many; those that are broken, or are there
        again, are left out, and each is a problem."""
        found: dict[str, T] = {}
        for entry in self.list(at_least=at_least):
            text = json.dumps(entry.value, sort_keys=True)
            if text in found:
                entry.report(f"{shown(entry.value)} is there twice")
            elif (parsed := entry.lenient(parse)) is not None:
                found[text] = parsed
        return tuple(found.values())

"""What was measured, as plain data that goes to JSON and comes back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Measurement:
    """Values by name for one case and one program: seconds (``wall``, ``cpu``), bytes, rates per second."""

    case: str
    program: str
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one suite has found; ``notes`` say what was left out and why."""

    suite: str
    seconds: float
    measurements: Sequence[Measurement]
    notes: Sequence[str] = ()

    def value(self, case: str, program: str, name: str = "wall") -> float | None:
        """One value; None where it was not measured."""
        found = (m.values.get(name) for m in self.measurements if m.case == case and m.program == program)
        return next(found, None)

    def cases(self) -> list[str]:
        return list(dict.fromkeys(m.case for m in self.measurements))

    def programs(self) -> list[str]:
        return list(dict.fromkeys(m.program for m in self.measurements))


@dataclass(frozen=True, slots=True)
class Target:
    """Something to be reached: what was found, and whether that is good enough."""

    text: str
    found: str
    met: bool


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text; the first column is left-aligned, and all others right unless they are ``prose``."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    prose: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """Outcomes of one run, and the machine and versions they belong to."""

    machine: Mapping[str, str]
    versions: Mapping[str, str]
    command: str
    outcomes: Sequence[Outcome] = field(default_factory=tuple)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)


def load(path: Path) -> Run:
    """A run from its JSON."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    outcomes = [
        Outcome(
            **{
                **outcome,
                "measurements": [Measurement(**m) for m in outcome["measurements"]],
                "notes": tuple(outcome["notes"]),
            }
        )
        for outcome in document.pop("outcomes")
    ]
    return Run(**document, outcomes=outcomes)

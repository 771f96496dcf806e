"""What a suite is given, what it has to give, and what was measured, as plain data that goes to JSON and comes back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.data import ALL, ArraySpec


@dataclass(frozen=True, slots=True)
class Effort:
    """How often each program reads each case, and after how many seconds a case ends all the same, if it was
    read a few times."""

    rounds: int = 7
    seconds: float = 20.0


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

    def ratios(self, program: str, base: str, name: str = "wall") -> dict[str, float]:
        """``program ÷ base`` for all cases that both have."""
        found = {case: (self.value(case, program, name), self.value(case, base, name)) for case in self.cases()}
        return {case: value / other for case, (value, other) in found.items() if value is not None and other}

    def fastest(self, case: str, programs: Iterable[str]) -> tuple[float, str] | None:
        """The shortest time of some programs, and whose it is; None where none has one."""
        walls = ((self.value(case, name), name) for name in programs)
        return min(((wall, name) for wall, name in walls if wall is not None), default=None)

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


@dataclass(frozen=True, slots=True)
class Bench:
    """Where the data lies and how much effort is made. ``say`` tells whoever waits; ``notes`` gathers what is left out.

    ``zarr2_python``: a Python that has zarr-python 2; ``peers_python``: one that has other array servers.
    """

    folder: Path
    effort: Effort = field(default_factory=Effort)
    quick: bool = False
    specs: tuple[ArraySpec, ...] = ALL
    zarr2_python: str | None = None
    peers_python: str | None = None
    say: Callable[[str], None] = lambda _: None
    notes: list[str] = field(default_factory=list)

    @property
    def arrays(self) -> Path:
        """The folder of the arrays that are read."""
        return self.folder / "arrays"

    def note(self, *texts: str) -> None:
        for text in texts:
            self.notes.append(text)
            self.say(f"  ! {text}")


@dataclass(frozen=True, slots=True)
class Suite:
    """``measure`` takes time; the others only look at what was found, so that they can be applied to old numbers."""

    name: str
    title: str
    measure: Callable[[Bench], Iterator[Measurement]]
    tables: Callable[[Outcome], Sequence[Table]]
    targets: Callable[[Outcome], Iterable[Target]] = lambda _: ()

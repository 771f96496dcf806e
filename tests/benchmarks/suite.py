"""What every suite is given, and what it has to give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.data import ALL, ArraySpec
from tests.benchmarks.results import Measurement, Outcome, Table, Target
from tests.benchmarks.timing import Effort


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

    def note(self, text: str) -> None:
        self.notes.append(text)
        self.say(f"  ! {text}")


@dataclass(frozen=True, slots=True)
class Suite:
    """``measure`` takes time; the others only look at what was found, so that they can be applied to old numbers."""

    name: str
    title: str
    measure: Callable[[Bench], Iterator[Measurement]]
    tables: Callable[[Outcome], Sequence[Table]]
    targets: Callable[[Outcome], Sequence[Target]]

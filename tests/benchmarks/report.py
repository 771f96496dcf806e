"""Numbers for people: tables as text and as Markdown, ratios and their means."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from tests.benchmarks.suite import Outcome, Table, Target

NONE = "–"


def duration(seconds: float | None) -> str:
    """In the unit that suits."""
    if seconds is None:
        return NONE
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds / size < 1000 else f"{seconds / size:.0f} {unit}"
    return f"{seconds * 1e6:.2f} µs"


def amount(nbytes: float | None) -> str:
    """Bytes in binary units."""
    if nbytes is None:
        return NONE
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= size:
            return f"{nbytes / size:.4g} {unit}"
    return f"{nbytes:.0f} B"


def ratio(a: float | None, b: float | None) -> float | None:
    """``a / b``; None where one is missing."""
    return None if a is None or not b else a / b


def times(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}×"


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """Of the values that are there; None where there are none."""
    there = [value for value in values if value]
    return math.exp(statistics.fmean(map(math.log, there))) if there else None


def comparison(
    outcome: Outcome, title: str, *, ours: str, against: Sequence[str], cases: Sequence[str] | None = None
) -> Table:
    """Times of all programs, and ``ours`` relative to some of them; means of the ratios in the last row."""
    cases = outcome.cases() if cases is None else cases
    programs = [name for name in outcome.programs() if any(outcome.value(case, name) for case in cases)]
    columns = {f"÷ {name}": outcome.ratios(ours, name) for name in against}
    columns |= {f"CPU ÷ {name}": outcome.ratios(ours, name, "cpu") for name in against[:1]}
    rows = [
        [
            case,
            *(duration(outcome.value(case, name)) for name in programs),
            *(times(c.get(case)) for c in columns.values()),
        ]
        for case in cases
    ]
    means = [times(geometric_mean(c.get(case) for case in cases)) for c in columns.values()]
    rows.append(["geometric mean", *([""] * len(programs)), *means])
    return Table(title, ["case", *programs, *columns], rows)


def plain(table: Table) -> str:
    """A table for a terminal."""
    lines = [list(table.head), *(list(row) for row in table.rows)]
    left = range(len(table.head) if table.prose else 1)
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.head))]
    aligned = [
        "  ".join(
            cell.ljust(w) if i in left else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    return "\n".join([table.title, "-" * len(table.title), *(line.rstrip() for line in aligned)])


def markdown(table: Table) -> str:
    """A table for a page; its title is left to the page."""
    lines = [table.head, ["---", *(["---" if table.prose else "--:"] * (len(table.head) - 1))], *table.rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def target_table(targets: Sequence[Target]) -> Table:
    rows = [[target.text, "met" if target.met else "NOT met", target.found] for target in targets]
    return Table("Targets", ["wanted", "", "found"], rows, prose=True)

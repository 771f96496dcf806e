"""Fills the tables of docs/explanation/performance.md from a run; what stands between them is written by people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.benchmarks.plots import draw
from tests.benchmarks.registry import SUITES
from tests.benchmarks.report import markdown, target_table
from tests.benchmarks.results import Outcome, Run, Table

PAGE: Final = Path(__file__).parents[2] / "docs" / "explanation" / "performance.md"
_SECTION: Final = re.compile(r"(<!-- made: ([a-z]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def write_docs(run: Run, page: Path = PAGE) -> None:
    """Redraw the pictures and fill in what the run has; other parts of the page stay as they are."""
    draw(run, page.parent)
    made = {outcome.suite: section(outcome) for outcome in run.outcomes} | {"machine": _machine(run)}
    page.write_text(filled(page.read_text(encoding="utf-8"), made), encoding="utf-8")


def filled(text: str, made: Mapping[str, str]) -> str:
    """``text`` with those sections replaced that are in ``made``."""

    def replace(found: re.Match[str]) -> str:
        new = made.get(found[2])
        return found[0] if new is None else f"{found[1]}\n{new}\n\n{found[3]}"

    return _SECTION.sub(replace, text)


def section(outcome: Outcome) -> str:
    """Targets, tables and notes of a suite."""
    suite = SUITES[outcome.suite]
    targets = suite.targets(outcome)
    parts = [markdown(target_table(targets))] if targets else []
    parts += [markdown(table) for table in suite.tables(outcome)]
    if outcome.notes:
        parts.append("Left out:\n\n" + "\n".join(f"- {note}" for note in dict.fromkeys(outcome.notes)))
    return "\n\n".join(parts)


def _machine(run: Run) -> str:
    facts = [(name, value) for name, value in run.machine.items()]
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    rows = [*facts, ("versions", versions), ("command", f"`{run.command}`")]
    return markdown(Table("", ["", ""], rows, prose=True))

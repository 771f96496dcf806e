"""Writes the results of a run into docs/internals: tables as CSV files, and the targets of the page."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.benchmarks.registry import SUITES
from tests.benchmarks.report import markdown, target_table
from tests.benchmarks.suite import Outcome, Run, Table

PAGE: Final = Path(__file__).parents[2] / "docs" / "internals" / "performance.md"
_SECTION: Final = re.compile(r"(<!-- made: ([a-z]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_TARGETS: Final = ("suite", "wanted", "", "found")


def write_docs(run: Run, page: Path = PAGE) -> None:
    """Replace what the run has measured; results of other suites, and the text of the page, stay as they are. The smoke
    benchmark has no place there."""
    folder = page.with_suffix("")
    for outcome in (outcome for outcome in run.outcomes if outcome.suite != "smoke"):
        for name, table in tables(outcome):
            _write_csv(folder / f"{name}.csv", [table.head, *table.rows])
    targets = _merged_targets(folder / "targets.csv", run.outcomes)
    made = {"machine": _machine(run), "targets": markdown(Table("", _TARGETS, targets, prose=True))}
    page.write_text(filled(page.read_text(encoding="utf-8"), made), encoding="utf-8")


def filled(text: str, made: Mapping[str, str]) -> str:
    """``text`` with those sections replaced that are in ``made``."""

    def replace(found: re.Match[str]) -> str:
        new = made.get(found[2])
        return found[0] if new is None else f"{found[1]}\n{new}\n\n{found[3]}"

    return _SECTION.sub(replace, text)


def tables(outcome: Outcome) -> list[tuple[str, Table]]:
    """The tables of a suite by the name of their file: ``http``, and ``http-2`` for a second one."""
    numbered = enumerate(SUITES[outcome.suite].tables(outcome), start=1)
    return [(outcome.suite if number == 1 else f"{outcome.suite}-{number}", table) for number, table in numbered]


def _merged_targets(path: Path, outcomes: Iterable[Outcome]) -> list[Sequence[str]]:
    """The targets of all suites, in the order of the registry: new ones, and those of suites that did not run."""
    with path.open(newline="", encoding="utf-8") as file:
        rows: list[Sequence[str]] = [*csv.reader(file)][1:]
    for outcome in outcomes:
        new = target_table(list(SUITES[outcome.suite].targets(outcome))).rows
        rows = [row for row in rows if row[0] != outcome.suite] + [[outcome.suite, *row] for row in new]
    rows.sort(key=lambda row: list(SUITES).index(row[0]))
    _write_csv(path, [_TARGETS, *rows])
    return rows


def _write_csv(path: Path, rows: Iterable[Sequence[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def _machine(run: Run) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    rows = [*run.machine.items(), ("versions", versions), ("command", f"`{run.command}`")]
    return markdown(Table("", ["", ""], rows, prose=True))

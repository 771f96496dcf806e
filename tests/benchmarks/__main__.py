"""``python -m tests.benchmarks``: see docs/internals/benchmark.md."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.data import ALL
from tests.benchmarks.machine import machine_facts, versions
from tests.benchmarks.registry import SUITES
from tests.benchmarks.report import plain, target_table
from tests.benchmarks.suite import Bench, Effort, Measurement, Outcome, Run, Suite, load
from tests.tools import ROOT


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    done = earlier(options.read) if options.read else measured(options)
    if options.json:
        options.json.write_text(done.to_json() + "\n", encoding="utf-8")
    if options.write_docs:
        from tests.benchmarks.pages import write_docs

        write_docs(done)


def measured(options: argparse.Namespace) -> Run:
    """Run the chosen suites. One that fails is noted, so that hours of others are not lost."""
    bench = _bench(options)
    bench.arrays.mkdir(parents=True, exist_ok=True)
    names = list(SUITES) if options.suite == "all" else options.suite.split(",")
    facts, found = machine_facts(), versions(bench.zarr2_python)
    outcomes = []
    for name in names:
        outcomes.append(run(SUITES[name], bench))
        show(SUITES[name], outcomes[-1])
    return Run(facts, found, _command(options), outcomes)


def earlier(path: Path) -> Run:
    """A run from its JSON, shown once more."""
    done = load(path)
    for outcome in done.outcomes:
        show(SUITES[outcome.suite], outcome)
    return done


def run(suite: Suite, bench: Bench) -> Outcome:
    """Measure one suite; what it found before it failed is kept."""
    bench.say(f"{suite.name}: {suite.title}")
    before, began = len(bench.notes), time.monotonic()
    measurements: list[Measurement] = []
    try:
        measurements.extend(suite.measure(bench))
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        bench.note(f"{suite.name} ended early: {type(error).__name__}: {error}")
    return Outcome(suite.name, round(time.monotonic() - began, 1), measurements, tuple(bench.notes[before:]))


def show(suite: Suite, outcome: Outcome) -> None:
    """Print its tables and targets."""
    for table in suite.tables(outcome):
        print(f"\n{plain(table)}")
    targets = list(suite.targets(outcome))
    if targets:
        print(f"\n{plain(target_table(targets))}")
    print(f"\n{suite.name} took {outcome.seconds:.0f} s\n", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="Compare Hyperslab with others.")
    parser.add_argument("--suite", default="smoke", help=f"all, or some of {','.join(SUITES)} (default: smoke)")
    parser.add_argument("--folder", type=Path, default=_cache(), help="where the data is kept between runs")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller streams")
    parser.add_argument("--rounds", type=int, default=7, help="how often each program reads each case")
    parser.add_argument("--seconds", type=float, default=20.0, help="after how many seconds a case ends all the same")
    parser.add_argument("--arrays", help="some of the arrays only: stack,climate,slide,field,small")
    parser.add_argument("--json", type=Path, help="write what was measured")
    parser.add_argument("--read", type=Path, metavar="JSON", help="measure nothing: show an earlier run's JSON")
    parser.add_argument("--write-docs", action="store_true", help="write the results into docs/internals")
    return parser


def _bench(options: argparse.Namespace) -> Bench:
    effort = Effort(3, min(5.0, options.seconds)) if options.quick else Effort(options.rounds, options.seconds)
    chosen = options.arrays.split(",") if options.arrays else None
    specs = tuple(spec for spec in ALL if not chosen or spec.name in chosen)
    return Bench(
        options.folder,
        effort,
        quick=options.quick,
        specs=specs,
        zarr2_python=_zarr2_python(),
        peers_python=os.environ.get("PEERS_PYTHON"),
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hyperslab" / "benchmarks"


def _zarr2_python() -> str | None:
    default = ROOT / ".venv-zarr2" / "bin" / "python"
    named = os.environ.get("ZARR2_PYTHON")
    return named or (str(default) if default.exists() else None)


def _command(options: argparse.Namespace) -> str:
    """What has been asked for, without the names of files."""
    chosen = " --quick" if options.quick else f" --rounds {options.rounds} --seconds {options.seconds:g}"
    arrays = f" --arrays {options.arrays}" if options.arrays else ""
    return f"python -m tests.benchmarks --suite {options.suite}{chosen}{arrays}"


if __name__ == "__main__":
    main()

"""All cases, read by all programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.benchmarks.cases import Case, all_cases
from tests.benchmarks.programs import Program, running
from tests.benchmarks.results import Measurement
from tests.benchmarks.suite import Bench
from tests.benchmarks.timing import take_turns


def compare(bench: Bench, programs: Iterable[Program]) -> Iterator[tuple[Case, Measurement]]:
    """Start the programs, and let them take turns at each case. Who cannot, or gives other values, is noted."""
    with running(programs) as (workers, problems):
        for problem in problems:
            bench.note(problem)
        for case in all_cases(bench.specs):
            bench.say(f"  {case.title}")
            found, wrong = take_turns(case, workers, bench.effort)
            for problem in wrong:
                bench.note(problem)
            yield from ((case, measurement) for measurement in found)

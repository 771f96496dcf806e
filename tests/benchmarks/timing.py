"""Programs take turns at each case, so that a busy machine is equally bad for all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.benchmarks.cases import Case
from tests.benchmarks.programs import ProgramFailed, Running, Sample
from tests.benchmarks.results import Measurement

_SHORTEST = 0.1
_MOST_REPEATS = 2000
_LEAST_ROUNDS = 3
"""However long a case takes: of one sample, nobody knows what it is worth."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How often each program reads each case, and after how many seconds a case ends all the same, if it was
    read a few times."""

    rounds: int = 7
    seconds: float = 20.0


def take_turns(case: Case, workers: Sequence[Running], effort: Effort) -> tuple[list[Measurement], list[str]]:
    """One measurement for each worker that gives the first one's values, and what is wrong with the others."""
    problems: list[str] = []
    able = _those_that_agree(case, workers, problems)
    if not able:
        return [], problems
    deadline = time.monotonic() + effort.seconds
    numbers = {worker.program.title: _repeats(worker.sample(case, 1)) for worker in able}
    samples: dict[str, list[Sample]] = {worker.program.title: [] for worker in able}
    for turn in range(effort.rounds):
        for worker in (*able[turn % len(able) :], *able[: turn % len(able)]):
            title = worker.program.title
            samples[title].append(worker.sample(case, numbers[title]))
        if turn + 1 >= _LEAST_ROUNDS and time.monotonic() > deadline:
            break
    return [summary(case, title, taken) for title, taken in samples.items()], problems


def summary(case: Case, program: str, samples: Sequence[Sample]) -> Measurement:
    """Medians and minima of samples, in seconds."""
    values = {
        "wall": statistics.median(sample.wall for sample in samples),
        "wall_min": min(sample.wall for sample in samples),
        "cpu": statistics.median(sample.cpu for sample in samples),
        "rounds": len(samples),
        "nbytes": case.nbytes,
    }
    return Measurement(case.title, program, values)


def _those_that_agree(case: Case, workers: Sequence[Running], problems: list[str]) -> list[Running]:
    able, expected = [], None
    for worker in workers:
        try:
            digest = worker.digest(case)
        except ProgramFailed as failure:
            problems.append(f"{case.title}: {failure}")
            continue
        expected = expected or digest
        if digest == expected:
            able.append(worker)
        else:
            problems.append(f"{case.title}: {worker.program.title} gives other values than {able[0].program.title}")
    return able


def _repeats(sample: Sample) -> int:
    """How many reads make a sample that a clock can measure."""
    return min(_MOST_REPEATS, max(1, round(_SHORTEST / max(sample.wall, 1e-9))))

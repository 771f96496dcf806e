"""Worker processes seen from the outside: start, ask, end. They take turns at each case, so that a busy machine is
equally bad for all of them."""

from __future__ import annotations

import io
import json
import selectors
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks.cases import Case, Selection
from tests.benchmarks.processes import cpu_seconds, end, start
from tests.benchmarks.suite import Effort, Measurement
from tests.server import Server, Stores, running_server

_PATIENCE = 120.0
_SHORTEST = 0.1
_MOST_REPEATS = 2000
_LEAST_ROUNDS = 3
"""However long a case takes: of one sample, nobody knows what it is worth."""


class ProgramFailed(Exception):
    """A program could not be started, or could not do what it was asked."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of one read; CPU of all processes that took part."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Program:
    """How to start a worker: a reader of `readers.PROGRAMS` (or a writer of `readers.WRITERS`) on a root.

    ``serving`` are processes that work for it; their CPU time counts.
    """

    title: str
    reader: str
    root: str
    python: str = sys.executable
    serving: Sequence[int] = ()


@dataclass(slots=True)
class Running:
    """A worker that waits for work."""

    program: Program
    process: subprocess.Popen[str]

    def digest(self, case: Case) -> str:
        """A digest of the values, to be compared with those of other programs."""
        return str(self._read("digest", case)["digest"])

    def sample(self, case: Case, number: int) -> Sample:
        """Read so often; the mean of one read."""
        return self._timed(partial(self._read, "time", case, number))

    def write(self, array: str, boxes: Sequence[Selection], values: Path) -> Sample:
        """Write boxes of the values in a npy file, one after the other."""
        request = {"job": "write", "array": array, "boxes": [_plain(box) for box in boxes], "values": str(values)}
        return self._timed(partial(self._ask, request))

    def hear(self) -> dict[str, Any]:
        """The next line; raises `ProgramFailed` where it does not come in time."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(_PATIENCE):
                raise ProgramFailed(f"{self.program.title} gave no answer for {_PATIENCE:.0f} s")
        line = self.process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "it ended"}
        if "error" in answer:
            raise ProgramFailed(f"{self.program.title}: {answer['error']}")
        return answer

    def _timed(self, ask: Callable[[], dict[str, Any]]) -> Sample:
        before = sum(map(cpu_seconds, self.program.serving))
        answer = ask()
        served = (sum(map(cpu_seconds, self.program.serving)) - before) / answer.get("reads", 1)
        return Sample(answer["wall"], answer["cpu"] + served)

    def _read(self, job: str, case: Case, number: int = 1) -> dict[str, Any]:
        selection = _plain(case.selection)
        return self._ask({"job": job, "array": case.spec.name, "selection": selection, "number": number})

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.hear()


def _plain(selection: Selection) -> list[int | list[int]]:
    return [[s.start, s.stop] if isinstance(s, slice) else s for s in selection]


@contextmanager
def running(programs: Iterable[Program]) -> Iterator[tuple[list[Running], list[str]]]:
    """The workers that could be started, and why others could not."""
    with ExitStack() as stack:
        workers, problems = [], []
        for program in programs:
            process = start(program.python, ["-m", "tests.benchmarks.worker", program.reader, program.root])
            stack.callback(end, process)
            worker = Running(program, process)
            try:
                worker.hear()
            except ProgramFailed as failure:
                problems.append(str(failure))
            else:
                workers.append(worker)
        yield workers, problems


@contextmanager
def quiet_server(stores: Stores, **settings: Any) -> Iterator[Server]:
    """``hyperslab serve`` in a process of its own, whose log does not get between the tables."""
    with (
        redirect_stdout(io.StringIO()),
        running_server(stores, log_level="warning", **settings) as server,
        redirect_stdout(sys.__stdout__),
    ):
        yield server


# --- turns -----------------------------------------------------------------------------------------------------------


def take_turns(works: Mapping[str, Callable[[], Sample]], effort: Effort) -> dict[str, list[Sample]]:
    """Samples by name: in every round each has its turn, in another order each time."""
    samples: dict[str, list[Sample]] = {name: [] for name in works}
    names = list(works)
    deadline = time.monotonic() + effort.seconds
    for turn in range(effort.rounds):
        first = turn % max(1, len(names))
        for name in names[first:] + names[:first]:
            samples[name].append(works[name]())
        if turn + 1 >= _LEAST_ROUNDS and time.monotonic() > deadline:
            break
    return samples


def summary(case: str, samples: Mapping[str, Sequence[Sample]], **values: float) -> Iterator[Measurement]:
    """Medians and minima of samples, in seconds."""
    for name, taken in samples.items():
        found = {
            "wall": statistics.median(sample.wall for sample in taken),
            "wall_min": min(sample.wall for sample in taken),
            "cpu": statistics.median(sample.cpu for sample in taken),
            "rounds": len(taken),
        }
        yield Measurement(case, name, {**found, **values})


def read_in_turns(case: Case, workers: Sequence[Running], effort: Effort) -> tuple[list[Measurement], list[str]]:
    """One measurement for each worker that gives the first one's values, and what is wrong with the others."""
    problems: list[str] = []
    able: dict[str, Running] = {}
    expected = None
    for worker in workers:
        try:
            digest = worker.digest(case)
        except ProgramFailed as failure:
            problems.append(f"{case.title}: {failure}")
            continue
        expected = expected or digest
        if digest == expected:
            able[worker.program.title] = worker
        else:
            problems.append(f"{case.title}: {worker.program.title} gives other values than {next(iter(able))}")
    numbers = {title: _repeats(worker.sample(case, 1)) for title, worker in able.items()}
    works = {title: partial(worker.sample, case, numbers[title]) for title, worker in able.items()}
    values = {"nbytes": case.nbytes, "small_part": float(case.is_small_part_of_big_chunks)}
    return list(summary(case.title, take_turns(works, effort), **values)), problems


def _repeats(sample: Sample) -> int:
    """How many reads make a sample that a clock can measure."""
    return min(_MOST_REPEATS, max(1, round(_SHORTEST / max(sample.wall, 1e-9))))

"""Worker processes seen from the outside: start, ask, end."""

from __future__ import annotations

import io
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.cases import Case
from tests.server import Server, Stores, running_server, stop

REPOSITORY = Path(__file__).parents[2]


class ProgramFailed(Exception):
    """A program could not be started, or could not do what it was asked."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of one read; CPU of all processes that took part."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Program:
    """How to start a worker: a reader of `readers.PROGRAMS` on a root.

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
    patience: float = 120.0
    _numbers: dict[str, int] = field(default_factory=dict)

    def digest(self, case: Case) -> str:
        """A digest of the values, to be compared with those of other programs."""
        return str(self._ask("digest", case)["digest"])

    def sample(self, case: Case, number: int) -> Sample:
        before = sum(map(cpu_seconds, self.program.serving))
        answer = self._ask("time", case, number)
        served = (sum(map(cpu_seconds, self.program.serving)) - before) / number
        return Sample(answer["wall"], answer["cpu"] + served)

    def hear(self) -> dict[str, Any]:
        """The next line; raises `ProgramFailed` where it does not come in time."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(self.patience):
                raise ProgramFailed(f"{self.program.title} gave no answer for {self.patience:.0f} s")
        line = self.process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "it ended"}
        if "error" in answer:
            raise ProgramFailed(f"{self.program.title}: {answer['error']}")
        return answer

    def _ask(self, job: str, case: Case, number: int = 1) -> dict[str, Any]:
        selection = [[s.start, s.stop] if isinstance(s, slice) else s for s in case.selection]
        request = {"job": job, "array": case.spec.name, "selection": selection, "number": number}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.hear()


@contextmanager
def running(programs: Iterable[Program]) -> Iterator[tuple[list[Running], list[str]]]:
    """The workers that could be started, and why others could not."""
    with ExitStack() as stack:
        workers, problems = [], []
        for program in programs:
            worker = stack.enter_context(_started(program))
            try:
                worker.hear()
            except ProgramFailed as failure:
                problems.append(str(failure))
            else:
                workers.append(worker)
        yield workers, problems


@contextmanager
def _started(program: Program) -> Iterator[Running]:
    command = [program.python, "-m", "tests.benchmarks.worker", program.reader, program.root]
    process = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        bufsize=1,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    try:
        yield Running(program, process)
    finally:
        stop(process)  # type: ignore[arg-type]


@contextmanager
def quiet_server(stores: Stores, **settings: Any) -> Iterator[Server]:
    """``hyperslab serve`` in a process of its own, whose log does not get between the tables."""
    with (
        redirect_stdout(io.StringIO()),
        running_server(stores, log_level="warning", **settings) as server,
        redirect_stdout(sys.__stdout__),
    ):
        yield server


def cpu_seconds(pid: int) -> float:
    """User and system seconds of a process and all its threads so far, by its CPU clock (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)

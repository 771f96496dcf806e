"""Worker processes seen from the outside: start, ask, end."""

from __future__ import annotations

import io
import json
import selectors
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.cases import Case, Selection
from tests.benchmarks.processes import cpu_seconds, end, start
from tests.server import Server, Stores, running_server


class ProgramFailed(Exception):
    """A program could not be started, or could not do what it was asked."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of one read; CPU of all processes that took part."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Program:
    """How to start a worker: a reader of `readers.PROGRAMS` (or a writer of `writers.WRITERS`) on a root.

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

    def digest(self, case: Case) -> str:
        """A digest of the values, to be compared with those of other programs."""
        return str(self._read("digest", case)["digest"])

    def sample(self, case: Case, number: int) -> Sample:
        before = sum(map(cpu_seconds, self.program.serving))
        answer = self._read("time", case, number)
        served = (sum(map(cpu_seconds, self.program.serving)) - before) / answer["reads"]
        return Sample(answer["wall"], answer["cpu"] + served)

    def write(self, array: str, boxes: Sequence[Selection], values: Path) -> Sample:
        """Write boxes of the values in a npy file, one after the other."""
        before = sum(map(cpu_seconds, self.program.serving))
        request = {"job": "write", "array": array, "boxes": [_plain(box) for box in boxes], "values": str(values)}
        answer = self._ask(request)
        served = sum(map(cpu_seconds, self.program.serving)) - before
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
    process = start(program.python, ["-m", "tests.benchmarks.worker", program.reader, program.root])
    try:
        yield Running(program, process)
    finally:
        end(process)


@contextmanager
def quiet_server(stores: Stores, **settings: Any) -> Iterator[Server]:
    """``hyperslab serve`` in a process of its own, whose log does not get between the tables."""
    with (
        redirect_stdout(io.StringIO()),
        running_server(stores, log_level="warning", **settings) as server,
        redirect_stdout(sys.__stdout__),
    ):
        yield server

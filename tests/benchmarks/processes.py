"""What processes cost, as Linux counts it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.server import stop

REPOSITORY: Final = Path(__file__).parents[2]


def cpu_seconds(pid: int) -> float:
    """User and system seconds of a process and all its threads so far, by its CPU clock (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


def memory(pid: int | str = "self") -> int:
    """Resident bytes now."""
    return _status(pid, "VmRSS")


def peak_memory(pid: int | str = "self") -> int:
    """The most resident bytes since the start, or since `forget_peak`."""
    return _status(pid, "VmHWM")


def forget_peak(pid: int | str = "self") -> None:
    """Let the peak be what is resident now (proc(5), clear_refs)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


@contextmanager
def python(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """``python`` with these arguments, and pipes; ended with the block."""
    process = start(sys.executable, arguments)
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[str]) -> None:
    """Stop a process that was started here and close its pipes."""
    stop(process)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()


def start(python: str, arguments: Sequence[str]) -> subprocess.Popen[str]:
    """A Python process that finds this repository's modules and talks in lines."""
    return subprocess.Popen(
        [python, *arguments],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        bufsize=1,
        env={**os.environ, "PYTHONPATH": f"{REPOSITORY / 'app'}{os.pathsep}{REPOSITORY}"},
    )


def _status(pid: int | str, name: str) -> int:
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(rf"^{name}:\s+([0-9]+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0

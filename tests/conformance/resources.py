"""What a server process has used so far, as Linux counts it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """``cpu`` in seconds, of all threads; ``peak`` in bytes, the most memory at once since `start_peak`."""

    cpu: float
    peak: int


def usage(pid: int) -> Usage:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])  # utime and stime
    return Usage(ticks / _TICKS, _status(pid, "VmHWM"))


def start_peak(pid: int) -> int:
    """Begin to watch for the peak anew; the bytes in use now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return _status(pid, "VmRSS")


def _status(pid: int, name: str) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024

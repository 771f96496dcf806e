"""Requests per second, as wrk counts them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.benchmarks.nginx import program
from tests.benchmarks.processes import cpu_seconds

_UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


@dataclass(frozen=True, slots=True)
class Load:
    """What wrk has found: seconds for latencies, CPU seconds of the server for one request, answers that were none."""

    rate: float
    median: float
    p99: float
    cpu: float
    failed: int


def load(
    url: str,
    *,
    seconds: float,
    connections: int = 16,
    headers: Mapping[str, str] | None = None,
    pids: Sequence[int] = (),
) -> Load:
    """Ask for ``url`` as fast as it is answered, from one thread over some connections. Raises `nginx.Missing`."""
    asked = [f"--header={name}: {value}" for name, value in (headers or {}).items()]
    command = [program("wrk"), "--latency", "-t1", f"-c{connections}", f"-d{seconds}s", *asked, url]
    before = sum(map(cpu_seconds, pids))
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=True)
    spent = sum(map(cpu_seconds, pids)) - before
    return parse(done.stdout, spent)


def parse(text: str, cpu: float = 0.0) -> Load:
    """wrk's report; ``cpu`` is what the server has spent on all of it."""
    latencies = {name: float(number) * _UNITS[unit] for name, number, unit in re.findall(_LATENCY, text)}
    count = int(_found(r"([0-9]+) requests in", text))
    bad = re.search(r"Non-2xx or 3xx responses: ([0-9]+)", text)
    errors = re.search(r"Socket errors: connect ([0-9]+), read ([0-9]+), write ([0-9]+), timeout ([0-9]+)", text)
    failed = (int(bad[1]) if bad else 0) + (sum(map(int, errors.groups())) if errors else 0)
    rate = float(_found(r"Requests/sec:\s+([0-9.]+)", text))
    return Load(rate, latencies["50%"], latencies["99%"], cpu / max(1, count), failed)


_LATENCY: Final = r"(50%|99%)\s+([0-9.]+)(us|ms|s|m)\b"


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise ValueError(f"wrk did not say {pattern!r}:\n{text}")
    return match[1]

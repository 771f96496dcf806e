"""Memory of the server while it streams what does not fit, and of the client while it reads."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from typing import Final

from tests.benchmarks.huge import NAME, PLANE_BYTES, PLANES, make_huge
from tests.benchmarks.processes import forget_peak, memory, module, peak_memory
from tests.benchmarks.programs import quiet_server
from tests.benchmarks.report import amount
from tests.benchmarks.results import Measurement, Outcome, Table, Target
from tests.benchmarks.sockets import connected
from tests.benchmarks.suite import Bench, Suite
from tests.server import Server

OURS: Final = "Hyperslab"
ONE: Final = "one slice"
MANY: Final = "64 clients at once"
CLIENT: Final = "RemoteArray"

_MIB: Final = 1 << 20
_CACHE: Final = 64 * _MIB
_IN_FLIGHT: Final = 512 * _MIB
_CLIENTS: Final = 64
_MOST_ABOVE: Final = 150 * _MIB
_MOST_CLIENT: Final = 64 * _MIB


def measure(bench: Bench) -> Iterator[Measurement]:
    make_huge(bench.arrays)
    planes = 1024 if bench.quick else PLANES
    with quiet_server({"data": bench.arrays}, cache_bytes=_CACHE) as server:
        bench.say(f"  {ONE} of {amount(planes * PLANE_BYTES)}")
        yield Measurement(ONE, OURS, _served(server, [f"0:{planes}"]) | {"cache": _CACHE})
        bench.say(f"  {CLIENT}")
        yield Measurement("1 GiB into memory", CLIENT, _client(server))
    with quiet_server({"data": bench.arrays}, cache_bytes=0, bytes_in_flight=_IN_FLIGHT, queue_seconds=600) as server:
        bench.say(f"  {MANY}")
        each = 16 if bench.quick else 128
        selections = [f"{i * each}:{(i + 1) * each}" for i in range(_CLIENTS)]
        yield Measurement(MANY, OURS, _served(server, selections) | {"limit": _IN_FLIGHT})


def _served(server: Server, selections: Sequence[str]) -> dict[str, float]:
    """Let as many clients as there are selections stream at once, and see how far the server's memory grows."""
    path = f"/v1/slice/data/{NAME}?select="
    pid = server.process.pid
    with connected(server.url) as connection:
        connection.get(path + "0,0,0")
    forget_peak(pid)
    idle = memory(pid)
    with module("tests.benchmarks.drain", *(server.url + path + selection for selection in selections)) as process:
        out, _ = process.communicate(timeout=900)
    found: dict[str, float] = json.loads(out)
    growth = peak_memory(pid) - idle
    return {**found, "idle": idle, "growth": growth, "rate": found["nbytes"] / found["seconds"]}


def _client(server: Server) -> dict[str, float]:
    url = f"{server.url}/v1/metadata/data/{NAME}"
    with module("tests.benchmarks.client_memory", url, "0:512") as process:
        out, _ = process.communicate(timeout=300)
    if not out:
        raise subprocess.SubprocessError("the client did not finish")
    found: dict[str, float] = json.loads(out)
    return {**found, "above": found["growth"] - found["result"]}


def tables(outcome: Outcome) -> list[Table]:
    rows = []
    for case in (ONE, MANY):
        value = [outcome.value(case, OURS, name) for name in ("nbytes", "rate", "idle", "growth")]
        rows.append([case, amount(value[0]), f"{amount(value[1])}/s", amount(value[2]), amount(value[3])])
    client = [outcome.value("1 GiB into memory", CLIENT, name) for name in ("result", "above")]
    rows.append([f"{CLIENT}, beside its result", amount(client[0]), "", "", amount(client[1])])
    return [Table("Memory", ["", "bytes", "rate", "idle process", "growth"], rows)]


def targets(outcome: Outcome) -> Sequence[Target]:
    if len(outcome.cases()) < 3:
        return []
    one, many = (outcome.value(case, OURS, "growth") or 0 for case in (ONE, MANY))
    cache, limit = outcome.value(ONE, OURS, "cache") or 0, outcome.value(MANY, OURS, "limit") or 0
    client = outcome.value("1 GiB into memory", CLIENT, "above") or 0
    streamed = amount(outcome.value(ONE, OURS, "nbytes"))
    return [
        Target(f"{streamed} served within 150 MiB above idle and cache", amount(one), one < _MOST_ABOVE + cache),
        Target(f"64 clients within {amount(limit)} in flight", amount(many), many <= limit),
        Target("the client holds its result and at most 64 MiB more", amount(client), client <= _MOST_CLIENT),
    ]


SUITE: Final = Suite("memory", "Memory", measure, tables, targets)

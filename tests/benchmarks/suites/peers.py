"""Other array servers on the same slices, each asked over one plain connection."""

from __future__ import annotations

import hashlib
import http.client
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.benchmarks.cases import Case, cases_of
from tests.benchmarks.data import CLIMATE, FIELD, SLIDE, STACK, ArraySpec, make
from tests.benchmarks.processes import cpu_seconds, end, start
from tests.benchmarks.programs import quiet_server
from tests.benchmarks.report import comparison, geometric_mean, ratio, times
from tests.benchmarks.results import Measurement, Outcome, Table, Target
from tests.benchmarks.suite import Bench, Suite

OURS: Final = "Hyperslab"
CACHED: Final = "Hyperslab, cached"
PEERS: Final = ("Tiled", "h5grove")
INSTALL: Final = "tests/benchmarks/run.sh brings them"

_SPECS: Final = (STACK, CLIMATE, SLIDE, FIELD)
_LARGEST: Final = 64 << 20
_PATIENCE: Final = 120.0


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs: what it calls a selection, the connection to it, and who works for it."""

    name: str
    path: Callable[[Case], str]
    connection: http.client.HTTPConnection
    pid: int

    def get(self, case: Case) -> bytes:
        """The body of the answer; raises `ConnectionError` where it is none. Idle connections may have been closed."""
        try:
            self.connection.request("GET", self.path(case))
            answer = self.connection.getresponse()
        except ConnectionError:
            self.connection.close()
            self.connection.request("GET", self.path(case))
            answer = self.connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise ConnectionError(f"{self.path(case)} gave {answer.status}: {body[:200]!r}")
        return body


def measure(bench: Bench, specs: Sequence[ArraySpec] = _SPECS) -> Iterator[Measurement]:
    for spec in specs:
        make(bench.arrays, spec)
    with ExitStack() as stack:
        servers = list(_servers(bench, stack))
        for case in (case for spec in specs for case in cases_of(spec) if case.nbytes <= _LARGEST):
            bench.say(f"  {case.title}")
            yield from _in_turns(case, servers, bench)


def _servers(bench: Bench, stack: ExitStack) -> Iterator[Server]:
    """Ours, and those that can be started; they end with ``stack``."""
    sizes = {OURS: {"cache_bytes": 0, "answer_cache_bytes": 0}, CACHED: {}}
    for name, settings in sizes.items():
        ours = stack.enter_context(quiet_server({"data": bench.arrays}, **settings))
        yield Server(name, _our_path, _connect(ours.url), ours.process.pid)
    if bench.peers_python is None:
        bench.note(f"other array servers are left out: PEERS_PYTHON names no Python that has them ({INSTALL})")
        return
    paths = {"Tiled": _tiled_path, "h5grove": _h5grove_path}
    for name, path in paths.items():
        try:
            url, pid = stack.enter_context(peer(name.lower(), bench.arrays, bench.peers_python))
        except subprocess.SubprocessError as error:
            bench.note(f"{name} is left out: {error}")
            continue
        yield Server(name, path, _connect(url), pid)


@contextmanager
def peer(name: str, folder: Path, python: str) -> Iterator[tuple[str, int]]:
    """An array server on the arrays in a folder: its URL and process id. Raises `SubprocessError`."""
    process = start(python, ["-W", "ignore", "-m", "tests.benchmarks.peer_server", name, str(folder)])
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise subprocess.SubprocessError(f"it did not start; is it installed? ({INSTALL})")
        url = f"http://127.0.0.1:{int(line)}"
        _wait(url)
        yield url, process.pid
    finally:
        end(process)


def _wait(url: str) -> None:
    """Until it answers: the port is open before the application is ready."""
    connection = _connect(url)
    connection.request("GET", "/")
    connection.getresponse().read()


def _connect(url: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=_PATIENCE)


def _our_path(case: Case) -> str:
    return f"/v1/slice/data/{case.spec.name}?select={case.text}"


def _tiled_path(case: Case) -> str:
    return f"/api/v1/array/full/{case.spec.name}?format=application/octet-stream&slice={case.text}"


def _h5grove_path(case: Case) -> str:
    return f"/data?file={case.spec.name}.h5&path=/data&format=bin&selection={case.text}"


def _in_turns(case: Case, servers: Sequence[Server], bench: Bench) -> Iterator[Measurement]:
    able = [server for server in servers if _agrees(case, server, servers[0], bench)]
    walls: Mapping[str, list[float]] = {server.name: [] for server in able}
    cpus: Mapping[str, list[float]] = {server.name: [] for server in able}
    deadline = time.monotonic() + bench.effort.seconds
    for _ in range(3 * bench.effort.rounds):
        for server in able:
            before = cpu_seconds(server.pid)
            began = time.perf_counter()
            server.get(case)
            walls[server.name].append(time.perf_counter() - began)
            cpus[server.name].append(cpu_seconds(server.pid) - before)
        if time.monotonic() > deadline:
            break
    for name, taken in walls.items():
        values = {"wall": statistics.median(taken), "wall_min": min(taken), "cpu": statistics.median(cpus[name])}
        yield Measurement(case.title, name, {**values, "nbytes": case.nbytes})


def _agrees(case: Case, server: Server, first: Server, bench: Bench) -> bool:
    """Whether it gives the bytes that we give."""
    try:
        agrees = hashlib.sha256(server.get(case)).digest() == hashlib.sha256(first.get(case)).digest()
    except (OSError, http.client.HTTPException) as error:
        bench.note(f"{case.title}: {server.name}: {error}")
        return False
    if not agrees:
        bench.note(f"{case.title}: {server.name} gives other bytes")
    return agrees


def tables(outcome: Outcome) -> list[Table]:
    against = [name for name in PEERS if name in outcome.programs()]
    if not against:
        return []
    found = comparison(outcome, "Array servers", ours=OURS, against=against, cases=outcome.cases())
    return [found]


def targets(outcome: Outcome) -> Iterator[Target]:
    for name in PEERS:
        if name in outcome.programs():
            ratios = {c: ratio(outcome.value(c, name), outcome.value(c, OURS)) for c in outcome.cases()}
            worst = min((r for r in ratios.values() if r is not None), default=0.0)
            mean = geometric_mean(ratios.values()) or 0
            yield Target(f"many times faster than {name}", f"mean {times(mean)}, least {times(worst)}", mean >= 2)


SUITE: Final = Suite("peers", "Other array servers", measure, tables, lambda outcome: list(targets(outcome)))

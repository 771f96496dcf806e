"""Reading by all programs: files in process, over HTTP next to nginx, and from other array servers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from tests.benchmarks.cases import all_cases
from tests.benchmarks.data import CLIMATE, FIELD, SHARDED, SLIDE, STACK, ArraySpec, make_all, warm
from tests.benchmarks.nginx import Missing, nginx
from tests.benchmarks.processes import end, start
from tests.benchmarks.programs import Program, quiet_server, read_in_turns, running
from tests.benchmarks.report import comparison, geometric_mean, ratio, times
from tests.benchmarks.suite import Bench, Effort, Measurement, Outcome, Suite, Table, Target

OURS: Final = "Hyperslab"
FRESH: Final = "Hyperslab, cache on"
CACHED: Final = "Hyperslab, cached"
REMOTE: Final = "RemoteArray"
REMOTE_CACHED: Final = "RemoteArray, cached"
TENSORSTORE: Final = "TensorStore"
IN_PROCESS: Final = "TensorStore in process"
LIBRARIES: Final = (TENSORSTORE, "zarr-python 3", "zarr-python 2", "zarrs")
OVER_NGINX: Final = ("TensorStore, nginx", "zarr-python 3, nginx", "zarr-python 3 + obstore, nginx")
PEERS: Final = ("Tiled", "h5grove")
INSTALL: Final = "tests/benchmarks/run.sh brings them"

SMALL_SPECS: Final = (
    replace(STACK, name="stack-small", shape=(32, 1024, 1024)),
    replace(SLIDE, name="slide-small", shape=(2048, 2048)),
)
_PEER_SPECS: Final = (STACK, CLIMATE, SLIDE, FIELD)
_LARGEST_OF_PEERS: Final = 64 << 20
_MEBIBYTE: Final = 1 << 20

Programs = Callable[[Bench, ExitStack], Iterator[Program]]
"""What is compared; servers that are started for it end with the stack."""


def measure(
    programs: Programs, bench: Bench, specs: Sequence[ArraySpec] | None = None, largest: int | None = None
) -> Iterator[Measurement]:
    """Start the programs, and let them take turns at each case. Who cannot, or gives other values, is noted."""
    specs = bench.specs if specs is None else specs
    make_all(bench.arrays, specs)
    warm(bench.arrays)
    with ExitStack() as stack:
        workers, problems = stack.enter_context(running(programs(bench, stack)))
        bench.note(*problems)
        for case in all_cases(specs):
            if largest is None or case.nbytes <= largest:
                bench.say(f"  {case.title}")
                found, wrong = read_in_turns(case, workers, bench.effort)
                bench.note(*wrong)
                yield from found


# --- engine ----------------------------------------------------------------------------------------------------------


def shards_programs(bench: Bench, stack: ExitStack) -> Iterator[Program]:  # noqa: ARG001 - there is no server
    root = str(bench.arrays)
    yield Program(OURS, "hyperslab", root)
    yield Program(FRESH, "hyperslab-fresh", root)
    yield Program(TENSORSTORE, "tensorstore", root)
    yield Program("zarr-python 3", "zarr-python", root)
    yield Program("zarrs", "zarrs", root)


def engine_programs(bench: Bench, stack: ExitStack) -> Iterator[Program]:
    yield from shards_programs(bench, stack)
    root = str(bench.arrays)
    if bench.zarr2_python:
        yield Program("zarr-python 2", "zarr-python", root, python=bench.zarr2_python)
    else:
        bench.note("zarr-python 2 is left out: ZARR2_PYTHON names no Python that has it")


def engine_targets(outcome: Outcome) -> Iterator[Target]:
    mean = geometric_mean(outcome.ratios(OURS, TENSORSTORE).values())
    yield Target("time at most 0.6× TensorStore's (geometric mean)", f"{mean or 0:.2f}×", (mean or 9) <= 0.6)
    fastest = {case: outcome.fastest(case, LIBRARIES) for case in outcome.cases()}
    ours = {case: outcome.value(case, OURS) for case in outcome.cases()}
    slower = [
        f"{case} ({wall / best[0]:.2f}× {best[1]})"
        for case, best in fastest.items()
        if best and (wall := ours[case]) and wall > best[0]
    ]
    yield Target(
        "never slower than the fastest peer", ", ".join(slower) or "never slower", any(fastest.values()) and not slower
    )


ENGINE: Final = Suite(
    "engine",
    "Reading files in process",
    partial(measure, engine_programs),
    lambda outcome: [comparison(outcome, "In process", ours=OURS, against=[TENSORSTORE, "zarr-python 3"])],
    engine_targets,
)


def shards_targets(outcome: Outcome) -> Iterator[Target]:
    """For each array: planes, cube, tile, series and whole, and the processor time of these."""
    ratios, cpu = outcome.ratios(OURS, TENSORSTORE), outcome.ratios(OURS, TENSORSTORE, "cpu")
    found: dict[str, tuple[float, float]] = {}
    for name in dict.fromkeys(case.partition(": ")[0] for case in ratios):
        own = [case for case in ratios if case.startswith(f"{name}: ") and not case.endswith("cell")]
        wall, busy = (geometric_mean([each[case] for case in own if case in each]) or 0.0 for each in (ratios, cpu))
        found[name.removeprefix("shards-")] = wall, busy
    text = ", ".join(f"{name} {wall:.2f}× (processor {busy:.2f}×)" for name, (wall, busy) in found.items())
    met = bool(found) and max(wall for wall, _ in found.values()) <= 1.2
    yield Target("at most 1.2× TensorStore's time (geometric means)", text, met)


SHARDS: Final = Suite(
    "shards",
    "Reading shards in process",
    partial(measure, shards_programs, specs=SHARDED),
    lambda outcome: [comparison(outcome, "Shards", ours=OURS, against=[TENSORSTORE, "zarr-python 3"])],
    shards_targets,
)

# --- http ------------------------------------------------------------------------------------------------------------


def ours_over_http(bench: Bench, stack: ExitStack, reader: str, path: str, titles: Sequence[str]) -> list[Program]:
    """A reader of a server without caches, and of one with."""
    servers = [
        stack.enter_context(quiet_server({"data": bench.arrays}, **settings))
        for settings in ({"cache_bytes": 0, "answer_cache_bytes": 0}, {"cache_bytes": 1 << 30})
    ]
    pairs = zip(titles, servers, strict=True)
    return [Program(title, reader, server.url + path, serving=[server.process.pid]) for title, server in pairs]


def http_programs(bench: Bench, stack: ExitStack) -> Iterator[Program]:
    cold, cached = ours_over_http(bench, stack, "remote-array", "", (REMOTE, REMOTE_CACHED))
    zarr_url, ours = f"{cold.root}/zarr/data", cold.serving
    yield cold
    yield cached
    yield Program(IN_PROCESS, "tensorstore", str(bench.arrays))
    yield Program("TensorStore, our /zarr", "tensorstore", zarr_url, serving=ours)
    yield Program("zarr-python 3, our /zarr", "zarr-python", zarr_url, serving=ours)
    try:
        files = stack.enter_context(nginx(bench.arrays))
    except Missing as missing:
        bench.note(str(missing))
        return
    for title, reader in zip(OVER_NGINX, ("tensorstore", "zarr-python", "zarr-obstore"), strict=True):
        yield Program(title, reader, files.url, serving=files.processes())


def http_tables(outcome: Outcome) -> list[Table]:
    against = [IN_PROCESS, *(name for name in OVER_NGINX[:2] if name in outcome.programs())]
    return [comparison(outcome, "Over loopback", ours=REMOTE, against=against)]


def http_targets(outcome: Outcome) -> Iterator[Target]:
    ratios = outcome.ratios(REMOTE, IN_PROCESS)
    big = {case: ratio for case, ratio in ratios.items() if (outcome.value(case, REMOTE, "nbytes") or 0) >= _MEBIBYTE}
    slow = ", ".join(f"{case} ({value:.2f}×)" for case, value in big.items() if value > 1.2)
    yield Target(
        "at most 1.2× TensorStore in process on reads of 1 MiB and more",
        f"mean {geometric_mean(big.values()) or 0:.2f}×; above: {slow or 'none'}",
        bool(big) and not slow,
    )
    if OVER_NGINX[0] not in outcome.programs():
        return
    fastest = {case: outcome.fastest(case, OVER_NGINX) for case in outcome.cases()}
    speedups = {c: ratio(best and best[0], outcome.value(c, REMOTE)) or 0.0 for c, best in fastest.items()}
    slower = [f"{case} ({speedup:.2f}×)" for case, speedup in speedups.items() if speedup < 1]
    yield Target("faster than others over nginx on every case", ", ".join(slower) or "on every case", not slower)
    parts = {case: speedup for case, speedup in speedups.items() if outcome.value(case, REMOTE, "small_part")}
    short = ", ".join(f"{case} ({speedup:.1f}×)" for case, speedup in parts.items() if speedup < 5)
    found = f"mean {geometric_mean(parts.values()) or 0:.1f}×; below: {short or 'none'}"
    yield Target("5× faster where a small part of big chunks is asked for", found, not short)


HTTP: Final = Suite("http", "Reading over HTTP", partial(measure, http_programs), http_tables, http_targets)

# --- other array servers ---------------------------------------------------------------------------------------------


def peer_programs(bench: Bench, stack: ExitStack) -> Iterator[Program]:
    """Ours, and those that can be started, each asked for bytes over one plain connection."""
    yield from ours_over_http(bench, stack, "url", "/v1/slice/data/{name}?select={select}", (OURS, CACHED))
    if bench.peers_python is None:
        bench.note(f"other array servers are left out: PEERS_PYTHON names no Python that has them ({INSTALL})")
        return
    paths = {
        "Tiled": "/api/v1/array/full/{name}?format=application/octet-stream&slice={select}",
        "h5grove": "/data?file={name}.h5&path=/data&format=bin&selection={select}",
    }
    for title, path in paths.items():
        try:
            url, pid = stack.enter_context(peer(title.lower(), bench.arrays, bench.peers_python))
        except subprocess.SubprocessError as error:
            bench.note(f"{title} is left out: {error}")
        else:
            yield Program(title, "url", url + path, serving=[pid])


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
        with urlopen(url + "/", timeout=120):  # the port is open before the application is ready
            pass
        yield url, process.pid
    finally:
        end(process)


def peer_tables(outcome: Outcome) -> list[Table]:
    against = [name for name in PEERS if name in outcome.programs()]
    return [comparison(outcome, "Array servers", ours=OURS, against=against)] if against else []


def peer_targets(outcome: Outcome) -> Iterator[Target]:
    for name in PEERS:
        if ratios := outcome.ratios(name, OURS):
            mean = geometric_mean(ratios.values()) or 0
            found = f"mean {times(mean)}, least {times(min(ratios.values()))}"
            yield Target(f"many times faster than {name}", found, mean >= 2)


PEERS_SUITE: Final = Suite(
    "peers",
    "Other array servers",
    partial(measure, peer_programs, specs=_PEER_SPECS, largest=_LARGEST_OF_PEERS),
    peer_tables,
    peer_targets,
)

# --- smoke -----------------------------------------------------------------------------------------------------------


def smoke_programs(bench: Bench, stack: ExitStack) -> Iterator[Program]:
    yield from ours_over_http(bench, stack, "remote-array", "", (REMOTE, REMOTE_CACHED))
    yield Program(TENSORSTORE, "tensorstore", str(bench.arrays))
    yield Program("zarr-python 3", "zarr-python", str(bench.arrays))


def smoke(bench: Bench, specs: Sequence[ArraySpec] = SMALL_SPECS) -> Iterator[Measurement]:
    """In less than a minute."""
    effort = Effort(min(5, bench.effort.rounds), min(1.5, bench.effort.seconds))
    return measure(smoke_programs, replace(bench, effort=effort), specs)


SMOKE: Final = Suite(
    "smoke",
    "Slices over HTTP",
    smoke,
    lambda outcome: [comparison(outcome, "Slices", ours=REMOTE, against=[TENSORSTORE, "zarr-python 3"])],
)

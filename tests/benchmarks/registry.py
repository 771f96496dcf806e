"""All suites by name, in the order in which they run."""

from __future__ import annotations

from typing import Final

from tests.benchmarks.suite import Suite
from tests.benchmarks.suites import loads, objects, reading, scaling, streams, tiles, tuning, writes

_IN_ORDER: Final = (
    *(reading.ENGINE, reading.SHARDS, reading.HTTP),
    *(loads.RPS, loads.MEMORY, objects.SUITE, writes.SUITE, tiles.SUITE),
    *(streams.SUITE, scaling.SUITE, loads.STARVATION, reading.PEERS_SUITE, tuning.SUITE, reading.SMOKE),
)
SUITES: Final[dict[str, Suite]] = {suite.name: suite for suite in _IN_ORDER}

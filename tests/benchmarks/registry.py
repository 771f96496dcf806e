"""All suites by name, in the order in which they run."""

from __future__ import annotations

from typing import Final

from tests.benchmarks.suite import Suite
from tests.benchmarks.suites import (
    bounds,
    engine,
    http,
    memory,
    objects,
    peers,
    rps,
    scaling,
    smoke,
    starvation,
    tiles,
    writes,
)

_IN_ORDER: Final = (engine, http, bounds, rps, memory, objects, writes, tiles, scaling, starvation, peers, smoke)
SUITES: Final[dict[str, Suite]] = {module.SUITE.name: module.SUITE for module in _IN_ORDER}

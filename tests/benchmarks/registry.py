"""All suites by name, in the order in which they run."""

from __future__ import annotations

from typing import Final

from tests.benchmarks.suite import Suite
from tests.benchmarks.suites import engine, http, memory, objects, rps, scaling, starvation, writes

SUITES: Final[dict[str, Suite]] = {
    suite.name: suite
    for suite in (
        engine.SUITE,
        http.SUITE,
        rps.SUITE,
        memory.SUITE,
        objects.SUITE,
        writes.SUITE,
        scaling.SUITE,
        starvation.SUITE,
    )
}

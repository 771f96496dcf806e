"""Fixtures that tests of several packages share."""

from __future__ import annotations

import gc
import os
from functools import cache

import httpx
import pytest
import urllib3
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.demos", "tests.s3", "tests.server"]

settings.register_profile(
    "patient",
    deadline=None,  # a busy machine makes no test wrong
    max_examples=int(os.environ.get("TEST_EXAMPLES", "20")),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.load_profile("patient")
httpx._transports.default.create_ssl_context = cache(  # type: ignore[attr-defined]
    httpx._config.create_ssl_context  # which reads certificates each time
)
httpx._config.DEFAULT_TIMEOUT_CONFIG.read = 60.0  # nor is a server that takes more than five seconds
(urllib3.request.__kwdefaults__ or {})["timeout"] = 60.0  # or three

gc.set_threshold(20_000, 20, 50)  # to collect tests makes millions of objects, and no cycles

LONGEST = (
    *("viewer/test_measure", "viewer/test_orientation", "viewer/test_odd_pictures", "storage/test_objects"),
    *("consistency/test_changes", "test_examples", "streams/test_streams", "viewer/test_follow", "api/test_corpus"),
    *("test_cli", "test_shutdown", "viewer/test_snippets", "consistency/test_replicas", "architecture/test_site"),
    *("viewer/test_page", "viewer/test_recipes", "viewer/test_other_viewers", "viewer/test_image"),
    *("viewer/test_looks", "consistency/test_late_requests", "viewer/test_token", "api/test_metrics_of_workers"),
    *("conformance/test_odd_stores", "streams/test_races", "streams/test_kills", "consistency/test_kill_server"),
    *("viewer/test_docs_page", "viewer/test_state", "interop/test_other_clients", "consistency/test_kill"),
    *(
        "api/test_access",
        "arrays/test_keys",
        "arrays/test_cf_xarray",
        "conformance/test_v3",
        "interop/test_other_format",
    ),
    *("client/test_xarray", "consistency/test_replicas_race", "consistency/test_readers", "streams/test_deletion"),
    *("conformance/test_hostile", "viewer/test_decoded", "viewer/test_views", "interop/test_matrix"),
)
"""Files of tests that take longest, which come first: in the end, no process of several has one left."""


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """What tests that are coroutines run on."""
    return "asyncio"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files, and give tests that drive a browser a second try, which the summary tells of.

    When Chromium draws and asks is not ours to order. Nothing else is tried again: what fails once in a hundred runs
    elsewhere is a race of ours.
    """
    places = {f"tests/{name}.py": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))
    for item in items:
        if "playwright" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_collection_finish() -> None:
    """What is collected stays: no garbage collection of a test is to look through all of it."""
    gc.freeze()

"""Fixtures that tests of several packages share."""

from __future__ import annotations

import pytest
from hypothesis import settings

pytest_plugins = ["tests.demos", "tests.s3", "tests.server"]

settings.register_profile("patient", deadline=None)  # a test is not wrong because the machine is busy
settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that drive a browser a second try, which the summary tells of.

    When Chromium draws and asks is not ours to order. Nothing else is tried again: what fails once in a hundred runs
    elsewhere is a race of ours.
    """
    for item in items:
        if "playwright" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.flaky(reruns=1))

"""Fixtures that tests of several packages share."""

from __future__ import annotations

from hypothesis import settings

pytest_plugins = ["tests.demos", "tests.server"]

settings.register_profile("patient", deadline=None)  # a test is not wrong because the machine is busy
settings.load_profile("patient")

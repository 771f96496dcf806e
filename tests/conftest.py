"""Fixtures that tests of several packages share."""

from __future__ import annotations

pytest_plugins = ["tests.server"]

"""The demo store for tests: made once for each state of the code that makes it, whoever asks first."""

from __future__ import annotations

import fcntl
import hashlib
from pathlib import Path

import pytest

from hyperslab import demo
from tests.tools import artifacts


def demo_parent() -> Path:
    """The folder that holds the demo store, for ``--demo-dir``."""
    sources = sorted(Path(demo.__file__).parent.glob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    parent = artifacts("demo") / digest[:12]
    with (artifacts("demo") / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        demo.make_demo(parent)
    return parent


@pytest.fixture(scope="session")
def demo_store() -> Path:
    """The store itself; not to be written to."""
    return demo.demo_folder(demo_parent())

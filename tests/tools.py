"""Programs beside Python that tests talk to; ``tests/run.sh`` brings them.

A test that lacks one is skipped, and says so; where ``CI`` is set it fails.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[1]


def chromium() -> str:
    """Path of a Chromium to drive, at best one without windows, which takes half the processor time; ``CHROMIUM`` names
    another one."""
    named = os.environ.get("CHROMIUM")
    return named or _program("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def nginx() -> str:
    """Path of nginx."""
    return _program("nginx", "/usr/sbin/nginx")  # Debian's, whose folder only root looks into


def curl() -> str:
    """Path of curl."""
    return _program("curl")


def wget() -> str:
    """Path of wget."""
    return _program("wget")


def openssl() -> str:
    """Path of OpenSSL's program."""
    return _program("openssl")


def node() -> str:
    """Path of Node."""
    return _program("node")


def node_modules() -> Path:
    """The folder that holds the JavaScript clients of ``tests/js/package.json``; ``NODE_MODULES`` names another one."""
    if named := os.environ.get("NODE_MODULES"):
        return Path(named)
    return _existing(ROOT / ".tools" / "node_modules", "the JavaScript clients are not installed")


def zarr2_python() -> Path:
    """A Python that has zarr-python 2.18, whose wheels end with Python 3.13; ``ZARR2_PYTHON`` names another one."""
    named = os.environ.get("ZARR2_PYTHON")
    return Path(named) if named else _existing(ROOT / ".venv-zarr2" / "bin" / "python", "there is no .venv-zarr2")


def napari_python() -> Path:
    """A Python that has napari-ome-zarr; ``NAPARI_PYTHON`` names another one."""
    named = os.environ.get("NAPARI_PYTHON")
    return Path(named) if named else _existing(ROOT / ".venv-napari" / "bin" / "python", "there is no .venv-napari")


def others_python() -> Path:
    """A Python that has the packages of the field that write and read Zarr; ``OTHERS_PYTHON`` names another one."""
    named = os.environ.get("OTHERS_PYTHON")
    return Path(named) if named else _existing(ROOT / ".venv-others" / "bin" / "python", "there is no .venv-others")


def artifacts(name: str) -> Path:
    """A folder for what a test run leaves behind to be looked at, such as screenshots."""
    folder = ROOT / ".artifacts" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _program(*names: str) -> str:
    found = next(filter(None, map(shutil.which, names)), None)
    return found or _lack(f"{names[0]} is not installed: see tests/run.sh")


def _existing(path: Path, reason: str) -> Path:
    if not path.exists():
        _lack(f"{reason}: run tests/run.sh once")
    return path


def _lack(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)

"""What a run ran on: kinds and versions, no names."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

_PACKAGES = (
    "hyperslab",
    "numpy",
    "numcodecs",
    "tensorstore",
    "zarr",
    "zarrs",
    "obstore",
    "uvicorn",
    "uvloop",
    "urllib3",
    "pillow",
    "isal",
    "acquire-zarr",
)


def machine_facts() -> dict[str, str]:
    """Cores, processor, memory, system."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": str(os.cpu_count()),
        "processor": _processor(),
        "memory": f"{pages / (1 << 30):.0f} GiB",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "load before the run": f"{os.getloadavg()[0]:.1f}",
    }


def versions(zarr2_python: str | None = None) -> dict[str, str]:
    """Of Python, the packages that take part, nginx and wrk."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if zarr2_python:
        program = "import zarr, numcodecs; print(zarr.__version__, 'with numcodecs', numcodecs.__version__)"
        found["zarr 2"] = output(zarr2_python, "-c", program)
    for name in ("nginx", "wrk"):
        if path := shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin"):
            found[name] = _number(output(path, "-v"))
    return found


def output(*command: str) -> str:
    """What a command prints; some print their version as an error."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return (done.stdout + done.stderr).strip()


def _number(text: str) -> str:
    found = re.search(r"[0-9]+(\.[0-9]+)+", text)
    return found[0] if found else text.partition("\n")[0]


def _processor() -> str:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    found = re.search(r"model name\s*:\s*(.*)", text)
    return found[1] if found else platform.machine()

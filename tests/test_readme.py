"""What the README shows works as it stands there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BASE = "http://127.0.0.1:8000"
CURL = [line.partition("  #")[0].strip() for line in README.splitlines() if line.startswith("curl ")]
(PYTHON,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_there_are_ten_lines_of_each() -> None:
    assert len(CURL) == 10
    assert len([line for line in PYTHON.splitlines() if line]) <= 10


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("line", CURL)
def test_each_line_of_curl_answers(demo_url: str, tmp_path: Path, line: str) -> None:
    command = line.replace("curl ", "curl --fail --silent --show-error ", 1).replace(BASE, demo_url)
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.stderr == ""
    assert done.stdout or any(path.stat().st_size for path in tmp_path.iterdir())


def test_the_lines_of_python_run_without_a_warning(demo_url: str) -> None:
    program = PYTHON.replace(BASE, demo_url)
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)

    assert done.stderr == ""
    assert "(64, 512, 512) uint16 (16, 128, 128)" in done.stdout

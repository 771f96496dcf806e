"""What is built, and what it needs."""

from __future__ import annotations

import email
import itertools
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from hyperslab import __version__, wire
from tests.architecture.sources import imports
from tests.tools import ROOT

BROUGHT_BY_OTHERS = {"typing-extensions", "msgpack", "aiohttp"}
"""Imported, and firmly required by pydantic, by numcodecs[msgpack] and by fsspec[http]."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_wheel_holds_the_package_with_its_types_and_its_page_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()

    assert {name.partition("/")[0] for name in names} == {"hyperslab", f"hyperslab-{__version__}.dist-info"}
    assert "hyperslab/py.typed" in names
    assert any(name.startswith("hyperslab/viewer/static/") for name in names)


def test_base_install_needs_little(wheel: zipfile.ZipFile) -> None:
    metadata = email.message_from_bytes(wheel.read(f"hyperslab-{__version__}.dist-info/METADATA"))
    needed = [line for line in metadata.get_all("Requires-Dist") or [] if "extra ==" not in line]

    assert sorted(re.split(r"[<>=!~\[ ]", line)[0] for line in needed) == ["numpy"]


def required_libraries() -> set[str]:
    """What the distribution and the extras for users ask for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional, ours = project["optional-dependencies"], {"all", "docs", "test", "bench"}
    extras = [wanted for name, wanted in optional.items() if name not in ours]
    lines = itertools.chain(project["dependencies"], *extras)
    return {re.split(r"[<>=!~\[ ]", line)[0].lower().replace("_", "-") for line in lines} - {"hyperslab"}


def test_every_library_that_is_asked_for_is_explained() -> None:
    explained = (ROOT / "docs" / "adr" / "0002-dependencies.md").read_text(encoding="utf-8").lower()

    assert [library for library in sorted(required_libraries()) if library not in explained] == []


def test_every_library_that_is_imported_is_asked_for() -> None:
    by_module = packages_distributions()
    imported = {i.target.partition(".")[0] for i in imports()} - sys.stdlib_module_names - {"hyperslab"}
    distributions = {by_module[module][0].lower().replace("_", "-") for module in imported}

    assert distributions - required_libraries() == BROUGHT_BY_OTHERS


def test_a_dtype_that_lacks_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)

    with pytest.raises(ModuleNotFoundError, match="pip install ml_dtypes") as caught:
        wire.dtype_from_json([["x", "bfloat16"]])
    assert caught.value.name == "ml_dtypes"


@pytest.mark.parametrize(
    ("command", "module", "extra"),
    [
        ("info", "typer", "cli"),
        ("serve", "typer", "server"),
        ("serve", "pydantic", "server"),
        ("convert", "typer", "convert"),
    ],
)
def test_a_command_that_lacks_a_library_says_which_extra_brings_it(command: str, module: str, extra: str) -> None:
    program = f"import sys; sys.modules[{module!r}] = None; from hyperslab.__main__ import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", program, command], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr == f"hyperslab: this needs {module}, so install it: pip install 'hyperslab[{extra}]'\n"


def test_container_runs_as_somebody_and_looks_after_its_health() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    instructions = [line.split()[0] for line in lines if re.match(r"[A-Z]+ ", line)]

    assert instructions.count("FROM") == 2
    assert "HEALTHCHECK" in instructions
    assert "USER 10001" in lines


def test_the_two_commands_of_the_readme_are_one_line_each() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", readme, flags=re.DOTALL)

    assert [block.strip().count("\n") for block in blocks[:2]] == [0, 0]
    assert blocks[0].strip().endswith("hyperslab serve")
    assert blocks[1].strip() == "bash tests/run.sh"


def test_ci_runs_the_test_command() -> None:
    lines = Path(ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()

    assert [line for line in lines if not line.startswith("#")] == [
        'exec bash "$(dirname "${BASH_SOURCE[0]}")/../tests/run.sh"'
    ]

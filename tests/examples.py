"""The examples of the documentation, run as they stand there.

A page is read from the top; all pages share a folder. ``sh`` blocks go to bash, ``python`` blocks to one interpreter
for all pages, each of which begins without names; of the packages that are installed, both find those alone that the
page's ``pip install`` brings. A ``toml`` block is the file that its first line names. A ``text`` block right behind one
of them is what it prints: ``…`` stands for anything, white space for none. A ``sh`` block of ``hyperslab serve`` starts
a service, whose address then stands in for the documented one; before it, and where it has no arguments, that is the
demo, which all pages share. Services have all packages, and what ``export`` says. A block behind a comment that begins
with ``not run`` is for people alone, and ``python`` behind one that begins with ``written by`` runs where others are
installed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.server import serving
from tests.tools import ROOT, others_python

_BLOCK = re.compile(
    r"(?P<skip>^<!-- not run[^>]*-->\n+)?(?P<elsewhere>^<!-- written by[^>]*-->\n+)?"
    r"^```(?P<language>\w*)\n(?P<code>.*?)^```\n(?:\n```text\n(?P<printed>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
_SERVE = "hyperslab serve"
_PORT = "8000"
_DOCUMENTED = f"http://127.0.0.1:{_PORT}"
_MISSING = """
import os, sys
class Without:
    '''A finder that does not find the modules that are missing.'''
    missing = frozenset(os.environ.get("MISSING", "").split())
    hidden = {}
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in self.missing else self.finder.find_spec(name, path, target)
    @classmethod
    def change(cls, missing):
        cls.missing = frozenset(missing)
        imported = {**sys.modules, **cls.hidden}
        cls.hidden = {name: imported.pop(name) for name in [*imported] if name.partition(".")[0] in cls.missing}
        for name in cls.hidden:
            sys.modules.pop(name, None)
        sys.modules.update(imported)
sys.meta_path[:] = map(Without, sys.meta_path)
"""
_INTERPRETER = """
import contextlib, io, json, traceback
there = None
for line in sys.stdin:
    folder, page, code, missing = json.loads(line)
    if page != there:
        os.chdir(folder)
        Without.change(missing)
        there, names = page, {"__name__": "__main__"}
    printed, failed = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(code, "<example>", "exec"), names)
        except BaseException:
            failed = traceback.format_exc()
    print(json.dumps([printed.getvalue(), failed]), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Example:
    """A block of a page: ``printed`` is what it has to print, None where the page does not say."""

    language: str
    code: str
    printed: str | None
    line: int
    elsewhere: bool = False

    @property
    def serves(self) -> bool:
        return self.code.startswith(_SERVE)


def examples(page: Path) -> Iterator[Example]:
    """The blocks of a page that are to be run, in order."""
    text = page.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        is_file = match["language"] == "toml" and re.match(r"# [\w.]+\n", match["code"])
        if (match["language"] in ("sh", "python") or is_file) and not match["skip"]:
            line = text.count("\n", 0, match.start()) + 1
            yield Example(match["language"], match["code"], match["printed"], line, match["elsewhere"] is not None)


def requirements_of(page: Path) -> list[str]:
    """What a page says to install, or all recipes do, ours as ``hyperslab``."""
    for text in (page, ROOT / "docs" / "recipes" / "README.md"):
        said = re.search(r"pip install ([^`#\n]+)", text.read_text(encoding="utf-8"))
        if said is not None:
            return [re.sub(r"^\.", "hyperslab", each) for each in shlex.split(said[1])]
    raise AssertionError("the recipes say how to install nothing")


def missing_modules(page: Path) -> list[str]:
    """Modules here that are not there when what the page says is installed, with all that these require."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ours = {"": project["dependencies"], **project["optional-dependencies"]}
    brought, todo = set[tuple[str, str]](), [Requirement(each) for each in requirements_of(page)]
    while todo:
        wanted = todo.pop()
        for extra in {"", *wanted.extras}:
            known = (canonicalize_name(wanted.name), extra)
            if known not in brought:
                brought.add(known)
                found = map(Requirement, ours[extra] if wanted.name == "hyperslab" else _required(wanted.name))
                todo += [each for each in found if each.marker is None or each.marker.evaluate({"extra": extra})]
    there = {name for name, _ in brought}
    present = {module for name, modules in _modules().items() if name in there for module in modules}
    return sorted({module for modules in _modules().values() for module in modules} - present - sys.stdlib_module_names)


def _required(name: str) -> list[str]:
    try:
        return distribution(name).requires or []
    except PackageNotFoundError:
        return []  # of examples that run elsewhere


@cache
def _modules() -> dict[str, set[str]]:
    """Names of the modules of each distribution."""

    def names(found: Distribution) -> set[str]:
        files = (line.partition(",")[0] for line in (found.read_text("RECORD") or "").splitlines())
        tops = {file.partition("/")[0].partition(".")[0] for file in files if file.endswith((".py", ".so"))}
        return {top for top in tops if top.isidentifier()}

    return {canonicalize_name(found.metadata["Name"]): names(found) for found in distributions()}


def is_as_shown(shown: str, printed: str) -> bool:
    """Whether a text is what a page shows, but for white space and what it leaves out."""
    parts = ["".join(part.split()) for part in shown.split("…")]
    pattern = ".*".join(map(re.escape, parts))
    return re.fullmatch(pattern, "".join(printed.split())) is not None


class Runner:
    """Runs the examples of one ``page`` in ``folder``, which is the present folder; a context that ends what it began.

    ``demo`` is the address of a service of the demo, ``bucket`` that of one that speaks S3.
    """

    def __init__(self, folder: Path, page: str, demo: str, python: Interpreters, bucket: str = "") -> None:
        self._folder = folder
        self._page = page
        self._demo = demo
        self._python = python
        self._replaced = {_DOCUMENTED: demo, "https://minio.example.org": bucket}
        self._missing = missing_modules(ROOT / "docs" / page)
        self._services: dict[str, ExitStack] = {}
        self._exported = set[str]()
        self._programs = _programs(folder / ".bin")
        (folder / ".bin" / "names").unlink(missing_ok=True)  # of the page before

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        for service in self._services.values():
            service.close()
        for name in self._exported:
            os.environ.pop(name, None)

    def run(self, example: Example) -> str:
        """Run one example and return what it prints; raises `AssertionError` where it fails."""
        if example.serves:
            self._serve(example.code)
            return ""
        code = example.code
        for documented, actual in self._replaced.items():
            code = code.replace(documented, actual)
        if example.language == "toml":
            (self._folder / code.partition("\n")[0].removeprefix("# ")).write_text(code, encoding="utf-8")
            return ""
        exported = dict(re.findall(r"^export (\w+)=(\S+)", code, re.MULTILINE))
        self._exported |= exported.keys()
        os.environ |= exported
        if example.language == "sh":
            return self._run_sh(code, example)
        missing = [] if example.elsewhere else self._missing
        return self._python.run(self._folder, self._page, code, missing, elsewhere=example.elsewhere)

    def _serve(self, code: str) -> None:
        arguments = shlex.split(code.partition("\n")[0].partition(" #")[0])[2:]
        port = _PORT
        if "--port" in arguments:
            place = arguments.index("--port")
            port = arguments[place + 1]
            del arguments[place : place + 2]
        if not arguments and port == _PORT:
            self._replaced[_DOCUMENTED] = self._demo
            return
        if port in self._services:
            self._services.pop(port).close()
        stack = self._services[port] = ExitStack()
        self._replaced[f"http://127.0.0.1:{port}"] = stack.enter_context(serving(*arguments)).url

    def _run_sh(self, code: str, example: Example) -> str:
        """An answer that is an error fails the example where no text is shown; variables stay, as in a terminal."""
        strict = "--fail-with-body " if example.printed is None else ""
        prelude = (
            f'PATH={shlex.quote(self._programs)}:$PATH; curl() {{ command curl -sS {strict}"$@"; }}\n'
            "[ ! -e .bin/names ] || source .bin/names\n"
            "trap 'declare -p | grep \"^declare -- [a-z]\" > .bin/names || :' EXIT\n"
        )
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", prelude + code],
            cwd=self._folder, capture_output=True, text=True, timeout=120, check=False,
            env={**os.environ, "MISSING": " ".join(self._missing), "PYTHONPATH": str(self._folder / ".bin")},
        )  # fmt: skip
        assert done.returncode == 0, f"line {example.line}: {done.stdout}{done.stderr}"
        return done.stdout


class Interpreters(AbstractContextManager["Interpreters"]):
    """Our Python, in which a warning is an error, and the one of other packages; each is started when it is first
    needed, and sees no settings of ours."""

    def __init__(self) -> None:
        self._running: dict[bool, subprocess.Popen[str]] = {}

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            with process:  # it ends when its stdin is closed
                pass

    def run(self, folder: Path, page: str, code: str, missing: list[str], *, elsewhere: bool) -> str:
        """What the code of a page prints in a folder; raises `AssertionError` where it fails."""
        process = self._running.get(elsewhere) or self._start(elsewhere)
        assert process.stdin is not None
        assert process.stdout is not None
        print(json.dumps([str(folder), page, code, missing]), file=process.stdin, flush=True)
        printed, failed = json.loads(process.stdout.readline())
        assert failed is None, failed
        return str(printed)

    def _start(self, elsewhere: bool) -> subprocess.Popen[str]:
        program, warnings = (str(others_python()), "ignore") if elsewhere else (sys.executable, "error")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HYPERSLAB_")}
        command = [program, "-W", warnings, "-c", _MISSING + _INTERPRETER]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self._running[elsewhere] = process
        return process


def _programs(folder: Path) -> str:
    """A folder with ``hyperslab`` and ``python`` as an activated environment has them."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(_MISSING)
    for name, arguments in {"hyperslab": "-m hyperslab ", "python": ""}.items():
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments}"$@"\n')
        script.chmod(0o755)
    return str(folder)

"""Where things are, and what must not be there."""

from __future__ import annotations

import ast

from tests.architecture.sources import ROOT, modules

TOP_LEVEL = {"pyproject.toml", "README.md", "Dockerfile", "LICENSE", "app", "tests", "deploy", "docs", "findings"}
LEFT_BY_TOOLS = {"build", "dist"}
TEXTS = {"", ".html", ".js", ".json", ".md", ".py", ".sh", ".toml", ".yaml", ".yml"}
BUILT_ONCE = {"Settings", "load", "create_app", "build", "open_store", "PoolManager", "ThreadPoolExecutor"}
"""What a composition root makes, and no module when it is imported."""


def test_the_top_level_holds_the_agreed_entries_only() -> None:
    entries = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}

    assert entries - LEFT_BY_TOOLS == TOP_LEVEL


def test_a_finding_says_what_is_expected_and_seen_of_which_versions_and_leaves_the_product_out() -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "findings").iterdir())]

    assert len(texts) >= 3
    assert all(f"\n# {word}: " in text for text in texts for word in ("Versions", "Expected", "Seen"))
    assert all("==" in text and "hyperslab" not in text for text in texts)


def test_app_is_a_source_root_and_no_package() -> None:
    assert not (ROOT / "app" / "__init__.py").exists()


def test_no_module_makes_an_application_settings_or_a_pool_when_imported() -> None:
    made = [
        f"{module.name}: {ast.unparse(statement)}"
        for module in modules()
        for statement in module.tree.body
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(statement.value, ast.Call)
        if ast.unparse(statement.value.func).rpartition(".")[2] in BUILT_ONCE
    ]

    assert made == []


def test_every_module_says_what_it_is_for() -> None:
    assert [module.name for module in modules() if module.tree.body and not ast.get_docstring(module.tree)] == []


def test_no_file_names_a_package_registry() -> None:
    hosts = ["pypi" + ".org", "files.python" + "hosted.org", "registry.npm" + "js.org", "deb." + "debian.org"]
    naming = [
        str(path.relative_to(ROOT))
        for top in sorted(TOP_LEVEL)
        for path in sorted((ROOT / top).rglob("*") if (ROOT / top).is_dir() else [ROOT / top])
        if path.is_file() and path.suffix in TEXTS and any(host in path.read_text(encoding="utf-8") for host in hosts)
    ]

    assert naming == []


def test_tests_of_the_formats_and_the_api_need_no_further_program_or_environment() -> None:
    """They run wherever ``.[test]`` is installed. Those that talk to browsers, proxies or other environments lie in
    packages of their own."""
    allowed = {"engine": set[str](), "conformance": set(), "api": set(), "streams": set(), "client": {"zarr2_python"}}
    needing = []
    for package, tools in allowed.items():
        for path in sorted((ROOT / "tests" / package).glob("*.py")):
            for statement in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(statement, ast.ImportFrom):
                    names, module = {alias.name for alias in statement.names}, statement.module or ""
                elif isinstance(statement, ast.Import):
                    names, module = set(), statement.names[0].name
                else:
                    continue
                outside = module == "tests.tools" and names - {"ROOT", "artifacts"} - tools
                if outside or module == "tests.chromium" or module.partition(".")[0] == "playwright":
                    needing.append(f"{package}/{path.name}: {module}")

    assert needing == []

"""Where settings come from, which of them wins, and what is said of those that cannot be."""

from __future__ import annotations

import json
import os
import pickle
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from hyperslab.errors import BadSettings
from hyperslab.settings import Settings, StoreSettings, load, memory_bytes


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HYPERSLAB_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "hyperslab.toml"


def test_defaults_need_nothing() -> None:
    settings = load()

    assert settings == Settings()
    assert (settings.host, settings.port, settings.stores) == ("127.0.0.1", 8000, {})
    crowd = Settings(workers=1000)  # all workers together have what one has
    assert crowd.cache_bytes < settings.cache_bytes <= min(memory_bytes() // 8, 1 << 30)
    assert crowd.cache_bytes * 1000 <= memory_bytes() // 8
    assert crowd.bytes_in_flight * 1000 <= memory_bytes() // 4


def test_file_beats_default_environment_beats_file_and_command_line_beats_all(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text("port = 1\nworkers = 1\nhost = 'file'\n")
    monkeypatch.setenv("HYPERSLAB_PORT", "2")
    monkeypatch.setenv("HYPERSLAB_WORKERS", "2")

    settings = load(config, {"port": 3})

    assert (settings.port, settings.workers, settings.host, settings.log_level) == (3, 2, "file", "info")


def test_the_environment_can_name_the_file(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text("port = 7\n")
    monkeypatch.setenv("HYPERSLAB_CONFIG", str(config))
    monkeypatch.setenv("HYPERSLAB_TOKEN", "of the client, and no setting")

    assert load().port == 7


def test_a_store_can_be_put_together_from_all_sources(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL alone hides no other variable of its store."""
    config.write_text("[stores]\nbrain = 's3://bucket/brain.zarr'\nscans.timeout = 5\n")
    monkeypatch.setenv("HYPERSLAB_STORES__BRAIN__OPTIONS__REGION", "eu-north-1")
    monkeypatch.setenv("HYPERSLAB_STORES__BRAIN__OPTIONS__SECRET_ACCESS_KEY", "12e3")  # no number
    monkeypatch.setenv("HYPERSLAB_STORES__BRAIN__RECHECK", "2.5")
    monkeypatch.setenv("HYPERSLAB_STORES__SCANS__WRITABLE", "true")
    monkeypatch.setenv("HYPERSLAB_STORES__SCANS", "s3://lab/scans")

    stores = load(config, {"stores": {"brain": {"writable": True}}}).stores

    brain, scans = stores["brain"], stores["scans"]
    assert (brain.url, brain.recheck, brain.writable) == ("s3://bucket/brain.zarr", 2.5, True)
    assert brain.revealed_options() == {"region": "eu-north-1", "secret_access_key": "12e3"}
    assert (scans.url, scans.writable, scans.timeout) == ("s3://lab/scans", True, 5)


def test_the_environment_takes_json_for_whole_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERSLAB_STORES", '{"a": "/data/a", "b": {"url": "/data/b", "fill_missing": false}}')
    monkeypatch.setenv("HYPERSLAB_CORS_ORIGINS", '["https://viewer.example"]')

    settings = load()

    assert {name: store.url for name, store in settings.stores.items()} == {"a": "/data/a", "b": "/data/b"}
    assert not settings.stores["b"].fill_missing
    assert settings.cors_origins == ["https://viewer.example"]


def test_sizes_may_have_units(config: Path) -> None:
    config.write_text("cache_bytes = '256 MiB'\nmax_response_bytes = '1.5GB'\nslab_bytes = 65536\n")

    settings = load(config)

    assert (settings.cache_bytes, settings.max_response_bytes, settings.slab_bytes) == (256 << 20, 1_500_000_000, 65536)


@pytest.mark.parametrize(
    ("toml", "text", "means"),
    [
        ("true", "true", "always"),
        ("false", "False", "never"),
        ("'open'", "open", "always"),
        ("'always'", "always", "always"),
        ("'never'", "NEVER", "never"),
        ("0", "0", 0.0),
        ("2.5", "2.5", 2.5),
    ],
)
def test_recheck_takes_the_values_of_tensorstore(
    config: Path, monkeypatch: pytest.MonkeyPatch, toml: str, text: str, means: str | float
) -> None:
    config.write_text(f"[stores.a]\nurl = 'x'\nrecheck = {toml}\n")
    monkeypatch.setenv("HYPERSLAB_STORES__B", "y")
    monkeypatch.setenv("HYPERSLAB_STORES__B__RECHECK", text)
    monkeypatch.setenv("HYPERSLAB_STORES__C", json.dumps({"url": "z", "recheck": tomllib.loads(f"v = {toml}")["v"]}))

    found = load(config, {"stores": {"d": {"url": "w", "recheck": tomllib.loads(f"v = {toml}")["v"]}}})

    rechecks = [store.recheck for store in found.stores.values()]
    assert rechecks == [means] * 4
    assert [type(recheck) for recheck in rechecks] == [type(means)] * 4


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("prot = 1", "there is no setting prot: did you mean port?"),
        (
            "[stores.a]\nurl='x'\nwriteable=true",
            "there is no setting stores.a.writeable: did you mean stores.a.writable?",
        ),
        ("port = 'x'", "port: "),
        ("port = 70000", "port: "),
        ("cache_bytes = 'lots'", "cache_bytes: "),
        ("[stores.a]", "stores.a.url: "),
        ("[stores.a]\nurl='x'\nrecheck=-1", "stores.a.recheck"),
        ("[stores.a]\nurl='x'\ndurability='maybe'", "stores.a.durability: "),
        ("[stores.a]\nurl='x'\ntimeout=true", "stores.a.timeout: expected a number, found true"),
        ("[stores.a]\nurl='x'\nwidth=true", "stores.a.width: expected a number, found true"),
        ("port = true", "port: expected a number, found true"),
        ("max_response_bytes = true", "max_response_bytes: expected a number, found true"),
        ("[stores.a]\nurl='x'\nrecheck='sometimes'", "stores.a.recheck"),
        ("[stores.'a/b']\nurl='x'", "'a/b' cannot name a store"),
        ("[stores.'..']\nurl='x'", "'..' cannot name a store"),
        ("port = ", "is not TOML: "),
    ],
)
def test_what_cannot_be_in_a_file_is_named_with_the_file(config: Path, text: str, says: str) -> None:
    config.write_text(text)

    with pytest.raises(BadSettings) as caught:
        load(config)

    assert says in str(caught.value)
    assert str(config) in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("HYPERSLAB_PROT", "1", "HYPERSLAB_PROT is no setting: did you mean HYPERSLAB_PORT?"),
        ("HYPERSLAB_STORES__A__WRITEABLE", "1", "did you mean HYPERSLAB_STORES__A__WRITABLE?"),
        ("HYPERSLAB_STORES", "{", "not JSON"),
        ("HYPERSLAB_STORES__A__TIMEOUT__X", "1", "stores.a.timeout: "),
        ("HYPERSLAB_PORT", "x", "port: "),
        ("HYPERSLAB_CONFIG", "/nowhere/at/all.toml", "cannot read the configuration file '/nowhere/at/all.toml'"),
    ],
)
def test_what_cannot_be_in_the_environment_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, says: str
) -> None:
    monkeypatch.setenv(variable, value)

    with pytest.raises(BadSettings) as caught:
        load()

    assert says in str(caught.value)


def test_secrets_are_masked_and_what_is_harmless_is_shown() -> None:
    options = {"endpoint": "http://localhost:9000", "secret_access_key": "hush", "token": "hush"}
    store = {"url": "https://user:hush@example.org/a.zarr?signature=hush", "options": options}
    settings = load(overrides={"stores": {"a": store}, "read_tokens": ["hush"], "write_tokens": ["hush"]})

    shown = json.dumps(settings.masked())

    assert "hush" not in shown
    assert "hush" not in repr(settings.stores["a"].options)
    assert "http://localhost:9000" in shown
    assert "example.org/a.zarr" in shown


def test_a_mistake_in_a_secret_does_not_show_it(config: Path) -> None:
    config.write_text("write_tokens = {hush = 'hush-hush'}\n[stores.a]\nurl = ['hush-hush']\n")

    with pytest.raises(BadSettings) as caught:
        load(config)

    assert "hush-hush" not in str(caught.value)


def test_worker_processes_get_the_same_settings_with_their_secrets(config: Path) -> None:
    config.write_text("[stores.a]\nurl = 's3://a/b'\noptions.secret_access_key = 'hidden'\n")
    settings = load(config, {"workers": 2, "write_tokens": ["token"]})

    received = pickle.loads(pickle.dumps(settings))  # as uvicorn sends it

    assert received == settings
    assert received.stores["a"].revealed_options() == {"secret_access_key": "hidden"}


@pytest.mark.parametrize("model", [Settings, StoreSettings])
def test_every_setting_has_a_sentence(model: Any) -> None:
    unexplained = [
        name for name, field in model.model_fields.items() if not (field.description or "").endswith((".", "`."))
    ]

    assert unexplained == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("read_tokens", '[""]'),
        ("write_tokens", '["two words"]'),
        ("write_tokens", '["line\\n"]'),
        ("read_tokens", "secret"),
        ("cors_origins", '["https://viewer.example/"]'),
        ("cors_origins", '["viewer.example"]'),
        ("cors_origins", '["https://żółw.example"]'),
        ("trusted_proxies", '["nginx"]'),
        ("trusted_proxies", '["10.0.0.1/8"]'),
        ("root_path", "arrays"),
        ("root_path", "/a/../b"),
        ("root_path", "/a b"),
        ("idle_seconds", "inf"),
        ("shutdown_seconds", "inf"),
        ("stores__scans", ""),  # as of a variable that was meant to be set
    ],
)
def test_what_could_never_work_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"HYPERSLAB_{name.upper()}", value)

    with pytest.raises(BadSettings, match=f"(?i){name.replace('__', '.')}"):
        load()


def test_a_bad_value_is_looked_for_where_it_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a variable that Kubernetes makes for a Service which is called hyperslab."""
    file = tmp_path / "hyperslab.toml"
    file.write_text("port = 8000\nworkers = 0\n[stores.a]\nwritable = true\n", encoding="utf-8")
    monkeypatch.setenv("HYPERSLAB_PORT", "tcp://10.0.0.1:80")
    monkeypatch.setenv("HYPERSLAB_STORES__A__OPTIONS__REGION", "x")

    with pytest.raises(BadSettings) as caught:
        load(file, {"max_points": 0})

    origins = {part.partition(":")[0]: re.findall(r" \(in (.*)\)$", part) for part in str(caught.value).split("; ")}
    assert origins == {
        "port": ["the environment"], "workers": [str(file)], "stores.a.url": [str(file)], "max_points": []
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("trusted_proxies", ["127.0.0.1", "::1", "10.0.0.0/8"]),
        ("cors_origins", ["*", "null", "https://viewer.example", "http://localhost:3000", "http://[::1]:80"]),
    ],
)
def test_proxies_by_address_and_origins_as_browsers_send_them_are_taken(name: str, values: list[str]) -> None:
    assert getattr(load(overrides={name: values}), name) == values
    assert Settings(trusted_proxies=["10.0.0.1", "*"]).trusted_proxies == ["*"]


@pytest.mark.parametrize("url", ["memory://x", "simplecache::memory://x"])
def test_several_workers_write_to_no_store_of_which_each_has_its_own(url: str) -> None:
    """What one has stored the others would not find."""
    with pytest.raises(BadSettings, match="workers: the writable store 'm' is in memory"):
        load(overrides={"workers": 2, "stores": {"m": {"url": url, "writable": True}}})

    for settings in ({"workers": 1, "writable": True}, {"workers": 2, "writable": False}):
        store = {"url": url, "writable": settings["writable"]}
        assert load(overrides={"workers": settings["workers"], "stores": {"m": store}}).workers == settings["workers"]

"""The command line as a user meets it: what it prints, where, and with which exit code."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
import urllib.request
import webbrowser
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import zarr

from hyperslab import __version__
from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.tree import survey
from hyperslab.asgi import mount_stores
from hyperslab.cli import parse_stores, run
from hyperslab.demo import demo_folder
from hyperslab.settings import StoreSettings, load
from hyperslab.welcome import welcome
from tests.demos import demo_parent
from tests.documents import zarray
from tests.server import serving

COMMAND = [sys.executable, "-m", "hyperslab"]


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HYPERSLAB_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A group with one array, ``ramp``, of 0…99."""
    root = zarr.open_group(tmp_path / "scans.zarr", mode="w", zarr_format=2)
    ramp = root.create_array("ramp", shape=(100,), chunks=(30,), dtype="<i4")
    ramp[:] = np.arange(100)
    return tmp_path / "scans.zarr"


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return bytes(answer.read())


def only_line(text: str) -> str:
    (line,) = text.splitlines()
    return line


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"hyperslab {__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_every_command(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert run(arguments) == 0
    shown = capsys.readouterr().out
    assert shown.count("\n") > 8
    assert all(command in shown for command in ("serve", "check", "info", "tree", "open", "get", "put"))


def test_a_shell_completes_commands_and_options() -> None:
    for words, wanted in [("hyperslab ser", "serve"), ("hyperslab put --cr", "--create")]:
        asked = {"_HYPERSLAB_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        done = subprocess.run(COMMAND, capture_output=True, text=True, env={**os.environ, **asked}, check=False)
        assert wanted in done.stdout.split()


@pytest.mark.parametrize(
    ("text", "name", "url"),
    [
        ("/data/scans.zarr/", "scans", None),
        ("/data/scans", "scans", None),
        (".", "here", None),
        ("s3://bucket/lab/a.zarr", "a", None),
        ("s3://bucket", "bucket", None),
        ("lab=s3://bucket/a", "lab", "s3://bucket/a"),
        ("https://example.org/x/b.zarr?token=a/b", "b", None),
        ("zip:///data/c.zip", "c.zip", None),
        ("zip::c.zip", "c.zip", None),
        ("zip://inner/d.zarr::https://example.org/c.zip?key=x", "d", None),
        ("zip://::https://example.org/c.zip?key=x", "c.zip", None),
        ("/data/scan.zarr/|zarr2:", "scan", "/data/scan.zarr"),
        ("s3://lab/c.zarr|zarr3:a/b", "b", "s3://lab/c.zarr/a/b"),
        ("x=file:///data/|zarr2:/a/", "x", "file:///data/a"),
    ],
)
def test_a_store_is_named_before_an_equals_sign_or_after_the_end_of_its_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str, url: str | None
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    assert parse_stores([text], writable=False) == {name: {"url": url or text}}
    assert parse_stores([text], writable=True)[name]["writable"]
    assert StoreSettings(url=text.removeprefix("x=").removeprefix("lab=")).url == (url or text)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["serve", "/data/a.zarr", "/other/a"], 2, "two stores are named 'a'"),
        (["serve", "--prot", "1"], 2, "--prot"),
        (["serve", "--port", "x"], 2, "--port"),
        (["serve", "--port", "70000", "/data/a"], 2, ": port: Input should be less than or equal to 65535"),
        (["serve", "/"], 2, "as in NAME=/"),
        (["info", "http://127.0.0.1:9/v1/metadata/a"], 1, "127.0.0.1 port 9 cannot be reached"),
        (["serve", "--root-path", "arrays", "/data/a"], 2, "'arrays' is no prefix such as '/arrays'"),
        (["serve", "--config", "/nowhere.toml"], 2, "cannot read the configuration file '/nowhere.toml'"),
        (["serve", "/no/such/folder", "--get", "/v1/metadata"], 1, "store 'folder'"),
        (["serve", "/no/such/folder"], 1, "store 'folder': looked for a folder of Zarr arrays at /no/such/folder"),
        (["serve", "/usr/bim"], 1, "did you mean /usr/bin?"),
        (["info", "/no/such/folder"], 1, "at /no/such/folder"),
        (["get", "http://127.0.0.1:1/v1/metadata/a", "-o", "b.gif"], 1, ".npy, .csv, .json, .raw, .bin, .tif, .tiff"),
        (["put", "http://127.0.0.1:1/v1/metadata/a", "x.npy", "--create", "--select", "0"], 1, "no selection"),
        (["nonsense"], 2, "nonsense"),
        (["get"], 2, "URL"),
        (["get", "http://127.0.0.1:1/v1/metadata/a", "-o", "."], 1, "folder"),
        (["get", "http://127.0.0.1:1/v1/metadata/a", "-o", ""], 1, "folder"),
        (["get", "http://127.0.0.1:1/v1/metadata/a", "-o", "/"], 1, "folder"),
        (
            ["get", "http://127.0.0.1:1/v1/metadata/a", "-o", "/no/such/x.npy"],
            1,
            "'/no/such/x.npy': expected a file in",
        ),
    ],
)
def test_mistakes_are_one_sentence_and_never_a_traceback(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, says: str
) -> None:
    assert run(arguments) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert only_line(shown.err).startswith("hyperslab: ")
    assert says in shown.err


def test_writable_without_stores_is_refused_where_the_configuration_has_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "hyperslab.toml"
    config.write_text(f"[stores]\na = '{tmp_path}'\n")

    assert run(["serve", "--writable", "--config", str(config)]) == 2
    assert "stores.NAME.writable" in only_line(capsys.readouterr().err)


def test_one_request_is_answered_without_a_socket(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = "v1/slice/scans/ramp?select=5:8&format=json"  # the slash in front may be left out

    assert run(["serve", str(store), "--get", path]) == 0
    shown = capfd.readouterr()
    assert json.loads(shown.out) == [5, 6, 7]
    status, *headers = shown.err.splitlines()
    assert status == "200"
    assert "array-shape: [3]" in [header.lower() for header in headers]


def test_one_request_whose_body_cannot_be_ended_fails(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    values = np.arange(6 << 20, dtype="<i4")
    array = zarr.create_array(str(tmp_path / "long"), data=values, chunks=(1 << 20,), compressors=None, zarr_format=2)
    assert array.nbytes > 16 << 20
    (tmp_path / "long" / "5").write_bytes(b"short")

    assert run(["serve", f"data={tmp_path}", "--get", "/v1/slice/data/long"]) == 1
    shown = capfdbinary.readouterr()
    assert 0 < len(shown.out) < values.nbytes
    assert b"incomplete" in shown.err.splitlines()[-1]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_serve_get_fails_where_its_output_is_not_read_to_the_end(tmp_path: Path, unbuffered: str) -> None:
    zarr.create_array(str(tmp_path / "long"), shape=(4 << 20,), chunks=(1 << 20,), dtype="<i4", zarr_format=2)
    command = [*COMMAND, "serve", f"data={tmp_path}", "--get", "/v1/slice/data/long"]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.read(1)
        process.stdout.close()
        log = process.stderr.read()

    assert process.returncode == 1
    assert b"Traceback" not in log


@pytest.mark.parametrize(("command", "buffered"), [("get", True), ("version", False)])
def test_what_has_no_room_is_one_sentence(store: Path, command: str, buffered: bool) -> None:
    arguments = ["--version"] if command == "version" else ["serve", f"data={store}", "--get", "/v1/slice/data/ramp"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment
        )

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("hyperslab: [Errno 28]")
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def pack(store: Path) -> Path:
    """The store in an archive beside it."""
    return Path(shutil.make_archive(str(store), "zip", store))


@pytest.mark.parametrize(("prefix", "name"), [("zip::", "a.zip"), ("", "a.zip"), ("", "a.ozx"), ("file://", "a")])
def test_an_archive_is_served_by_its_content(
    store: Path, capfd: pytest.CaptureFixture[str], prefix: str, name: str
) -> None:
    packed = Path(pack(store)).rename(store.with_name(name))

    assert run(["serve", f"scans={prefix}{packed}", "--get", "/v1/slice/scans/ramp?select=:2&format=json"]) == 0
    assert json.loads(capfd.readouterr().out) == [0, 1]
    assert run(["serve", "--writable", f"scans={prefix}{packed}", "--get", "/v1"]) == 1
    assert "read-only" in only_line(capfd.readouterr().err)


@pytest.mark.parametrize(
    ("prefix", "said"), [("zip://", "zip::{}"), ("", "a file, and neither a folder nor a zip or tar archive")]
)
def test_a_file_that_cannot_be_served_is_told_why(
    store: Path, capsys: pytest.CaptureFixture[str], prefix: str, said: str
) -> None:
    packed = pack(store)
    if not prefix:
        Path(packed).write_bytes(b"text")

    assert run(["serve", f"{prefix}{packed}"]) == 1
    assert said.format(packed) in only_line(capsys.readouterr().err)


def test_one_request_that_is_refused_fails(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", str(store), "--get", "/v1/metadata/scans/nothing"]) == 1
    assert json.loads(capfd.readouterr().out)["code"] == "node-not-found"


def test_a_store_that_does_not_answer_is_no_reason_not_to_serve(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "http://127.0.0.1:9/a.zarr", "--get", "/v1"]) == 0
    assert "127.0.0.1:9" not in capfd.readouterr().err


def test_without_a_store_the_demo_is_served(tmp_path: Path, store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store.rename(demo_folder(tmp_path))

    assert run(["serve", "--demo-dir", str(tmp_path), "--get", "/v1/metadata/demo"]) == 0
    children = json.loads(capfd.readouterr().out)["children"]
    assert [child["name"] for child in children] == ["ramp"]


def test_check_prints_what_is_in_effect_and_hides_secrets(
    tmp_path: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "hyperslab.toml"
    config.write_text(f"write_tokens = ['hush']\nport = 81\n[stores]\nscans = '{store}'\n")

    assert run(["check", "--config", str(config)]) == 0
    shown = capsys.readouterr().out
    assert json.loads(shown)["port"] == 81
    assert json.loads(shown)["stores"]["scans"]["url"] == str(store)
    assert "hush" not in shown


@pytest.mark.parametrize(
    ("store", "says"),
    [
        ("gone = '/no/such/folder'", "store 'gone'"),
        ("scans = {url = 's3://lab', options = {region = 'r', secret_access_key = 'hidden'}}", "stores.scans.options"),
    ],
)
def test_check_fails_where_a_store_cannot_be_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], store: str, says: str
) -> None:
    config = tmp_path / "hyperslab.toml"
    config.write_text(f"[stores]\n{store}\n")

    assert run(["check", "--config", str(config)]) == 1
    line = only_line(capsys.readouterr().err)
    assert says in line
    assert "hidden" not in line


def test_a_port_that_is_taken_is_named(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        assert run(["serve", str(store), "--port", str(port)]) == 1
        assert f"cannot listen on 127.0.0.1 port {port}" in only_line(capsys.readouterr().err)


@pytest.fixture
def hung_up() -> Iterator[None]:
    """SIGHUP is not ignored, though the tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_serves_until_it_is_told_to_stop_and_then_ends_well(store: Path, workers: str) -> None:
    with serving(str(store), "--workers", workers, executed=workers != "1") as server:
        body = fetch(f"{server.url}/v1/slice/scans/ramp?select=90:")
        server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(timeout=300)

    np.testing.assert_array_equal(np.frombuffer(body, "<i4"), np.arange(90, 100))
    assert code == 0


@pytest.mark.usefixtures("hung_up")
def test_serves_with_as_many_open_files_as_it_may_until_its_terminal_is_gone(store: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))  # as a child inherits it
    try:
        with serving(str(store), executed=True) as server:
            found = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
            server.process.send_signal(signal.SIGHUP)
            code = server.process.wait(timeout=300)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert found == (65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536), hard)
    assert code == 0


def test_an_answer_that_has_begun_is_finished_after_being_told_to_stop(tmp_path: Path) -> None:
    size = 64 << 20
    zarr.create_array(tmp_path / "large.zarr", shape=(size,), chunks=(1 << 20,), dtype="|u1", zarr_format=2)
    with serving(str(tmp_path / "large.zarr")) as server:
        with urllib.request.urlopen(f"{server.url}/v1/slice/large", timeout=300) as body:
            begun = len(body.read(1000))
            server.process.send_signal(signal.SIGTERM)
            rest = len(body.read())
        code = server.process.wait(timeout=300)

    assert (begun + rest, code) == (size, 0)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("what", ["demo", "mixed", "objects", "empty", "tokens"])
def test_every_line_to_try_works(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    place = tmp_path / "a place's"
    place.mkdir()
    if what == "mixed":
        store.rename(place / "deep &.zarr")
    if what == "objects":
        (place / "t").mkdir()
        document = zarray(shape=[2], dtype="|O", filters=[{"id": "vlen-utf8"}])
        (place / "t/.zarray").write_text(json.dumps(document))
    if what == "tokens":
        monkeypatch.setenv("HYPERSLAB_READ_TOKENS", '["secret"]')
        monkeypatch.setenv("HYPERSLAB_TOKEN", "secret")
    arguments = (
        ["--demo-dir", str(demo_parent())] if what == "demo" else [f"data={store if what == 'tokens' else place}"]
    )
    with serving(*arguments) as server:
        lines = re.findall(r"^  (curl .*)$", server.log, re.MULTILINE)
        assert len(lines) == {"demo": 4, "mixed": 2, "tokens": 2}.get(what, 1)
        for line in lines:
            ran = ["sh", "-c", line.replace("curl ", "curl -fsS ", 1)]
            assert subprocess.run(ran, cwd=tmp_path, capture_output=True, timeout=300, check=True)


def test_says_what_it_found_and_what_it_skipped(tmp_path: Path, store: Path) -> None:
    (store / "deep/er/v3").mkdir(parents=True)
    (store / "deep/er/v3/zarr.json").write_text("{}")
    for name, text in {"broken": "{", "odd": json.dumps(zarray(dtype="nonsense"))}.items():
        (store / name).mkdir()
        (store / name / ".zarray").write_text(text)
    (store / "loop").symlink_to(store, target_is_directory=True)
    shown = welcome(load(None, {"stores": {"s": str(store), "empty": str(tmp_path / "x")}}), "http://h", demo=False)
    bounded = survey(Catalog([]), mount_stores(load(None, {"stores": {"s": str(store)}}))[0], seconds=-1)

    assert "1 array in 1 group" in shown
    assert "deep/er/v3/zarr.json: zarr_format: is missing" in shown
    assert "skipped 3: broken metadata (broken/.zarray: not JSON" in shown
    assert not bounded.whole
    assert next(bounded.lines()) == "at least 0 arrays in 0 groups"


def test_a_folder_without_arrays_says_what_was_looked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").touch()

    assert "no .zarray, .zgroup, .zmetadata or zarr.json" in welcome(
        load(None, {"stores": {"s": str(tmp_path)}}), "", demo=False
    )
    assert run(["info", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "no arrays and no groups"


def test_a_folder_is_described_without_a_service(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYPERSLAB_READ_TOKENS", '["of a service, and none runs here"]')
    monkeypatch.chdir(store.parent)

    assert run(["info", "scans.zarr/ramp"]) == 0
    array = capsys.readouterr().out
    assert run(["tree", str(store)]) == 0
    whole = capsys.readouterr().out
    assert run(["tree", str(store), "--level", "0"]) == 0

    assert "(100,)" in array
    assert re.search(r"^url +scans.zarr/ramp$", array, re.MULTILINE)
    assert whole.splitlines() == ["scans/", "└── ramp (100,) int32, 400 B"]
    assert capsys.readouterr().out.splitlines() == ["scans/"]


class Browser:
    """Notes what it is to show."""

    name = "graphical"

    def __init__(self) -> None:
        self.opened: list[str] = []

    def open(self, url: str) -> bool:
        self.opened.append(url)
        return True


@pytest.mark.parametrize("name", ["graphical", "/usr/bin/w3m", None])
def test_a_page_is_opened_where_there_is_a_browser_for_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str | None
) -> None:
    def get() -> Browser:
        if name is None:
            raise webbrowser.Error("could not locate runnable browser")
        return browser

    browser = Browser()
    browser.name = name or ""
    monkeypatch.setattr(webbrowser, "get", get)

    assert run(["open", "http://h:8000/lab/zarr/a/b c/"]) == 0
    assert run(["open", "http://h:8000/view/a?z=3"]) == 0

    expected = ["http://h:8000/lab/view/a/b%20c", "http://h:8000/view/a?z=3"]
    assert capsys.readouterr().out.splitlines() == expected
    assert browser.opened == (expected if name == "graphical" else [])


def test_a_folder_is_served_for_as_long_as_its_page_is_open(store: Path) -> None:
    command = [*COMMAND, "open", str(store)]
    environment = {**os.environ, "BROWSER": "echo opened %s"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment) as it:
        try:
            assert it.stdout
            url = next(line.split()[1] for line in it.stdout if line.startswith("opened "))
            page = fetch(url)
        finally:
            it.terminate()
    assert b"<html" in page
    assert it.returncode == 0


def test_info_is_shown_where_the_terminal_has_no_letters_for_it(store: Path) -> None:
    with serving(str(store)) as server:
        command = [*COMMAND, "info", f"{server.url}/v1/metadata/scans"]
        environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)

    assert done.stdout.splitlines() == ["scans/", "??? ramp (100,) int32, 400 B"]


def test_get_writes_to_stdout_what_a_pipe_wants(store: Path, tmp_path: Path) -> None:
    with serving(str(store)) as server:
        command = [*COMMAND, "get", f"{server.url}/v1/metadata/scans/ramp", "-o", "-"]
        whole = subprocess.run(command, capture_output=True, timeout=60, check=True, cwd=tmp_path)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as left:
            assert left.stdout
            left.stdout.close()
            assert left.stderr
            said = left.stderr.read()
        with Path(os.devnull).open() as unwritable:
            failed = subprocess.run(command, stdout=unwritable, stderr=subprocess.PIPE, timeout=60, check=False)

    assert np.load(io.BytesIO(whole.stdout)).tolist() == list(range(100))
    assert whole.stderr == b""
    assert said == b""
    assert left.returncode == 1
    assert only_line(failed.stderr.decode()).startswith("hyperslab: ")
    assert not (tmp_path / "-").exists()


def test_get_of_a_pages_url_is_the_plane_that_it_shows(tmp_path: Path) -> None:
    demo = demo_folder(demo_parent())
    brain, cells = (np.asarray(zarr.open_array(demo / name, mode="r")[:]) for name in ("brain", "microscope/0"))
    signal = zarr.open_array(demo / "signal", mode="r")[5:10]
    with serving(f"demo={demo}") as server:
        for query, expected in {
            "brain?z=42": brain[42],
            "brain?axes=z,x&y=7&smooth=1": brain[:, 7],
            "brain?field=": brain,
            "microscope?z=3&c=0&rescale=0,9": cells[0, 3],
            "microscope?sel=z:2&c=0&rescale=0,9&c=2&rescale=0,9": cells[[0, 2], 2],
            "microscope?view=image": cells[:, 6],
            "signal?range=5,9": signal,
            "brain?z=42&select=1,:3": brain[1, :3],
        }.items():
            assert run(["get", f"{server.url}/view/demo/{query}", "-o", str(tmp_path / "x.npy")]) == 0
            np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), expected, query)
        assert (
            run(["get", f"{server.url}/view/demo/signal?range=0,1", "-o", str(tmp_path / "x"), "--format", "csv"]) == 0
        )
    assert len((tmp_path / "x").read_text().split()) == 2


def test_put_creates_an_array_from_stdin(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = np.arange(6, dtype=">f4").reshape(2, 3)
    (tmp_path / "row.npy").write_bytes(_npy(values[0]))
    with serving(f"scans={store}", "--writable") as server:
        url = f"{server.url}/v1/metadata/scans/new/plane"
        command = [*COMMAND, "put", url, "-", "--create"]
        done = subprocess.run(command, input=_npy(values), capture_output=True, timeout=60, check=False)
        again = run(["put", url, str(tmp_path / "row.npy"), "--create"])
        rows = run(["put", url, str(tmp_path / "row.npy"), "--select", "1"])

    assert (done.returncode, done.stderr) == (0, b"")
    assert (again, rows) == (1, 0)
    stored = zarr.open_array(store / "new/plane", mode="r")
    assert stored.dtype == values.dtype
    np.testing.assert_array_equal(stored[:], values[[0, 0]])
    assert "already" in capsys.readouterr().err


def _npy(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def test_a_new_token_is_printed_alone_and_then_the_table_with_its_hash(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = ["--allow", "read,write", "--path", "lab/2026/**", "--path", "demo", "--expires", "90d"]
    assert run(["token", "new", "microscope", *rules]) == 0
    token, empty, header, *members = capsys.readouterr().out.splitlines()

    assert re.fullmatch("[A-Za-z0-9_.-]{24,}", token)
    assert (empty, header) == ("", "[tokens.microscope]")
    table = tomllib.loads("\n".join(members))
    assert table["hash"] == f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"
    assert (table["allow"], table["paths"]) == (["read", "write"], ["lab/2026/**", "demo"])
    assert 89 < (table["expires"] - datetime.now(UTC)).days + 1 <= 90
    config = tmp_path / "hyperslab.toml"
    config.write_text("\n".join([header, *members]))
    assert run(["token", "check", token, "--config", str(config)]) == 0
    assert capsys.readouterr().out.startswith("microscope: read, write at lab/2026/**, demo; until 20")
    assert run(["token", "check", "--config", str(config)]) == 0
    assert token not in capsys.readouterr().out
    assert run(["token", "check", f"{token}x", "--config", str(config)]) == 1
    assert only_line(capsys.readouterr().err) == "hyperslab: no such token"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--allow", "read,all"], "'all' is no action"),
        (["--path", "lab/a*"], "'lab/a*'"),
        (["--expires", "soon"], "'soon' is no duration"),
    ],
)
def test_a_token_that_cannot_be_is_refused(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["token", "new", "anna", *arguments]) == 2
    assert says in only_line(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tokens.a]\nhash = 'sha256:12'", "tokens.a.hash"),
        ("[tokens.a]\nallow = ['read']", "tokens.a.hash"),
        ("anonymous = {allow = ['all']}", "anonymous.allow"),
        ("anonymous = {paths = ['a/b*']}", "anonymous.paths"),
        ("tokens_file = '/no/such/file'", "tokens_file"),
        ("link_keys = {'a b' = 'x'}", "link_keys"),
        ("[identity]\nissuer = 'here'\naudience = 'x'", "identity.issuer"),
    ],
)
def test_rules_that_cannot_be_are_refused_with_their_names(
    tmp_path: Path, text: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "hyperslab.toml"
    config.write_text(text)
    assert run(["check", "--config", str(config)]) == 2
    assert says in only_line(capsys.readouterr().err)


def test_a_served_application_lets_no_thread_hold_the_lock_for_five_milliseconds(tmp_path: Path) -> None:
    """Each system call of a small request waits as long for a thread that runs Python beside it."""
    program = (
        "import sys; from hyperslab.server import application; from hyperslab.settings import Settings\n"
        f"application(Settings(stores={{'data': {{'url': {str(tmp_path)!r}}}}})); print(sys.getswitchinterval())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(done.stdout) <= 0.001

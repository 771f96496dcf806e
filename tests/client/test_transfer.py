from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperslab import RemoteArray, errors, wire
from hyperslab.__main__ import main
from hyperslab.client.transfer import describe, download, upload
from tests.client.proxy import Proxy
from tests.faults import Before, Status, Truncate

VALUES = np.arange(40 * 50, dtype="<u2").reshape(40, 50)


@pytest.fixture
def url(proxy: Proxy, no_waiting: list[float]) -> str:  # noqa: ARG001 - nobody wants to wait here
    return proxy.add("store/a", VALUES, (10, 10), attributes={"unit": "mm", "name": "ü"})


def test_the_suffix_says_the_form_and_the_url_what_to_take(proxy: Proxy, url: str, tmp_path: Path) -> None:
    download(url, tmp_path / "x.npy", select="::2,[1,5]", progress=False)
    download(url, tmp_path / "x.raw", progress=False)
    download(url, tmp_path / "x.json", select="0", progress=False)
    download(url.replace("metadata", "slice") + "?select=3,4:9", tmp_path / "y.npy", progress=False)

    assert np.array_equal(np.load(tmp_path / "x.npy"), VALUES[::2, [1, 5]])
    assert (tmp_path / "x.raw").read_bytes() == VALUES.tobytes()
    assert json.loads((tmp_path / "x.json").read_text()) == VALUES[0].tolist()
    assert np.array_equal(np.load(tmp_path / "y.npy"), VALUES[3, 4:9])
    assert [call.query["format"] for call in proxy.calls_of("slice")] == ["npy", "raw", "json", "npy"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.json", "x.npy", "x.raw", "y.npy"]


def interrupt(proxy: Proxy, url: str, output: Path) -> None:
    """A download that stops after 1000 bytes."""
    proxy.fail(Truncate(1000))
    proxy.fail(Truncate(0), times=20)
    with pytest.raises(Exception, match=r"(?i)incomplete|broken|ended"):
        download(url, output, progress=False)
    proxy.heal()


def test_an_interrupted_download_is_resumed_when_started_again(proxy: Proxy, url: str, tmp_path: Path) -> None:
    output = tmp_path / "x.npy"
    interrupt(proxy, url, output)
    assert not output.exists()

    download(url, output, progress=False)

    assert np.array_equal(np.load(output), VALUES)
    (call,) = proxy.calls_of("slice")
    assert call.headers["Range"] == "bytes=1000-"
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


def test_what_another_download_left_behind_is_not_resumed(proxy: Proxy, url: str, tmp_path: Path) -> None:
    output = tmp_path / "x.npy"
    interrupt(proxy, url, output)
    download(url, output, select="5:", progress=False)
    assert np.array_equal(np.load(output), VALUES[5:])

    interrupt(proxy, url, output)
    proxy.increment("store/a")
    download(url, output, progress=False)
    assert np.array_equal(np.load(output), VALUES + 1)


def test_a_download_that_had_all_its_bytes_is_finished(proxy: Proxy, url: str, tmp_path: Path) -> None:
    output = tmp_path / "x.npy"
    interrupt(proxy, url, output)
    download(url, tmp_path / "whole.npy", progress=False)
    (tmp_path / "x.npy.part").write_bytes((tmp_path / "whole.npy").read_bytes())

    download(url, output, progress=False)

    assert np.array_equal(np.load(output), VALUES)


@pytest.mark.parametrize("note", ["{", "[]", '{"url": 1}', '{"url": "URL", "etag": 5}'])
def test_an_unreadable_note_beside_a_partial_file_is_no_reason_to_fail(url: str, tmp_path: Path, note: str) -> None:
    (tmp_path / "x.npy.part").write_bytes(b"rubbish")
    (tmp_path / "x.npy.part.json").write_text(note.replace("URL", url.replace("metadata", "slice") + "?format=npy"))

    download(url, tmp_path / "x.npy", progress=False)

    assert np.array_equal(np.load(tmp_path / "x.npy"), VALUES)


def test_a_link_stays_and_its_file_is_replaced(url: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "x.npy").write_text("old")
    (tmp_path / "link.npy").symlink_to("there/x.npy")
    (tmp_path / "new.npy").symlink_to("there/y.npy")

    for name in ("link.npy", "new.npy"):
        download(url, tmp_path / name, progress=False)

        assert (tmp_path / name).is_symlink()
        assert np.array_equal(np.load(tmp_path / name), VALUES)
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == ["x.npy", "y.npy"]


@contextmanager
def reading(pipe: Path) -> Iterator[BytesIO]:
    """Somebody at the other end of a pipe, and what came out of it by the end."""
    os.mkfifo(pipe)
    found = BytesIO()
    reader = threading.Thread(target=lambda: found.write(pipe.read_bytes()), daemon=True)
    reader.start()
    yield found
    reader.join(timeout=60)


@pytest.mark.parametrize("through_a_link", [False, True])
def test_a_pipe_gets_the_bytes_and_stays_a_pipe(proxy: Proxy, url: str, tmp_path: Path, through_a_link: bool) -> None:
    output = pipe = tmp_path / "pipe"
    if through_a_link:
        output = tmp_path / "link"
        output.symlink_to(pipe)
    proxy.fail(Truncate(1000))  # what breaks within one download is resumed there too

    with reading(pipe) as found:
        download(url, output, progress=False)

    assert np.array_equal(np.load(BytesIO(found.getvalue())), VALUES)
    assert pipe.is_fifo()
    assert {path.name for path in tmp_path.iterdir()} == {output.name, "pipe"}


def test_a_pipe_cannot_start_over(proxy: Proxy, url: str, tmp_path: Path) -> None:
    proxy.fail(Truncate(1000), Before(proxy.increment))

    with reading(tmp_path / "pipe") as found, pytest.raises(errors.ArrayChanged):
        download(url, tmp_path / "pipe", progress=False)
    assert len(found.getvalue()) == 1000


def test_a_link_to_an_open_file_leads_to_its_end(url: str, tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        file.write(b"before")
        file.flush()

        download(url, Path(f"/proc/self/fd/{file.fileno()}"), progress=False)

    assert (tmp_path / "log").read_bytes().startswith(b"before\x93NUMPY")
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_standard_output_gets_the_bytes_unless_it_is_closed(
    url: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    download(url, Path("-"), progress=False)
    assert np.array_equal(np.load(BytesIO(capfdbinary.readouterr().out)), VALUES)

    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(OSError, match="stdout is closed"):
        download(url, Path("-"), progress=False)


def test_what_cannot_be_written_or_read_is_refused_before_anything_is_asked_for(
    proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("link").symlink_to("folder")

    for name in ("folder", "link", ".", "", "/"):
        with pytest.raises(errors.BadParameter, match="folder"):
            download(f"{proxy.url}/v1/metadata/store/a", Path(name), progress=False)
    with pytest.raises(errors.BadSelection):
        download(f"{proxy.url}/zarr/store/a", tmp_path / "x.npy", select="0:1:2:3", progress=False)
    assert not proxy.calls
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "link"}


def test_progress_counts_every_byte_once(proxy: Proxy, url: str, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    proxy.fail(Truncate(1000))

    download(url, tmp_path / "x.raw", progress=lambda done, total: told.append((done, total)))

    assert told[-1] == (VALUES.nbytes, VALUES.nbytes)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_a_bar_is_drawn_on_stderr(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    download(url, tmp_path / "x.npy", progress=True)

    out, err = capsys.readouterr()
    assert "x.npy" in err
    assert out == ""


def test_an_answer_of_something_else_is_no_download(proxy: Proxy, url: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    page = Status(200, b"<h1>Sign in</h1>", {"Content-Type": "text/html"})
    for output in ("x.npy", "pipe"):
        for answer, says in ((page, "found text/html"), (Status(204), "found")):
            proxy.fail(answer)

            with pytest.raises(errors.RemoteProblem, match=f"expected values of an array, {says}"):
                download(url, tmp_path / output, progress=False)
    assert not (tmp_path / "x.npy").exists()


def test_a_token_that_no_header_can_hold_is_refused_and_not_shown(url: str, tmp_path: Path) -> None:
    for token in ("s3\ncret", "s3cret\0", "s3cr✓t"):
        for use in (describe, lambda url, token: download(url, tmp_path / "x", token=token, progress=False)):
            with pytest.raises(errors.BadParameter, match="expected printable ASCII") as caught:
                use(url, token=token)
            assert "s3" not in str(caught.value)


def test_what_comes_out_of_a_pipe_is_uploaded(proxy: Proxy, url: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    file = BytesIO()
    np.save(file, VALUES[::-1])
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(file.getvalue(),), daemon=True)
    writer.start()

    upload(tmp_path / "pipe", url, progress=False)

    writer.join(timeout=60)
    assert np.array_equal(proxy.values("store/a"), VALUES[::-1])


def test_the_url_says_where_a_file_goes(proxy: Proxy, url: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full(50, 7, "<u2"))
    proxy.add("store/r", np.zeros(3, [("q", "<i4"), ("p", "<i4")]), (3,))
    np.save(tmp_path / "q.npy", np.array([5], "<i4"))

    upload(tmp_path / "x.npy", url + "?select=3", progress=False)
    upload(tmp_path / "x.npy", url + "?select=4", select="4", progress=False)
    upload(tmp_path / "q.npy", f"{proxy.url}/v1/slice/store/r?field=q&select=1:2", progress=False)

    upload(tmp_path / "x.npy", url, select="[6,8]", progress=False)

    assert (proxy.values("store/a")[[3, 4, 6, 8]] == 7).all()
    assert np.array_equal(np.delete(proxy.values("store/a"), [3, 4, 6, 8], 0), np.delete(VALUES, [3, 4, 6, 8], 0))
    assert proxy.values("store/r").tolist() == [(0, 0), (5, 0), (0, 0)]


def test_a_url_and_an_option_that_differ_are_refused(proxy: Proxy, url: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full(50, 7, "<u2"))
    for name, given, other in (("select", "3", "4"), ("field", "x", "y")):
        option: Any = {name: other}
        with pytest.raises(errors.BadParameter, match="in the URL or as an argument"):
            upload(tmp_path / "x.npy", f"{url}?{name}={given}", progress=False, **option)
        with pytest.raises(errors.BadParameter, match="in the URL or as an argument"):
            download(f"{url}?{name}={given}", tmp_path / "y.npy", progress=False, **option)
    assert not proxy.calls_of("slice", "PUT")
    assert not proxy.calls_of("slice")


def test_a_file_that_does_not_fit_or_is_no_npy_is_named(url: str, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("hello")
    np.savez(tmp_path / "x.npz", VALUES)
    for i, values in enumerate([np.zeros((3, 3), "<u2"), np.full((40, 50), 1.5), np.full((40, 50), -1)]):
        np.save(tmp_path / f"x{i}.npy", values)

    for name in ("x.txt", "x.npz", "x0.npy", "x1.npy", "x2.npy"):
        with pytest.raises(errors.BadBody, match=name) as caught:
            upload(tmp_path / name, url, progress=False)
        assert "allow_pickle" not in str(caught.value)  # there is no such option here


def test_an_array_is_described_for_people(url: str) -> None:
    text = describe(url)

    for words in ("store/a", "(40, 50)", "uint16", "(10, 10)", "3.9 KiB", '"unit": "mm"', "ü"):
        assert words in text


def test_what_needs_a_library_is_described_without_it(
    proxy: Proxy, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    brief = proxy.add("store/b", np.zeros((4, 5), wire.dtype_from_json("bfloat16")), (2, 5), attributes={"unit": "K"})
    np.save(tmp_path / "x.npy", np.zeros((4, 5)))
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)

    assert describe(f"{proxy.url}/v1/metadata/store").splitlines()[:3] == [
        "store/",
        "├── a (40, 50) uint16, 3.9 KiB",
        "└── b (4, 5) bfloat16",
    ]
    for words in ("store/b", "(4, 5)", "bfloat16, whose values need ml_dtypes", '"unit": "K"'):
        assert words in describe(brief)
    with pytest.raises(ModuleNotFoundError, match="pip install ml_dtypes"):
        RemoteArray(brief)
    assert RemoteArray(url).shape == (40, 50)
    monkeypatch.setattr("sys.argv", ["hyperslab", "put", brief, str(tmp_path / "x.npy")])
    assert main() == 1
    assert "pip install ml_dtypes" in capsys.readouterr().err


def test_a_group_is_described_as_a_tree(proxy: Proxy, url: str) -> None:  # noqa: ARG001
    proxy.root["store"].attrs["title"] = "mine"

    assert describe(f"{proxy.url}/v1/metadata/store").splitlines() == [
        "store/",
        "└── a (40, 50) uint16, 3.9 KiB",
        "attributes",
        '  "title": "mine"',
    ]

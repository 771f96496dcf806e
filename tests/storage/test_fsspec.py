"""What fsspec opens."""

from __future__ import annotations

import shutil
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import fsspec  # type: ignore[import-untyped]
import pytest
from typing_extensions import override

from hyperslab import errors
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import Entry
from tests.storage.support import PlainFiles, Quiet, serve


class FailingFileSystem(PlainFiles):
    """Files that are there, but every read fails in the way a test wants."""

    protocol = "failing"
    error: ClassVar[Exception] = OSError("boom")

    @override
    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
        raise self.error


class SizelessFiles(PlainFiles):
    """Tells no sizes, as a web server without ``Content-Length``."""

    protocol = "sizeless"

    @override
    def info(self, path: str, **_: object) -> dict[str, object]:
        return {**super().info(path), "size": None}


def test_values_of_unknown_size_are_read_in_part_all_the_same(tmp_path: Path) -> None:
    fsspec.register_implementation("sizeless", SizelessFiles, clobber=True)
    (tmp_path / "k").write_bytes(b"0123456789")
    store = open_store(StoreConfig("sizeless", f"sizeless://{tmp_path}"))

    assert store.get_ranges("k", [(2, 4), (7, 99)]) == [b"23", b"789"]
    for part in (store.get_part("k", 7, 9), store.get_part("k", 0, 99), store.get_end("k", 3)):
        assert part is not None
        assert bytes(part.between(7, 9)) == b"78"
    with pytest.raises(errors.StoredTooLarge):
        store.get("k", 9)


class TimelessFiles(PlainFiles):
    """Tells neither times nor tags."""

    protocol = "timeless"

    @override
    def info(self, path: str, **_: object) -> dict[str, object]:
        return {name: value for name, value in super().info(path).items() if name not in ("created", "mtime")}


def test_where_nothing_tells_versions_apart_they_are_digests_of_the_content(tmp_path: Path) -> None:
    fsspec.register_implementation("timeless", TimelessFiles, clobber=True)
    (tmp_path / "k").write_bytes(b"0123")
    (tmp_path / "same").write_bytes(b"0123")
    store = open_store(StoreConfig("timeless", f"timeless://{tmp_path}"))

    first, same = store.versions("", ["k", "same"])
    (tmp_path / "k").write_bytes(b"3210")

    assert first == same
    assert [first] != store.versions("", ["k"])


def test_the_end_of_a_value_that_grows_meanwhile_is_that_of_one_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec.register_implementation("plainfiles", PlainFiles, clobber=True)
    (tmp_path / "k").write_bytes(b"0123")
    store = open_store(StoreConfig("plain", f"plainfiles://{tmp_path}"))
    stat = store.stat

    def growing(key: str) -> Entry | None:
        entry = stat(key)
        if entry is not None and entry.size == 4:
            (tmp_path / "k").write_bytes(b"01234567")
        return entry

    monkeypatch.setattr(store, "stat", growing)
    part = store.get_end("k", 3)

    assert part is not None
    assert (part.entry.size, bytes(part.data)) == (8, b"567")


class TestFailures:
    """What a library raises is never absence and never shown."""

    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            (OSError("token=secret"), errors.StoreError),
            (PermissionError(13, "secret"), errors.StoreDenied),
            (OSError(28, "No space left on device"), errors.StoreFull),
            (TimeoutError("secret"), errors.StoreTimeout),
            (RuntimeError("secret"), errors.StoreError),
            (FileNotFoundError("it was listed a moment ago"), errors.StoreError),
        ],
        ids=str,
    )
    def test_reading_what_is_there_but_fails_is_a_failure(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[errors.StoreError]
    ) -> None:
        fsspec.register_implementation("failing", FailingFileSystem, clobber=True)
        monkeypatch.setattr(FailingFileSystem, "error", error)
        (tmp_path / "k").write_bytes(b"1")
        store = open_store(StoreConfig("failing", f"failing://{tmp_path}"))

        with pytest.raises(kind) as failed:
            store.get("k")

        assert "secret" not in str(failed.value)

    def test_an_archive_that_is_no_store_is_a_failure(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "good.zip", "w") as archive:
            archive.writestr("data/k", b"1")
        (tmp_path / "broken.zip").write_bytes(b"not a zip")

        for name in ("missing", "broken"):
            with pytest.raises(errors.StoreError):
                open_store(StoreConfig("zip", f"zip://::file://{tmp_path}/{name}.zip"))
        with pytest.raises(errors.BadDefinition, match="read-only"):
            open_store(StoreConfig("zip", f"zip://::file://{tmp_path}/good.zip", writable=True))
        store = open_store(StoreConfig("zip", f"zip://date::file://{tmp_path}/good.zip"))  # a folder that is not in it
        for read in (
            lambda: store.get("k"),
            lambda: store.versions("", ["k"]),
            lambda: store.list_dir(""),
            store.check,
        ):
            with pytest.raises(errors.StoreError, match="root"):
                read()


class TestConfiguration:
    """What can be said, and what is said back."""

    def test_options_reach_the_file_system_and_secrets_stay_inside(self) -> None:
        with pytest.raises(errors.BadDefinition, match="nosuch"):
            open_store(StoreConfig("x", "nosuch://somewhere"))
        with pytest.raises(errors.BadDefinition) as refused:
            open_store(StoreConfig("x", "sftp://me:secret@127.0.0.1/data", options={"port": "1", "password": "hidden"}))

        assert "secret" not in str(refused.value)
        assert "hidden" not in str(refused.value)


class TestRedirects:
    """An archive on a web server, behind a redirect: the same rule as for the server itself."""

    @pytest.fixture
    def archive(self, tmp_path: Path) -> bytes:
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            archive.writestr("k", b"of another")
        return (tmp_path / "a.zip").read_bytes()

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
    def test_only_those_within_the_origin_are_followed(self, archive: bytes, tmp_path: Path, host: str) -> None:
        asked: list[str] = []

        class Server(Quiet):
            @override
            def do_GET(self) -> None:
                asked.append(f"{self.headers['Host'].partition(':')[0]}{self.path}")
                port = self.headers["Host"].partition(":")[2]
                wanted = self.headers.get("Range", "bytes=0-999999")[6:].split("-")
                part = {"Accept-Ranges": "bytes", "Content-Range": f"bytes {'-'.join(wanted)}/{len(archive)}"}
                status = 302 if self.path == "/a.zip" else 206 if "Range" in self.headers else 200
                location = f"http://{host}:{port}/b.zip"
                self.answer(status, archive[int(wanted[0]) : int(wanted[1]) + 1], {"Location": location, **part})

            do_HEAD = do_GET  # noqa: N815  (the base class looks for it)

        for url in serve(Server, tmp_path / "root"):
            config = StoreConfig("zip", f"zip://::{url}/a.zip")
            if host == "127.0.0.1":
                stored = open_store(config).get("k")
                assert stored is not None
                assert stored.data == b"of another"
            else:
                with pytest.raises(errors.StoreError):
                    open_store(config)
                assert set(asked) == {"127.0.0.1/a.zip"}


@pytest.mark.parametrize("form", ["tar", "gztar", "zip", "filecache"])
def test_each_reader_gets_its_own_value_however_many_read(tmp_path: Path, form: str) -> None:
    values = {f"{number:03}": bytes([number]) * 20_000 for number in range(200)}
    (tmp_path / "root").mkdir()
    for key, value in values.items():
        (tmp_path / "root" / key).write_bytes(value)
    url = f"filecache::file://{tmp_path / 'root'}"
    if form != "filecache":
        url = shutil.make_archive(str(tmp_path / "a"), form, tmp_path / "root")
    store = open_store(StoreConfig("x", url))

    with ThreadPoolExecutor(8) as pool:
        stored = [*pool.map(store.get, values)]

    assert [value and bytes(value.data) for value in stored] == [*values.values()]


_FORMATS = {"a.tar": "tar", "a.tar.gz": "gztar", "a.tar.bz2": "bztar", "a.tar.xz": "xztar"}


@pytest.mark.parametrize("name", [*_FORMATS, "a.zip"])
def test_an_archive_of_the_folder_that_one_is_in_has_the_keys_of_that_folder(tmp_path: Path, name: str) -> None:
    """``tar cf a.tar .`` and `shutil.make_archive` name its members ``./g/.zgroup``."""
    (tmp_path / "root" / "g").mkdir(parents=True)
    (tmp_path / "root" / "g" / ".zgroup").write_bytes(b"1")
    if name == "a.zip":
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.write(tmp_path / "root" / "g" / ".zgroup", "./g/.zgroup")
    else:
        shutil.make_archive(str(tmp_path / "a"), _FORMATS[name], tmp_path / "root")
    kind = "zip" if name == "a.zip" else "tar"

    unnamed = (tmp_path / name).rename(tmp_path / "b")
    assert [entry.key for entry in open_store(StoreConfig("x", str(unnamed))).list_prefix("")] == ["g/.zgroup"]
    unnamed.rename(tmp_path / name)
    for url, prefix in ((f"{kind}::{tmp_path / name}", "g/"), (f"{kind}://g::{tmp_path / name}", "")):
        store = open_store(StoreConfig("x", url))
        assert [entry.key for entry in store.list_prefix("")] == [f"{prefix}.zgroup"]
        assert store.get(f"{prefix}.zgroup") is not None

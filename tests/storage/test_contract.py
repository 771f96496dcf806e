"""What every store must do, whatever kind it is."""

from __future__ import annotations

import json
import math
import random
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import fsspec  # type: ignore[import-untyped]
import pytest

from hyperslab.errors import ReadOnly, StoredTooLarge
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import ABSENT, Store, VersionConflict
from tests.faults import DropHeaders, FaultProxy
from tests.s3 import S3Bucket, S3Server
from tests.storage.support import Bare, PlainFiles, Quiet, fill, fill_bucket, serve, value_of
from tests.storage.workers import increment

Values = Mapping[str, bytes]
Opened = Callable[[Values], Store]
"""Opens a new store that holds these values."""

READABLE = (
    "folder", "bucket", "prefix", "google", "memory", "zip", "folder in zip", "plain files",
    "file server", "bare server", "public bucket",
)  # fmt: skip
LISTABLE = READABLE[:-2]
LISTS_VERSIONS = tuple(kind for kind in LISTABLE if kind != "google")  # its listings name no generations
WRITABLE = ("folder", "bucket", "bucket without conditions", "google", "memory", "plain files")
ATOMIC = ("folder", "bucket", "google", "memory", "plain files")
READ_ONLY = ("read-only folder", "read-only bucket", "zip", "file server")


class Kinds:
    """Opens a filled store of each kind."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        self._request = request
        self._folder = folder

    def open(self, kind: str, values: Values) -> Store:
        """A store of a kind; those that differ little share a way."""
        kind, read_only = kind.removeprefix("read-only "), kind.startswith("read-only")
        if kind == "folder":
            fill(self._folder, values)
            config = StoreConfig("disk", str(self._folder), writable=not read_only, durability="rename")
        elif kind == "plain files":
            fsspec.register_implementation("plainfiles", PlainFiles, clobber=True)
            fill(self._folder, values)
            config = StoreConfig("plain", f"plainfiles://{self._folder}", writable=True)
        elif kind.endswith("zip"):
            config = self._zip("data/base/" if kind == "folder in zip" else "", values)
        elif kind.endswith("server"):
            fill(self._folder, values)
            url = self._request.getfixturevalue("bare_server" if kind == "bare server" else "file_server")
            config = StoreConfig("web", url, timeout=60.0, retries=1)
        elif kind == "memory":
            return _put_all(StoreConfig("memory", f"memory://{uuid4().hex}/base", writable=True), values)
        else:
            return self._bucket(kind, values, writable=not read_only)
        return open_store(config)

    def _zip(self, base: str, values: Values) -> StoreConfig:
        with zipfile.ZipFile(self._folder / "a.zip", "w") as archive:
            for key, value in values.items():
                archive.writestr(base + key, value)
            archive.writestr("data/basement", b"x") if base else None
        return StoreConfig("zip", f"zip://{base.rstrip('/')}::file://{self._folder}/a.zip")

    def _bucket(self, kind: str, values: Values, *, writable: bool) -> Store:
        server: S3Server = self._request.getfixturevalue("s3_server")
        bucket: S3Bucket = self._request.getfixturevalue("s3_bucket")
        if kind == "google":
            account = {"client_email": "x", "private_key": "", "private_key_id": "", "disable_oauth": True}
            key = json.dumps({**account, "gcs_base_url": server.url})
            options = {"allow_http": "true", "service_account_key": key}
            config = StoreConfig(
                "google", f"gs://{bucket.name}", writable=True, timeout=60.0, retries=2, options=options
            )
            return _put_all(config, values)
        if kind == "public bucket":
            fill_bucket(server, bucket, values, ACL="public-read")
            return open_store(StoreConfig("web", f"{server.url}/{bucket.name}", timeout=60.0, retries=1))
        fill_bucket(server, bucket, values, "some/base/" if kind == "prefix" else "")
        if kind == "prefix":
            fill_bucket(server, bucket, {"some/basement": b"x", "some/other/x": b"x", "x": b"x"})
            return open_store(bucket.config(writable=True, url=f"{bucket.url}/some/base/"))
        if kind == "bucket without conditions":
            bucket = bucket.at(self._request.getfixturevalue("ignorant_proxy").url)
        return open_store(bucket.config(writable=writable))


def _put_all(config: StoreConfig, values: Values) -> Store:
    store = open_store(config)
    for key, value in values.items():
        store.put(key, value)
    return store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def file_server(root: Path) -> Iterator[str]:
    yield from serve(Quiet, root)


@pytest.fixture
def bare_server(root: Path) -> Iterator[str]:
    yield from serve(Bare, root)


@pytest.fixture
def ignorant_proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    """In front of a server that does not know of conditions: the process compares."""
    with FaultProxy(s3_server.url) as proxy:
        proxy.inject(DropHeaders(("If-Match", "If-None-Match")), times=math.inf)
        yield proxy


@pytest.fixture
def opened(request: pytest.FixtureRequest, root: Path) -> Opened:
    kinds, kind = Kinds(request, root), str(request.param)
    return lambda values: kinds.open(kind, values)


ODD_KEYS = ("...", "a/...", ".foo", "foo..bar", "a b/ c ", "%2e%2e/x", "a+b&c=d", "naïve/日本", "a#b?c", "x~{y}[z]'\"")


@pytest.mark.parametrize("opened", READABLE, indirect=True)
class TestReading:
    """Reading by key."""

    def test_a_value_is_read_whole_with_the_version_that_stat_knows(self, opened: Opened) -> None:
        store = opened({"a/0.0": b"value"})

        stored, entry = store.get("a/0.0"), store.stat("a/0.0")

        assert stored is not None
        assert bytes(stored.data) == b"value"
        assert entry is not None
        assert (entry.key, entry.size) == ("a/0.0", 5)
        assert entry.modified >= 0
        assert [stored.version, entry.version] == 2 * store.versions("a/", ["a/0.0"])

    def test_of_a_value_larger_than_the_limit_nothing_is_read(self, opened: Opened) -> None:
        store = opened({"a/0.0": b"value"})

        assert store.get("a/0.0", 5) is not None
        for read in (lambda: store.get("a/0.0", 4), lambda: store.get_each(["a/no", "a/0.0"], 4)):
            with pytest.raises(StoredTooLarge) as refused:
                read()
            assert (refused.value.key, refused.value.size, refused.value.limit) == ("a/0.0", 5, 4)
        assert store.get("a/0.0") is not None

    @pytest.mark.parametrize("key", ["nothing", "a/nothing", "a", "a/0.0/below", "b/c/d"])
    def test_what_is_not_there_is_absent(self, opened: Opened, key: str) -> None:
        store = opened({"a/0.0": b"value", "ab/x": b"other"})

        assert store.get(key) is None
        assert store.get_ranges(key, [(0, 1), (3, 4)]) is None
        assert store.get_ranges(key, []) is None
        assert store.get_part(key, 0, 10) is None
        assert store.get_part(key, 5, 10) is None
        assert store.stat(key) is None
        assert store.versions("", [key]) == [None]

    @pytest.mark.parametrize(("start", "stop"), [(0, 4), (0, 10), (0, 99), (3, 7), (9, 99), (10, 11), (50, 60)])
    def test_a_part_comes_with_what_stat_tells(self, opened: Opened, start: int, stop: int) -> None:
        value = b"0123456789"
        store = opened({"a/0.0": value})

        part = store.get_part("a/0.0", start, stop)

        assert part is not None
        assert part.entry == store.stat("a/0.0")
        assert bytes(part.between(start, stop)) == value[start:stop]
        assert bytes(part.data) == value[part.start :][: len(part.data)]
        assert store.get_ranges("a/0.0", [(3, 5)], part.entry.version) is not None

    @pytest.mark.parametrize("nbytes", [1, 4, 10, 99])
    def test_the_end_comes_with_what_stat_tells(self, opened: Opened, nbytes: int) -> None:
        value = b"0123456789"
        store = opened({"a/0.0": value})

        part = store.get_tail("a/0.0", nbytes)

        assert part is not None
        assert part.entry == store.stat("a/0.0")
        assert bytes(part.between(max(0, 10 - nbytes), 10)) == value[-nbytes:]
        assert store.get_tail("a/0.1", nbytes) is None

    def test_a_part_of_an_empty_value_is_not_absence(self, opened: Opened) -> None:
        store = opened({"empty": b""})

        part, end = store.get_part("empty", 0, 1000), store.get_tail("empty", 1000)

        assert part is not None
        assert end is not None
        assert (end.entry, bytes(end.data)) == (part.entry, b"")
        assert (part.entry, bytes(part.data)) == (store.stat("empty"), b"")

    def test_several_values_come_in_the_order_asked_for(self, opened: Opened) -> None:
        store = opened({"a": b"1", "b/c": b"22", "empty": b""})
        keys = ["b/c", "nothing", "empty", "a", "b/c"]

        assert store.get_each(keys) == [store.get(key) for key in keys]
        assert store.get_each([]) == []

    def test_an_empty_value_is_not_absence(self, opened: Opened) -> None:
        store = opened({"empty": b""})

        stored = store.get("empty")

        assert stored is not None
        assert bytes(stored.data) == b""
        assert [bytes(part) for part in store.get_ranges("empty", [(0, 1), (0, 0)]) or ()] == [b"", b""]

    def test_a_big_value_comes_whole_and_in_part(self, opened: Opened) -> None:
        value = random.Random(1).randbytes(3_000_001)
        store = opened({"big": value})

        stored, part = store.get("big"), store.get_part("big", 0, 1 << 20)

        assert stored is not None
        assert bytes(stored.data) == value
        assert part is not None
        assert part.entry.size == len(value)
        assert bytes(part.between(0, 1 << 20)) == value[: 1 << 20]

    def test_ranges_equal_slices_of_the_value(self, opened: Opened) -> None:
        value = random.Random(2).randbytes(1_200_000)
        store = opened({"v": value})
        chance = random.Random(3)
        starts = [chance.choice([0, 1, 5, 599_999, 1_199_999, 1_200_000, 1_300_000]) for _ in range(12)]
        ranges = [(start, start + chance.choice([0, 1, 17, 700_000])) for start in starts]

        parts = store.get_ranges("v", ranges)

        assert parts is not None
        assert [bytes(part) for part in parts] == [value[start:stop] for start, stop in ranges]

    def test_ranges_of_another_version_are_refused(self, opened: Opened) -> None:
        store = opened({"v": b"0123456789"})
        version = store.versions("", ["v"])[0]

        parts = store.get_ranges("v", [(2, 4)], version)

        assert [bytes(part) for part in parts or ()] == [b"23"]
        with pytest.raises(VersionConflict) as conflict:
            store.get_ranges("v", [(2, 4)], "another")
        assert conflict.value.current == version

    def test_versions_come_in_the_order_asked_for(self, opened: Opened) -> None:
        values = {f"a/{i}.{j}": f"{i}.{j}".encode() for i in range(3) for j in range(20)} | {"b/0/1": b"x"}
        store = opened(values)
        keys = ["a/2.3", "b/0/1", "a/9.9", "a/0.0", "a/2.3", *sorted(values), "c/d"]

        versions = store.versions("", keys)

        assert [version is not None for version in versions] == [key in values for key in keys]
        assert versions == [store.versions("", [key])[0] for key in keys]

    @pytest.mark.parametrize("key", ODD_KEYS)
    def test_odd_names_are_names(self, opened: Opened, key: str) -> None:
        store = opened({key: b"value"})

        stored = store.get(key)

        assert stored is not None
        assert bytes(stored.data) == b"value"

    def test_many_threads_read_at_once(self, opened: Opened) -> None:
        values = {f"k{i}": bytes([i]) * 5_000 for i in range(8)}
        store = opened(values)

        def read(i: int) -> bool:
            stored = store.get(f"k{i % 8}")
            return stored is not None and bytes(stored.data) == values[f"k{i % 8}"]

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(read, range(64)))

    def test_a_store_that_is_there_passes_its_check(self, opened: Opened) -> None:
        opened({"a": b"1"}).check()


@pytest.mark.parametrize("opened", LISTABLE, indirect=True)
class TestListing:
    """Listing."""

    VALUES: Mapping[str, bytes] = {
        "a/0.0": b"1",
        "a/0.1": b"22",
        "a/b/c": b"3",
        "ab/x": b"4",
        ".zgroup": b"{}",
        "naïve/日本": b"5",
    }

    def test_a_directory_lists_its_direct_children_sorted(self, opened: Opened) -> None:
        store = opened(self.VALUES)

        listing, root = store.list_dir("a/"), store.list_dir("")

        assert [(entry.key, entry.size) for entry in listing.entries] == [("a/0.0", 1), ("a/0.1", 2)]
        assert listing.prefixes == ("b",)
        assert [entry.key for entry in root.entries] == [".zgroup"]
        assert root.prefixes == ("a", "ab", "naïve")

    def test_a_prefix_of_nothing_lists_nothing(self, opened: Opened) -> None:
        store = opened(self.VALUES)

        assert store.list_dir("nothing/").entries == ()
        assert store.list_dir("nothing/").prefixes == ()
        assert store.list_dir("a/0.0/").entries == ()
        assert list(store.list_prefix("nothing/")) == []

    @pytest.mark.parametrize("prefix", ["", "a/", "ab/", "a/b/", "naïve/"])
    def test_every_key_below_a_prefix_is_listed_at_any_depth(self, opened: Opened, prefix: str) -> None:
        store = opened(self.VALUES)

        found = {entry.key: entry.size for entry in store.list_prefix(prefix)}

        assert found == {key: len(value) for key, value in self.VALUES.items() if key.startswith(prefix)}


@pytest.mark.parametrize("opened", LISTS_VERSIONS, indirect=True)
class TestListedVersions:
    """Listings know the same versions as stats."""

    def test_a_listing_has_the_versions_that_stats_have(self, opened: Opened) -> None:
        store = opened({"a/0.0": b"1", "a/0.1": b"22"})

        listing = store.list_dir("a/")

        assert [entry.version for entry in listing.entries] == store.versions("a/", ["a/0.0", "a/0.1"])


@pytest.mark.parametrize("opened", WRITABLE, indirect=True)
class TestWriting:
    """Writing, alone and against others."""

    def test_what_is_put_is_read_back_at_once(self, opened: Opened) -> None:
        store = opened({})

        version = store.put("a/b/0.0", memoryview(b"value"))

        stored = store.get("a/b/0.0")
        assert stored is not None
        assert (bytes(stored.data), stored.version) == (b"value", version)
        assert store.versions("a/b/", ["a/b/0.0"]) == [version]

    def test_any_contiguous_buffer_can_be_put(self, opened: Opened) -> None:
        store = opened({})

        store.put("k", memoryview(bytearray(8)).cast("i", (2,)))

        stored = store.get("k")
        assert stored is not None
        assert bytes(stored.data) == bytes(8)

    def test_each_write_of_one_size_has_a_version_of_its_own(self, opened: Opened) -> None:
        store = opened({})

        versions = [store.put("k", i.to_bytes(4, "big")) for i in range(100)]

        assert len(set(versions)) == 100

    def test_only_the_first_creation_succeeds(self, opened: Opened) -> None:
        store = opened({})
        version = store.put("k", b"first", if_version=ABSENT)

        with pytest.raises(VersionConflict) as conflict:
            store.put("k", b"second", if_version=ABSENT)

        assert (conflict.value.key, conflict.value.current) == ("k", version)
        assert value_of(store, "k") == b"first"

    def test_a_put_on_top_of_another_version_changes_nothing(self, opened: Opened) -> None:
        store = opened({"k": b"old"})
        old = store.versions("", ["k"])[0]
        assert old is not None
        new = store.put("k", b"new", if_version=old)

        for version in (old, '"another"'):
            with pytest.raises(VersionConflict) as conflict:
                store.put("k", b"late", if_version=version)
            assert conflict.value.current == new
        assert value_of(store, "k") == b"new"

    def test_a_put_on_top_of_what_is_gone_is_a_conflict(self, opened: Opened) -> None:
        store = opened({"k": b"old"})
        old = store.versions("", ["k"])[0]
        assert old is not None
        store.delete("k")

        with pytest.raises(VersionConflict) as conflict:
            store.put("k", b"late", if_version=old)

        assert conflict.value.current is None
        assert store.get("k") is None

    def test_threads_that_count_with_conditional_puts_lose_nothing(self, opened: Opened) -> None:
        store = opened({"counter": b"0"})

        def count(_: int) -> None:
            for _ in range(5):
                increment(store, "counter")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(count, range(8)))

        assert value_of(store, "counter") == b"40"

    def test_of_threads_that_create_one_key_one_wins(self, opened: Opened) -> None:
        store = opened({})

        def create(i: int) -> bytes | None:
            with suppress(VersionConflict):
                store.put("k", str(i).encode(), if_version=ABSENT)
                return str(i).encode()
            return None

        with ThreadPoolExecutor(8) as pool:
            winners = [value for value in pool.map(create, range(8)) if value is not None]

        assert winners == [value_of(store, "k")]

    def test_a_key_is_deleted_once(self, opened: Opened) -> None:
        store = opened({"a/k": b"1", "a/l": b"2"})

        assert store.delete("a/k") is True

        assert store.delete("a/k") is False
        assert store.get("a/k") is None
        assert value_of(store, "a/l") == b"2"

    def test_deleting_another_version_is_a_conflict(self, opened: Opened) -> None:
        store = opened({"k": b"1"})
        version = store.versions("", ["k"])[0]

        with pytest.raises(VersionConflict) as conflict:
            store.delete("k", if_version="another")

        assert conflict.value.current == version
        assert store.delete("k", if_version=version) is True
        with pytest.raises(VersionConflict):
            store.delete("k", if_version=version)

    def test_deleting_a_prefix_takes_what_is_below_and_nothing_else(self, opened: Opened) -> None:
        store = opened({"a/0.0": b"1", "a/b/c": b"2", "ab/x": b"3", "b": b"4"})

        assert store.delete_prefix("a/") == 2

        assert store.delete_prefix("a/") == 0
        assert sorted(entry.key for entry in store.list_prefix("")) == ["ab/x", "b"]

    def test_what_is_to_be_kept_outlives_its_prefix(self, opened: Opened) -> None:
        store, checks = opened({"a/0.0": b"1", "a/b/c": b"2"}), list[None]()

        def lost() -> None:
            raise KeyError("the lease")

        assert store.delete_prefix("a/", lambda: checks.append(None), lambda key: key == "a/b/c") == 1

        assert checks
        assert [entry.key for entry in store.list_prefix("")] == ["a/b/c"]
        with pytest.raises(KeyError):
            store.delete_prefix("a/", lost)
        assert value_of(store, "a/b/c") == b"2"

    def test_deleting_the_root_prefix_empties_the_store(self, opened: Opened) -> None:
        store = opened({"a/0.0": b"1", "b": b"2"})

        assert store.delete_prefix("") == 2

        assert list(store.list_prefix("")) == []
        store.put("a/0.0", b"again")
        assert value_of(store, "a/0.0") == b"again"

    def test_an_observer_is_told_of_each_change_and_of_no_conflict(self, opened: Opened) -> None:
        store, told = opened({}), list[tuple[str, bool]]()
        store.observer = lambda key, *, created: told.append((key, created))

        version = store.put("a/k", b"1", if_version=ABSENT)
        store.put("a/k", b"2")
        with pytest.raises(VersionConflict):
            store.put("a/k", b"3", if_version=version)
        store.delete("a/k")
        store.delete_prefix("a/")

        assert told == [("a/k", True), ("a/k", False), ("a/k", False), ("a/", False)]

    def test_the_services_own_keys_are_not_listed(self, opened: Opened) -> None:
        store = opened({"a/k": b"1"})
        store.put(".hyperslab/note", b"own")
        store.put("a/.hyperslab/note", b"own")

        assert [entry.key for entry in store.list_prefix("")] == ["a/k"]
        assert store.list_dir("").prefixes == ("a",)
        assert store.list_dir("a/").prefixes == ()
        assert value_of(store, ".hyperslab/note") == b"own"

    def test_an_exclusive_lock_keeps_threads_apart(self, opened: Opened) -> None:
        store = opened({"k": b"0"})

        def count(_: int) -> None:
            for _ in range(10):
                with store.lock("k"):
                    store.put("k", str(int(value_of(store, "k")) + 1).encode())

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(count, range(4)))

        assert value_of(store, "k") == b"40"

    def test_shared_holders_meet_inside_a_lock(self, opened: Opened) -> None:
        store = opened({})
        meeting = threading.Barrier(3, timeout=30)

        def visit(_: int) -> None:
            with store.lock("a/.zarray", shared=True):
                meeting.wait()

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(visit, range(3)))

    def test_node_locks_and_chunk_locks_do_not_block_each_other(self, opened: Opened) -> None:
        store = opened({})

        with store.lock("a/.zarray"), store.lock("b/.zgroup"), ThreadPoolExecutor(1) as pool:
            pool.submit(_lock_once, store, "a/0.0").result(timeout=30)

    def test_a_lock_is_free_again_after_an_error_inside(self, opened: Opened) -> None:
        store = opened({})

        with pytest.raises(KeyError), store.lock("a/0.0"):
            raise KeyError

        _lock_once(store, "a/0.0")


@pytest.mark.parametrize("opened", ATOMIC, indirect=True)
class TestAtomicWrites:
    """Readers beside a writer."""

    def test_readers_see_whole_values_while_they_are_rewritten(self, opened: Opened) -> None:
        store = opened({"k": bytes(50_000)})

        def rewrite() -> None:
            for i in range(40):
                store.put("k", bytes([i]) * (50_000 + 1_000 * i))

        seen: list[bytes] = []
        with ThreadPoolExecutor(1) as pool:
            written = pool.submit(rewrite)
            while True:
                seen.append(value_of(store, "k"))
                if written.done():
                    break
            written.result()

        assert all(len(set(value)) == 1 and len(value) == 50_000 + 1_000 * value[0] for value in seen)

    def test_a_version_belongs_to_the_value_it_came_with(self, opened: Opened) -> None:
        store = opened({})
        written = {store.put("k", b"start"): b"start"}
        seen: list[tuple[str, bytes]] = []

        def rewrite() -> None:
            for i in range(60):
                value = f"{i:05d}".encode()
                written[store.put("k", value)] = value

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(rewrite)
            while not writing.done():
                stored = store.get("k")
                assert stored is not None
                seen.append((stored.version, bytes(stored.data)))
            writing.result()

        assert all(written[version] == value for version, value in seen)


@pytest.mark.parametrize("opened", READ_ONLY, indirect=True)
class TestReadOnly:
    """A store that is not writable refuses every write; the fixture `opened` gives one."""

    def test_every_write_is_refused_and_changes_nothing(self, opened: Opened) -> None:
        store = opened({"a/k": b"1"})

        for write in _writes(store):
            with pytest.raises(ReadOnly):
                write()

        assert value_of(store, "a/k") == b"1"
        assert store.get("new") is None
        assert not store.capabilities.writable


def _writes(store: Store) -> Iterator[Callable[[], object]]:
    yield lambda: store.put("new", b"1")
    yield lambda: store.put("a/k", b"2", if_version=store.versions("", ["a/k"])[0])
    yield lambda: store.delete("a/k")
    yield lambda: store.delete_prefix("a/")
    yield lambda: _lock_once(store, "a/k")


def _lock_once(store: Store, key: str) -> None:
    with store.lock(key):
        pass

"""What every store must do, whatever kind it is."""

from __future__ import annotations

import json
import math
import random
import threading
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from uuid import uuid4

import fsspec  # type: ignore[import-untyped]
import pytest

from hyperslab.errors import ReadOnly, StoredTooLarge
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import ABSENT, Store, VersionConflict
from tests.faults import DropHeaders, FaultProxy
from tests.s3 import S3Server
from tests.storage.support import Bare, PlainFiles, Quiet, fill, fill_bucket, serve, value_of
from tests.storage.workers import increment

Values = Mapping[str, bytes]

LISTABLE = (
    "folder", "bucket", "prefix", "google", "memory", "zip", "folder in zip", "plain files", "file server",
)  # fmt: skip
READABLE = (*LISTABLE, "bare server", "public bucket")
WRITABLE = ("folder", "bucket", "bucket without conditions", "google", "memory", "plain files")
ATOMIC = ("folder", "bucket", "google", "memory", "plain files")
READ_ONLY = ("read-only folder", "read-only bucket", "zip", "file server")

ODD_KEYS = ("...", "a/...", ".foo", "foo..bar", "a b/ c ", "%2e%2e/x", "a+b&c=d", "naïve/日本", "a#b?c", "x~{y}[z]'\"")
DIGITS = b"0123456789"
VALUES: Values = {
    **{key: key.encode() for key in ODD_KEYS},
    **{f"v/{i}.{j}": f"{i}.{j}".encode() * 1000 for i in range(3) for j in range(20)},
    **{"a/0.0": DIGITS, "a/b/c": b"3", "ab/x": b"4", ".zgroup": b"{}", "empty": b""},
    "big": random.Random(1).randbytes(1_200_001),
}


def open_kind(stack: ExitStack, server: S3Server, folder: Path, kind: str, values: Values) -> Store:
    """A filled store of a kind; those that differ little share a way."""
    kind, writable = kind.removeprefix("read-only "), not kind.startswith("read-only")
    if kind in ("folder", "plain files") or kind.endswith(" server"):
        fill(folder, values)
    if kind == "folder":
        config = StoreConfig("disk", str(folder), writable=writable, durability="rename")
    elif kind == "plain files":
        fsspec.register_implementation("plainfiles", PlainFiles, clobber=True)
        config = StoreConfig("plain", f"plainfiles://{folder}", writable=True)
    elif kind.endswith("zip"):
        base = "data/base/" if kind == "folder in zip" else ""
        with zipfile.ZipFile(folder / "a.zip", "w") as archive:
            for key, value in values.items():
                archive.writestr(base + key, value)
            archive.writestr("data/basement", b"x") if base else None
        config = StoreConfig("zip", f"zip://{base.rstrip('/')}::file://{folder}/a.zip")
    elif kind.endswith(" server"):
        url = stack.enter_context(contextmanager(serve)(Bare if kind == "bare server" else Quiet, folder))
        config = StoreConfig("web", url, timeout=60.0, retries=1)
    elif kind == "memory":
        config = StoreConfig("memory", f"memory://{uuid4().hex}/base", writable=True)
    else:
        config = bucket_of(stack, server, kind, values, writable=writable)
    store = open_store(config)
    stack.callback(store.close)
    for key, value in values.items() if kind in ("memory", "google") else ():
        store.put(key, value)
    return store


def bucket_of(stack: ExitStack, server: S3Server, kind: str, values: Values, *, writable: bool) -> StoreConfig:
    bucket = server.new_bucket()
    if kind == "google":
        account = {"client_email": "x", "private_key": "", "private_key_id": "", "disable_oauth": True}
        key = json.dumps({**account, "gcs_base_url": server.url})
        options = {"allow_http": "true", "service_account_key": key}
        return StoreConfig("google", f"gs://{bucket.name}", writable=True, timeout=60.0, retries=2, options=options)
    if kind == "public bucket":
        fill_bucket(server, bucket, values, **{"x-amz-acl": "public-read"})
        return StoreConfig("web", f"{server.url}/{bucket.name}", timeout=60.0, retries=1)
    fill_bucket(server, bucket, values, "some/base/" if kind == "prefix" else "")
    if kind == "prefix":
        fill_bucket(server, bucket, {"some/basement": b"x", "some/other/x": b"x", "x": b"x"})
        return bucket.config(writable=True, url=f"{bucket.url}/some/base/")
    if kind == "bucket without conditions":  # which the process compares then
        proxy = stack.enter_context(FaultProxy(server.url))
        proxy.inject(DropHeaders(("If-Match", "If-None-Match")), times=math.inf)
        bucket = bucket.at(proxy.url)
    return bucket.config(writable=writable)


@pytest.fixture(scope="module")
def open_as(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, Values], Store]]:
    with ExitStack() as stack:
        yield lambda kind, values: open_kind(stack, s3_server, tmp_path_factory.mktemp("root"), kind, values)


@pytest.fixture(scope="module")
def filled(request: pytest.FixtureRequest, open_as: Callable[[str, Values], Store]) -> Store:
    """A store of the kind that holds `VALUES`."""
    return open_as(request.param, VALUES)


@pytest.fixture(scope="module")
def store(request: pytest.FixtureRequest, open_as: Callable[[str, Values], Store]) -> Store:
    """A store of the kind that all tests write to, each below a `prefix` of its own."""
    return open_as(request.param, {})


_NUMBERS = count()


@pytest.fixture
def prefix() -> str:
    return f"t{next(_NUMBERS)}/"


@pytest.mark.parametrize("filled", READABLE, indirect=True)
class TestReading:
    """Reading by key."""

    def test_values_are_read_whole_with_the_version_that_stat_knows(self, filled: Store) -> None:
        keys = ["ab/x", "nothing", "empty", "a/0.0", "ab/x"]

        filled.check()
        for key, stored in zip(keys, found := filled.get_each(keys), strict=True):
            entry = filled.stat(key)
            assert stored == filled.get(key)
            assert (stored is not None and bytes(stored.data)) == VALUES.get(key, False)
            assert (entry and (entry.key, entry.size)) == (stored and (key, len(VALUES[key])))
            assert entry is None or entry.modified >= 0
            assert filled.versions("", [key]) == [entry and entry.version] == [stored and stored.version]
        assert len(found) == 5
        assert filled.get_each([]) == []

    def test_of_a_value_larger_than_the_limit_nothing_is_read(self, filled: Store) -> None:
        assert filled.get("a/0.0", 10) is not None
        for read in (lambda: filled.get("a/0.0", 9), lambda: filled.get_each(["a/no", "a/0.0"], 9)):
            with pytest.raises(StoredTooLarge) as refused:
                read()
            assert (refused.value.key, refused.value.size, refused.value.limit) == ("a/0.0", 10, 9)
        assert filled.get("a/0.0") is not None

    def test_what_is_not_there_is_absent(self, filled: Store) -> None:
        for key in ("nothing", "a/nothing", "a", "a/0.0/below", "b/c/d"):
            assert filled.get(key) is None
            assert filled.get_ranges(key, [(0, 1), (3, 4)]) is None
            assert filled.get_ranges(key, []) is None
            assert filled.get_part(key, 0, 10) is filled.get_part(key, 5, 10) is None
            assert filled.get_end(key, 4) is None
            assert filled.stat(key) is None
            assert filled.versions("", [key]) == [None]

    def test_a_part_comes_with_what_stat_tells(self, filled: Store) -> None:
        entry = filled.stat("a/0.0")
        assert entry is not None
        for start, stop in ((0, 4), (0, 10), (0, 99), (3, 7), (9, 99), (10, 11), (50, 60)):
            part = filled.get_part("a/0.0", start, stop)
            assert part is not None
            assert part.entry == entry
            assert bytes(part.between(start, stop)) == DIGITS[start:stop]
            assert bytes(part.data) == DIGITS[part.start :][: len(part.data)]
        for nbytes in (1, 4, 10, 99):
            part = filled.get_end("a/0.0", nbytes)
            assert part is not None
            assert part.entry == entry
            assert bytes(part.between(max(0, 10 - nbytes), 10)) == DIGITS[-nbytes:]
        assert filled.get_ranges("a/0.0", [(3, 5)], entry.version) == [b"34"]
        with pytest.raises(VersionConflict) as conflict:
            filled.get_ranges("a/0.0", [(2, 4)], "another")
        assert conflict.value.current == entry.version

    def test_an_empty_value_is_not_absence(self, filled: Store) -> None:
        for part in (filled.get_part("empty", 0, 1000), filled.get_end("empty", 1000)):
            assert part is not None
            assert (part.entry, bytes(part.data)) == (filled.stat("empty"), b"")
        assert [bytes(part) for part in filled.get_ranges("empty", [(0, 1), (0, 0)]) or ()] == [b"", b""]

    def test_ranges_equal_slices_of_the_value(self, filled: Store) -> None:
        value, chance = VALUES["big"], random.Random(3)
        starts = [chance.choice([0, 1, 5, 599_999, 1_199_999, 1_200_001, 1_300_000]) for _ in range(12)]
        ranges = [(start, start + chance.choice([0, 1, 17, 700_000])) for start in starts]
        nested = filled.get_ranges("big", [(0, 700_000), (5, 22)])

        parts, part = filled.get_ranges("big", ranges), filled.get_part("big", 0, 1 << 20)

        assert value_of(filled, "big") == value
        assert [bytes(each) for each in nested or ()] == [value[:700_000], value[5:22]]
        assert [bytes(each) for each in parts or ()] == [value[start:stop] for start, stop in ranges]
        assert part is not None
        assert (part.entry.size, bytes(part.between(0, 1 << 20))) == (len(value), value[: 1 << 20])

    def test_versions_come_in_the_order_asked_for(self, filled: Store) -> None:
        keys = ["v/2.3", "a/b/c", "v/9.9", "v/0.0", "v/2.3", *(key for key in VALUES if key.startswith("v/")), "c/d"]

        versions = filled.versions("", keys)

        assert [version is not None for version in versions] == [key in VALUES for key in keys]
        assert versions[:6] == [filled.versions("", [key])[0] for key in keys[:6]]

    def test_odd_names_are_names_and_many_threads_read_at_once(self, filled: Store) -> None:
        keys = [*ODD_KEYS, *(f"v/0.{i}" for i in range(6))] * 3

        with ThreadPoolExecutor(8) as pool:
            assert [*pool.map(lambda key: value_of(filled, key), keys)] == [VALUES[key] for key in keys]


@pytest.mark.parametrize("filled", LISTABLE, indirect=True)
def test_keys_are_listed(filled: Store, request: pytest.FixtureRequest) -> None:
    """Direct children, sorted; and at any depth. In the versions that stats have, but for Google's listings."""
    listing, root = filled.list_dir("a/"), filled.list_dir("")
    versions = [entry.version for entry in listing.entries]

    assert [(entry.key, entry.size) for entry in listing.entries] == [("a/...", 5), ("a/0.0", 10)]
    assert listing.prefixes == ("b",)
    assert "google" in request.node.name or versions == filled.versions("a/", ["a/...", "a/0.0"])
    assert [entry.key for entry in root.entries] == sorted(key for key in VALUES if "/" not in key)
    assert root.prefixes == tuple(sorted({key.partition("/")[0] for key in VALUES if "/" in key}))
    for prefix in ("", "a/", "ab/", "a/b/", "naïve/", "nothing/"):
        found = {entry.key: entry.size for entry in filled.list_prefix(prefix)}
        assert found == {key: len(value) for key, value in VALUES.items() if key.startswith(prefix)}
    for nothing in ("nothing/", "a/0.0/"):
        assert (filled.list_dir(nothing).entries, filled.list_dir(nothing).prefixes) == ((), ())


@pytest.mark.parametrize("filled", LISTABLE, indirect=True)
def test_folders_are_listed_a_part_at_a_time(filled: Store) -> None:
    prefixes = filled.list_dir("").prefixes

    for most in (1, 2, 100):
        names, following = list[str](), ""
        while True:
            found = filled.list_folders("", following, most)
            assert list(found.names) == sorted(found.names)
            names += found.names
            if found.following is None:
                break
            assert found.following > following
            following = found.following
        assert names == list(prefixes)
    assert list(filled.list_folders("", "aa", 1).names) == ["ab"]
    assert not filled.list_folders("nothing/", "", 9).names


@pytest.mark.parametrize("store", WRITABLE, indirect=True)
def test_several_keys_are_deleted_and_each_is_told(store: Store, prefix: str) -> None:
    keys = [f"{prefix}{name}" for name in ("a/0", "a/1", "b/c/0", "b/0")]
    for key in keys:
        store.put(key, b"1")
    told, checks = list[str](), list[int]()
    store.observer = lambda key, *, created, version=None: told.append(key)  # noqa: ARG005, PLW0108

    store.delete_each([*keys[:3], f"{prefix}nothing/0", f"{prefix}b/c"], lambda: checks.append(1))

    assert set(keys[:3]) <= set(told)
    assert checks
    assert [entry.key for entry in store.list_prefix(prefix)] == keys[3:]


@pytest.mark.parametrize("store", WRITABLE, indirect=True)
def test_a_value_is_put_in_pieces_which_may_come_from_the_store(store: Store, prefix: str) -> None:
    store.put(f"{prefix}part", random.Random(2).randbytes(1 << 20))
    part = value_of(store, f"{prefix}part")
    for number in (0, 1, 11):
        store.put_pieces(f"{prefix}whole", (value_of(store, f"{prefix}part") * (at % 2) for at in range(number)))
        assert value_of(store, f"{prefix}whole") == part * (number // 2)


@pytest.mark.parametrize("store", ["folder", "bucket"], indirect=True)
def test_a_value_that_is_put_as_its_parts_is_all_of_them(store: Store, prefix: str) -> None:
    """Large parts, which a folder writes one by one, and small ones."""
    for part in (b"ab" * 100_000, b"ab"):
        version = store.put(f"{prefix}whole", [part, memoryview(part)[:-1], bytearray(b"c"), b""])
        found = store.get(f"{prefix}whole")
        assert found is not None
        assert (bytes(found.data), found.version) == (part + part[:-1] + b"c", version)
    store.put(f"{prefix}whole", [])
    assert value_of(store, f"{prefix}whole") == b""


@pytest.mark.parametrize("store", ["folder", "bucket"], indirect=True)
def test_a_value_in_pieces_is_never_in_memory_as_a_whole(store: Store, prefix: str) -> None:
    tracemalloc.start()
    try:
        store.put_pieces(f"{prefix}whole", (bytes(1 << 20) for _ in range(40)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    entry = store.stat(f"{prefix}whole")
    assert entry is not None
    assert (entry.size, peak < 24 << 20) == (40 << 20, True), peak


def test_an_error_of_a_piece_leaves_the_value_of_a_bucket_as_it_was(open_as: Callable[[str, Values], Store]) -> None:
    store = open_as("bucket", {"whole": b"before"})

    def pieces() -> Iterator[bytes]:
        for _ in range(10):
            yield bytes(1 << 20)
        raise StoredTooLarge("part", 2, 1)

    with pytest.raises(StoredTooLarge):
        store.put_pieces("whole", pieces())
    assert value_of(store, "whole") == b"before"


@pytest.mark.parametrize("store", WRITABLE, indirect=True)
class TestWriting:
    """Writing, alone and against others."""

    def test_what_is_put_is_read_back_at_once(self, store: Store, prefix: str) -> None:
        version = store.put(f"{prefix}a/0.0", memoryview(b"value"))
        store.put(f"{prefix}k", memoryview(bytearray(8)).cast("i", (2,)))  # any contiguous buffer

        stored = store.get(f"{prefix}a/0.0")
        assert stored is not None
        assert (bytes(stored.data), stored.version) == (b"value", version)
        assert store.versions(f"{prefix}a/", [f"{prefix}a/0.0"]) == [version]
        assert value_of(store, f"{prefix}k") == bytes(8)

    def test_each_write_of_one_size_has_a_version_of_its_own(self, store: Store, prefix: str) -> None:
        assert len({store.put(f"{prefix}k", i.to_bytes(4, "big")) for i in range(30)}) == 30

    def test_a_condition_that_does_not_hold_changes_nothing(self, store: Store, prefix: str) -> None:
        key = f"{prefix}k"

        def refused(condition: object, current: str | None) -> None:
            with pytest.raises(VersionConflict) as conflict:
                store.put(key, b"late", if_version=condition)  # type: ignore[arg-type]
            assert (conflict.value.key, conflict.value.current) == (key, current)

        first = store.put(key, b"first", if_version=ABSENT)
        refused(ABSENT, first)
        second = store.put(key, b"second", if_version=first)
        for condition in (first, '"another"', ABSENT):
            refused(condition, second)
        for version in ("another", first):
            with pytest.raises(VersionConflict) as conflict:
                store.delete(key, if_version=version)
            assert conflict.value.current == second
        assert value_of(store, key) == b"second"
        assert store.delete(key, if_version=second) is True
        with pytest.raises(VersionConflict):
            store.delete(key, if_version=second)
        refused(second, None)
        for gone in (store.get(key), store.get_part(key, 0, 9), store.get_end(key, 9), store.stat(key)):
            assert gone is None
        assert (store.versions(prefix, [key]), list(store.list_prefix(prefix))) == ([None], [])
        store.put(key, b"again", if_version=ABSENT)

    def test_threads_that_count_or_create_lose_nothing(self, store: Store, prefix: str) -> None:
        store.put(f"{prefix}counter", b"0")
        store.put(f"{prefix}locked", b"0")

        def work(i: int) -> bytes | None:
            for _ in range(3):
                increment(store, f"{prefix}counter")
                with store.lock(f"{prefix}locked"):
                    store.put(f"{prefix}locked", str(int(value_of(store, f"{prefix}locked")) + 1).encode())
            with suppress(VersionConflict):
                store.put(f"{prefix}k", str(i).encode(), if_version=ABSENT)
                return str(i).encode()
            return None

        with ThreadPoolExecutor(6) as pool:
            winners = [value for value in pool.map(work, range(6)) if value is not None]

        assert winners == [value_of(store, f"{prefix}k")]
        assert (value_of(store, f"{prefix}counter"), value_of(store, f"{prefix}locked")) == (b"18", b"18")

    def test_deleting_takes_what_is_named_and_nothing_else(self, store: Store, prefix: str) -> None:
        for key in ("a/0.0", "a/1", "a/b/c", "ab/x", "b"):
            store.put(prefix + key, b"1")

        assert (store.delete(f"{prefix}a/1"), store.delete(f"{prefix}a/1")) == (True, False)
        assert store.get(f"{prefix}a/1") is None
        assert store.delete_prefix(f"{prefix}a/") == 2
        assert store.delete_prefix(f"{prefix}a/") == 0
        assert sorted(entry.key for entry in store.list_prefix(prefix)) == [f"{prefix}ab/x", f"{prefix}b"]

    def test_what_is_to_be_kept_outlives_its_prefix(self, store: Store, prefix: str) -> None:
        checks = list[None]()
        store.put(f"{prefix}a/0.0", b"1")
        store.put(f"{prefix}a/b/c", b"2")

        def lost() -> None:
            raise KeyError("the lease")

        assert store.delete_prefix(prefix, lambda: checks.append(None), lambda key, _: key == f"{prefix}a/b/c") == 1

        assert checks
        assert [entry.key for entry in store.list_prefix(prefix)] == [f"{prefix}a/b/c"]
        with pytest.raises(KeyError):
            store.delete_prefix(prefix, lost)
        assert value_of(store, f"{prefix}a/b/c") == b"2"

    def test_deleting_the_root_prefix_empties_the_store(self, store: Store, prefix: str) -> None:
        """But for what is the service's own, which is listed where it is asked for."""
        store.delete_prefix("")
        store.put(f"{prefix}a/0.0", b"1")
        store.put(f"{prefix}b", b"2")
        store.put(".hyperslab/deleted/mark", b"3")

        assert store.delete_prefix("") == 2

        assert list(store.list_prefix("")) == []
        assert [entry.key for entry in store.list_dir(".hyperslab/deleted/").entries] == [".hyperslab/deleted/mark"]
        store.put(f"{prefix}a/0.0", b"again")
        assert value_of(store, f"{prefix}a/0.0") == b"again"

    def test_an_observer_is_told_of_each_change_and_of_no_conflict(self, store: Store, prefix: str) -> None:
        key, told = f"{prefix}a/k", list[tuple[str, bool]]()
        store.observer = lambda key, *, created, **_: told.append((key, created))

        version = store.put(key, b"1", if_version=ABSENT)
        store.put(key, b"2")
        with pytest.raises(VersionConflict):
            store.put(key, b"3", if_version=version)
        store.delete(key)
        store.delete_prefix(prefix)
        store.observer = None

        assert told == [(key, True), (key, False), (key, False), (prefix, False)]

    def test_the_services_own_keys_are_not_listed(self, store: Store, prefix: str) -> None:
        store.put(f"{prefix}k", b"1")
        store.put(".hyperslab/note", b"own")
        store.put(f"{prefix}.hyperslab/note", b"own")

        assert [entry.key for entry in store.list_prefix(prefix)] == [f"{prefix}k"]
        assert prefix.rstrip("/") in store.list_dir("").prefixes
        assert ".hyperslab" not in store.list_dir("").prefixes
        assert store.list_dir(prefix).prefixes == ()
        assert value_of(store, ".hyperslab/note") == b"own"

    def test_shared_holders_meet_inside_a_lock_and_families_do_not_block_each_other(
        self, store: Store, prefix: str
    ) -> None:
        meeting = threading.Barrier(3, timeout=60)

        def visit(_: int) -> None:
            with store.lock(f"{prefix}.zarray", shared=True):
                meeting.wait()

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(visit, range(3)))
            with store.lock(f"{prefix}.zarray"), store.lock(f"{prefix}b/.zgroup"):
                pool.submit(_lock_once, store, f"{prefix}0.0").result(timeout=60)
            with pytest.raises(KeyError), store.lock(f"{prefix}.zarray"):
                raise KeyError
            pool.submit(_lock_once, store, f"{prefix}.zarray").result(timeout=60)


@pytest.mark.parametrize("store", ATOMIC, indirect=True)
def test_readers_see_whole_values_of_their_versions_while_they_are_rewritten(store: Store, prefix: str) -> None:
    key, written, seen = f"{prefix}k", dict[str, bytes](), list[tuple[str, bytes]]()

    def rewrite(i: int) -> None:
        value = bytes([i]) * (50_000 + 1_000 * i)
        written[store.put(key, value)] = value

    rewrite(0)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(lambda: [*map(rewrite, range(1, 40))])
        while not writing.done():
            stored = store.get(key)
            assert stored is not None
            seen.append((stored.version, bytes(stored.data)))
        writing.result()

    assert all(written[version] == value for version, value in seen)


@pytest.mark.parametrize("kind", READ_ONLY)
def test_a_store_that_is_not_writable_refuses_every_write(open_as: Callable[[str, Values], Store], kind: str) -> None:
    store = open_as(kind, {"a/k": b"1"})

    for write in (
        lambda: store.put("new", b"1"),
        lambda: store.put("a/k", b"2", if_version=store.versions("", ["a/k"])[0]),
        lambda: store.delete("a/k"),
        lambda: store.delete_prefix("a/"),
        lambda: _lock_once(store, "a/k"),
    ):
        with pytest.raises(ReadOnly):
            write()

    assert value_of(store, "a/k") == b"1"
    assert store.get("new") is None
    assert not store.capabilities.writable


def _lock_once(store: Store, key: str) -> None:
    with store.lock(key):
        pass

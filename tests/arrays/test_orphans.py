"""Chunks that an array which is no more has left: a new array in its place shows none of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from hyperslab.arrays.create import Creator
from hyperslab.arrays.delete import _marker
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import Service, build
from hyperslab.engine.creation import new_document
from hyperslab.errors import NodeExists, StoreError
from hyperslab.storage import open_store
from hyperslab.storage.base import Entry, UnservedEntry
from hyperslab.storage.conditional import ConditionalDeletes
from tests.arrays.counting import CountingStore
from tests.arrays.support import local_store, read_all, service_on, snapshot
from tests.layouts import LAYOUTS, definition, key
from tests.s3 import S3Bucket

A = "data/a"
DEFINITION = {"shape": [4, 4], "chunks": [2, 2], "dtype": "<i4", "fill_value": 1}
NESTED = {**DEFINITION, "dimension_separator": "/"}

Create = Callable[[Service, dict[str, object]], object]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with service_on(tmp_path) as found:
        yield found


def leave_chunks(service: Service, definition: dict[str, object]) -> None:
    """As a plain client does that removes an array's document alone."""
    service.creator.create_array(A, definition)
    service.writer.write(A, (), np.array(8, "<i4"))
    service.key_writer.delete(f"{A}/.zarray")


def create(service: Service, definition: dict[str, object]) -> object:
    return service.creator.create_array(A, definition)


def replace(service: Service, definition: dict[str, object]) -> object:
    return service.creator.create_array(A, definition, mode="replace")


def put_key(service: Service, definition: dict[str, object]) -> object:
    return service.key_writer.put(f"{A}/.zarray", json.dumps(new_document(definition)).encode())


def test_a_plain_client_that_puts_the_document_back_has_its_chunks_back(tmp_path: Path, service: Service) -> None:
    """And attributes that it has put first. What comes after a deletion has ended is not left of it."""
    leave_chunks(service, DEFINITION)
    service.key_writer.put(f"{A}/.zattrs", b'{"unit": "K"}')

    put_key(service, DEFINITION)

    assert (read_all(service, A) == 8).all()
    assert service.catalog.open_array(A).attributes == {"unit": "K"}
    service.creator.delete(A)
    (tmp_path / "a").mkdir(exist_ok=True)
    (tmp_path / "a" / "0.0").write_bytes(b"mine")
    with pytest.raises(NodeExists):
        create(service, DEFINITION)
    assert (tmp_path / "a" / "0.0").read_bytes() == b"mine"


@pytest.mark.parametrize("definition", [DEFINITION, NESTED], ids=["flat", "nested"])
@pytest.mark.parametrize("make", [create, replace])
def test_a_new_array_shows_fill_values_and_what_are_no_chunks_of_it_stays(
    tmp_path: Path, service: Service, definition: dict[str, object], make: Create
) -> None:
    """Also where it is smaller, and grows."""
    leave_chunks(service, definition)
    others = ("readme.txt", "9", "0.0.0", "0.00", "0.-1", "raw/0.0")
    (tmp_path / "a" / "raw").mkdir()
    for name in others:
        (tmp_path / "a" / name).write_bytes(b"mine")

    make(service, {**definition, "shape": [2, 2]})
    service.resizer.resize(A, [4, 4])

    assert (read_all(service, A) == 1).all()
    assert set(snapshot(tmp_path / "a")) == {".zarray", *others}


def test_files_of_others_that_are_spelt_like_chunks_stay(tmp_path: Path, service: Service) -> None:
    """They are left of no array: a folder of numbered files is no place for one, unless somebody says so."""
    (tmp_path / "a").mkdir()
    for name in ("0.0", "1.1", "7.7", "notes.txt"):
        (tmp_path / "a" / name).write_bytes(b"mine")
    before = snapshot(tmp_path)

    for make in (create, replace):
        with pytest.raises(NodeExists) as caught:
            make(service, DEFINITION)
        assert caught.value.keys == ["a/0.0", "a/1.1", "a/7.7"]
    assert {key: value for key, value in snapshot(tmp_path).items() if key != ".zgroup"} == before

    service.creator.create_array(A, DEFINITION, mode="replace", foreign=True)
    assert set(snapshot(tmp_path / "a")) == {".zarray", "notes.txt"}
    assert (read_all(service, A) == 1).all()


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("before", LAYOUTS)
@pytest.mark.parametrize("after", LAYOUTS)
def test_what_a_deletion_that_was_cut_off_has_left_is_cleared(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str, rank: int
) -> None:
    """Whatever the layout of the array that comes next, so that nothing is in the way of the one after it. What no
    array of this rank could have stays."""
    old, new = (definition(layout, [4] * rank, [2] * rank, fill_value=1) for layout in (before, after))
    service.creator.create_array(A, old)
    service.writer.write(A, (), np.array(8, "<i4"))
    store = service.catalog.mounts["data"].store

    def cut_off(*_: object) -> int:
        raise StoreError("data", "a/", "no answer")

    with monkeypatch.context() as patched:
        patched.setattr(store, "delete_prefix", cut_off)
        with pytest.raises(StoreError):
            service.creator.delete(A)
    assert (tmp_path / key(before, "a/" + ".".join("0" * rank))).exists()
    others = {"7.7.7", "c/7/7/7"}
    for name in others:
        (tmp_path / "a" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "a" / name).write_bytes(b"mine")

    replace(service, new)

    assert (read_all(service, A) == 1).all()
    assert set(snapshot(tmp_path / "a")) - {".zarray", "zarr.json"} == others


@pytest.mark.parametrize("make", [create, put_key])
def test_nodes_far_below_are_no_leftovers(tmp_path: Path, service: Service, make: Create) -> None:
    """Deeper than a group shows that has no document. And the keys of the one below may be chunks of the one above."""
    deep = "a/0/1/2/3/4/5"
    rank = {**NESTED, "shape": [4] * 8, "chunks": [4] * 8}
    service.creator.create_array(f"data/{deep}", NESTED)
    service.writer.write(f"data/{deep}", (), np.array(8, "<i4"))
    for document in tmp_path.rglob(".zgroup"):
        document.unlink()
    before = snapshot(tmp_path)

    with pytest.raises(NodeExists):
        make(service, rank)

    assert {key: value for key, value in snapshot(tmp_path).items() if key != ".zgroup"} == before


def test_a_new_group_removes_nothing(tmp_path: Path, service: Service) -> None:
    """And keeps the attributes that were there before its document."""
    leave_chunks(service, DEFINITION)
    service.creator.create_array("data/a/b", DEFINITION)
    (tmp_path / "a" / ".zgroup").unlink()
    (tmp_path / "a" / ".zattrs").write_text('{"unit": "K"}')
    before = snapshot(tmp_path)

    made = service.creator.create_group(A, {"by": "me"})

    after = snapshot(tmp_path)
    assert after == {**before, **{key: after[key] for key in ("a/.zgroup", "a/.zattrs")}}
    assert made.node.attributes == {"unit": "K", "by": "me"}


def test_an_array_that_replaces_a_group_without_a_document_hides_no_children(tmp_path: Path, service: Service) -> None:
    service.creator.create_array("data/a/b", DEFINITION)
    (tmp_path / "a" / ".zgroup").unlink()

    (tmp_path / "a" / "0.0").write_bytes(b"mine")
    with pytest.raises(NodeExists):  # it would be a chunk
        replace(service, DEFINITION)
    service.catalog.mounts["data"].store.put(_marker("a/"), b"")  # or is, of an array whose deletion was cut off
    replace(service, DEFINITION)

    assert set(snapshot(tmp_path / "a")) == {".zarray"}


def test_a_folder_of_chunks_that_is_a_link_goes_without_what_it_leads_to(tmp_path: Path, service: Service) -> None:
    service.creator.create_array("data/keep", NESTED)
    service.writer.write("data/keep", (), np.array(8, "<i4"))
    leave_chunks(service, NESTED)
    for name in ("0", "1"):
        (tmp_path / "a" / name / "0").unlink()
    (tmp_path / "a" / "2").symlink_to(tmp_path / "keep" / "0")

    create(service, {**NESTED, "shape": [8, 4]})

    assert (read_all(service, A) == 1).all()
    assert (read_all(service, "data/keep") == 8).all()


def test_the_data_of_an_array_that_only_the_consolidated_metadata_knows_stays(tmp_path: Path, service: Service) -> None:
    service.creator.create_array(A, DEFINITION)
    service.writer.write(A, (), np.array(8, "<i4"))
    document = json.loads((tmp_path / "a" / ".zarray").read_text())
    consolidated = {"zarr_consolidated_format": 1, "metadata": {"a/.zarray": document}}
    (tmp_path / ".zmetadata").write_text(json.dumps(consolidated))
    (tmp_path / "a" / ".zarray").unlink()

    put_key(service, DEFINITION)

    assert (read_all(service, A) == 8).all()


class ListedStore(CountingStore):
    """Counts how often all that lies below a prefix is listed, and what comes of it."""

    listings = entries = 0

    def list_prefix(self, prefix: str, unserved: list[UnservedEntry] | None = None) -> Iterator[Entry]:
        self.listings += 1
        for entry in super().list_prefix(prefix, unserved):
            self.entries += 1
            yield entry


@pytest.mark.parametrize("make", [create, put_key])
def test_where_nothing_lies_one_empty_listing_says_so(tmp_path: Path, make: Create) -> None:
    store = ListedStore(local_store(tmp_path))
    service = build([MountedStore("data", store, writable=True)])
    service.creator.create_array("data/other", DEFINITION)
    store.listings = store.entries = 0

    make(service, DEFINITION)

    opened = make is create  # of the new array: its keys are looked through for chunks
    assert (store.listings, store.entries) == (1 + opened, 0 + opened)
    service.close()


def test_chunks_left_in_a_bucket_are_not_read_by_a_new_array(s3_bucket: S3Bucket) -> None:
    service = build([MountedStore("data", open_store(s3_bucket.config(name="data", writable=True)), writable=True)])
    leave_chunks(service, DEFINITION)

    create(service, DEFINITION)

    assert (read_all(service, A) == 1).all()
    service.close()


@pytest.mark.parametrize(("layout", "make"), [*[(layout, create) for layout in LAYOUTS], ("shards", replace)])
def test_a_creation_that_was_cut_off_can_be_repeated(
    s3_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch, layout: str, make: Create
) -> None:
    """Where deleted chunks become tombstones, and these fill values before the document is stored. What others put
    there later stays."""
    monkeypatch.setattr(ConditionalDeletes, "are_honoured", lambda _: False)
    store = open_store(s3_bucket.config(name="data", writable=True))
    service = build([MountedStore("data", store, writable=True)])
    wanted = definition(layout, [4, 4], [2, 2], fill_value=1)
    create(service, wanted)
    service.writer.write(A, (), np.array(8, "<i4"))
    service.creator.delete(A)

    def cut_off(*_: object, **__: object) -> None:
        raise StoreError("data", "a/", "no answer")

    with monkeypatch.context() as patched:
        patched.setattr(Creator, "_store_node", cut_off)
        for _ in range(2):
            with pytest.raises(StoreError):
                make(service, wanted)
    make(service, wanted)

    assert (read_all(service, A) == 1).all()
    service.writer.write(A, (), np.array(8, "<i4"))
    replace(service, wanted)
    assert not [entry.key for entry, is_tombstone in store.list_all("a/") if is_tombstone and "0" in entry.key]
    service.creator.delete(A)
    store.put(key(layout, "a/0.0"), b"mine")
    with pytest.raises(NodeExists):
        make(service, wanted)
    service.close()


@pytest.mark.parametrize(("kind", "layout"), [*[("folder", layout) for layout in LAYOUTS], ("bucket", "shards")])
def test_growth_shows_no_chunks_that_others_have_left_beyond_the_shape(
    tmp_path: Path, s3_bucket: S3Bucket, layout: str, kind: str
) -> None:
    """Nor those at the edge, whether few chunks are added or very many. What is beyond the new shape stays."""
    config = s3_bucket.config(name="data", writable=True)
    store = local_store(tmp_path) if kind == "folder" else open_store(config)
    service = build([MountedStore("data", store, writable=True)])
    create(service, definition(layout, [4, 4], [2, 2], fill_value=1))
    service.writer.write(A, (), np.array(8, "<i4"))
    stored = store.get(key(layout, "a/0.0"))
    assert stored is not None
    for name in ("a/0.2", "a/3.1", "a/2.2", "a/500.9", "a/9000.0"):
        store.put(key(layout, name), stored.data)

    for shape in ([5, 6], [8, 6], [1010, 40])[: 3 if kind == "folder" else 2]:
        service.resizer.resize(A, shape)
        values = read_all(service, A)
        assert (values[:4, :4] == 8).all()
        values[:4, :4] = 1
        assert (values == 1).all()
    assert store.stat(key(layout, "a/9000.0")) is not None
    service.close()

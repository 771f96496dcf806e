"""Documents that plain Zarr clients put: what is cut off is cleared, what a dead writer left never shows, and no node
hides another."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import Service, build
from hyperslab.engine.creation import new_document
from hyperslab.errors import BadDefinition, NodeExists, StoreError, WriteConflict
from hyperslab.storage.base import Entry
from tests.arrays.counting import CountingStore, is_document
from tests.arrays.support import local_store, open_array, read_all, service_on, service_over, snapshot

A = "data/a"
KEY = "data/a/.zarray"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """An array of 1 to 5, ``<i4`` in chunks of 4; the last two came by an append."""
    with service_on(tmp_path) as found:
        found.creator.create_array(A, {"shape": [3], "chunks": [4], "dtype": "<i4"})
        found.writer.write(A, (), np.array([1, 2, 3], "<i4"))
        found.appender.append(A, np.array([4, 5], "<i4"), idempotency_key="k")
        yield found


def put_shape(service: Service, size: int) -> None:
    """As zarr-python resizes: it writes the members that it knows, and drops ours."""
    document = dict(open_array(service).metadata.document)
    document.pop("hyperslab", None)
    service.key_writer.put(KEY, json.dumps({**document, "shape": [size]}).encode())


def test_what_a_client_cuts_off_never_comes_back(tmp_path: Path, service: Service) -> None:
    """Also after an append of ours, of which the document had a note; nor what an append that failed has written, or a
    shrink that was killed has left, even where the client stores a document without the note of it."""
    a, data_id = tmp_path / "a", open_array(service).data_id
    put_shape(service, 2)
    put_shape(service, 6)
    assert read_all(service).tolist() == [1, 2, 0, 0, 0, 0]
    service.appender.append(A, np.array([9], "<i4"), idempotency_key="another")
    assert open_array(service).data_id == data_id  # else no cached chunk would count
    (a / "1").write_bytes(open_array(service).metadata.codec.encode(np.array([0, 0, 9, 8], "<i4")))
    put_shape(service, 8)
    assert read_all(service).tolist() == [1, 2, 0, 0, 0, 0, 9, 0]
    document = {**open_array(service).metadata.document, "shape": [2], "hyperslab": {"extent": [8]}}
    (a / ".zarray").write_text(json.dumps(document))
    put_shape(service, 2)
    service.resizer.resize(A, [8])
    assert read_all(service).tolist() == [1, 2, 0, 0, 0, 0, 0, 0]


def test_a_document_of_another_layout_is_stored_as_it_is(service: Service) -> None:
    document = dict(open_array(service).metadata.document)
    data = json.dumps({**document, "shape": [2, 2], "chunks": [2, 2], "dtype": "<f8"}).encode()

    service.key_writer.put(KEY, data)

    assert open_array(service).metadata.shape == (2, 2)


class FailingStore(CountingStore):
    """Cannot say what versions its documents have, from when it ``fails``."""

    fails = False

    def before(self, operation: str, keys: Sequence[str]) -> None:
        if operation == "versions" and self.fails:
            raise StoreError("data", keys[0], "no answer")


@pytest.mark.parametrize("key", ["a/0", "a/.zarray"])
def test_a_store_that_fails_is_not_taken_for_one_without_an_array(tmp_path: Path, key: str) -> None:
    """Else a chunk would have no array to lie in, and what a shrink cuts off would stay."""
    with service_on(tmp_path) as first:
        first.creator.create_array(A, {"shape": [8], "chunks": [4], "dtype": "<i4"})
        first.writer.write(A, (), np.arange(8, dtype="<i4"))
        document = {**open_array(first).metadata.document, "shape": [2]}
    store = FailingStore(local_store(tmp_path))
    service = build([MountedStore("data", store, writable=True)])
    before = snapshot(tmp_path)
    store.fails = True

    with pytest.raises(StoreError):
        service.key_writer.put(f"data/{key}", json.dumps(document).encode())

    assert snapshot(tmp_path) == before
    service.close()


GROUP = b'{"zarr_format": 2}'
CONSOLIDATED = {"zarr_consolidated_format": 1, "metadata": {"known/.zgroup": {"zarr_format": 2}}}


def plain(service: Service) -> bytes:
    """The document of the array at `A`."""
    return json.dumps(dict(open_array(service).metadata.document)).encode()


@pytest.mark.parametrize("left", [".zgroup", "b/.zarray"], ids=["empty", "without a document"])
@pytest.mark.parametrize("broken", [False, True], ids=["sound", "broken"])
def test_an_array_does_not_take_the_place_of_a_group(tmp_path: Path, service: Service, left: str, broken: bool) -> None:
    service.creator.create_array("data/g/b", {"shape": [3], "chunks": [4], "dtype": "<i4"})
    for other in {".zgroup", "b/.zarray"} - {left}:
        (tmp_path / "g" / other).unlink()
    if broken:
        (tmp_path / "g" / left).write_bytes(b"{")
    before = snapshot(tmp_path)

    with pytest.raises(NodeExists) as caught:
        service.key_writer.put("data/g/.zarray", plain(service))

    assert (caught.value.path, caught.value.kind) == ("data/g", "group")
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("document", [None, b"{"], ids=["sound", "broken"])
def test_a_group_does_not_take_the_place_of_an_array(tmp_path: Path, service: Service, document: bytes | None) -> None:
    if document is not None:
        (tmp_path / "a" / ".zarray").write_bytes(document)

    with pytest.raises(NodeExists) as caught:
        service.key_writer.put("data/a/.zgroup", GROUP)

    assert (caught.value.path, caught.value.kind) == ("data/a", "array")
    assert not (tmp_path / "a" / ".zgroup").exists()


def test_documents_are_put_again_and_groups_get_theirs(tmp_path: Path, service: Service) -> None:
    """Children are seen where the metadata above is broken; a group whose keys were deleted, as clients do that
    overwrite, is none any more."""
    document = plain(service)
    service.creator.create_array("data/g/b", {"shape": [3], "chunks": [4], "dtype": "<i4"})

    assert not service.key_writer.put(KEY, document).created
    assert not service.key_writer.put("data/g/.zgroup", GROUP).created
    (tmp_path / "g" / ".zgroup").unlink()
    for above in (b"{", json.dumps(CONSOLIDATED).encode()):
        (tmp_path / ".zmetadata").write_bytes(above)
        for name in ("g", "known") if above != b"{" else "g":  # one that only the consolidated metadata knows
            with pytest.raises(NodeExists):
                service.key_writer.put(f"data/{name}/.zarray", document)
        assert service.key_writer.put(f"data/new{len(above)}/.zarray", document).created
    assert service.key_writer.put("data/g/.zgroup", GROUP).created
    for key in ("data/g/b/.zarray", "data/g/.zgroup"):
        assert service.key_writer.delete(key)
    assert service.key_writer.put("data/g/.zarray", document).created


@pytest.mark.parametrize("key", ["a/.zattrs", "a/0"])
def test_what_is_written_behind_a_condition_that_held_is_not_deleted(
    tmp_path: Path, service: Service, key: str
) -> None:
    service.creator.change_attributes(A, {"unit": "K"})

    def hold(_: Entry | None) -> None:
        (tmp_path / key).write_bytes(b"{}")

    with pytest.raises(WriteConflict):
        service.key_writer.delete(f"data/{key}", hold)

    assert (tmp_path / key).read_bytes() == b"{}"


@pytest.mark.parametrize(
    ("dtype", "codec"),
    [("<i4", {"id": "shuffle", "elementsize": 3}), ("|V3", {"id": "delta", "dtype": "<f4"})],
    ids=["shuffle", "delta"],
)
def test_codecs_that_nothing_could_be_stored_with_are_refused(
    tmp_path: Path, service: Service, dtype: str, codec: object
) -> None:
    document = {**new_document({"shape": [4], "chunks": [2], "dtype": dtype}), "filters": [codec]}

    with pytest.raises(BadDefinition):
        service.creator.create_array("data/made", document)
    with pytest.raises(BadDefinition):
        service.key_writer.put("data/put/.zarray", json.dumps(document).encode())

    assert not (tmp_path / "put").exists()


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_put_of_a_chunk_looks_up_the_documents_of_its_array_alone(tmp_path: Path, zarr_format: Any) -> None:
    """Once before the lock of the array and once under it."""
    array = zarr.create_group(tmp_path, zarr_format=zarr_format).create_array(
        "g/0", shape=(4, 4), chunks=(2, 2), dtype="i2", compressors=None
    )
    array[:] = 1
    store, data = CountingStore(local_store(tmp_path)), np.ones(4, "i2").tobytes()
    with service_over(store, writable=True) as service:
        keys = ["data/g/0/0.0", "data/g/0/0.1"] if zarr_format == 2 else ["data/g/0/c/0/0", "data/g/0/c/0/1"]
        for key in keys:
            store.lookups.clear()
            assert (service.key_writer.known_memory(key) is None) == (key == keys[0])
            assert key != keys[0] or service.key_writer.memory(key) == 0
            assert not service.key_writer.put(key, data).created

    documents = [key for key in store.looked_up if is_document(key)]
    assert {key.rpartition("/")[0] for key in documents} == {"g/0"}
    assert len(documents) == 2 * 4

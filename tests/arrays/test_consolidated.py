"""``.zmetadata`` stays true however many write at once, and a broken one stands in nobody's way."""

from __future__ import annotations

import json
import math
import shutil
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from hyperslab.arrays import documents
from hyperslab.arrays.service import Service
from hyperslab.errors import ConsolidatedBehind, NodeNotFound, StoreError, StoreFull
from hyperslab.storage.base import Absent, Check, Keep, VersionConflict
from hyperslab.wire import retry
from tests.arrays.counting import CountingStore
from tests.arrays.support import local_store, read_all, service_on, service_over
from tests.documents import zarray

EMPTY = '{"zarr_consolidated_format": 1, "metadata": {}}'


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with service_on(tmp_path) as found:
        found.creator.create_group("data", {})
        yield found


def test_it_holds_what_many_creators_make_at_once(tmp_path: Path, service: Service) -> None:
    (tmp_path / ".zmetadata").write_text(EMPTY)
    definition = {"shape": [1], "dtype": "<f8"}

    with ThreadPoolExecutor(24) as pool:
        list(pool.map(lambda i: service.creator.create_array(f"data/n{i}", definition), range(200)))

    document = json.loads((tmp_path / ".zmetadata").read_text())
    assert {f"n{i}/.zarray" for i in range(200)} <= set(document["metadata"])
    assert document["zarr_consolidated_format"] == 1


@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr_python_finds_all_nodes_in_whatever_order_they_were_made(tmp_path: Path, zarr_format: Any) -> None:
    """It loses nodes of a group that are not listed one behind the other."""
    zarr.open_group(tmp_path, mode="w", zarr_format=zarr_format).create_group("b")
    zarr.consolidate_metadata(tmp_path, zarr_format=zarr_format)
    with service_on(tmp_path) as service:
        for path in ("b/z", "q/r/s", "b/a", "b-x/y", "q/r/a/x", "b/c"):
            service.creator.create_array(f"data/{path}", {"shape": [1], "dtype": "<f8", "zarr_format": zarr_format})

        root = service.catalog.open_group("data")
        assert [child.name for child in service.catalog.children(root, limit=9).nodes] == ["b", "b-x", "q"]

    found = [zarr.open_group(tmp_path, mode="r", use_consolidated=known) for known in (True, False)]
    assert len({tuple(sorted(name for name, _ in group.members(max_depth=None))) for group in found}) == 1


@pytest.mark.parametrize("text", ["not JSON", "[1]", "{}", '{"zarr_consolidated_format": 1, "metadata": 5}'])
def test_changes_succeed_beside_a_broken_one(tmp_path: Path, service: Service, text: str) -> None:
    service.creator.create_array("data/a", {"shape": [4], "dtype": "<i4"})
    (tmp_path / ".zmetadata").write_text(text)

    service.resizer.resize("data/a", [6])
    service.creator.change_attributes("data/a", {"unit": "m"})
    appended = service.appender.append("data/a", np.ones(2, "<i4"))

    assert (appended.offset, appended.array.attributes) == (6, {"unit": "m"})
    assert (tmp_path / ".zmetadata").read_text() == text


def test_it_knows_the_documents_of_arrays_by_their_own_name(tmp_path: Path) -> None:
    """Also where the operator has given them another one in the store."""
    with service_on(tmp_path, mount={"metadata_key": ".array"}) as service:
        (tmp_path / ".zmetadata").write_text('{"zarr_consolidated_format": 1, "metadata": {}}')
        service.creator.create_array("data/a", {"shape": [4], "dtype": "<i4"})
        service.resizer.resize("data/a", [6])
        stored = (tmp_path / "a" / ".array").read_bytes()

        metadata = consolidated(tmp_path)
        assert metadata["a/.zarray"] == json.loads(stored)
        service.key_writer.put("data/a/.array", stored.replace(b"[6]", b"[7]"))
        metadata = consolidated(tmp_path)
        assert metadata["a/.zarray"]["shape"] == [7]
        assert "a/.array" not in metadata


def test_a_group_that_is_known_there_alone_keeps_its_attributes(tmp_path: Path, service: Service) -> None:
    """When something is made below it."""
    known = {"g/.zgroup": {"zarr_format": 2}, "g/.zattrs": {"unit": "m"}}
    (tmp_path / ".zmetadata").write_text(json.dumps({"zarr_consolidated_format": 1, "metadata": known}))

    service.creator.create_array("data/g/a", {"shape": [4], "dtype": "<i4"})

    assert service.catalog.open_group("data/g").attributes == {"unit": "m"}
    assert consolidated(tmp_path).items() >= known.items()


def test_what_has_changed_while_a_client_gathered_it_is_put_right(tmp_path: Path, service: Service) -> None:
    """As zarr-python does it: it reads all documents and puts what it has seen, however long ago that was."""
    for name in "ab":
        service.creator.create_array(f"data/{name}", {"shape": [2], "dtype": "<i4"})
    gathered = _gathered(tmp_path)
    service.appender.append("data/a", np.ones(2, "<i4"))  # there is none to follow yet

    assert service.key_writer.put("data/.zmetadata", gathered).created
    assert consolidated(tmp_path)["a/.zarray"]["shape"] == [4]

    gathered = (tmp_path / ".zmetadata").read_bytes()
    service.appender.append("data/a", np.ones(2, "<i4"))
    service.creator.create_array("data/c", {"shape": [2], "dtype": "<i4"})
    service.creator.delete("data/b")
    put = service.key_writer.put("data/.zmetadata", gathered)

    assert consolidated(tmp_path) == json.loads(_gathered(tmp_path))["metadata"]
    assert {key for key in consolidated(tmp_path) if key.endswith(".zarray")} == {"a/.zarray", "c/.zarray"}
    with pytest.raises(NodeNotFound):
        service.catalog.open_node("data/b")
    entry = local_store(tmp_path).stat(".zmetadata")
    assert (put.created, put.version) == (False, entry and entry.version)


def test_documents_that_are_nowhere_else_and_other_members_stay_byte_for_byte(tmp_path: Path, service: Service) -> None:
    alone: dict[str, Any] = {"a/.zarray": zarray([2]), "../.zarray": {}, "note": {}}
    for size in (2, 3):
        alone["a/.zarray"]["shape"] = [size]
        data = json.dumps({"zarr_consolidated_format": 1, "metadata": alone, "by": "somebody"}, indent=4).encode()
        service.key_writer.put("data/.zmetadata", data)

        assert (tmp_path / ".zmetadata").read_bytes() == data
        assert service.catalog.open_array("data/a").metadata.shape == (size,)


def test_attributes_of_other_nodes_stay_the_numbers_that_they_are(tmp_path: Path, service: Service) -> None:
    """zarr-python writes NaN as it is, and xarray reads text where it became text."""
    service.key_writer.put("data/.zattrs", b'{"valid_min": NaN, "range": [-Infinity, 1.5]}')
    service.key_writer.put("data/.zmetadata", _gathered(tmp_path))

    service.creator.create_array("data/a", {"shape": [2], "dtype": "<f4", "fill_value": "NaN"})

    metadata = consolidated(tmp_path)
    assert metadata[".zattrs"] == {"valid_min": pytest.approx(np.nan, nan_ok=True), "range": [-np.inf, 1.5]}
    assert metadata["a/.zarray"]["fill_value"] == "NaN"


NODE: dict[str, Any] = {"shape": [1], "dtype": "<i4"}


def once_left_out(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Act as soon as consolidated metadata have forgotten what is being removed."""
    drop_copies = documents.drop_copies

    def late(*args: Any) -> None:
        drop_copies(*args)
        act()

    monkeypatch.setattr(documents, "drop_copies", late)


def test_a_node_that_is_made_while_its_group_is_removed_stays_known(
    tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.creator.create_array("data/g/x", NODE)
    (tmp_path / ".zmetadata").write_bytes(_gathered(tmp_path))
    once_left_out(monkeypatch, lambda: service.creator.create_array("data/g/late", NODE))
    service.creator.delete("data/g", recursive=True)

    assert (tmp_path / "g" / "late" / ".zarray").exists()
    assert [key for key in consolidated(tmp_path) if key.startswith("g/")] == ["g/late/.zarray"]


@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
def test_a_node_of_v3_that_is_made_while_its_group_is_removed_keeps_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """zarr-python finds no node below a group without a document."""
    with service_on(tmp_path) as service:
        service.creator.create_array("data/g/x", {**NODE, "zarr_format": 3})
        zarr.consolidate_metadata(tmp_path)
        once_left_out(monkeypatch, lambda: service.creator.create_array("data/g/h/late", {**NODE, "zarr_format": 3}))
        service.creator.delete("data/g", recursive=True)

    for known in (True, False):
        members = zarr.open_group(tmp_path, mode="r", use_consolidated=known).members(max_depth=None)
        assert sorted(path for path, _ in members) == ["g", "g/h", "g/h/late"]


def test_a_node_that_changes_while_its_group_is_replaced_is_forgotten(
    tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.creator.create_array("data/g/x", NODE)
    (tmp_path / ".zmetadata").write_bytes(_gathered(tmp_path))
    once_left_out(monkeypatch, lambda: service.creator.change_attributes("data/g/x", {"a": 1}))
    service.creator.create_array("data/g", NODE, mode="replace")

    assert consolidated(tmp_path).keys() == {".zgroup", "g/.zarray"}


class Vanishing(CountingStore):
    """The group ``g`` is removed just before consolidated metadata with it are stored."""

    def put(self, key: str, data: Any, *, if_version: str | Absent | None = None) -> str:
        if key == ".zmetadata":
            self.inner.delete("g/.zgroup")
        return super().put(key, data, if_version=if_version)


def test_a_group_that_is_removed_while_a_node_in_it_is_made_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / ".zmetadata").write_text(EMPTY)
    with service_over(Vanishing(local_store(tmp_path))) as service:
        service.creator.create_array("data/g/x", NODE)

    assert consolidated(tmp_path).keys() == {".zgroup", "g/x/.zarray"}


def consolidated(folder: Path) -> dict[str, Any]:
    metadata: dict[str, Any] = json.loads((folder / ".zmetadata").read_text())["metadata"]
    return metadata


def _gathered(folder: Path) -> bytes:
    """What `zarr.consolidate_metadata` gathers."""
    names = [path for name in (".zarray", ".zgroup", ".zattrs") for path in folder.rglob(name)]
    metadata = {str(path.relative_to(folder)): json.loads(path.read_text()) for path in names}
    return json.dumps({"zarr_consolidated_format": 1, "metadata": metadata}).encode()


class Unconsolidated(CountingStore):
    """Raises ``error`` where ``.zmetadata`` is to be put, as often as is said; ``removes`` folders or fails."""

    error: Exception | None = None
    errors_left = math.inf
    removes = True

    def put(self, key: str, data: Any, *, if_version: str | Absent | None = None) -> str:
        if key == ".zmetadata" and self.error is not None and self.errors_left > 0:
            self.errors_left -= 1
            raise self.error
        return super().put(key, data, if_version=if_version)

    def delete_prefix(self, prefix: str, check: Check | None = None, keep: Keep | None = None) -> int:
        def fail(key: str, linked: bool) -> bool:
            if keep is not None and keep(key, linked):
                return True
            raise StoreError(self.name, key, "no answer")

        return super().delete_prefix(prefix, check, keep if self.removes else fail)


@pytest.mark.parametrize("error", [VersionConflict(".zmetadata", "1"), StoreFull("data", ".zmetadata", "no space")])
def test_where_it_cannot_follow_what_is_published_is_not_done_again(
    tmp_path: Path, failing: tuple[Unconsolidated, Service], error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "backoff", lambda *_: 0.0)
    store, service = failing
    service.creator.create_array("data/a", {"shape": [2], "dtype": "<i4", "chunks": [2]})
    service.appender.append("data/a", np.array([1, 2], "<i4"))
    rows = np.array([3, 4], "<i4")

    store.error = error
    with pytest.raises(ConsolidatedBehind, match="is done"):
        service.appender.append("data/a", rows, idempotency_key="k")
    assert read_all(service).tolist() == [0, 0, 1, 2, 3, 4]
    assert consolidated(tmp_path)["a/.zarray"]["shape"] == [4]
    with pytest.raises(ConsolidatedBehind):
        service.resizer.resize("data/a", [8])

    store.error = None
    assert service.appender.append("data/a", rows, idempotency_key="k").repeated
    assert consolidated(tmp_path)["a/.zarray"]["shape"] == [8]
    (tmp_path / ".zmetadata").write_text(EMPTY)
    assert service.resizer.resize("data/a", [8]).metadata.shape == (8,)
    assert consolidated(tmp_path)["a/.zarray"]["shape"] == [8]
    assert read_all(service).tolist() == [0, 0, 1, 2, 3, 4, 0, 0]


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[tuple[Unconsolidated, Service]]:
    """A service on a store with consolidated metadata, which fails on command."""
    store = Unconsolidated(local_store(tmp_path))
    with service_over(store) as service:
        service.creator.create_group("data", {})
        (tmp_path / ".zmetadata").write_text(EMPTY)
        yield store, service


FULL = StoreFull("data", ".zmetadata", "no space")


def test_what_is_said_to_be_done_is_done(failing: tuple[Unconsolidated, Service]) -> None:
    """Also what takes several steps, of which the first cannot be followed."""
    store, service = failing
    service.creator.create_array("data/a", {"shape": [2], "dtype": "<i4", "chunks": [2]})
    store.error = FULL

    with pytest.raises(ConsolidatedBehind):
        service.appender.append("data/a", np.array([1, 2], "<i4"))
    assert read_all(service).tolist() == [0, 0, 1, 2]
    with pytest.raises(ConsolidatedBehind):
        service.resizer.resize("data/a", [3], attributes={"unit": "m"})
    assert read_all(service).tolist() == [0, 0, 1]
    with pytest.raises(ConsolidatedBehind):
        service.creator.create_array("data/b/c", {"shape": [2], "dtype": "<i4"})
    assert service.catalog.open_array("data/b/c").metadata.shape == (2,)
    with pytest.raises(ConsolidatedBehind):
        service.creator.create_array("data/a", {"shape": [1], "dtype": "<i4"}, mode="replace")
    assert read_all(service).tolist() == [0]


def test_a_patch_of_shape_and_attributes_is_followed_as_a_whole(
    tmp_path: Path, failing: tuple[Unconsolidated, Service]
) -> None:
    store, service = failing
    service.creator.create_array("data/a", {"shape": [2], "dtype": "<i4"})
    store.error, store.errors_left = FULL, 1

    service.resizer.resize("data/a", [3], attributes={"unit": "m"})

    metadata = consolidated(tmp_path)
    assert (metadata["a/.zarray"]["shape"], metadata["a/.zattrs"]) == ([3], {"unit": "m"})


@pytest.mark.parametrize("path", ["data/a", "data/g/s/a"])
@pytest.mark.parametrize("replaced", [False, True])
def test_an_array_whose_removal_ends_half_way_is_not_served_as_fill_values(
    tmp_path: Path, failing: tuple[Unconsolidated, Service], path: str, replaced: bool
) -> None:
    """Consolidated metadata would open what has lost its document."""
    store, service = failing
    service.creator.create_array(path, {"shape": [0], "dtype": "<i4", "fill_value": 7})
    service.appender.append(path, np.ones(2, "<i4"))
    if path != "data/a":
        inner = {key[4:]: value for key, value in consolidated(tmp_path).items() if key.startswith("g/s/")}
        (tmp_path / "g" / "s" / ".zmetadata").write_text(json.dumps({**json.loads(EMPTY), "metadata": inner}))
    store.removes = False
    create, delete = service.creator.create_group, service.creator.delete
    remove = partial(create, attributes={}, mode="replace") if replaced else partial(delete, recursive=True)

    with pytest.raises(StoreError):
        remove("/".join(path.split("/")[:2]))

    with pytest.raises(NodeNotFound):
        service.catalog.open_array(path)


def test_a_removal_that_consolidated_metadata_could_not_follow_is_not_begun(
    tmp_path: Path, failing: tuple[Unconsolidated, Service]
) -> None:
    """But on a full disk: there it is written when there is space."""
    store, service = failing
    service.creator.create_array("data/a", {"shape": [2], "dtype": "<i4", "fill_value": 7})
    store.error = StoreError("data", ".zmetadata", "no answer")

    with pytest.raises(StoreError) as raised:
        service.creator.delete("data/a")

    assert not isinstance(raised.value, ConsolidatedBehind)
    assert read_all(service).tolist() == [7, 7]
    store.error, store.errors_left = FULL, 1
    service.creator.delete("data/a")
    assert "a/.zarray" not in consolidated(tmp_path)


def test_a_group_of_v3_with_much_of_it_is_read_and_changed(tmp_path: Path) -> None:
    """More than the 16 MiB of any other document."""
    group = zarr.open_group(tmp_path, mode="w", attributes={"unit": "m"})
    for number in range(3):
        group.create_array(f"a{number}", shape=2, chunks=1, dtype="i2", attributes={"long": str(number) * (6 << 20)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(tmp_path)

    with service_on(tmp_path) as service:
        found = service.catalog.open_group("data")
        assert found.attributes == {"unit": "m"}
        assert service.catalog.open_group("data") is found
        assert [child.name for child in service.catalog.children(found, limit=9).nodes] == ["a0", "a1", "a2"]
        service.creator.create_array("data/a3", {"shape": [1], "dtype": "<i2", "zarr_format": 3})
        service.appender.append("data/a3", np.array([3], "i2"))
        service.creator.change_attributes("data", {"unit": "km"})

    consolidated = zarr.open_consolidated(tmp_path)
    shapes = {name: array.shape for name, array in consolidated.arrays()}
    assert shapes == {"a0": (2,), "a1": (2,), "a2": (2,), "a3": (2,)}
    assert consolidated.attrs["unit"] == "km"
    assert len(str(consolidated["a2"].attrs["long"])) == 6 << 20


@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_it_is_read_once_and_again_after_other_programs(tmp_path: Path, zarr_format: Any) -> None:
    group = zarr.open_group(tmp_path, mode="w", zarr_format=zarr_format)
    for name in ("a", "b"):
        group.create_array(name, shape=1, chunks=1, dtype="i2", attributes={"n": [math.nan, "\x00", "é", 2**70]})
    zarr.consolidate_metadata(tmp_path, zarr_format=zarr_format)
    store, key = CountingStore(local_store(tmp_path)), "zarr.json" if zarr_format == 3 else ".zmetadata"
    with service_over(store, writable=True) as service:
        for _ in range(3):
            service.appender.append("data/a", np.ones(1, "i2"))
        assert store.gets.count(key) == 1
        zarr.open_group(tmp_path, use_consolidated=False).create_array("c", shape=1, chunks=1, dtype="i2")
        zarr.consolidate_metadata(tmp_path, zarr_format=zarr_format)
        service.appender.append("data/b", np.ones(1, "i2"))
        assert store.gets.count(key) == 2

    found = zarr.open_consolidated(tmp_path, zarr_format=zarr_format)
    assert {name: array.shape for name, array in found.arrays()} == {"a": (4,), "b": (2,), "c": (1,)}
    attributes: Any = found["b"].attrs
    assert attributes["n"][1:] == ["\x00", "é", 2**70]


@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_nodes_that_it_alone_names_are_named_where_they_are_listed(tmp_path: Path, zarr_format: Any) -> None:
    """Others read it, and find arrays of fill values."""
    root = zarr.open_group(tmp_path, mode="w", zarr_format=zarr_format)
    for path in ("a", "gone", "group/gone"):
        root.create_array(path, shape=2, dtype="i4")
    zarr.consolidate_metadata(root.store)
    shutil.rmtree(tmp_path / "gone")
    shutil.rmtree(tmp_path / "group/gone")
    alone = "consolidated metadata alone describe '{}': no document does"
    if zarr_format == 3:
        alone = "'{}' is not served: consolidated metadata name it, and it has no document"
    with service_on(tmp_path) as service:
        catalog = service.catalog
        group = catalog.open_group("data")
        pages = [catalog.children(group, limit=1)]
        while (cursor := pages[-1].next_cursor) is not None:
            pages.append(catalog.children(group, limit=1, cursor=cursor))

        assert sum((page.problems for page in pages), ()) == (alone.format("gone"),)
        assert catalog.children(group, limit=9).problems == (alone.format("gone"),)
        if zarr_format == 2:
            assert catalog.children(catalog.open_group("data/group"), limit=9).problems == (alone.format("group/gone"),)
            problem = "it has no document: consolidated metadata of 'data' alone describe it"
            assert catalog.open_array("data/gone").problems == (problem,)
            service.creator.delete("data/gone")
            assert catalog.children(group, limit=9).problems == ()

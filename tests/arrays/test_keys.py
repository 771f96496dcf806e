"""A store's own keys, and those that are made for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import zarr

from hyperslab.arrays.keys import KeyReader, MadeKey, StoredKey
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.other_format import OtherFormatReader
from hyperslab.arrays.service import build
from hyperslab.errors import FormNotFound, KeyNotFound, Overloaded
from hyperslab.storage import open_store
from tests.arrays.support import service_on, zarr_array
from tests.faults import FaultProxy
from tests.s3 import S3Bucket, S3Server
from tests.storage.support import fill_bucket


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An implicit group (no ``.zgroup`` anywhere) with two arrays, one of them deeper."""
    zarr_array(tmp_path, np.arange(6, dtype="<i4"), (2,))
    zarr_array(tmp_path / "deep", np.arange(4.0), (4,), name="b", attributes={"unit": "m"})
    return tmp_path


def made(keys: KeyReader, path: str) -> Any:
    found = keys.find(path)
    assert isinstance(found, MadeKey)
    return json.loads(found.data)


def test_documents_are_made_for_groups_that_only_their_children_show(folder: Path) -> None:
    with service_on(folder) as service:
        keys = KeyReader(service.catalog, service.reader)

        for path in ("data/", "data/deep/", ""):
            assert made(keys, f"{path}.zgroup") == {"zarr_format": 2}
        documents = made(keys, "data/.zmetadata")["metadata"]
        assert set(documents) == {".zgroup", "a/.zarray", "deep/.zgroup", "deep/b/.zarray", "deep/b/.zattrs"}
        assert documents["deep/b/.zattrs"] == {"unit": "m"}
        assert set(made(keys, "data/deep/.zmetadata")["metadata"]) == {".zgroup", "b/.zarray", "b/.zattrs"}
        assert "data/a/.zarray" in made(keys, ".zmetadata")["metadata"]
        assert keys.index("") == [".zgroup", ".zmetadata", "data/"]
        assert KeyReader(service.catalog, service.reader, max_nodes=3).find("data/.zmetadata")
        with pytest.raises(FormNotFound, match="at most 2 nodes"):
            KeyReader(service.catalog, service.reader, max_nodes=2).find("data/.zmetadata")
        (folder / "a" / ".zarray").write_text("{}")
        assert documents.keys() - made(keys, "data/.zmetadata")["metadata"].keys() == {"a/.zarray"}


def test_the_version_of_a_made_document_follows_its_contents(folder: Path) -> None:
    with service_on(folder) as service:
        keys = KeyReader(service.catalog, service.reader)
        before = keys.find("data/.zmetadata").version
        again = keys.find("data/.zmetadata").version
        zarr_array(folder, np.zeros(3), (3,), name="new")
        after = keys.find("data/.zmetadata").version

    assert before == again != after


def test_arrays_known_from_consolidated_metadata_alone_have_documents(folder: Path) -> None:
    with service_on(folder) as service:
        found = KeyReader(service.catalog, service.reader).find("data/.zmetadata")
        assert isinstance(found, MadeKey)
    (folder / ".zmetadata").write_bytes(found.data)
    stored = json.loads((folder / "deep" / "b" / ".zarray").read_bytes())
    for name in (".zarray", ".zattrs"):
        (folder / "deep" / "b" / name).unlink()

    with service_on(folder) as service:
        keys = KeyReader(service.catalog, service.reader)
        assert made(keys, "data/deep/b/.zarray") == stored
        assert made(keys, "data/deep/b/.zattrs") == {"unit": "m"}


def test_assumed_metadata_and_renamed_keys_are_found_under_the_usual_name(folder: Path) -> None:
    document = json.loads((folder / "a" / ".zarray").read_bytes())
    (folder / "a" / ".zarray").rename(folder / "a" / "zarray")
    with service_on(folder / "a", mount={"metadata_key": "zarray"}) as service:
        found = KeyReader(service.catalog, service.reader).find("data/.zarray")
        assert isinstance(found, StoredKey)
        assert found.key == "zarray"
    (folder / "a" / "zarray").unlink()
    with service_on(folder / "a", mount={"assume_metadata": {"": document}}) as service:
        assert made(KeyReader(service.catalog, service.reader), "data/.zarray") == document


def test_hidden_files_are_found_only_where_they_are_chunks_or_documents(folder: Path) -> None:
    zarr_array(folder, np.arange(4), (2,), name=".odd")
    zarr.save_array(str(folder / "..x"), np.arange(4), zarr_format=3)
    (folder / ".env").write_text("secret")
    (folder / ".odd" / ".env").write_text("secret")

    with service_on(folder) as service:
        keys = KeyReader(service.catalog, service.reader)
        for path in ("data/.odd/0", "data/.odd/.zarray", "data/..x/zarr.json", "data/..x/c/0"):
            assert isinstance(keys.find(path), StoredKey)
        for path in ("data/.env", "data/.odd/.env"):
            with pytest.raises(KeyNotFound):
                keys.find(path)


def test_a_key_that_changes_under_its_reader_is_never_mixed(folder: Path) -> None:
    with service_on(folder) as service:
        keys = KeyReader(service.catalog, service.reader)
        found = keys.find("data/a/0")
        assert isinstance(found, StoredKey)
        (folder / "a" / "0").write_bytes(b"something else")
        with pytest.raises(Overloaded):
            keys.read_range(found, 0, 5)
        (folder / "a" / "0").unlink()
        with pytest.raises(KeyNotFound):
            keys.read_range(found, 0, 5)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_documents_are_read_once_to_consolidate_them_and_again_when_they_change(
    s3_server: S3Server, s3_bucket: S3Bucket, zarr_format: Literal[2, 3]
) -> None:
    """From a bucket: by listings, and a GET of each document."""
    memory: dict[str, Any] = {}
    group = zarr.create_group(zarr.storage.MemoryStore(memory), zarr_format=zarr_format, attributes={"a": 1})
    group.create_array("g/array", shape=3, chunks=1, dtype="i2")[:] = 1
    copied = {key: value.to_bytes() for key, value in memory.items()}
    array = {key.removeprefix("g/array/"): copied.pop(key) for key in [*copied] if key.startswith("g/array/")}
    objects = {f"g/{i:03}/{name}": value for i in range(60) for name, value in array.items()} | copied
    fill_bucket(s3_server, s3_bucket, objects)
    with FaultProxy(s3_server.url) as proxy:
        store = open_store(s3_bucket.at(proxy.url).config())
        service = build([MountedStore("data", store)])
        keys = OtherFormatReader(service.catalog, service.reader, 3)

        def found() -> tuple[Any, int, int]:
            before = len(proxy.seen)
            made = json.loads(keys.find("data/zarr.json").data)  # type: ignore[union-attr]
            asked = [seen for seen in list(proxy.seen)[before:] if "list-type" not in seen.path]
            documents = [seen for seen in asked if seen.method == "GET"]
            return made["consolidated_metadata"]["metadata"], len(documents), len(asked)

        first, gets, _ = found()
        assert len(first) == 61
        assert gets <= 1.2 * sum(key.endswith((".zarray", ".zgroup", ".zattrs", "zarr.json")) for key in objects)
        again, gets, requests = found()
        assert (again, gets < 10, requests < 30) == (first, True, True)
        s3_server.client.put_object(Bucket=s3_bucket.name, Key="g/040/new/0", Body=b"1")  # no document
        assert found()[0] == first
        document = next(key for key in objects if key.startswith("g/007/") and key.endswith(("zarr.json", ".zarray")))
        s3_server.client.delete_object(Bucket=s3_bucket.name, Key=document)
        assert first.keys() - found()[0].keys() == {"g/007"}
        limited = OtherFormatReader(service.catalog, service.reader, 3)
        limited._max_nodes = 50
        assert "consolidated_metadata" not in json.loads(limited.find("data/zarr.json").data)  # type: ignore[union-attr]

"""A store's own keys, and those that are made for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperslab.arrays.keys import KeyReader, MadeKey, StoredKey
from hyperslab.errors import KeyNotFound, Overloaded
from tests.arrays.support import service_on, zarr_array


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
        with pytest.raises(KeyNotFound):  # it would be too long
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


def test_hidden_files_are_found_only_where_they_are_chunks(folder: Path) -> None:
    zarr_array(folder, np.arange(4), (2,), name=".odd")
    (folder / ".env").write_text("secret")
    (folder / ".odd" / ".env").write_text("secret")

    with service_on(folder) as service:
        keys = KeyReader(service.catalog, service.reader)
        assert isinstance(keys.find("data/.odd/0"), StoredKey)
        assert isinstance(keys.find("data/.odd/.zarray"), StoredKey)
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

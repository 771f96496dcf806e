"""``az://``, against as much of the Blob service as conditional puts need."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import pytest
from typing_extensions import override

from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import ABSENT, Store, VersionConflict, WritersSafe
from tests.storage.support import Quiet, serve

_DATE: Final = "Sun, 22 Nov 2026 12:00:00 GMT"


def _listed(blobs: Mapping[str, tuple[bytes, str]], container: str, prefix: str, delimiter: str | None) -> bytes:
    """The answer to a listing of all blobs below a prefix, or of those before the next delimiter."""
    entries, folders = list[str](), set[str]()
    for path, (data, tag) in sorted(blobs.items()):
        name = path.removeprefix(container)
        inside, more, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
        if name.startswith(prefix) and more:
            folders.add(f"{prefix}{inside}{delimiter}")
        elif name.startswith(prefix):
            properties = f"<Last-Modified>{_DATE}</Last-Modified><Content-Length>{len(data)}</Content-Length>"
            properties += f"<Content-Type>x</Content-Type><Etag>{tag}</Etag>"
            entries.append(f"<Blob><Name>{name}</Name><Properties>{properties}</Properties></Blob>")
    entries += [f"<BlobPrefix><Name>{name}</Name></BlobPrefix>" for name in sorted(folders)]
    return f"<EnumerationResults><Blobs>{''.join(entries)}</Blobs><NextMarker /></EnumerationResults>".encode()


class _Blobs(Quiet):
    """Blobs by path, each with its tag."""

    protocol_version = "HTTP/1.1"
    blobs: ClassVar[dict[str, tuple[bytes, str]]] = {}
    folders: ClassVar[set[str]] = set()
    lock: ClassVar = threading.Lock()

    def do_PUT(self) -> None:  # noqa: N802  (the base class looks for it)
        """Where nothing must be there and something is, the service says 409, and 412 for every other condition."""
        path, body = urlsplit(self.path).path, self.rfile.read(int(self.headers["Content-Length"]))
        with self.lock:
            found = self.blobs.get(path)
            if self.headers["If-None-Match"] == "*" and found is not None:
                self.answer(409, b"<Error><Code>BlobAlreadyExists</Code></Error>")
            elif self.headers["If-Match"] not in (None, found and found[1]):
                self.answer(412, b"<Error><Code>ConditionNotMet</Code></Error>")
            else:
                self.blobs[path] = body, f'"{uuid4().hex}"'
                self.answer(201, headers={"ETag": self.blobs[path][1]})

    @override
    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        if query.get("comp") == "list":
            self.answer(200, _listed(self.blobs, f"{url.path}/", query.get("prefix", ""), query.get("delimiter")))
            return
        found = self.blobs.get(url.path)
        if found is None:
            self.answer(404, b"<Error><Code>BlobNotFound</Code></Error>")
        else:
            marked = {"x-ms-meta-hdi_isfolder": "true"} if url.path in self.folders else {}
            self.answer(200, found[0], {"ETag": found[1], "Last-Modified": _DATE, **marked})

    do_HEAD = do_GET  # noqa: N815  (the base class looks for it)

    def do_DELETE(self) -> None:  # noqa: N802  (the base class looks for it)
        self.blobs.pop(urlsplit(self.path).path, None)
        self.answer(202)

    def do_POST(self) -> None:  # noqa: N802  (the base class looks for it)
        """A batch of deletions: this service takes none."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(501)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    _Blobs.blobs.clear()
    _Blobs.folders.clear()
    for endpoint in serve(_Blobs, tmp_path / "root"):
        options = {"account_name": "x", "account_key": "eA==", "endpoint": endpoint}
        yield open_store(StoreConfig("a", "az://container", writable=True, timeout=60.0, retries=1, options=options))


def test_conditions_are_honoured(store: Store) -> None:
    first = store.put("k", b"1", if_version=ABSENT)
    second = store.put("k", b"2", if_version=first)

    for condition in (ABSENT, first):
        with pytest.raises(VersionConflict) as conflict:
            store.put("k", b"3", if_version=condition)
        assert conflict.value.current == second
    assert store.capabilities.writers_safe is WritersSafe.REPLICAS


def test_the_end_of_a_value_is_read_though_the_service_knows_no_ranges_from_there(store: Store) -> None:
    """The index of a shard lies there."""
    store.put("k", b"0123456789")

    part = store.get_end("k", 3)

    assert part is not None
    assert (part.entry.size, bytes(part.between(7, 10))) == (10, b"789")


def test_folders_that_hadoop_and_consoles_make_are_no_keys(store: Store) -> None:
    folders = {"g", "g/a", "g/empty", "g/b/"}
    for key in sorted({*folders, "g/.zgroup", "g/a/0", "g/a/zero"}):
        _Blobs.blobs[f"/container/{key}"] = b"" if key in folders or key == "g/a/zero" else b"1", '"1"'
    _Blobs.folders |= {f"/container/{key}" for key in folders if not key.endswith("/")}

    assert [entry.key for entry in store.list_dir("g/").entries] == ["g/.zgroup"]
    assert store.list_dir("g/").prefixes == ("a", "b")
    assert [entry.key for entry in store.list_prefix("g/")] == ["g/.zgroup", "g/a/0", "g/a/zero"]

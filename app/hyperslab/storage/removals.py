"""Removing objects on condition: by a DELETE that names the version, else by a put of a value that counts as absent.

A DELETE without a condition may be repeated by a library, or come late, and take away what another writer has stored
since. obstore knows no other, so a signed URL is asked with ``If-Match``; many endpoints ignore that header, so each is
tried once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from http import HTTPStatus
from threading import Lock
from typing import Any, Final
from uuid import uuid4

import obstore

from hyperslab.errors import StoreDenied, StoreError
from hyperslab.storage.base import VersionConflict
from hyperslab.storage.conditional import NO_SUCH_VERSION, ConditionalPuts, pause, version_of
from hyperslab.storage.http import Deletes
from hyperslab.storage.keys import HIDDEN
from hyperslab.storage.object_client import Connection
from hyperslab.storage.object_errors import OBSTORE_ERRORS

REMOVED: Final = b"removed by hyperslab\n"
"""The value of a key that is not there any more, where the endpoint cannot delete on condition."""

_TAG: Final = f'"{hashlib.md5(REMOVED, usedforsecurity=False).hexdigest()}"'
_SIGNED_FOR: Final = timedelta(minutes=5)
_MOST_KNOWN: Final = 100_000


class Removals:
    """Removes objects of one bucket in just one version, and knows which were removed. Safe to call from threads."""

    def __init__(self, connection: Connection, store: str, puts: ConditionalPuts, timeout: float) -> None:
        self._connection = connection
        self._store = store
        self._puts = puts
        self._requests = Deletes(timeout)
        self._deletes: bool | None = None if connection.signs else False
        self._probing = Lock()
        self._known: dict[tuple[str, str], bool] = {}

    def remove(self, key: str, path: str, version: str) -> None:
        """Raises `VersionConflict` where the key has another version, and `errors.StoreError`."""
        if self.leaves_nothing():
            self._delete(key, path, version)
        else:
            self._puts.put(key, path, memoryview(REMOVED), version)

    def leaves_nothing(self) -> bool:
        """Whether the endpoint deletes on condition; asked once, with a throw-away key below ``.hyperslab/``."""
        with self._probing:
            if self._deletes is None:
                self._deletes = self._honours_conditions()
            return self._deletes

    def is_removed(self, path: str, meta: Mapping[str, Any]) -> bool:
        """Whether an object, of which this is known, counts as absent. Where versions are digests, or were seen before,
        no request is sent."""
        if meta["size"] != len(REMOVED):
            return False
        version = version_of(self._connection, meta)  # type: ignore[arg-type]
        if version == _TAG:
            return True
        found = self._known.get((path, version))
        if found is None:
            try:
                found = bytes(obstore.get(self._connection.patient, path).bytes()) == REMOVED
            except FileNotFoundError:
                return True  # it is gone since
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[path, version] = found
        return found

    def close(self) -> None:
        self._requests.close()

    def _delete(self, key: str, path: str, version: str) -> None:
        for attempt in range(self._puts.retries + 1):
            status = self._ask(path, version)
            if status in (HTTPStatus.OK, HTTPStatus.NO_CONTENT) or (attempt and status == HTTPStatus.NOT_FOUND):
                return
            if status in (HTTPStatus.NOT_FOUND, HTTPStatus.PRECONDITION_FAILED):
                raise VersionConflict(key, None)
            if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                raise StoreDenied(self._store, key, f"the object store answered {status}")
            pause(attempt)
        raise StoreError(self._store, key, f"the object store answered {status or 'nothing'} to a delete")

    def _ask(self, path: str, version: str) -> int | None:
        return self._requests.ask(obstore.sign(self._connection.once, "DELETE", path, _SIGNED_FOR), version)

    def _honours_conditions(self) -> bool:
        client, path = self._connection.patient, f"{self._connection.base}{HIDDEN}/probe-{uuid4().hex}"
        try:
            version = version_of(self._connection, obstore.put(client, path, b"1", use_multipart=False))
            try:
                refused = self._ask(path, NO_SUCH_VERSION) == HTTPStatus.PRECONDITION_FAILED
                return refused and self._ask(path, version) in (HTTPStatus.OK, HTTPStatus.NO_CONTENT)
            finally:
                with suppress(*OBSTORE_ERRORS):
                    obstore.delete(client, path)
        except OBSTORE_ERRORS:
            return False

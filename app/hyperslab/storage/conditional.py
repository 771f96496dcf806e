"""Conditional puts and deletes on object stores, including their detection and the recovery of lost responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

import obstore
import urllib3
from obstore.exceptions import BaseError

from hyperslab.errors import InDoubt, StoreDenied, StoreError
from hyperslab.storage.base import ABSENT, Absent, VersionConflict
from hyperslab.storage.client import Client, Connection
from hyperslab.storage.errors import (
    OBSTORE_ERRORS,
    is_concurrent_write,
    is_unmet_condition,
    is_worth_retrying,
    means_no_access,
    means_no_bucket,
    status_of,
    translate,
    was_not_applied,
)
from hyperslab.storage.keys import HIDDEN
from hyperslab.wire.retry import attempts

if TYPE_CHECKING:  # obstore's types are not there at run time
    from obstore import ObjectMeta, PutResult
    from obstore.store import S3Store

TOMBSTONE: Final = b"removed by hyperslab\n"
"""The value of deleted keys, if the endpoint does not support conditional deletes."""

_TOKEN: Final = "hyperslabwrite"
"""Object metadata with the token of a conditional put (Azure allows no hyphen in the name)."""
_NO_SUCH_VERSION: Final = '"00000000000000000000000000000000"'


def version_of(connection: Connection, meta: ObjectMeta | PutResult) -> str:
    """The version of an object: its ETag, or on GCS its generation, which conditions refer to there."""
    if connection.kind == "gs" and (generation := meta.get("version")):
        return generation
    if tag := meta.get("e_tag"):
        return tag if tag.endswith('"') else f'"{tag}"'  # some servers omit the quotes in listings
    return f"{meta.get('last_modified')}-{meta.get('size')}"  # a server without ETags


@dataclass(frozen=True, slots=True)
class ConditionalPuts:
    """Conditional puts with retries and a known outcome.

    After a lost response, a retry conflicts with the first attempt, if that was applied. Each put therefore stores a
    token, which tells after a conflict whether the stored value is its own.
    """

    connection: Connection
    store: str
    retries: int

    def put(self, key: str, path: str, data: memoryview, if_version: str | Absent) -> str:
        """Store a value and return its version.

        Raises `VersionConflict` if the put was certainly not applied, `errors.InDoubt` if it may have been applied and
        overwritten since, and other `errors.StoreError` if it failed.
        """
        token, in_doubt = uuid4().hex, False
        mode = _put_mode(self.connection, if_version)
        for attempt in attempts(self.retries + 1):
            try:
                put = obstore.put(
                    self.connection.without_retries,
                    path,
                    data,
                    mode=mode,
                    attributes={_TOKEN: token},
                    use_multipart=False,
                )
                return version_of(self.connection, put)
            except OBSTORE_ERRORS as error:
                last = attempt == self.retries
                if (is_unmet_condition(error) and not means_no_bucket(error)) or (last and is_concurrent_write(error)):
                    return self._resolve_conflict(key, path, token, error if in_doubt else None)
                retryable = is_worth_retrying(error)
                in_doubt = in_doubt or (retryable and not was_not_applied(error))
                if last or not retryable:
                    with suppress(StoreError):  # the first failure is the one to report
                        current, stored = self._current(key, path) if in_doubt else (None, None)
                        if current is not None and stored == token:  # an earlier attempt was applied
                            return current
                    raise translate(self.store, key, error, self.connection.place) from error
        raise AssertionError("unreachable: the last attempt returns or raises")

    def overwrite(self, key: str, path: str, data: memoryview) -> str:
        """Store a value over whatever version is current, and return its version.

        By conditional puts: a plain put that timed out could still arrive later, and overwrite newer values.
        """
        limit = 20
        for _ in attempts(limit):
            current = self._current(key, path)[0]
            with suppress(VersionConflict, InDoubt):
                return self.put(key, path, data, ABSENT if current is None else current)
        raise StoreError(self.store, key, f"other writers came first {limit} times")

    def _resolve_conflict(self, key: str, path: str, token: str, doubt: Exception | None) -> str:
        """The version if an earlier attempt of the same put was applied; else raises, ``doubt`` as `errors.InDoubt`."""
        current, stored = self._current(key, path)
        if current is not None and stored == token:
            return current
        if doubt is not None:
            reason = "an answer was lost and another writer came: whether this write was stored is not known"
            raise InDoubt(self.store, key, reason) from doubt
        raise VersionConflict(key, current)

    def _current(self, key: str, path: str) -> tuple[str | None, object]:
        """Version and token of the current value."""
        try:
            result = obstore.get(self.connection.retrying, path, options={"head": True})
        except FileNotFoundError:
            return None, None
        except OBSTORE_ERRORS as error:
            if means_no_access(error) and status_of(error) in self.connection.missing:
                return None, None
            raise translate(self.store, key, error, self.connection.place) from error
        return version_of(self.connection, result.meta), result.attributes.get(_TOKEN)


class ConditionalDeletes:
    """Conditional deletes: by DELETE with ``If-Match`` if the endpoint supports it, else by a put of a tombstone.

    An unconditional DELETE that is retried or delayed could delete a newer value. obstore has no other, so a signed URL
    is requested directly. Support is detected with a temporary object, as many endpoints ignore the header.
    Thread-safe.
    """

    def __init__(self, connection: Connection, store: str, puts: ConditionalPuts, timeout: float) -> None:
        self._connection = connection
        self._store = store
        self._puts = puts
        self._http = urllib3.PoolManager(num_pools=2, maxsize=64, timeout=timeout, retries=False)
        self._honoured: bool | None = None if connection.signs else False
        self._probing = Lock()
        self._known: dict[tuple[str, str], bool] = {}

    def delete(self, key: str, path: str, version: str) -> None:
        """Delete a key; raises `VersionConflict` if it has another version, and `errors.StoreError`."""
        if not self.are_honoured():
            self._puts.put(key, path, memoryview(TOMBSTONE), version)
            return
        for attempt in attempts(self._puts.retries + 1):
            status = self._request(path, version)
            if status in (HTTPStatus.OK, HTTPStatus.NO_CONTENT) or (attempt and status == HTTPStatus.NOT_FOUND):
                return
            if status in (HTTPStatus.NOT_FOUND, HTTPStatus.PRECONDITION_FAILED):
                raise VersionConflict(key, None)
            if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                raise StoreDenied(self._store, key, f"the object store answered {status}")
        raise StoreError(self._store, key, f"the object store answered {status or 'nothing'} to a delete")

    def are_honoured(self) -> bool:
        """Whether the endpoint supports conditional deletes; detected once."""
        with self._probing:
            if self._honoured is None:
                self._honoured = False
                with suppress(*OBSTORE_ERRORS), _probe(self._connection) as (path, version):
                    refused = self._request(path, _NO_SUCH_VERSION) == HTTPStatus.PRECONDITION_FAILED
                    self._honoured = refused and self._request(path, version) in (HTTPStatus.OK, HTTPStatus.NO_CONTENT)
            return self._honoured

    def is_tombstone(self, path: str, meta: Mapping[str, Any]) -> bool:
        """Whether an object is a tombstone; sends a request unless the ETag is an MD5 or the version was seen
        before."""
        if meta["size"] != len(TOMBSTONE):
            return False
        version = version_of(self._connection, meta)  # type: ignore[arg-type]
        if version.strip('"') == "41eedaba3b9bb3dc7c9ed8598ae07999":  # the MD5 of TOMBSTONE, its ETag on S3
            return True
        is_tombstone = self._known.get((path, version))
        if is_tombstone is None:
            try:
                is_tombstone = bytes(obstore.get(self._connection.retrying, path).bytes()) == TOMBSTONE
            except FileNotFoundError:
                return True  # deleted meanwhile
            if len(self._known) >= 100_000:
                self._known.clear()
            self._known[path, version] = is_tombstone
        return is_tombstone

    def close(self) -> None:
        self._http.clear()

    def _request(self, path: str, version: str) -> int | None:
        """The status of a conditional DELETE; None without a response."""
        url = obstore.sign(cast("S3Store", self._connection.without_retries), "DELETE", path, timedelta(minutes=5))
        try:
            return self._http.request("DELETE", url, headers={"If-Match": version}, redirect=False).status
        except urllib3.exceptions.HTTPError:
            return None


def honours_conditions(connection: Connection, store: str) -> bool:
    """Whether the endpoint supports conditional puts, detected with a temporary object.

    Some S3-compatible servers ignore the headers, and would lose updates silently. Raises `errors.StoreError` if
    requests fail.
    """
    client, wrong = connection.retrying, "1" if connection.kind == "gs" else _NO_SUCH_VERSION
    try:
        with _probe(connection) as (path, version):
            return (
                _is_refused(client, path, "create")
                and _is_refused(client, path, _put_mode(connection, wrong))
                and (
                    not _is_refused(client, path, _put_mode(connection, version))
                    or obstore.get(client, path).bytes() == b"2"  # a retry after a lost response
                )
            )
    except OBSTORE_ERRORS as error:
        if status_of(error) in (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_IMPLEMENTED):
            return False
        raise translate(store, f"{HIDDEN}/", error, connection.place) from error


@contextmanager
def _probe(connection: Connection) -> Iterator[tuple[str, str]]:
    """Path and version of a temporary object below ``.hyperslab/``."""
    client, path = connection.retrying, f"{connection.base}{HIDDEN}/probe-{uuid4().hex}"
    version = version_of(connection, obstore.put(client, path, b"1", use_multipart=False))
    try:
        yield path, version
    finally:
        with suppress(*OBSTORE_ERRORS):  # the credentials may not allow deletes
            obstore.delete(client, path)


def _is_refused(client: Client, path: str, mode: Any) -> bool:
    try:
        obstore.put(client, path, b"2", mode=mode, use_multipart=False)
    except BaseError as error:
        if is_unmet_condition(error):
            return True
        raise
    return False


def _put_mode(connection: Connection, if_version: str | Absent) -> Any:
    """obstore's put mode of a condition."""
    if if_version is ABSENT:
        return "create"
    return {"version" if connection.kind == "gs" else "e_tag": if_version}

"""Conditional puts on object stores: are they honoured, and was one stored whose answer got lost?"""

from __future__ import annotations

import random
import time
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import obstore
from obstore.exceptions import BaseError

from hyperslab.errors import InDoubt, StoreError
from hyperslab.storage.base import ABSENT, Absent, VersionConflict
from hyperslab.storage.keys import HIDDEN
from hyperslab.storage.object_client import Client, Connection
from hyperslab.storage.object_errors import (
    OBSTORE_ERRORS,
    is_unmet_condition,
    is_worth_retrying,
    means_no_bucket,
    met_others,
    status_of,
    translate,
    was_surely_not_applied,
)

if TYPE_CHECKING:  # obstore's types are not there at run time
    from obstore import ObjectMeta, PutResult

MARK: Final = "hyperslabwrite"
"""Metadata of objects put under a condition: a token of that one put (no hyphen: Azure allows none)."""

_LONGEST_PAUSE: Final = 2.0
_MOST_OVERWRITES: Final = 20
_CHANGED: Final = b"2"
NO_SUCH_VERSION: Final = '"00000000000000000000000000000000"'


def version_of(connection: Connection, meta: ObjectMeta | PutResult) -> str:
    """The version of an object: its ETag; on GCS its generation, which is what conditions name there."""
    if connection.kind == "gs" and (generation := meta.get("version")):
        return generation
    if tag := meta.get("e_tag"):
        return tag if tag.endswith('"') else f'"{tag}"'  # some servers do not quote it in listings
    return f"{meta.get('last_modified')}-{meta.get('size')}"  # a server without ETags: seconds and a size at best


def put_mode(connection: Connection, if_version: str | Absent) -> Any:
    """obstore's name for a condition."""
    if if_version is ABSENT:
        return "create"
    return {"version" if connection.kind == "gs" else "e_tag": if_version}


@dataclass(frozen=True, slots=True)
class _Found:
    version: str
    token: str | None


@dataclass(frozen=True, slots=True)
class ConditionalPuts:
    """Puts with a condition, each of which is applied once or not at all, and known to be.

    A library that retries by itself cannot promise that: when the answer to a put is lost, its second try meets its
    own first one and reports a conflict for a write that was stored. So each put carries a token; on a conflict
    the token in the store says whose write it was.
    """

    connection: Connection
    store: str
    retries: int

    def put(self, key: str, path: str, data: memoryview, if_version: str | Absent) -> str:
        """Store and return the new version.

        Raises `VersionConflict` only where this put was certainly not applied, `errors.InDoubt` where nobody can say
        (it may have been, and was overwritten since) and another `errors.StoreError` where it failed.
        """
        return self._put(key, path, data, if_version)

    def overwrite(self, key: str, path: str, data: memoryview) -> str:
        """Store whatever is there, and return the new version: a put on top of the version that is found.

        Not a plain put, because one that timed out may still be on its way. It would come in after its own repetition
        and after what other writers have put on top of that since; with a condition it comes to nothing.
        """
        for attempt in range(_MOST_OVERWRITES):
            found = self._look(key, path)
            try:
                return self._put(key, path, data, ABSENT if found is None else found.version)
            except (VersionConflict, InDoubt):
                pause(attempt)
        raise StoreError(self.store, key, f"other writers came first {_MOST_OVERWRITES} times")

    def _put(self, key: str, path: str, data: memoryview, if_version: str | Absent) -> str:
        token, in_doubt = uuid4().hex, False
        for attempt in range(self.retries + 1):
            try:
                return self._try(path, data, put_mode(self.connection, if_version), token)
            except OBSTORE_ERRORS as error:
                last = attempt == self.retries
                if (is_unmet_condition(error) and not means_no_bucket(error)) or (last and met_others(error)):
                    return self._settle(key, path, token, error if in_doubt else None)
                retryable = is_worth_retrying(error)
                in_doubt = in_doubt or (retryable and not was_surely_not_applied(error))
                if last or not retryable:
                    return self._give_up(key, path, token if in_doubt else None, error)
                pause(attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _try(self, path: str, data: memoryview, mode: Any, token: str) -> str:
        result = obstore.put(self.connection.once, path, data, mode=mode, attributes={MARK: token}, use_multipart=False)
        return version_of(self.connection, result)

    def _settle(self, key: str, path: str, token: str, doubt: Exception | None) -> str:
        """The condition was not met: by an earlier try of ours, or by another writer?"""
        found = self._look(key, path)
        if found is not None and found.token == token:
            return found.version
        if doubt is not None:
            reason = "an answer was lost and another writer came: whether this write was stored is not known"
            raise InDoubt(self.store, key, reason) from doubt
        raise VersionConflict(key, None if found is None else found.version)

    def _give_up(self, key: str, path: str, token: str | None, error: Exception) -> str:
        """The last try failed: so does the put, unless one of them (``token``: that may be) was stored all the same."""
        with suppress(StoreError):  # the first failure is the one to report
            found = None if token is None else self._look(key, path)
            if found is not None and found.token == token:
                return found.version
        raise translate(self.store, key, error) from error

    def _look(self, key: str, path: str) -> _Found | None:
        try:
            result = obstore.get(self.connection.patient, path, options={"head": True})
        except FileNotFoundError:
            return None
        except OBSTORE_ERRORS as error:
            raise translate(self.store, key, error) from error
        token = result.attributes.get(MARK)
        return _Found(version_of(self.connection, result.meta), None if token is None else str(token))


def honours_conditions(connection: Connection, store: str) -> bool:
    """Whether the endpoint compares versions on put, found out with a throw-away key below ``.hyperslab/``.

    Some S3-compatible servers ignore the headers, and would lose updates in silence. Raises `errors.StoreError` where
    the question could not be asked.
    """
    client, path = connection.patient, f"{connection.base}{HIDDEN}/probe-{uuid4().hex}"
    try:
        version = version_of(connection, obstore.put(client, path, b"1", use_multipart=False))
        try:
            wrong = "1" if connection.kind == "gs" else NO_SUCH_VERSION
            return (
                _is_refused(client, path, put_mode(connection, ABSENT))
                and _is_refused(client, path, put_mode(connection, wrong))
                and _is_stored(client, path, put_mode(connection, version))
            )
        finally:
            with suppress(*OBSTORE_ERRORS):  # who may put need not be allowed to delete
                obstore.delete(client, path)
    except OBSTORE_ERRORS as error:
        if status_of(error) in (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_IMPLEMENTED):
            return False
        raise translate(store, f"{HIDDEN}/", error) from error


def pause(attempt: int) -> None:
    time.sleep(random.uniform(0, min(_LONGEST_PAUSE, 0.05 * 2**attempt)))


def _is_refused(client: Client, path: str, mode: Any) -> bool:
    try:
        obstore.put(client, path, _CHANGED, mode=mode, use_multipart=False)
    except BaseError as error:
        if is_unmet_condition(error):
            return True
        raise
    return False


def _is_stored(client: Client, path: str, mode: Any) -> bool:
    """Whether a put is not refused. One whose answer was lost is, when obstore repeats it, by what it has stored."""
    return not _is_refused(client, path, mode) or obstore.get(client, path).bytes() == _CHANGED

"""Sending requests to a bucket: a bounded number at once, and their errors told apart."""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, TypeVar

import obstore

from hyperslab.errors import StoreError
from hyperslab.storage.object_client import Connection
from hyperslab.storage.object_errors import OBSTORE_ERRORS, is_panic, means_no_bucket, means_no_key, translate

_TRUSTED_FOR: Final = 10.0
"""Seconds for which a bucket that answered is taken to be there."""

T = TypeVar("T")


class Requests:
    """At most ``width`` requests in flight, whichever threads they come from."""

    def __init__(self, connection: Connection, store: str, width: int) -> None:
        self._connection = connection
        self._store = store
        self._slots: SimpleQueue[None] = SimpleQueue()  # a semaphore, at a twentieth of the price of threading's
        for _ in range(width):
            self._slots.put(None)
        self._bucket_seen = float("-inf")

    def call(self, key: str, request: Callable[[], T]) -> T:
        """The answer to a request; what goes wrong becomes an error of ours, a 404 that of a missing bucket."""
        self._slots.get()
        try:
            return request()
        except OBSTORE_ERRORS as error:
            raise translate(self._store, key, error) from error
        except BaseException as error:
            if is_panic(error):
                raise StoreError(self._store, key, "the object store's answer cannot be understood") from error
            raise
        finally:
            self._slots.put(None)

    def ask(self, key: str, request: Callable[[], T]) -> T | None:
        """The answer to a request about a key; None where the key, and only the key, is not there."""

        def send() -> T | None:
            try:
                answer = request()
            except FileNotFoundError as error:
                self._confirm_absence(key, error)
                return None
            self._bucket_seen = time.monotonic()
            return answer

        return self.call(key, send)

    def _confirm_absence(self, key: str, error: FileNotFoundError) -> None:
        """Return where a 404 is about the key; raises where the bucket is gone.

        A HEAD answer does not say which: then the bucket must have been seen a moment ago, or a GET asks, whose 404
        has a body.
        """
        if not means_no_bucket(error) and not means_no_key(error) and self._has_not_been_seen():
            try:
                obstore.get(self._connection.patient, self._connection.base + key)
            except FileNotFoundError as answer:
                error = answer
        if means_no_bucket(error):
            self._bucket_seen = float("-inf")
            raise error
        if means_no_key(error) or self._has_not_been_seen():
            self._bucket_seen = time.monotonic()

    def _has_not_been_seen(self) -> bool:
        return time.monotonic() - self._bucket_seen > _TRUSTED_FOR

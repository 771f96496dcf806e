"""Translation of obstore's exceptions.

Their classes tell little, so the HTTP status and the error code are read from the text. The text itself, which holds
addresses and headers, stays in the exception's cause, for the log: it is never a part of an answer.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from hyperslab.errors import BadPath, HyperslabError, StoreDenied, StoreError, StoreFull, StoreTimeout

OBSTORE_ERRORS: Final = (BaseError, ValueError, OSError, NotImplementedError)
"""All that obstore raises for what happens outside."""

_NETWORK: Final = {
    "Timeout": "no answer in time",
    "Connect": "no connection",
    "Interrupted": "the connection broke off",
    "Request": "the request could not be sent",
}


def status_of(error: Exception) -> int:
    """The HTTP status behind an error; 0 if there was no answer."""
    found = re.search(r"status code: (\d{3})", str(error))
    return int(found.group(1)) if found else 0


def code_of(error: Exception) -> str:
    """The store's own error code, such as ``SlowDown``, also for one of the keys in a bulk delete; "" if it sent
    none."""
    text = str(error)
    found = re.search(r"<Code>\s*(\w{1,64})\s*</Code>", text) or re.search(r"\(code: (\w{1,64})\)$", text, re.MULTILINE)
    return found.group(1) if found else ""


def network_kind_of(error: Exception) -> str:
    """Kind of a network error, such as ``Timeout`` or ``Connect``; "" if there was an answer."""
    found = re.search(r"HttpError \{\s*kind: (\w+)", str(error))
    return found.group(1) if found else ""


def means_no_bucket(error: Exception) -> bool:
    """Whether a 404 is about the bucket."""
    return code_of(error) in ("NoSuchBucket", "ContainerNotFound", "AccountNotFound")


def means_no_key(error: Exception) -> bool:
    """Whether a 404 says that it is about the key. HEAD answers have no body, so they never do."""
    return code_of(error) in ("NoSuchKey", "BlobNotFound")


def means_whole_values_only(error: Exception) -> bool:
    """Whether the server has sent the whole value when a range was asked for."""
    return "source: NotPartial" in str(error)


def means_past_the_end(error: Exception) -> bool:
    """Whether a range begins past the end of a value."""
    return status_of(error) == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or "StartTooLarge" in str(error)


def is_unmet_condition(error: Exception) -> bool:
    """Whether a conditional put was refused, for good: it was not applied. Azure's answer if nothing must be there has
    the status of two writers at one instant elsewhere."""
    unmet = isinstance(error, AlreadyExistsError | PreconditionError)
    return unmet and (not met_others(error) or code_of(error) == "BlobAlreadyExists")


def met_others(error: Exception) -> bool:
    """Whether a put was refused because of another one at the same instant, and would perhaps not be a moment later."""
    return status_of(error) == HTTPStatus.CONFLICT


def is_worth_retrying(error: Exception) -> bool:
    """Whether the same request may succeed a moment later: no answer, overload, or two writers at one instant."""
    status = status_of(error)
    retried = status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS)
    return retried or network_kind_of(error) in _NETWORK or (status >= 500 and status != HTTPStatus.NOT_IMPLEMENTED)


def was_surely_not_applied(error: Exception) -> bool:
    """Whether a failed put cannot have been stored: it never left, or the store says so."""
    refused = status_of(error) in (HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS)
    return refused or network_kind_of(error) == "Connect"


def is_panic(error: BaseException) -> bool:
    """Whether obstore's Rust code gave up over an answer. Its class is made at run time, and is no `Exception`."""
    return type(error).__name__ == "PanicException"


def translate(store: str, key: str, error: Exception) -> HyperslabError:
    """The error that stands for what obstore raised; a 404 is a bucket that is not there."""
    text = str(error)
    if isinstance(error, InvalidPathError) or (isinstance(error, ValueError) and "parse path" in text):
        return BadPath(key, "the object store cannot hold this name")
    credentials = ("169.254.169.254", "169.254.170.2", "metadata.google.internal", "/oauth2/token")
    if any(service in text for service in credentials):
        return StoreDenied(store, key, "no credentials were configured and none were found")
    return _kind_of(error)(store, key, _reason(error))


def _kind_of(error: Exception) -> type[StoreError]:
    status, code = status_of(error), code_of(error)
    full = (
        "QuotaExceeded",
        "StorageFull",
        "InsufficientCapacity",
        "XMinioStorageFull",
        "XMinioAdminBucketQuotaExceeded",
    )
    if status == HTTPStatus.INSUFFICIENT_STORAGE or code in full:
        return StoreFull
    denied = code in ("AccessDenied", "AuthorizationFailure", "AuthorizationPermissionMismatch")
    if denied or status in (401, 403) or isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return StoreDenied
    return StoreTimeout if network_kind_of(error) == "Timeout" or status in (408, 504) else StoreError


def _reason(error: Exception) -> str:
    """One sentence without addresses."""
    text, kind = str(error), network_kind_of(error)
    if means_no_bucket(error) or isinstance(error, FileNotFoundError):
        return "the bucket does not exist"
    if answered := f"{status_of(error) or ''} {code_of(error)}".strip():
        return f"the object store answered {answered}"
    if "Got invalid" in text:
        return "the object store's answer cannot be understood"
    if "builder error" in text:
        return "plain HTTP is not allowed: set allow_http"
    return _NETWORK.get(kind, f"the object store failed ({kind or type(error).__name__})")

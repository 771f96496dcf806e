"""Translation of obstore's exceptions.

HTTP status and error code are parsed from the text, as obstore has few classes. The text itself contains headers and is
only logged, as the cause of the exception.
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
"""Exceptions of obstore's requests."""

_NETWORK: Final = {
    "Timeout": "no answer in time",
    "Connect": "no connection",
    "Interrupted": "the connection broke off",
    "Request": "the request could not be sent",
}


def status_of(error: Exception) -> int:
    """The HTTP status of an error; 0 without a response."""
    match = re.search(r"status code: (\d{3})", str(error))
    return int(match.group(1)) if match else 0


def code_of(error: Exception) -> str:
    """The store's error code, such as ``SlowDown``, also of a key in a bulk delete; "" if there is none."""
    text = str(error)
    match = re.search(r"<Code>\s*(\w{1,64})\s*</Code>", text) or re.search(r"\(code: (\w{1,64})\)$", text, re.MULTILINE)
    return match.group(1) if match else ""


def network_kind_of(error: Exception) -> str:
    """Kind of a network error, such as ``Timeout`` or ``Connect``; "" if there was a response."""
    match = re.search(r"HttpError \{\s*kind: (\w+)", str(error))
    return match.group(1) if match else ""


def means_no_bucket(error: Exception) -> bool:
    """Whether a 404 is explicitly about the bucket."""
    return code_of(error) in ("NoSuchBucket", "ContainerNotFound", "AccountNotFound")


def means_no_key(error: Exception) -> bool:
    """Whether a 404 is explicitly about the key, which responses to HEAD never are."""
    return code_of(error) in ("NoSuchKey", "BlobNotFound")


def means_no_access(error: BaseException | None) -> bool:
    """Whether a request was denied without blame of the credentials, as for an absent key without the right to list;
    responses to HEAD do not tell."""
    if not isinstance(error, Exception) or status_of(error) not in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return False
    return code_of(error) in ("", "AccessDenied", "AuthenticationRequired", "AuthorizationPermissionMismatch")


def means_whole_values_only(error: Exception) -> bool:
    """Whether the server ignored a range request."""
    return "source: NotPartial" in str(error)


def means_past_the_end(error: Exception) -> bool:
    """Whether a range begins past the end of a value."""
    return status_of(error) == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or "StartTooLarge" in str(error)


def is_unmet_condition(error: Exception) -> bool:
    """Whether the condition of a put was false. Azure's status for a failed create is that of concurrent writes on
    other stores."""
    unmet = isinstance(error, AlreadyExistsError | PreconditionError)
    return unmet and (not is_concurrent_write(error) or code_of(error) == "BlobAlreadyExists")


def is_concurrent_write(error: Exception) -> bool:
    """Whether a put was refused because of a concurrent one, and may be retried."""
    return status_of(error) == HTTPStatus.CONFLICT


def is_worth_retrying(error: Exception) -> bool:
    """Whether a retry may succeed: after a network error, overload, or concurrent writes."""
    status = status_of(error)
    retried = status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS)
    return retried or network_kind_of(error) in _NETWORK or (status >= 500 and status != HTTPStatus.NOT_IMPLEMENTED)


def was_not_applied(error: Exception) -> bool:
    """Whether a failed put was certainly not applied: refused, or not connected."""
    refused = status_of(error) in (HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS)
    return refused or network_kind_of(error) == "Connect"


def is_panic(error: BaseException) -> bool:
    """Whether obstore's Rust code panicked; the class is created at run time, and is not an `Exception`."""
    return type(error).__name__ == "PanicException"


def translate(store: str, key: str, error: Exception, place: str) -> HyperslabError:
    """The error for an exception of obstore; a 404 means a missing bucket. ``place``: the bucket and its endpoint. What
    is wrong with all of the bucket has no key."""
    text = str(error)
    if isinstance(error, InvalidPathError) or (isinstance(error, ValueError) and "parse path" in text):
        return BadPath(key, "the object store cannot hold this name")
    credentials = ("169.254.169.254", "169.254.170.2", "metadata.google.internal", "/oauth2/token")
    if any(service in text for service in credentials):
        return StoreDenied(store, "", "no credentials were configured and none were found", place=place)
    is_whole = network_kind_of(error) == "Connect" or means_no_bucket(error) or isinstance(error, FileNotFoundError)
    return _kind_of(error)(store, "" if is_whole else key, _reason(error), place=place)


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
    """Reason of an error, without its text, which may have headers."""
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

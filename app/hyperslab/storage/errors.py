"""What obstore's exceptions mean.

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

CONFLICTS: Final = (AlreadyExistsError, PreconditionError)

_STATUS = re.compile(r"status code: (\d{3})")
_NETWORK_KIND = re.compile(r"HttpError \{\s*kind: (\w+)")
_CODE = re.compile(r"<Code>\s*(\w{1,64})\s*</Code>")
_CODE_OF_KEY = re.compile(r"\(code: (\w{1,64})\)$", re.MULTILINE)
"""Where one of the keys in a bulk delete was refused."""
_DENIED: Final = frozenset({"AccessDenied", "AuthorizationFailure", "AuthorizationPermissionMismatch"})
_PANIC: Final = "PanicException"
_NO_BUCKET: Final = frozenset({"NoSuchBucket", "ContainerNotFound", "AccountNotFound"})
_NO_KEY: Final = frozenset({"NoSuchKey", "BlobNotFound"})
_EXISTS: Final = "BlobAlreadyExists"
"""Azure's answer where nothing must be there; its status is that of two writers at one instant elsewhere."""
_FULL: Final = frozenset(
    {"QuotaExceeded", "StorageFull", "InsufficientCapacity", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"}
)
_METADATA_SERVICES: Final = ("169.254.169.254", "169.254.170.2", "metadata.google.internal", "/oauth2/token")
_NETWORK: Final = {
    "Timeout": "no answer in time",
    "Connect": "no connection",
    "Interrupted": "the connection broke off",
    "Request": "the request could not be sent",
}


def status_of(error: Exception) -> int:
    """The HTTP status behind an error; 0 where there was no answer."""
    found = _STATUS.search(str(error))
    return int(found.group(1)) if found else 0


def code_of(error: Exception) -> str:
    """The store's own error code, such as ``SlowDown``; "" where it sent none."""
    text = str(error)
    found = _CODE.search(text) or _CODE_OF_KEY.search(text)
    return found.group(1) if found else ""


def network_kind_of(error: Exception) -> str:
    """What went wrong on the way, such as ``Timeout`` or ``Connect``; "" where there was an answer."""
    found = _NETWORK_KIND.search(str(error))
    return found.group(1) if found else ""


def means_no_bucket(error: Exception) -> bool:
    """Whether a 404 is about the bucket."""
    return code_of(error) in _NO_BUCKET


def means_no_key(error: Exception) -> bool:
    """Whether a 404 says that it is about the key. HEAD answers have no body, so they never do."""
    return code_of(error) in _NO_KEY


def means_whole_values_only(error: Exception) -> bool:
    """Whether the server has sent the whole value where a range was asked for."""
    return "source: NotPartial" in str(error)


def means_past_the_end(error: Exception) -> bool:
    """Whether a range begins past the end of a value."""
    return status_of(error) == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or "StartTooLarge" in str(error)


def is_unmet_condition(error: Exception) -> bool:
    """Whether a conditional put was refused, for good: it was not applied."""
    return isinstance(error, CONFLICTS) and (not met_others(error) or code_of(error) == _EXISTS)


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
    return (
        status_of(error) in (HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS) or network_kind_of(error) == "Connect"
    )


def is_panic(error: BaseException) -> bool:
    """Whether obstore's Rust code gave up over an answer. Its class is made at run time, and is no `Exception`."""
    return type(error).__name__ == _PANIC


def translate(store: str, key: str, error: Exception) -> HyperslabError:
    """The error that stands for what obstore raised; a 404 is a bucket that is not there."""
    if isinstance(error, InvalidPathError) or (isinstance(error, ValueError) and "parse path" in str(error)):
        return BadPath(key, "the object store cannot hold this name")
    return _kind_of(error)(store, key, _reason(error))


def _kind_of(error: Exception) -> type[StoreError]:
    status, code, text = status_of(error), code_of(error), str(error)
    if any(service in text for service in _METADATA_SERVICES):
        return StoreDenied
    if status == HTTPStatus.INSUFFICIENT_STORAGE or code in _FULL:
        return StoreFull
    if isinstance(error, (PermissionDeniedError, UnauthenticatedError)) or status in (401, 403) or code in _DENIED:
        return StoreDenied
    return StoreTimeout if network_kind_of(error) == "Timeout" or status in (408, 504) else StoreError


def _reason(error: Exception) -> str:
    """One sentence without addresses."""
    status, text = status_of(error), str(error)
    if any(service in text for service in _METADATA_SERVICES):
        return "no credentials were configured and none were found"
    if means_no_bucket(error) or isinstance(error, FileNotFoundError):
        return "the bucket does not exist"
    if answered := f"{status or ''} {code_of(error)}".strip():
        return f"the object store answered {answered}"
    if "Got invalid" in text:
        return "the object store's answer cannot be understood"
    if "builder error" in text:
        return "plain HTTP is not allowed: set allow_http"
    kind = network_kind_of(error)
    return _NETWORK.get(kind, f"the object store failed ({kind or type(error).__name__})")

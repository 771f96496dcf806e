"""Configuration of a store, and parsing of its URL and options."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote, urlsplit

from hyperslab.errors import BadDefinition

Durability = Literal["fsync", "rename"]


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Configuration of a store.

    ``url``: a folder, ``file://``, ``s3://``, ``gs://``, ``az://``, ``http(s)://`` or a URL of fsspec.
    ``durability`` (folders): writes survive a power cut (``fsync``) or a killed process (``rename``).
    ``timeout``: seconds without progress after which a request fails.
    ``retries``: retries of failed requests.
    ``width``: maximum number of concurrent requests; by default that of the kind of store.
    ``options``: text by name, specific to the kind of store; see its class.
    """

    name: str
    url: str
    writable: bool = False
    durability: Durability = "fsync"
    timeout: float = 30.0
    retries: int = 4
    width: int | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


def is_local(url: str) -> bool:
    """Whether a URL is a path of this machine."""
    return scheme(url) in ("", "file", "local")


def local_path(url: str) -> str:
    """The folder of a path, ``file://`` or ``local://`` URL."""
    if not scheme(url):
        return url
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise BadDefinition("url", f"{url!r} names the machine {parts.netloc!r}; a folder is file:///path")
    return unquote(parts.path)


def public_url(url: str) -> str:
    """The URL without user, password and query (which may hold signatures), in each part of a chained one."""
    return "::".join(_without_secrets(part) for part in url.split("::"))


def reject_unknown(options: Iterable[str], known: Iterable[str], kind: str) -> None:
    """Raise `errors.BadDefinition` for an unknown option."""
    known = sorted(known)
    for option in options:
        if option not in known:
            near = difflib.get_close_matches(option, known, 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise BadDefinition(
                f"options.{option}", f"{kind} has no such option; {hint}known are {', '.join(known) or 'none'}"
            )


def flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    """A boolean option; raises `errors.BadDefinition`."""
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "1", "yes", "on", "false", "0", "no", "off"):
        raise BadDefinition(f"options.{name}", "expected true or false")
    return text.lower() in ("true", "1", "yes", "on")


def missing_statuses(options: Mapping[str, str]) -> frozenset[int]:
    """HTTP statuses of a missing key: 404, 410 [RFC 9110 §15.5.11], and those of the option ``missing``."""
    text = options.get("missing", "[404]")
    numbers = re.findall(r"\d+", text)
    if not re.fullmatch(r"\[?\s*\d{3}(\s*,\s*\d{3})*\s*\]?", text) or not {*numbers} <= {"401", "403", "404", "410"}:
        raise BadDefinition("options.missing", "expected a list of 401, 403, 404 and 410")
    return frozenset(map(int, numbers)) | {404, 410}


def redacted(text: str, secrets: Iterable[str]) -> str:
    """``text`` without ``secrets``: messages of libraries may contain headers and signed URLs."""
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, "***")
    return text


def scheme(url: str) -> str:
    """The lower-case scheme of a URL, chained or not; "" for a path."""
    head, colon, rest = url.partition(":")
    if colon and (rest.startswith("//") or rest.startswith(":")):
        return head.lower()
    return ""


def _without_secrets(url: str) -> str:
    if "://" not in url:
        return url
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()

"""Configuration of a store, and parsing of its URL and options."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote, urlsplit

from hyperslab.errors import BadDefinition

Durability = Literal["fsync", "rename"]


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """A named root.

    ``url``: a folder, ``file://``, ``s3://``, ``gs://``, ``az://``, ``http(s)://`` or whatever fsspec opens.
    ``durability`` (folders): what a write waits for; ``fsync`` outlives a power cut, ``rename`` a killed process.
    ``timeout``: seconds without progress after which one request to a remote store has failed.
    ``retries``: how often such a request is tried again.
    ``width``: requests in flight at once; None: what suits the kind of store.
    ``options``: what the kind of store wants to know, as text; each store class says which it takes.
    """

    name: str
    url: str
    writable: bool = False
    durability: Durability = "fsync"
    timeout: float = 30.0
    retries: int = 4
    width: int | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


def local_path(url: str) -> str:
    """The folder that a path, ``file://`` or ``local://`` URL means."""
    if not scheme(url):
        return url
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise BadDefinition("url", f"{url!r} names the machine {parts.netloc!r}; a folder is file:///path")
    return unquote(parts.path)


def public_url(url: str) -> str:
    """The URL without user, password and query (where signatures live), in each part of a chained one."""
    return "::".join(_without_secrets(part) for part in url.split("::"))


def reject_unknown(options: Iterable[str], known: Iterable[str], kind: str) -> None:
    """Raise `errors.BadDefinition` for an option that ``kind`` does not have."""
    known = sorted(known)
    for option in options:
        if option not in known:
            near = difflib.get_close_matches(option, known, 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise BadDefinition(
                f"options.{option}", f"{kind} has no such option; {hint}known are {', '.join(known) or 'none'}"
            )


def flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    """A yes-or-no option; raises `errors.BadDefinition` for any other text."""
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "1", "yes", "on", "false", "0", "no", "off"):
        raise BadDefinition(f"options.{name}", "expected true or false")
    return text.lower() in ("true", "1", "yes", "on")


def redacted(text: str, secrets: Iterable[str]) -> str:
    """``text`` without the values of ``secrets``: libraries put headers and signed URLs into their messages."""
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, "***")
    return text


def scheme(url: str) -> str:
    """The lower-case protocol of a URL, chained or not; "" for a path."""
    head, colon, rest = url.partition(":")
    if colon and (rest.startswith("//") or rest.startswith(":")):
        return head.lower()
    return ""


def _without_secrets(url: str) -> str:
    if "://" not in url:
        return url
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()

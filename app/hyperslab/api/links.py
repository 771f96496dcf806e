"""Signed links: a prefix of URLs that carries what may be done below it, for programs that cannot send headers."""

from __future__ import annotations

import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from secrets import token_hex
from typing import Final

import orjson
from itsdangerous import BadSignature, Signer

from hyperslab.access import ACTIONS, Action, Pattern, Principal, Rule, timestamp
from hyperslab.errors import LinkExpired, LinkInvalid, LinkRevoked

PREFIX: Final = "/link/"
MOST_KNOWN: Final = 10_000
"""Links whose signature is not looked at again."""


@lru_cache(maxsize=1024)
def rules_of(path: str, letters: str) -> tuple[Rule, ...]:
    """The rules of a link to a path and all below, with the first letters of its actions."""
    allow = frozenset([action for action in ACTIONS if action[0] in letters])
    return (Rule(allow, (Pattern.of(path) if path else Pattern.parse("**"),)),)


class Links:
    """Signs links with the last of some ``keys``, by their ids, and accepts those of all; without one, with a key of
    this process.

    A link is the id of its key, and path, actions, end and who made it, as JSON in base64, which `itsdangerous` signs.
    """

    def __init__(self, keys: Mapping[str, str]) -> None:
        keys = keys or {"own": token_hex(32)}
        self._last = list(keys)[-1]
        self._signers = {
            name: Signer(key, salt=f"hyperslab.link.{name}", digest_method=sha256) for name, key in keys.items()
        }
        self._known: dict[str, Principal] = {}

    def sign(self, path: str, allow: Iterable[Action], ends: float, maker: str) -> str:
        """The text of a link to a path and all below it, which ends at a time in seconds since 1970."""
        letters = "".join(action[0] for action in ACTIONS if action in {*allow})
        payload = urlsafe_b64encode(orjson.dumps([path, letters, int(ends), maker])).rstrip(b"=")
        return f"{self._last}.{self._signers[self._last].sign(payload).decode()}"

    def principal(self, text: str) -> Principal:
        """The principal of a link. Raises `LinkRevoked` for a key that is not known, `LinkInvalid`, `LinkExpired`."""
        principal = self._known.get(text)
        if principal is None:
            name, _, signed = text.partition(".")
            if name not in self._signers:
                raise LinkRevoked
            try:
                payload = self._signers[name].unsign(signed)
            except BadSignature as error:  # compared in constant time
                raise LinkInvalid from error
            path, letters, ends, maker = orjson.loads(urlsafe_b64decode(payload + b"=="))
            principal = Principal(f"link of {maker}", rules_of(path, letters), ends)
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[text] = principal
        if time.time() >= principal.ends:
            raise LinkExpired(timestamp(principal.ends))
        return principal

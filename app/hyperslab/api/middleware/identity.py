"""Tokens of an identity provider (OpenID Connect): signed claims, of which groups have rules."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any, Final
from urllib.error import URLError
from urllib.request import urlopen

import jwt

from hyperslab.access import Principal, digest
from hyperslab.api.options import Identity

log = logging.getLogger("hyperslab.api")

ALGORITHMS: Final = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Algorithms with a public key: no secret is shared with the provider."""
KEYS_LAST: Final = 300
"""Seconds until the keys of the provider are read again."""
PATIENCE: Final = 10.0
"""Seconds for an answer of the provider, and between two looks for a key that it did not have."""
DOUBT: Final = 30.0
"""Seconds for which a token that was refused is not looked at again."""
LEEWAY: Final = 30
"""Seconds by which clocks may differ."""
MOST_KNOWN: Final = 10_000


class Identities:
    """Principals of tokens of the provider, by its signature and claims. Used on the event loop; the provider is asked
    in a thread."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._keys: jwt.PyJWKClient | None = None
        self._asked = 0.0
        self._known: dict[bytes, tuple[Principal | str, float]] = {}
        self._lock = asyncio.Lock()

    def find(self, token: bytes) -> Principal | str | None:
        """The principal of a token, or why it has none; None if it is to be looked at by `look`."""
        principal = self._known.get(digest(token))
        return principal[0] if principal is not None and time.monotonic() < principal[1] else None

    async def look(self, token: bytes) -> None:
        """Check a token, of which `find` knows afterwards."""
        async with self._lock:  # many requests of a page come at once
            if self.find(token) is not None:
                return
            principal = await asyncio.to_thread(self._check, token.decode("latin-1"))
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            until = time.monotonic() + (KEYS_LAST if isinstance(principal, Principal) else DOUBT)
            self._known[digest(token)] = principal, until

    def _check(self, token: str) -> Principal | str:
        """The principal, or a reason. A key that is not known is looked up once in a while."""
        identity = self._identity
        try:
            key = self._key(str(jwt.get_unverified_header(token).get("kid", "")))
            claims = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=identity.audience,
                issuer=identity.issuer,
                leeway=LEEWAY,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.ExpiredSignatureError:
            return "the token of the identity provider has ended"
        except (jwt.PyJWKClientConnectionError, URLError, TimeoutError, OSError) as error:
            log.error("the identity provider does not answer: %s", error)  # noqa: TRY400 - no trace
            return "the identity provider does not answer"
        except (jwt.PyJWTError, ValueError) as error:
            return f"the token is not one of the identity provider for this service: {error}"
        groups = claims.get(identity.claim, [])
        names = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        rules = tuple([identity.groups[name] for name in names if isinstance(name, str) and name in identity.groups])
        name = next((claims[claim] for claim in ("preferred_username", "email", "sub") if claims.get(claim)), "")
        return Principal(str(name), rules, float(claims["exp"]) + LEEWAY)

    def _key(self, name: str) -> Any:
        """The provider's key of a name. Raises what `_check` knows."""
        if self._keys is None:
            with urlopen(
                f"{self._identity.issuer.rstrip('/')}/.well-known/openid-configuration", timeout=PATIENCE
            ) as answer:
                described = json.load(answer)
            if described.get("issuer") != self._identity.issuer:
                raise jwt.InvalidIssuerError(f"the provider says that it is {described.get('issuer')!r}")
            self._keys = jwt.PyJWKClient(str(described["jwks_uri"]), lifespan=KEYS_LAST, timeout=int(PATIENCE))
        refresh = False
        while True:
            keys = [key for key in self._keys.get_signing_keys(refresh=refresh) if name in ("", key.key_id)]
            if len(keys) == 1:
                return keys[0]
            if refresh or time.monotonic() - self._asked < PATIENCE:
                raise jwt.InvalidKeyError("the provider has no such key")
            refresh, self._asked = True, time.monotonic()

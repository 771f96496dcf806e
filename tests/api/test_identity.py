"""Tokens of identity providers: a real one, and keys that change."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from fastapi import FastAPI
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from hyperslab.asgi import create_app
from hyperslab.settings import Settings
from tests import tools
from tests.api.test_access import ask, make

AUDIENCE = "urn:hyperslab:test"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("identity")
    make(found)
    return found


def service(root: Path, issuer: str) -> FastAPI:
    groups: Any = {"imaging": {"allow": ["read"], "paths": ["lab/g"]}}
    identity: Any = {"issuer": issuer, "audience": AUDIENCE, "groups": groups}
    stores: Any = {"lab": {"url": str(root / "lab")}}
    return create_app(Settings(stores=stores, identity=identity))


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    library = tools.node_modules() / "oidc-provider" / "lib" / "index.js"
    if not library.exists():
        pytest.skip("npm's oidc-provider is not installed")
    script = tools.ROOT / "tests" / "js" / "provider.mjs"
    command = [tools.node(), str(script), str(library), AUDIENCE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


def test_tokens_of_a_real_provider_have_the_rules_of_their_groups(root: Path, provider: str) -> None:
    def token(client: str) -> str:
        asked = {"grant_type": "client_credentials", "resource": AUDIENCE, "scope": "data"}
        answer = httpx.post(f"{provider}/token", data=asked, auth=(client, "secret-of-the-test"))
        return str(answer.json()["access_token"])

    app, imaging, nobody = service(root, provider), token("imaging"), token("nobody")

    async def statuses(sent: str) -> list[int]:
        targets = ("/v1/metadata/lab/g", "/v1/metadata/lab/h", "PUT /v1/slice/lab/g/a")
        return [(await ask(app, each, {"Authorization": f"Bearer {sent}"})).status for each in targets]

    assert asyncio.run(statuses(imaging)) == [200, 404, 403]
    assert asyncio.run(statuses(nobody)) == [404, 404, 404]
    head, claims, signature = imaging.split(".")
    assert asyncio.run(statuses(f"{head}.{claims}.{'A' * len(signature)}")) == [401, 401, 401]


class Provider:
    """What a provider publishes, in place of the network; ``keys`` by their ids."""

    issuer = "https://login.example.org/realm"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keys: dict[str, Any] = {}
        self.asked = 0
        monkeypatch.setattr("hyperslab.api.middleware.identity.urlopen", self.describe)
        monkeypatch.setattr(jwt.PyJWKClient, "fetch_data", self.fetch())

    def describe(self, url: str, timeout: float) -> io.BytesIO:
        assert url == f"{self.issuer}/.well-known/openid-configuration"
        assert timeout > 0
        return io.BytesIO(json.dumps({"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys"}).encode())

    def fetch(self) -> Any:
        def fetch_data(client: jwt.PyJWKClient) -> Any:
            self.asked += 1
            found = []
            for name, key in self.keys.items():
                kind, algorithm = (
                    (RSAAlgorithm, "RS256") if isinstance(key, rsa.RSAPrivateKey) else (ECAlgorithm, "ES256")
                )
                found.append(
                    {**kind.to_jwk(key.public_key(), as_dict=True), "kid": name, "use": "sig", "alg": algorithm}
                )
            if client.jwk_set_cache is not None:
                client.jwk_set_cache.put({"keys": found})
            return {"keys": found}

        return fetch_data

    def token(self, name: str, *, key: Any = None, **changed: Any) -> str:
        signing = key or self.keys[name]
        claims = {"iss": self.issuer, "aud": AUDIENCE, "sub": "7", "groups": ["imaging"], "exp": time.time() + 60}
        algorithm = "RS256" if isinstance(signing, rsa.RSAPrivateKey) else "ES256"
        members = {name: value for name, value in {**claims, **changed}.items() if value is not None}
        return jwt.encode(members, signing, algorithm, headers={"kid": name})


def test_signature_issuer_audience_and_end_of_a_token_are_checked_and_keys_may_change(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = Provider(monkeypatch)
    published.keys["one"] = rsa.generate_private_key(65537, 2048)
    app = service(root, published.issuer)

    def status(token: str) -> int:
        return asyncio.run(ask(app, "/v1/metadata/lab/g", {"Authorization": f"Bearer {token}"})).status

    good, claims = (
        published.token("one"),
        {"iss": published.issuer, "aud": AUDIENCE, "sub": "7", "exp": time.time() + 9},
    )
    assert [status(good), status(good), published.asked] == [200, 200, 1]
    assert status(published.token("one", groups="imaging")) == 200
    assert status(published.token("one", groups=["other", 5])) == 404
    wrong = [
        *(published.token("one", **{name: None}) for name in ("exp", "aud", "iss", "sub")),
        published.token("one", aud="another"),
        published.token("one", iss="https://login.example.org"),
        published.token("one", exp=time.time() - 100),
        published.token("one", key=rsa.generate_private_key(65537, 2048)),
        jwt.encode(claims, "k" * 32, "HS256"),
        jwt.encode(claims, None, "none"),  # type: ignore[arg-type]
        "a.b.c",
    ]
    assert {status(each) for each in wrong} == {401}
    monkeypatch.setattr("hyperslab.api.middleware.identity.PATIENCE", 1e-9)
    published.keys = {"two": ec.generate_private_key(ec.SECP256R1())}
    assert status(published.token("two")) == 200
    assert published.asked >= 2

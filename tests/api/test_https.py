"""The same service over TLS: the same answers, and the same ends of connections."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from hyperslab.api.app import Application, create_app
from hyperslab.api.options import ApiOptions
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import build
from hyperslab.client import HTTPTransport, RemoteArray
from hyperslab.storage import StoreConfig, open_store
from tests.api.odd_requests import reading
from tests.api.support import dial
from tests.api.test_corpus import ask, fill, recorded
from tests.server import served

LIMIT = 1 << 20
UPLOAD = b"PUT /v1/chunk/data/cube/0.0.0 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 9000000\r\n\r\n"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = str(folder / "key.pem"), str(folder / "certificate.pem")
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", *subject]
    command = ["openssl", "req", *made, "-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, capture_output=True)
    return {"ssl_keyfile": key, "ssl_certfile": certificate}


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory, certificate: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The same folder served over http and over https."""
    folder = tmp_path_factory.mktemp("store")
    fill(folder)

    def app() -> Application:
        store = open_store(StoreConfig(name="data", url=str(folder), writable=True))
        return create_app(build([MountedStore("data", store, writable=True)]), ApiOptions(max_upload_bytes=LIMIT))

    with served(app()) as plain, served(app(), **certificate) as secure:
        yield plain, secure


def test_answers_over_https_are_those_over_http(urls: tuple[str, str]) -> None:
    plain, secure = urls
    for seed in range(900_000, 900_500, 8):
        asked = reading(Random(seed))
        if b"info.json" in asked.target:  # which holds absolute URLs
            continue
        assert recorded(asked, *ask(secure, asked)) == recorded(asked, *ask(plain, asked)), asked


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"x" * (65 << 10) + b"\r\n\r\n", 431),
        (UPLOAD + bytes(4 << 20), 413),
    ],
)
def test_who_is_refused_while_sending_gets_to_read_why(urls: tuple[str, str], sent: bytes, status: int) -> None:
    with dial(urls[1]) as connection:
        connection.sendall(sent)
        received = b""
        while not received.endswith(b"}") and (piece := connection.recv(1 << 16)):
            received += piece

    assert received.startswith(f"HTTP/1.1 {status} ".encode())
    assert received.endswith(b"}")


def test_the_client_reads_and_writes_over_https(urls: tuple[str, str], certificate: dict[str, str]) -> None:
    transport = HTTPTransport(context=ssl.create_default_context(cafile=certificate["ssl_certfile"]))
    array = RemoteArray(f"{urls[1]}/v1/metadata/data/cube", transport=transport)
    values = np.arange(2_000, 2_000 + 20 * 30 * 40, dtype="<u2").reshape(20, 30, 40)

    array[...] = values

    assert np.array_equal(array[1:19:2, :, 5], values[1:19:2, :, 5])
    transport.close()

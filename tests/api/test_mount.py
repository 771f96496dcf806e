"""The service as a part of another FastAPI application, as the recipe has it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import fastapi
import httpx
import numpy as np
import pytest

from hyperslab.asgi import create_app
from hyperslab.settings import Settings
from tests.api.support import write_array
from tests.architecture.sources import ROOT
from tests.server import served

VALUES = np.arange(100, dtype="<i4").reshape(10, 10)


def test_the_application_is_one_of_fastapi() -> None:
    assert isinstance(create_app(Settings()), fastapi.FastAPI)


def test_an_application_that_has_shut_down_does_not_start_again() -> None:
    app = create_app(Settings())

    async def start() -> None:
        async with app.router.lifespan_context(app):
            pass

    asyncio.run(start())
    with pytest.raises(RuntimeError, match="create_app makes another"):
        asyncio.run(start())


@pytest.mark.parametrize("root_path", ["", "/proxy"])
def test_a_mounted_service_answers_below_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root_path: str
) -> None:
    write_array(tmp_path / "scans", "a", VALUES, (5, 5))
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "recipes" / "mount.md").read_text(), re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {}
    exec(code[1], names)

    with served(names["app"], root_path=root_path) as url, httpx.Client(base_url=url) as client:
        answers = [client.get("/arrays/v1/slice/lab/a?select=1") for _ in range(3)]
        document = client.get("/arrays/v1/metadata/lab/a").json()
        problem = client.get("/arrays/v1/metadata/lab/none").json()
        page, described = client.get("/arrays/docs"), client.get("/arrays/openapi.json").json()
        assert client.get("/hello").json() == {"hello": "world"}
        assert client.get("/v1/metadata").status_code == 404
        assert client.options("/arrays/v1/slice/lab/a").headers["allow"] == "GET, HEAD, PUT, OPTIONS"
        metrics = client.get("/arrays/metrics").text
        linked = client.get(document["links"]["slice"].removeprefix(root_path))
        files = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert {client.get(file.removeprefix(root_path)).status_code for file in files} == {200}

    below = f"{root_path}/arrays"
    assert [answer.content for answer in answers] == [VALUES[1].tobytes()] * 3
    assert linked.content == VALUES.tobytes()
    assert document["links"]["self"] == f"{below}/v1/metadata/lab/a"
    assert problem["type"] == f"{below}/problems/node-not-found"
    assert problem["instance"] == f"{below}/v1/metadata/lab/none"
    assert described["servers"] == [{"url": below}]
    assert all(file.startswith(f"{below}/") for file in files)
    assert 'hyperslab_requests_total{method="GET",route="slice",status="200"} 3.0' in metrics
    services = names["arrays"].state.services
    with pytest.raises(RuntimeError):  # its threads have ended
        services.threads._pool.submit(print)

"""A page that writes to a service without the knowledge of who looks at it: only the service's own can."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.api.support import write_array
from tests.chromium import Tab
from tests.server import running_server

APPEND = "async (url) => (await fetch(url, {method: 'POST', body: new Uint8Array(4), mode: 'no-cors'})).status"


def test_only_a_page_of_the_service_itself_appends(tab: Tab, tmp_path: Path) -> None:
    write_array(tmp_path, "a", np.arange(4, dtype="<i4"), (4,), compressors=None)
    stores = {"data": {"url": str(tmp_path), "writable": True}}
    with running_server(stores) as server, running_server({"other": tmp_path}) as other:
        target = f"{server.url}/v1/append/data/a"
        found = []
        for page in (other, server):
            tab.page.goto(f"{page.url}/healthz")
            tab.page.evaluate(APPEND, target)
            found.append(tab.page.request.get(f"{server.url}/v1/metadata/data/a").json()["shape"])

    assert found == [[4], [5]]

"""The page of routes in a browser: without a network, under its content security policy, and with tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
from playwright.sync_api import Locator, expect

from tests.chromium import Tab
from tests.server import running_server

TOKEN = "r" * 32


def operation(tab: Tab, method: str, path: str) -> Locator:
    return (
        tab.page.locator(".opblock")
        .filter(has=tab.page.locator(f'[data-path="{path}"]'))
        .and_(tab.page.locator(f".opblock-{method}"))
    )


def try_out(tab: Tab, template: str, parameters: Mapping[str, str]) -> Locator:
    """Open an operation, fill in parameters, and run it; its answer."""
    found = operation(tab, "get", template)
    found.locator(".opblock-summary").click()
    found.get_by_role("button", name="Try it out").click()
    for name, value in parameters.items():
        field = found.locator(f'tr[data-param-name="{name}"] :is(input, select)')
        if field.evaluate("element => element.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    found.get_by_role("button", name="Execute").click()
    return found.locator(".live-responses-table")


def test_the_page_lists_every_route_and_tries_them_out_with_a_token(tab: Tab, demo_store: Path) -> None:
    with running_server({"demo": demo_store}, read_tokens=[TOKEN]) as server:
        tab.page.goto(f"{server.url}/docs")
        tab.page.locator(".opblock").first.wait_for()
        described = httpx.get(f"{server.url}/openapi.json").json()
        tags = {tag for methods in described["paths"].values() for each in methods.values() for tag in each["tags"]}
        assert tab.page.locator(".opblock").count() == sum(map(len, described["paths"].values()))
        assert {text.strip() for text in tab.page.locator("h3.opblock-tag a span").all_inner_texts()} == tags
        asked = {"path": "demo/brain", "select": "0,0,:4", "format": "json"}
        answer = try_out(tab, "/v1/slice/{path}", asked)
        expect(answer.locator("tbody td.response-col_status").first).to_contain_text("401")
        tab.page.get_by_role("button", name="Authorize", exact=True).first.click()
        dialog = tab.page.locator(".dialog-ux")
        dialog.locator("input").fill(TOKEN)
        dialog.get_by_role("button", name="Apply credentials").click()
        dialog.get_by_role("button", name="Close", exact=True).click()
        operation(tab, "get", "/v1/slice/{path}").get_by_role("button", name="Execute").click()
        expect(answer.locator("tbody td.response-col_status").first).to_contain_text("200")
        values = httpx.get(
            f"{server.url}/v1/slice/demo/brain",
            params={name: asked[name] for name in ("select", "format")},
            headers={"Authorization": f"Bearer {TOKEN}"},
        )
        shown = answer.locator(".response-col_description pre").first.inner_text()

    assert np.array_equal([int(text) for text in shown.strip("[] \n").split(",")], values.json())
    assert [error for error in tab.errors if "401" not in error] == []
    assert {urlsplit(address).netloc for address in tab.asked if address.startswith("http")} == {
        urlsplit(server.url).netloc
    }

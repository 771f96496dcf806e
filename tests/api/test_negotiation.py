"""Which form an answer takes."""

from __future__ import annotations

import pytest

from hyperslab.api.values_out import accepts, choose_format
from hyperslab.errors import NotAcceptable


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, "raw"),
        ("", "raw"),
        ("*/*", "raw"),
        ("application/*", "raw"),
        ("application/octet-stream", "raw"),
        ("application/x-npy", "npy"),
        ("application/json", "json"),
        ("APPLICATION/JSON", "json"),
        ("application/json; charset=utf-8", "json"),
        ("text/csv", "csv"),
        ("text/*", "csv"),
        ("text/html, application/xhtml+xml, */*;q=0.8", "raw"),
        ("application/json;q=0.5, text/csv;q=0.9", "csv"),
        ("application/json, text/csv;q=0.9", "json"),
        ("*/*;q=0.1, application/x-npy", "npy"),
        ("application/octet-stream;q=0, */*", "npy"),
        ("text/csv;q=0.5, text/*;q=0.9", "csv"),
    ],
)
def test_the_most_welcome_form_is_chosen(accept: str | None, form: str) -> None:
    assert choose_format(None, accept) == form


@pytest.mark.parametrize(
    "accept", ["image/png", "text/html", "*/*;q=0", "application/json;q=0", "application/json;q=x"]
)
def test_nothing_acceptable_is_refused_with_what_is_offered(accept: str) -> None:
    with pytest.raises(NotAcceptable) as caught:
        choose_format(None, accept)

    assert "application/x-npy" in caught.value.offered


@pytest.mark.parametrize(
    ("accept", "taken"),
    [(None, True), ("", True), ("*/*", True), ("text/html", True), ("text/*;q=0.1", True), ("application/json", False)],
)
def test_a_client_takes_html_where_its_header_covers_it(accept: str | None, taken: bool) -> None:
    assert accepts(accept, "text/html") is taken

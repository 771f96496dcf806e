"""Errors as HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

import hyperslab.api.app
import hyperslab.asgi
from hyperslab import errors
from hyperslab.api.problems import problem
from hyperslab.errors import ERRORS, HyperslabError, MethodNotAllowed, from_facts
from tests.test_errors import example

OURS = list(ERRORS.values())


def document(error: Exception) -> dict[str, Any]:
    body = problem(error, path="/v1/x").content
    assert isinstance(body, bytes)
    found: dict[str, Any] = json.loads(body)
    return found


def test_every_error_has_a_status_of_its_own_kind() -> None:
    assert [cls for cls in OURS if cls.http_status == 500] == []


@pytest.mark.parametrize("cls", OURS)
def test_every_error_becomes_a_problem_that_a_client_can_turn_back(cls: type[HyperslabError]) -> None:
    error = example(cls)

    found = document(error)

    assert found["code"] == cls.code
    assert found["type"] == f"/problems/{cls.code}"
    assert found["status"] == cls.http_status
    assert found["detail"] == str(error)
    assert found["instance"] == "/v1/x"
    back = from_facts(found["code"], found)
    assert type(back) is cls
    assert cls is errors.RemoteProblem or str(back) == str(error)


@pytest.mark.parametrize(
    ("error", "name", "value"),
    [
        (errors.Overloaded("busy", retry_after=7), "retry-after", "7"),
        (errors.PreconditionFailed("If-Match", '"a"', '"b"'), "etag", '"b"'),
        (errors.PreconditionFailed("If-Match", '"a"', None), "etag", None),
        (errors.RangeNotSatisfiable("bytes=9-", 5), "content-range", "bytes */5"),
        (errors.Unauthorized("who?"), "www-authenticate", "Bearer"),
        (MethodNotAllowed("PUT", ["GET", "HEAD"]), "allow", "GET, HEAD"),
    ],
)
def test_a_status_brings_the_header_that_belongs_to_it(error: HyperslabError, name: str, value: str | None) -> None:
    headers = {key.decode(): text.decode() for key, text in problem(error, path="/").raw_headers}

    assert headers.get(name) == value
    assert headers["content-type"] == "application/problem+json"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("fact", [float("nan"), float("inf"), 10**40, "\ud800", object, {"k": (1, float("nan"))}])
def test_facts_of_any_kind_make_strict_json(fact: Any) -> None:
    body = problem(errors.BadParameter("name", fact, "something else"), path="/\ud800").content

    assert isinstance(body, bytes)
    json.loads(body, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def test_every_problem_is_a_class_that_the_client_has() -> None:
    assert hyperslab.asgi  # all of the service is loaded

    assert [cls.__qualname__ for cls in OURS if cls.__module__ != "hyperslab.errors"] == []

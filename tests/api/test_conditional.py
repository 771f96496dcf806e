"""Conditions, weighed in the order of RFC 9110 §13.2.2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.api.conditional import Conditions
from hyperslab.api.response import http_date, strong_etag
from hyperslab.errors import BadParameter, PreconditionFailed

NOW = ('"a"', 1_700_000_000.5)


def conditions(**headers: str) -> Conditions:
    named = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    return Conditions.parse(named.get)


EARLIER, AT, LATER = (http_date(1_700_000_000 + seconds) for seconds in (-1, 0, 300_000_000))


@pytest.mark.parametrize(
    ("headers", "outcome"),
    [
        *(({"if_none_match": tags}, False) for tags in ('"a"', '"x", "a"', 'W/"a"', '"x",W/"a" , "y"', "*", '  "a"  ')),
        *(({"if_none_match": tags}, True) for tags in ('"b"', 'W/"b"', '""', '"x", "y"')),
        *(({"if_match": tags}, True) for tags in ('"a"', '"x", "a"', "*", "a")),  # object stores take bare tags
        *(({"if_match": tags}, "If-Match") for tags in ('"b"', 'W/"a"', '""', "b")),
        ({"if_match": '"b"', "if_none_match": '"a"'}, "If-Match"),
        ({"if_modified_since": AT}, False),  # dates count in whole seconds
        ({"if_modified_since": EARLIER}, True),
        ({"if_unmodified_since": AT}, True),
        ({"if_unmodified_since": EARLIER}, "If-Unmodified-Since"),
        ({"if_none_match": '"b"', "if_modified_since": LATER}, True),  # tags win over dates
        ({"if_match": '"a"', "if_unmodified_since": EARLIER}, True),
        *(
            ({"if_modified_since": date, "if_unmodified_since": date}, True)
            for date in ("yesterday", "", "Sun, 99 Nov 1994 08:49:37 GMT", "0")
        ),
    ],
)
def test_a_body_is_sent_or_spared_or_refused_with_the_present_tag(headers: dict[str, str], outcome: bool | str) -> None:
    if isinstance(outcome, bool):
        assert conditions(**headers).check(*NOW) is outcome
        return
    with pytest.raises(PreconditionFailed) as caught:
        conditions(**headers).check(*NOW)
    assert (caught.value.header, caught.value.current) == (outcome, '"a"')


@pytest.mark.parametrize("name", ["if_match", "if_none_match"])
@pytest.mark.parametrize("value", ["a b", "a,b", "W/a", '"a', '"a" "b"', "", ",", '"a",,b', 'w/"a"', '*, "a"'])
def test_a_list_of_tags_that_cannot_be_read_is_refused(name: str, value: str) -> None:
    with pytest.raises(BadParameter):
        conditions(**{name: value})


@pytest.mark.parametrize(
    ("value", "applies"),
    [
        ('"a"', True),
        (' "a" ', True),
        ('"b"', False),
        ('W/"a"', False),
        (http_date(1_700_000_000), True),
        (http_date(1_700_000_001), False),
        ("nonsense", False),
    ],
)
def test_if_range_wants_exactly_this_state(value: str, applies: bool) -> None:
    assert conditions(if_range=value).range_applies(*NOW, at=1_700_001_000) is applies


def test_a_date_of_this_very_second_is_no_strong_validator() -> None:
    assert conditions(if_range=http_date(1_700_000_000)).range_applies(*NOW, at=1_700_000_000.9) is False


@given(st.text())
def test_any_version_makes_a_valid_strong_tag(version: str) -> None:
    tag = strong_etag(version)

    assert conditions(if_match=tag).check(tag) is True
    assert not tag.startswith("W/")
    tag.encode("ascii")


def test_the_quotes_of_an_object_store_are_not_doubled() -> None:
    assert strong_etag('"d41d8cd9"') == '"d41d8cd9"' == strong_etag("d41d8cd9")

"""Conditions, weighed in the order of RFC 9110 §13.2.2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.api.conditional import Conditions, Validators, http_date, strong_etag
from hyperslab.errors import BadParameter, PreconditionFailed

NOW = Validators('"a"', 1_700_000_000.5)


def conditions(**headers: str) -> Conditions:
    named = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    return Conditions.parse(named.get)


def test_if_none_match_compares_weakly_and_spares_the_body() -> None:
    for value in ('"a"', '"x", "a"', 'W/"a"', '"x",W/"a" , "y"', "*", '  "a"  '):
        assert conditions(if_none_match=value).check(NOW) is False
    for value in ('"b"', 'W/"b"', '""', '"x", "y"'):
        assert conditions(if_none_match=value).check(NOW) is True


def test_if_none_match_stops_a_write_onto_something() -> None:
    with pytest.raises(PreconditionFailed) as caught:
        conditions(if_none_match="*").check(NOW, reading=False)

    assert (caught.value.header, caught.value.sent, caught.value.current) == ("If-None-Match", "*", '"a"')
    assert conditions(if_none_match="*").check(Validators(None), reading=False) is True


@pytest.mark.parametrize("value", ['"a"', '"x", "a"', "*"])
def test_if_match_holds_for_the_present_tag_and_not_where_nothing_is(value: str) -> None:
    assert conditions(if_match=value).check(NOW) is True
    with pytest.raises(PreconditionFailed) as caught:
        conditions(if_match=value).check(Validators(None))

    assert caught.value.current is None


@pytest.mark.parametrize("value", ['"b"', 'W/"a"', '""'])
def test_if_match_compares_strongly_and_tells_the_present_tag(value: str) -> None:
    with pytest.raises(PreconditionFailed) as caught:
        conditions(if_match=value).check(NOW)

    assert caught.value.current == '"a"'


@pytest.mark.parametrize("name", ["if_match", "if_none_match"])
@pytest.mark.parametrize("value", ["a", '"a', '"a" "b"', "", ",", '"a",,b', 'w/"a"', '*, "a"'])
def test_a_list_of_tags_that_cannot_be_read_is_refused(name: str, value: str) -> None:
    with pytest.raises(BadParameter):
        conditions(**{name: value})


def test_dates_count_in_whole_seconds() -> None:
    at = http_date(1_700_000_000)

    assert conditions(if_modified_since=at).check(NOW) is False
    assert conditions(if_modified_since=http_date(1_699_999_999)).check(NOW) is True
    assert conditions(if_unmodified_since=at).check(NOW) is True
    with pytest.raises(PreconditionFailed):
        conditions(if_unmodified_since=http_date(1_699_999_999)).check(NOW)


def test_tags_win_over_dates() -> None:
    old, new = http_date(1), http_date(2_000_000_000)

    assert conditions(if_none_match='"b"', if_modified_since=new).check(NOW) is True
    assert conditions(if_match='"a"', if_unmodified_since=old).check(NOW) is True


def test_if_match_is_weighed_before_if_none_match() -> None:
    with pytest.raises(PreconditionFailed) as caught:
        conditions(if_match='"b"', if_none_match='"a"').check(NOW)

    assert caught.value.header == "If-Match"


@pytest.mark.parametrize("value", ["yesterday", "", "Sun, 99 Nov 1994 08:49:37 GMT", "0"])
def test_a_date_that_cannot_be_read_is_ignored(value: str) -> None:
    assert conditions(if_modified_since=value, if_unmodified_since=value).check(NOW) is True


def test_dates_are_ignored_where_no_time_is_known() -> None:
    assert conditions(if_modified_since=http_date(2_000_000_000)).check(Validators('"a"')) is True


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
    assert conditions(if_range=value).range_applies(NOW, at=1_700_001_000) is applies


def test_a_date_of_this_very_second_is_no_strong_validator() -> None:
    assert conditions(if_range=http_date(1_700_000_000)).range_applies(NOW, at=1_700_000_000.9) is False


def test_without_if_range_a_range_applies() -> None:
    assert conditions().range_applies(NOW, at=0) is True


@given(st.text())
def test_any_version_makes_a_valid_strong_tag(version: str) -> None:
    tag = strong_etag(version)

    assert conditions(if_match=tag).check(Validators(tag)) is True
    assert not tag.startswith("W/")
    tag.encode("ascii")


def test_the_quotes_of_an_object_store_are_not_doubled() -> None:
    assert strong_etag('"d41d8cd9"') == '"d41d8cd9"' == strong_etag("d41d8cd9")

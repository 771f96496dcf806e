"""What was asked for lately is remembered by key and version, and only so much of it."""

from __future__ import annotations

from hyperslab.cache import Recent


def test_a_key_was_asked_for_before_only_in_the_version_that_it_had_then() -> None:
    recent = Recent(10)

    assert [recent.again("a", version) for version in ("1", "1", "2", "1")] == [False, True, False, False]
    assert (recent.holds("a", "1"), recent.holds("a", "2"), recent.holds("b", "1")) == (True, False, False)


def test_what_was_asked_for_longest_ago_is_forgotten_first() -> None:
    recent = Recent(2)
    for key in ("a", "b", "a", "c"):
        recent.again(key, "1")

    assert [recent.holds(key, "1") for key in ("a", "b", "c")] == [True, False, True]

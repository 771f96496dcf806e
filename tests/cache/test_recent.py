"""What was asked for lately is remembered by key and version, and only so much of it."""

from __future__ import annotations

from hyperslab.cache import Recent


def holds(recent: Recent, *versions: tuple[str, str]) -> bool:
    return recent.holds_all(versions)


def test_a_key_was_asked_for_before_only_in_the_version_that_it_had_then() -> None:
    recent = Recent(10)

    assert [recent.again("a", version) for version in ("1", "1", "2", "1")] == [False, True, False, False]
    assert (holds(recent, ("a", "1")), holds(recent, ("a", "2")), holds(recent, ("b", "1"))) == (True, False, False)


def test_what_was_asked_for_longest_ago_is_forgotten_first() -> None:
    recent = Recent(2)
    for key in ("a", "b", "a", "c"):
        recent.again(key, "1")

    assert [holds(recent, (key, "1")) for key in ("a", "b", "c")] == [True, False, True]


def test_several_keys_are_held_if_each_is() -> None:
    recent = Recent(10)
    for key in "ab":
        recent.again(key, "1")

    assert holds(recent, ("a", "1"), ("b", "1"))
    assert not holds(recent, ("a", "1"), ("c", "1"), ("b", "1"))
    assert holds(recent)

    recent.clear()
    assert not holds(recent, ("a", "1"))

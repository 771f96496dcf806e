"""Finding many versions, against a dictionary."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from hypothesis import given
from hypothesis import strategies as st

from hyperslab.storage.object_versions import Page, VersionFinder

KEYS = st.text("ab/.0159", min_size=1, max_size=6)


class Bucket:
    """A sorted bucket in memory that counts its requests."""

    def __init__(self, values: Mapping[str, str], page: int) -> None:
        self.values = values
        self.sorted = sorted(values)
        self.page = page
        self.heads = 0
        self.lists = 0

    def head(self, key: str) -> str | None:
        self.heads += 1
        return self.values.get(key)

    def list_after(self, offset: str) -> Iterator[Page]:
        start = bisect_right(self.sorted, offset)
        while start < len(self.sorted):
            self.lists += 1
            yield [(key, self.values[key]) for key in self.sorted[start : start + self.page]]
            start += self.page

    def finder(self, few: int) -> VersionFinder:
        return VersionFinder(self.list_after, self.head, map, few=few)


@given(st.dictionaries(KEYS, st.text()), st.lists(KEYS), st.integers(1, 5), st.integers(0, 8))
def test_found_is_what_is_there(values: dict[str, str], keys: list[str], page: int, few: int) -> None:
    found = Bucket(values, page).finder(few).find(keys)

    assert found == {key: values[key] for key in keys if key in values}


def test_keys_of_a_dense_run_cost_a_page() -> None:
    bucket = Bucket({f"{i:05d}": "v" for i in range(20_000)}, 1_000)

    found = bucket.finder(32).find(f"{i:05d}" for i in range(7_000, 7_900))

    assert len(found) == 900
    assert (bucket.lists, bucket.heads) == (1, 1)


def test_a_thin_column_costs_one_page_and_a_head_a_key() -> None:
    bucket = Bucket({f"{i:06d}": "v" for i in range(100_000)}, 1_000)

    found = bucket.finder(32).find(f"{i:06d}" for i in range(0, 100_000, 1_000))

    assert len(found) == 100
    assert bucket.lists == 1
    assert bucket.heads <= 100


def test_the_first_key_of_a_run_is_asked_for_while_the_others_are_listed() -> None:
    """Each kind of request is answered when the other one is there."""
    bucket, both_are_there = Bucket({f"{i:03d}": "v" for i in range(100)}, 1_000), Barrier(2)

    def list_after(offset: str) -> Iterator[Page]:
        both_are_there.wait(30)
        yield from bucket.list_after(offset)

    def head(key: str) -> str | None:
        both_are_there.wait(30)
        return bucket.head(key)

    with ThreadPoolExecutor(2) as threads:
        found = VersionFinder(list_after, head, threads.map, few=8).find(bucket.values)

    assert found == bucket.values
    assert (bucket.lists, bucket.heads) == (1, 1)

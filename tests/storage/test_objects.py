"""Object stores, on a real S3 server and through a proxy that goes wrong."""

from __future__ import annotations

import gzip
import math
import re
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import S3Store

from hyperslab import errors
from hyperslab.storage import StoreConfig, objects, open_store
from hyperslab.storage.base import ABSENT, Absent, Store, UnservedEntry, VersionConflict, WritersSafe
from hyperslab.storage.client import connect
from tests.faults import Before, DropHeaders, Fault, FaultProxy, LoseAnswer, Reset, Stall, Status, Truncate
from tests.s3 import S3Bucket, S3Server
from tests.storage.support import fill_bucket, value_of
from tests.storage.workers import increment

CONDITIONS = DropHeaders(("If-Match", "If-None-Match"))


@pytest.mark.parametrize(
    ("scheme", "endpoint"), [("s3", "AWS_ENDPOINT_URL"), ("s3", "AWS_ENDPOINT_URL_S3"), ("gs", "STORAGE_EMULATOR_HOST")]
)
def test_the_environment_alone_says_where_a_bucket_is(
    s3_server: S3Server, s3_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch, scheme: str, endpoint: str
) -> None:
    fill_bucket(s3_server, s3_bucket, {"a": b"1"})
    monkeypatch.setenv(endpoint, s3_server.url if scheme == "s3" else s3_server.url.removeprefix("http://"))
    for option in ("region", "access_key_id", "secret_access_key"):
        monkeypatch.setenv(f"AWS_{option.upper()}", s3_bucket.options[option])
    url = f"{scheme}://{s3_bucket.name}"

    found = open_store(StoreConfig("bucket", url, retries=0)).get("a")
    with pytest.raises(errors.StoreError, match="plain HTTP is not allowed"):
        open_store(StoreConfig("bucket", url, retries=0, options={"allow_http": "false"})).get("a")
    closed = {"endpoint" if scheme == "s3" else "base_url": "http://127.0.0.1:9"}
    with pytest.raises(errors.StoreError, match="no connection"):
        open_store(StoreConfig("bucket", url, retries=0, options=closed)).get("a")

    assert found is not None
    assert bytes(found.data) == b"1"


def test_emptying_a_prefix_leaves_the_rest_of_the_bucket(s3_server: S3Server, s3_bucket: S3Bucket) -> None:
    fill_bucket(s3_server, s3_bucket, {"some/base/a": b"1", "some/basement": b"x", "x": b"x"})
    store = open_store(s3_bucket.config(writable=True, url=f"{s3_bucket.url}/some/base/"))
    store.put("b/c", b"2", if_version=ABSENT)

    assert store.delete_prefix("") == 2

    listed = s3_server.client.list_objects_v2(Bucket=s3_bucket.name)["Contents"]
    assert [item["Key"] for item in listed] == ["some/basement", "x"]


def test_memory_promises_no_more_than_it_can_keep() -> None:
    capabilities = open_store(StoreConfig("memory", "memory://x", writable=True)).capabilities

    assert capabilities.writers_safe is WritersSafe.THREADS
    assert not capabilities.conditional_put


class TestMissingBucket:
    """A bucket that is not there is a failure, not a store without keys."""

    @pytest.fixture
    def store(self, s3_bucket: S3Bucket) -> Store:
        return open_store(
            s3_bucket.config(url="s3://no-such-bucket", writable=True, options={"conditional_put": "true"})
        )

    def test_every_call_fails_as_the_store_does(self, store: Store) -> None:
        for call in (
            lambda: store.get("k"),
            lambda: store.get_ranges("k", [(0, 1)]),
            lambda: store.get_part("k", 0, 1),
            lambda: store.get_each(["k", "l"]),
            lambda: store.stat("k"),
            lambda: store.versions("", ["k", "l"]),
            lambda: store.list_dir(""),
            lambda: list(store.list_prefix("")),
            lambda: store.put("k", b"1"),
            lambda: store.put("k", b"1", if_version=ABSENT),
            lambda: store.put("k", b"1", if_version='"0"'),
            lambda: store.delete("k"),
            store.check,
        ):
            with pytest.raises(
                errors.StoreError, match=r"^store '\w+': the bucket does not exist \(bucket '.* at http://"
            ):
                call()

    def test_a_bucket_that_vanishes_is_noticed(self, s3_server: S3Server, s3_bucket: S3Bucket) -> None:
        store = open_store(s3_bucket.config())
        assert store.get("k") is None

        s3_server.client.delete_bucket(Bucket=s3_bucket.name)

        with pytest.raises(errors.StoreError, match="bucket does not exist"):
            store.get("k")


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.url) as running:
        yield running


@pytest.fixture
def store(request: pytest.FixtureRequest, s3_server: S3Server, s3_bucket: S3Bucket, proxy: FaultProxy) -> Store:
    """A store behind the proxy that holds one key and knows that conditions are honoured. It is in a hurry only where
    answers are late, and tries more often where one of them is all that is wrong: a slow machine is no fault."""
    fill_bucket(s3_server, s3_bucket, {"k": bytes(100_000)})
    case = getattr(request.node, "callspec", None)
    late = case is not None and isinstance(case.params.get("fault"), Stall)
    passing = case is not None and "kind" not in case.params
    timeout, retries = (1.0 if passing else 0.25, 20 if passing else 1) if late else (20.0, 1)
    options = {"conditional_put": "true"}
    return open_store(s3_bucket.at(proxy.url).config(writable=True, timeout=timeout, retries=retries, options=options))


@pytest.fixture
def direct(s3_bucket: S3Bucket) -> Store:
    """The same bucket without the proxy: another replica."""
    return open_store(s3_bucket.config(writable=True, options={"conditional_put": "true"}))


TRANSIENT = [Status(503, b"<Error><Code>SlowDown</Code></Error>"), Status(500), Stall(), Reset()]
LASTING = [
    (Status(503, b"<Error><Code>SlowDown</Code></Error>"), errors.StoreError, "503 SlowDown"),
    (Status(500), errors.StoreError, "500"),
    (Status(403, b"<Error><Code>AccessDenied</Code></Error>"), errors.StoreDenied, "403 AccessDenied"),
    (Status(401), errors.StoreDenied, "401"),
    (Status(504), errors.StoreTimeout, "504"),
    (Status(507), errors.StoreFull, "507"),
    (Status(400, b"<Error><Code>ExpiredToken</Code></Error>"), errors.StoreError, "400 ExpiredToken"),
    (Stall(), errors.StoreTimeout, "no answer in time"),
    (Reset(), errors.StoreError, "broke off"),
]


DELETIONS = [
    ("<Error><Key>a/0</Key><Code>AccessDenied</Code><Message>no</Message></Error>", errors.StoreDenied, "AccessDenied"),
    ("<Error><Key>a/0</Key><Code>StorageFull</Code><Message>no</Message></Error>", errors.StoreFull, "StorageFull"),
    ("<Error><Key>a/0</Key><Code>NotNow</Code><Message>no</Message></Error>", errors.StoreError, "NotNow"),
    ("<Error><Key>a/0</Key></Error>", errors.StoreError, "cannot be understood"),
    ("<Error><Key>other</Key><Code>X</Code><Message>no</Message></Error>", errors.StoreError, "cannot be understood"),
]


class TestFaults:
    """What goes wrong on the way is never taken for absence, and never for success."""

    @pytest.mark.parametrize("listed", [False, True])
    def test_a_denied_document_is_absent_beside_another_one_unless_a_listing_shows_it(
        self, s3_bucket: S3Bucket, proxy: FaultProxy, listed: bool
    ) -> None:
        store = open_store(s3_bucket.at(proxy.url).config(writable=True))
        version = store.put("n/.zarray", b"{}")
        if listed:
            store.put("n/.zattrs", b"{}")
        proxy.inject(Status(403), method="HEAD", path="n/.zattrs", times=math.inf)
        keys = ["n/.zarray", "n/.zattrs"]

        if listed:
            with pytest.raises(errors.StoreDenied):
                store.document_versions("n/", keys)
        else:
            assert store.document_versions("n/", keys) == [version, None]

    @pytest.mark.parametrize("fault", [*TRANSIENT, Truncate(50_000)], ids=str)
    def test_a_passing_fault_is_outlived(self, store: Store, proxy: FaultProxy, fault: Fault) -> None:
        proxy.inject(fault)
        stored = store.get("k")
        proxy.inject(fault)
        part = store.get_part("k", 0, 90_000)

        assert stored is not None
        assert bytes(stored.data) == bytes(100_000)
        assert part is not None
        assert bytes(part.data) == bytes(90_000)
        for condition in (None, stored.version) if fault in TRANSIENT else ():
            proxy.inject(fault, method="PUT")
            store.put("k" if condition else "new", b"2", if_version=condition)
            assert value_of(store, "k" if condition else "new") == b"2"

    @pytest.mark.parametrize(("fault", "kind", "reason"), LASTING, ids=str)
    def test_a_lasting_fault_fails_every_request(
        self, store: Store, proxy: FaultProxy, fault: Fault, kind: type[errors.StoreError], reason: str
    ) -> None:
        for ask in (
            lambda: store.put("new", b"1"),
            lambda: store.put("new", b"1", if_version=ABSENT),
            lambda: store.get("k"),
            lambda: store.get_ranges("k", [(0, 1)]),
            lambda: store.get_part("k", 0, 1),
            lambda: store.get_end("k", 1),
            lambda: store.get_each(["k", "l"]),
            lambda: store.stat("k"),
            lambda: store.list_dir(""),
        ):
            proxy.heal()
            proxy.inject(fault, times=math.inf)
            with pytest.raises(kind) as failed:
                ask()
            assert failed.value.store == "bucket"
        assert reason in failed.value.reason

    @pytest.mark.parametrize(("error", "kind", "reason"), DELETIONS)
    def test_a_key_that_is_not_deleted_with_the_others_says_why(
        self, store: Store, proxy: FaultProxy, error: str, kind: type[errors.StoreError], reason: str
    ) -> None:
        """The answer is 200 then; one that names a key nobody asked for makes the library panic."""
        for key in ("a/0", "a/1"):
            store.put(key, b"1")
        proxy.inject(Status(200, f"<DeleteResult>{error}</DeleteResult>".encode()), method="POST", times=math.inf)

        with pytest.raises(kind) as alone:
            store.delete("a/0")
        with pytest.raises(kind) as together:
            store.delete_prefix("a/")

        assert all(reason in failed.value.reason for failed in (alone, together))

    def test_a_body_that_is_always_cut_short_is_a_failure(self, store: Store, proxy: FaultProxy) -> None:
        proxy.inject(Truncate(1_000), times=math.inf)

        with pytest.raises(errors.StoreError):
            store.get("k")

    def test_a_server_that_is_not_there_is_a_failure(self, s3_bucket: S3Bucket) -> None:
        store = open_store(s3_bucket.at("http://127.0.0.1:1").config(retries=0))

        reason = re.escape(f"'bucket': no connection (bucket {s3_bucket.name!r} at http://127.0.0.1:1)")
        for call in (lambda: store.get("k"), lambda: store.list_dir(""), store.check):
            with pytest.raises(errors.StoreError, match=reason):
                call()


class TestRequests:
    """What is read in how many requests."""

    @pytest.mark.parametrize("key", ["k", "nothing"])
    def test_each_read_takes_one_and_several_are_under_way_at_once(
        self, store: Store, proxy: FaultProxy, key: str
    ) -> None:
        store.get(key)
        store.get_part(key, 0, 200_000)
        store.get_part(key, 50_000, 60_000)
        store.get_end(key, 10)
        store.get_ranges(key, [(0, 10), (100, 200), (5_000, 5_001)])

        ranges = [None, "bytes=0-199999", "bytes=50000-59999", "bytes=-10", "bytes=0-5000"]
        assert [(seen.method, seen.headers.get("range")) for seen in proxy.seen] == [("GET", each) for each in ranges]
        proxy.inject(Before(threading.Barrier(3, timeout=60).wait), times=3)
        assert store.get_each([key, "nothing", key]) == [store.get(key), None, store.get(key)]
        proxy.inject(DropHeaders(("Range",)), times=math.inf)  # a server that knows no ranges
        part = store.get_part(key, 10, 20)
        assert (part and (part.entry, part.start, bytes(part.data))) == (
            (store.stat("k"), 0, bytes(100_000)) if key == "k" else None
        )

    def test_a_value_that_grows_while_it_is_found_to_be_too_short_is_read_again(
        self, store: Store, direct: Store, proxy: FaultProxy
    ) -> None:
        proxy.inject(Before(lambda: direct.put("k", bytes(100_000) + b"more")), method="HEAD")

        part = store.get_part("k", 100_000, 200_000)

        assert part is not None
        assert (part.entry.size, bytes(part.data)) == (100_004, b"more")


class TestLostAnswers:
    """A conditional put whose answer is lost is neither repeated blindly nor reported as a conflict with itself."""

    @pytest.mark.parametrize(
        ("faults", "conditions"),
        [
            ([LoseAnswer()], [ABSENT, None]),
            ([LoseAnswer(503)], [ABSENT, None]),
            ([LoseAnswer()] * 2, [ABSENT]),  # no try is left
            ([LoseAnswer(), Status(403)], [ABSENT]),  # the next try is refused
        ],
        ids=str,
    )
    def test_a_put_that_was_stored_is_recognised(
        self, store: Store, proxy: FaultProxy, faults: list[Fault], conditions: list[Absent | None]
    ) -> None:
        for condition in conditions:
            proxy.heal()
            for fault in faults:
                proxy.inject(fault, method="PUT")

            version = store.put("new", b"1", if_version=condition)

            assert store.versions("", ["new"]) == [version]

    @pytest.mark.parametrize("lost", [LoseAnswer(), LoseAnswer(500)], ids=str)
    def test_a_deletion_is_asked_for_again(self, store: Store, proxy: FaultProxy, lost: Fault) -> None:
        store.put("a/1", b"1")
        proxy.inject(lost, method="POST")
        assert store.delete("k")
        proxy.inject(lost, method="POST")
        assert store.delete_prefix("a/") == 1

        assert [*store.list_prefix("")] == []

    def test_a_tombstone_is_no_other_writer(self, store: Store, proxy: FaultProxy) -> None:
        store.put_tombstones(["new"])
        proxy.inject(LoseAnswer(), method="PUT")

        store.put("new", b"1", if_version=ABSENT)

        assert value_of(store, "new") == b"1"

    def test_counting_through_lost_answers_counts_each_once(
        self, store: Store, direct: Store, proxy: FaultProxy
    ) -> None:
        store.put("counter", b"0")
        proxy.inject(LoseAnswer(), method="PUT", path="counter", times=5)
        proxy.inject(LoseAnswer(503), method="PUT", path="counter", times=5)

        for _ in range(5):
            increment(store, "counter")
            increment(direct, "counter")

        assert value_of(direct, "counter") == b"10"

    def test_where_another_writer_came_since_nobody_can_know(
        self, store: Store, direct: Store, proxy: FaultProxy
    ) -> None:
        proxy.inject(LoseAnswer(), method="PUT")
        proxy.inject(Before(lambda: direct.put("new", b"theirs")), method="PUT")

        with pytest.raises(errors.StoreError, match="not known"):
            store.put("new", b"ours", if_version=ABSENT)

        assert value_of(store, "new") == b"theirs"

    def test_a_conflict_after_a_refused_connection_is_a_conflict(
        self, store: Store, direct: Store, proxy: FaultProxy
    ) -> None:
        """429 and 409 say that nothing was stored, so there is no doubt; also where others are met to the last: who
        changes a chunk then reads it again and goes on, instead of failing."""
        met = Status(409, b"<Error><Code>ConditionalRequestConflict</Code></Error>")
        proxy.inject(met, method="PUT")
        proxy.inject(Before(lambda: direct.put("new", b"theirs")), method="PUT")
        conditions: list[str | Absent] = [ABSENT]

        for _ in range(2):
            with pytest.raises(VersionConflict) as conflict:
                store.put("new", b"ours", if_version=conditions.pop())
            assert [conflict.value.current] == direct.versions("", ["new"])
            conditions.append(conflict.value.current or ABSENT)
            proxy.inject(met, method="PUT", times=3)


class TestLateWrites:
    """A put that timed out at the client may still be on its way to the store."""

    @pytest.mark.parametrize("condition", [None, ABSENT], ids=str)
    def test_it_does_not_undo_what_was_stored_since(
        self, s3_bucket: S3Bucket, direct: Store, proxy: FaultProxy, condition: Absent | None
    ) -> None:
        options = {"conditional_put": "true"}
        store = open_store(s3_bucket.at(proxy.url).config(writable=True, timeout=2.0, retries=1, options=options))
        stored = threading.Event()
        proxy.inject(Before(stored.wait), method="PUT")
        version = store.put("new", b"ours", if_version=condition)
        direct.put("new", b"theirs", if_version=version)
        stored.set()

        while [method for method, _, _ in proxy.answers].count("PUT") < 2:
            time.sleep(0.01)

        assert [status for method, _, status in proxy.answers if method == "PUT"] == [200, 412]
        assert value_of(direct, "new") == b"theirs"


class TestCapabilities:
    """Whether conditions are honoured is found out at the first write."""

    @pytest.mark.parametrize(
        "first", [lambda s: s.put("a", b"1", if_version=ABSENT), lambda s: s.lock("a").__enter__(), lambda s: s.check()]
    )
    def test_a_server_that_honours_conditions_is_recognised(
        self, s3_bucket: S3Bucket, first: Callable[[Store], object]
    ) -> None:
        store = open_store(s3_bucket.config(writable=True))
        claims = [(store.capabilities.conditional_put, store.capabilities.writers_safe)]

        first(store)

        claims.append((store.capabilities.conditional_put, store.capabilities.writers_safe))
        assert claims == [(False, WritersSafe.THREADS), (True, WritersSafe.REPLICAS)]

    @pytest.mark.parametrize("refuses", [False, True])
    def test_a_server_that_does_not_is_recognised(self, s3_bucket: S3Bucket, proxy: FaultProxy, refuses: bool) -> None:
        if not refuses:
            proxy.inject(CONDITIONS, times=math.inf)
        else:
            proxy.inject(Before(lambda: None), method="PUT")
            proxy.inject(Status(501, b"<Error><Code>NotImplemented</Code></Error>"), method="PUT", times=9)
        store = open_store(s3_bucket.at(proxy.url).config(writable=True))

        store.check()

        assert not store.capabilities.conditional_put
        assert store.capabilities.writers_safe is WritersSafe.THREADS

    def test_an_answer_that_is_lost_does_not_make_the_server_look_worse(
        self, s3_bucket: S3Bucket, proxy: FaultProxy
    ) -> None:
        """Else this process would go on without conditions, and undo what others write. And who may not delete may put
        all the same."""
        store = open_store(s3_bucket.at(proxy.url).config(writable=True))
        proxy.inject(Before(lambda: None), method="PUT", path="probe", times=3)
        proxy.inject(LoseAnswer(503), method="PUT", path="probe")
        proxy.inject(Status(403), method="POST", times=math.inf)

        store.put("a", b"1", if_version=ABSENT)

        assert store.capabilities.writers_safe is WritersSafe.REPLICAS

    def test_it_is_asked_once_and_leaves_nothing_behind(
        self, s3_server: S3Server, s3_bucket: S3Bucket, proxy: FaultProxy
    ) -> None:
        store = open_store(s3_bucket.at(proxy.url).config(writable=True))
        store.check()
        asked = sum("probe" in seen.path for seen in proxy.seen)

        store.check()
        store.put("a", b"1", if_version=ABSENT)

        assert sum("probe" in seen.path for seen in proxy.seen) == asked
        listed = s3_server.client.list_objects_v2(Bucket=s3_bucket.name)["Contents"]
        assert [item["Key"] for item in listed] == ["a"]

    @pytest.mark.parametrize("answer", ["true", "false"])
    def test_it_is_not_asked_where_the_operator_says(self, s3_bucket: S3Bucket, proxy: FaultProxy, answer: str) -> None:
        store = open_store(s3_bucket.at(proxy.url).config(writable=True, options={"conditional_put": answer}))

        store.check()

        assert store.capabilities.conditional_put is (answer == "true")
        assert not any("probe" in seen.path for seen in proxy.seen)

    def test_a_failed_probe_for_conditional_puts_is_an_error_and_is_repeated(
        self, s3_bucket: S3Bucket, proxy: FaultProxy
    ) -> None:
        store = open_store(s3_bucket.at(proxy.url).config(writable=True, retries=0))
        proxy.inject(Status(503), method="PUT")

        with pytest.raises(errors.StoreError):
            store.put("a", b"1", if_version=ABSENT)

        store.put("a", b"1", if_version=ABSENT)
        assert store.capabilities.conditional_put


KEY = st.sampled_from([f"a/{i}.{j}" for i in range(8) for j in range(8)])


@given(st.sets(KEY), st.lists(KEY), st.integers(1, 5), st.integers(0, 8))
def test_versions_are_those_of_stats_however_many_are_listed(
    stored: set[str], keys: list[str], page: int, few: int
) -> None:
    config = StoreConfig("memory", f"memory://{uuid4().hex}", writable=True)
    store, versions = open_store(config), dict.fromkeys(keys)
    for key in stored:
        versions[key] = store.put(key, b"1")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects, "_PAGE", page)
        patch.setattr(objects, "_FEW", few)
        assert store.versions("a/", keys) == [versions[key] for key in keys]


CHUNKS = tuple(f"a/{i}.{j}" for i in range(33) for j in range(33))


@pytest.fixture(scope="module")
def big_bucket(s3_server: S3Server) -> S3Bucket:
    """1,089 chunks below ``a/``: more than a page of a listing."""
    bucket = s3_server.new_bucket()
    fill_bucket(s3_server, bucket, dict.fromkeys(CHUNKS, b"1"))
    return bucket


class TestRequestCounts:
    """How many requests answer a question."""

    @pytest.fixture
    def full(self, big_bucket: S3Bucket, proxy: FaultProxy) -> Store:
        return open_store(big_bucket.at(proxy.url).config())

    def test_versions_of_many_keys_are_listed(self, full: Store, proxy: FaultProxy) -> None:
        few, keys = CHUNKS[:300:30], [*CHUNKS, "a/99.99"]

        assert None not in full.versions("a/", few)
        assert Counter(seen.method for seen in proxy.seen) == {"HEAD": len(few)}
        proxy.seen.clear()
        versions = full.versions("a/", keys)

        assert [version is None for version in versions] == [key == "a/99.99" for key in keys]
        assert len(proxy.seen) <= 6

    def test_keys_that_lie_thinly_do_not_list_everything_between(self, full: Store, proxy: FaultProxy) -> None:
        keys = [f"a/{i}.0" for i in range(33)] + [f"b/{i}" for i in range(30)]

        versions = full.versions("", keys)

        assert [version is not None for version in versions] == [True] * 33 + [False] * 30
        assert len(proxy.seen) <= 65

    def test_listings_take_more_than_a_page(self, full: Store) -> None:
        assert len(full.list_dir("a/").entries) == len(CHUNKS)
        assert {entry.key for entry in full.list_prefix("")} == set(CHUNKS)

    def test_deletions_take_more_than_a_page(
        self, s3_server: S3Server, s3_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(objects, "_PAGE", 8)
        fill_bucket(s3_server, s3_bucket, dict.fromkeys(("b", *CHUNKS[:20]), b"1"))
        store = open_store(s3_bucket.config(writable=True))

        assert store.delete_prefix("a/") == 20

        assert [entry.key for entry in store.list_prefix("")] == ["b"]


class TestOptions:
    """What the operator may say."""

    @pytest.mark.parametrize(
        ("url", "options", "says"),
        [
            ("s3://b", {"regoin": "x"}, r"did you mean 'region'.*endpoint"),
            ("az://container", {"region": "x"}, "account_name"),
            ("s3://", {"region": "us-east-1"}, "bucket"),
            ("s3:///base", {"region": "us-east-1"}, "bucket"),
            ("s3://bucket/a/../b", {"region": "us-east-1"}, r"'\.\.'"),
        ],
    )
    def test_what_no_bucket_can_be_is_refused(
        self, url: str, options: dict[str, str], says: str, s3_bucket: S3Bucket
    ) -> None:
        """And a name that it cannot hold. Each kind takes its own options."""
        open_store(StoreConfig("a", "az://container/base", options={"account_name": "x", "account_key": "eA=="}))
        open_store(StoreConfig("g", "gs://bucket", options={"anonymous": "true"}))

        with pytest.raises(errors.BadDefinition, match=says):
            open_store(StoreConfig("bad", url, options=options))
        with pytest.raises(errors.BadPath):
            open_store(s3_bucket.config()).get("a\tb")

    def test_anonymous_requests_are_not_signed(self, s3_bucket: S3Bucket, proxy: FaultProxy) -> None:
        store = open_store(s3_bucket.at(proxy.url).config(options={"anonymous": "true"}))

        store.get("k")

        assert "authorization" not in {name.lower() for name in proxy.seen[0].headers}

    def test_the_bucket_can_be_in_the_host_name(self) -> None:
        options = {"endpoint": "https://s3.example.com", "region": "here", "path_style": "false"}

        connection = connect(StoreConfig("b", "s3://bucket/base", options=options), 4)

        assert isinstance(connection.retrying, S3Store)
        assert dict(connection.retrying.config)["endpoint"] == "https://bucket.s3.example.com"
        assert connection.base == "base/"

    def test_secrets_stay_out_of_what_is_shown(self, s3_bucket: S3Bucket) -> None:
        config = s3_bucket.at("http://127.0.0.1:1").config(retries=0, options={"session_token": "very-secret"})
        store = open_store(config)

        with pytest.raises(errors.StoreError) as failed:
            store.get("k")

        shown = f"{store.url} {config!r} {failed.value} {failed.value.facts()}"
        assert "very-secret" not in shown
        assert "test-secret-key" not in shown
        assert "127.0.0.1" not in failed.value.reason


ODD_KEYS = {
    "g/b//c": "g/b//",
    "g//x": "g//",
    "g/x\x01y": "g/x\x01y",
    "g/tab\tx": "g/tab\tx",
    "g/back\\s/.zarray": "g/back\\s/",
    "g/../up/1": "g/../",
}
"""Keys in a bucket, and the paths up to the segment with a flaw."""


def test_a_part_of_many_folders_is_listed_by_the_pages_that_hold_it(
    s3_server: S3Server, s3_bucket: S3Bucket, proxy: FaultProxy
) -> None:
    """In the order of names, which is not that of keys: ``a/`` comes after ``a-b/``."""
    names = sorted([*(f"a-{i:04}" for i in range(2100)), "a", "a-0007-b", "a-0007.c", "a0", "b", "+"])
    fill_bucket(s3_server, s3_bucket, dict.fromkeys([f"g/{name}/.zgroup" for name in names], b"1"))
    store = open_store(s3_bucket.at(proxy.url).config())
    listed = list[str]()
    following: str | None = ""

    while following is not None:
        before = len(proxy.seen)
        found = store.list_folders("g/", following, 700)
        assert len(proxy.seen) - before <= 4
        listed += found.names
        following = found.following

    assert listed == names
    assert store.list_folders("g/", "a-0007", 2)[:2] == (["a-0007", "a-0007-b"], "a-0007.c")


@pytest.mark.parametrize("base", ["", "/g"])
@pytest.mark.parametrize("anonymous", [False, True])
def test_keys_that_are_no_paths_are_named_and_hide_and_lose_nothing(
    s3_server: S3Server, s3_bucket: S3Bucket, base: str, *, anonymous: bool
) -> None:
    fill_bucket(s3_server, s3_bucket, dict.fromkeys(["g/a", "g/b/d", "g/é ü+", "g/z/.zgroup", *ODD_KEYS], b"1"))
    options = {name: s3_bucket.options[name] for name in ("endpoint", "region")} | {"anonymous": "true"}
    config = s3_bucket.config(writable=True)
    config = replace(config, url=config.url + base, options=options if anonymous else config.options)
    store, prefix = open_store(config), "" if base else "g/"
    odd = sorted(path.removeprefix("g/" if base else "") for path in ODD_KEYS.values())

    listed, unserved = store.list_dir(prefix), list[UnservedEntry]()
    keys = sorted(entry.key for entry in store.list_prefix(prefix, unserved))

    assert [entry.key for entry in listed.entries] == [f"{prefix}a", f"{prefix}é ü+"]
    assert listed.prefixes == ("b", "z")
    assert keys == [f"{prefix}{name}" for name in ("a", "b/d", "z/.zgroup", "é ü+")]
    assert sorted(each.path for each in unserved) == odd
    assert len(listed.unserved) == len(ODD_KEYS) - 1  # all but that in g/b/
    assert [each.path for each in store.list_dir(f"{prefix}b/").unserved] == [f"{prefix}b//"]

    kept: list[str] = []
    store.delete_prefix(prefix, None, lambda key, _: kept.append(key) or key == f"{prefix}a")  # type: ignore[func-returns-value]

    assert sorted(kept) == sorted([*keys, *odd])
    left = {item["Key"] for item in s3_server.client.list_objects_v2(Bucket=s3_bucket.name)["Contents"]}
    assert left == {"g/a", *ODD_KEYS}


@pytest.mark.parametrize(("name", "encode"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_objects_with_a_content_encoding_are_decoded(
    s3_server: S3Server, s3_bucket: S3Bucket, name: str, encode: Callable[[bytes], bytes]
) -> None:
    value = bytes(range(200)) * 50
    fill_bucket(s3_server, s3_bucket, {"k": encode(value)}, **{"Content-Encoding": name})
    fill_bucket(s3_server, s3_bucket, {"plain": value}, **{"Content-Encoding": "aws-chunked"})
    store = open_store(s3_bucket.config())

    for key in ("k", "plain"):
        entry, part, tail = store.stat(key), store.get_part(key, 1_000, 1_010), store.get_end(key, 10)
        assert entry is not None
        assert part is not None
        assert tail is not None
        assert value_of(store, key) == value
        assert entry.size == part.entry.size == tail.entry.size == len(value)
        assert part.between(1_000, 1_010) == value[1_000:1_010]
        assert tail.between(len(value) - 10, len(value)) == value[-10:]
        assert store.get_ranges(key, [(5, 7), (9_998, 20_000)], entry.version) == [value[5:7], value[9_998:]]
        with pytest.raises(errors.StoredTooLarge):
            store.get(key, 9_999)


@pytest.mark.parametrize(
    ("name", "body"), [("br", b"x"), ("gzip", b"no gzip"), ("gzip", gzip.compress(b"x" * 99, mtime=0)[:-9])]
)
def test_an_encoding_that_cannot_be_undone_is_named(
    s3_server: S3Server, s3_bucket: S3Bucket, name: str, body: bytes
) -> None:
    fill_bucket(s3_server, s3_bucket, {"k": body, "a/.zarray": body}, **{"Content-Encoding": name})
    store = open_store(s3_bucket.config())

    with pytest.raises(errors.ChunkCorrupt, match=f"content encoding {name!r}"):
        store.get_part("k", 0, 5)
    with pytest.raises(errors.BadMetadata, match=f"content encoding {name!r}"):
        store.get("a/.zarray")
    assert None not in store.versions("", ["k", "a/.zarray"])

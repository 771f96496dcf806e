"""The benchmark's own parts, on arrays so small that nothing is measured."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr

from tests.benchmarks import pages
from tests.benchmarks.cases import cases_of
from tests.benchmarks.data import ALL, SLIDE, STACK, ArraySpec, make_all, make_sparse
from tests.benchmarks.object_server import Bucket
from tests.benchmarks.programs import Program, read_in_turns, running
from tests.benchmarks.registry import SUITES
from tests.benchmarks.suite import Bench, Effort, Measurement, Outcome, Run, load
from tests.benchmarks.suites import reading

TINY = replace(STACK, name="tiny", shape=(8, 50, 40), chunks=(4, 32, 32))
FLAT = replace(SLIDE, name="flat", shape=(70, 60), chunks=(32, 32))
EFFORT = Effort(rounds=1, seconds=0.1)


def outcome(walls: dict[tuple[str, str], float]) -> Outcome:
    measured = [Measurement(case, name, {"wall": wall, "cpu": wall}) for (case, name), wall in walls.items()]
    return Outcome("engine", 1.0, measured)


@pytest.fixture(autouse=True)
def one_read_is_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.benchmarks.programs._SHORTEST", 1e-6)


def test_arrays_are_the_same_every_time_and_read_back_with_zarr_python(tmp_path: Path) -> None:
    expected = np.concatenate([block for _, block in TINY.blocks()])

    make_all(tmp_path, (TINY, FLAT))
    array = zarr.open_array(str(tmp_path / "tiny"), mode="r")

    assert array.chunks == TINY.chunks
    np.testing.assert_array_equal(array[...], expected)
    np.testing.assert_array_equal(np.concatenate([block for _, block in TINY.blocks()]), expected)


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: spec.name)
def test_cases_lie_in_the_array_and_know_their_size(spec: ArraySpec) -> None:
    for case in cases_of(spec):
        shape = np.broadcast_to(np.zeros((), spec.dtype), spec.shape)[case.selection]

        assert shape.nbytes == case.nbytes <= case.touched_nbytes


def test_programs_that_agree_are_timed_and_others_are_left_out(tmp_path: Path) -> None:
    make_all(tmp_path, (TINY,))
    other = tmp_path / "other"
    make_all(other, (replace(TINY, dtype="<u4"),))
    programs = [
        Program("ours", "hyperslab", str(tmp_path)),
        Program("zarr", "zarr-python", str(tmp_path)),
        Program("wrong", "zarr-python", str(other)),
        Program("absent", "zarr-python", str(tmp_path / "nowhere")),
    ]

    with running(programs) as (workers, problems):
        found, wrong = read_in_turns(next(cases_of(TINY)), workers, EFFORT)

    assert problems == []
    assert [measurement.program for measurement in found] == ["ours", "zarr"]
    assert all(measurement.values["wall"] > 0 for measurement in found)
    assert [text.partition(" ")[2][:12] for text in wrong] == ["whole: wrong", "whole: absen"]


def test_a_program_that_does_not_start_is_told(tmp_path: Path) -> None:
    with running([Program("nobody", "no such reader", str(tmp_path))]) as (workers, _):
        found, wrong = read_in_turns(next(cases_of(TINY)), workers, EFFORT)

    assert found == []
    assert "nobody" in wrong[0]


def test_the_smoke_benchmark_runs_on_any_arrays(tmp_path: Path) -> None:
    bench = Bench(tmp_path, EFFORT)

    found = Outcome("smoke", 0.0, list(reading.smoke(bench, [FLAT])), bench.notes)

    assert bench.notes == []
    assert {"flat: whole", "flat: cell"} <= set(found.cases())
    assert found.programs() == [reading.REMOTE, reading.REMOTE_CACHED, reading.TENSORSTORE, "zarr-python 3"]
    assert [table.title for table in reading.SMOKE.tables(found)] == ["Slices"]


def test_sparse_arrays_hold_the_tile_that_is_read(tmp_path: Path) -> None:
    name = make_sparse(tmp_path, 10)

    tile = np.asarray(zarr.open_array(str(tmp_path / name), mode="r")[1300:1556, 1300:1556])

    assert tile.all()


def test_the_bucket_lists_and_gives_ranges(tmp_path: Path) -> None:
    for name in ("a/0.0", "a/0.1", "b"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"0123456789")
    bucket = Bucket(tmp_path)

    listed = b"".join(bucket.answer("GET", "/bucket?list-type=2&prefix=a/&start-after=a/0.0", {})[0])
    part = bucket.answer("GET", "/bucket/a/0.1", {"range": "bytes=2-4"})[0]
    missing = bucket.answer("HEAD", "/bucket/a/9.9", {})[0]

    assert b"<Key>a/0.1</Key>" in listed
    assert b"a/0.0" not in listed
    assert part[0].startswith(b"HTTP/1.1 206")
    assert part[1] == b"234"
    assert missing[0].startswith(b"HTTP/1.1 404")
    assert bucket.counts == {"list": 1, "get": 1, "head": 1}


def test_targets_of_the_engine_name_the_cases_that_miss_them() -> None:
    walls = {("a", reading.OURS): 1.0, ("a", reading.TENSORSTORE): 4.0, ("b", reading.OURS): 3.0, ("b", "zarrs"): 2.0}

    fast, never_slower = reading.engine_targets(outcome(walls))

    assert (fast.met, fast.found) == (True, "0.25×")
    assert (never_slower.met, never_slower.found) == (False, "b (1.50× zarrs)")


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_reports_also_on_nothing(name: str) -> None:
    empty = Outcome(name, 0.0, [])

    tables, targets = SUITES[name].tables(empty), list(SUITES[name].targets(empty))

    assert not any(target.met for target in targets)
    assert all(len(row) == len(table.head) for table in tables for row in table.rows)


def test_the_page_links_the_tables_of_every_suite_but_the_smoke_benchmark() -> None:
    text, folder = pages.PAGE.read_text(encoding="utf-8"), pages.PAGE.with_suffix("")
    named = re.findall(r"\]\(performance/([\w-]+)\.csv\)", text)

    assert [name for name in SUITES if name not in {"smoke", *named}] == []
    assert sorted([*named, "targets"]) == sorted(path.stem for path in folder.glob("*.csv"))


def test_results_replace_those_of_their_suite_only(tmp_path: Path) -> None:
    page, folder = tmp_path / "page.md", tmp_path / "page"
    folder.mkdir()
    page.write_text("before\n<!-- made: targets -->\n<!-- end -->\n")
    (folder / "targets.csv").write_text("suite,wanted,,found\nengine,old,met,1\nhttp,kept,met,2\n")

    run = Run({}, {}, "", [outcome({("a", reading.OURS): 1.0, ("a", reading.TENSORSTORE): 2.0})])
    (tmp_path / "run.json").write_text(run.to_json())

    pages.write_docs(load(tmp_path / "run.json"), page)

    assert "old" not in page.read_text()
    assert "| http | kept | met | 2 |" in page.read_text()
    assert "a,1 s,2 s,0.50×" in (folder / "engine.csv").read_text()

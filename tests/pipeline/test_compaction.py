"""Compaction shows every reader each row once, at whatever step it is killed, and waits for streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from brokerweave.errors import ConfigError
from brokerweave.pipeline.lake import compaction, durable, switching
from brokerweave.pipeline.lake.compaction import Compacted, compact
from brokerweave.pipeline.lake.consumed import consumed
from tests.pipeline.killing import killed_at_every_step, recovered
from tests.pipeline.lake import seen, visible
from tests.pipeline.test_publishing import expected, publish
from tests.support.waiting import LIMIT

BATCHES = 4
RUN = "import pathlib, tests.pipeline.test_compaction as t; t.switching.LINGER = 0; t"


@pytest.fixture(autouse=True)
def _nobody_waits_for_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switching, "LINGER", 0.0)


def fill(table: Path, batches: range = range(BATCHES), days: int = 2) -> None:
    for batch in batches:
        publish(table, batch, range(10 * batch, 10 * batch + 10), days=days)


def compacted(folder: Path) -> None:
    switching.LINGER = 0.0
    table = folder / "bronze"
    if not table.exists():
        hook, durable.at_step = durable.at_step, None
        fill(table)
        durable.at_step = hook
    compact(table, min_files=2)


def compacted_again_and_again(folder: Path) -> None:
    while not (folder / "stop").exists():
        compact(folder / "bronze", min_files=3)


def compacted_without_exchange(folder: Path) -> None:
    durable.exchange = lambda one, other: False
    compacted(folder)


def one_more_batch(folder: Path) -> None:
    publish(folder / "bronze", BATCHES, range(10 * BATCHES, 10 * BATCHES + 10))


def test_no_reader_sees_a_row_twice_or_misses_one_wherever_compaction_is_killed(tmp_path: Path) -> None:
    scenario = "tests.pipeline.test_compaction:compacted"
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    if not durable.exchange(tmp_path / "one", tmp_path / "other"):
        pytest.skip("this file system cannot exchange folders")
    left = killed_at_every_step(scenario, tmp_path)
    assert any("after exchange" in name for name, _ in left)
    for name, folder in left:
        assert seen(folder / "bronze") == expected(range(40)), f"after a kill {name}"
    recovered(scenario, tmp_path)
    for name, folder in left:
        assert seen(folder / "bronze") == expected(range(40)), f"not recovered from a kill {name}"
        assert len(visible(folder / "bronze")) == 2
        assert not switching.workshop(folder / "bronze").exists()


@pytest.mark.parametrize("mended_by", ["compacted_without_exchange", "one_more_batch"])
def test_without_exchange_a_folder_misses_between_two_renames_only_and_comes_back(
    tmp_path: Path, mended_by: str
) -> None:
    left = killed_at_every_step("tests.pipeline.test_compaction:compacted_without_exchange", tmp_path)
    assert sum(name == "between the renames" for name, _ in left) == 2
    for name, folder in left:
        found = seen(folder / "bronze")
        if name == "between the renames":
            assert len(found) == 20
        else:
            assert found == expected(range(40)), f"after a kill {name}"
    recovered(f"tests.pipeline.test_compaction:{mended_by}", tmp_path)
    total = 50 if mended_by == "one_more_batch" else 40
    for name, folder in left:
        assert seen(folder / "bronze") == expected(range(total)), f"not mended after a kill {name}"


def test_batches_published_while_compaction_runs_are_all_there_once(tmp_path: Path) -> None:
    table = tmp_path / "bronze"
    publish(table, 0, range(10))
    running = subprocess.Popen(
        [sys.executable, "-c", f"{RUN}.compacted_again_and_again(pathlib.Path({str(tmp_path)!r}))"],
        cwd=Path(__file__).parents[2],
    )
    try:
        for batch in range(1, 60):
            publish(table, batch, range(10 * batch, 10 * batch + 10))
            with switching.shared(table):
                assert seen(table) == expected(range(10 * batch + 10))
            if batch > 30 and any("compact-" in path for path in visible(table)):
                break
    finally:
        (tmp_path / "stop").touch()
        assert running.wait(LIMIT) == 0
    assert any("compact-" in path for path in visible(table)), "compaction never came"
    assert seen(table) == expected(range(10 * batch + 10))


def test_compaction_makes_one_file_of_a_folder_and_again_of_the_next_batches(tmp_path: Path) -> None:
    fill(tmp_path / "t")
    done = compact(tmp_path / "t", min_files=2)
    assert done == Compacted(2, 8, 2, 40, 40, 0)
    fill(tmp_path / "t", range(BATCHES, 2 * BATCHES))
    assert compact(tmp_path / "t", min_files=2).files_after == 2
    assert len(visible(tmp_path / "t")) == 2
    assert seen(tmp_path / "t") == expected(range(80))
    assert compact(tmp_path / "t", min_files=1) == Compacted()


def test_more_rows_than_fit_into_memory_go_into_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "t", days=1)
    size = max(pq.ParquetFile(tmp_path / "t" / path).read().nbytes for path in visible(tmp_path / "t"))
    monkeypatch.setattr(compaction, "MEMORY", 2 * size)
    assert compact(tmp_path / "t", min_files=2).files_after == 2
    assert seen(tmp_path / "t") == expected(range(40))


def test_files_that_are_large_enough_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "t", days=1)
    monkeypatch.setattr(compaction, "TARGET", 1)
    assert compact(tmp_path / "t", min_files=1) == Compacted()


def test_a_folder_with_few_files_is_left_alone(tmp_path: Path) -> None:
    fill(tmp_path / "t")
    files = visible(tmp_path / "t")
    assert compact(tmp_path / "t", min_files=5) == Compacted()
    assert visible(tmp_path / "t") == files


def test_a_table_that_does_not_exist_is_no_error(tmp_path: Path) -> None:
    assert compact(tmp_path / "none") == Compacted()


def test_a_batch_after_compaction_and_a_replay_of_one_before_are_exact(tmp_path: Path) -> None:
    fill(tmp_path / "t")
    compact(tmp_path / "t", min_files=2)
    assert publish(tmp_path / "t", BATCHES - 1, range(30, 40)).replayed
    publish(tmp_path / "t", BATCHES, range(40, 50))
    assert seen(tmp_path / "t") == expected(range(50))


def test_a_fold_merges_the_rows_of_new_and_of_compacted_files(tmp_path: Path) -> None:
    def newest(rows: pa.Table) -> pa.Table:
        merged = rows.group_by("topic").aggregate([("sequence", "max")])
        return merged.rename_columns({"sequence_max": "sequence"}).select(["topic", "sequence"])

    fill(tmp_path / "t", days=1)
    assert compact(tmp_path / "t", fold=newest, min_files=2).rows_after == 1
    fill(tmp_path / "t", range(BATCHES, 2 * BATCHES), days=1)
    compact(tmp_path / "t", fold=newest, min_files=2)
    assert seen(tmp_path / "t") == [("a/b", 79)]


def test_a_file_that_one_of_the_streams_has_not_read_stays(tmp_path: Path) -> None:
    fill(tmp_path / "t", days=1)
    files = sorted(visible(tmp_path / "t"))
    _checkpoint(tmp_path / "ahead", [[tmp_path / "t" / file for file in files]], done=0)
    _checkpoint(tmp_path / "behind", [[tmp_path / "t" / file] for file in files], done=1)
    done = compact(tmp_path / "t", [tmp_path / "ahead", tmp_path / "behind"], min_files=2)
    assert (done.files_before, done.waiting) == (2, 2)
    assert set(files[2:]) < visible(tmp_path / "t")
    assert seen(tmp_path / "t") == expected(range(40))


def test_a_stream_that_never_ran_holds_everything(tmp_path: Path) -> None:
    fill(tmp_path / "t")
    assert compact(tmp_path / "t", [tmp_path / "no-checkpoint"], min_files=1) == Compacted(waiting=8)


def test_a_planned_batch_that_is_not_committed_counts_as_unread(tmp_path: Path) -> None:
    paths = [tmp_path / f"batch-q-{number}-0.parquet" for number in range(3)]
    _checkpoint(tmp_path / "c", [[path] for path in paths], done=0)
    assert consumed(tmp_path / "c") == {paths[0]}


def test_a_list_that_spark_has_put_together_is_read_too(tmp_path: Path) -> None:
    paths = [tmp_path / f"batch q-{number}.parquet" for number in range(4)]
    _checkpoint(tmp_path / "c", [[path] for path in paths], done=2)
    listed = tmp_path / "c" / "sources" / "0"
    lines = [line for number in range(3) for line in (listed / str(number)).read_text().splitlines()[1:]]
    (listed / "2.compact").write_text("\n".join(["v1", *lines]))
    for number in range(3):
        (listed / str(number)).unlink()
    assert consumed(tmp_path / "c") == set(paths[:3])


def test_a_checkpoint_of_another_kind_stops_compaction_with_one_line(tmp_path: Path) -> None:
    _checkpoint(tmp_path / "c", [[tmp_path / "x"]], done=0)
    (tmp_path / "c" / "offsets" / "0").write_text("v9\n{}\n{}")
    fill(tmp_path / "t")
    files = visible(tmp_path / "t")
    with pytest.raises(ConfigError, match="unknown way"):
        compact(tmp_path / "t", [tmp_path / "c"], min_files=1)
    assert visible(tmp_path / "t") == files


def test_files_that_are_not_ours_survive_a_switch(tmp_path: Path) -> None:
    fill(tmp_path / "t", days=1)
    note = tmp_path / "t" / "date=2024-10-04" / "README"
    note.write_text("mine")
    compact(tmp_path / "t", min_files=2)
    assert note.read_text() == "mine"


def test_a_reader_that_had_listed_before_the_switch_is_told_and_does_not_miscount(tmp_path: Path) -> None:
    fill(tmp_path / "t", days=1)
    opened = os.open(tmp_path / "t" / "date=2024-10-04", os.O_RDONLY | os.O_DIRECTORY)
    try:
        compact(tmp_path / "t", min_files=2)
        listed = os.listdir(opened)
    finally:
        os.close(opened)
    assert not [name for name in listed if name.startswith("compact-")]


def _checkpoint(folder: Path, batches: list[list[Path]], done: int) -> None:
    """What Spark 4 writes for a stream of files: all batches planned, those up to `done` committed."""
    for part in ("commits", "offsets", "sources/0"):
        (folder / part).mkdir(parents=True)
    for number, files in enumerate(batches):
        entries = [
            json.dumps({"path": path.as_uri(), "timestamp": 1, "batchId": number}, separators=(",", ":"))
            for path in files
        ]
        (folder / "sources/0" / str(number)).write_text("\n".join(["v1", *entries]))
        (folder / "offsets" / str(number)).write_text(f'v1\n{{"conf":{{}}}}\n{{"logOffset":{number}}}')
        if number <= done:
            (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')

"""Batches become visible once and whole, at whatever step the driver is killed."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from brokerweave.errors import ConfigError, Unavailable
from brokerweave.pipeline.lake import durable
from brokerweave.pipeline.sinks import Written
from brokerweave.pipeline.sinks.publishing import BatchPublisher
from brokerweave.pipeline.sinks.staging import Staged
from tests.pipeline.killing import killed_at_every_step, recovered
from tests.pipeline.lake import Row, rows, seen, staged, visible

QUERY = "bronze-north-1a2b3c4d"
SCENARIO = "tests.pipeline.test_publishing:three_batches"


def publish(folder: Path, batch_id: int, *parts: Iterable[int], days: int = 2, query: str = QUERY) -> Written:
    return BatchPublisher(folder).publish(
        query, batch_id, lambda place: staged(place, [rows(part, days=days) for part in parts])
    )


def expected(*numbers: Iterable[int]) -> list[Row]:
    return sorted(("a/b", number) for each in numbers for number in each)


def three_batches(folder: Path) -> None:
    """As Spark hands them over: again, if its own commit was not written, and cut in other parts then."""
    folder.mkdir(parents=True, exist_ok=True)
    committed, tried = folder / "spark-commits", folder / "tried"
    again = tried.exists()
    tried.touch()
    for batch_id in range(3):
        if committed.exists() and int(committed.read_text()) >= batch_id:
            continue
        first = 10 * batch_id
        cuts = (first, first + 10) if again else (first, first + 3, first + 5, first + 10)
        parts = [range(low, high) for low, high in itertools.pairwise(cuts)]
        publish(folder / "bronze", batch_id, *parts)
        durable.step(f"before Spark commits {batch_id}")
        committed.write_text(str(batch_id))
        durable.step(f"after Spark commits {batch_id}")


def test_a_batch_is_exact_for_other_readers_wherever_the_driver_is_killed(tmp_path: Path) -> None:
    left = killed_at_every_step(SCENARIO, tmp_path)
    assert len(left) > 30
    before = {}
    for name, folder in left:
        found = seen(folder / "bronze")
        assert len(set(found)) == len(found), f"rows are doubled after a kill {name}"
        mark = folder / "spark-commits"
        sure = 10 * (int(mark.read_text()) + 1) if mark.exists() else 0
        assert set(expected(range(sure))) <= set(found), f"rows are missing after a kill {name}"
        before[name, folder] = _files(folder / "bronze")
    recovered(SCENARIO, tmp_path)
    for (name, folder), files in before.items():
        assert seen(folder / "bronze") == expected(range(30)), f"not recovered from a kill {name}"
        assert files.items() <= _files(folder / "bronze").items(), (
            f"a visible file changed after a kill {name}"
        )
        assert not list((folder / "bronze" / "_tmp").rglob("*.part")), f"leftovers after a kill {name}"


def _files(folder: Path) -> dict[str, int]:
    return {path: (folder / path).stat().st_ino for path in visible(folder)} if folder.exists() else {}


def test_a_replayed_batch_adds_nothing_and_tells_so(tmp_path: Path) -> None:
    first = publish(tmp_path, 0, range(5), range(5, 10))
    assert (first.rows, first.files, first.replayed) == (10, 4, False)
    files = visible(tmp_path)
    again = publish(tmp_path, 0, range(10))
    assert (again.rows, again.files, again.replayed) == (10, 4, True)
    assert visible(tmp_path) == files
    assert seen(tmp_path) == expected(range(10))


def test_a_batch_is_named_by_query_batch_and_partition(tmp_path: Path) -> None:
    publish(tmp_path, 7, [0], [0], days=1)
    assert visible(tmp_path) == {f"date=2024-10-04/batch-{QUERY}-7-{part}.parquet" for part in (0, 1)}


def test_a_replay_whose_files_compaction_took_adds_nothing(tmp_path: Path) -> None:
    publish(tmp_path, 0, range(10))
    for path in visible(tmp_path):
        (tmp_path / path).rename((tmp_path / path).with_name("compact-1.parquet"))
    assert publish(tmp_path, 0, range(10)).replayed
    assert seen(tmp_path) == expected(range(10))


def test_an_older_batch_is_refused_because_it_is_of_another_checkpoint(tmp_path: Path) -> None:
    publish(tmp_path, 5, range(10))
    with pytest.raises(ConfigError, match="give the query a new name"):
        publish(tmp_path, 4, range(10, 20))
    assert seen(tmp_path) == expected(range(10))


def test_a_lost_checkpoint_overwrites_nothing_because_its_query_has_another_name(tmp_path: Path) -> None:
    publish(tmp_path, 0, range(10))
    publish(tmp_path, 0, range(10, 20), query="bronze-north-99999999")
    assert seen(tmp_path) == expected(range(20))


def test_without_its_notes_a_batch_replaces_its_own_files_in_all_folders(tmp_path: Path) -> None:
    publish(tmp_path, 0, range(10))
    publish(tmp_path, 1, range(10, 13), range(13, 20), days=3)
    publish(tmp_path, 1, [100], query=f"{QUERY}-1")
    shutil.rmtree(tmp_path / "_commits")
    publish(tmp_path, 1, range(10, 20), days=1)
    assert seen(tmp_path) == expected(range(20), [100])


def test_without_its_notes_an_older_batch_is_still_refused(tmp_path: Path) -> None:
    publish(tmp_path, 3, range(10))
    shutil.rmtree(tmp_path / "_commits")
    with pytest.raises(ConfigError, match="give the query a new name"):
        publish(tmp_path, 0, range(10, 20))


def test_an_empty_batch_leaves_nothing(tmp_path: Path) -> None:
    assert publish(tmp_path, 0) == Written(0)
    assert not visible(tmp_path)
    assert not list((tmp_path / "_tmp" / QUERY).iterdir())


def test_files_of_attempts_that_spark_did_not_take_stay_unseen_and_are_removed(tmp_path: Path) -> None:
    def with_a_lost_twin(place: Path) -> list[Staged]:
        staged(place, [rows(range(10))])
        return staged(place, [rows(range(10))])

    BatchPublisher(tmp_path).publish(QUERY, 0, with_a_lost_twin)
    assert seen(tmp_path) == expected(range(10))
    assert not list((tmp_path / "_tmp").rglob("*.part"))


def test_two_writers_of_one_query_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "LOCK_WAIT", 0.0)
    publish(tmp_path, 0, range(10))
    with durable.locked(tmp_path / "_commits" / f"{QUERY}.lock"), pytest.raises(Unavailable, match="held by"):
        publish(tmp_path, 1, range(10, 20))
    assert seen(tmp_path) == expected(range(10))


@pytest.mark.parametrize("name", ["", "../up", "a/b", "a b", "*"])
def test_a_query_that_cannot_name_files_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot name a query"):
        publish(tmp_path, 0, [1], query=name)

"""Whole pipelines on a real Spark, over real Flight services: what goes wrong, and the one line it says."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from brokerweave.edgelog.layout import Position
from brokerweave.errors import ConfigError
from brokerweave.pipeline import running
from brokerweave.pipeline.abandoning import give_up
from brokerweave.pipeline.backfilling import Moment, backfill
from brokerweave.pipeline.lake import durable
from brokerweave.pipeline.lake.notes import LakeNotes
from brokerweave.pipeline.settings import load
from tests.pipeline import lakes
from tests.support.edgelogs import SECOND, Site
from tests.support.verdicts import in_order, once_each

pytestmark = pytest.mark.timeout(900)


class Lake:
    """A lake and the sites that feed it."""

    def __init__(self, spark: SparkSession, folder: Path, *sites: Site, **flags: object) -> None:
        self.folder = folder
        self.path = folder / "lake"
        self.said: list[str] = []
        self.flags = {
            "nodes": ",".join(site.address for site in sites),
            "to": self.path,
            "checkpoint": folder / "check",
            "trigger": "available-now",
            "layers": "bronze",
            "node_timeout": 4.0,
            **flags,
        }
        self._spark = spark

    def run(self, *, resume: bool = False, accept: bool = False, **changes: object) -> bool:
        settings = load(None, {**self.flags, **changes})
        self.said = []
        pipeline = running.Pipeline(settings, self._spark, resume=resume, accept=accept, say=self.said.append)
        return pipeline.run()

    def backfill(self, since: str | None = None, until: str | None = None, **changes: object) -> int:
        settings = load(None, {**self.flags, **changes})
        begin, end = Moment.parse(since, "--from"), Moment.parse(until, "--until")
        with running.lake_for_backfill(settings) as notes:
            sink = running.sink(settings, "bronze")
            done = backfill(self._spark, settings, notes, sink, begin, end, self.said.append)
        return sum(each.rows for each in done)

    def payloads(self) -> list[bytes]:
        """Of bronze, in order; a row that is there twice is there twice."""
        table = lakes.read(self.path, "bronze")
        rows = table.select(["site", "epoch", "sequence", "payload"]).to_pylist()
        return [row["payload"] for row in sorted(rows, key=lambda row: tuple(row.values()))]

    def line(self, part: str) -> str:
        """The last line that has this part."""
        found = [line for line in self.said if part in line][-1]
        assert "Traceback" not in found
        assert "\n" not in found
        return found


def readings(first: int, count: int) -> list[bytes]:
    return [b'{"n": %d, "t": %d.5}' % (number, number % 10) for number in range(first, first + count)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path / "one", "one") as site:
        yield site


def two_sites(folder: Path, **options: Any) -> tuple[ExitStack, Site, Site]:
    stack = ExitStack()
    one = stack.enter_context(Site(folder / "one", "one"))
    return stack, one, stack.enter_context(Site(folder / "two", "two", **options))


def test_all_layers_get_each_row_once_and_nodes_are_told(spark: SparkSession, tmp_path: Path) -> None:
    stack, one, two = two_sites(tmp_path)
    with stack:
        lake = Lake(spark, tmp_path, one, two, layers="bronze,silver,gold")
        one.write(readings(0, 50))
        two.write([*readings(100, 30), b"no json"])
        assert lake.run() is True
        one.write(readings(50, 7))
        assert lake.run() is True
        in_order(lake.payloads(), [*readings(0, 57), *readings(100, 30), b"no json"])
        assert sorted(lakes.read(lake.path, "silver")["n"].to_pylist()) == [*range(57), *range(100, 130)]
        (reason,) = lakes.read(lake.path, "dead_letters")["reason"].to_pylist()
        assert reason
        gold = lakes.query(lake.path, "gold", "SELECT sum(count) FROM rows WHERE field = 't'")
        assert gold == [(87,)]
        # Spark itself never reports the last batch of such a run.
        assert one.readers() == {"lake": one.end()}
        assert two.readers() == {"lake": two.end()}


def test_a_site_that_is_away_stops_nobody_and_comes_later(spark: SparkSession, tmp_path: Path) -> None:
    stack, one, two = two_sites(tmp_path)
    with stack:
        lake = Lake(spark, tmp_path, one, two)
        one.write(readings(0, 5))
        two.write(readings(10, 5))
        two.stop()
        assert lake.run() is False
        assert "cannot be reached" in lake.line(two.address)
        in_order(lake.payloads(), readings(0, 5))
        two.start()
        assert lake.run() is True
        in_order(lake.payloads(), [*readings(0, 5), *readings(10, 5)])


def test_a_site_that_is_gone_for_good_can_be_abandoned(spark: SparkSession, tmp_path: Path) -> None:
    stack, one, two = two_sites(tmp_path)
    with stack:
        lake = Lake(spark, tmp_path, one, two)
        one.write(readings(0, 5))
        two.write(readings(10, 5))
        assert lake.run() is True
        two.write(readings(20, 3))
        notes = LakeNotes(lake.path)
        assert give_up(notes, "two", None).rows_lost == 3
        two.stop()
        assert give_up(notes, "two", None).rows_lost is None
        with pytest.raises(ConfigError, match="knows no node 'three'; known are one, two"):
            give_up(notes, "three", None)
        one.write(readings(5, 1))
        assert lake.run() is True
        assert lake.line("abandoned")
        in_order(lake.payloads(), [*readings(0, 6), *readings(10, 5)])


def test_a_wrong_token_is_one_line_and_stops_only_its_site(spark: SparkSession, tmp_path: Path) -> None:
    stack, one, two = two_sites(tmp_path, token="right")
    with stack:
        lake = Lake(spark, tmp_path, one, two)
        one.write(readings(0, 5))
        two.write(readings(10, 5))
        (tmp_path / "wrong").write_text("wrong\n")
        assert lake.run(token_file=tmp_path / "wrong") is False
        assert "wants another token" in lake.line(two.address)
        in_order(lake.payloads(), readings(0, 5))
        (tmp_path / "right").write_text("right\n")
        assert lake.run(token_file=tmp_path / "right") is True
        in_order(lake.payloads(), [*readings(0, 5), *readings(10, 5)])


def test_a_lost_checkpoint_is_refused_and_the_lake_knows_where_to_go_on(
    spark: SparkSession, site: Site, tmp_path: Path
) -> None:
    lake = Lake(spark, tmp_path, site)
    site.write(readings(0, 5))
    assert lake.run() is True
    shutil.rmtree(tmp_path / "check")
    site.write(readings(5, 5))
    assert lake.run() is False
    assert "--resume-from-lake" in lake.line("already has rows of node one up to 1:5")
    in_order(lake.payloads(), readings(0, 5))
    assert lake.run(resume=True) is True
    in_order(lake.payloads(), readings(0, 10))
    site.write(readings(10, 1))
    assert lake.run() is True
    in_order(lake.payloads(), readings(0, 11))


def test_a_checkpoint_lost_in_the_middle_of_a_batch_doubles_nothing(
    spark: SparkSession, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(spark, tmp_path, site)
    site.write(readings(0, 5))
    assert lake.run() is True
    site.write(readings(5, 5))
    at = stop_at(monkeypatch, "after note bronze-one", ConfigError("as if it were killed"))
    assert lake.run() is False
    assert at
    monkeypatch.undo()
    shutil.rmtree(tmp_path / "check")
    site.write(readings(10, 5))
    assert lake.run(resume=True) is True
    in_order(lake.payloads(), readings(0, 15))


def stop_at(monkeypatch: pytest.MonkeyPatch, step: str, error: Exception) -> list[str]:
    """Let the sink fail at a step; what was met."""
    met: list[str] = []

    def fail(name: str) -> None:
        if name.startswith(step):
            met.append(name)
            raise error

    monkeypatch.setattr(durable, "at_step", fail)
    return met


def test_options_that_a_checkpoint_was_not_made_with_are_refused(
    spark: SparkSession, site: Site, tmp_path: Path
) -> None:
    lake = Lake(spark, tmp_path, site)
    site.write(readings(0, 5))
    assert lake.run() is True
    with pytest.raises(ConfigError, match=r"'topics' of bronze was \[\] .* --accept-changes"):
        lake.run(topics=["s/other"])
    with pytest.raises(ConfigError, match="belongs to another lake"):
        lake.run(to=tmp_path / "another")
    with pytest.raises(ConfigError, match="holds parquet tables"):
        lake.run(format="delta")
    site.write(readings(5, 5), "s/other")
    site.write(readings(10, 5))
    assert lake.run(topics=["s/other"], accept=True) is True
    in_order(lake.payloads(), readings(0, 10))


def flip(data: bytearray) -> None:
    data[len(data) // 2] ^= 4


def zero_the_tail(data: bytearray) -> None:
    data[-60:] = bytes(60)


def cut(data: bytearray) -> None:
    del data[-60:]


@pytest.mark.parametrize("harm", [flip, zero_the_tail, cut])
def test_damage_in_a_log_stops_its_stream_with_one_line_and_can_be_skipped(
    spark: SparkSession, site: Site, tmp_path: Path, harm: Callable[[bytearray], None]
) -> None:
    lake = Lake(spark, tmp_path, site)
    for number in range(3):
        site.write(readings(number, 1))
    site.restart_epoch()
    site.write(readings(3, 2))
    segment = sorted(tmp_path.glob("one/*.seg"))[0]
    data = bytearray(segment.read_bytes())
    harm(data)
    segment.write_bytes(data)
    assert lake.run() is False
    assert f"{segment.name} is damaged" in lake.line("is damaged")
    assert lake.run(skip_lost=True) is True
    found = lake.payloads()
    assert found[-2:] == readings(3, 2)
    assert set(found) < set(readings(0, 5))
    assert len(found) == len(set(found))
    assert next(iter(LakeNotes(lake.path).logs().values())).lost == 5 - len(found)
    site.write(readings(5, 1))
    assert lake.run(skip_lost=True) is True
    assert next(iter(LakeNotes(lake.path).logs().values())).lost == 5 - len(found)


def test_rows_that_were_trimmed_unread_stop_the_stream_and_can_be_skipped(
    spark: SparkSession, site: Site, tmp_path: Path
) -> None:
    lake = Lake(spark, tmp_path, site)
    site.write(readings(0, 2))
    assert lake.run() is True
    site.write(readings(2, 3))
    site.restart_epoch()
    site.write(readings(5, 2))
    site.trim_oldest()
    assert lake.run() is False
    assert "3 rows after 1:2" in lake.line("trimmed")
    assert lake.run(skip_lost=True) is True
    in_order(lake.payloads(), [*readings(0, 2), *readings(5, 2)])
    assert next(iter(LakeNotes(lake.path).logs().values())).skipped == 3


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[None]:
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)], capture_output=True
    )
    if done.returncode:
        pytest.skip("mounting a small disk is not permitted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_one_line_and_nothing_half_written_is_seen(
    spark: SparkSession, site: Site, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", 600):
        lake = Lake(spark, tmp_path, site, to=tmp_path / "disk" / "lake")
        lake.path = tmp_path / "disk" / "lake"
        site.write(readings(0, 5))
        assert lake.run() is True
        noise = [os.urandom(2000) for _ in range(400)]
        site.write(noise)
        assert lake.run() is False
        assert lake.said[-1].startswith("bronze-one: ")
        assert "No space left on device" in lake.said[-1]
        in_order(lake.payloads(), readings(0, 5))
        subprocess.run(["mount", "-o", "remount,size=8m", str(tmp_path / "disk")], check=True)
        assert lake.run() is True
        once_each(lake.payloads(), [*readings(0, 5), *noise])


def test_a_backfill_brings_what_is_missing_and_nothing_twice(
    spark: SparkSession, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(spark, tmp_path, site)
    site.write(readings(0, 5), "s/a")
    site.write(readings(5, 5), "s/b", time=10 * SECOND)
    assert lake.run(topics=["s/a"]) is True
    site.write(readings(10, 5), "s/b")
    in_order(lake.payloads(), readings(0, 5))
    assert lake.backfill("1970-01-01T00:00:20Z") == 0
    assert lake.backfill(until="1:7") == 2
    at = stop_at(monkeypatch, "before move", OSError("as if it were killed"))
    with pytest.raises(OSError, match="as if it were killed"):
        lake.backfill()
    assert at
    monkeypatch.undo()
    assert lake.backfill() == 0, "what the one before had staged is brought, and only that"
    assert lake.backfill() == 0
    in_order(lake.payloads(), readings(0, 10))  # what the stream has not read yet is left to it


def test_a_stream_after_a_backfill_doubles_nothing(spark: SparkSession, site: Site, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path, site)
    site.write(readings(0, 5))
    assert lake.backfill(until="1:3") == 3
    assert lake.run() is False
    assert lake.line("a backfill brought rows up to 1:3")
    assert lake.run(resume=True) is True
    in_order(lake.payloads(), readings(0, 5))


def test_compaction_keeps_every_row_and_what_silver_has_not_read(
    spark: SparkSession, site: Site, tmp_path: Path
) -> None:
    lake = Lake(spark, tmp_path, site, layers="bronze,silver")
    for number in range(3):
        site.write(readings(number * 5, 5))
        assert lake.run() is True
    site.write(readings(15, 5))
    assert lake.run(layers="bronze") is True
    settings = load(None, lake.flags)
    done = dict(running.compact_lake(settings, 2))
    assert (done["bronze"].files_before, done["bronze"].files_after, done["bronze"].waiting) == (3, 1, 1)
    in_order(lake.payloads(), readings(0, 20))
    assert lake.run() is True
    assert sorted(lakes.read(lake.path, "silver")["n"].to_pylist()) == list(range(20))


def test_a_new_log_at_the_same_place_is_brought_too(spark: SparkSession, tmp_path: Path) -> None:
    with Site(tmp_path / "old", "one") as old:
        lake = Lake(spark, tmp_path, old)
        old.write(readings(0, 3))
        assert lake.run() is True
        port = old.port
    with Site(tmp_path / "new", "one", port=port) as new:
        new.write(readings(10, 3))
        assert lake.run() is True
        assert lake.run() is True
        once_each(lake.payloads(), [*readings(0, 3), *readings(10, 3)])
        assert new.readers() == {"lake": Position(1, 3)}

from __future__ import annotations

from pathlib import Path

import pytest

from brokerweave.edgelog.layout import START, Position
from brokerweave.errors import BrokerweaveError, ConfigError
from brokerweave.pipeline.lake.notes import Abandoned, CheckpointNotes, LakeInUse, LakeNotes, LogNote

NOTE = LogNote("ab12", "a", "bronze-a-1", 3, Position(1, 10), Position(2, 25), False, "grpc://h:1")


def test_a_lake_keeps_its_id_and_its_format(tmp_path: Path) -> None:
    notes = LakeNotes(tmp_path / "lake")
    lake = notes.claim("parquet")
    assert notes.claim("parquet") == lake
    assert notes.table_format() == "parquet"
    with pytest.raises(ConfigError, match="--format parquet"):
        notes.claim("delta")


def test_a_batch_counts_as_held_only_when_it_is_whole(tmp_path: Path) -> None:
    notes = LakeNotes(tmp_path)
    notes.claim("parquet")
    assert notes.log("ab12") is None
    notes.write(NOTE)
    known = notes.log("ab12")
    assert known == NOTE
    assert known.held == Position(1, 10)
    notes.finish(NOTE)
    assert notes.logs()["ab12"].held == Position(2, 25)


def test_a_damaged_note_is_one_clear_line(tmp_path: Path) -> None:
    notes = LakeNotes(tmp_path)
    notes.claim("parquet")
    (tmp_path / "_brokerweave" / "logs" / "ab12.json").write_text('{"log_id": "ab')
    with pytest.raises(BrokerweaveError, match=r"ab12.json is damaged"):
        notes.logs()


def test_only_one_pipeline_writes_a_lake(tmp_path: Path) -> None:
    refused = pytest.raises(LakeInUse, match="in use by another")
    with LakeNotes(tmp_path).writing(), refused, LakeNotes(tmp_path).writing():
        pass
    with LakeNotes(tmp_path).writing():
        pass


def test_an_abandoned_node_is_counted_and_can_be_taken_back(tmp_path: Path) -> None:
    notes = LakeNotes(tmp_path)
    gone = Abandoned("a", "ab12", 1.5, Position(1, 10), 7)
    notes.abandon(gone)
    assert notes.abandoned() == {"a": gone}
    notes.take_back("a")
    assert notes.abandoned() == {}
    with pytest.raises(ConfigError, match="was not abandoned"):
        notes.take_back("a")


def test_a_backfill_is_remembered_once(tmp_path: Path) -> None:
    notes = LakeNotes(tmp_path)
    notes.claim("parquet")
    for _ in range(2):
        notes.add_backfill("ab12", START, Position(1, 5))
    assert notes.backfilled() == {"ab12": [(START, Position(1, 5))]}


def test_a_checkpoint_refuses_what_it_was_not_made_with(tmp_path: Path) -> None:
    notes = CheckpointNotes(tmp_path / "check")
    made = {"lake": "one", "format": "parquet", "topics": ["a/#"]}
    notes.check("bronze", made)
    notes.check("bronze", made)
    with pytest.raises(ConfigError, match=r"'topics' of bronze was \[\"a/#\"\] .* and is \[\] now"):
        notes.check("bronze", {**made, "topics": []})
    with pytest.raises(ConfigError, match="belongs to another lake"):
        notes.check("bronze", {**made, "lake": "two"})
    notes.check("bronze", {**made, "topics": []}, accept=True)
    notes.check("bronze", {**made, "topics": []})

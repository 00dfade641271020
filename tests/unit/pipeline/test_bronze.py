"""When a node's stream may start: what checkpoint and lake say about each other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from brokerweave.edgelog.layout import START, Position
from brokerweave.errors import BrokerweaveError
from brokerweave.flight.client import LogState
from brokerweave.pipeline.jobs import checkpoints
from brokerweave.pipeline.jobs.bronze import lost_checkpoint, refusal, source_options
from brokerweave.pipeline.lake.notes import LogNote
from brokerweave.pipeline.settings import load

STATE = LogState("ab12", "a", Position(1, 1), Position(1, 100), 0)


def checkpoint(folder: Path, batches: int, query: str = "12345678-9abc") -> Path:
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": query}))
    for number in range(batches):
        lines = ["v1", "{}", json.dumps({"ab12": [1, 10 * (number + 1)]})]
        (folder / "offsets" / str(number)).write_text("\n".join(lines))
        (folder / "offsets" / f".{number}.crc").write_text("x")
    return folder


def note(batch_id: int, query: str = "bronze-a-12345678") -> LogNote:
    up_to = Position(1, 10 * (batch_id + 1))
    return LogNote("ab12", "a", query, batch_id, Position(1, 10 * batch_id), up_to, True)


def test_a_new_lake_and_a_new_checkpoint_agree(tmp_path: Path) -> None:
    assert lost_checkpoint(STATE, tmp_path / "none", None, START) is None


@pytest.mark.parametrize("batch_id", [0, 1, 2])
def test_a_checkpoint_that_brought_the_lakes_rows_goes_on(tmp_path: Path, batch_id: int) -> None:
    assert lost_checkpoint(STATE, checkpoint(tmp_path / "c", 3), note(batch_id), START) is None


def test_a_lost_checkpoint_is_refused_with_how_to_go_on(tmp_path: Path) -> None:
    lost = lost_checkpoint(STATE, tmp_path / "none", note(2), START)
    assert lost is not None
    line = refusal(STATE, lost)
    assert "up to 1:30" in line
    assert "--resume-from-lake" in line
    assert "\n" not in line


def test_a_batch_that_was_not_finished_is_not_counted_as_held(tmp_path: Path) -> None:
    lost = lost_checkpoint(STATE, tmp_path / "none", replace(note(2), whole=False), START)
    assert lost is not None
    assert lost.resume == Position(1, 20)


def test_another_checkpoint_is_refused(tmp_path: Path) -> None:
    other = checkpoint(tmp_path / "c", 5, "ffffffff-0")
    lost = lost_checkpoint(STATE, other, note(2), START)
    assert lost is not None
    assert "not the checkpoint that brought them" in lost.why


def test_a_checkpoint_from_an_old_copy_is_refused(tmp_path: Path) -> None:
    lost = lost_checkpoint(STATE, checkpoint(tmp_path / "c", 2), note(2), START)
    assert lost is not None
    assert "older than the lake" in lost.why


def test_a_new_stream_does_not_bring_again_what_a_backfill_brought(tmp_path: Path) -> None:
    lost = lost_checkpoint(STATE, tmp_path / "none", None, Position(1, 50))
    assert lost is not None
    assert lost.resume == Position(1, 50)
    assert lost_checkpoint(STATE, checkpoint(tmp_path / "c", 1), None, Position(1, 50)) is None


def test_a_batchs_end_is_read_from_the_checkpoint(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "c", 3)
    assert checkpoints.last_batch(folder) == 2
    assert checkpoints.planned(folder, 1)["ab12"].position == Position(1, 20)
    assert checkpoints.query_name("bronze", "a", folder) == "bronze-a-12345678"
    (folder / "offsets" / "1").write_text("v1\n{}\n")
    with pytest.raises(BrokerweaveError, match="restore the checkpoint"):
        checkpoints.planned(folder, 1)


def test_a_checkpoint_is_moved_aside_not_removed(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "c", 3)
    aside = checkpoints.set_aside(folder)
    assert aside is not None
    assert not folder.exists()
    assert checkpoints.last_batch(aside) == 2
    assert checkpoints.set_aside(folder) is None


def test_what_the_file_says_reaches_sparks_source() -> None:
    flags = {"nodes": "h:1", "to": "lake", "local": "never", "skip_lost": True, "topics": ["a/#"]}
    told = source_options(load(None, flags), "grpc://h:1")
    assert told == {
        "nodes": "grpc://h:1",
        "nodeTimeout": "10.0",
        "local": "never",
        "onTrimmed": "skip",
        "topics": '["a/#"]',
    }

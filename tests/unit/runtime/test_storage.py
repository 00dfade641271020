from __future__ import annotations

from pathlib import Path

import pytest

from brokerweave.errors import ConfigError
from brokerweave.links.journal import StorageError
from brokerweave.runtime.storage import Storage


def opened(folder: Path) -> Storage:
    return Storage(folder, pytest.fail)


def test_a_folder_belongs_to_one_node_at_a_time(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    with pytest.raises(ConfigError, match="in use"):
        opened(tmp_path)
    storage.close()
    opened(tmp_path).close()


def test_the_state_is_what_was_saved_last(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    assert storage.load_state() == {}
    storage.save_state({"a": 1})
    storage.save_state({"a": 2}, sync=False)
    assert storage.load_state() == {"a": 2}
    storage.close()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"epoch": "x"}'])
def test_a_damaged_state_is_kept_aside_and_said(tmp_path: Path, content: bytes) -> None:
    said: list[str] = []
    storage = Storage(tmp_path, said.append)
    (tmp_path / "state.json").write_bytes(content)
    assert storage.load_state() == {}
    assert "state.damaged" in said[0]
    assert (tmp_path / "state.damaged").read_bytes() == content
    storage.close()


def test_a_journal_is_opened_once_and_deleted_with_its_folder(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    journal = storage.journal("lanes/b/0")
    assert journal is not None
    assert storage.journal("lanes/b/0") is journal
    journal.append(1, b"owed")
    storage.note("lanes/b/0/taken")
    storage.delete("lanes/b")
    assert not (tmp_path / "lanes/b").exists()
    again = storage.journal("lanes/b/0")
    assert again is not None
    assert again.records == 0
    storage.close()


def test_what_a_journal_lost_to_a_torn_write_is_said(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    journal = storage.journal("j")
    assert journal is not None
    journal.append(1, b"torn")
    storage.close()
    (segment,) = (tmp_path / "j").glob("*.log")
    segment.write_bytes(segment.read_bytes()[:-1])
    said: list[str] = []
    storage = Storage(tmp_path, said.append)
    assert storage.journal("j") is not None
    assert "torn" in said[0]
    storage.close()


def test_a_state_that_cannot_be_saved_is_a_storage_error(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    (tmp_path / "state.new").mkdir()
    with pytest.raises(StorageError, match="could not be saved"):
        storage.save_state({})
    storage.close()


def test_without_a_folder_there_is_a_temporary_one_and_a_warning() -> None:
    said: list[str] = []
    storage = Storage(None, said.append)
    folder = storage.folder
    assert folder.exists()
    assert "no data_dir" in said[0]
    storage.close()
    assert not folder.exists()

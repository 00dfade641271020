from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from brokerweave.links.progress import HandshakeMark, Step
from brokerweave.runtime.progress import FileProgress


def opened(path: Path) -> FileProgress:
    return FileProgress(path, pytest.fail)


def test_marks_are_found_again_after_a_flush_and_not_before(tmp_path: Path) -> None:
    progress = opened(tmp_path / "p")
    progress.put(1, 100, 0, Step.SENT)
    progress.put(65535, 101, 3, Step.RECEIVED, 2)
    progress.flush()
    progress.put(2, 102, 0, Step.SENT)
    assert opened(tmp_path / "p").marks() == [
        HandshakeMark(1, 100, 0, Step.SENT),
        HandshakeMark(65535, 101, 3, Step.RECEIVED, 2),
    ]
    progress.put(1, 100, 0, Step.FREE)
    progress.flush()
    assert [mark.packet_id for mark in opened(tmp_path / "p").marks()] == [2, 65535]


def test_the_session_is_known_once_it_stands(tmp_path: Path) -> None:
    progress = opened(tmp_path / "p")
    assert not progress.session
    progress.session_established()
    again = opened(tmp_path / "p")
    assert again.session
    assert again.marks() == []


def test_neighbouring_identifiers_are_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = opened(tmp_path / "p")
    writes = []
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: writes.append((at, len(data))))
    for packet_id in (7, 5, 6, 20):
        progress.put(packet_id, 1, packet_id, Step.SENT)
    progress.flush()
    progress.flush()
    assert writes == [(5 * 16, 48), (20 * 16, 16)]


def test_a_disk_that_fails_is_said_once_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    progress = FileProgress(tmp_path / "p", said.append)

    def full(fd: int, data: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    for packet_id in (1, 2):
        progress.put(packet_id, 1, 0, Step.SENT)
        progress.flush()
    assert progress.failures == 2
    assert len(said) == 1
    monkeypatch.undo()
    progress.put(3, 1, 0, Step.SENT)
    progress.flush()
    assert [mark.packet_id for mark in opened(tmp_path / "p").marks()] == [3]

"""A node's tape: what happens when the disk has no room for a log at all, and then has."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from brokerweave.config import EdgeLogSection
from brokerweave.edgelog import folder
from brokerweave.errors import BrokerweaveError, ConfigError
from brokerweave.runtime.recording import Recording
from tests.unit.edgelog.logs import frames, payloads


class Host:
    """Timers run when the test says so."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.timers: list[Callable[[], None]] = []
        self.time = time.time()

    def now(self) -> float:
        return self.time

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        self.timers.append(callback)
        return asyncio.get_running_loop().call_later(1e6, callback)

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def fire(self) -> None:
        timers, self.timers = self.timers, []
        for timer in timers:
            timer()


SETTINGS = EdgeLogSection(fsync="never", min_free=0)


async def test_a_full_disk_at_the_start_lets_the_node_relay_and_the_log_open_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host()

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(folder, "write_identity", full)
        recorder = Recording(host, SETTINGS, tmp_path, "a")
        recorder.record("c", 4, 1, frames(b"missed"), ())
        recorder.write()
        host.fire()
        assert recorder.status()["recording"] is False
        assert "No space left" in recorder.status()["reason"]
        assert len(host.warnings) == 1
    host.fire()
    recorder.record("c", 4, 1, frames(b"kept"), ())
    host.fire()
    assert payloads(tmp_path) == [b"kept"]
    assert recorder.counters()["edge_log_unrecorded"] == 1
    await recorder.stop()


async def test_a_folder_that_cannot_be_used_is_a_mistake_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="cannot be used"):
        Recording(Host(), SETTINGS, tmp_path / "file" / "log", "a")


async def test_a_block_is_written_in_time_and_synced_in_a_thread(tmp_path: Path) -> None:
    host = Host()
    recorder = Recording(host, EdgeLogSection(min_free=0), tmp_path, "a")
    recorder.record("c", 4, 1, frames(b"x"), ())
    host.fire()  # the block
    assert payloads(tmp_path) == []
    host.fire()  # the fsync
    assert recorder._syncing is not None
    await asyncio.wait([recorder._syncing])
    assert payloads(tmp_path) == [b"x"]
    await recorder.stop()


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), BrokerweaveError("damaged")])
async def test_any_error_after_the_start_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    host = Host()
    errors: list[Exception] = [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), error]
    write = folder.write_identity

    def failing(path: Path, identity: folder.LogIdentity) -> None:
        if errors:
            raise errors.pop(0)
        write(path, identity)

    monkeypatch.setattr(folder, "write_identity", failing)
    recorder = Recording(host, SETTINGS, tmp_path, "a")
    host.fire()
    assert recorder.status()["recording"] is False
    host.fire()
    assert recorder.status()["recording"] is True
    assert len(host.warnings) == 1
    await recorder.stop()


async def test_too_few_descriptors_at_the_start_are_no_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*arguments: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(folder, "write_identity", none_left)
        host = Host()
        recorder = Recording(host, SETTINGS, tmp_path, "a")
    host.fire()
    assert recorder.status()["recording"] is True
    await recorder.stop()


async def test_no_descriptor_for_an_fsync_is_said_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host()
    recorder = Recording(host, EdgeLogSection(min_free=0), tmp_path, "a")
    recorder.record("c", 4, 1, frames(b"x"), ())
    recorder.write()

    def none_left(file: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(os, "dup", none_left)
        for _ in range(3):
            host.fire()
    assert len(host.warnings) == 1
    host.fire()
    assert recorder._syncing is not None
    await asyncio.wait([recorder._syncing])
    assert payloads(tmp_path) == [b"x"]
    await recorder.stop()


async def test_a_clock_that_is_set_forward_takes_no_rows(tmp_path: Path) -> None:
    host = Host()
    recorder = Recording(host, SETTINGS, tmp_path, "a")
    recorder.record("c", 4, 1, frames(b"before"), ())
    recorder.write()
    set_clock(host, recorder, 30 * 86_400.0)
    host.fire()
    assert payloads(tmp_path) == [b"before"]
    await recorder.stop()


async def test_a_clock_that_is_set_back_does_not_keep_recording_from_going_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host()
    recorder = Recording(host, SETTINGS, tmp_path, "a")

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(folder.LogFiles, "write", full)
        recorder.record("c", 4, 1, frames(b"missed"), ())
        recorder.write()
    set_clock(host, recorder, -86_400.0)
    host.time += 2.0
    recorder.record("c", 4, 1, frames(b"kept"), ())
    recorder.write()
    assert payloads(tmp_path) == [b"kept"]
    await recorder.stop()


def set_clock(host: Host, recorder: Recording, step: float) -> None:
    host.time += step
    recorder.clock_set(step)

"""The recorder of a running node: the edge log's writer with timers, a clock, and a thread for fsync.

Owns when blocks close, when the disk is synced and the log trimmed. Invariants: the event loop never waits
for an fsync, but with `fsync = "always"`; one fsync at a time; nothing that the disk does stops relaying.
Must not know: which topics are tapped, what a row is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from brokerweave.config import EdgeLogSection
from brokerweave.edgelog.folder import Sync
from brokerweave.edgelog.layout import Position
from brokerweave.edgelog.writer import LogWriter, Policy, WriterCounts
from brokerweave.errors import BrokerweaveError, ConfigError, Unavailable
from brokerweave.runtime.admin import Command

BLOCK_SECONDS = 0.02
"""A block is written after this time at the latest, so a reader sees a row soon."""
MAINTENANCE_SECONDS = 1.0


class RecordingHost(Protocol):
    def now(self) -> float: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.Handle: ...

    def warn(self, message: str) -> None: ...


class Recording:
    """Implements `node.taps.TapRecorder`."""

    def __init__(self, host: RecordingHost, settings: EdgeLogSection, folder: Path, node_id: str) -> None:
        """Raises `BrokerweaveError` if the log cannot be used; a disk that is full is tried again later."""
        self._host = host
        self._folder = folder
        self._policy = Policy(settings.fsync, settings.max_bytes, settings.max_age, settings.min_free)
        self._node_id = node_id
        self._writer: LogWriter | None = None
        self._reason = ""
        self._missed = 0
        self._interval = settings.fsync_interval
        self._closing_block = False
        self._cannot_sync = False
        self._timers: dict[str, asyncio.Handle] = {}
        self._syncing: asyncio.Future[OSError | None] | None = None
        self._maintain()
        if settings.fsync == "interval":
            self._sync_later()

    # Tape

    def record(self, client: str, version: int, count: int, blob: bytes, resent: Sequence[int]) -> None:
        if self._writer is None:
            self._missed += count
            return
        self._writer.append(self._time(), client.encode(), version, count, blob, resent)
        if not self._closing_block:
            self._closing_block = True
            self._timers["block"] = self._host.call_later(BLOCK_SECONDS, self._close_block)

    def write(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    # Now and then

    def _close_block(self) -> None:
        self._closing_block = False
        self.write()

    def _open(self) -> None:
        try:
            self._writer = LogWriter(self._folder, self._node_id, self._policy, self._host.warn)
        except BrokerweaveError as error:
            if not self._reason and not isinstance(error, Unavailable):
                raise  # at the start it is the operator's to mend
            if not self._reason:
                self._host.warn(f"edge log: nothing is recorded: {error}; relaying goes on")
            self._reason = str(error)

    def _maintain(self) -> None:
        writer = self._writer
        if writer is None:
            self._open()
        self._timers["maintenance"] = self._host.call_later(MAINTENANCE_SECONDS, self._maintain)
        if writer is not None:
            writer.maintain(self._time())

    def _sync_later(self) -> None:
        self._timers["sync"] = self._host.call_later(self._interval, self._sync)

    def _sync(self) -> None:
        writer, sync = self._writer, None
        try:
            sync = writer.begin_sync() if writer is not None else None
            self._cannot_sync = False
        except OSError as error:  # no descriptor is left
            if not self._cannot_sync:
                self._host.warn(f"edge log: cannot sync: {error.strerror}; it is tried again")
            self._cannot_sync = True
        if writer is None or sync is None:
            self._sync_later()
            return
        self._syncing = asyncio.get_running_loop().run_in_executor(None, sync.run)
        self._syncing.add_done_callback(lambda done: self._synced(writer, sync, done))

    def _synced(self, writer: LogWriter, sync: Sync, done: asyncio.Future[OSError | None]) -> None:
        self._syncing = None
        self._sync_later()
        writer.synced(sync, done.result(), self._time())

    def clock_set(self, step: float) -> None:
        """The host's time of day was set by so many seconds."""
        if self._writer is not None:
            self._writer.clock_set(int(step * 1e6))

    async def stop(self) -> None:
        """Write and sync what is left, and let the log go."""
        if self._syncing is not None:
            await asyncio.wait([self._syncing])
        for timer in self._timers.values():
            timer.cancel()
        if self._writer is not None:
            self._writer.close()

    def _time(self) -> int:
        return int(self._host.now() * 1e6)

    # For the admin socket

    def status(self) -> dict[str, Any]:
        if self._writer is None:
            return {"path": str(self._folder), "recording": False, "reason": self._reason}
        return self._writer.status()

    def counters(self) -> dict[str, int]:
        counts = self._writer.counts if self._writer is not None else WriterCounts()
        return {
            "edge_log_recorded": counts.recorded,
            "edge_log_unrecorded": counts.unrecorded + self._missed,
            "edge_log_trimmed": counts.trimmed,
            "edge_log_trimmed_unread": counts.trimmed_unread,
            "edge_log_sync_failures": counts.sync_failures,
        }

    def commands(self) -> dict[str, Command]:
        return {"trim_log": self._trim}

    def _trim(self, request: dict[str, object]) -> object:
        try:
            before = Position.parse(str(request.get("before")))
        except ValueError as error:
            raise ConfigError(str(error)) from error
        if self._writer is None:
            raise Unavailable(self._reason)
        return {"trimmed": self._writer.trim_before(before)}

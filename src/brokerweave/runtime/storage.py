"""The node's folder: the write-ahead log, the state it continues, journals and notes of lanes and injectors.

Owns `data_dir` and who may use it: one node at a time, by a lock that dies with the process. Invariants: a
disk that fails degrades a lane to memory, loudly, and never stops relaying; a damaged state file is moved
aside, not silently replaced. Must not know: what the state means.

    data_dir/lock  state.json  write-ahead log/{*.log, trimmed}  held/{*.log, trimmed}
             lanes/NEIGHBOUR/INDEX/{*.log, trimmed, taken}  injectors/LANE/{*.log, trimmed, progress}
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from brokerweave.errors import ConfigError
from brokerweave.links.journal import StorageError
from brokerweave.runtime.journal import FileJournal, Note, write_atomically
from brokerweave.runtime.progress import FileProgress


class Storage:
    def __init__(self, data_dir: Path | None, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self.temporary = data_dir is None
        self.failures = 0
        """Notes that the disk did not take."""
        try:
            if data_dir is None:
                data_dir = Path(tempfile.mkdtemp(prefix="brokerweave-"))
                warn(f"no data_dir: pending messages are kept in {data_dir} and are lost when this node ends")
            data_dir.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(f"data_dir {data_dir} is in use by another node; give each its own") from error
        except OSError as error:
            raise ConfigError(f"data_dir {data_dir} cannot be used: {error.strerror}") from error
        self.folder = data_dir
        self._journals: dict[str, FileJournal] = {}
        self._notes: dict[str, Note] = {}
        self._progresses: list[FileProgress] = []

    def journal(self, name: str) -> FileJournal | None:
        """The journal at this path below the folder; None, with a warning, if the disk fails."""
        if name in self._journals:
            return self._journals[name]
        try:
            journal = FileJournal(self.folder / name)
        except (StorageError, ValueError) as error:
            self._warn(f"journal {name} cannot be used, pending messages stay in memory only: {error}")
            return None
        if journal.damaged:
            self._warn(f"journal {name}: {journal.damaged} torn or damaged records were cut off")
        self._journals[name] = journal
        return journal

    def note(self, name: str) -> Note | None:
        try:
            note = self._notes[name] = Note(self.folder / name)
        except OSError as error:
            self._warn(f"note {name} cannot be used: {error.strerror}")
            return None
        return note

    def write_note(self, note: Note, data: bytes) -> None:
        """One that the disk does not take costs a repetition after a crash, no more."""
        try:
            note.write(data)
        except OSError as error:
            if not self.failures:
                self._warn(f"a note could not be written: {error.strerror}")
            self.failures += 1

    def progress(self, name: str) -> FileProgress | None:
        try:
            progress = FileProgress(self.folder / name, self._warn)
        except OSError as error:
            self._warn(f"{name} cannot be used, a crash may double what is in flight: {error.strerror}")
            return None
        self._progresses.append(progress)
        return progress

    def delete(self, name: str) -> None:
        """Forget a folder of journals and notes."""
        for path in [p for p in self._journals if p.startswith(f"{name}/")]:
            self._journals.pop(path).close()
        for path in [p for p in self._notes if p.startswith(f"{name}/")]:
            self._notes.pop(path).close()
        shutil.rmtree(self.folder / name, ignore_errors=True)

    def load_state(self) -> dict[str, Any]:
        """The state saved last; empty at a first start, or if it is damaged."""
        path = self.folder / "state.json"
        try:
            state = json.loads(path.read_bytes())
            if not isinstance(state, dict) or not isinstance(state.get("epoch", 0), int):
                raise ValueError("not a node's state")
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            self.reject_state(error)
            return {}
        return state

    def reject_state(self, error: Exception) -> None:
        path = self.folder / "state.json"
        self._warn(f"{path} cannot be read ({error}); it is kept as state.damaged, and the state is empty")
        path.replace(path.with_suffix(".damaged"))

    def save_state(self, state: dict[str, Any], sync: bool = True) -> int:
        """Replace the stored state; its size in bytes."""
        data = json.dumps(state).encode()
        try:
            write_atomically(self.folder / "state.json", data, sync)
        except OSError as error:
            raise StorageError(f"the state could not be saved: {error.strerror}") from error
        return len(data)

    def close(self) -> None:
        for journal in self._journals.values():
            journal.close()
        for note in self._notes.values():
            note.close()
        for progress in self._progresses:
            progress.close()
        os.close(self._lock)
        if self.temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

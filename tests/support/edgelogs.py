"""A log with its Flight service, and no node: what the pipeline reads, made quickly."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from brokerweave.edgelog.layout import Position
from brokerweave.edgelog.reader import LogReader
from brokerweave.edgelog.readers import Readers
from brokerweave.edgelog.writer import LogWriter, Policy
from brokerweave.lab.broker import HOST, free_port
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish

SECOND = 1_000_000
POLICY = Policy(fsync="never", max_bytes=1 << 30, min_free=0)


class Site:
    """Use as a context; `stop` and `start` its service in between as you like. It keeps its address."""

    def __init__(self, folder: Path, name: str = "site", token: str | None = None, port: int = 0) -> None:
        self.folder = folder
        self.name = name
        self.address = f"{HOST}:{port or free_port()}"
        self._token = token
        self._service: subprocess.Popen[str] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.writer = LogWriter(folder, name, POLICY)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.writer.close()

    @property
    def log_id(self) -> str:
        return self.writer.identity.log_id

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def start(self) -> None:
        """Returns when the service answers."""
        command = [sys.executable, "-m", "brokerweave.flight", "--log", str(self.folder)]
        command += ["--listen", self.address]
        if self._token is not None:
            file = self.folder.with_suffix(".token")
            file.write_text(self._token)
            command += ["--token-file", str(file)]
        self._service = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._service.stdout is not None
        assert self._service.stdout.readline().startswith("ready"), "the service did not start"

    def stop(self) -> None:
        if self._service is not None:
            with self._service:  # closes its stdin, which ends it
                pass
            self._service = None

    def write(self, payloads: Sequence[bytes], topic: str = "s/t", time: int = SECOND) -> Position:
        """One run, served at once; the position of its last row."""
        blob = b"".join(codec.encode(Publish(topic, each), 4) for each in payloads)
        self.writer.append(time, b"client", 4, len(payloads), blob)
        self.writer.flush()
        return self.end()

    def restart_epoch(self) -> None:
        """What a start of the node does."""
        self.writer.close()
        self.writer = LogWriter(self.folder, self.name, POLICY)

    def trim_oldest(self) -> None:
        """As age or size would."""
        segments = sorted(self.folder.glob("*.seg"))
        assert len(segments) > 1, "the newest segment is never trimmed"
        segments[0].unlink()

    def end(self) -> Position:
        return LogReader(self.folder).end()

    def readers(self) -> dict[str, Position]:
        return Readers(self.folder).all()


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]

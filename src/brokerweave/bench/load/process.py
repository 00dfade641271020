"""One process of the load tool, as whoever started it sees it.

Owns the process and the lines that it prints; `end` ends it, whatever it does. Must not know: what its plan
is.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from brokerweave.errors import Unavailable


class LoadProcess:
    """A worker process and the lines that it prints."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process = subprocess.Popen(
            [sys.executable, "-m", "brokerweave.bench.load.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for us; we end it
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `expect` says how it ended
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()

    def expect(self, key: str, limit: float, other: Callable[[dict[str, Any]], None] | None = None) -> Any:
        """The value of the next line with this key; other lines go to `other`."""
        end = time.monotonic() + limit
        while (left := end - time.monotonic()) > 0:
            try:
                text = self._lines.get(timeout=left)
            except queue.Empty:
                break
            if not text:
                raise Unavailable(f"load process {self.number} ended with {self.process.wait(10)}")
            line = json.loads(text)
            if "error" in line:
                raise Unavailable(line["error"])
            if key in line:
                return line[key]
            if other is not None:
                other(line)
        raise Unavailable(f"load process {self.number} was not {key} in {limit:g} s")

    def end(self) -> None:
        self.process.kill()
        self.process.wait(10)
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

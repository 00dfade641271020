"""A process that a node starts for what must not take the relay's interpreter lock: watched, started again.

Owns the process. Invariants: there is one at a time; what it prints on stderr goes to the node's log, and
each line on stdout to whoever asked; it ends with the node, however that ended, since its stdin does; its
failures stop nothing else. Must not know: what the child does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from brokerweave.runtime.tasks import CALM, PAUSE_MAX, PAUSE_MIN

STOP_SECONDS = 2.0
LONGEST_LINE = 1 << 16


class Child:
    """`python -m MODULE ARGUMENTS`. It is running from its first line on stdout on."""

    def __init__(
        self,
        name: str,
        module: str,
        arguments: Sequence[str],
        heard: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        self._name, self._heard, self._warn = name, heard, warn
        self._log = logging.getLogger(module)
        self._command = [sys.executable, "-m", module, *arguments]
        self._task: asyncio.Task[None] | None = None
        self._process: Process | None = None
        self._state = "starting"
        self._reason = ""
        self._restarts = 0

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def status(self) -> dict[str, Any]:
        return {
            "state": self._state,
            "reason": self._reason,
            "pid": self._process.pid if self._process is not None else None,
            "restarts": self._restarts,
        }

    async def _watch(self) -> None:
        """Keep a child running, with a pause that grows while it does not last."""
        clock = asyncio.get_running_loop().time
        pause = PAUSE_MIN
        while True:
            began = clock()
            try:
                await self._run()
            except OSError as error:
                self._reason = f"it cannot be started: {error.strerror}"
            self._state = "waiting"
            self._warn(f"{self._name} ended: {self._reason}; it is started again")
            if clock() - began > CALM:
                pause = PAUSE_MIN
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX)
            self._restarts += 1

    async def _run(self) -> None:
        """One child's life. When cancelled, ends it."""
        self._state, said = "starting", ""
        self._process = child = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=LONGEST_LINE
        )
        assert child.stdout is not None
        assert child.stderr is not None
        hearing = asyncio.ensure_future(self._hear(child.stdout))
        try:
            async for line in _lines(child.stderr):
                said = line
                self._log.warning("%s: %s", self._name, said)
            code = await child.wait()
            self._reason = said if code > 0 and said else f"exit code {code}"
        finally:
            hearing.cancel()
            self._process = None
            await asyncio.shield(_end(child))

    async def _hear(self, stdout: asyncio.StreamReader) -> None:
        async for line in _lines(stdout):
            self._state, self._reason = "running", ""
            self._heard(line)


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """What a child says, line by line; a line that is too long is left out."""
    while True:
        try:
            line = await stream.readline()
        except ValueError:
            continue
        if not line:
            return
        yield line.decode(errors="replace").strip()


async def _end(child: Process) -> None:
    """It ends when its stdin does; else it is killed."""
    assert child.stdin is not None
    child.stdin.close()
    try:
        await asyncio.wait_for(child.wait(), STOP_SECONDS)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()

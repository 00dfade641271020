"""The Flight service as a child of the node: started, watched, started again.

Owns the child process. Invariants: there is one at a time; what it prints goes to the node's log; it ends
with the node (its stdin does); its failures stop nothing else. Must not know: Arrow, what readers ask for.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path
from typing import Any

from brokerweave.config import FlightSection
from brokerweave.errors import ConfigError
from brokerweave.runtime.tasks import CALM, PAUSE_MAX, PAUSE_MIN

log = logging.getLogger("brokerweave.flight")

STOP_SECONDS = 2.0
LONGEST_LINE = 1 << 16


class FlightChild:
    def __init__(self, settings: FlightSection, folder: Path, warn: Callable[[str], None]) -> None:
        """Raises `ConfigError` if it cannot run here."""
        if importlib.util.find_spec("pyarrow") is None:
            raise ConfigError("[flight] needs pyarrow: pip install 'brokerweave[arrow]', or remove [flight]")
        self._listen = str(settings.listen)
        self._warn = warn
        self._command = [sys.executable, "-m", "brokerweave.flight"]
        self._command += ["--log", str(folder), "--listen", self._listen]
        if settings.token_file is not None:
            self._command += ["--token-file", str(settings.token_file)]
        else:
            warn("no token_file in [flight]: anyone who reaches its listen may read the edge log")
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
            "listen": self._listen,
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
            except (OSError, ValueError) as error:  # ValueError: a line that never ends
                self._reason = f"it cannot be started or heard: {error}"
            self._state = "waiting"
            self._warn(f"the flight service ended: {self._reason}; it is started again")
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
        ready = asyncio.ensure_future(self._wait_until_ready(child.stdout))
        try:
            async for line in child.stderr:
                said = line.decode(errors="replace").strip()
                log.warning("flight: %s", said)
            code = await child.wait()
            self._reason = said if code > 0 and said else f"exit code {code}"
        finally:
            ready.cancel()
            self._process = None
            await asyncio.shield(_end(child))

    async def _wait_until_ready(self, stdout: asyncio.StreamReader) -> None:
        word, _, address = (await stdout.readline()).decode().strip().partition(" ")
        if word == "ready":
            self._listen, self._state, self._reason = address, "running", ""
            log.info("the edge log is served at grpc://%s", address)


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

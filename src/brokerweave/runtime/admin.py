"""The node's local admin socket: one JSON line in, one JSON line out.

Owns the socket file (mode 0600, in a folder of the user's own). Invariants: a request that fails is
answered with one clear line and closes nothing but itself; a socket file left by a dead node is replaced,
one of a living node is not. Must not know: what the commands do.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Callable
from pathlib import Path

from brokerweave.errors import BrokerweaveError, ConfigError

log = logging.getLogger("brokerweave.admin")

MAX_REQUEST = 64 * 1024
IDLE_SECONDS = 30.0

Command = Callable[[dict[str, object]], object]


class AdminServer:
    def __init__(self, path: Path, commands: dict[str, Command]) -> None:
        self._path = path
        self._commands = commands
        self._server: asyncio.Server | None = None

    def add(self, commands: dict[str, Command]) -> None:
        self._commands.update(commands)

    async def start(self) -> None:
        """Raises `ConfigError` if the path cannot be used."""
        try:
            self._take_path()
            self._server = await asyncio.start_unix_server(self._serve, str(self._path), limit=MAX_REQUEST)
            self._path.chmod(0o600)
        except OSError as error:
            why = error.strerror or error
            raise ConfigError(f"admin_socket {self._path} cannot be made: {why}") from error

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)

    def _take_path(self) -> None:
        if not self._path.exists():
            return
        probe = socket.socket(socket.AF_UNIX)
        try:
            probe.connect(str(self._path))
        except OSError:
            self._path.unlink(missing_ok=True)
        else:
            raise ConfigError(f"somebody answers on {self._path} already; stop it, or take another id")
        finally:
            probe.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await asyncio.wait_for(reader.readline(), IDLE_SECONDS):
                writer.write(json.dumps(self._answer(line)).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError, TimeoutError):
            pass  # too long a line, or gone: this connection ends, nothing else
        finally:
            writer.close()

    def _answer(self, line: bytes) -> dict[str, object]:
        try:
            request = json.loads(line)
            if not isinstance(request, dict) or not isinstance(request.get("do"), str):
                return {"ok": False, "error": 'a request is {"do": COMMAND, ...}'}
            command = self._commands.get(request["do"])
            if command is None:
                known = ", ".join(sorted(self._commands))
                return {"ok": False, "error": f"unknown command {request['do']!r}; known are {known}"}
            return {"ok": True, "result": command(request)}
        except BrokerweaveError as error:
            return {"ok": False, "error": str(error)}
        except (ValueError, RecursionError) as error:  # JSON may be nested too deeply
            return {"ok": False, "error": f"not a request: {error}"}

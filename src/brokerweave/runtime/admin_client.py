"""Asks a running node through its admin socket: one JSON line there, one JSON line back.

Owns how a running node is found and how its answer is understood. Invariants: every wait and every answer is
bounded; a node that is not there is `Unavailable`, one that says no is a `BrokerweaveError` in its own words.
Must not know: what the answers mean.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from brokerweave.config import default_admin_socket, load
from brokerweave.config.socket import running_sockets
from brokerweave.errors import BrokerweaveError, ConfigError, Unavailable

_TIMEOUT = 10.0
_LARGEST_ANSWER = 64 * 1024**2


def ask(path: Path, request: Mapping[str, object], timeout: float = _TIMEOUT) -> dict[str, Any]:
    """The node's answer to `request`. Raises `Unavailable`, or `BrokerweaveError` if the node refuses."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout)
            connection.connect(str(path))
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer = _read_line(connection)
    except TimeoutError as error:
        raise Unavailable(f"what runs at {path} did not answer within {timeout:g} seconds") from error
    except OSError as error:
        raise Unavailable(f"nobody answers at {path} ({error.strerror or error}): does it run?") from error
    return understand(answer, path)


def _read_line(connection: socket.socket) -> bytes:
    answer = bytearray()
    while not answer.endswith(b"\n") and len(answer) < _LARGEST_ANSWER:
        piece = connection.recv(65536)
        if not piece:
            break
        answer += piece
    return bytes(answer)


def understand(answer: bytes, path: Path) -> dict[str, Any]:
    """The result within one line of answer. Raises as `ask` does."""
    try:
        reply = json.loads(answer)
        if reply["ok"] is True:
            result = reply["result"]
            return result if isinstance(result, dict) else {"result": result}
        refusal = str(reply["error"])
    except (ValueError, TypeError, KeyError):
        raise Unavailable(f"what answers at {path} is not brokerweave, or it ended just now") from None
    raise BrokerweaveError(refusal)


def answers(path: Path) -> bool:
    """Whether somebody listens at `path`; a node that was killed leaves its socket behind."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_TIMEOUT)
            connection.connect(str(path))
    except OSError:
        return False
    return True


def find(
    at: Path | None, node_id: str | None, file: Path | None, *, alive: Callable[[Path], bool] = answers
) -> Path:
    """The socket of the node that was named, or of the only one that runs here.

    Raises `ConfigError` if it is not clear which node is meant, `Unavailable` if none runs.
    """
    if sum(each is not None for each in (at, node_id, file)) > 1:
        raise ConfigError("give only one of --socket, --id and --config")
    if at is not None:
        return at
    if file is not None:
        return load(file).admin_socket
    if node_id is not None:
        return default_admin_socket(node_id)
    running = [path for path in running_sockets() if alive(path)]
    if not running:
        raise Unavailable("no node of this user runs here; name one with --socket, --id or --config")
    if len(running) > 1:
        names = ", ".join(path.stem for path in running)
        raise ConfigError(f"{len(running)} nodes run here ({names}); name one with --id")
    return running[0]

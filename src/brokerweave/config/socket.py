"""Where a running node's admin socket is, when nobody says otherwise.

Owns the per-user folder of sockets. Invariant: a folder that another user owns or can write to is refused,
since whoever owns it could stand in for a node. Must not know: what is said over the socket.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from brokerweave.config.values import LONGEST_SOCKET_PATH
from brokerweave.errors import ConfigError


def admin_folder() -> Path:
    """The folder of this user's sockets, whether it exists or not."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK | os.X_OK):
        return Path(runtime) / "brokerweave"
    return Path(tempfile.gettempdir()) / f"brokerweave-{os.getuid()}"


def default_admin_socket(node_id: str) -> Path:
    """The socket of the node called `node_id`. Raises `ConfigError` where its path would be too long."""
    path = admin_folder() / f"{node_id}.sock"
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        raise ConfigError(f"{path} is too long for a socket; set 'admin_socket' in [node] to a shorter path")
    return path


def claim_admin_folder() -> Path:
    """Make the folder for this user alone, or check that it is so. Raises `ConfigError`."""
    folder = admin_folder()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make {folder}: {error.strerror}; set 'admin_socket' in [node]") from error
    check_admin_folder(folder)
    return folder


def check_admin_folder(folder: Path) -> None:
    """Refuse a folder in which somebody else could have put a socket. Raises `ConfigError`."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{folder} is not a folder; remove it, or set 'admin_socket' in [node]")
    if found.st_uid != os.getuid():
        raise ConfigError(f"{folder} belongs to another user; set 'admin_socket' in [node]")
    if found.st_mode & 0o022:
        raise ConfigError(f"{folder} can be written to by other users; run: chmod 700 {folder}")


def running_sockets() -> tuple[Path, ...]:
    """The sockets in this user's folder, sorted. A node that died may have left one behind."""
    folder = admin_folder()
    if not folder.exists():
        return ()
    check_admin_folder(folder)
    return tuple(sorted(path for path in folder.glob("*.sock") if path.is_socket()))

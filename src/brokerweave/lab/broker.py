"""One real broker as a child process on loopback.

Owns the process, its temporary directory and its port. Invariants: two brokers share nothing; the port
stays the same over a restart; a broker does not outlive the process that started it. Must not know: what
any particular broker's configuration looks like (that is `debian` and `makers`).
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Self

from brokerweave.errors import Unavailable
from brokerweave.session import proxy_header

HOST = "127.0.0.1"

# CONNECT of MQTT 3.1.1, clean session, keep-alive 10 s, client id "lab".
_CONNECT = b"\x10\x0f\x00\x04MQTT\x04\x02\x00\x0a\x00\x03lab"

PORTS = range(12_000, 32_000)
"""Below those that systems give to outgoing connections: one of these could take a port between the moment it
is found free and the moment a slow broker listens on it."""

_handed_out: set[int] = set()


def free_port() -> int:
    """A loopback port that is free now and that no process which still runs was given by this function: one
    whose broker is killed and started again finds its port free."""
    for _ in range(100):
        port = random.SystemRandom().choice(PORTS)  # no seed may make two test runs choose alike
        if port in _handed_out:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            _reserve(port)
            _handed_out.add(port)
            return port
    raise Unavailable("no free loopback port was found in 100 tries")


def _reserve(port: int) -> None:
    """Mark a port as given, by a name that the system forgets with this process. OSError: somebody has it."""
    if sys.platform == "linux":
        with socket.socket(socket.AF_UNIX) as mark:
            mark.bind(f"\0brokerweave-port-{port}")
            mark.detach()


def find_program(name: str) -> str | None:
    """The path of a program, also where an ordinary user's PATH does not look: /usr/sbin."""
    return shutil.which(name) or shutil.which(name, path="/usr/local/sbin:/usr/sbin:/sbin")


def answers_mqtt(port: int, timeout: float = 1.0, *, proxied: bool = False, host: str = HOST) -> bool:
    """Does the port answer CONNECT (after a PROXY header) with a CONNACK? A refusal is an answer too."""
    try:
        with socket.create_connection((host, port), timeout=timeout) as sock:
            header = proxy_header.encode(sock.getsockname(), sock.getpeername()) if proxied else b""
            sock.sendall(header + _CONNECT)
            answer = sock.recv(4)
            with contextlib.suppress(OSError):
                sock.sendall(b"\xe0\x00")
            return answer[:1] == b"\x20"
    except OSError:
        return False


class Broker(ABC):
    """A broker that can be started, paused, killed and started again. Also a context manager.

    Starting blocks until the broker answers CONNECT, at most `start_timeout` seconds, and raises
    `Unavailable` with the end of the broker's log otherwise. Start it from a thread that lives as long
    as the broker: on Linux a child dies with the *thread* that made it.
    """

    name: ClassVar[str]
    start_timeout: ClassVar[float] = 60.0

    def __init__(self) -> None:
        self.host = HOST
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix=f"brokerweave-{self.name}-"))
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    @abstractmethod
    def missing(cls) -> str | None:
        """Why this broker cannot be started here, in one line; None if it can."""

    @property
    @abstractmethod
    def version(self) -> str: ...

    @abstractmethod
    def command(self) -> list[str]:
        """Write the configuration into `self.directory`; return the program and its arguments."""

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def ready(self) -> bool:
        return answers_mqtt(self.port)

    @property
    def pid(self) -> int:
        if self._process is None:
            raise Unavailable(f"{self.name} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start on this broker's port; after `stop` again on the same one, with what it kept on disk."""
        if self.running:
            return
        self.directory.mkdir(exist_ok=True)
        self._process = self._spawn(self.command())
        self._wait_until_ready(self._process)

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        if die_with_parent := find_program("setpriv"):
            command = [die_with_parent, "--pdeathsig", "KILL", *command]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env=self.environment(),
                start_new_session=True,
            )

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self.start_timeout
        while time.monotonic() < deadline:
            if process.poll() is not None:
                break
            if self.ready():
                return
            time.sleep(0.02)
        ended = process.poll()
        self.stop(kill=True)
        why = f"did not answer in {self.start_timeout:g} s" if ended is None else f"ended with {ended}"
        last = " | ".join(self.log_tail(3).splitlines())
        raise Unavailable(f"{self.name} {why}; its log ends: {last}")

    def stop(self, *, kill: bool = False) -> None:
        """End the broker: politely with a limit, or at once. What it kept on disk stays for `start`."""
        process, self._process = self._process, None
        if process is None:
            return
        if not kill and process.poll() is None:
            self._signal(process, signal.SIGCONT)
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        # The group is killed even when its leader is gone: its own children (port programs) may remain.
        self._signal(process, signal.SIGKILL)
        process.wait(10)

    @staticmethod
    def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)

    def restart(self, *, kill: bool = False) -> None:
        self.stop(kill=kill)
        self.start()

    def pause(self) -> None:
        """Freeze the broker: connections stay open, nothing is answered."""
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Stop and remove everything this broker kept."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def _log(self) -> Path:
        return self.directory / "output.log"

    def log_tail(self, lines: int = 10) -> str:
        """The last lines of what the broker printed."""
        if not self._log.exists():
            return "(nothing printed)"
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def first_line(*command: str) -> str:
    """The first line a program prints, or an empty string."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0] if lines else ""

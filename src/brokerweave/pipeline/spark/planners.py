"""A warm process that forks Spark's planners: Spark starts one for each stream that reads from Python.

Owns that process, its start and its end. By itself Spark starts a new Python for each such stream, which
takes 0.4 s of a core to import what it needs, and keeps a copy of it all in memory; forked planners have it
from the start, and share it.

Invariants: the process ends when the one that started it does, however that ends; it has no connection, and
no thread but that of Arrow's allocator, which knows of forks, so that a fork of it is whole; whoever is not
served becomes a planner by itself, as without us.
Must not know: what planners do.

`ask_planner.py` is what Spark starts in a planner's place. It sends the environment and its output files over
a Unix socket; a fork takes them over and works; the connection closes when it ends.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from select import select

PLANNER = "pyspark.sql.streaming.python_streaming_source_runner"
ADDRESS = "BROKERWEAVE_PLANNERS"
"""The variable that tells what Spark starts where to ask."""
PIECE = 1 << 16

_running: subprocess.Popen[bytes] | None = None


def keep_warm(python: str) -> str:
    """Where planners can be had from now on; they run in `python`."""
    global _running
    if _running is None or _running.poll() is not None:
        folder = tempfile.mkdtemp(prefix="brokerweave-planners-")
        os.environ[ADDRESS] = str(Path(folder) / "socket")
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        _running = subprocess.Popen(
            [python, "-m", __name__, os.environ[ADDRESS]], stdin=subprocess.PIPE, env=environment
        )
        atexit.register(_end, _running)
    return os.environ[ADDRESS]


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait()


def serve(address: Path) -> None:
    """Forks a planner for each who asks, until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it goes to all of a terminal's processes; Spark ends us
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for planners
    import_module("brokerweave.pipeline.source.data_source")
    import_module(PLANNER)
    del sys.modules[PLANNER]  # each planner runs it as its main module
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen(64)
        try:
            while sys.stdin not in select([listener, sys.stdin], [], [])[0]:
                _serve_one(listener)
        finally:
            address.unlink()
            address.parent.rmdir()


def _serve_one(listener: socket.socket) -> None:
    asker, _ = listener.accept()
    if os.fork() == 0:
        listener.close()
        code = 1
        try:
            code = _plan(asker)
        finally:
            os._exit(code)
    asker.close()


def _plan(asker: socket.socket) -> int:
    """In the fork: becomes the process that was asked for."""
    asker.settimeout(10)
    request, outputs, _, _ = socket.recv_fds(asker, PIECE, 2)
    while piece := asker.recv(PIECE):
        request += piece
    environment: dict[str, str] = json.loads(request)
    if _paths(environment) != _paths(os.environ):
        return 0  # modules might be others than those we have; closing refuses
    for number, output in enumerate(outputs, start=1):
        os.dup2(output, number)
        os.close(output)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.argv = [PLANNER]
    asker.send(b"!")
    try:
        runpy.run_module(PLANNER, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _paths(environment: Mapping[str, str]) -> list[str]:
    """Where modules come from. Spark adds a jar of its own, which holds none."""
    every = environment.get("PYTHONPATH", "").split(os.pathsep)
    return [each for each in every if each and not each.endswith(".jar")]


if __name__ == "__main__":
    serve(Path(sys.argv[1]))

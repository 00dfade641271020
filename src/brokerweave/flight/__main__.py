"""`python -m brokerweave.flight`: the process that a node starts to serve its edge log.

Owns the process: it says `ready HOST:PORT` on stdout, lives as long as its stdin is open, and ends without
waiting for anybody, since a reader asks again and a commit is one rename. So it cannot outlive the node,
however that ended. Must not know: the node's configuration.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from brokerweave.errors import BrokerweaveError, ConfigError
from brokerweave.flight.memory import keep_memory
from brokerweave.flight.protocol import authorization


def main() -> int:
    parser = argparse.ArgumentParser("python -m brokerweave.flight", description="Serve one edge log.")
    parser.add_argument("--log", type=Path, required=True, metavar="DIR", help="the edge log's folder")
    parser.add_argument("--listen", required=True, metavar="HOST:PORT")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="its first line is the token")
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the node, which then lets go of our stdin
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    keep_memory()
    try:
        token = _token(arguments.token_file)
        from brokerweave.flight.service import LogService

        service = LogService(arguments.log, arguments.listen, token)
    except BrokerweaveError as error:
        print(error, file=sys.stderr)
        return 1
    host = arguments.listen.rpartition(":")[0]
    print(f"ready {host}:{service.port}", flush=True)
    while os.read(0, 4096):
        pass
    os._exit(0)


def _token(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    try:
        token = lines[0].strip() if lines else ""
        authorization(token)
    except ConfigError as error:
        raise ConfigError(f"the first line of {file}: {error}") from error
    return token


if __name__ == "__main__":
    sys.exit(main())

"""`python -m brokerweave.kafka`: the process that a node starts to feed its edge log into Kafka.

Owns the process: its status goes to stdout as lines of JSON, it lives as long as its stdin is open, so it
cannot outlive the node, however that ended. Must not know: the node's configuration.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

from brokerweave.errors import BrokerweaveError
from brokerweave.kafka.cluster import Cluster, client_settings
from brokerweave.kafka.feeder import Feeder
from brokerweave.kafka.records import TopicPattern

SAY_SECONDS = 0.5
"""Between two lines of status while all goes well."""


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m brokerweave.kafka", description="Feed one edge log into Kafka."
    )
    parser.add_argument("--log", type=Path, required=True, metavar="DIR", help="the edge log's folder")
    parser.add_argument("--servers", required=True, metavar="HOST:PORT,...")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--reader", required=True, help="the name under which positions are committed")
    parser.add_argument("--compression", required=True)
    parser.add_argument("--client-file", type=Path, metavar="FILE", help="key=value lines for Kafka's client")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(message)s", level=logging.WARNING, stream=sys.stderr)
    ending = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the node, which then lets go of our stdin
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    threading.Thread(target=_end_with_stdin, args=(ending,), daemon=True).start()
    try:
        TopicPattern(arguments.topic, "")
        settings = client_settings(arguments.client_file)
        say = _Saying()
        feeder = Feeder(
            arguments.log,
            arguments.reader,
            arguments.topic,
            lambda name: Cluster(arguments.servers, name, arguments.compression, settings),
            ending.wait,
            lambda: say(feeder),
        )
        say(feeder)
        feeder.run()
    except BrokerweaveError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


class _Saying:
    """Prints the feeder's status when it changes, but no more often than anybody would look."""

    def __init__(self) -> None:
        self._last = -SAY_SECONDS
        self._said: dict[str, object] = {}

    def __call__(self, feeder: Feeder) -> None:
        now = time.monotonic()
        if feeder.reason == self._said.get("reason") and now - self._last < SAY_SECONDS:
            return
        if (status := feeder.status()) != self._said:
            self._last, self._said = now, status
            print(json.dumps(status), flush=True)


def _end_with_stdin(ending: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    ending.set()


if __name__ == "__main__":
    sys.exit(main())

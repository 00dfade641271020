"""Is the load tool ever the bottleneck? `python -m benchmarks.load_tool`.

Owns the comparison: the highest load that the tool of `brokerweave bench` puts through a sink, which serves
as fast as it can, beside what Mosquitto delivers when nothing holds it back; the same clients, one after the
other. Ends with 1 below three times. Must not know: how a load is made, or a limit searched.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks import machine
from brokerweave.bench.folder import RunFolder
from brokerweave.bench.limit import chosen_search, find_limit
from brokerweave.bench.load.driver import LoadTarget
from brokerweave.bench.scenario import PRESETS, ClientGroup, Place, Scenario
from brokerweave.bench.sink import SinkBroker
from brokerweave.lab.broker import Broker
from brokerweave.lab.debian import Mosquitto

GOAL = 3.0
TOPICS, PUBLISHERS, SUBSCRIBERS = 5, 10, 10
"""As in the paper's patterns."""


def delivered(server: Broker) -> float:
    """Messages a second to subscribers at the limit."""
    groups = tuple(ClientGroup("a", f"topic{n}", PUBLISHERS, SUBSCRIBERS) for n in range(1, TOPICS + 1))
    scenario = Scenario(server.name, (Place("a"),), groups, PRESETS["short"], interval=0.005)
    with tempfile.TemporaryDirectory() as folder, server:
        target = LoadTarget({"a": (server.host, server.port)})
        search = chosen_search("adaptive", scenario.times)[1]
        found = find_limit(scenario, target, RunFolder(Path(folder)), search, print)
    if found.best is None:
        raise SystemExit(f"{server.name} has no limit that could be found")
    return found.best.counters.egress_per_s


def main() -> int:
    print(*(f"{name} {value};" for name, value in machine.facts().items()))
    with machine.one_benchmark():
        mosquitto, sink = delivered(Mosquitto()), delivered(SinkBroker(0))
    print(f"delivered a second: Mosquitto {mosquitto:,.0f}, a sink {sink:,.0f}: {sink / mosquitto:.2f} x")
    return int(sink < GOAL * mosquitto)


if __name__ == "__main__":
    sys.exit(main())

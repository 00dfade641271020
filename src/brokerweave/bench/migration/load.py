"""The load of a migration run: a process of the load tool for each group, in the group's region.

Owns who of a group does what, and when it begins and ends. Invariants: a client's number is its own in the
whole run; each gateway has its group's clients, as in the paper; a group's clients are connected, and their
subscriptions granted, before the first of its messages. Must not know: sites, what is measured.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from brokerweave.bench.folder import T_CLIENT
from brokerweave.bench.load.plan import PlannedClient, WorkerPlan
from brokerweave.bench.load.process import LoadProcess
from brokerweave.bench.migration.network import RegionNetwork
from brokerweave.bench.migration.records import RunClient
from brokerweave.bench.migration.scenario import PAYLOAD, MigrationGroup, MigrationScenario

HEAD_START = 0.3
"""Seconds between the last SUBACK and the first message."""
LEAVING = 1.0
"""What was sent so many seconds before a group left is on its way when it leaves, and does not count."""
QUIET = 2.0
"""Seconds without a delivery after which all have come: nothing takes as long between regions."""
_READY = 120.0
_DRAIN = 60.0


def planned(
    scenario: MigrationScenario, addresses: Mapping[str, tuple[str, int]]
) -> dict[str, tuple[PlannedClient, ...]]:
    """The clients of each group; `addresses` are those of gateways."""
    clients: dict[str, tuple[PlannedClient, ...]] = {}
    number = 0
    for group in scenario.groups:
        topic, made = scenario.topics.index(group.topic), []
        publishers = group.gateways * group.publishers
        for publishes, count in ((True, group.publishers), (False, group.subscribers)):
            for place, gateway in enumerate(group.gateway_names * count):
                host, port = addresses[gateway]
                phase = place / publishers if publishes else 0.0
                made.append(PlannedClient(number, host, port, topic, T_CLIENT, publishes, phase))
                number += 1
        clients[group.name] = tuple(made)
    return clients


def worker_plan(
    scenario: MigrationScenario,
    clients: Mapping[str, Sequence[PlannedClient]],
    group: str,
    folder: Path,
    label: str,
    seconds: float,
    leaves: bool,
) -> WorkerPlan:
    everybody = [each for some in clients.values() for each in some]
    topics = range(len(scenario.topics))
    return WorkerPlan(
        worker=list(clients).index(group),
        folder=str(folder),
        label=label,
        clients=tuple(clients[group]),
        topics=scenario.topics,
        copies=tuple(0 for _ in topics),  # `records.settle` knows who was there
        publishers=tuple(
            tuple(each.number for each in everybody if each.publishes and each.topic == topic)
            for topic in topics
        ),
        any_latency=False,
        interval=1.0 / scenario.rate,
        latency_interval=1.0,
        qos=scenario.qos,
        subscriber_qos=scenario.qos,
        payload=PAYLOAD,
        tick=0.0,
        eager=False,
        warm_up=0.0,
        measured=seconds,
        cool_down=0.0,
        quiet=0.0 if leaves else QUIET,
    )


class MigrationLoad:
    """Ends its processes with `end`, whatever happens."""

    def __init__(
        self,
        scenario: MigrationScenario,
        network: RegionNetwork,
        addresses: Mapping[str, tuple[str, int]],
        folder: Path,
    ) -> None:
        self.label = f"m{time.monotonic_ns() % 10**9}"
        self.clients: list[RunClient] = []
        """Of all groups that have appeared."""
        self._scenario = scenario
        self._folder = folder
        self._planned = planned(scenario, addresses)
        self._processes: dict[str, LoadProcess] = {}
        for number, group in enumerate(scenario.groups):
            with network[group.region].inside():
                self._processes[group.name] = LoadProcess(number)

    @property
    def pids(self) -> dict[str, int]:
        return {name: each.process.pid for name, each in self._processes.items()}

    def appear(self, groups: Iterable[str], ends: Mapping[str, float], last: float) -> None:
        """All begin at one moment. `ends`: of those that leave before the `last` one; monotonic seconds."""
        names, now = list(groups), time.monotonic()
        for name in names:
            seconds = max(ends.get(name, last) - now, 1.0)
            plan = worker_plan(
                self._scenario, self._planned, name, self._folder, self.label, seconds, name in ends
            )
            self._processes[name].tell(json.dumps(plan.to_dict()))
        for name in names:
            self._processes[name].expect("ready", _READY)
        begin = time.monotonic_ns() + int(HEAD_START * 1e9)
        for name in names:
            self._processes[name].tell(str(begin))
            self._note(
                self._scenario.group(name), begin, int(1e9 * (ends.get(name, last) - now)), name in ends
            )

    def _note(self, group: MigrationGroup, begin: int, took: int, leaves: bool) -> None:
        end = begin + took - (int(LEAVING * 1e9) if leaves else -int(_DRAIN * 1e9))
        for place, each in enumerate(self._planned[group.name]):
            gateway = group.gateway_names[place % group.gateways]
            row = RunClient(each.number, group.name, gateway, each.topic, each.publishes, begin, end)
            self.clients.append(row)

    def results(self, last: float) -> dict[str, dict[str, float]]:
        """Of each group's process, when all have ended."""
        limit = max(last - time.monotonic(), 0.0) + _DRAIN
        return {name: each.expect("result", limit) for name, each in self._processes.items()}

    def end(self) -> None:
        for each in self._processes.values():
            each.end()

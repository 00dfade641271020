"""Who does what in one measurement: the clients of a scenario, numbered and dealt out to worker processes.

Invariants: a client's number is its own in the whole measurement; publishers are dealt out so that the
messages of one moment spread over all topics and workers; l-clients have the last worker for themselves. Must
not know: sockets, processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from brokerweave.bench.folder import L_CLIENT, T_CLIENT
from brokerweave.bench.scenario import ClientGroup, Scenario


@dataclass(frozen=True, slots=True)
class PlannedClient:
    """`phase` is the part of an interval after which a publisher sends its first message."""

    number: int
    host: str
    port: int
    topic: int
    kind: int
    publishes: bool
    phase: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """All that one worker process is told. Times in seconds, `folder` for its logs."""

    worker: int
    folder: str
    label: str
    """Begins every client id: two measurements never take each other's sessions."""
    clients: tuple[PlannedClient, ...]
    topics: tuple[str, ...]
    copies: tuple[int, ...]
    """Subscribers of each topic."""
    publishers: tuple[tuple[int, ...], ...]
    """Numbers of each topic's publishers, in all workers."""
    any_latency: bool
    interval: float
    latency_interval: float
    qos: int
    subscriber_qos: int
    payload: int
    tick: float
    eager: bool
    warm_up: float
    measured: float
    cool_down: float
    addresses: tuple[tuple[str, int], ...] = ()
    """Where a client that lost its connection may come back; none: it must not lose it."""
    quiet: float | None = None
    """Seconds without a delivery after which all have come; None: as is usual."""

    def interval_of(self, kind: int) -> float:
        return self.latency_interval if kind == L_CLIENT else self.interval

    @property
    def total(self) -> float:
        return self.warm_up + self.measured + self.cool_down

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> WorkerPlan:
        given = dict(value)
        given["clients"] = tuple(PlannedClient(**each) for each in given["clients"])
        given["topics"], given["copies"] = tuple(given["topics"]), tuple(given["copies"])
        given["publishers"] = tuple(tuple(each) for each in given["publishers"])
        given["addresses"] = tuple((host, port) for host, port in given["addresses"])
        return cls(**given)


def worker_plans(
    scenario: Scenario, addresses: Mapping[str, tuple[str, int]], folder: str, label: str
) -> list[WorkerPlan]:
    """One plan for each worker; `addresses` says where each place's clients connect."""
    topics = tuple(dict.fromkeys(group.topic for group in scenario.groups))
    clients = _numbered(scenario, addresses, topics)
    copies = Counter(client.topic for client in clients if not client.publishes)
    hands: list[list[PlannedClient]] = [[] for _ in range(scenario.workers)]
    for kind_of_work in (True, False):
        dealt = [c for c in clients if c.kind == T_CLIENT and c.publishes is kind_of_work]
        for place, client in enumerate(dealt):
            hands[place % scenario.workers].append(client)
    latency = [client for client in clients if client.kind == L_CLIENT]
    if latency:
        hands.append(latency)
    return [
        WorkerPlan(
            worker=number,
            folder=folder,
            label=label,
            clients=tuple(hand),
            topics=topics,
            copies=tuple(copies[index] for index in range(len(topics))),
            publishers=tuple(
                tuple(c.number for c in clients if c.publishes and c.topic == index)
                for index in range(len(topics))
            ),
            any_latency=bool(latency),
            interval=scenario.interval,
            latency_interval=scenario.latency_interval,
            qos=scenario.qos,
            subscriber_qos=scenario.subscriber_qos,
            payload=scenario.payload,
            tick=0.0 if hand is latency else scenario.tick,
            eager=scenario.eager,
            warm_up=scenario.times.warm_up,
            measured=scenario.times.measured,
            cool_down=scenario.times.cool_down,
            addresses=tuple(addresses.values()) if scenario.kills else (),
        )
        for number, hand in enumerate(hands)
        if hand
    ]


def _numbered(
    scenario: Scenario, addresses: Mapping[str, tuple[str, int]], topics: tuple[str, ...]
) -> list[PlannedClient]:
    """All clients; those of one topic are never neighbours among the publishers while there are others."""
    clients: list[PlannedClient] = []

    def add(group: ClientGroup, publishes: bool, phase: float = 0.0) -> None:
        host, port = addresses[group.place]
        topic = topics.index(group.topic)
        clients.append(PlannedClient(len(clients), host, port, topic, group.kind, publishes, phase))

    for latency in (False, True):
        groups = [group for group in scenario.groups if group.latency is latency]
        publishing = _in_turn(groups, [group.publishers for group in groups])
        for place, group in enumerate(publishing):
            add(group, True, place / len(publishing))
        for group in _in_turn(groups, [group.subscribers for group in groups]):
            add(group, False)
    return clients


def _in_turn(groups: list[ClientGroup], counts: list[int]) -> list[ClientGroup]:
    """Each group as often as it counts, one after the other in rounds."""
    return [
        group
        for turn in range(max(counts, default=0))
        for group, count in zip(groups, counts, strict=True)
        if turn < count
    ]

"""Strategies beside each other: the same small network and load for each, one after the other.

Owns the scenario, and what is compared: throughput, latency, control bytes, memory. Invariants: all that
differs between two scenarios is the strategy, and the links that it needs; ratios are to the first. Must not
know: how it is measured, any strategy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from brokerweave.bench.figures import RunResult
from brokerweave.bench.folder import Times
from brokerweave.bench.scenario import ClientGroup, Place, Scenario, joined_by
from brokerweave.errors import ConfigError

PUBLISHERS = 2
"""At each site, all of one topic."""
LATENCY_TOPIC = "latency"
LATENCY_INTERVAL = 0.1
EDGE_SECONDS = 1.0
"""Before and after what is measured."""
FIGURES = ("out/s", "latency ms", "p99 ms", "control bytes", "node memory MiB")


def scenario(strategy: str, nodes: int, rate: float, seconds: float, broker: str) -> Scenario:
    """Every site has a topic of its own, with a subscriber there and one at the next site. Latency is
    measured from the first site to every other, apart from the load."""
    joined = joined_by(strategy)
    if joined is None:
        raise ConfigError(f"compare is of strategies; {strategy} is none")
    places = tuple(Place(f"site{number + 1}", broker=broker, front="node") for number in range(nodes))
    groups = []
    for number, place in enumerate(places):
        further = places[(number + 1) % nodes].name
        groups.append(ClientGroup(place.name, f"topic{number + 1}", PUBLISHERS, 1))
        groups.append(ClientGroup(further, f"topic{number + 1}", 0, 1))
        groups.append(ClientGroup(place.name, LATENCY_TOPIC, int(number == 0), int(number > 0), latency=True))
    return Scenario(
        joined.name,
        places,
        tuple(groups),
        Times(EDGE_SECONDS, seconds, EDGE_SECONDS),
        interval=nodes * PUBLISHERS / rate,
        latency_interval=LATENCY_INTERVAL,
        qos=1,
        subscriber_qos=1,
        join=strategy,
    )


def series(strategies: Sequence[str], nodes: int, rate: float, seconds: float, broker: str) -> list[Scenario]:
    made = [scenario(each, nodes, rate, seconds, broker) for each in strategies]
    if len({each.name for each in made}) < len(made):
        raise ConfigError("two of the strategies have one name; give each of them once")
    return made


@dataclass(frozen=True, slots=True)
class Compared:
    """What one strategy came to; `memory` is the most of all its nodes together, in bytes."""

    name: str
    out_per_s: float
    latency_ms: float
    p99_ms: float
    control_bytes: int
    memory: int
    lost: int

    @property
    def figures(self) -> tuple[float, ...]:
        mebibytes = self.memory / 2**20
        return self.out_per_s, self.latency_ms, self.p99_ms, float(self.control_bytes), mebibytes

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def compared(result: RunResult) -> Compared:
    found = result.indexes
    memory = sum(each.rss_worst for each in found.usage if each.role.endswith("/node"))
    said = result.measurement.control_bytes
    return Compared(
        result.name, found.egress_per_s, found.latency.mean, found.latency.p99, said, memory, found.lost
    )


def rows(results: Sequence[RunResult]) -> list[list[str]]:
    return rows_of([compared(each) for each in results])


def rows_of(every: Sequence[Compared]) -> list[list[str]]:
    """Each figure, and after the first strategy its ratio to that of the first."""
    return [
        [
            each.name,
            *(
                _cell(value, first, ratio=each is not every[0])
                for value, first in zip(each.figures, every[0].figures, strict=True)
            ),
            str(each.lost),
        ]
        for each in every
    ]


def _cell(value: float, first: float, *, ratio: bool) -> str:
    shown = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{shown} (x {value / first:.2f})" if ratio and first else shown


HEAD = ("strategy", *FIGURES, "lost")

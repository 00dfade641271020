"""One-to-one pairs (the cluster thesis, 5.1): 50 to 2,000 publishers with a subscriber each, at a constant
rate.

Invariants: the messages a second of all together are the same whatever the number of pairs, so that only the
number of clients varies; publishers use QoS 2, subscribers QoS 0, payloads are 32 bytes. A pair's two clients
are at different sites half of the time, as behind a balancer that knows nothing of topics. Must not know: how
it is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from brokerweave.bench.folder import Times
from brokerweave.bench.patterns import one_place
from brokerweave.bench.scenario import ClientGroup, Place, Scenario, joined_by
from brokerweave.errors import ConfigError

RATE = 1000.0
SITES = 4
COUNTS = (50, 250, 500, 1000, 2000)


def pairs(count: int, join: str, quota: float, times: Times, rate: float = RATE) -> Scenario:
    """`join`: "none" for a single broker, else how four sites cooperate. Named so, whatever the number."""
    if join != "none" and joined_by(join) is None:
        raise ConfigError(f"join: {join} is for a scenario's file; give none, or a strategy")
    if count / rate > times.measured:
        often = f"{rate:g} messages a second of {count:,} pairs are one of each in {count / rate:g} s"
        raise ConfigError(f"{often}, longer than is measured: give a higher --rate, or a longer --preset")
    if join == "none":
        base = one_place("single", quota=quota, times=times)
    else:
        places = tuple(
            Place(f"site{number + 1}", quota=quota, front="node", way="unix") for number in range(SITES)
        )
        base = Scenario(join, places, _groups(places, 1), times, join=join)
    return replace(
        base,
        groups=_groups(base.places, count),
        interval=count / rate,
        qos=2,
        subscriber_qos=0,
        tick=0.0,
    )


def _groups(places: Sequence[Place], count: int) -> tuple[ClientGroup, ...]:
    groups: list[ClientGroup] = []
    for number in range(count):
        publisher = places[number % len(places)].name
        subscriber = places[(number + number // len(places) % 2) % len(places)].name
        if publisher == subscriber:
            groups.append(ClientGroup(publisher, f"pair{number:04}", 1, 1))
        else:
            groups.append(ClientGroup(publisher, f"pair{number:04}", publishers=1))
            groups.append(ClientGroup(subscriber, f"pair{number:04}", subscribers=1))
    return tuple(groups)


def series(
    joins: Sequence[str], counts: Sequence[int], quota: float, times: Times, rate: float = RATE
) -> list[Scenario]:
    return [pairs(count, join, quota, times, rate) for join in joins for count in counts]

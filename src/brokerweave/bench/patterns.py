"""The patterns of the paper's Table 3, and what they are compared with, as scenarios.

Invariants: all have 5 topics with 10 publishers and 10 subscribers each, and a sixth for latency with one
subscriber a site; five sites stand in a row. Must not know: how a scenario is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from brokerweave.bench.folder import Times
from brokerweave.bench.scenario import PRESETS, ClientGroup, Place, Scenario
from brokerweave.plugin import registry

SITES = 5
TOPICS = 5
LATENCY_TOPIC = "topic6"
TIMED = 60
"""Messages for latency while a pattern is measured: one a second with the paper's times, as there."""
STRONGER = 10
"""How much more of a core the large server (S2) has than a small one (S1)."""

# Publishers, and as many subscribers, of each topic at site 0; at site n the topics are n further on.
PLACEMENTS: Mapping[str, tuple[int, ...]] = {
    "B": (2, 2, 2, 2, 2),
    "C": (10, 0, 0, 0, 0),
    "D": (8, 1, 1, 0, 0),
}


_GUESSES: Mapping[str, float] = {
    "B pf": 6.9,
    "B sf": 7.2,
    "B mesh": 4.5,
    "B bridges": 2.9,
    "C pf": 7.7,
    "C sf": 10.0,
    "C mesh": 5.4,
    "C tcp": 5.6,
    "C bridges": 3.0,
    "C apart": 5.8,
    "D pf": 7.5,
    "D sf": 8.1,
    "D mesh": 4.5,
    "D bridges": 3.0,
}
"""Patterns of five sites, and where the search of each begins, over the single broker: at what was found on
several machines. A wrong guess costs measurements, and nothing else."""

_GUESS = 7.0
"""The same for a strategy that is not among them."""

_MAKERS: Mapping[str, float] = {"rabbitmq": 0.11, "nats": 6.2, "amqtt": 0.11}
"""The same for single brokers of makers that are not within twice of it. Far too much costs most: what a
broker has taken it has to deliver before the next measurement."""


def topic(number: int) -> str:
    return f"topic{number % TOPICS + 1}"


def one_place(
    name: str,
    *,
    address: str = "",
    broker: str = "mosquitto",
    quota: float = 0.0,
    front: str = "none",
    way: str = "tcp",
    topics: int = TOPICS,
    clients: tuple[int, int] = (10, 10),
    times: Times = PRESETS["short"],
    latency_interval: float = 1.0,
) -> Scenario:
    """All clients at one place; `clients` are publishers and subscribers of each topic."""
    place = Place("site1", address, broker, quota, front, way)
    groups = [ClientGroup("site1", f"topic{number + 1}", *clients) for number in range(topics)]
    groups.append(ClientGroup("site1", f"topic{topics + 1}", 1, 1, latency=True))
    return Scenario(name, (place,), tuple(groups), times, latency_interval=latency_interval)


def five_places(
    name: str, placement: str, join: str, quota: float, times: Times, *, way: str = "unix"
) -> Scenario:
    """Pattern B, C or D; `way` is how nodes reach their brokers. Latency is measured from the row's end to
    every site that hears of it."""
    front, way = ("none", "tcp") if join in ("bridges", "none") else ("node", way)
    places = tuple(Place(f"site{number + 1}", quota=quota, front=front, way=way) for number in range(SITES))
    groups = [
        ClientGroup(places[site].name, topic(site + further), count, count)
        for site in range(SITES)
        for further, count in enumerate(PLACEMENTS[placement])
        if count
    ]
    groups += [
        ClientGroup(
            place.name, LATENCY_TOPIC, publishers=int(place is places[0]), subscribers=1, latency=True
        )
        for place in (places[:1] if join == "none" else places)
    ]
    between = times.measured / TIMED
    return Scenario(name, places, tuple(groups), times, latency_interval=between, join=join)


@dataclass(frozen=True, slots=True)
class Pattern:
    """One bar of the chart; `guess` is its limit over the single broker's, where a search may well begin."""

    scenario: Scenario
    guess: float = 1.0
    single: bool = False
    """What the others are compared with."""


def patterns(
    quota: float, times: Times, makers: tuple[str, ...] = (), strategies: tuple[str, ...] = ()
) -> dict[str, Pattern]:
    """All of them by name, the single broker first. `makers`: single brokers of others, as in Fig. 11.
    `strategies`: further ones to join five sites, named as registered or spelled out.

    Clients come by TCP, and a node reaches its broker, which is on the same server, by a Unix socket; "A tcp"
    and "C tcp" (with SF) are by TCP all the way, and "haproxy unix" is what a Unix socket gives a relay that
    does nothing else. "C apart" is not in the paper: five brokers that know nothing of each other, with
    nothing before them.
    """
    single = partial(one_place, times=times, latency_interval=times.measured / TIMED)
    made = [
        Pattern(single("mosquitto S1", quota=quota), single=True),
        Pattern(single("mosquitto S2", quota=quota * STRONGER), 10.0),
        Pattern(single("haproxy S1", quota=quota, front="haproxy")),
        Pattern(single("haproxy unix", quota=quota, front="haproxy", way="unix"), 1.8),
        Pattern(single("A node", quota=quota, front="node", way="unix"), 1.8),
        Pattern(single("A tcp", quota=quota, front="node")),
    ]
    for name, guess in _GUESSES.items():
        placement, join = name.split()
        way = "tcp" if join == "tcp" else "unix"
        join = {"tcp": "sf", "apart": "none"}.get(join, join)
        scenario = five_places(name, placement, join, quota, times, way=way)
        made.append(Pattern(scenario, guess))
    for strategy in strategies:
        called = registry.strategy(strategy).name
        for placement in PLACEMENTS:
            scenario = five_places(f"{placement} {called}", placement, strategy, quota, times)
            made.append(Pattern(scenario, _GUESS))
    for maker in makers:
        alone = single(f"{maker} S1", broker=maker, quota=quota)
        made.append(Pattern(alone, _MAKERS.get(maker, 1.0)))
    return {pattern.scenario.name: pattern for pattern in made}

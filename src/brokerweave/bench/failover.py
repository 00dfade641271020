"""Pairs at a constant rate while places are killed: four sites in a mesh, of which one or two end.

Invariants: as in `pairs`, but subscribers too use QoS 2 and all sessions persist, so that what a client
missed is owed to it; the kill comes when a third of the window is over, two at one moment. Must not know: how
it is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from brokerweave.bench.folder import Times
from brokerweave.bench.pairs import RATE, SITES, pairs
from brokerweave.bench.scenario import Kill, Scenario
from brokerweave.errors import ConfigError

DEFAULT = "mesh"
"""The strategy that is measured where none is named: its clients miss nothing."""
SHORT = Times(2, 12, 2)
"""Longer than a limit's: there must be a before and an after."""
WORDS = ("none", "one", "two", "three")


def failover(killed: int, count: int, join: str, quota: float, times: Times, rate: float = RATE) -> Scenario:
    """`count` pairs, and so many of the sites killed."""
    if join == "none":
        raise ConfigError("join: one broker alone has no other to fail over to; give a strategy")
    base = pairs(count, join, quota, times, rate)
    dying = [base.places[SITES - 1 - number].name for number in range(killed)]
    kills = tuple(Kill(name, times.measured / 3) for name in dying)
    return replace(base, name=f"{join} {WORDS[killed]} killed", subscriber_qos=2, kills=kills)


def series(
    killed: Sequence[int], count: int, join: str, quota: float, times: Times, rate: float = RATE
) -> list[Scenario]:
    return [failover(each, count, join, quota, times, rate) for each in killed]

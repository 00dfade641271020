"""Many gateways and sites in virtual time: each gateway finds its best site, for little traffic."""

from __future__ import annotations

import pytest

from brokerweave.placement.emma import EmmaPolicy
from brokerweave.placement.policy import PlacementPolicy, PolicySettings
from brokerweave.placement.steady import SteadyPolicy
from brokerweave.sim.placement import PING_BYTES, PlacementWorld


@pytest.mark.parametrize("policy", [SteadyPolicy, EmmaPolicy])
def test_every_gateway_comes_within_one_latency_group_of_its_best_site(policy: type[PlacementPolicy]) -> None:
    world = PlacementWorld(20, 100, policy(PolicySettings()), seed=1)
    world.start()
    world.settle(lambda number: f"s{number}", 3)
    ordered = []
    for _ in range(14):
        world.run(15)
        ordered.append(world.decide())
        world.obey()
    assert max(world.groups_apart(gateway.name) for gateway in world.gateways) <= 1
    assert all(gateway.prober.sent * PING_BYTES / world.now <= 2000 for gateway in world.gateways)
    if policy is SteadyPolicy:
        assert sum(ordered[-3:]) == 0, "it comes to rest; EMMA's groups have borders"

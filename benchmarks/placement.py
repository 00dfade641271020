"""The controller and the probers at scale, in virtual time: `python -m benchmarks.placement`.

Owns the measurement: gateways and sites somewhere on a plane; each gateway measures, the controller decides.
Printed: the CPU time of one decision round, what probes cost each gateway, and how many gateways are placed
within one latency group of their true best site. Must not know: sockets.
"""

from __future__ import annotations

import argparse
import time
from statistics import mean, median

from brokerweave.placement.emma import EmmaPolicy
from brokerweave.placement.policy import PolicySettings
from brokerweave.placement.steady import SteadyPolicy
from brokerweave.sim.placement import PING_BYTES, PlacementWorld

SECONDS = 300.0
ROUND = 15.0
CLIENTS = 10
"""Of each gateway; at any one site at first, so that there is as much to decide as there can be."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateways", type=int, default=1000)
    parser.add_argument("--sites", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for name, policy in (("steady", SteadyPolicy), ("emma", EmmaPolicy)):
        world = PlacementWorld(given.gateways, given.sites, policy(PolicySettings()), given.seed)
        print(
            f"{name}: {given.gateways} gateways x {given.sites} sites, {CLIENTS} clients each, {SECONDS:g} s"
        )
        world.start()
        world.settle(lambda number: f"s{number % given.sites}", CLIENTS)
        report(world)


def report(world: PlacementWorld) -> None:
    spent, ordered = [], []
    for _ in range(int(SECONDS / ROUND)):
        world.run(ROUND)
        began = time.process_time()
        ordered.append(world.decide())
        spent.append(time.process_time() - began)
        world.obey()
    print(f"  one round: at most {max(spent):.3f} s of CPU, median {median(spent):.3f} s")
    print(f"  orders in each round: {' '.join(map(str, ordered))}")
    rates = [gateway.prober.sent * PING_BYTES / SECONDS for gateway in world.gateways]
    print(f"  probe traffic of a gateway: mean {mean(rates):.0f} bytes/s, at most {max(rates):.0f}")
    apart = [world.groups_apart(gateway.name) for gateway in world.gateways]
    close = sum(each <= 1 for each in apart)
    print(f"  at most one latency group from the true best site: {close} of {len(apart)}")


if __name__ == "__main__":
    main()

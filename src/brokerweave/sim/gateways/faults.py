"""Orders to gateways, and what goes wrong in the middle of a move, as a schedule and in its carrying out.

Invariant: an action that no longer makes sense (the client does not move) does nothing. Must not know: what a
gateway does about it.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from brokerweave.sim.schedule import QUIET, TOPICS, Action, ClientPlan

if TYPE_CHECKING:
    from brokerweave.sim.acting import Actor
    from brokerweave.sim.run import Simulation

ORDERS_PER_SECOND = 1.5
CALM = ("controller", "leave", "drop", "again", "again", "", "")
"""What may happen in a move while all sites live; "again": another order."""
DEADLY = ("old site", "target", "gateway", "old node", "target node", "cut old", "cut target", "link")
STRIKE = 0.7
"""The part of the orders with a strike."""


def orders(
    random: Random, sites: list[str], clients: list[ClientPlan], duration: float, deadly: bool
) -> list[Action]:
    actions: list[Action] = []
    at, safe = QUIET, 0.0
    while (at := at + random.expovariate(ORDERS_PER_SECOND)) < duration:
        client, site = random.choice(clients).name, random.choice(sites)
        via = random.choice(("controller", "controller", "operator"))
        actions.append(Action(at, "order", (client, site, via)))
        for _ in range(random.randrange(8)):  # something is in flight then, to the client and from it
            shortly = at + random.uniform(-0.05, 0.25)
            sender = client if random.random() < 0.5 else random.choice(clients).name
            message = sender, random.choice(TOPICS), random.choice((1, 2)), False
            actions.append(Action(shortly, "publish", message))
        if random.random() < STRIKE:
            actions += _strike(random, sites, client, at, deadly and at > safe)
            if deadly and actions[-1].kind == "strike" and actions[-1].arguments[1] in DEADLY:
                safe = at + random.uniform(2.5, 6.0)
    return actions


def _strike(random: Random, sites: list[str], client: str, at: float, deadly: bool) -> list[Action]:
    what = random.choice(DEADLY if deadly and random.random() < 0.85 else CALM)
    after = at + random.uniform(0.02, 0.18)
    if what == "again":
        return [
            Action(after, "order", (client, random.choice(sites), random.choice(("controller", "operator"))))
        ]
    if what == "leave":
        back = after + random.uniform(0.1, 4.0)
        return [Action(after, "leave", (client,)), Action(back, "arrive", (client,))]
    if what == "drop":
        return [Action(after, "drop", (client,))]
    return [Action(after, "strike", (client, what, random.uniform(0.3, 4.0)))] if what else []


def strike(simulation: Simulation, actor: Actor, client: str, what: str, down: float) -> None:
    """Something dies while a client moves."""
    region = simulation.region
    sites = region.sites_of_move(client) if region is not None else None
    if region is None or sites is None:
        return
    gateway, (old, target) = region.clients[client].gateway, sites
    region.counts[f"struck, {what}"] += 1
    match what:
        case "controller":
            region.controller_dies(down)
        case "gateway":
            region.gateway_dies(gateway, down)
        case "old site" | "target":
            actor.do(Action(0.0, "site", (old if what == "old site" else target, down)))
        case "old node" | "target node":
            actor.do(Action(0.0, "kill", (old if what == "old node" else target, 0, down, False)))
        case "cut old" | "cut target":
            actor.do(Action(0.0, "unplug", (gateway, old if what == "cut old" else target)))
        case "link":
            actor.do(Action(0.0, "link", (old, target, down)))

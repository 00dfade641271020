"""What happens in a run: who publishes and subscribes what and when, and which faults come when.

Owns the making of schedules from a seed. Invariants: a schedule is a plain list of actions, made before the
run and complete, so that it can be printed, cut down and run again; a fault brings its own recovery. Must not
know: how an action is carried out.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

FAULTS = (
    "delay",
    "cut",
    "partition",
    "kill",
    "stop",
    "disk-loss",
    "broker",
    "slow",
    "queues",
    "disk",
    "skew",
    "neighbours",
    "churn",
    "roam",
    "late",
    "link",
)
"""What `--faults` can name, and `all` means."""
SPLIT = "split"
"""What `--faults` can name besides: sites in two halves that do not reach each other."""

MOVE = "move"
"""The same: clients that move from site to site as planned, in a mesh."""

GATEWAY, GATEWAY_DEATHS = "gateway", "gateway-deaths"
"""The same: clients of a mesh that gateways move; and what dies or breaks in the middle of such a move."""

BESIDES = (SPLIT, MOVE, GATEWAY, GATEWAY_DEATHS)
PLANNED = frozenset((MOVE, GATEWAY))
"""With these alone no site dies, and nothing breaks."""

TOPICS = ("a", "b", "a/b", "a/c", "b/c", "a/b/c")
FILTERS = ("#", "a/#", "a/+", "+/c", "+", "a/b", "b/c", "b", "a/b/c")
CLIENTS_PER_NODE = 2
MESSAGES_PER_SECOND = 5.0
DELETIONS_PER_SECOND = 0.2
MOVES_PER_SECOND = 0.7
WILL_DELAY = 2
"""Seconds: longer than a client takes to come back, shorter than it may stay away."""
QUIET = 2.0
"""Seconds before the first publication, in which everybody connects and subscribes."""

Argument = str | float | bool


@dataclass(frozen=True, slots=True)
class Action:
    at: float
    """Seconds after the start."""
    kind: str
    arguments: tuple[Argument, ...] = ()

    def __str__(self) -> str:
        shown = (f"{each:.3g}" if isinstance(each, float) else str(each) for each in self.arguments)
        return f"{self.at:8.3f}  {self.kind} {' '.join(shown)}"


@dataclass(frozen=True, slots=True)
class ClientPlan:
    name: str
    site: str
    version: int
    persistent: bool
    will_topic: str | None

    @property
    def will_delay(self) -> int:
        """Seconds: where a session outlives its connection, its will waits for a return (MQTT 5)."""
        return WILL_DELAY if self.version == 5 and self.persistent else 0


def plan_clients(random: Random, sites: list[str]) -> list[ClientPlan]:
    return [
        ClientPlan(
            name=f"{site}-{number}",
            site=site,
            version=random.choice((4, 5)),
            persistent=random.random() < 0.6,
            will_topic=random.choice(TOPICS) if random.random() < 0.3 else None,
        )
        for site in sites
        for number in range(1, CLIENTS_PER_NODE + 1)
    ]


def make(
    random: Random, sites: list[str], clients: list[ClientPlan], faults: frozenset[str], duration: float
) -> list[Action]:
    actions = _traffic(random, clients, duration)
    if "churn" in faults:
        actions += _churn(random, clients, duration)
    for fault in FAULTS:  # in a fixed order, whatever the set's is
        if fault in faults and fault in _MAKERS:
            for _ in range(random.choice((0, 0, 1, 1, 2))):
                at = random.uniform(QUIET + 1.0, duration - 1.0)
                actions += _MAKERS[fault](random, sites, at, duration)
    return sorted(actions, key=lambda action: action.at)


def _traffic(random: Random, clients: list[ClientPlan], duration: float) -> list[Action]:
    actions = []
    for client in clients:
        actions.append(Action(random.random() * 0.5, "arrive", (client.name,)))
        filters = random.sample(FILTERS, random.choice((0, 1, 1, 2)))
        actions += [_subscribe(client.name, each, random.random() * 1.5) for each in filters]
    at = QUIET
    while (at := at + random.expovariate(MESSAGES_PER_SECOND)) < duration:
        client = random.choice(clients)
        burst = random.choice((1, 1, 1, 3))
        topic, qos = random.choice(TOPICS), random.choice((0, 1, 1, 2, 2))
        retain = random.random() < 0.05
        actions += [Action(at, "publish", (client.name, topic, qos, retain))] * burst
    return actions


def deletions(random: Random, clients: list[ClientPlan], duration: float) -> list[Action]:
    """Clients that delete what is retained on a topic."""
    actions = []
    at = QUIET
    while (at := at + random.expovariate(DELETIONS_PER_SECOND)) < duration:
        client, topic, qos = random.choice(clients).name, random.choice(TOPICS), random.choice((0, 1, 2))
        actions.append(Action(at, "delete", (client, topic, qos)))
    return actions


def planned_moves(
    random: Random, sites: list[str], clients: list[ClientPlan], duration: float
) -> list[Action]:
    actions = []
    at = QUIET
    while (at := at + random.expovariate(MOVES_PER_SECOND)) < duration:
        actions.append(Action(at, "relocate", (random.choice(clients).name, random.choice(sites))))
        for _ in range(random.randrange(8)):  # something is in flight then
            shortly = at + random.uniform(-0.1, 0.1)
            message = random.choice(clients).name, random.choice(TOPICS), random.choice((1, 2)), False
            actions.append(Action(shortly, "publish", message))
    return actions


def _subscribe(client: str, topic_filter: str, at: float) -> Action:
    # One QoS for each client and filter, for good: then it is clear what a subscriber expects.
    qos = (len(client) + ord(client[0]) + ord(client[-1]) + len(topic_filter)) % 4
    return Action(at, "subscribe", (client, topic_filter, min(qos, 2)))


def _churn(random: Random, clients: list[ClientPlan], duration: float) -> list[Action]:
    actions = []
    at = QUIET
    while (at := at + random.expovariate(0.7)) < duration:
        client = random.choice(clients).name
        kind = random.choice(("subscribe", "subscribe", "unsubscribe", "unsubscribe", "drop", "leave"))
        if kind == "subscribe":
            actions.append(_subscribe(client, random.choice(FILTERS), at))
        elif kind == "unsubscribe":
            actions.append(Action(at, kind, (client, random.choice(FILTERS))))
        else:
            actions.append(Action(at, kind, (client,)))
            if kind == "leave":
                actions.append(Action(at + random.uniform(0.1, 6.0), "arrive", (client,)))
    return actions


def _delay(random: Random, sites: list[str], at: float, _: float) -> list[Action]:
    one, other = random.sample(sites, 2)
    slow = random.choice((0.0, 0.0, 2_000.0, 20_000.0))
    delay, jitter, lasts = random.uniform(0.0, 0.8), random.uniform(0.0, 0.8), random.uniform(1.0, 8.0)
    return [Action(at, "delay", (one, other, delay, jitter, slow, lasts))]


def _cut(random: Random, sites: list[str], at: float, _: float) -> list[Action]:
    kind = random.choice(("links", "links", "links", "broker", "clients"))
    return [Action(at, "cut", (random.choice(sites), kind, random.random() < 0.3))]


def _partition(random: Random, sites: list[str], at: float, _: float) -> list[Action]:
    return [Action(at, "partition", (random.choice(sites), random.uniform(0.5, 10.0)))]


def _kill(random: Random, sites: list[str], at: float, _: float) -> list[Action]:
    writes = random.choice((0, 0, random.randrange(1, 12)))
    return [Action(at, "kill", (random.choice(sites), writes, random.uniform(0.05, 4.0), False))]


def _disk_loss(random: Random, sites: list[str], at: float, _: float) -> list[Action]:
    return [Action(at, "kill", (random.choice(sites), 0, random.uniform(0.05, 4.0), True))]


def _stop(random: Random, sites: list[str], at: float, _: float) -> list[Action]:
    return [Action(at, "stop", (random.choice(sites), random.uniform(0.05, 4.0)))]


def _broker(random: Random, sites: list[str], at: float, _: float) -> list[Action]:
    keeps = random.random() < 0.7
    return [Action(at, "broker", (random.choice(sites), keeps, random.uniform(0.05, 5.0)))]


def _slow(random: Random, sites: list[str], at: float, _: float) -> list[Action]:
    return [Action(at, "freeze", (random.choice(sites), random.uniform(0.2, 6.0)))]


def _disk(random: Random, sites: list[str], at: float, _: float) -> list[Action]:
    return [Action(at, "disk", (random.choice(sites), random.uniform(0.5, 8.0)))]


def _skew(random: Random, sites: list[str], at: float, _: float) -> list[Action]:
    jump = random.choice((0.0, random.uniform(0.1, 3.0), random.uniform(10.0, 1000.0)))
    return [Action(at, "skew", (random.choice(sites), jump, random.uniform(0.9, 1.1)))]


def _queues(random: Random, sites: list[str], _: float, __: float) -> list[Action]:
    memory = random.choice((600, 1_500, 4_000))
    return [Action(0.0, "queues", (random.choice(sites), memory, random.choice((0, 1_000, 4_000))))]


def _neighbours(random: Random, sites: list[str], at: float, _: float) -> list[Action]:
    return [Action(at, "move", (random.choice(sites), random.uniform(0.5, 5.0), random.random()))]


def _roam(random: Random, sites: list[str], at: float, _: float) -> list[Action]:
    clients = [f"{site}-{number}" for site in sites for number in range(1, CLIENTS_PER_NODE + 1)]
    return [Action(at, "roam", (client,)) for client in random.sample(clients, 2)]


def _late(random: Random, sites: list[str], at: float, _: float) -> list[Action]:
    """A broker answers late, so that its clients wait for answers when their node is killed."""
    site = random.choice(sites)
    slow = Action(at, "delay", (site, f"{site}/broker", random.uniform(0.1, 0.6), 0.0, 0.0, 3.0))
    return [slow, Action(at + random.uniform(0.3, 2.0), "kill", (site, 0, random.uniform(0.05, 4.0), False))]


def _link(random: Random, sites: list[str], at: float, _: float) -> list[Action]:
    one, other = random.sample(sites, 2)
    return [Action(at, "link", (one, other, random.uniform(0.1, 8.0)))]


def site_deaths(random: Random, sites: list[str], copies: int, duration: float) -> list[Action]:
    """In a mesh sites die with their disk and their broker, as many at once as there are copies, less one."""
    actions = []
    at = QUIET + random.uniform(1.0, 8.0)
    while at < duration - 1.0:
        dead = random.sample(sites, min(random.randint(1, copies - 1), len(sites) - 1))
        actions.append(Action(at, "site", ("+".join(dead), random.uniform(0.5, 5.0))))
        at += random.uniform(5.0, 12.0)
    return actions


def splits(random: Random, sites: list[str], duration: float) -> list[Action]:
    actions = []
    at = QUIET + random.uniform(1.0, 6.0)
    while at < duration - 1.0:
        half = random.sample(sites, len(sites) // 2)
        lasts = random.uniform(0.5, 8.0)
        actions.append(Action(at, "split", ("+".join(half), lasts)))
        at += lasts + random.uniform(2.0, 8.0)
    return actions


_MAKERS = {
    "delay": _delay,
    "cut": _cut,
    "partition": _partition,
    "kill": _kill,
    "stop": _stop,
    "disk-loss": _disk_loss,
    "broker": _broker,
    "slow": _slow,
    "queues": _queues,
    "disk": _disk,
    "skew": _skew,
    "neighbours": _neighbours,
    "roam": _roam,
    "late": _late,
    "link": _link,
}

"""Everything that happened in a run, recorded as it happens.

Owns the facts that rules are checked against, and the queries for them. Invariant: nothing here judges; a
fact is taken back only if a node was killed before it happened (`outages`). Must not know: what is promised.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from brokerweave.sim.promises import Promises
from brokerweave.sim.watching import Key
from brokerweave.sim.world import World


@dataclass(slots=True)
class ModelPublication:
    payload: bytes
    client: str
    number: int
    site: str
    topic: str
    qos: int
    retain: bool
    is_will: bool
    at: float
    acknowledged: bool = False
    late_answers: int = 0
    """Those of its node when it was made."""
    resent: int = 0
    sites: list[str] = field(default_factory=list)
    """Where it was sent to: more than one if its publisher lost its site."""
    keys: list[Key] = field(default_factory=list)
    """The numbers its own node gave it: more than one if its publisher sent it again."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A message was at a node."""

    at: float
    key: Key
    came_from: str | None
    local: bool
    repair: bool = False
    """It came to repair an index, not as a message of its own."""
    acted: bool = True
    """It went on. A flood that only passes by is not remembered over a kill, and need not be."""
    flood: bool = False
    """It came once more, after a link had failed that it waited for."""


@dataclass(slots=True)
class NodeEnd:
    """A node went down."""

    at: float
    graceful: bool
    mid_write: bool
    disk_failed: bool
    ever_failed: bool
    """The disk refused something since the node started; what injectors noted then is not made up for."""
    held: frozenset[bytes]
    """Pending messages of its injectors that are on disk."""
    disk_kept: bool = True
    restarted: float = inf


UNREST_SECONDS = 60.0
"""How long what failed may be felt by strategies that promise no more than their best effort."""


class Facts:
    def __init__(
        self,
        world: World,
        promises: Promises,
        allowances: Counter[str],
        *,
        cluster: bool,
        cyclic: bool,
        returns: bool = False,
        relays: bool = False,
        best_effort: bool = False,
    ) -> None:
        """`cluster`: whether nodes run with `delivery = "cluster"`. `cyclic`: whether they take care of
        cycles. `returns`: whether messages come back to the node where they were published, to be passed on
        there. `relays`: whether nodes pass messages on by plans. `best_effort`: whether they may lose what is
        on its way when something fails."""
        self.world = world
        self.promises = promises
        self.allowances = allowances
        """How often something was let pass, by reason."""
        self.cluster = cluster
        self.cyclic = cyclic
        self.returns = returns
        self.relays = relays
        self.best_effort = best_effort
        self.barriers: dict[str, bool] = {}
        """Of all nodes: which run with `subscribe = "barrier"`."""
        self.counts: Counter[str] = Counter()
        # Messages
        self.publications: dict[bytes, ModelPublication] = {}
        self.visits: defaultdict[tuple[str, bytes], list[Visit]] = defaultdict(list)
        self.takes: defaultdict[tuple[str, bytes], list[float]] = defaultdict(list)
        """When a broker got a message from its node."""
        self.first_hand: defaultdict[tuple[str, bytes], list[float]] = defaultdict(list)
        """When it got one from its publisher."""
        self.given: Counter[tuple[str, bytes]] = Counter()
        """How often a client was given a message, by a broker or by a node."""
        self.given_at: defaultdict[tuple[str, bytes], set[str]] = defaultdict(set)
        """The sites whose brokers had it for a client."""
        self.deliveries: Counter[tuple[str, bytes]] = Counter()
        """How often a client got it."""
        self.drops: defaultdict[bytes, list[tuple[str, str]]] = defaultdict(list)
        self.spilled: set[bytes] = set()
        """What an outbox had on disk only."""
        self.waiting: set[tuple[str, bytes]] = set()
        """What a node keeps until it knows its route."""
        self.bypassed: set[bytes] = set()
        """What went to others because a relay died."""
        self.waited: dict[tuple[str, bytes | int], float] = {}
        """Since when a node kept something until it knew its route: by payload, of deletions by version."""
        self.unread: defaultdict[bytes, dict[str, float]] = defaultdict(dict)
        """The nodes with a pending message that were started while their disks failed, and when."""
        # Nodes, brokers and links
        self.starts: dict[str, float] = {}
        self.ends: defaultdict[str, list[NodeEnd]] = defaultdict(list)
        self.broker_losses: defaultdict[str, list[float]] = defaultdict(list)
        """When a broker lost its state."""
        self.injector_losses: defaultdict[str, list[float]] = defaultdict(list)
        """When a node lost its broker."""
        self.link_failures: list[tuple[float, frozenset[str]]] = []
        self.rewired: list[float] = []
        # What can be asked of the sites now
        self.late_answers: Callable[[str], int] = lambda node: 0
        """With links on demand: publications that a node acknowledged because the time for it was up."""

    @property
    def now(self) -> float:
        return self.world.now

    def drop(self, node: str, where: str, payloads: list[bytes], cause: str) -> None:
        for payload in payloads:
            self.drops[payload].append((node, cause))
            self.world.note(node, f"drops {payload.decode()} from {where}: {cause}")

    def had(self, node: str, payload: bytes) -> bool:
        """Whether a node had a message as such."""
        return any(not visit.repair for visit in self.visits[node, payload])

    def ends_since(self, node: str, since: float) -> list[NodeEnd]:
        """The ends from which a node came back after `since`: what it had written may arrive after it."""
        return [end for end in self.ends[node] if end.restarted >= since]

    def killed_since(self, node: str, since: float) -> bool:
        return any(not end.graceful for end in self.ends[node] if end.at >= since)

    def keeps_ids(self, end: NodeEnd) -> bool:
        """Whether a node knows after this end which QoS 2 publications it has forwarded."""
        if not end.disk_kept or end.disk_failed:
            return False
        return end.graceful or self.promises.ids_survive_kill

    def keeps_window(self, end: NodeEnd) -> bool:
        """Whether a node knows after this end which messages of other origins it has taken."""
        if not end.disk_kept or end.disk_failed:
            return False
        return end.graceful or self.promises.window_survives_kill

    def may_be_lost(self, payload: bytes) -> bool:
        since = self.publications[payload].at - UNREST_SECONDS
        ended = any(end.restarted >= since for ends in self.ends.values() for end in ends)
        return self.best_effort and (ended or bool(self.links_failed_since(since)))

    def links_failed_since(self, since: float) -> int:
        return len({link for at, link in self.link_failures if at >= since})

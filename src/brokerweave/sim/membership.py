"""Measures membership: many members in virtual time, on a network that loses datagrams.

Owns the scenario: all members know each other; nothing happens for a while; metadata changes; members crash
and return, one after another. Invariant: a run is a pure function of its options. Must not know: real time,
how results are shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from brokerweave.errors import ConfigError
from brokerweave.membership import events
from brokerweave.membership.members import MemberState
from brokerweave.membership.presets import PRESETS
from brokerweave.membership.wire import TableEntry
from brokerweave.sim.datagrams import DatagramNetwork, Faults
from brokerweave.sim.membership_node import MemberNode
from brokerweave.sim.world import World

SETTLE = 5.0
"""Seconds before anything is measured."""
PATIENCE = 120.0
"""Seconds after which something that not all know counts as never known."""


@dataclass(frozen=True, slots=True)
class MembershipOptions:
    nodes: int = 100
    preset: str = "lan"
    loss: float = 0.05
    doubled: float = 0.01
    delay: float = 0.0005
    jitter: float = 0.002
    duration: float = 60.0
    """Virtual seconds in which nothing happens but loss."""
    crashes: int = 20
    changes: int = 20
    """Of metadata."""
    seed: int = 1

    def check(self) -> None:
        if self.preset not in PRESETS:
            raise ConfigError(f"--preset should be one of {', '.join(PRESETS)}; not {self.preset!r}")
        if self.nodes < 2:
            raise ConfigError("membership needs two nodes")
        if not 0 <= self.loss < 1:
            raise ConfigError("--loss should be a part, from 0 to less than 1")


@dataclass(slots=True)
class Spread:
    """How long news took until every living member had it: seconds."""

    times: list[float] = field(default_factory=list)
    never: int = 0

    def summary(self) -> dict[str, float | int | None]:
        times = sorted(self.times)
        return {
            "count": len(times) + self.never,
            "never": self.never,
            "median": percentile(times, 0.5),
            "p99": percentile(times, 0.99),
            "worst": round(times[-1], 6) if times else None,
        }


@dataclass(slots=True)
class MembershipResult:
    options: dict[str, Any]
    bytes_per_node_second: float = 0.0
    """Of datagrams' contents, sent, while nothing happened."""
    datagrams_per_node_second: float = 0.0
    stream_bytes_per_node_second: float = 0.0
    """Of exchanges."""
    largest_datagram: int = 0
    false_suspicions: int = 0
    """Members that began to suspect one that lived; each of them counts."""
    false_deaths: int = 0
    """Members that held one for dead that lived; each of them counts."""
    crash_known: dict[str, Any] = field(default_factory=dict)
    return_known: dict[str, Any] = field(default_factory=dict)
    change_known: dict[str, Any] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    virtual_seconds: float = 0.0
    events: int = 0


class MembershipRun:
    def __init__(
        self, options: MembershipOptions, progress: Callable[[float], None] = lambda part: None
    ) -> None:
        options.check()
        self.options = options
        self.result = MembershipResult(asdict(options))
        self.world = World(str(options.seed))
        self.network = DatagramNetwork(
            self.world, Faults(options.loss, options.doubled, options.delay, options.jitter)
        )
        self._progress = progress
        self._random = self.world.random("scenario")
        self._waiting: set[str] = set()
        self._awaited: tuple[type[events.MembershipEvent], str] | None = None
        self._last = 0.0
        self._acquainted = False
        preset = PRESETS[options.preset]
        self.nodes = [
            MemberNode(self.world, self.network, number, preset, self._happened)
            for number in range(options.nodes)
        ]
        self._by_id = {node.id: node for node in self.nodes}

    def run(self) -> MembershipResult:
        if not self._acquainted:
            self.acquaint()
        self.let_pass(SETTLE)
        self._quiet()
        changes, crashes, returns = Spread(), Spread(), Spread()
        for number in range(self.options.changes):
            self._change(changes, number)
        for _ in range(self.options.crashes):
            self._crash(crashes, returns)
        result = self.result
        result.change_known = changes.summary()
        result.crash_known = crashes.summary()
        result.return_known = returns.summary()
        result.largest_datagram = self.network.largest
        for node in self.nodes:
            for cause, count in node.swim.refused.items():
                result.refused[cause] = result.refused.get(cause, 0) + count
        result.virtual_seconds = round(self.world.elapsed, 3)
        result.events = self.world.events
        return result

    def acquaint(self) -> None:
        """All begin, knowing each other."""
        self._acquainted = True
        for node in self.nodes:
            node.start()
        table = [TableEntry(MemberState.ALIVE, 0, node.claim()) for node in self.nodes]
        for node in self.nodes:
            node.act(lambda now, node=node: node.swim.merge(table, "sim", now))  # type: ignore[misc]

    def let_pass(self, seconds: float) -> None:
        self.world.run(self.world.elapsed + seconds)

    def _quiet(self) -> None:
        network, duration = self.network, self.options.duration
        before, datagrams = network.bytes, network.datagrams
        streams = sum(node.stream_bytes for node in self.nodes)
        for step in range(100):
            self.let_pass(duration / 100)
            self._progress((step + 1) / 100)
        node_seconds = duration * len(self.nodes)
        result = self.result
        result.bytes_per_node_second = round((network.bytes - before) / node_seconds, 3)
        result.datagrams_per_node_second = round((network.datagrams - datagrams) / node_seconds, 3)
        exchanged = sum(node.stream_bytes for node in self.nodes) - streams
        result.stream_bytes_per_node_second = round(exchanged / node_seconds, 3)

    def _change(self, spread: Spread, number: int) -> None:
        node = self._random.choice(self.nodes)
        node.act(lambda now: node.swim.set_meta(b"%d" % number, now))
        self._measure(spread, events.Changed, node)

    def _crash(self, crashes: Spread, returns: Spread) -> None:
        node = self._random.choice(self.nodes)
        self.let_pass(self._random.random())
        node.crash()
        self._measure(crashes, events.Died, node)
        self.let_pass(1.0)
        node.start()
        seed = self._random.choice([other for other in self.nodes if other is not node])
        node.act(lambda now: node.swim.join([seed.address], now))
        self._measure(returns, events.Joined, node)

    # Watching

    def _measure(self, spread: Spread, awaited: type[events.MembershipEvent], about: MemberNode) -> None:
        """Wait until all others have heard."""
        begun = self.world.elapsed
        self._awaited = (awaited, about.id)
        self._waiting = {node.id for node in self.nodes if node.host.up and node is not about}
        while self._waiting and self.world.elapsed < begun + PATIENCE:
            self.let_pass(0.05)
        if self._waiting:
            spread.never += 1
        else:
            spread.times.append(self._last - begun)
        self._awaited = None

    def _happened(self, node: MemberNode, event: events.MembershipEvent) -> None:
        member = event.member
        if (type(event), member.id) == self._awaited:
            self._waiting.discard(node.id)
            self._last = self.world.elapsed
        about = self._by_id[member.id]
        lives = about.host.up and about.boot == member.boot
        if lives and isinstance(event, events.Died):
            self.result.false_deaths += 1
            self.world.note(node.id, f"declared {member.id} dead, which lives")
        elif lives and isinstance(event, events.Suspected):
            self.result.false_suspicions += 1


def percentile(ordered: list[float], part: float) -> float | None:
    """The smallest value that at least this part is not above."""
    if not ordered:
        return None
    return round(ordered[min(len(ordered) - 1, max(0, -int(-part * len(ordered) // 1) - 1))], 6)

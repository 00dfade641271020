"""The five experiments of the overlay's thesis (MQTT2EdgePeer, 4.2): what is varied, who is compared.

Owns levels, contenders and targets. Where the thesis leaves something open: every client is on all topics;
while nodes are added (4.2.4) clients are not, since it speaks of new nodes without interest; a client
publishes once a second to each topic, which gives its bandwidths; nodes have an uplink of 1 Gbit/s, since its
nodes shared one server, and its latencies leave no room for a slower one. Invariant: for one seed all
contenders have the same sites, moments and delays. Must not know: how a run is made or shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from brokerweave.errors import ConfigError
from brokerweave.plugin import OptionValue
from brokerweave.sim.overlay_run import OverlayOptions

SHADOWS = 3
UNLIMITED = 65_535
"""A fan-out that no number of subscribers reaches."""
SHARE = 0.5
"""The part of its uplink that a node may use where the fan-out is chosen."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A strategy with its options, under the name that tables show."""

    name: str
    strategy: str
    options: tuple[tuple[str, OptionValue], ...] = ()


def guided(fan_out: int | str) -> Contender:
    shown = "∞" if fan_out == UNLIMITED else fan_out
    name = f"guided {fan_out}" if fan_out == "auto" else f"guided F={shown}"
    return Contender(name, "guided", (("fan_out", fan_out), ("shadows", SHADOWS)))


DIRECT = Contender("direct", "direct", (("shadows", SHADOWS),))
SCRIBE = Contender("scribe", "scribe")
STAR = Contender("star", "brokerweave.bench.overlay.star:Star")
AUTO = guided("auto")
FIXED = (guided(2), guided(3), guided(5), guided(10), guided(25))
"""What the chosen fan-out is compared with, and `DIRECT`, which is F = ∞."""
CONTENDERS = (DIRECT, *FIXED, AUTO, SCRIBE, STAR)
BASELINES = (SCRIBE.name, STAR.name)


@dataclass(frozen=True, slots=True)
class Level:
    name: str
    options: OverlayOptions


@dataclass(frozen=True, slots=True)
class Experiment:
    number: str
    title: str
    figures: tuple[str, str]
    """The thesis's figures of latency and bandwidth."""
    levels: tuple[Level, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """A ratio to the first baseline that is to be reached: of latency, of bytes, or of recovery."""

    experiment: str
    contender: str
    quantity: str
    most: float


LATENCY, BYTES, RECOVERY = "latency", "bytes", "recovery"
TARGETS = (
    Target("4.2.1", "guided F=5", BYTES, 0.60),
    Target("4.2.2", "guided F=5", BYTES, 0.50),
    Target("4.2.3", "guided F=5", BYTES, 0.30),
    Target("4.2.1", "direct", LATENCY, 0.60),
    Target("4.2.3", "direct", LATENCY, 0.60),
    Target("4.2.4", "direct", LATENCY, 0.60),
    Target("4.2.4", "direct", BYTES, 0.60),
    Target("4.2.5", "direct", RECOVERY, 0.06),
)
CHOICES = ("4.2.1", "4.2.2", "4.2.3", "4.2.4", "4.2.5")


def experiments(chosen: Iterable[str], nodes: int, uplink: float, *, quick: bool = False) -> list[Experiment]:
    """Those of these numbers, in this order. `uplink`: of a node, in bits a second. `quick`: only the first
    and the last level of each."""
    base = OverlayOptions(
        nodes=nodes,
        subscribers=nodes,
        publishers=max(round(0.28 * nodes), 1),
        topics=7,
        payload=4096,
        seconds=1.0,
        uplink=uplink,
    )
    made = {each.number: each for each in _all(base)}
    for number in chosen:
        if number not in made:
            raise ConfigError(f"there is no experiment {number!r}; there are {', '.join(CHOICES)}")
    picked = [made[number] for number in dict.fromkeys(chosen)]
    if quick:
        picked = [replace(each, levels=each.levels[:: max(len(each.levels) - 1, 1)]) for each in picked]
    return picked


def _all(base: OverlayOptions) -> list[Experiment]:
    nodes = base.nodes

    def levels(of: Mapping[str, OverlayOptions]) -> tuple[Level, ...]:
        return tuple(Level(name, options) for name, options in of.items())

    shares = {part: max(round(part * nodes / 100), 1) for part in (25, 50, 75, 100)}
    publishing = {part: max(round(part * nodes / 100), 1) for part in (2, 10, 20, 28)}
    smallest = max(nodes // 5, 1)
    before = 4.0
    """Seconds of publications before the kill, which is at 30 s as in the thesis."""
    return [
        Experiment(
            "4.2.1",
            "subscribers",
            ("Fig. 4.1", "Fig. 4.2"),
            levels({f"{part} %": replace(base, subscribers=count) for part, count in shares.items()}),
        ),
        Experiment(
            "4.2.2",
            "publishers",
            ("Fig. 4.3", "Fig. 4.4"),
            levels({f"{part} %": replace(base, publishers=count) for part, count in publishing.items()}),
        ),
        Experiment(
            "4.2.3",
            "topics",
            ("Fig. 4.5", "Fig. 4.6"),
            levels({str(count): replace(base, topics=count) for count in (1, 3, 5, 7)}),
        ),
        Experiment(
            "4.2.4",
            "nodes",
            ("Fig. 4.7", "Fig. 4.8"),
            levels(
                {
                    str(count): replace(base, nodes=count, subscribers=smallest)
                    for count in range(smallest, nodes + 1, smallest)
                }
            ),
        ),
        Experiment(
            "4.2.5",
            "all coordinators or roots killed at 30 s",
            ("Fig. 4.9", "Fig. 4.9"),
            levels(
                {
                    "30 s": replace(
                        base, kill=True, rate=0.5, warm_up=before, seconds=6.0, settle=30.0 - before
                    )
                }
            ),
        ),
    ]


def jobs(
    chosen: Sequence[Experiment], contenders: Sequence[Contender], seeds: Sequence[int]
) -> list[OverlayOptions]:
    """Every run once, the longest first: some levels are the same in several experiments."""
    every = [
        of(level, contender, seed)
        for each in chosen
        for level in each.levels
        for contender in contenders
        for seed in seeds
    ]
    return sorted(dict.fromkeys(every), key=_work, reverse=True)


def of(level: Level, contender: Contender, seed: int) -> OverlayOptions:
    return with_contender(level.options, contender, seed)


def with_contender(options: OverlayOptions, contender: Contender, seed: int) -> OverlayOptions:
    """Where the fan-out is chosen, it is for the nodes' uplink."""
    limits = (("bandwidth", options.uplink / 8), ("share", SHARE)) if contender == AUTO else ()
    chosen = (*contender.options, *limits)
    return replace(options, strategy=contender.strategy, strategy_options=chosen, seed=seed)


def _work(options: OverlayOptions) -> float:
    rounds = (options.warm_up + options.seconds) * options.rate
    return options.subscribers * options.publishers * options.topics * rounds

"""What a measurement does: where brokers are, which clients sit at them, how often they publish, for how
long.

Owns the scenario file and its checks. Invariants: a scenario is plain data, equal to what `to_dict` and
`from_dict` make of it, so that a run's folder says all of it; everybody's topic has one group of publishers
and one QoS at each place. Must not know: how brokers are started or load is made.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from brokerweave.bench.folder import HEADER, L_CLIENT, T_CLIENT, Times
from brokerweave.config import Address, nearest
from brokerweave.config.values import BadValue
from brokerweave.errors import ConfigError
from brokerweave.lab import BROKERS
from brokerweave.plugin import OptionValue, Strategy, options_of, registry

FRONTS = ("none", "node", "haproxy")
WAYS = ("tcp", "unix")
WITHOUT_NODES = ("none", "bridges")
"""Ways to join places that are no strategy of nodes."""
MOST_CLIENTS = 50_000
"""More than one machine has ports for."""
MOST_WORKERS = 64
LEAST_QUOTA = 0.001
"""What the kernel can hold a process to."""
LEAST_INTERVAL, LONGEST = 1e-6, 1e6
"""Seconds, of anything."""
LEAST_BANDWIDTH, MOST_BANDWIDTH = 0.01, 100_000.0
"""Megabits a second."""
LARGEST_PAYLOAD, LONGEST_TOPIC = 1_000_000, 1_000
"""Bytes; together less than a packet that clients take."""
_Made = TypeVar("_Made")

PRESETS = {"short": Times(1, 4, 1), "paper": Times(10, 60, 10)}
"""Clients publish in all three parts; only the middle one counts (ILDM 6.1)."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where clients connect: at a broker that runs (`address`), or at one to be started here.

    `quota` is the share of a core that the broker may use, and what stands in front of it the same again; 0:
    all it can get. `front`: a node or HAProxy between clients and broker, and `way` how it reaches the broker
    (only Mosquitto has a Unix socket).
    """

    name: str
    address: str = ""
    broker: str = "mosquitto"
    quota: float = 0.0
    front: str = "none"
    way: str = "tcp"


@dataclass(frozen=True, slots=True)
class ClientGroup:
    """Clients of one topic at one place."""

    place: str
    topic: str
    publishers: int = 0
    subscribers: int = 0
    latency: bool = False

    @property
    def kind(self) -> int:
        return L_CLIENT if self.latency else T_CLIENT


@dataclass(frozen=True, slots=True)
class Kill:
    """The end of a place: every process of it at once, `at` seconds after the window's begin."""

    place: str
    at: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """One measurement, or with the interval varied, a search."""

    name: str
    places: tuple[Place, ...]
    groups: tuple[ClientGroup, ...]
    times: Times = PRESETS["short"]
    interval: float = 0.1
    """Seconds between two messages of one t-publisher."""
    latency_interval: float = 1.0
    """Seconds between two messages of one l-publisher."""
    qos: int = 0
    subscriber_qos: int = 0
    payload: int = 32
    """Bytes, at least 20: who sent it, its number, and when."""
    join: str = "none"
    """How the places cooperate: by their own bridges, or by nodes with a strategy (a name or module:Class).
    In a row, unless the strategy needs another wiring."""
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    """Of the strategy, as in the section of a node that has its name."""
    workers: int = 2
    """Processes for t-clients; l-clients have one of their own, so that no load delays their clocks."""
    tick: float = 0.002
    """Seconds between two looks of t-clients at their sockets, as if they were on another machine: whoever
    writes to them never pays for waking them. 0: at once."""
    eager: bool = False
    """With a tick: read at once whatever arrives, as real clients do; only sending keeps the tick."""
    bandwidth: float = 0.0
    """Megabits a second that the network of the places carries, in all; 0: as much as the machine can."""
    kills: tuple[Kill, ...] = ()
    """With any, clients keep their sessions, come back at another place, and send again what was not
    acknowledged."""

    def __post_init__(self) -> None:
        _check(self)

    @property
    def publishers(self) -> int:
        """t-publishers in all."""
        return sum(group.publishers for group in self.groups if not group.latency)

    @property
    def rate(self) -> float:
        """Messages a second of all t-publishers together."""
        return self.publishers / self.interval

    @property
    def sp_ratio(self) -> float:
        """Definition 1: subscribers of a publication's topic, averaged over the publishers."""
        return sp_ratio(self.groups)

    def every(self, interval: float) -> Scenario:
        """The same with another interval."""
        return replace(self, interval=interval)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def sp_ratio(groups: tuple[ClientGroup, ...]) -> float:
    publishers, subscribers = Counter[str](), Counter[str]()
    for group in groups:
        if not group.latency:
            publishers[group.topic] += group.publishers
            subscribers[group.topic] += group.subscribers
    total = publishers.total()
    return sum(count * subscribers[topic] for topic, count in publishers.items()) / total if total else 0.0


def joined_by(join: str) -> type[Strategy] | None:
    """The strategy whose nodes join places; None if it is not nodes that do."""
    if join in WITHOUT_NODES:
        return None
    try:
        return registry.strategy(join)
    except ConfigError as error:
        raise ConfigError(f"join: {error}; or {', '.join(WITHOUT_NODES)}") from None


def load_file(path: Path) -> Scenario:
    """The scenario in a TOML file; `ConfigError` in one line if it is not one."""
    try:
        found = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    found.setdefault("name", path.stem)
    try:
        return from_dict(found)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def from_dict(found: Mapping[str, Any]) -> Scenario:
    """A scenario from what a file or a run's folder says. `times` may be the name of a preset; `place` and
    `clients` and `kill` are what TOML calls the lists."""
    values = dict(found)
    for short, (full, kind) in _LISTS.items():
        given = values.pop(short, values.pop(full, ()))
        if not isinstance(given, list | tuple) or not all(isinstance(each, Mapping) for each in given):
            raise ConfigError(f"{short}: is a list of tables, each of them below a line [[{short}]]")
        values[full] = tuple(_made(kind, each, short) for each in given)
    if "times" in values:
        values["times"] = times(values["times"])
    return _made(Scenario, values, "scenario")


_LISTS: Mapping[str, tuple[str, type[Place | ClientGroup | Kill]]] = {
    "place": ("places", Place),
    "clients": ("groups", ClientGroup),
    "kill": ("kills", Kill),
}


def times(given: object) -> Times:
    """A preset's, or those in "1+4+1", or in a table."""
    if isinstance(given, Mapping):
        return _made(Times, given, "times")
    if isinstance(given, str) and given in PRESETS:
        return PRESETS[given]
    try:
        warm_up, measured, cool_down = map(float, str(given).split("+"))
    except ValueError:
        known = ", ".join(PRESETS)
        raise ConfigError(f"times: {given!r} is not like 1+4+1, and no preset; known: {known}") from None
    return Times(warm_up, measured, cool_down)


def _made(kind: type[_Made], values: Mapping[str, Any], called: str) -> _Made:
    known = {field.name: str(field.type) for field in fields(kind)}  # type: ignore[arg-type]
    for key, value in values.items():
        if key not in known:
            names = {full: short for short, (full, _) in _LISTS.items()}
            meant = nearest(key, [names.get(each, each) for each in known])
            raise ConfigError(f"unknown key {key!r} in {called}{meant}")
        if (wanted := _KINDS.get(known[key])) and type(value) not in wanted[1:]:
            raise ConfigError(f"{called}: {key} is {wanted[0]}, not {value!r}")
    try:
        return kind(**values)
    except TypeError as error:
        missing = str(error).partition("argument")[2].lstrip("s: ") or str(error)
        raise ConfigError(f"{called} lacks {missing}") from None


_KINDS: Mapping[str, tuple[Any, ...]] = {
    "str": ("a text", str),
    "bool": ("true or false", bool),
    "int": ("a whole number", int),
    "float": ("a number", float, int),
}
"""What the fields of a scenario are called, and what TOML may give for them."""


def _check(scenario: Scenario) -> None:
    names = [place.name for place in scenario.places]
    spans = scenario.times
    counts = [count for group in scenario.groups for count in (group.publishers, group.subscribers)]
    wrong = ""
    if not names:
        wrong = "no place was given"
    elif len(set(names)) < len(names):
        wrong = "two places have one name"
    elif min(counts, default=0) < 0 or sum(counts) > MOST_CLIENTS:
        wrong = f"publishers and subscribers must be at least 0, and at most {MOST_CLIENTS:,} in all"
    elif scenario.publishers == 0 or scenario.sp_ratio == 0:
        wrong = "there must be a t-publisher, and a subscriber for it"
    elif not HEADER.size <= scenario.payload <= LARGEST_PAYLOAD:
        wrong = f"payload must be at least {HEADER.size} bytes, and at most {LARGEST_PAYLOAD:,}"
    elif not all(
        LEAST_INTERVAL <= each <= LONGEST for each in (scenario.interval, scenario.latency_interval)
    ):
        wrong = "intervals must be above 0: from a microsecond to a million seconds"
    elif not 0 < spans.measured <= LONGEST or not 0 <= scenario.tick <= 1:
        wrong = "the measured time must be above 0, and a tick from 0 to 1 s"
    elif not (0 <= spans.warm_up <= LONGEST and 0 <= spans.cool_down <= LONGEST):
        wrong = "times must not be below 0"
    elif scenario.qos not in (0, 1, 2) or scenario.subscriber_qos not in (0, 1, 2):
        wrong = "qos must be 0, 1 or 2"
    elif not 1 <= scenario.workers <= MOST_WORKERS:
        wrong = f"workers must be at least 1, and at most {MOST_WORKERS}"
    elif scenario.bandwidth and not LEAST_BANDWIDTH <= scenario.bandwidth <= MOST_BANDWIDTH:
        wrong = f"bandwidth is in Mbit/s, from {LEAST_BANDWIDTH} to {MOST_BANDWIDTH:,.0f}; 0: no bound"
    elif scenario.bandwidth and any(place.address for place in scenario.places):
        wrong = "bandwidth is for places that are started here, without an address"
    if wrong:
        raise ConfigError(wrong)
    _check_options(scenario)
    for place in scenario.places:
        _check_place(place, scenario.join)
    kinds: dict[str, bool] = {}
    for group in scenario.groups:
        if group.place not in names:
            raise ConfigError(f"clients of {group.topic}: no place is called {group.place!r}")
        if not 0 < len(group.topic.encode()) <= LONGEST_TOPIC or set("+#\0") & set(group.topic):
            raise ConfigError(f"topic: a name without + and #, of 1 to {LONGEST_TOPIC:,} bytes")
        if kinds.setdefault(group.topic, group.latency) != group.latency:
            raise ConfigError(f"topic {group.topic} has clients for throughput and for latency")
    _check_kills(scenario, names)


def _check_options(scenario: Scenario) -> None:
    strategy = joined_by(scenario.join)
    known = options_of(strategy) if strategy is not None else {}
    if not isinstance(scenario.options, Mapping):
        raise ConfigError("options: is a table of the strategy's options")
    for name, value in scenario.options.items():
        if name not in known:
            raise ConfigError(f"options: {scenario.join} has no option {name!r}{nearest(name, known)}")
        if problem := known[name].problem(value):
            raise ConfigError(f"options: {name} should be {problem}; not {value!r}")


def _check_place(place: Place, join: str) -> None:
    wrong = ""
    if place.front not in FRONTS:
        wrong = f"front {place.front!r}; known: {', '.join(FRONTS)}"
    elif place.front == "haproxy" and join not in WITHOUT_NODES:
        wrong = f'front "haproxy" is for a broker without a node; with join "{join}" each place has one'
    elif place.way not in WAYS:
        wrong = f"way {place.way!r}; known: {', '.join(WAYS)}"
    elif place.way == "unix" and (
        place.broker != "mosquitto" or (place.front == "none" and join in WITHOUT_NODES)
    ):
        wrong = 'way "unix" is for what stands in front of a mosquitto'
    elif place.quota and not LEAST_QUOTA <= place.quota <= 64:
        wrong = f"quota is a share of a core, at least {LEAST_QUOTA}; 0: all it can get"
    elif place.broker not in BROKERS:
        wrong = f"no broker is called {place.broker!r}; known: {', '.join(BROKERS)}"
    elif place.address:
        if place.quota or place.front != "none" or join != "none":
            wrong = "quota, front and join are for a broker that is started here, without an address"
        try:
            Address.parse(place.address)
        except BadValue as error:
            wrong = f"address {place.address!r}: {error}"
    if wrong:
        raise ConfigError(f"place {place.name}: {wrong}")


def _check_kills(scenario: Scenario, names: list[str]) -> None:
    for kill in scenario.kills:
        if kill.place not in names:
            raise ConfigError(f"kill: no place is called {kill.place!r}")
        if any(place.address for place in scenario.places if place.name == kill.place):
            raise ConfigError(f"kill of {kill.place}: only a place that is started here can be killed")
        if not 0 <= kill.at < scenario.times.measured:
            raise ConfigError(
                f"kill of {kill.place}: at must be within the measured {scenario.times.measured:g} s"
            )
    if scenario.kills and min(scenario.qos, scenario.subscriber_qos) == 0:
        raise ConfigError("kill: clients that come back need qos and subscriber_qos above 0")
    if scenario.kills and len({kill.place for kill in scenario.kills}) == len(names):
        raise ConfigError("kill: one place must stay")

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
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from brokerweave.bench.folder import HEADER, L_CLIENT, T_CLIENT, Times
from brokerweave.config import nearest
from brokerweave.errors import ConfigError

FRONTS = ("none", "node", "haproxy")
WAYS = ("tcp", "unix")
JOINS = ("none", "pf", "sf", "mesh", "bridges")
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
class Group:
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
    groups: tuple[Group, ...]
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
    """How the places cooperate, in a row: by nodes with a strategy, or by the brokers' own bridges."""
    workers: int = 2
    """Processes for t-clients; l-clients have one of their own, so that no load delays their clocks."""
    tick: float = 0.002
    """Seconds between two looks of t-clients at their sockets, as if they were on another machine: whoever
    writes to them never pays for waking them. 0: at once."""
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


def sp_ratio(groups: tuple[Group, ...]) -> float:
    publishers, subscribers = Counter[str](), Counter[str]()
    for group in groups:
        if not group.latency:
            publishers[group.topic] += group.publishers
            subscribers[group.topic] += group.subscribers
    total = publishers.total()
    return sum(count * subscribers[topic] for topic, count in publishers.items()) / total if total else 0.0


def load_file(path: Path) -> Scenario:
    """The scenario in a TOML file; `ConfigError` in one line if it is not one."""
    try:
        found = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
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
    for short, full in (("place", "places"), ("clients", "groups"), ("kill", "kills")):
        if short in values:
            values[full] = values.pop(short)
    values["places"] = tuple(_made(Place, each) for each in values.get("places", ()))
    values["groups"] = tuple(_made(Group, each) for each in values.get("groups", ()))
    values["kills"] = tuple(_made(Kill, each) for each in values.get("kills", ()))
    if "times" in values:
        values["times"] = times(values["times"])
    return _made(Scenario, values)


def times(given: object) -> Times:
    """A preset's, or those in "1+4+1", or in a table."""
    if isinstance(given, Mapping):
        return _made(Times, given)
    if given in PRESETS:
        return PRESETS[str(given)]
    try:
        warm_up, measured, cool_down = map(float, str(given).split("+"))
    except ValueError:
        known = ", ".join(PRESETS)
        raise ConfigError(f"times: {given!r} is not like 1+4+1, and no preset; known: {known}") from None
    return Times(warm_up, measured, cool_down)


def _made(kind: type[_Made], values: Mapping[str, Any]) -> _Made:
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise ConfigError(f"unknown key '{key}' in {kind.__name__.lower()}{nearest(key, known)}")
    try:
        return kind(**values)
    except TypeError as error:
        missing = str(error).partition("argument")[2].lstrip("s: ") or str(error)
        raise ConfigError(f"{kind.__name__.lower()} lacks {missing}") from None


def _check(scenario: Scenario) -> None:
    names = [place.name for place in scenario.places]
    wrong = ""
    if not names:
        wrong = "no place was given"
    elif len(set(names)) < len(names):
        wrong = "two places have one name"
    elif scenario.publishers == 0 or scenario.sp_ratio == 0:
        wrong = "there must be a t-publisher, and a subscriber for it"
    elif scenario.payload < HEADER.size:
        wrong = f"payload must be at least {HEADER.size} bytes"
    elif min(scenario.interval, scenario.latency_interval, scenario.times.measured) <= 0:
        wrong = "intervals and the measured time must be above 0"
    elif scenario.qos not in (0, 1, 2) or scenario.subscriber_qos not in (0, 1, 2):
        wrong = "qos must be 0, 1 or 2"
    elif scenario.join not in JOINS:
        wrong = f"join: {scenario.join!r} is unknown; known: {', '.join(JOINS)}"
    elif scenario.workers < 1:
        wrong = "workers must be at least 1"
    if wrong:
        raise ConfigError(wrong)
    for place in scenario.places:
        if place.front not in FRONTS:
            raise ConfigError(f"place {place.name}: front {place.front!r}; known: {', '.join(FRONTS)}")
        if place.way not in WAYS:
            raise ConfigError(f"place {place.name}: way {place.way!r}; known: {', '.join(WAYS)}")
        nothing_before_it = place.front == "none" and scenario.join in ("none", "bridges")
        if place.way == "unix" and (nothing_before_it or place.broker != "mosquitto"):
            raise ConfigError(f'place {place.name}: way "unix" is for what stands in front of a mosquitto')
        if not 0 <= place.quota <= 64:
            raise ConfigError(f"place {place.name}: quota is a share of a core, above 0")
    kinds: dict[str, bool] = {}
    for group in scenario.groups:
        if group.place not in names:
            raise ConfigError(f"clients of {group.topic}: no place is called {group.place!r}")
        if kinds.setdefault(group.topic, group.latency) != group.latency:
            raise ConfigError(f"topic {group.topic} has clients for throughput and for latency")
    _check_kills(scenario, names)


def _check_kills(scenario: Scenario, names: list[str]) -> None:
    for kill in scenario.kills:
        if kill.place not in names:
            raise ConfigError(f"kill: no place is called {kill.place!r}")
        if not 0 <= kill.at < scenario.times.measured:
            raise ConfigError(
                f"kill of {kill.place}: at must be within the measured {scenario.times.measured:g} s"
            )
    if scenario.kills and min(scenario.qos, scenario.subscriber_qos) == 0:
        raise ConfigError("kill: clients that come back need qos and subscriber_qos above 0")
    if scenario.kills and len({kill.place for kill in scenario.kills}) == len(names):
        raise ConfigError("kill: one place must stay")

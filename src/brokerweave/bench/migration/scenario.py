"""What happens in a migration run: regions, sites, groups of clients, and the events in their order.

Owns EMMA's eight events (VI-B.2) as data. Invariants: every site and group has a region that has round trips
to all others; a group's gateways are its own, as in the paper, where a client of the controller *is* a
gateway. The paper's own figures for the ways between regions (Fig. 4) are lost in the text; ours are stated
here. Must not know: processes, how anything is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from brokerweave.errors import ConfigError

CENTRAL, WEST, EAST = "eu-central", "eu-west", "us-east"
GLOBAL = "global"
PAYLOAD = 118
"""Bytes of a message (EMMA VI-B.3)."""
GATEWAYS, PUBLISHERS, SUBSCRIBERS = 10, 7, 1
"""Of a group: its gateways, and the clients at each."""
ROUND_TRIPS: Mapping[frozenset[str], float] = {
    frozenset({CENTRAL, WEST}): 0.020,
    frozenset({CENTRAL, EAST}): 0.080,
    frozenset({WEST, EAST}): 0.080,
}
"""Seconds; within a region what the machine itself takes, less than a millisecond."""


class EventKind(Enum):
    CLIENTS = "clients"
    """A group appears."""
    SITE = "site"
    LEAVE = "leave"
    """A group disappears."""
    STOP = "stop"
    """A site shuts down."""


@dataclass(frozen=True, slots=True)
class ScenarioEvent:
    number: int
    """As the paper has it; 0: before the first."""
    kind: EventKind
    names: tuple[str, ...]
    """Groups, or sites."""
    said: str


@dataclass(frozen=True, slots=True)
class RegionSite:
    name: str
    region: str


@dataclass(frozen=True, slots=True)
class MigrationGroup:
    """`publishers` and `subscribers` are those at each of its gateways."""

    name: str
    region: str
    topic: str
    gateways: int = 1
    publishers: int = 0
    subscribers: int = 0

    @property
    def gateway_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}-{number + 1}" for number in range(self.gateways))


@dataclass(frozen=True, slots=True)
class MigrationScenario:
    sites: tuple[RegionSite, ...]
    groups: tuple[MigrationGroup, ...]
    events: tuple[ScenarioEvent, ...]
    rate: float
    """Messages a second of each publisher."""
    qos: int
    phase: float
    """Seconds from one event to the next."""

    @property
    def regions(self) -> tuple[str, ...]:
        regions = [site.region for site in self.sites] + [group.region for group in self.groups]
        return tuple(dict.fromkeys(regions))

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(group.topic for group in self.groups))

    @property
    def publishers(self) -> int:
        return sum(group.gateways * group.publishers for group in self.groups)

    def site(self, name: str) -> RegionSite:
        return next(each for each in self.sites if each.name == name)

    def group(self, name: str) -> MigrationGroup:
        return next(each for each in self.groups if each.name == name)

    def to_dict(self) -> dict[str, Any]:
        found = asdict(self)
        found["events"] = [f"{each.number}: {each.said}" for each in self.events]
        return found


def round_trip(one: str, other: str) -> float:
    """Seconds between two regions."""
    return 0.0 if one == other else ROUND_TRIPS[frozenset({one, other})]


def eight_events(
    rate: float, qos: int, phase: float, gateways: int = GATEWAYS, publishers: int = PUBLISHERS
) -> MigrationScenario:
    """The paper's scenario. The site at the centre is there before the first event, with the controller."""
    if rate < 1:
        raise ConfigError(f"rate: a publisher sends at least one message a second; not {rate:g}")
    far = MigrationGroup("us-group", EAST, EAST, gateways, publishers, SUBSCRIBERS)
    near = MigrationGroup("eu-group", WEST, WEST, gateways, publishers, SUBSCRIBERS)
    everywhere = (
        MigrationGroup("global-us", EAST, GLOBAL, 1, 1, 1),
        MigrationGroup("global-west", WEST, GLOBAL, 1, 1, 1),
        MigrationGroup("global-central", CENTRAL, GLOBAL, 1, 0, 1),
    )
    sites = (
        RegionSite("central", CENTRAL),
        RegionSite("west-1", WEST),
        RegionSite("east", EAST),
        RegionSite("west-2", WEST),
    )
    events = (
        ScenarioEvent(0, EventKind.SITE, ("central",), "the site in eu-central is there"),
        ScenarioEvent(1, EventKind.CLIENTS, tuple(each.name for each in everywhere), "clients of global"),
        ScenarioEvent(2, EventKind.CLIENTS, (far.name,), "the us-east group"),
        ScenarioEvent(3, EventKind.SITE, ("west-1",), "a site in eu-west"),
        ScenarioEvent(4, EventKind.CLIENTS, (near.name,), "the eu-west group"),
        ScenarioEvent(5, EventKind.SITE, ("east",), "a site in us-east"),
        ScenarioEvent(6, EventKind.SITE, ("west-2",), "a second site in eu-west"),
        ScenarioEvent(7, EventKind.LEAVE, ("global-central",), "the global subscriber in eu-central leaves"),
        ScenarioEvent(8, EventKind.STOP, ("east",), "the site in us-east stops"),
    )
    return MigrationScenario(sites, (*everywhere, far, near), events, rate, qos, phase)

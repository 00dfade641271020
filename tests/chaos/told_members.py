"""Strategies with links on demand that are right by brute force: every node tells every member all it wants.

A node sends its whole set of filters, with a version, to each live member, until that has confirmed it; and
again to who comes back. It keeps what others want over a restart, and publishes nothing before it has heard
from every live member (`NOT_YET`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from brokerweave.mqtt.packets import Packet, Publish
from brokerweave.mqtt.topics import matches
from brokerweave.plugin import NOT_YET, Context, Hop, Linking, NetworkShape, Route, Strategy, Traits

WANTS, HEARD, ASKS = "wants", "heard", "asks"
LOOK_SECONDS = 0.25

Version = tuple[int, int]
"""Of a node's filters: when the node was started, and how often they changed since."""


class ToldMembers(Strategy):
    """Straight to every site that wants a topic."""

    name: ClassVar[str] = "told"
    traits: ClassVar[Traits] = Traits(NetworkShape.FULL, selective=True)
    linking: ClassVar[Linking] = Linking.ON_DEMAND

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.wanted: dict[str, dict[str, int]] = {}
        """By member: its filters, each with its QoS."""
        self.versions: dict[str, Version] = {}
        """By member: of the filters that it told this node since that was started."""
        self._own: dict[str, int] = {}
        self._version: Version = (int(context.now() * 1000), 0)
        self._confirmed: dict[str, Version] = {}
        self._live = frozenset((context.node_id,))
        self._looking = False

    # Where topics go

    def ready(self) -> bool:
        unheard = self._live - self.versions.keys() - {self.context.node_id}
        return not unheard and not self.context.searching()

    def wanting(self, topic: str) -> dict[str, int]:
        """The other sites that want a topic, each with its QoS."""
        found = {}
        for member, filters in self.wanted.items():
            qos = [qos for each, qos in filters.items() if matches(each, topic)]
            if qos:
                found[member] = max(qos)
        return found

    def route(self, topic: str, came_from: str | None) -> Route:
        if came_from is not None:
            return Route(local=any(matches(each, topic) for each in self._own))
        if not self.ready():
            self._look_later()
            return NOT_YET
        return Route(tuple(Hop(site, qos) for site, qos in sorted(self.wanting(topic).items())))

    def route_retained(self, topic: str, came_from: str | None) -> Route:
        if came_from is not None:
            return Route(local=True)
        if not self.ready():
            self._look_later()
            return NOT_YET
        everybody = sorted((self._live | self.wanted.keys()) - {self.context.node_id})
        return Route(tuple(map(Hop, everybody)))

    def _look_later(self) -> None:
        if not self._looking:
            self._looking = True
            self.context.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._looking = False
        if self.ready():
            self.context.routes_changed()
        else:
            self._look_later()

    # What this node wants

    def subscribed(self, filters: Mapping[str, int]) -> None:
        self._own.update(filters)
        self._changed()

    def unsubscribed(self, filters: Iterable[str]) -> None:
        for each in filters:
            self._own.pop(each, None)
        self._changed()

    def _changed(self) -> None:
        self._version = (self._version[0], self._version[1] + 1)
        self.context.routes_changed()
        self.context.announce(b"%d %d" % self._version)
        for member in sorted(self._live):
            self._tell(member)

    def _tell(self, member: str) -> None:
        if member != self.context.node_id:
            told = json.dumps({"version": self._version, "filters": self._own})
            self.context.send(member, Publish(WANTS, told.encode()), wait=True)

    # What others want

    def members_changed(self, live: frozenset[str]) -> None:
        came, self._live = live - self._live, live
        for member in sorted(came - {self.context.node_id}):
            self._confirmed.pop(member, None)
            self._tell(member)
        self.context.routes_changed()

    def member_announced(self, member: str, data: bytes) -> None:
        started, changed = map(int, data.split())
        if self.versions.get(member, (0, 0)) < (started, changed):
            self.context.send(member, Publish(ASKS), wait=True)

    def neighbour_up(self, neighbour: str) -> None:
        self._repeat(neighbour)

    def neighbour_down(self, neighbour: str) -> None:
        self._repeat(neighbour)

    def _repeat(self, member: str) -> None:
        """What was on its way when a link failed is lost."""
        if member in self._live and self._confirmed.get(member) != self._version:
            self._tell(member)

    def packet_arrived(self, neighbour: str, packet: Packet) -> None:
        assert isinstance(packet, Publish)
        if packet.topic == ASKS:
            self._tell(neighbour)
        elif packet.topic == HEARD:
            started, changed = json.loads(packet.payload)
            self._confirmed[neighbour] = (started, changed)
        else:
            self._hear(neighbour, json.loads(packet.payload))

    def _hear(self, member: str, told: dict[str, Any]) -> None:
        started, changed = told["version"]
        version, filters = (started, changed), told["filters"]
        self.context.send(member, Publish(HEARD, json.dumps(version).encode()), wait=True)
        if version >= self.versions.get(member, (0, 0)):
            self.versions[member] = version
            self._keep(member, filters)

    def _keep(self, member: str, filters: dict[str, int]) -> None:
        before = self.wanted.get(member, {})
        gone: dict[str, int | None] = dict.fromkeys(before.keys() - filters.keys())
        self.wanted[member] = filters
        self.context.keep(member, {**gone, **filters})
        self.context.routes_changed()

    def neighbour_recalled(self, neighbour: str, kept: Mapping[str, int]) -> None:
        self.wanted[neighbour] = dict(kept)

    def neighbour_removed(self, neighbour: str) -> None:
        self.wanted.pop(neighbour, None)
        self.versions.pop(neighbour, None)
        self.context.routes_changed()

    def needs(self, member: str) -> bool:
        return bool(self.wanted.get(member))

    def describe(self, neighbour: str) -> dict[str, int]:
        return {"filters_from": len(self.wanted.get(neighbour, ())), "filters_to": len(self._own)}


class RetainedWhereWanted(ToldMembers):
    """Retained messages go where others go; who subscribes gets from every node what that has."""

    name: ClassVar[str] = "where-wanted"
    retained_everywhere: ClassVar[bool] = False

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._came: set[str] = set()
        """Members that were away: what was on its way to them may be lost."""

    def members_changed(self, live: frozenset[str]) -> None:
        self._came |= live - self._live
        super().members_changed(live)

    def route_retained(self, topic: str, came_from: str | None) -> Route:
        return self.route(topic, came_from)

    def _keep(self, member: str, filters: dict[str, int]) -> None:
        before = {} if member in self._came else self.wanted.get(member, {})
        self._came.discard(member)
        super()._keep(member, filters)
        for each in filters.keys() - before.keys():
            self.context.send_retained(member, each)

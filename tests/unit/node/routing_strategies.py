"""Small strategies that use what the larger ones need: plans, routes that are not known yet, returning."""

from __future__ import annotations

from typing import ClassVar

from brokerweave.plugin import NOT_YET, Context, Hop, Linking, Packet, Publish, Route, Strategy

COORDINATOR = "b"


class Chain(Strategy):
    """What is published names its way in its topic: `to/b/c/d`. The rest of it travels as a plan."""

    name = "chain"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.followed: list[bytes] = []

    def route(self, topic: str, came_from: str | None) -> Route:
        if came_from is None and topic.startswith("to/"):
            return self._along(topic.removeprefix("to/").split("/"))
        return Route(local=True)

    def follow(self, topic: str, came_from: str, plan: bytes) -> Route:
        self.followed.append(plan)
        return self._along(plan.decode().split("/"))

    def route_retained(self, topic: str, came_from: str | None) -> Route:
        return self.route(topic, came_from)

    def _along(self, way: list[str]) -> Route:
        return Route((Hop(way[0], plan="/".join(way[1:]).encode()),), local=True)


class Asking(Strategy):
    """Asks a coordinator where a topic goes, and knows nothing until it has answered.

    The coordinator says that everything goes to all that are linked with who asks.
    """

    name = "asking"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.known: set[str] = set()
        self.asked: list[str] = []

    def route(self, topic: str, came_from: str | None) -> Route:
        others = tuple(Hop(n) for n in self.context.neighbours() if n != came_from)
        if self.context.node_id == COORDINATOR or topic in self.known:
            return Route(others, local=True)
        self.asked.append(topic)
        self.context.send(COORDINATOR, Publish("ask", topic.encode()))
        return NOT_YET

    def route_retained(self, topic: str, came_from: str | None) -> Route:
        return self.route(topic, came_from)

    def packet_arrived(self, neighbour: str, packet: Packet) -> None:
        assert isinstance(packet, Publish)
        topic = packet.payload.decode()
        if packet.topic == "ask":
            self.context.send(neighbour, Publish("tell", packet.payload))
        else:
            self.context.routes_changed([topic])  # before it knows: it is asked when this is over
            self.known.add(topic)


class Relaying(Asking):
    """The same, where what comes over a link has no known way either."""

    name = "relaying"

    def route(self, topic: str, came_from: str | None) -> Route:
        if came_from is None:
            return Route(tuple(Hop(n) for n in self.context.neighbours()))
        return super().route(topic, came_from)


class Rendezvous(Strategy):
    """A node that is asked first sends everything back, with a plan: its origin passes it on."""

    name = "rendezvous"
    returns: ClassVar[bool] = True

    def route(self, topic: str, came_from: str | None) -> Route:
        if came_from is None and self.context.node_id != COORDINATOR:
            return Route((Hop(COORDINATOR),))
        if self.context.node_id == COORDINATOR and came_from is not None:
            return Route((Hop(came_from, plan=b"all but me"),), local=True)
        return Route(local=True)

    def route_retained(self, topic: str, came_from: str | None) -> Route:
        return self.route(topic, came_from)

    def follow(self, topic: str, came_from: str, plan: bytes) -> Route:
        return Route(tuple(Hop(n) for n in self.context.neighbours() if n != came_from), local=True)


class Relays(Strategy):
    """Each topic has the ways that a test gives it: `b/c,d;e` goes to e, and to b, which passes it on to c
    and d by a plan; `b/c/d` goes to b, c and d, one after the other.

    A node that was given ways for a topic heeds no plan for it. Where they are None, it does not know yet.
    """

    name = "relays"
    linking: ClassVar[Linking] = Linking.ON_DEMAND
    retained_everywhere: ClassVar[bool] = False

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.ways: dict[str, str | None] = {}
        self.needed: set[str] = set()
        self.bypassed: list[tuple[str, str, bytes]] = []

    def give(self, topic: str, ways: str | None) -> None:
        self.ways[topic] = ways
        self.context.routes_changed([topic])

    def route(self, topic: str, came_from: str | None) -> Route:
        return self._along(self.ways.get(topic, "") if came_from is None else "")

    def follow(self, topic: str, came_from: str, plan: bytes) -> Route:
        return self._along(self.ways.get(topic, plan.decode()))

    def route_retained(self, topic: str, came_from: str | None) -> Route:
        return self.route(topic, came_from)

    def bypass(self, topic: str, relay: str, plan: bytes) -> Route:
        self.bypassed.append((topic, relay, plan))
        return self._along(plan.decode())

    def needs(self, member: str) -> bool:
        return member in self.needed

    def _along(self, ways: str | None) -> Route:
        if ways is None:
            return NOT_YET
        split = [way.partition("/") for way in ways.split(";") if way]
        hops = (Hop(there, plan=plan.replace(",", ";").encode()) for there, _, plan in split)
        return Route(tuple(hops), local=True)

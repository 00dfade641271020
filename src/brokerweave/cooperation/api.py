"""The plug-in API: what a cooperation strategy or any other listener is, and what a node gives it.

Owns the names of ILDM's Table 1 in Python's manner (docs/plugins.md has the mapping). Invariants: a
strategy is asked about topics, never about messages, and its answers are cached until it says
`context.routes_changed()`; a listener pays only for the packets it asks for. Must not know: sockets,
clocks, the node's own classes. `pf` and `sf` use nothing that is not on this page.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Protocol

from brokerweave.mqtt.packets import Packet, PacketType


@dataclass(frozen=True, slots=True)
class Hop:
    """A neighbour that wants a topic, and the highest QoS anyone behind it asked for."""

    neighbour: str
    qos: int = 2
    """-1: nobody asked there, it only keeps messages for others (`holds`)."""
    holds: tuple[str, ...] = ()
    """Nodes for whose clients the neighbour keeps QoS 1 and 2, should they miss it."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a topic goes next.

    `local` asks for the topic to be handed to the node's own broker. It matters only for what came
    over a link: what a local client publishes is at the local broker already.
    """

    hops: tuple[Hop, ...] = ()
    local: bool = False
    holds: tuple[str, ...] = ()
    """Nodes for whose clients this node itself keeps what local clients publish."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A moment in what one node publishes, by lane."""

    epoch: int
    sequences: tuple[int, ...]
    """The last that the node gave to publications of its own."""
    sent: tuple[int, ...] = ()
    """The last of the runs that it has put into the lanes to the neighbour that is told."""


class Wiring(enum.Enum):
    """How a strategy needs its nodes to be linked."""

    TREE = "tree"
    """In any way: of links that make a cycle the node leaves some out, so that the strategy sees a tree."""
    STAR = "star"
    """Every node with one in the middle, whose id sorts first."""
    FULL = "full"
    """Every node with every other, so that a message takes one hop."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a strategy declares of itself: what the simulator holds it to, how networks are built for it.

    The defaults are what every strategy promises: a publication reaches all sites where somebody wants it.
    """

    wiring: Wiring = Wiring.TREE
    selective: bool = False
    """A publication goes to no site where nobody wants it."""
    keeps_for_absent: bool = False
    """Clients that lose their site get at another what they missed: the node keeps it for them. For
    `Wiring.FULL` only."""
    counts_told: tuple[str, ...] = ()
    """Which of `Strategy.counters` count filters, or clients, that neighbours were told of."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Context(Protocol):
    """What a node offers its strategy. Time and randomness come from here, so that runs can be replayed."""

    @property
    def node_id(self) -> str: ...

    @property
    def random(self) -> Random: ...

    def now(self) -> float:
        """Seconds on a clock that never goes back."""

    def neighbours(self) -> tuple[str, ...]:
        """Ids of the neighbours that get messages: in the tree, or failed and not replaced yet."""

    def send(self, neighbour: str, packet: Packet) -> None:
        """Send a control packet, in order with every other one to this neighbour.

        Not repeated after a failure: while a link is down packets are dropped, and `neighbour_up`
        is the moment to tell the neighbour everything it needs to know.
        """

    def keep(self, neighbour: str, changes: Mapping[str, int | None]) -> None:
        """Remember numbers by name for a neighbour, over a crash as well (None: no longer).

        After a restart `neighbour_recalled` gives them back, so that messages go on being owed to a
        neighbour before it has said again what it wants.
        """

    def option(self, name: str) -> float:
        """A number from the section of the configuration that has the strategy's name."""

    def cut(self, neighbour: str) -> Cut:
        """Where this node stands: what it routed so far, it routed by the strategy's answers so far."""

    def routes_changed(self) -> None:
        """Forget every cached answer of `route`."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer: ...


class Strategy:
    """A cooperation algorithm. Override what you need; each default does nothing."""

    name: ClassVar[str]
    traits: ClassVar[Traits] = Traits()

    def __init__(self, context: Context) -> None:
        self.context = context
        self.counters: dict[str, int] = {}
        """Whatever is worth counting; `status` shows it."""

    def route(self, topic: str, came_from: str | None) -> Route:
        """Where does `topic` go that `came_from` a neighbour (or None: a local client)?

        Called once per topic and origin, then cached. Never name `came_from` among the hops.
        """
        raise NotImplementedError(f"strategy {type(self).__name__} must say where a topic goes")

    def route_retained(self, topic: str, came_from: str | None) -> Route:
        """The same for a message to be retained; by default to everybody (ILDM 4.5.2)."""
        others = tuple(Hop(n) for n in self.context.neighbours() if n != came_from)
        return Route(others, local=True)

    def subscribed(self, filters: Mapping[str, int]) -> None:
        """Local clients now want these filters, each at the highest QoS among them: new or changed."""

    def unsubscribed(self, filters: Iterable[str]) -> None:
        """Of each of these filters the last local client that wanted it is gone."""

    def client_joined(self, client: str, since: int) -> None:
        """A client's session is at this site since that moment (a hybrid time, comparable between nodes)."""

    def client_wants(self, client: str, filters: Mapping[str, int | None]) -> None:
        """Filters that a client's session now has, with their QoS (None: no longer)."""

    def client_left(self, client: str) -> None:
        """A client's session here is over."""

    def neighbour_recalled(self, neighbour: str, kept: Mapping[str, int]) -> None:
        """The node was restarted and had this neighbour before: what `context.keep` was told of it."""

    def neighbour_up(self, neighbour: str) -> None:
        """A neighbour's link joined the tree, or is back after a failure: share state (ILDM Fig. 8)."""

    def neighbour_down(self, neighbour: str) -> None:
        """The link failed. The neighbour is still owed messages: keep its interest."""

    def neighbour_removed(self, neighbour: str) -> None:
        """The neighbour's link left the tree, or the neighbour was removed: its interest here ends."""

    def packet_arrived(self, neighbour: str, packet: Packet) -> None:
        """A control packet from a neighbour's strategy."""

    def members_are(self, members: Iterable[str]) -> None:
        """The live members of the cluster, as membership says, are these."""

    def describe(self, neighbour: str) -> dict[str, int]:
        """Numbers about a neighbour that `status` shows. `filters_from` and `filters_to` are filters that it
        asked for and was asked for; both are 0 when no client is subscribed."""
        return {}

    @classmethod
    def tells_interest(cls, packet: Packet) -> bool:
        """Whether a control packet of this strategy says what somebody wants; for counting."""
        return True

    @classmethod
    def in_one_process(cls) -> type[Strategy]:
        """The class for thousands of nodes in one process, which may share what is equal for all."""
        return cls


class Side(enum.Enum):
    """Which of a pair's two sessions a packet came in on."""

    CLIENT = "client"
    BROKER = "broker"


class SessionState(enum.Enum):
    """ILDM Fig. 5 (a)."""

    CLOSED = "closed"
    ESTABLISHED = "established"
    TERMINATING = "terminating"


class NodeState(enum.Enum):
    """ILDM Fig. 5 (b)."""

    STOPPED = "stopped"
    RUNNING = "running"
    ADDING = "ildm_adding"
    REMOVING = "ildm_removing"


class Session(Protocol):
    """One TCP connection of the node, as a plug-in sees it (ILDM's SessionInfo)."""

    @property
    def id(self) -> int: ...

    @property
    def side(self) -> Side: ...

    @property
    def state(self) -> SessionState: ...

    @property
    def client_id(self) -> str:
        """The MQTT client identifier; empty until CONNECT was read."""

    @property
    def mqtt_version(self) -> int:
        """3, 4 or 5; 0 until CONNECT was read."""


class SessionManager(Protocol):
    """The calls of ILDM's session manager (2.2.1)."""

    def create_session(self, packet: Packet) -> Session:
        """Open one more session to the local broker, with this CONNECT."""

    def close_session(self, session: Session) -> None: ...

    def send(self, session: Session, packet: Packet) -> bool:
        """Write one packet between two others. False if the session is not ESTABLISHED."""

    def paired(self, session: Session) -> Session | None:
        """The other half of the pair."""


@dataclass(frozen=True, slots=True)
class Reject:
    """A listener's answer that stops a packet.

    A rejected PUBLISH is acknowledged in the broker's stead, with `reason_code` where MQTT 5 can carry
    it; any other rejected packet closes the pair.
    """

    reason_code: int = 0x83
    reason: str = ""


class Listener:
    """Any other plug-in: it sees packets and events, and may reject what clients send.

    Cost: every packet named in `packets` is decoded in Python, one by one, for every pair: some 10 µs
    each, against some 0.1 µs for a packet nobody listens to. An empty `packets` costs nothing.
    """

    name: ClassVar[str]
    packets: ClassVar[frozenset[tuple[Side, PacketType]]] = frozenset()

    def __init__(self, sessions: SessionManager) -> None:
        self.sessions = sessions

    def packet_arrived(self, session: Session, packet: Packet) -> Reject | None:
        """A packet named in `packets` arrived. None lets it pass unchanged."""
        return None

    def tcp_down(self, session: Session) -> None:
        """The connection ended without a DISCONNECT."""

    def receive_failed(self, session: Session, error: Exception) -> None:
        """What arrived could not be read as MQTT."""

    def session_established(self, session: Session) -> None: ...

    def session_closed(self, session: Session) -> None: ...

    def node_stopping(self) -> None: ...

    def neighbour_adding(self, neighbour: str) -> None: ...

    def neighbour_removing(self, neighbour: str) -> None: ...

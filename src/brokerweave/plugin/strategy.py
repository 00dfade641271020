"""What a cooperation strategy is, and what a node gives it (ILDM, Table 1, in Python's manner).

Owns the two interfaces, `Strategy` and `Context`. Invariants: a strategy is asked about topics, never about
messages, and its answers are cached until it says `context.routes_changed()`; what a
strategy needs of the node it declares in its class. Must not know: sockets, clocks, the node's own classes,
any strategy by name.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar, Protocol

from brokerweave.mqtt.packets import Packet
from brokerweave.plugin.options import Option, OptionValue

if TYPE_CHECKING:
    from brokerweave.plugin.sites import SiteBook


@dataclass(frozen=True, slots=True)
class Hop:
    """A neighbour that wants a topic, and the highest QoS anyone behind it asked for."""

    neighbour: str
    qos: int = 2
    """-1: nobody asked there, it only keeps messages for others (`holds`)."""
    holds: tuple[str, ...] = ()
    """Nodes for whose clients the neighbour keeps QoS 1 and 2, should they miss it (see
    `Strategy.sites`)."""
    plan: bytes = b""
    """The strategy's own bytes, up to 65,535. They travel with each message to the neighbour, also over a
    crash, and `follow` of its strategy gets them. Each link pays for them with each message.

    A neighbour that gets a plan is a relay: it confirms what it took once all that it passed it on to have
    confirmed. Until then this node keeps messages of QoS 1 and 2, within a bound, and asks `Strategy.bypass`
    if the relay dies. Where the plans of a topic change, its messages wait until relays have confirmed those
    before, a few seconds at most, counted then."""


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
    known: bool = True
    """False: not known yet (`NOT_YET`), and the rest counts for nothing."""


NOT_YET = Route(known=False)
"""The answer of a strategy that has to ask somebody first. Publications of the topic wait at the node, in
order, those of QoS 1 and 2 over a crash, until `context.routes_changed` names the topic and the strategy
knows. The node asks then, and once after a restart. They wait within `links.waiting`: beyond it QoS 0, and
what came over a link, is dropped; a local client that publishes at QoS 1 or 2 is disconnected before the
broker has it, and will send it again. Both are counted."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A moment in what one node publishes, by lane."""

    epoch: int
    sequences: tuple[int, ...]
    """The last that the node gave to publications of its own."""
    sent: tuple[int, ...] = ()
    """The last of the runs that it has put into the lanes to the neighbour that is told."""


@dataclass(frozen=True, slots=True)
class TrafficUsage:
    """What a node has measured, of late (`Strategy.measures`)."""

    rate: float = 0.0
    """Publications of a topic a second, by local clients."""
    payload: float = 0.0
    """The mean size of such a PUBLISH, in bytes; 0: there was none."""
    sent: float = 0.0
    """Bytes a second that this node sends to others of what local clients publish, of all topics together."""


class NetworkShape(enum.Enum):
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

    wiring: NetworkShape = NetworkShape.TREE
    selective: bool = False
    """A publication goes to no site where nobody wants it."""
    keeps_for_absent: bool = False
    """Clients that lose their site get at another what they missed: the node keeps it for them. For
    `NetworkShape.FULL` only."""
    best_effort: bool = False
    """What is on its way while nodes or links fail may be lost, acknowledged or not."""
    counts_told: tuple[str, ...] = ()
    """Which of `Strategy.counters` count filters, or clients, that neighbours were told of."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Linking(enum.Enum):
    """Which nodes a strategy's node is linked with, beside those that the configuration names."""

    CONFIGURED = "configured"
    """Only those, and the nodes that dial this one."""
    MEMBERS = "members"
    """With `[membership]`, every member."""
    ON_DEMAND = "on demand"
    """With `[membership]`, a member that a route or a waiting control packet names. The link closes when
    nothing is pending and nothing was sent for `[links] idle_close`; at most `[links] max_links` are open at
    once. No spanning tree is made of such links: `Strategy.tree` counts as False."""


class Context(Protocol):
    """What a node offers its strategy. Time and randomness come from here, so that runs can be replayed."""

    @property
    def node_id(self) -> str: ...

    @property
    def options(self) -> Mapping[str, OptionValue]:
        """What the configuration says in the section with the strategy's name; read by `option(...)`."""

    @property
    def random(self) -> Random: ...

    def now(self) -> float:
        """Seconds on a clock that never goes back, but follows the machine's when that is set."""

    def steady(self) -> float:
        """Seconds on a clock that nobody sets: for how long something took. It begins anywhere."""

    def neighbours(self) -> tuple[str, ...]:
        """Ids of the neighbours that get messages: in the tree, or failed and not replaced yet."""

    def members(self) -> frozenset[str]:
        """Ids of the live members of the cluster, this node included; only this node without
        `[membership]`."""

    def searching(self) -> bool:
        """Whether membership was told whom to join and has found no other member yet."""

    def announce(self, data: bytes) -> None:
        """Let every member know up to 32 bytes, which travel with membership's own news. Of several within
        half a second only the last counts. They reach `Strategy.member_announced`, and members that join
        later."""

    def send(self, neighbour: str, packet: Packet, wait: bool = False) -> None:
        """Send a control packet, in order with every other one to this neighbour.

        Not repeated after a failure: while a link is down packets are dropped, and `neighbour_up` is the
        moment to tell the neighbour everything it needs to know. With `wait` a packet waits for the link
        instead, and goes out behind `neighbour_up`, in order with all that wait; 1 MiB of them do for each
        neighbour, and what does not fit is dropped and counted. With `Linking.ON_DEMAND` a packet that waits
        for a member opens the link. A packet that is on its way when its link fails is lost all the same.
        """

    def keep(self, neighbour: str, changes: Mapping[str, int | None]) -> None:
        """Remember numbers by name for a neighbour, over a crash as well (None: no longer).

        After a restart `neighbour_recalled` gives them back, so that messages stay pending for a
        neighbour before it has said again what it wants.
        """

    def cut(self, neighbour: str) -> Cut:
        """Where this node stands: what it routed so far, it routed by the strategy's answers so far."""

    def routes_changed(self, topics: Iterable[str] | None = None) -> None:
        """Forget the cached answers about these topics, or all. What waits for a route of theirs (`NOT_YET`)
        is asked about again, when the present callback is over."""

    def round_trips(self) -> Mapping[str, float]:
        """Seconds to other members and back, of those to which membership has measured them."""

    def usage(self, topic: str) -> TrafficUsage:
        """What is known of a topic's publications here, and of this node."""

    def send_retained(
        self, neighbour: str, topic_filter: str, done: Callable[[], None] | None = None
    ) -> None:
        """Send a neighbour the newest retained messages and deletions under a filter that this node knows of,
        behind what is on its way there. Who has a newer version of a topic keeps it. Nothing is done for a
        node that neither is nor can become a neighbour. `done` is called in a later turn, when the neighbour
        has acknowledged all of them; never, if it is removed before."""

    def retained_topics(self) -> Iterable[str]:
        """Topics of which this node knows a retained message or a deletion."""

    def when_injected(self, callback: Callable[[], None]) -> None:
        """Call back when the local broker has taken all that came over links so far. That may be never, if
        the broker is away for good; the callback comes in a later turn."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer: ...


class Strategy:
    """A cooperation algorithm. Override what you need; each default does nothing."""

    name: ClassVar[str]
    traits: ClassVar[Traits] = Traits()

    # What the strategy needs of the node.

    linking: ClassVar[Linking] = Linking.CONFIGURED
    tree: ClassVar[bool] = True
    """The node picks a spanning tree of the links that are up, and the strategy hears only of those in it, so
    that what it floods neither loops nor doubles. False: it hears of every link, and its routes alone must
    make sure of that."""
    marks: ClassVar[bool] = True
    """Before a SUBACK goes to a client the node waits until what the strategy told its neighbours has reached
    them and, with a `tree`, every node behind them. False: it does not, unless the strategy has a site book
    (`Strategy.sites`)."""
    cluster_delivery: ClassVar[bool] = False
    """The acknowledgement of a publication waits for all interested nodes in reach, whatever `delivery`
    says."""
    patience: ClassVar[Option[float] | None] = None
    """An option in seconds that stands for `barrier_timeout` and `cluster_timeout`: how long the node waits
    for others before a SUBACK, whatever `subscribe` says, or an acknowledgement goes on all the same,
    counted."""
    returns: ClassVar[bool] = False
    """A message may come back to the node where it was published, once, to be passed on there: `route` or
    `follow` is asked with `came_from`, and the hops may name `came_from`. The broker there does not get it
    again. False: what comes back is dropped and counted."""
    retained_everywhere: ClassVar[bool] = True
    """Every node keeps every retained message, and two nodes compare theirs when their link comes up. False:
    they go where `route_retained` says, and where the strategy sends them (`context.send_retained`)."""

    measures: ClassVar[bool] = False
    """The node measures what local clients publish (`context.usage`). It costs some microseconds for each run
    of messages that goes to others."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.counters: dict[str, int] = {}
        """Whatever is worth counting; `status` shows it."""

    @property
    def options(self) -> Mapping[str, OptionValue]:
        return self.context.options

    def route(self, topic: str, came_from: str | None) -> Route:
        """Where does `topic` go that `came_from` a neighbour (or None: a local client)?

        Called once per topic and origin, then cached. Name each neighbour once, and never `came_from`, but
        where the strategy `returns`.
        """
        raise NotImplementedError(f"strategy {type(self).__name__} must say where a topic goes")

    def follow(self, topic: str, came_from: str, plan: bytes) -> Route:
        """The same for a message that brought a plan (`Hop.plan`). Where it is to be retained, the broker
        gets it in any case. Cached by topic, origin and plan; of the plans, those that came last."""
        return self.route(topic, came_from)

    def bypass(self, topic: str, relay: str, plan: bytes) -> Route:
        """A relay (`Hop.plan`) is no live member any more, and has not confirmed messages of this topic: who
        gets them in its place? Only `hops` count. Asked about messages of QoS 1 and 2, once for each topic
        and plan, after `members_changed`; `NOT_YET` is no answer. Who has a message already drops it, and
        heeds no new plan: give each the plan that the relay would have given it, or none. The relay's own
        copy stays pending, as for any neighbour."""
        return Route()

    def route_retained(self, topic: str, came_from: str | None) -> Route:
        """The same for a message to be retained; by default to everybody (ILDM 4.5.2)."""
        others = tuple(Hop(n) for n in self.context.neighbours() if n != came_from)
        return Route(others, local=True)

    def subscribing(self, client: str, filters: Mapping[str, int], proceed: Callable[[], None]) -> bool:
        """A client's SUBSCRIBE is about to go to the broker, which answers with the retained messages that it
        has at that moment. False: it waits, and what the client sends behind it, until `proceed()` is called;
        for `barrier_timeout` at most, counted then. Not asked with `subscribe = "async"`."""
        return True

    def granted(self, client: str, filters: Mapping[str, int], proceed: Callable[[], None]) -> bool:
        """The broker granted filters, `subscribed` has been called, and SUBACK is about to go to the client.
        False: it waits until `proceed()` is called, and then for the marks (`marks`); for `barrier_timeout`
        in all, counted then. Not asked with `subscribe = "async"`."""
        return True

    def ready(self) -> bool:
        """False: the node was started a moment ago and does not know yet what others want. Its health port
        says so to balancers."""
        return True

    def takes_publications(self) -> bool:
        """False: what local clients publish now would go nowhere, though others may want it. Their QoS 1 and
        2 publications do not go to the broker yet, so nobody acknowledges them. Asked again until it is True,
        and never after that. A client that waits longer than `patience` (15 s without one) is refused."""
        return True

    def sites(self) -> SiteBook | None:
        """Asked once, when the node is built. A strategy that tells every node what each site wants, and
        whose messages take one hop, may return itself: the node then keeps what clients of other nodes miss
        (`Route.holds`, `Hop.holds`) and gives it to them where they come back. None: nobody does that."""
        return None

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
        """The link failed. Messages for the neighbour stay pending: keep its interest. Not called where a
        link on demand is closed because nobody needs it: then nothing was lost."""

    def neighbour_removed(self, neighbour: str) -> None:
        """The neighbour's link left the tree, or the neighbour was removed: its interest here ends."""

    def packet_arrived(self, neighbour: str, packet: Packet) -> None:
        """A control packet from a neighbour's strategy."""

    def members_changed(self, live: frozenset[str]) -> None:
        """The live members of the cluster are others than before, or membership begins; this node is among
        them. Not called without `[membership]`."""

    def member_announced(self, member: str, data: bytes) -> None:
        """What another member's strategy gave to `context.announce`: when the member joined, and when
        anything changed that it tells of itself."""

    def needs(self, member: str) -> bool:
        """Whether a member that left or died is still needed as a neighbour. One that left is removed as soon
        as it is not, and nothing is pending for it. With `Linking.ON_DEMAND` a node that is away and needed
        becomes a neighbour where a route names it: messages wait for it, `forget_after` seconds at most."""
        return False

    def explain(self) -> list[str]:
        """Lines about what the strategy decided and why, the most interesting first; `status` shows some."""
        return []

    def describe(self, neighbour: str) -> dict[str, int]:
        """Numbers about a neighbour that `status` shows. `filters_from` and `filters_to` are filters that it
        asked for and was asked for; both are 0 when no client is subscribed."""
        return {}

    def roles(self) -> Mapping[str, int]:
        """For how many topics, or keys, this node has each role that the strategy knows, such as
        `coordinator`. `status` shows it, and telemetry sends it."""
        return {}

    @classmethod
    def tells_interest(cls, packet: Packet) -> bool:
        """Whether a control packet of this strategy says what somebody wants; for counting."""
        return True

    @classmethod
    def in_one_process(cls) -> type[Strategy]:
        """The class for thousands of nodes in one process, which may share what is equal for all."""
        return cls

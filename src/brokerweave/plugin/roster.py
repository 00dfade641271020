"""What a strategy knows that lets the node care for clients which lose their site.

Owns the interfaces between such a strategy and `brokerweave.care`: `Roster` is what the node asks,
`RosterEvents` what it hears. Invariants: a roster knows every client of every live node, and a message of
such a strategy takes one hop. Must not know: messages, what is kept for whom.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Protocol

from brokerweave.plugin.strategy import Cut


class RosterEvents:
    """What a roster tells the node. Each default does nothing."""

    def joined(self, node: str, client: str) -> None:
        """A node has a client that it did not have before."""

    def moved(self, client: str, before: str, node: str) -> None:
        """A client that one node had is at another since later. `before` and `node` are the same where its
        session there began again."""

    def came(self, node: str, client: str, since: int) -> None:
        """A client said for the first time in its session at a node what it wants."""

    def elsewhere(self, client: str) -> None:
        """A client of this node was at another one before, which is gone. It was not known until now."""

    def left(self, node: str, client: str) -> None:
        """A client's session at a node is over, though the node lives."""

    def up(self, neighbour: str) -> None:
        """A link is up, and the neighbour is being told this node's clients."""

    def down(self, neighbour: str) -> None:
        """A link is down."""

    def synced(self, node: str) -> None:
        """A neighbour has told all its clients."""

    def heard(self, neighbour: str, version: int, cut: Cut) -> None:
        """A neighbour knows this version of this node's clients. It routed everything up to the cut
        before."""

    def lives(self) -> None:
        """Other nodes live than before."""

    def died(self, node: str) -> None:
        """A node is not live any more."""

    def forgot(self, node: str) -> None:
        """A node was dead for so long that its clients are forgotten."""

    def sought(self, neighbour: str) -> None:
        """A neighbour looks for a client which this node had, and which is elsewhere by now."""

    def remembered(self) -> None:
        """Others have told which clients were at sites that are gone."""


class RosterEntry(Protocol):
    """A client at one node."""

    @property
    def filters(self) -> Mapping[str, int]:
        """What it wants, with the QoS of each."""


class RosterTable(Protocol):
    """Which client is at which node, and what it wants."""

    def clients(self, node: str) -> Mapping[str, RosterEntry]:
        """The clients that a node named, by client id."""

    def home(self, client: str) -> str | None:
        """The node that has a client since last; None: no node has it."""

    def since(self, client: str) -> int:
        """When the client came to its home, as a hybrid time; 0: it has none."""

    def orphaned(self, node: str) -> bool:
        """Whether a client that was at a node is nowhere now, and is owed what it misses."""

    def nodes_wanting(self, topic: str) -> Mapping[str, int]:
        """The nodes with clients that want a topic, and the highest QoS among them."""

    def clients_wanting(self, node: str, topic: str) -> Mapping[str, int]:
        """The clients that are or were at a node and want a topic for themselves, with their QoS."""


class Roster(Protocol):
    """Who the clients of all nodes are, who lives, and who keeps messages for whose clients."""

    events: RosterEvents
    """Who hears what happens; the node sets it before anything does."""

    @property
    def table(self) -> RosterTable: ...

    # For how long, and how much, is kept

    @property
    def window(self) -> float:
        """Seconds for which clients of a dead node are remembered, and what they missed is kept."""

    @property
    def client_bytes(self) -> int:
        """What is kept for one client at most."""

    @property
    def max_bytes(self) -> int:
        """What is kept for all clients at most."""

    # Nodes

    @property
    def live(self) -> frozenset[str]:
        """The nodes that live; this one is among them."""

    @property
    def alone(self) -> bool:
        """Whether too few other nodes live to keep what this node's clients are owed."""

    def dead(self) -> tuple[str, ...]:
        """Nodes that died, and whose clients are not forgotten yet."""

    def reachable(self) -> tuple[str, ...]:
        """Nodes whose links are up."""

    def knows(self, node: str) -> bool:
        """Whether a node has told all its clients since this one was started."""

    def has_told(self, node: str) -> bool:
        """Whether a node has told all its clients since its link is up."""

    def holders(self, node: str) -> tuple[str, ...]:
        """Who keeps messages for a node's clients. Nodes that know the same live ones give the same
        answer."""

    def stand_ins(self) -> tuple[str, ...]:
        """Who keeps messages for this node's clients at a node that believes this one dead."""

    # Clients of this node

    @property
    def version(self) -> int:
        """Of this node's own clients; grows with every change that was told."""

    @property
    def cut_off(self) -> Container[str]:
        """Clients here whose sessions may have ended with their broker, and that have not subscribed
        since."""

    def client_cut_off(self, client: str) -> None:
        """A client's broker was lost, and perhaps its session."""

    def forget_former(self, node: str, client: str) -> None:
        """Nothing can be on its way any more to where a client was."""

    def untold(self, client: str) -> bool:
        """Whether something of a client waits to be told."""

    def flush(self) -> None:
        """Tell it now."""

    def when_heard(self, callback: Callable[[], None]) -> bool:
        """Call back when all reachable nodes know this node's clients. True: they do; no call follows."""

    def forget_wait(self, callback: Callable[[], None]) -> None:
        """Do not call back."""

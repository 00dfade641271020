"""What a node does for clients that lose their site, as the rest of the node sees it.

Owns the interface. `Care` itself is the null object, for strategies without a site book: it keeps nothing,
waits for nobody and knows nobody. `client_care` does something. Must not know: how anything is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from brokerweave.links.journal import Journal
from brokerweave.links.run import Run
from brokerweave.mqtt.packets import Publish, Will
from brokerweave.session.hold_points import HoldPoint
from brokerweave.session.pair import Pair

Sender = tuple[str, int]
"""A client id and a packet id: by these a publication is known that comes again, from another node."""


class Care:
    """Each default does nothing, or says no."""

    watches_deliveries: ClassVar[bool] = False
    """Whether pairs tell what their clients have, and may redeliver: clients are followed from node to
    node."""
    window = 0.0
    """Seconds for which messages are kept for a client that lost its session."""

    def keep_in(self, open_journal: Callable[[], Journal | None]) -> None:
        """Before anything happens: keep what is kept in a journal, and go on with what an earlier start
        left. None: the disk fails, and it stays in memory."""

    # Clients come and go

    def since(self, client: str) -> int:
        """When a client came to the node that has it, as a hybrid time; 0: it is not known."""
        return 0

    def accepted(self, pair: Pair, session_present: bool) -> None:
        """The broker accepted a client."""

    def is_owed(self, client: str, clean_start: bool) -> bool:
        """Whether a client whose session the broker does not have still gets what it missed."""
        return False

    def moves_away(self, pair: Pair) -> bool:
        """Whether another site has accepted its client, as planned: that one has its will, too."""
        return False

    def ended(self, pair: Pair, unexpected: bool) -> None:
        """A pair is over, `unexpected` without a DISCONNECT."""

    def closed(self, pair: Pair) -> None:
        """The last that is heard of a pair, accepted or not."""

    # They subscribe

    def may_subscribe(self, pair: Pair) -> bool:
        """Whether a SUBSCRIBE may go to the broker. False: it waits until `pair.subscribe_now()`."""
        return True

    def subscribing(self, pair: Pair) -> None:
        """A client's SUBSCRIBE is about to go to the broker."""

    def expects(self, pair: Pair) -> bool:
        """Whether other nodes may keep something for a client that subscribes: `begin` then asks for it."""
        return False

    def begin(
        self, pair: Pair, filters: list[tuple[str, int]], hold_point: HoldPoint, timeout: float
    ) -> bool:
        """Ask all nodes for what they keep for a client. False: SUBACK stands until they have answered."""
        return True

    # They receive

    def received(self, pair: Pair, names: list[bytes], more: bool) -> None:
        """A client has these. `more`: the broker is about to deliver more than that."""

    def keeps(self, topic: bytes) -> bool:
        """Whether somebody may keep what was published on a topic for those who asked for QoS 0."""
        return False

    def swallows(self, pair: Pair, name: bytes, must_see: bool) -> bool:
        """Whether a client has what its broker is delivering, or gets it from the node. `must_see`: for the
        sake of MQTT it has to pass all the same."""
        return False

    # They publish

    def entering(self, pair: Pair, publish: Publish) -> None:
        """A client's publication at QoS 1 or 2 is about to go to the broker."""

    def name(self, run: Run) -> Run:
        """What a client published, under the name by which others know it."""
        return run

    def publishing(self, topic: str) -> None:
        """Something at QoS 1 or 2 is about to go to the broker."""

    def publication_name(self, pair: Pair, publish: Publish) -> bytes:
        """What names a publication in its stamp, as `PairHost` says; b"": it gets none."""
        return b""

    def resent(self, pair: Pair, publish: Publish) -> bool:
        """Whether this node has acted on a publication that a client sends again, and its broker has it."""
        return False

    def sender(self, pair: Pair, publish: Publish) -> Sender | None:
        """By what others know a publication, should it come again."""
        return None

    def published(self, pair: Pair, publish: Publish, run: Run, lane: int) -> None:
        """The broker acknowledged what a client published, or had it from an earlier time: it goes out as
        this run."""

    def left_unanswered(self, run: Run, lane: int) -> None:
        """A client left before the broker acknowledged what it published. It goes out."""

    def will_due(self, pair: Pair, will: Will) -> Sender | None:
        """The broker publishes a will here. By what others know it, if its client has a name."""
        return None

    # Publications go out, and arrive

    def hold(self, run: Run, lane: int) -> None:
        """Keep publications for the clients of the nodes that their run names. Raises
        `RemoteProtocolError`."""

    def arrived(self, run: Run, lane: int, neighbour: str) -> Run | None:
        """A run came over a neighbour's link: as it goes to the broker here. None: this node has acted on it
        before."""
        return run

    def not_injected(self, run: Run, lane: int) -> None:
        """There is no room for a run that was to go to the broker here."""

    def took(self, neighbour: str) -> None:
        """What a neighbour's lane brought is taken."""

    def flush(self) -> None:
        """What was held is about to be confirmed, or acknowledged: let the disk have it."""

    def repaired(self) -> None:
        """A comparison of retained messages brought something new: others may lack it, too."""

    def check(self) -> None:
        """Raises AssertionError if an invariant is broken: for the simulator and tests."""

    # What an operator sees

    def status(self) -> dict[str, object] | None:
        """What is kept for clients of other nodes; None: nothing ever is."""
        return None

    def counters(self) -> dict[str, int]:
        """What was let go for want of room."""
        return {}

"""What a node and one neighbour know of each other's view of the tree, and the packets that tell it.

Owns the state of one neighbour in `node.wiring`, and two kinds of packets. A *mark* on a lane says that what
follows was sent in this view. *Talk* says that the strategy starts over. Invariants: talk comes before the
strategy's packets; those are kept until this side's strategy knows the neighbour, or ignored as a whole,
never in parts. Must not know: trees, routes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from brokerweave.errors import RemoteProtocolError
from brokerweave.links.run import Run
from brokerweave.mqtt.packets import Packet

DIGEST_BYTES = 16
NO_VIEW = bytes(DIGEST_BYTES)
NOBODY: frozenset[str] = frozenset()
MAX_EARLY = 10_000
"""Control packets kept for a strategy that does not know the neighbour yet."""

_MARK = struct.Struct(">16sQ")
_TALK = struct.Struct(">?II")


@dataclass(frozen=True, slots=True)
class ViewMark:
    """The view in which a lane is used from here on; runs up to `boundary` follow once more, as floods."""

    view: bytes
    boundary: int


@dataclass(frozen=True, slots=True)
class Talk:
    """`number` counts the talks of this node. `again`: this node lacks the neighbour's talk, and `heard` is
    the latest that it knows of; if there is no later one, the neighbour has to say it again."""

    again: bool
    number: int
    heard: int


def encode_mark(mark: ViewMark) -> bytes:
    return _MARK.pack(mark.view, mark.boundary)


def decode_mark(payload: bytes) -> ViewMark:
    if len(payload) != _MARK.size:
        raise RemoteProtocolError("a view of the tree that cannot be read")
    return ViewMark(*_MARK.unpack(payload))


def encode_settled(view: bytes, complete: bool) -> bytes:
    return view + bytes((complete,))


def decode_settled(payload: bytes) -> tuple[bytes, bool]:
    if len(payload) != DIGEST_BYTES + 1 or payload[-1] > 1:
        raise RemoteProtocolError("a settled view that cannot be read")
    return payload[:-1], bool(payload[-1])


def encode_talk(talk: Talk) -> bytes:
    return _TALK.pack(talk.again, talk.number, talk.heard)


def decode_talk(payload: bytes) -> Talk:
    if len(payload) != _TALK.size or payload[0] > 1:
        raise RemoteProtocolError("the beginning of a talk that cannot be read")
    return Talk(*_TALK.unpack(payload))


class PeerLane:
    """The incoming side of one lane, and what was announced for the outgoing side."""

    __slots__ = ("mark", "said", "stash", "stashed")

    def __init__(self) -> None:
        self.mark = ViewMark(NO_VIEW, 0)
        self.stash: list[tuple[int, list[Run]]] = []
        """Batches that came before both nodes see the same tree: (first, runs)."""
        self.stashed = 0
        """Their bytes."""
        self.said = 0
        """The boundary in this node's own mark."""


class Peer:
    """One neighbour: a link that is up or not, in the tree or not."""

    __slots__ = (
        "_heard",
        "_lanes",
        "_number",
        "_talks",
        "awaited",
        "complete",
        "early",
        "joined",
        "listening",
        "named",
        "new",
        "served",
        "settled",
        "told",
        "unknown",
        "up",
    )

    def __init__(self, lanes: int) -> None:
        self.served = NOBODY
        """Nodes that get another way what waits for this link since it failed."""
        self.unknown = False
        """The link failed before all nodes behind it had told their filters: everything stays pending for
        it."""
        self._number = lanes
        self._lanes: list[PeerLane] | None = None
        self._talks = 0
        self.link_lost()

    @property
    def lanes(self) -> list[PeerLane]:
        """Made when first asked for: where there is no tree, nobody does."""
        if self._lanes is None:
            self._lanes = [PeerLane() for _ in range(self._number)]
        return self._lanes

    def link_lost(self) -> None:
        self.up = False
        self.named = False
        """The neighbour told its link state since the link came up: this node's names the link."""
        self.early: list[Packet] = []
        self._heard = 0
        self.leave_tree()
        self.new_view()

    def lane_lost(self, index: int) -> None:
        if self._lanes is not None:
            self._lanes[index] = PeerLane()

    def new_view(self) -> None:
        self.told: bool | None = None
        """This node told the neighbour that it is settled, and whether completely."""
        self.awaited: list[int] | None = None
        """What the neighbour has to acknowledge first, a sequence for each lane."""

    def leave_tree(self) -> None:
        """What the neighbour's strategy said is void."""
        self.joined = False
        """The link is in the tree, and the strategy was told, since it came up."""
        self.new = False
        """It joined the tree and waits for the tree to settle."""
        self.listening = False
        self.early.clear()
        self.settled = NO_VIEW
        """The view for which the neighbour said that all behind it have told what they want."""
        self.complete = False
        """And that they know what everybody wants to whom they owe messages."""

    def next_talk(self) -> Talk:
        self._talks += 1
        return Talk(not self.listening, self._talks, self._heard)

    def take_talk(self, talk: Talk) -> bool:
        """The neighbour's strategy starts to talk. Returns whether ours has to say all again."""
        self.listening = True
        self._heard = talk.number
        self.early.clear()
        return talk.again and self.joined and talk.heard == self._talks

    def listens(self, packet: Packet) -> bool:
        """Whether a packet of the neighbour's strategy is for ours now; one that is early is kept."""
        if self.listening and not self.joined:
            if len(self.early) >= MAX_EARLY:
                raise RemoteProtocolError("more was said before this link joined the tree than can be kept")
            self.early.append(packet)
        return self.listening and self.joined


class Peers(dict[str, Peer]):
    """All neighbours; one is known as soon as somebody asks for it."""

    def __init__(self, lanes: int) -> None:
        super().__init__()
        self._lanes = lanes

    def __missing__(self, neighbour: str) -> Peer:
        peer = self[neighbour] = Peer(self._lanes)
        return peer

    def linked(self) -> list[str]:
        return [neighbour for neighbour, peer in self.items() if peer.up]

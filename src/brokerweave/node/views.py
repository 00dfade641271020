"""What a node and one neighbour know of each other's view of the tree, and how they say it.

Owns the state of one neighbour in `node.wiring`, and the *mark* that nodes send when their view changes.
Invariants: a mark that starts the strategy's talk anew (`fresh`) comes before what the strategy says; what
a strategy says is kept until this side's strategy knows the neighbour, or not listened to at all, never
taken in parts. Must not know: trees, routes.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass

from brokerweave.errors import RemoteProtocolError
from brokerweave.links.run import Run
from brokerweave.mqtt.packets import Packet

DIGEST_BYTES = 16
NO_VIEW = bytes(DIGEST_BYTES)
MAX_EARLY = 10_000
"""Control packets kept for a strategy that does not know the neighbour yet."""

_HEAD = struct.Struct(">16sBII")
_SEQUENCE = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Mark:
    """A node's view, as it tells a neighbour.

    `fresh`: its strategy starts to talk, with talk number `talk`; `again`: it has nothing of the neighbour's
    talk number `heard`, although that was sent. `boundary`: the runs of each lane up to these sequences
    follow once more, as floods.
    """

    view: bytes
    fresh: bool
    again: bool
    talk: int
    heard: int
    boundary: tuple[int, ...]


def encode_mark(mark: Mark) -> bytes:
    head = _HEAD.pack(mark.view, mark.fresh | mark.again << 1, mark.talk, mark.heard)
    return head + b"".join(map(_SEQUENCE.pack, mark.boundary))


def decode_mark(payload: bytes, lanes: int) -> Mark:
    if len(payload) != _HEAD.size + lanes * _SEQUENCE.size or payload[DIGEST_BYTES] > 3:
        raise RemoteProtocolError("a view of the tree that cannot be read")
    view, flags, talk, heard = _HEAD.unpack_from(payload)
    boundary = tuple(n for (n,) in _SEQUENCE.iter_unpack(payload[_HEAD.size :]))
    return Mark(view, bool(flags & 1), bool(flags & 2), talk, heard, boundary)


class Peer:
    """One neighbour: a link that is up or not, in the tree or not."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.talk = 0
        self.behind: frozenset[str] = frozenset()
        """Nodes that were reached through this link when it failed, and were not reached since."""
        self.link_lost()

    def link_lost(self) -> None:
        self.up = False
        self.joined = False
        """The link is in the tree and the strategy was told, since it came up."""
        self.view = NO_VIEW
        """The tree that the neighbour sees."""
        self.boundary = self.said_boundary = (0,) * self.lanes
        self.settled = NO_VIEW
        """The view for which the neighbour said that all behind it have told what they want."""
        self.heard = 0
        self.early: list[Packet] = []
        self.stash: deque[tuple[int, int, list[Run]]] = deque()
        """Batches that came before both see the same tree: (lane, first, runs)."""
        self.stop_listening()
        self.new_view()

    def new_view(self) -> None:
        self.told = False
        """This node told the neighbour that it is settled."""
        self.awaited: list[int] | None = None
        """What the neighbour has to acknowledge first, a sequence for each lane."""

    def stop_listening(self) -> None:
        """The link leaves the tree: what the neighbour's strategy said is void."""
        self.joined = False
        self.new = False
        """It joined the tree and waits for the tree to settle."""
        self.listening = False
        self.early.clear()
        self.settled = NO_VIEW

    def mark(self, view: bytes, fresh: bool) -> Mark:
        return Mark(view, fresh, fresh and not self.listening, self.talk, self.heard, self.said_boundary)

    def take_mark(self, mark: Mark) -> bool:
        """Returns whether the neighbour missed what the strategy said, so that it has to be said again."""
        self.view, self.boundary = mark.view, mark.boundary
        if mark.fresh:
            self.listening = True
            self.heard = mark.talk
            self.early.clear()
        return mark.again and self.joined and mark.heard == self.talk

    def listens(self, packet: Packet) -> bool:
        """Whether a packet of the neighbour's strategy is for ours now; one that is early is kept."""
        if self.listening and not self.joined:
            if len(self.early) >= MAX_EARLY:
                raise RemoteProtocolError("more was said before this link joined the tree than can be kept")
            self.early.append(packet)
        return self.listening and self.joined

"""Sends again what was on its way when the tree changed.

Owns the outboxes of replaced links while they are emptied, and what on disk has yet to be flooded.
Invariants: what nobody acknowledged goes again to all nodes that may need it; runs on disk are read in small
parts, and their lane waits for that; QoS 0 never goes twice. Must not know: why a link is in the tree, how a
route is found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerweave.links.run import Run
from brokerweave.node.gates import Gates
from brokerweave.node.neighbours import Neighbour
from brokerweave.node.tree import Tree
from brokerweave.node.views import Peers

if TYPE_CHECKING:
    from brokerweave.node.core import NodeCore

MOVE_BYTES = 4 << 20
"""What is moved at once out of a failed link's outbox."""

_Known = tuple[str, int, int, int]


class Rerouting:
    def __init__(self, core: NodeCore, peers: Peers, gates: Gates) -> None:
        self.on_disk: dict[tuple[str, int], tuple[int, int]] = {}
        """Of a neighbour's lane: on disk from where to where lies what has to be flooded yet."""
        self._core = core
        self._peers = peers
        self._gates = gates
        self._moving: list[tuple[Neighbour, int]] = []
        gates.rerouted = self._busy

    def _busy(self, neighbour: str, index: int) -> bool:
        moving = any(entry.id == neighbour and at == index for entry, at in self._moving)
        return (neighbour, index) in self.on_disk or moving

    def forget(self, neighbour: str) -> None:
        self._moving = [item for item in self._moving if item[0].id != neighbour]

    def drop_passing(self) -> None:
        """Drop QoS 0 that waits for a lane which is down: who gets it another way, and is killed, does not
        know that it had it."""
        for neighbour in self._core.neighbour_table.all():
            for lane, connected in zip(neighbour.lanes, neighbour.connected, strict=True):
                if not connected and lane.outbox.backlog_runs:
                    gone = lane.outbox.forget_passing(self._new_stream())
                    self._core.counters.add("dropped_link_down", gone)

    def stuck(self, tree: Tree, changed: bool) -> list[tuple[int, Run, set[str]]]:
        """What has to go once more, in a tree that changed: its lane, and where it stands as a flood already.

        All that nobody acknowledged yet: who takes it may not know a way any more to all who need it. And
        what waits for a link that failed, as soon as anyone is reached who may need it.
        """
        stuck: dict[_Known, tuple[int, Run, set[str]]] = {}
        for neighbour in self._core.neighbour_table.all():
            peer = self._peers[neighbour.id]
            replaced = not peer.up and neighbour.id in tree.nodes
            waits = peer.up and (peer.new or not peer.joined)
            served = tree.nodes
            joins = waits and neighbour.id in tree.neighbours(self._core.node_id)
            if joins:
                # What waits for the link will go over it, as it is.
                served -= tree.behind(self._core.node_id, neighbour.id) | {neighbour.id}
            missed = served - peer.served - {self._core.node_id}
            # What is put there from now on goes to no others, whoever got what was there before.
            peer.served = served if joins else served | peer.served
            for index, lane in enumerate(neighbour.lanes):
                on_its_way = (peer.up or neighbour.connected[index]) and not waits
                needed = replaced or (changed and (on_its_way or bool(missed)))
                runs = lane.outbox.kept() if needed else []
                last = lane.outbox.oldest + len(runs) - 1 if runs and not lane.held else 0
                self._gates.mark(neighbour.id, index, last)
                if needed and lane.outbox.on_disk_only != (0, 0):
                    self.on_disk[neighbour.id, index] = lane.outbox.on_disk_only
                    self._gates.adjust(neighbour.id, index)
                for number, run in enumerate(runs):
                    if not goes_again(run):
                        continue
                    key = (run.origin, run.epoch, run.first, index)
                    known = stuck.get(key)
                    if known is None or known[1].count < run.count:
                        known = stuck[key] = (index, run, set())
                    # What was sent may be taken in the old view; what was not sent will be in the new one.
                    if run.flood and run.count == known[1].count and number >= lane.outbox.sent:
                        known[2].add(neighbour.id)
        return list(stuck.values())

    def empty(self, neighbour: Neighbour, index: int) -> None:
        """The link was replaced: what waits for a lane of it is to go another way, by `move`."""
        if neighbour.lanes[index].outbox.backlog_runs and (neighbour, index) not in self._moving:
            self._moving.append((neighbour, index))
            self._gates.adjust(neighbour.id, index)

    def empty_all(self, neighbour: Neighbour) -> None:
        """The same for a neighbour that is about to be removed: nothing will go over its lanes."""
        self._moving += [(neighbour, index) for index in range(len(neighbour.lanes))]

    def finish(self) -> None:
        """Move all that is to be moved, at once."""
        while self._moving:
            self.move()

    def move(self) -> None:
        """Empty the outboxes of replaced links, some at a time: what was on disk has not been flooded yet."""
        room = MOVE_BYTES
        while self._moving and room > 0:
            neighbour, index = self._moving[0]
            outbox = neighbour.lanes[index].outbox
            connected = neighbour.connected[index]
            if not connected:
                outbox.rewind(outbox.oldest - 1)
                # Should the neighbour be calling right now, it was told of runs that will be gone.
                outbox.stream_id = self._new_stream()
            back = connected and (neighbour.id in self._gates.held or outbox.sent > 0)
            runs = [] if back else outbox.take(room)[1]
            if not runs:
                del self._moving[0]  # all is moved, or the lane is back, or the disk does not give it now
                self._gates.adjust(neighbour.id, index)
                continue
            for run in runs:
                room -= run.size
                if goes_again(run):
                    self._core.arrivals.flood(index, run, (), once=True)
                elif not run.repair:
                    self._core.counters.add("dropped_tree_changed", run.count)
            outbox.withdraw()
        if self._moving:
            self._core.call_later(0.0, self.move)

    def flood_from_disk(self) -> None:
        """Flood what was stuck and is on disk only, in small parts. Its lane waits for that, or the neighbour
        could acknowledge runs that were not sent to others yet."""
        room = MOVE_BYTES
        while self.on_disk and room > 0:
            (neighbour, index), (first, last) = next(iter(self.on_disk.items()))
            runs: list[tuple[int, Run]] = []
            if neighbour in self._core.neighbour_table:
                runs = self._core.neighbour_table[neighbour].lanes[index].outbox.read(first, last, room)
            for _, run in runs:
                room -= run.size
                if goes_again(run):
                    self._core.arrivals.flood(index, run, (), once=True)
            if runs:
                self.on_disk[neighbour, index] = (runs[-1][0] + 1, last)
                said = self._peers[neighbour].lanes[index].said
                if said:  # not if one of them found no room
                    self._gates.mark(neighbour, index, said + len(runs))
            else:
                del self.on_disk[neighbour, index]
                self._gates.adjust(neighbour, index)
        if self.on_disk:
            self._core.call_later(0.0, self.flood_from_disk)

    def _new_stream(self) -> int:
        return self._core.random.getrandbits(62) + 1


def goes_again(run: Run) -> bool:
    """Whether a run that was stuck is flooded. QoS 0 is not: a node that was killed may have had it before.
    Nor are repairs, but those that are floods: nodes compare what they retain when a link comes up."""
    return run.lasting and (run.flood or not run.repair)

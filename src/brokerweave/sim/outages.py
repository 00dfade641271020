"""Nodes that end, start and lose their disks: what is lost with them.

Owns the comparison of a node's memory with its disk at the moment it ends. Invariants: durable state is on
disk, unless the disk failed or the node was in the middle of a turn; what a killed node had not written did
not happen. Must not know: how faults are made, which deliveries are expected.
"""

from __future__ import annotations

from collections import defaultdict

from brokerweave.sim.disk import HELD, WAL
from brokerweave.sim.expected import Expected
from brokerweave.sim.facts import Facts, NodeEnd
from brokerweave.sim.node import SimNode
from brokerweave.sim.promises import Broken
from brokerweave.sim.watching import WatchedOutbox, copies, in_journal, in_wal, payloads


class Outages:
    def __init__(self, facts: Facts, expected: Expected) -> None:
        self._facts = facts
        self._expected = expected

    def node_ends(self, node: SimNode, graceful: bool) -> None:
        """Before anything is lost."""
        facts, disk = self._facts, node.disk
        written = _written(node)
        if node.mid_write:
            self._undo(node)
        for outbox in node.outboxes:
            self._lose(node, outbox, written[outbox.place])
        unwritten = [p for one in node.core.waiting for p in payloads(one.run) if not one.run.durable]
        self._lose_waiting(node.name, unwritten, "only in the memory of a node that ended")
        held = frozenset().union(*(kept for name, kept in written.items() if name.startswith("injectors/")))
        end = NodeEnd(facts.now, graceful, node.mid_write, disk.failed, disk.ever_failed, held)
        facts.ends[node.name].append(end)
        if disk.failed or not facts.promises.interest_survives_restart:
            self._expected.node_forgot(node.name)

    def _undo(self, node: SimNode) -> None:
        """A node was killed in the middle of a turn: what it had not written down did not happen."""
        journals = node.disk.journals.items()
        written = {copy for n, j in journals if n != HELD for copy in copies(j, n == WAL)}
        for (name, payload), visits in self._facts.visits.items():
            while name == node.name and visits and visits[-1].at == self._facts.now:
                origin, epoch, _, sequence = visits[-1].key
                if (payload, origin, epoch, sequence) in written:
                    break
                visits.pop()

    def _lose(self, node: SimNode, outbox: WatchedOutbox, written: set[bytes]) -> None:
        gone = [payload for payload in outbox.in_memory() if payload not in written]
        if gone:  # rows "QoS 0" and "failing disk"
            self._facts.drop(node.name, outbox.place, gone, "only in the memory of a node that ended")
        careless = [payload for payload in outbox.in_memory(durable=True) if payload not in written]
        if careless and not node.disk.failed and not node.mid_write:
            raise Broken(f"{node.name} {outbox.place} kept {careless} in memory only")

    def _lose_waiting(self, node: str, gone: list[bytes], cause: str) -> None:
        self._facts.drop(node, "waiting", gone, cause)
        self._facts.waiting.difference_update((node, payload) for payload in gone)

    def _waiting(self, node: SimNode) -> list[bytes]:
        return [payload for name, payload in self._facts.waiting if name == node.name]

    def node_starts(self, node: SimNode) -> None:
        facts = self._facts
        ends = facts.ends[node.name]
        facts.starts[node.name] = facts.now
        if ends:
            ends[-1].restarted = facts.now
        if node.disk.failing and ends:  # row "failing disk"
            ends[-1].disk_failed = True
            self._expected.node_forgot(node.name)
            for payload, _ in in_wal(node.disk.journals.get(WAL)):
                facts.drop(node.name, WAL, [payload], "on a disk that failed at the start")
                facts.unread[payload][node.name] = facts.now
            self._lose_waiting(node.name, self._waiting(node), "on a disk that failed at the start")

    def disk_lost(self, node: SimNode) -> None:
        facts = self._facts
        ends = facts.ends[node.name]
        if ends:
            ends[-1].disk_kept = False
        for name, journal in node.disk.journals.items():
            if name not in (WAL, HELD):
                facts.drop(node.name, name, list(in_journal(journal)), "disk lost")
        wal = node.disk.journals.get(WAL)
        facts.drop(node.name, WAL, [payload for payload, _ in in_wal(wal)], "disk lost")
        self._lose_waiting(node.name, self._waiting(node), "disk lost")
        self._expected.node_forgot(node.name)


def _written(node: SimNode) -> defaultdict[str, set[bytes]]:
    """What each outbox of a node has on disk."""
    written: defaultdict[str, set[bytes]] = defaultdict(set)
    for payload, outboxes in in_wal(node.disk.journals.get(WAL)):
        for name in outboxes:
            written[name].add(payload)
    for name, journal in node.disk.journals.items():
        if name not in (WAL, HELD):
            written[name].update(in_journal(journal))
    return written

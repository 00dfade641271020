"""Nodes that end, start, and lose their disks, and sites that die: what goes with them.

Owns the comparison of a node's memory with its disk at the moment it ends. Invariants: what is durable is on
disk, unless that failed or the node was in the middle of a turn; what a killed node had not written down did
not happen. Must not know: how faults are made, what clients are owed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from brokerweave.mqtt.content import content_hash
from brokerweave.sim import caring
from brokerweave.sim.disk import HELD, WAL
from brokerweave.sim.expected import Expected, ExpectedDelivery
from brokerweave.sim.expected_in_one_hop import ExpectedInOneHop
from brokerweave.sim.facts import Facts, NodeEnd
from brokerweave.sim.node import SimNode
from brokerweave.sim.promises import Broken
from brokerweave.sim.redelivery import RedeliveryRules
from brokerweave.sim.repeat_allowances import NOTICED, Losses
from brokerweave.sim.watching import WatchedOutbox, copies, in_journal, in_wal


class Outages:
    def __init__(self, facts: Facts, expected: Expected, redelivery: RedeliveryRules) -> None:
        self._facts = facts
        self._expected = expected
        self._redelivery = redelivery
        self.losses = Losses(1)
        self.unread: set[bytes] = set()
        """What was kept for others' clients on a disk that failed at a start, or before its node ended."""

    def node_ends(self, node: SimNode, graceful: bool) -> None:
        """Before anything is lost."""
        facts, disk = self._facts, node.disk
        written = _written(node)
        if node.mid_write:
            self._undo(node)
        for outbox in node.outboxes:
            self._lose(node, outbox, written[outbox.place])
        held = frozenset().union(*(kept for name, kept in written.items() if name.startswith("injectors/")))
        end = NodeEnd(facts.now, graceful, node.mid_write, disk.failed, disk.ever_failed, held)
        if facts.mesh and not graceful:
            self.site_dies(node.name)
        if facts.mesh and disk.failed:
            self._redelivery.repeats.disk_failed([*_kept_for_others(node), *_sent_again(node, written)])
            self.unread.update(self._held_in_memory(node))  # row "failing disk"
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

    def _held_in_memory(self, node: SimNode) -> list[bytes]:
        """What a node keeps for others' clients, and its disk does not have."""
        kept = _kept_for_others(node)
        return [
            payload
            for payload, publication in self._facts.publications.items()
            if caring.keeps_for_any(node.core, content_hash(publication.topic, payload))
            and not any(payload in record for record in kept)
        ]

    def node_starts(self, node: SimNode) -> None:
        facts = self._facts
        ends = facts.ends[node.name]
        facts.starts[node.name] = facts.now
        if isinstance(self._expected, ExpectedInOneHop):
            self._expected.restarted(node.name)
        if ends:
            ends[-1].restarted = facts.now
        if node.disk.failing and ends:  # row "failing disk"
            ends[-1].disk_failed = True
            self._expected.node_forgot(node.name)
            for payload, _ in in_wal(node.disk.journals.get(WAL)):
                facts.drop(node.name, WAL, [payload], "on a disk that failed at the start")
                facts.unread[payload][node.name] = facts.now
            kept = _kept_for_others(node)
            self.unread.update(p for p in facts.publications if any(p in record for record in kept))

    def disk_lost(self, node: SimNode) -> None:
        facts = self._facts
        ends = facts.ends[node.name]
        self.losses.lost(node.name, ends[-1].at if ends else facts.now)
        if ends:
            ends[-1].disk_kept = False
        for name, journal in node.disk.journals.items():
            if name not in (WAL, HELD):
                facts.drop(node.name, name, list(in_journal(journal)), "disk lost")
        wal = node.disk.journals.get(WAL)
        facts.drop(node.name, WAL, [payload for payload, _ in in_wal(wal)], "disk lost")
        self._expected.node_forgot(node.name)

    def site_dies(self, site: str) -> None:
        """In a mesh a node, or a broker, is about to die: before anything is lost."""
        facts = self._facts
        facts.deaths[site].append(facts.now)
        for client in facts.sites_clients(site):
            self._redelivery.repeats.ending(client, facts.publications)

    def own_copies_lost(self, delivery: ExpectedDelivery, payload: bytes) -> set[str]:
        """The sites that a subscriber was at, if their nodes or brokers died since a message was published,
        or so shortly before that they were taken for alive: with that goes what they had for it."""
        facts = self._facts
        sites = {delivery.path[-1], *facts.given_at[delivery.client, payload]}
        since = facts.publications[payload].at - NOTICED
        return {site for site in sites if any(at >= since for at in facts.deaths[site])}


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


def _sent_again(node: SimNode, written: Mapping[str, set[bytes]]) -> set[bytes]:
    """What others have taken from a node, and its disk, which failed, did not hear that."""
    lanes = [outbox for outbox in node.outboxes if outbox.place.startswith("lanes/")]
    return set().union(*(written[outbox.place].difference(outbox.in_memory()) for outbox in lanes))


def _kept_for_others(node: SimNode) -> list[bytes]:
    """The records on its disk of what a node keeps for others' clients."""
    return node.disk.journals[HELD].contents() if HELD in node.disk.journals else []

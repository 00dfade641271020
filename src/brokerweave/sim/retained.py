"""Retained messages: which one all brokers should end with, and where that cannot be known.

Owns row "retained" of docs/guarantees.md: the newest that nodes knew of wins, and a site that lacks it gets
it by comparison. Must not know: how indexes are compared.
"""

from __future__ import annotations

from brokerweave.sim.deletions import Deletions
from brokerweave.sim.facts import Facts, ModelPublication


class RetainedRules:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.deletions = Deletions()

    def unsure_topics(self) -> set[str]:
        """Cluster delivery forwards what the broker acknowledged: a node killed before that leaves a message
        retained at its own broker only (row "cluster"). So does a node that is killed while its disk fails
        (row "failing disk"), or that is started so when all others that had it have died."""
        facts = self._facts
        failed = {node for node, ends in facts.ends.items() if any(end.disk_failed for end in ends)}
        killed = self.deletions.unsure(
            lambda site, at: site in failed or (facts.cluster and facts.killed_since(site, at))
        )
        return killed | {
            p.topic
            for p in facts.publications.values()
            if p.retain and (p.site in failed or (facts.cluster and p.qos and self._killed_before_ack(p)))
        }

    def _killed_before_ack(self, publication: ModelPublication) -> bool:
        return not publication.acknowledged and self._facts.killed_since(publication.site, publication.at)

    def newer_than(self, payload: bytes) -> bytes | None:
        """A retained message that was published where this one had been before: it should have won. Empty if
        this one was deleted there."""
        facts = self._facts
        older = facts.publications[payload]
        for publication in facts.publications.values():
            if not publication.retain or publication.topic != older.topic or publication is older:
                continue
            for site in publication.sites:  # its publisher may have lost one before it was passed on there
                own = facts.visits[site, publication.payload]
                read_at = facts.waited.get((site, publication.payload), own[0].at if own else 0.0)
                if own and own[0].came_from is None and self._had_before(site, payload, read_at):
                    return publication.payload
        gone = any(self._had_before(d.site, payload, d.at) for d in self.deletions.of(older.topic))
        return b"" if gone else None

    def _had_before(self, node: str, payload: bytes, until: float) -> bool:
        """Whether a node knew at this time that it had had a message."""
        seen = self._facts.visits[node, payload]
        if not seen or seen[-1].at >= until:
            return False
        between = [end for end in self._facts.ends[node] if seen[-1].at <= end.at <= until]
        return not any(end.mid_write or not end.disk_kept for end in between)


def compared(facts: Facts, site: str, publication: ModelPublication) -> bool:
    """Whether a site has a message because its index, or its broker, lacked what it was to retain."""
    visits, takes = facts.visits[site, publication.payload], facts.takes[site, publication.payload]
    dropped = any(node == site for node, _ in facts.drops[publication.payload])
    corrected = len(takes) > sum(visit.local for visit in visits)
    lost = not publication.qos and any(
        visit.at <= at <= takes[-1] for visit in visits for at in facts.injector_losses[site] if takes
    )
    return publication.retain and (dropped or corrected or lost or any(visit.repair for visit in visits))

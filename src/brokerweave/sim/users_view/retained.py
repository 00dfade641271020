"""Which retained message all brokers should end with, and where users cannot know that.

Implements what `resting` asks about retained messages. Must not know: indexes, versions.
"""

from __future__ import annotations

from math import inf

from brokerweave.sim.users_view.faults import FaultLog
from brokerweave.sim.users_view.history import History, PublishedMessage

KNOWN_SECONDS = 6.0
"""After this, everyone in reach knows of a retained message that was acknowledged."""


class RetainedView:
    def __init__(self, history: History, faults: FaultLog) -> None:
        self._history = history
        self._faults = faults

    def unsure_topics(self) -> set[str]:
        """Where a message or a deletion may have stayed at its own broker (rows "cluster delivery" and
        "failing disk"): its node was killed before its publisher was answered, or its disk failed when it
        ended or was started."""
        history = self._history
        deleted = {topic for at, site, topic in history.deletions if self._stayed(site, at, inf)}
        return deleted | {
            publication.topic
            for publication in history.publications.values()
            if publication.retain and self._may_have_stayed(publication)
        }

    def _may_have_stayed(self, publication: PublishedMessage) -> bool:
        return self._lost(publication) or any(
            self._stayed(each.site, each.at, publication.acknowledged) for each in publication.sent
        )

    def _lost(self, publication: PublishedMessage) -> bool:
        """Whether its site died, and another one ended whose disk had failed when it was to have it: nobody
        else may have known of it."""
        faults, at = self._faults, publication.at
        failed = any(
            end.since >= at
            for trouble in faults.between(at, inf, "disk")
            for site in trouble.sites - publication.sites
            for end in faults.nodes[site]
        )
        died = any(end.lost for site in publication.sites for end in faults.broker_outages(site, at, inf))
        return failed and died

    def _stayed(self, site: str, since: float, until: float) -> bool:
        ends = self._faults.nodes[site]
        killed = any(since <= end.since <= until and not end.graceful for end in ends)
        failed = any(
            trouble.kind == "disk" and site in trouble.sites and trouble.overlaps(moment, moment)
            for trouble in self._faults.troubles
            for end in ends
            for moment in (end.since, end.until)
        )
        return killed or failed

    def newer_than(self, payload: bytes) -> bytes | None:
        """A retained message that was published when this one was known everywhere: it should have won."""
        older = self._history.publications[payload]
        for publication in self._history.publications.values():
            newer = publication.retain and publication.topic == older.topic and publication is not older
            if newer and publication.acknowledged < inf and self._knew(older, publication):
                return publication.payload
        return None

    def _knew(self, older: PublishedMessage, newer: PublishedMessage) -> bool:
        """Nothing was broken between the two."""
        since = min((sending.at for sending in older.sent), default=inf)
        last = max((sending.at for sending in older.sent), default=inf)
        if older.acknowledged == inf or newer.at < max(last, older.acknowledged) + KNOWN_SECONDS:
            return False
        return not self._faults.any_between(since, newer.at)

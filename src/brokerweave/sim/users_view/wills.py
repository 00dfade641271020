"""Rule "will": nobody gets the will of a client that said good-bye, or was back in time.

Invariant: only what its node had read counts as a good-bye, and only a node that lived on knows of it. Must
not know: how a will travels.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from brokerweave.sim.users_view.faults import FaultLog
from brokerweave.sim.users_view.history import History

KNOWN_SECONDS = 0.2
"""Until a broker, and the other sites, know of a good-bye or a return."""


GAVE_UP_SECONDS = 10.0
"""How long a gateway waits for the old site of a client that moves, with all that it does before."""


def find(history: History, faults: FaultLog) -> Iterator[str]:
    for client, receipts in history.got.items():
        for payload in {each.payload for each in receipts if history.publications[each.payload].is_will}:
            first = history.receipts[client, payload][:1]
            will = history.publications[payload]
            if first and (why := _wrong(history, faults, payload, first[0].at)):
                yield f"{client} got the will {payload!r} of {will.client}, which {why}"


def _wrong(history: History, faults: FaultLog, payload: bytes, arrived: float) -> str:
    if payload in history.goodbyes:
        at, end, written = history.goodbyes[payload]
        heard = end.was_read(written) and at < arrived
        if (
            heard
            and not _died(history, faults, payload, at)
            and not _taken_for_dead(history, faults, payload, at)
        ):
            return "had said good-bye"
    moved = history.moved_from.get(payload, inf)
    free = min(history.will_free.get(payload, inf), history.goodbyes.get(payload, (inf,))[0])
    broken = _died(history, faults, payload, moved) or (
        payload in history.many_sites and faults.any_between(max(moved, arrived - GAVE_UP_SECONDS), arrived)
    )
    if moved < arrived <= free and not broken:
        return "had moved as planned"
    at = history.cancelled.get(payload, arrived)
    first = history.publications[payload].first
    if at + KNOWN_SECONDS < first and not _died(history, faults, payload, at):
        return "had come back"
    return ""


def _died(history: History, faults: FaultLog, payload: bytes, at: float) -> bool:
    """Whether a site where the client had been was down, or out of reach of another one, just then."""
    sites = history.publications[payload].sites
    return any(
        faults.apart(site, other, at, at + KNOWN_SECONDS)
        for site in sites
        for other in (*faults.sites, f"{site}/broker")
    )


def _taken_for_dead(history: History, faults: FaultLog, payload: bytes, at: float) -> bool:
    """Whether the client's site was out of reach of another one for so long that this one may have published
    the will before the good-bye; who gets it may have been away."""
    will = history.publications[payload]
    return any(
        faults.long_apart(site, other, will.at, at)
        for site in will.sites
        for other in faults.sites
        if other != site
    )

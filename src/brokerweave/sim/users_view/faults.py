"""What the simulator broke, when, and until when.

Owns the record of faults, as they were made. Invariant: only what is done to machines, wires and brokers is
noted, not what it does to a node. Must not know: clients, messages, what a fault may excuse.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf

from brokerweave.sim.schedule import Argument

PASSED_SECONDS = 0.7
"""After a fault, until what waited for a link has passed."""
NOTICED_SECONDS = 3.0
"""Until the death of a site is noticed everywhere."""


@dataclass(slots=True, eq=False)
class Downtime:
    """A node, or a broker, was down."""

    site: str
    since: float
    until: float = inf
    graceful: bool = False
    lost: bool = False
    """Without its disk, or its state."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something did not work as usual, at a site, or between two."""

    kind: str
    sites: frozenset[str]
    since: float
    until: float

    def overlaps(self, since: float, until: float) -> bool:
        return self.since <= until and self.until >= since


class FaultLog:
    def __init__(self, now: Callable[[], float], sites: list[str], copies: int, patience: float) -> None:
        self.now = now
        self.sites = sites
        self.copies = copies
        self.patience = patience
        """Seconds that an acknowledgement waits for sites that do not answer."""
        self.nodes: defaultdict[str, list[Downtime]] = defaultdict(list)
        self.brokers: defaultdict[str, list[Downtime]] = defaultdict(list)
        self.troubles: list[Trouble] = []
        self.drops: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
        """By site: when its status counted a message that a full queue dropped, and for which other site that
        was; for none: for its broker."""
        self._links: defaultdict[frozenset[str], list[tuple[float, bool]]] = defaultdict(list)
        """When a link was up at both ends, and when no longer."""
        self._ends: defaultdict[frozenset[str], set[str]] = defaultdict(set)
        self._apart: dict[frozenset[str], list[tuple[float, float]]] = {}

    # What is told

    def node_ends(self, site: str, graceful: bool) -> None:
        self.nodes[site].append(Downtime(site, self.now(), graceful=graceful))
        for other in self.sites:
            self.link_changed(site, other, False)

    def node_starts(self, site: str) -> None:
        if self.nodes[site]:
            self.nodes[site][-1].until = self.now()

    def disk_lost(self, site: str) -> None:
        if self.nodes[site]:
            self.nodes[site][-1].lost = True

    def broker_dies(self, site: str, keeps_state: bool) -> None:
        self.brokers[site].append(Downtime(site, self.now(), lost=not keeps_state))

    def broker_starts(self, site: str) -> None:
        self.brokers[site][-1].until = self.now()

    def action(self, kind: str, arguments: tuple[Argument, ...]) -> None:
        """An action of the schedule is carried out now."""
        lasts, name = arguments[-1], str(arguments[0]) if arguments else ""
        match kind:
            case "delay":
                other, delay, jitter, _, lasts = arguments[1:]
                slow = float(lasts) + float(delay) + float(jitter)  # what was sent last arrives then
                self._between((name,), (str(other),), kind, slow)
            case "cut":
                wire = {"broker": f"{name}/broker", "clients": f"{name}/clients"}.get(str(arguments[1]))
                others = (wire,) if wire else tuple(site for site in self.sites if site != name)
                self._between((name,), others, kind, 0.0)
            case "partition" | "split":
                half = tuple(name.split("+"))
                self._between(half, tuple(site for site in self.sites if site not in half), kind, lasts)
            case "unplug":
                self._trouble(kind, {name, str(arguments[1])}, 0.0)
            case "link":
                self._between((name,), (str(arguments[1]),), kind, lasts)
            case "freeze" | "disk" | "skew":
                lasts = inf if kind == "skew" else lasts
                self._trouble(kind, {name}, lasts)

    def _between(self, ones: tuple[str, ...], others: tuple[str, ...], kind: str, lasts: Argument) -> None:
        for one in ones:
            for other in others:
                self._trouble(kind, {one, other}, lasts)

    def _trouble(self, kind: str, sites: set[str], lasts: Argument) -> None:
        self.troubles.append(Trouble(kind, frozenset(sites), self.now(), self.now() + float(lasts)))

    def link_changed(self, site: str, other: str, up: bool) -> None:
        key, ends = frozenset((site, other)), self._ends[frozenset((site, other))]
        before = len(ends) == 2
        (ends.add if up else ends.discard)(site)
        if before != (len(ends) == 2):
            self._links[key].append((self.now(), len(ends) == 2))

    def queue_full(self, site: str, to: str) -> None:
        self.drops[site].append((self.now(), to))

    # What can be asked

    def between(self, since: float, until: float, *kinds: str) -> Iterator[Trouble]:
        return (
            trouble
            for trouble in self.troubles
            if trouble.overlaps(since, until) and (not kinds or trouble.kind in kinds)
        )

    def node_outages(self, site: str, since: float, until: float) -> list[Downtime]:
        return [each for each in self.nodes[site] if each.since <= until and each.until >= since]

    def broker_outages(self, site: str, since: float, until: float) -> list[Downtime]:
        return [each for each in self.brokers[site] if each.since <= until and each.until >= since]

    def apart(self, one: str, other: str, since: float, until: float) -> bool:
        """Whether two sites did not reach each other, or only slowly, at some time in between."""
        return any(begin <= until and end >= since for begin, end in self._spans(one, other))

    def long_apart(self, one: str, other: str, since: float, until: float) -> bool:
        """Whether one of two sites may have taken the other one for dead at some time in between."""
        return any(
            begin <= until and end >= since and end - begin >= NOTICED_SECONDS
            for begin, end in self._spans(one, other)
        )

    def clear(self, one: str, other: str, since: float) -> float:
        """From when on after this two sites reached each other."""
        for begin, end in self._spans(one, other):
            if begin <= since <= end:
                since = end
        return since

    def _spans(self, one: str, other: str) -> list[tuple[float, float]]:
        """When two sites, or a site and its broker, did not reach each other as usual."""
        key = frozenset((one, other))
        if key not in self._apart:
            self._apart[key] = sorted(self._find_spans(key)) if len(key) > 1 else []
        return self._apart[key]

    def _find_spans(self, key: frozenset[str]) -> Iterator[tuple[float, float]]:
        for trouble in self.troubles:
            if trouble.sites == key or (trouble.kind == "freeze" and trouble.sites <= key):
                breaks = trouble.kind in ("cut", "link")
                until = self._linked_again(key, trouble.since, trouble.until) if breaks else trouble.until
                yield trouble.since, until + PASSED_SECONDS
        for site in key:
            for end in self.nodes[site]:
                until = self._linked_again(key, end.since, end.until)
                # Who has lost everything is missed by nobody who knows that it is gone.
                yield (
                    end.since,
                    min(until, end.since + NOTICED_SECONDS) if end.lost else until + PASSED_SECONDS,
                )
            for end in self.brokers[site]:
                yield end.since, end.until + PASSED_SECONDS
        yield from self._downs(key)

    def _linked_again(self, key: frozenset[str], since: float, until: float) -> float:
        """When a link was up again at both ends, if it was one."""
        return next((at for at, up in self._links[key] if up and at > since), until)

    def _downs(self, key: frozenset[str]) -> Iterator[tuple[float, float]]:
        """When a link was shown as down at one end."""
        down = 0.0
        for at, up in self._links[key]:
            if up:
                yield down, at + PASSED_SECONDS
            else:
                down = at
        if self._links[key] and not self._links[key][-1][1]:
            yield down, inf

    def kept_nothing(self, site: str, since: float, until: float) -> list[float]:
        """When a node ended and lost what it had on disk: with it, or as the disk failed."""
        return [
            end.since
            for end in self.nodes[site]
            if since <= end.since <= until and (end.lost or self._disk_failed(site, end))
        ]

    def _disk_failed(self, site: str, end: Downtime) -> bool:
        return any(
            site in trouble.sites
            and (trouble.overlaps(end.since, end.since) or trouble.overlaps(end.until, end.until))
            for trouble in self.between(end.since, end.until, "disk")
        )

    def any_between(self, since: float, until: float) -> bool:
        down = any(
            self.node_outages(site, since, until) or self.broker_outages(site, since, until)
            for site in self.sites
        )
        return down or any(True for _ in self.between(since, until))

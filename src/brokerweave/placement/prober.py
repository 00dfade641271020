"""Which site a gateway measures when: near ones and those in use often, far ones seldom.

Owns the measurements under way and the estimate of each site's round trip. The `near` nearest sites and those
in use get a whole measurement every `every` seconds. Each of the others gets one ping in `far_every`, and the
more seldom the farther it is; a site that turns out to be near is measured at once. Invariants: what is sent
to far sites stays below `far_rate` pings a second, however many there are; a site is in at most one
measurement. Must not know: bytes, addresses, what is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Protocol

from brokerweave.membership.agenda import Agenda, Due
from brokerweave.placement.measuring import PINGS, PingSeries
from brokerweave.placement.quality import Sample

MOST_SEQ = 0xFFFFFFFF
_SLOWEST = 4.0
"""Times `far_every`, for the farthest."""
_RETRIES = 2
"""Pings to a far site that are repeated soon if they are not answered: most were lost on the way."""
_FIRST_GAP = 0.15
"""Seconds between first pings to sites that nothing is known of."""
_SOON = 0.1


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """Times are seconds."""

    every: float = 15.0
    near: int = 5
    """Sites that are measured as a whole. Cost: 10 pings of some 190 bytes, with answers and headers,
    each."""
    far_every: float = 60.0
    far_rate: float = 2.0
    """Pings a second to far sites, at most. Cost: some 190 bytes each, with answer and headers."""


class ProbeHost(Protocol):
    def ping(self, site: str, seq: int) -> bool:
        """Send one, or say False if that is not possible yet. Any answer with this `seq` from there goes to
        `Prober.answered`."""

    def measured(self, site: str, sample: Sample) -> None: ...


class _Target:
    __slots__ = ("due", "estimate", "measured", "measuring", "silent")

    def __init__(self, estimate: float | None) -> None:
        self.estimate = estimate
        """Of the round trip: what was measured last, or else somebody's guess."""
        self.measured = False
        self.measuring = False
        self.silent = 0
        """Measurements without an answer, one after another."""
        self.due: Due | None = None


class Prober:
    def __init__(self, settings: ProbeSettings, random: Random, host: ProbeHost) -> None:
        self._settings = settings
        self._random = random
        self._host = host
        self._agenda = Agenda()
        self._targets: dict[str, _Target] = {}
        self._used: frozenset[str] = frozenset()
        self._near: frozenset[str] = frozenset()
        self._pings: dict[int, tuple[PingSeries, Callable[[Sample], None]]] = {}
        self._seq = 0
        self.sent = 0

    # What is measured

    def set_sites(self, estimates: Mapping[str, float | None], now: float) -> None:
        """The sites there are, each with a guess of the round trip if there is one. What was measured
        stays."""
        for name in self._targets.keys() - estimates.keys():
            due = self._targets.pop(name).due
            if due is not None:
                due.cancel()
        first = now
        fresh = [name for name in estimates if name not in self._targets]
        for name, estimate in estimates.items():
            if name in fresh:
                self._targets[name] = _Target(estimate)
            elif not self._targets[name].measured:
                self._targets[name].estimate = estimate
        self._rank(now)
        for name in fresh:
            if name in self._near:
                continue  # it has its turn
            if estimates[name] is None:
                first += _FIRST_GAP
                self._plan(name, first)
            else:
                self._plan(name, now + self._wait(name) * self._random.random())

    def set_used(self, sites: Iterable[str], now: float) -> None:
        """Where clients of this gateway are."""
        self._used = frozenset(sites)
        self._rank(now)

    @property
    def near(self) -> frozenset[str]:
        """The sites that are measured as a whole."""
        return self._near

    def estimates(self) -> dict[str, float]:
        """The last known round trip of each site that answered, for who has to choose one alone."""
        known = {name: target.estimate for name, target in self._targets.items() if target.measured}
        return {name: trip for name, trip in known.items() if trip is not None and trip < inf}

    def measure(self, site: str, pings: int, now: float, done: Callable[[Sample], None]) -> None:
        """Somebody asked for it (EMMA's QOSREQ)."""
        self._step(PingSeries(site, pings, now), done, now)

    # What happens

    def answered(self, seq: int, now: float) -> str | None:
        """Which site was pinged with it, if it was lately."""
        found = self._pings.get(seq)
        if found is None:
            return None
        measuring, done = found
        measuring.answered(seq, now)
        if measuring.finished(now):
            self._finish(measuring, done, now)
        return measuring.site

    def next_due(self) -> float:
        return self._agenda.next_due()

    def tick(self, now: float) -> None:
        self._agenda.run(now)

    # Turns

    def _plan(self, name: str, when: float) -> None:
        target = self._targets[name]
        if target.due is not None:
            target.due.cancel()
        target.due = self._agenda.at(when, lambda now: self._turn(name, now))

    def _turn(self, name: str, now: float) -> None:
        target = self._targets[name]
        target.due = None
        if not target.measuring:
            target.measuring = True
            pings = PINGS if name in self._near else 1
            self._step(PingSeries(name, pings, now), lambda sample: self._measured(name, sample), now)

    def _measured(self, name: str, sample: Sample) -> None:
        target = self._targets.get(name)
        if target is not None:
            target.measuring = False
            target.measured = True
            target.estimate = sample.mean
            target.silent = target.silent + 1 if sample.mean == inf else 0
            self._host.measured(name, sample)
            self._rank(sample.at)
            if target.due is None:  # it may have become near, and have its turn already
                self._plan(name, sample.at + self._wait(name))

    def _wait(self, name: str) -> float:
        """With a tenth of chance, so that gateways that start together do not stay together."""
        settings = self._settings
        spread = 0.9 + 0.2 * self._random.random()
        if name in self._near or 0 < self._targets[name].silent <= _RETRIES:
            # A measurement itself takes a while, and counts from its beginning.
            return max(settings.every * spread - PINGS * 0.25, 0.0)
        far = len(self._targets) - len(self._near)
        usual = max(settings.far_every, far / settings.far_rate)
        return usual * self._distance(name) * spread

    def _distance(self, name: str) -> float:
        """How many times as far as the near ones, within bounds."""
        reach = max((self._estimate(each) for each in self._near), default=inf)
        estimate = self._estimate(name)
        if not 0 < reach < inf or estimate <= reach:
            return 1.0
        return min(estimate / reach, _SLOWEST)

    def _estimate(self, name: str) -> float:
        target = self._targets.get(name)
        return inf if target is None or target.estimate is None else target.estimate

    def _rank(self, now: float) -> None:
        """Who is near; who has just become so is measured soon."""
        nearest = sorted(self._targets, key=lambda name: (self._estimate(name), name))[: self._settings.near]
        near = frozenset(nearest) | (self._used & self._targets.keys())
        for name in sorted(near - self._near):  # a simulated run is a function of its seed
            if not self._targets[name].measuring:
                self._plan(name, now + self._random.random() * _SOON)
        self._near = near

    # Pings

    def _step(self, measuring: PingSeries, done: Callable[[Sample], None], now: float) -> None:
        if measuring.sends:
            self._seq = self._seq % MOST_SEQ + 1
            self._pings[self._seq] = (measuring, done)
            if self._host.ping(measuring.site, self._seq):
                self.sent += 1
                measuring.send(self._seq, now)
            elif not measuring.put_off(now):
                measuring.send(self._seq, now)  # it counts as lost
            else:
                del self._pings[self._seq]
        elif measuring.finished(now):
            self._finish(measuring, done, now)
            return
        self._agenda.at(measuring.next_due(), lambda later: self._step_if_open(measuring, done, later))

    def _step_if_open(self, measuring: PingSeries, done: Callable[[Sample], None], now: float) -> None:
        if measuring.sends or any(seq in self._pings for seq in measuring.seqs):
            self._step(measuring, done, now)

    def _finish(self, measuring: PingSeries, done: Callable[[Sample], None], now: float) -> None:
        for seq in measuring.seqs:
            self._pings.pop(seq, None)
        done(measuring.result(now))

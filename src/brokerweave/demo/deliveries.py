"""What was published and what arrived, and what that means: lost, doubled, how late.

Owns the arithmetic of the summary. Invariants: only what a broker acknowledged counts as published; a copy
beyond the first is *allowed* only where QoS 1 lets the one node that was killed repeat it. Must not know:
clients, brokers, how a summary is shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

Key = tuple[str, str, int]
"""Site, sensor, sequence: the name of one message."""

ACK_MARGIN = 1.0
"""Seconds before the kill in which a delivered message may still have been unacknowledged somewhere
between node, broker and subscriber of the killed site; acknowledgements take milliseconds."""


@dataclass(frozen=True, slots=True)
class SentMessage:
    """One message that a sensor gave to its client; `acked` is None if no PUBACK came."""

    key: Key
    at: float
    acked: float | None


@dataclass(frozen=True, slots=True)
class Outage:
    """The kill of one site's node, between `begin` and `end`; from `over` on it and its clients were back."""

    site: str
    begin: float
    end: float
    over: float

    def may_repeat(self, message: SentMessage, at_site: str, first_arrival: float) -> bool:
        """Whether QoS 1 allows a second copy at a site: somebody had not acknowledged the first one.

        Either the sensor, which then sends it again as a new message to everybody, or, at the killed site
        only, the broker towards the node or the subscriber towards the broker. Between nodes nothing may
        double: they recognise what comes again.
        """
        if message.at > self.end:
            return False
        if message.key[0] == self.site and (message.acked is None or message.acked >= self.begin):
            return True
        return at_site == self.site and first_arrival >= self.begin - ACK_MARGIN

    def touches(self, message: SentMessage) -> bool:
        return self.begin - ACK_MARGIN <= message.at <= self.over


@dataclass(frozen=True, slots=True)
class Latency:
    """Of deliveries over this many hops between nodes; seconds."""

    hops: int
    deliveries: int
    median: float
    p95: float
    longest_wait: float
    """The slowest delivery of a message that met the outage; 0 if there was none."""


@dataclass(frozen=True, slots=True)
class DeliverySummary:
    published: int
    unacknowledged: int
    expected: int
    delivered: int
    lost: tuple[tuple[Key, str], ...]
    doubled: tuple[tuple[Key, str], ...]
    """Copies that nothing allows."""
    doubled_allowed: int
    latencies: tuple[Latency, ...]

    @property
    def ok(self) -> bool:
        return self.published > 0 and not self.lost and not self.doubled


def summarise(
    row: Sequence[str],
    messages: Iterable[SentMessage],
    arrivals: Mapping[str, Iterable[tuple[Key, float]]],
    outage: Outage,
) -> DeliverySummary:
    """`row` is the sites in the order of their nodes; `arrivals` what each subscriber got, in order."""
    sent = {message.key: message for message in messages}
    times = {site: _by_key(got) for site, got in arrivals.items()}
    acknowledged = [message for message in sent.values() if message.acked is not None]
    lost: list[tuple[Key, str]] = []
    doubled: list[tuple[Key, str]] = []
    allowed = 0
    for site in row:
        lost += [(message.key, site) for message in acknowledged if message.key not in times[site]]
        for key, got in times[site].items():
            if key in sent and outage.may_repeat(sent[key], site, got[0]):
                allowed += len(got) - 1
            else:
                doubled += [(key, site)] * (len(got) - 1)
    expected = len(acknowledged) * len(row)
    return DeliverySummary(
        published=len(acknowledged),
        unacknowledged=len(sent) - len(acknowledged),
        expected=expected,
        delivered=expected - len(lost),
        lost=tuple(lost),
        doubled=tuple(doubled),
        doubled_allowed=allowed,
        latencies=_latencies(row, acknowledged, times, outage),
    )


def _by_key(arrivals: Iterable[tuple[Key, float]]) -> dict[Key, list[float]]:
    times: dict[Key, list[float]] = defaultdict(list)
    for key, at in arrivals:
        times[key].append(at)
    return times


def _latencies(
    row: Sequence[str],
    messages: Iterable[SentMessage],
    times: Mapping[str, Mapping[Key, list[float]]],
    outage: Outage,
) -> tuple[Latency, ...]:
    quiet: dict[int, list[float]] = defaultdict(list)
    disturbed: dict[int, list[float]] = defaultdict(list)
    place = {site: index for index, site in enumerate(row)}
    for message in messages:
        kind = disturbed if outage.touches(message) else quiet
        for site in row:
            if message.key in times[site]:
                hops = abs(place[message.key[0]] - place[site])
                kind[hops].append(times[site][message.key][0] - message.at)
    return tuple(
        Latency(hops, len(took), median(took), _p95(took), max(disturbed[hops], default=0.0))
        for hops, took in sorted(quiet.items())
    )


def _p95(values: list[float]) -> float:
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]

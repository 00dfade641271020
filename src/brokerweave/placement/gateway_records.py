"""What a gateway's agent remembers: the orders that it had, its questions for a place, its measurements.

Invariants: an order is new once; a question is answered once; of each site the last measurement is kept. Must
not know: who sent or asked, datagrams.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from brokerweave.placement.history import MoveOutcome
from brokerweave.placement.messages import OrderResult, SiteReading
from brokerweave.placement.quality import Sample

MOST_REMEMBERED = 4096
"""Orders whose outcome can be said again."""
OrderKey = tuple[str, int]
"""The controller, and its number for the order."""


class OrderBook:
    def __init__(self, gateway: str) -> None:
        self._gateway = gateway
        self._results: OrderedDict[OrderKey, OrderResult | None] = OrderedDict()
        self._moves: dict[int, OrderKey] = {}
        self._number = 0

    def __contains__(self, order: object) -> bool:
        return order in self._results

    def result(self, order: OrderKey) -> OrderResult | None:
        return self._results.get(order)

    def begin(self, order: OrderKey) -> int:
        """The number of the move that the gateway is told of."""
        self._number += 1
        self._moves[self._number] = order
        self._results[order] = None
        if len(self._results) > MOST_REMEMBERED:
            self._results.popitem(last=False)
        return self._number

    def end(self, number: int, outcome: MoveOutcome, note: str) -> tuple[str, OrderResult] | None:
        """Whom to tell what; None if there is no such move any more."""
        order = self._moves.pop(number, None)
        if order is None:
            return None
        result = self._results[order] = OrderResult(self._gateway, order[1], outcome, note)
        return order[0], result


class Questions:
    """Where new clients should go."""

    def __init__(self) -> None:
        self._seq = 0
        self._waiting: dict[int, Callable[[tuple[str, ...]], None]] = {}

    def ask(self, done: Callable[[tuple[str, ...]], None]) -> int:
        self._seq = self._seq % 0xFFFFFFFF + 1
        self._waiting[self._seq] = done
        return self._seq

    def answered(self, seq: int) -> Callable[[tuple[str, ...]], None] | None:
        return self._waiting.pop(seq, None)


class Readings:
    def __init__(self) -> None:
        self._last: dict[str, tuple[float, SiteReading]] = {}
        self._unreported: set[str] = set()
        self._cpu: dict[str, float] = {}

    def add(self, site: str, sample: Sample) -> None:
        entry = SiteReading(
            site, 0.0, sample.mean, sample.jitter, sample.loss, sample.pings, self._cpu.get(site, 0.0)
        )
        self._last[site] = (sample.at, entry)
        self._unreported.add(site)

    def cpu(self, site: str, share: float) -> None:
        self._cpu[site] = share

    def keep(self, sites: Iterable[str]) -> None:
        kept = set(sites)
        for name in self._last.keys() - kept:
            del self._last[name]
        for name in self._cpu.keys() - kept:
            del self._cpu[name]

    def all_again(self) -> None:
        """Somebody begins with nothing."""
        self._unreported |= self._last.keys()

    def take(self, now: float) -> list[SiteReading]:
        """What was not reported yet."""
        news = [self._last[site] for site in sorted(self._unreported & self._last.keys())]
        self._unreported.clear()
        return [entry._replace(age=max(now - at, 0.0)) for at, entry in news]

"""Calls into plug-ins: what one of them raises ends with the call.

Owns the count of such failures and the kinds that were reported. Invariants: neither a client's connection
nor a link ends because a plug-in raised; each kind (plug-in, exception, place) is reported once, each failure
counted. A packet whose listener raised passes. Must not know: what plug-ins do, logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from brokerweave.errors import RemoteProtocolError
from brokerweave.mqtt.packets import Packet
from brokerweave.node.counters import Counters
from brokerweave.plugin import Listener, Strategy

MOST_KINDS = 1_000
"""Kinds remembered; those beyond are counted only."""


class Plugins:
    def __init__(
        self, listeners: tuple[Listener, ...], counters: Counters, warn: Callable[[str], None]
    ) -> None:
        self.listeners = listeners
        self.report: Callable[[str, Exception], None] = lambda text, error: warn(text)
        """Hears of each new kind of failure."""
        self._counters = counters
        self._kinds: set[tuple[str, str, str]] = set()

    def tell(self, event: Callable[[Listener], object]) -> None:
        """Call something of every listener."""
        for listener in self.listeners:
            try:
                event(listener)
            except Exception as error:
                self.failed(listener, error)

    def failed(self, plugin: Strategy | Listener, error: Exception) -> None:
        what = "strategy" if isinstance(plugin, Strategy) else "listener"
        self._counters.add(f"{what}_failures")
        name = getattr(plugin, "name", type(plugin).__name__)
        kind = (f"{what} {name}", type(error).__name__, place_of(error))
        if kind not in self._kinds and len(self._kinds) < MOST_KINDS:
            self._kinds.add(kind)
            self.report(f"{kind[0]} failed in {kind[2]}: {error!r}", error)


class GuardedStrategy(Strategy):
    """A strategy as the node calls it, but for `route`, which the router guards itself. It has no context
    and no counters of its own."""

    def __init__(self, inner: Strategy, failed: Callable[[Strategy, Exception], None]) -> None:
        self.inner = inner
        self._failed = failed

    def _call(self, event: Callable[[], object]) -> None:
        try:
            event()
        except Exception as error:
            self._failed(self.inner, error)

    def _ask(self, question: Callable[[], bool], otherwise: bool) -> bool:
        try:
            return question()
        except Exception as error:
            self._failed(self.inner, error)
            return otherwise

    def subscribed(self, filters: Mapping[str, int]) -> None:
        self._call(lambda: self.inner.subscribed(filters))

    def unsubscribed(self, filters: Iterable[str]) -> None:
        self._call(lambda: self.inner.unsubscribed(filters))

    def client_joined(self, client: str, since: int) -> None:
        self._call(lambda: self.inner.client_joined(client, since))

    def client_wants(self, client: str, filters: Mapping[str, int | None]) -> None:
        self._call(lambda: self.inner.client_wants(client, filters))

    def client_left(self, client: str) -> None:
        self._call(lambda: self.inner.client_left(client))

    def neighbour_recalled(self, neighbour: str, kept: Mapping[str, int]) -> None:
        self._call(lambda: self.inner.neighbour_recalled(neighbour, kept))

    def neighbour_up(self, neighbour: str) -> None:
        self._call(lambda: self.inner.neighbour_up(neighbour))

    def neighbour_down(self, neighbour: str) -> None:
        self._call(lambda: self.inner.neighbour_down(neighbour))

    def neighbour_removed(self, neighbour: str) -> None:
        self._call(lambda: self.inner.neighbour_removed(neighbour))

    def packet_arrived(self, neighbour: str, packet: Packet) -> None:
        """Raises `RemoteProtocolError` where the strategy does: the neighbour's fault, not the plug-in's."""
        try:
            self.inner.packet_arrived(neighbour, packet)
        except RemoteProtocolError:
            raise
        except Exception as error:
            self._failed(self.inner, error)

    def subscribing(self, client: str, filters: Mapping[str, int], proceed: Callable[[], None]) -> bool:
        return self._ask(lambda: self.inner.subscribing(client, filters, proceed), True)

    def granted(self, client: str, filters: Mapping[str, int], proceed: Callable[[], None]) -> bool:
        return self._ask(lambda: self.inner.granted(client, filters, proceed), True)

    def members_changed(self, live: frozenset[str]) -> None:
        self._call(lambda: self.inner.members_changed(live))

    def member_announced(self, member: str, data: bytes) -> None:
        self._call(lambda: self.inner.member_announced(member, data))

    def needs(self, member: str) -> bool:
        return self._ask(lambda: self.inner.needs(member), False)

    def ready(self) -> bool:
        return self._ask(self.inner.ready, True)

    def takes_publications(self) -> bool:
        return self._ask(self.inner.takes_publications, True)

    def explain(self) -> list[str]:
        try:
            return self.inner.explain()
        except Exception as error:
            self._failed(self.inner, error)
            return []

    def describe(self, neighbour: str) -> dict[str, int]:
        try:
            return self.inner.describe(neighbour)
        except Exception as error:
            self._failed(self.inner, error)
            return {}


def place_of(error: BaseException) -> str:
    """The function and line that raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}" if trace is not None else "?"

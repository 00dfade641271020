"""Small networks for tests of decisions: sites, gateways, and qualities in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping

from brokerweave.placement.core import ControllerCore, CoreSettings
from brokerweave.placement.emma import EmmaPolicy
from brokerweave.placement.graph import GraphSite
from brokerweave.placement.history import MoveOutcome
from brokerweave.placement.orders import MoveOrder
from brokerweave.placement.policy import PlacementPolicy, PolicySettings
from brokerweave.placement.quality import Sample
from brokerweave.placement.steady import SteadyPolicy

ADDRESS = ("192.0.2.1", 1883)


class SmallNetwork:
    """A controller, and gateways that carry out its orders at once, or not at all."""

    def __init__(
        self, policy: PlacementPolicy | None = None, settings: CoreSettings | None = None, obey: bool = True
    ) -> None:
        self.now = 0.0
        self.obey = obey
        self.sent: list[MoveOrder] = []
        self.core = ControllerCore(
            "c1", policy or steady(), settings or CoreSettings(gateway_timeout=1e9), self._order, 0.0
        )
        self._unanswered: list[MoveOrder] = []

    def _order(self, order: MoveOrder) -> None:
        self.sent.append(order)
        self._unanswered.append(order)

    def sites(self, *names: str, **weights: float) -> SmallNetwork:
        for name in [*names, *weights]:
            self.core.site_here(GraphSite(name, ADDRESS, weight=weights.get(name, 1.0)))
        return self

    def gateway(self, gateway: str, at: str, clients: int = 1, follows: str = "") -> None:
        self.core.gateway_heard(gateway, follows, self.now)
        for number in range(clients):
            self.core.client_at(gateway, f"{gateway}-{number}", at)

    def measured(self, gateway: str, **milliseconds: float) -> None:
        for site, mean in milliseconds.items():
            self.core.graph.measured(gateway, site, Sample(self.now, mean / 1000))

    def pass_time(self, seconds: float, **gateways: Mapping[str, float]) -> None:
        """Measure all of it every 15 seconds."""
        end = self.now + seconds
        while self.now < end:
            for gateway, qualities in gateways.items():
                self.measured(gateway, **qualities)
            self.tick(min(15.0, end - self.now))

    def tick(self, seconds: float = 0.0) -> None:
        """As a shell does: as often as the core wants it."""
        end = self.now + seconds
        while self.core.next_due() <= end:
            self.now = max(self.core.next_due(), self.now)
            self.core.tick(self.now)
            self.answer()
        self.now = end

    def answer(self, outcome: MoveOutcome = MoveOutcome.DONE, note: str = "") -> None:
        if self.obey:
            for order in self._unanswered:
                self.core.orders.finished(order.gateway, order.number, outcome, note, self.now)
            self._unanswered.clear()

    def where(self) -> dict[str, str]:
        gateways = self.core.graph.gateways.values()
        return {client.id: client.site for gateway in gateways for client in gateway.clients.values()}

    def count(self, site: str) -> int:
        return list(self.where().values()).count(site)


def steady(hold: float = 30.0, rest: float = 300.0) -> SteadyPolicy:
    return SteadyPolicy(PolicySettings(hold=hold, rest=rest))


def emma() -> EmmaPolicy:
    return EmmaPolicy(PolicySettings())

"""A whole gateway that is moved by EMMA's own packets, behind what a gateway asks of an agent."""

from __future__ import annotations

from collections.abc import Mapping

from brokerweave.placement.core import CoreSettings
from brokerweave.placement.emma_agents import EmmaControllerAgent
from brokerweave.placement.followed import KnownSite
from brokerweave.placement.graph import GraphSite
from brokerweave.placement.history import MoveOutcome
from brokerweave.placement.responder import OpenResponder
from brokerweave.placement.whole_gateway import WholeGatewayAgent
from tests.unit.placement.air import Air
from tests.unit.placement.networks import emma

CONTROLLER, GATEWAY = ("10.0.0.1", 1), ("10.0.1.1", 1)
PLACES = {"a": ("10.0.2.1", 1883), "b": ("10.0.2.2", 1883)}


class Clients:
    """A gateway's clients. Implements `AgentHost`."""

    def __init__(self, air: Air, sites: list[KnownSite]) -> None:
        self.air = air
        self.sites: Mapping[str, KnownSite] = {}
        self.at: dict[str, str] = {}
        self.outcome = MoveOutcome.DONE
        self.agent = WholeGatewayAgent("g", CONTROLLER, sites, air.random, self, air.now)
        air.join(GATEWAY, self.agent, self.agent)

    def connect(self, name: str) -> str:
        chosen: list[str] = []
        self.agent.place(name, lambda sites: chosen.append(sites[0]), self.air.now)
        self.goes(name, chosen[0])
        return chosen[0]

    def goes(self, name: str, site: str) -> None:
        self.at[name] = site
        self.agent.client_at(name, site, self.air.now)

    def send(self, data: bytes, to: tuple[str, int]) -> None:
        self.air.send(data, GATEWAY, to)

    def sites_changed(self, sites: Mapping[str, KnownSite]) -> None:
        self.sites = sites

    def move(self, number: int, client: str, target: str) -> None:
        if self.outcome is MoveOutcome.DONE:
            self.goes(client, target)
        self.agent.moved(number, self.outcome, "", self.air.now)


class Deployment:
    def __init__(self, sites: list[str]) -> None:
        """`sites`: that the gateway was configured with."""
        self.air = Air()
        send = self.air.sender(CONTROLLER)
        self.controller = EmmaControllerAgent("c1", emma(), CoreSettings(), send, 0.0, 1)
        self.air.join(CONTROLLER, self.controller, self.controller)
        for name, address in PLACES.items():
            monitor = (address[0], 2)
            self.air.join(monitor, OpenResponder(self.air.sender(monitor)))
            self.controller.core.site_here(GraphSite(name, address, monitor))
        self.clients = Clients(self.air, [KnownSite(name, PLACES[name]) for name in sites])
        self.air.run(10)

    def known_at(self) -> str:
        return self.controller.core.graph.gateways["g"].clients["g"].site

    def last(self) -> MoveOutcome:
        return next(iter(self.controller.core.history.last(1, self.air.now))).outcome


def test_all_clients_follow_when_the_gateway_is_moved() -> None:
    made = Deployment(["a", "b"])
    first = made.known_at()
    assert made.clients.agent.follows == "10.0.0.1:1"
    assert {made.clients.connect(name) for name in "xyz"} == {first}
    made.controller.core.evacuate(first)
    made.air.run(5)
    (other,) = PLACES.keys() - {first}
    assert set(made.clients.at.values()) == {other} == {made.known_at()}
    assert made.last() is MoveOutcome.DONE
    assert made.clients.connect("new") == other


def test_a_gateway_none_of_whose_clients_could_be_moved_says_that_it_stays() -> None:
    made = Deployment(["a", "b"])
    first = made.known_at()
    made.clients.connect("x")
    made.clients.outcome = MoveOutcome.REFUSED
    made.controller.core.evacuate(first)
    made.air.run(1)
    assert made.clients.at == {"x": first}
    assert made.known_at() == first
    assert made.last() is MoveOutcome.REFUSED


def test_clients_that_lost_their_site_are_told_of_where_they_are() -> None:
    made = Deployment(["a", "b"])
    first = made.known_at()
    made.clients.connect("x")
    (other,) = PLACES.keys() - {first}
    made.clients.goes("x", other)
    made.air.run(1)
    assert made.known_at() == other


def test_a_site_that_the_gateway_was_not_told_of_is_called_by_its_address() -> None:
    made = Deployment([])
    address = PLACES[made.known_at()]
    assert made.clients.connect("x") == f"{address[0]}:{address[1]}"
    assert made.clients.sites[made.clients.at["x"]].clients == address


def test_before_the_controller_answers_clients_go_to_what_is_configured() -> None:
    air = Air()
    clients = Clients(air, [KnownSite("a", PLACES["a"])])
    assert clients.agent.follows == ""
    assert clients.connect("x") == "a"
    clients.agent.client_gone("x", air.now)
    assert clients.agent.round_trips() == {}
    assert clients.agent.refused == {"malformed": 0}

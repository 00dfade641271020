"""EMMA's own procedure over Table I's packets alone."""

from __future__ import annotations

from collections import Counter

import pytest

from brokerweave.placement.core import CoreSettings
from brokerweave.placement.emma_agents import EmmaControllerAgent, EmmaGatewayAgent
from brokerweave.placement.graph import GraphSite
from brokerweave.placement.responder import OpenResponder
from brokerweave.placement.table_one import Reconnect, encode
from tests.unit.placement.air import Air
from tests.unit.placement.networks import emma

CONTROLLER = ("10.0.0.1", 1)


class PaperGateway:
    def __init__(self, air: Air, number: int) -> None:
        self.air = air
        self.address = (f"10.0.1.{number}", 1)
        self.reconnections: list[tuple[str, int]] = []
        self.works = True
        self.agent = EmmaGatewayAgent(f"g{number}", CONTROLLER, air.random, self, air.now)
        air.join(self.address, self.agent, self.agent)

    def send(self, data: bytes, to: tuple[str, int]) -> None:
        self.air.send(data, self.address, to)

    def reconnect(self, number: int, site: tuple[str, int]) -> None:
        self.reconnections.append(site)
        self.agent.reconnected(number, site if self.works else self.agent.site, self.air.now)


class Paper:
    def __init__(self, sites: int, gateways: int) -> None:
        self.air = Air()
        settings = CoreSettings()
        send = self.air.sender(CONTROLLER)
        self.controller = EmmaControllerAgent("c1", emma(), settings, send, 0.0, 1)
        self.air.join(CONTROLLER, self.controller, self.controller)
        for number in range(sites):
            self.start_site(number)
        self.gateways = [PaperGateway(self.air, number) for number in range(gateways)]

    def start_site(self, number: int) -> None:
        host = f"10.0.2.{number}"
        self.air.join((host, 2), OpenResponder(self.air.sender((host, 2))))
        self.controller.core.site_here(GraphSite(f"s{number}", (host, 1883), (host, 2)))

    def count(self) -> Counter[str]:
        return Counter(gateway.agent.site[0] for gateway in self.gateways)


def test_gateways_register_are_placed_measured_and_balanced() -> None:
    paper = Paper(sites=2, gateways=10)
    paper.air.run(45)
    assert paper.count() == {"10.0.2.0": 5, "10.0.2.1": 5}
    edges = paper.controller.core.graph.gateways["g3"].edges
    assert edges["s1"].mean == pytest.approx(0.005, rel=0.01)
    assert {len(data) for data, *_ in paper.air.sent} == {5, 9, 13, 47}
    assert paper.controller.refused == {"malformed": 0}


def test_a_measurement_is_ten_pings_and_22_packets() -> None:
    paper = Paper(sites=1, gateways=1)
    paper.air.run(14)
    sizes = Counter(len(data) for data, *_ in paper.air.sent)
    assert (sizes[13], sizes[9], sizes[5]) == (1, 1, 20)


def test_gateways_move_to_a_nearer_site_that_starts() -> None:
    paper = Paper(sites=1, gateways=4)
    paper.air.delays = {frozenset({f"10.0.1.{g}", "10.0.2.0"}): 0.080 for g in range(4)}
    paper.air.run(20)
    paper.start_site(1)
    paper.air.run(31)
    assert paper.count() == {"10.0.2.1": 4}


def test_a_site_that_stops_is_left_at_once() -> None:
    paper = Paper(sites=2, gateways=6)
    paper.air.run(20)
    paper.controller.core.site_gone("s1")
    paper.air.run(0.1)
    assert paper.count() == {"10.0.2.0": 6}


def test_a_reconnection_that_fails_is_answered_with_where_the_gateway_still_is() -> None:
    paper = Paper(sites=2, gateways=1)
    paper.air.run(20)
    (gateway,) = paper.gateways
    at = gateway.agent.site
    gateway.works = False
    names = {site.clients: site.name for site in paper.controller.core.graph.sites.values()}
    paper.controller.core.evacuate(names[at])
    paper.air.run(1)
    assert gateway.agent.site == at
    assert paper.controller.core.orders.counters["refused"] == 1


def test_requests_that_are_lost_or_doubled_reconnect_once() -> None:
    paper = Paper(sites=2, gateways=6)
    paper.air.run(20)
    before = sum(len(gateway.reconnections) for gateway in paper.gateways)
    there = paper.count()["10.0.2.1"]
    paper.air.loss, paper.air.doubled = 0.3, 0.5
    paper.controller.core.site_gone("s1")
    paper.air.run(28)
    assert paper.count() == {"10.0.2.0": 6}
    assert sum(len(gateway.reconnections) for gateway in paper.gateways) == before + there


def test_what_is_no_packet_or_not_from_the_controller_is_counted_and_does_nothing() -> None:
    paper = Paper(sites=2, gateways=1)
    paper.air.run(20)
    (gateway,) = paper.gateways
    at, done = gateway.agent.site, len(gateway.reconnections)
    for data in (b"", b"\x05", b"\x09" * 13, encode(Reconnect(9, "g0", ("10.0.2.9", 1883)))):
        paper.air.send(data, ("stranger", 1), gateway.address)
        paper.air.send(data, ("stranger", 1), CONTROLLER)
    paper.air.run(1)
    assert (gateway.agent.site, len(gateway.reconnections)) == (at, done)
    assert gateway.agent.refused == {"malformed": 4}
    assert paper.controller.refused == {"malformed": 4}

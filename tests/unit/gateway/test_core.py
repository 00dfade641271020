"""A gateway's clients: searches, orders, and what clients leave. Sites and time are played by hand."""

from __future__ import annotations

from collections.abc import Callable

from brokerweave.gateway.core import GatewayCore, GatewayRules
from brokerweave.gateway.link import SiteLink
from brokerweave.gateway.orders import MoveTask
from brokerweave.gateway.transitions import ClientWay, MoveStep
from brokerweave.gateway.tunnel import Tunnel
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import ConnAck, Connect, Packet, Publish, SubAck, Subscribe, Subscription


class PlayedClient:
    """Implements `TunnelEnd` and `TunnelHost`."""

    def __init__(self, gateway: PlayedGateway) -> None:
        self.gateway = gateway
        self.tunnel = Tunnel(self, 100_000, 1_000)
        self.closed: list[SiteLink] = []
        self.overdue: Callable[[], None] | None = None

    def set_deadline(self, seconds: float, overdue: Callable[[], None]) -> None:
        self.overdue = overdue

    def drop_deadline(self) -> None:
        self.overdue = None

    def look(self) -> None: ...

    def to_client(self, data: bytes) -> None: ...

    def to_site(self, link: SiteLink, data: bytes) -> None: ...

    def close_site(self, link: SiteLink) -> None:
        self.closed.append(link)

    def close_client(self) -> None:
        self.gateway.core.gone(self)

    def arrived(self) -> None:
        self.gateway.core.arrived(self)

    def seek(self) -> None:
        self.gateway.core.seek(self)

    def dial(self) -> None:
        self.gateway.core.dial_target(self)

    def announcement(self, link: SiteLink, old: str) -> bytes:
        self.gateway.core.announces(self, link, old)
        return b""

    def clear_session(self, site: str, connect: Connect) -> None:
        self.gateway.core.sessions.end(site, connect)

    def draw_id(self) -> str:
        return "drawn"

    def settled(self, step: MoveStep, why: str) -> None:
        self.gateway.core.settled(self, step, why)

    def says(self, packet: Packet) -> None:
        self.tunnel.from_client(codec.encode(packet, 4))


class PlayedGateway:
    """Implements `GatewayCoreHost`."""

    def __init__(self, *, at_once: int = 1, planned: bool = True) -> None:
        self.time = 0.0
        self.soon: list[tuple[float, Callable[[], None]]] = []
        self.opening: list[tuple[PlayedClient, SiteLink]] = []
        self.clearing: list[Callable[[bool], None]] = []
        self.probes: list[Callable[[bool], None]] = []
        self.results: list[tuple[str, MoveStep, str]] = []
        self.where: dict[str, str] = {}
        self.core: GatewayCore[PlayedClient] = GatewayCore(
            self, GatewayRules(5.0, 20.0, 30.0, at_once, planned), str
        )

    def now(self) -> float:
        return self.time

    def call_later(self, seconds: float, callback: Callable[[], None]) -> object:
        self.soon.append((self.time + seconds, callback))
        return None

    def place(self, client: PlayedClient, done: Callable[[tuple[str, ...]], None]) -> None:
        done(("a", "b"))

    def open(self, client: PlayedClient, site: str, drains: bool) -> None:
        self.opening.append((client, SiteLink(site, drains, 100_000, 1_000, lambda file, data: 0)))

    def probe(self, site: str, done: Callable[[bool], None]) -> None:
        self.probes.append(done)

    def clear(self, site: str, connect: Connect, done: Callable[[bool], None]) -> None:
        self.clearing.append(done)

    def client_at(self, name: str, site: str) -> None:
        self.where[name] = site

    def client_gone(self, name: str) -> None:
        del self.where[name]

    def order_ended(self, task: MoveTask[PlayedClient], step: MoveStep, why: str) -> None:
        self.results.append((task.target, step, why))

    # What a test plays

    def passes(self, seconds: float = 0.0) -> None:
        self.time += seconds
        while due := [each for each in self.soon if each[0] <= self.time]:
            for each in due:
                self.soon.remove(each)
                each[1]()

    def answers(self, connack: ConnAck | None = None) -> PlayedClient:
        """The site that was dialed last opens, and accepts."""
        self.passes()
        client, link = self.opening.pop()
        assert self.core.opened(client, link)
        client.tunnel.from_site(link, codec.encode(connack or ConnAck(), 4))
        return client

    def comes(self, name: str, clean: bool = True) -> PlayedClient:
        client = PlayedClient(self)
        self.core.connected(client)
        client.says(Connect(name, 4, clean))
        return client


def test_a_client_goes_to_the_first_site_that_answers() -> None:
    gateway = PlayedGateway()
    client = gateway.comes("c")
    gateway.passes()
    _, link = gateway.opening.pop()
    assert link.site == "a"
    gateway.core.unreachable(client, "nobody there")
    gateway.answers()
    assert gateway.where == {"c": "b"}


def test_a_client_that_no_site_takes_is_refused_at_once_and_one_that_lost_its_site_is_looked_after() -> None:
    gateway = PlayedGateway()
    new = gateway.comes("new")
    gateway.passes()
    gateway.opening.clear()
    for _ in range(2):
        gateway.core.unreachable(new, "nobody there")
    gateway.passes()
    assert new.tunnel.way is ClientWay.ENDED
    old = gateway.comes("old")
    gateway.answers()
    assert old.tunnel.link is not None
    gateway.core.site_lost(old, old.tunnel.link)
    gateway.probes.pop()(False)
    for _ in range(40):
        gateway.passes(0.3)
        gateway.core.unreachable(old, "nobody there")
    assert "old" in gateway.where
    for _ in range(100):
        gateway.passes(0.3)
        gateway.core.unreachable(old, "nobody there")
    assert old.tunnel.way is ClientWay.ENDED
    assert "old" not in gateway.where


def test_a_client_whose_connection_alone_its_site_ended_is_let_go() -> None:
    gateway = PlayedGateway()
    client = gateway.comes("c")
    gateway.answers()
    assert client.tunnel.link is not None
    gateway.core.site_lost(client, client.tunnel.link)
    gateway.probes.pop()(True)
    assert client.tunnel.way is ClientWay.ENDED
    assert gateway.where == {}


def test_each_order_has_one_result_and_a_client_has_one_order() -> None:
    gateway = PlayedGateway()
    client = gateway.comes("c")
    gateway.answers()
    assert gateway.core.move(client, "b", 1) == ""
    assert gateway.core.move(client, "b", 2) == "it is on its way already"
    gateway.passes()
    assert gateway.core.move(client, "b", 3) == "it is on its way already"
    gateway.core.check()
    gateway.core.unreachable(client, "b: nobody there")
    assert gateway.results == [("b", MoveStep.FAIL, "b: nobody there")]
    assert gateway.core.move(client, "b", 4) == ""
    client.tunnel.client_gone()
    gateway.passes()
    assert gateway.results[1:] == [("b", MoveStep.REFUSE, "the client has gone")]


def test_no_more_moves_are_under_way_than_may_be() -> None:
    gateway = PlayedGateway(at_once=2)
    clients = []
    for number in range(3):
        clients.append(gateway.comes(str(number)))
        gateway.answers()
    for client in clients:
        assert gateway.core.move(client, "b", None) == ""
    gateway.passes()
    assert len(gateway.opening) == 2
    gateway.core.check()
    gateway.core.unreachable(clients[0], "no")
    gateway.passes()
    assert len(gateway.opening) == 3


def test_a_connection_that_comes_too_late_is_not_taken() -> None:
    gateway = PlayedGateway()
    client = gateway.comes("c")
    gateway.passes()
    _, link = gateway.opening.pop()
    client.tunnel.client_gone()
    assert not gateway.core.opened(client, link)


def test_a_client_waits_until_its_session_at_a_site_was_ended() -> None:
    gateway = PlayedGateway(planned=False)
    client = gateway.comes("c", clean=False)
    gateway.answers()
    gateway.core.move(client, "b", None)
    gateway.passes()
    gateway.clearing.pop()(True)  # at b, before the first CONNECT there
    gateway.answers()
    assert gateway.where == {"c": "b"}
    gateway.core.move(client, "a", None)
    gateway.passes()
    assert gateway.opening == []
    gateway.clearing.pop(0)(False)  # the session that it left at a
    assert gateway.core.counters["sessions_not_cleared"] == 1
    assert gateway.opening == []
    gateway.clearing.pop()(True)
    assert len(gateway.opening) == 1


def test_a_client_that_comes_back_to_its_session_has_the_subscriptions_that_it_left() -> None:
    gateway = PlayedGateway()
    client = gateway.comes("c", clean=False)
    gateway.answers()
    assert client.tunnel.link is not None
    client.says(Subscribe(1, (Subscription("t", 1),)))
    client.tunnel.from_site(client.tunnel.link, codec.encode(SubAck(1, (1,)), 4))
    gateway.core.move(client, "b", None)
    link = client.tunnel.link
    gateway.answers()
    gateway.core.site_lost(client, link)  # it has drained
    assert gateway.where == {"c": "b"}
    client.tunnel.client_gone()
    again = gateway.comes("c", clean=False)
    gateway.answers(ConnAck(0, True))
    assert gateway.where == {"c": "b"}
    assert list(again.tunnel.wanted.granted) == ["t"]
    assert again.tunnel.fixed == ""
    stranger = gateway.comes("d", clean=False)
    gateway.answers(ConnAck(0, True))
    assert stranger.tunnel.fixed
    stranger.says(Publish("t", b"x"))


def test_a_site_that_does_not_answer_in_time_is_left_but_the_old_one_has_longer_to_drain() -> None:
    gateway = PlayedGateway()
    client = gateway.comes("c")
    gateway.answers()
    gateway.core.move(client, "b", 7)
    gateway.answers()
    assert client.tunnel.way is ClientWay.DRAINING
    assert client.overdue is not None
    client.overdue()
    assert client.tunnel.way is ClientWay.DRAINING
    client.overdue()
    assert gateway.results == [("b", MoveStep.LATE, "")]
    assert gateway.core.counters["moves_late"] == 1
